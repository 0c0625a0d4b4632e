//! The commands of `docs/daemon.md` do what it says, as they stand there.
//!
//! Invariants:
//! - a command is only told where its cluster, its store and the settings of it are; what else it says is the guide's.

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
    assert!(commands.len() >= 8, "they are found in the guide: {commands:?}");
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
    let (folder, store) = store();
    let mut daemon = Daemon::start(&store);
    done(&format!("produce {} -t orders --count 3 hello", daemon.flag()));
    assert!(daemon.terminate().success());
    let settings = folder.path().join("broker.conf");
    let lines = std::fs::read_to_string(store.with_extension("conf")).expect("the broker has settings");
    let lines = format!("storePathRootDir={}\n{lines}", store.display());
    std::fs::write(&settings, lines).expect("the folder of the test is writable");
    let config = format!("--config {}", settings.display());
    let mut told = String::new();
    for command in commands("After a crash") {
        let command = command.replace("/data/a", &store.display().to_string());
        let command = match command.split_once("--config broker.conf") {
            Some((before, after)) => format!("{before}{config}{after}"),
            None => format!("{command} {config}"),
        };
        let ended = run(&command, "");
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
