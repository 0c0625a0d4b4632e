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
    for what in ["vm.max_map_count", "open files", "file system", "free disk space", "clock source"] {
        assert!(told.stdout.contains(what), "{what}: {}", told.stdout);
    }
    assert_eq!(told.code, Some(1), "{}", told.stdout);
    assert!(told.stdout.contains("127.0.0.1:1: Connection refused"), "{}", told.stdout);
    let json = run(&format!("doctor --json {flags}"), "").stdout;
    let wrong = json.lines().find(|line| line.contains("advertised address")).expect("it is told");
    assert!(wrong.contains(r#""verdict":"wrong""#) && wrong.contains("--advertise IP"), "{wrong}");
}
