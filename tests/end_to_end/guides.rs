//! The commands of `docs/daemon.md` do what it says, as they stand there.
//!
//! Invariants:
//! - a command is only told where its cluster and its store are; what else it says is the guide's.

use std::fmt::Write;

use crate::daemon::{Daemon, done, run, store};

const DAEMON: &str = include_str!("../../docs/daemon.md");

/// The commands of a section, without their remarks.
fn commands(section: &str) -> Vec<String> {
    let heading = format!("\n## {section}\n");
    let (_, rest) = DAEMON.split_once(&heading).expect("the guide has the section");
    let text = rest.split("\n## ").next().unwrap_or(rest).replace("\\\n", " ");
    let shown = text.split("```").skip(1).step_by(2).flat_map(str::lines);
    let lines = shown.map(|line| line.split(" #").next().unwrap_or(line).trim());
    lines.filter_map(|line| line.strip_prefix("troupemq ")).map(str::to_owned).collect()
}

#[test]
fn what_is_done_every_day_works_as_the_guide_says() {
    let (_folder, store) = store();
    let daemon = Daemon::start(&store);
    let flag = daemon.flag();
    let commands = commands("Every day");
    let names: Vec<_> =
        commands.iter().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect();
    let expected = [
        "cluster list",
        "topic create",
        "topic show",
        "group list",
        "group show",
        "offset reset",
        "message find",
        "cluster config",
    ];
    assert_eq!(names, expected);
    for command in &commands {
        let told = done(&format!("{} {flag}", command.replace("BROKER", "b")));
        assert!(!told.is_empty(), "{command} says nothing");
        if command.starts_with("topic create") {
            // What the commands behind it look at.
            done(&format!("produce {flag} -t orders --key 42 hello"));
            let got = done(&format!("consume {flag} -t orders --group orders-reader --from first --count 1"));
            assert_eq!(got, "hello\n");
        }
    }
}

#[test]
fn a_store_that_rests_is_looked_at_as_the_guide_says() {
    let (_folder, store) = store();
    let mut daemon = Daemon::start(&store);
    done(&format!("produce {} -t orders --count 3 hello", daemon.flag()));
    assert!(daemon.terminate().success());
    let mut told = String::new();
    for command in commands("After a crash") {
        let ended = run(&command.replace("/data/a", &store.display().to_string()), "");
        assert_eq!(ended.code, Some(0), "{command}: {}", ended.stderr);
        write!(told, "{command}: {}", ended.stdout).expect("a text grows");
    }
    for words in [
        "store check",
        "3 records in",
        "store dump",
        "orders",
        "store rebuild",
        "3 records read, the log ends at",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
}

#[test]
fn a_ramp_ends_at_the_first_bound_and_draws_its_curves() {
    let (folder, store) = store();
    let daemon = Daemon::start(&store);
    let page = folder.path().join("ramp.html");
    // No answer comes within 0 ms, so the first step is the last.
    let bounds = "--from 100 --seconds 1 --warmup 0 --connections 1 --size 100 --p99-max-ms 0";
    let html = page.display();
    let told = done(&format!("bench ramp {} {bounds} --html {html} --json", daemon.flag()));
    let last = told.lines().last().expect("it says something");
    let verdict: serde_json::Value = serde_json::from_str(last).expect("the verdict is JSON");
    assert_eq!(verdict["safeRate"], 0, "{told}");
    assert!(verdict["end"].is_string(), "{told}");
    assert_eq!(told.lines().count(), 2, "one step and the verdict: {told}");
    let drawn = std::fs::read_to_string(page).expect("the page is written");
    assert!(drawn.contains("<svg"), "{drawn}");
}
