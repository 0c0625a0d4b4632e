//! The doctor on a real machine.
//!
//! Invariants:
//! - what it says of a machine depends on the machine; that it says something of each value does not.

use crate::daemon::{run, store};

#[test]
fn the_doctor_tells_every_value_and_finds_a_wrong_address() {
    let (_folder, store) = store();
    let flags = format!("--store-dir {} --advertise 127.0.0.1:1", store.display());
    let told = run(&format!("doctor {flags}"), "");
    let values = [
        "vm.max_map_count",
        "vm.swappiness",
        "vm.overcommit_memory",
        "open files (hard limit)",
        "folder of the store",
        "file system",
        "disk  ",
        "free disk space",
        "clock source",
        "clock  ",
        "advertised address",
    ];
    for what in values {
        assert!(told.stdout.lines().any(|line| line.starts_with(what)), "{what}: {}", told.stdout);
    }
    assert_eq!(told.code, Some(1), "{}", told.stdout);
    assert!(told.stdout.contains("127.0.0.1:1: Connection refused"), "{}", told.stdout);
    let all = run(&format!("doctor --all {flags}"), "").stdout;
    for what in values {
        let (_, explained) = all.split_once(&format!("\n{}: ", what.trim())).expect("it is explained");
        let lines: Vec<&str> = explained.lines().take(3).map(str::trim).collect();
        assert!(lines.iter().all(|line| !line.is_empty()), "advice, why and command of {what}: {lines:?}");
    }
    let json = run(&format!("doctor --json {flags}"), "").stdout;
    assert_eq!(json.lines().count(), values.len(), "{json}");
    for line in json.lines() {
        let finding: serde_json::Value = serde_json::from_str(line).expect("a line is JSON");
        for field in ["value", "verdict", "advice", "why", "command"] {
            assert!(finding[field].as_str().is_some_and(|text| !text.is_empty()), "{field}: {line}");
        }
    }
    let wrong = json.lines().find(|line| line.contains("advertised address")).expect("it is told");
    assert!(wrong.contains(r#""verdict":"wrong""#) && wrong.contains("--advertise IP"), "{wrong}");
}
