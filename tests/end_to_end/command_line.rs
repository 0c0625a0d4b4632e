//! The program as a person at a terminal or a script meets it: help, completions, input and output of commands.
//!
//! Invariants:
//! - with `--json`, every line that is printed is an object.

use serde_json::Value;

use crate::daemon::{Daemon, done, run, store};

/// Every line as the object that it is.
fn objects(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no object: {line}")))
        .collect()
}

/// The commands that a help lists.
fn listed(help: &str) -> Vec<String> {
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| !line.is_empty());
    let names = commands.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    names.map(str::to_owned).collect()
}

/// Whether a line of a help is about a flag, and not one of a list.
fn is_flag(line: &str) -> bool {
    line.starts_with('-') && !line.starts_with("- ")
}

/// Text that no compression makes shorter than three quarters of it.
fn noise(bytes: usize) -> String {
    let mut state = 1_u32;
    let mut letter = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b'0' + u8::try_from(state >> 26).expect("6 bits"))
    };
    (0..bytes).map(|_| letter()).collect()
}

#[test]
fn every_command_has_a_help_that_says_what_each_flag_is_for() {
    let mut commands: Vec<String> = listed(&done("--help"));
    assert!(commands.len() > 15, "{commands:?}");
    let mut seen = 0;
    while let Some(command) = commands.pop() {
        let help = done(&format!("{command} --help"));
        let about = help.lines().next().unwrap_or_default();
        assert!(about.len() > 10 && !about.ends_with('.'), "{command}: {about:?}");
        assert!(help.contains("Usage: troupemq "), "{command}: {help}");
        let lines: Vec<&str> = help.lines().map(str::trim).collect();
        for (at, flag) in lines.iter().enumerate().filter(|(_, line)| is_flag(line)) {
            let beside = flag.split("  ").skip(1).any(|part| !part.trim().is_empty());
            let below = lines.get(at + 1).is_some_and(|line| !line.is_empty() && !is_flag(line));
            assert!(beside || below, "{command}: {flag} says nothing");
        }
        commands.extend(listed(&help).into_iter().map(|name| format!("{command} {name}")));
        seen += 1;
    }
    assert!(seen > 40, "{seen} commands");
}

#[test]
fn every_shell_gets_completions_with_every_command() {
    let commands = listed(&done("--help"));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = done(&format!("--log=off completions {shell}"));
        for command in &commands {
            assert!(script.contains(command.as_str()), "{shell} knows no {command}");
        }
    }
}

#[test]
fn lines_without_a_body_are_counted_and_the_first_that_fails_is_named() {
    let (_folder, store) = store();
    let daemon = Daemon::start(&store);
    let flag = daemon.flag();
    let sent = run(&format!("produce {flag} -t lines --in-flight 1"), "one\n\ntwo\n");
    assert_eq!(sent.stdout, "sent 2 messages to lines, 1 empty lines passed over\n", "{}", sent.stderr);
    let long = noise(7 << 20);
    let failed = run(&format!("produce {flag} -t lines --in-flight 1"), &format!("one\n{long}\nthree\n"));
    assert_eq!(failed.stdout, "sent 1 messages to lines\n");
    assert!(failed.stderr.contains("line 2 was not sent"), "{}", failed.stderr);
    assert!(failed.code.is_some_and(|code| code != 0));
}

#[test]
fn what_the_commands_of_stores_and_settings_say_can_be_read_by_programs() {
    let (folder, store) = store();
    let mut daemon = Daemon::start(&store);
    done(&format!("topic create {} t --queues 1", daemon.flag()));
    done(&format!("produce {} -t t --key k hello", daemon.flag()));
    assert!(daemon.terminate().success());
    let dir = format!("{} --config {}", store.display(), store.with_extension("conf").display());
    let checked = objects(&done(&format!("store check {dir} --json")));
    assert!(checked[0]["records"].as_i64().is_some_and(|records| records >= 1), "{checked:?}");
    let dumped = objects(&done(&format!("store dump {dir} --json")));
    let record = dumped.iter().find(|record| record["topic"] == "t").expect("it is in the log");
    assert_eq!(record["bodySize"], 5);
    assert!(dumped.last().is_some_and(|end| end["why"].is_string()), "{dumped:?}");
    let units = objects(&done(&format!("store dump {dir} --queue t:0 --json")));
    assert_eq!(units[0]["logOffset"], record["logOffset"]);
    let rebuilt = objects(&done(&format!("store rebuild {dir} --json")));
    assert_eq!(rebuilt[0]["records"], checked[0]["records"]);
    let file = folder.path().join("broker.conf");
    std::fs::write(&file, "brokerName=b\nhaListenPort=10912\n").expect("the folder is writable");
    let right = objects(&done(&format!("--log=off config check {} --json", file.display())));
    assert_eq!(right[0]["settings"], 2);
}

#[test]
fn flags_that_a_load_could_not_keep_are_refused() {
    assert_eq!(run("bench send --tls system", "").code, Some(2));
    assert_eq!(run("bench ramp --rate 100", "").code, Some(2));
    assert_eq!(run("bench send --messages 1", "").code, Some(2));
}
