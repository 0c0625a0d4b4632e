//! The program at a terminal: what a shell completes, the bars that are drawn, and what can be copied from the screen.
//!
//! Invariants:
//! - a terminal is made by `script` of util-linux, which every Debian has; a shell is bash.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::daemon::{Daemon, Ended, done, run, store};

/// What draws a bar.
const BAR: char = '█';
/// What takes a line of a terminal away.
const CLEAR: &str = "\u{1b}[2K";

/// Runs a script of bash, which finds the program as `$TROUPEMQ`.
fn bash(script: &str) -> Ended {
    let mut command = Command::new("bash");
    command.args(["--norc", "--noprofile", "-eo", "pipefail", "-c", script]).stdin(Stdio::null());
    command.env("TROUPEMQ", env!("CARGO_BIN_EXE_troupemq")).env("TERM", "xterm");
    let output = command.output().expect("there is a bash");
    Ended {
        stdout: String::from_utf8(output.stdout).expect("it prints text"),
        stderr: String::from_utf8(output.stderr).expect("it prints text"),
        code: output.status.code(),
    }
}

/// All that a terminal is sent while the program runs with these arguments.
fn on_terminal(arguments: &str) -> String {
    let inside = format!("stty cols 100 && exec \"$TROUPEMQ\" {arguments}");
    let ended = bash(&format!("script -qec '{inside}' /dev/null"));
    assert_eq!(ended.code, Some(0), "{arguments}: {} {}", ended.stdout, ended.stderr);
    ended.stdout
}

/// What bash offers when the tabulator is pressed behind these words.
fn completed(words: &[&str]) -> Vec<String> {
    let quoted: Vec<_> = words.iter().map(|word| format!("'{word}'")).collect();
    let (all, at) = (quoted.join(" "), words.len());
    let (last, before) = (words[at - 1], if at > 1 { words[at - 2] } else { "troupemq" });
    let ended = bash(&format!(
        "source <(\"$TROUPEMQ\" completions bash)\n\
         [[ $(complete -p troupemq) == *'-F _troupemq '* ]]\n\
         COMP_WORDS=(troupemq {all}) COMP_CWORD={at} COMPREPLY=()\n\
         _troupemq troupemq '{last}' '{before}'\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\""
    ));
    assert_eq!(ended.code, Some(0), "{words:?}: {}", ended.stderr);
    ended.stdout.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_flags_and_values() {
    assert_eq!(completed(&["to"]), ["topic"]);
    let commands = completed(&["topic", ""]);
    for command in ["list", "show", "create", "update", "delete"] {
        assert!(commands.iter().any(|offered| offered == command), "{command}: {commands:?}");
    }
    assert_eq!(completed(&["bench", "ramp", "--ht"]), ["--html"]);
    assert_eq!(completed(&["dlq", "resend", "--to"]), ["--to-topic"]);
    assert_eq!(completed(&["broker", "--flush", ""]), ["sync", "async"]);
    assert_eq!(completed(&["completions", "ba"]), ["bash"]);
}

#[test]
fn a_bar_is_drawn_on_a_terminal_and_gone_before_the_result() {
    let (folder, store) = store();
    let mut daemon = Daemon::start(&store);
    let flag = daemon.flag();
    let lines = folder.path().join("lines");
    // Bodies of 4 KiB and more would be compressed.
    std::fs::write(&lines, format!("{}\n", "x".repeat(3000)).repeat(200)).expect("writable");
    let sent = on_terminal(&format!("produce {flag} -t t < {}", lines.display()));
    let (drawn, result) = sent.rsplit_once(CLEAR).expect("a bar is taken away");
    assert!(drawn.contains(BAR) && drawn.contains('%'), "{sent:?}");
    assert_eq!(result.trim(), "sent 200 messages to t");
    let counted = on_terminal(&format!("produce {flag} -t t --count 5 --progress never x"));
    assert_eq!(counted.trim(), "sent 5 messages to t");
    assert!(daemon.terminate().success());

    let settings = format!("--config {}", store.with_extension("conf").display());
    for (command, begin) in [("check", "205 records in "), ("rebuild", "205 records read")] {
        let arguments = format!("store {command} {settings} {}", store.display());
        let shown = on_terminal(&arguments);
        let (drawn, result) = shown.rsplit_once(CLEAR).expect("a bar is taken away");
        assert!(drawn.contains(BAR) && drawn.contains('%'), "{shown:?}");
        assert!(result.trim().starts_with(begin), "{shown:?}");
        let piped = run(&arguments, "");
        assert!(piped.code == Some(0) && piped.stdout.starts_with(begin), "{piped:?}");
        assert_eq!(piped.stdout.lines().count(), 1, "{}", piped.stdout);
        let told = piped.stderr + &piped.stdout;
        assert!(!told.contains([BAR, '%', '\u{1b}']), "a short walk tells a pipe nothing: {told}");
    }
    let json = on_terminal(&format!("store check {settings} {} --json", store.display()));
    let (_, result) = json.rsplit_once(CLEAR).expect("a bar is taken away");
    assert!(result.trim().starts_with("{\"records\":205,"), "{json:?}");
}

#[test]
fn what_the_log_says_stands_above_the_bar() {
    let (folder, store) = store();
    let mut daemon = Daemon::start(&store);
    let lines = folder.path().join("lines");
    std::fs::write(&lines, format!("{}\n", "x".repeat(3000)).repeat(50)).expect("writable");
    let produced = bash(&format!("\"$TROUPEMQ\" produce {} -t t < {}", daemon.flag(), lines.display()));
    assert_eq!(produced.code, Some(0), "{}", produced.stderr);
    assert!(daemon.terminate().success());
    let settings = format!("--config {}", store.with_extension("conf").display());
    let shown =
        on_terminal(&format!("--log troupemq_store=debug store rebuild {settings} {}", store.display()));
    let logged: Vec<&str> = shown.lines().filter(|line| line.contains(" INFO troupemq_store")).collect();
    assert!(!logged.is_empty(), "{shown:?}");
    for line in logged {
        // `2026-11-30T10:11:14.108586Z  INFO …`, on a line of which the bar was taken away.
        let (before, _) = line.split_once(" INFO ").expect("it is one of these");
        let before = before.trim_end();
        let before = &before[..before.len().saturating_sub("2026-11-30T10:11:14.108586Z".len())];
        assert!(before.is_empty() || before.ends_with(CLEAR), "a bar before it: {line:?}");
    }
    assert!(shown.contains("50 records read"), "{shown}");
}

#[test]
fn what_the_greeting_tells_to_try_can_be_copied_and_works() {
    let (_folder, store) = store();
    let daemon = Daemon::start(&store);
    let copied =
        |at: usize, begin: &str| daemon.greeting[at].strip_prefix(begin).expect("it tells what to try");
    let sent = bash(copied(1, "try: "));
    assert_eq!((sent.code, &*sent.stdout), (Some(0), "sent 1 messages to demo\n"), "{}", sent.stderr);
    let got = bash(&format!("{} --count 1", copied(2, "then: ")));
    assert_eq!((got.code, &*got.stdout), (Some(0), "hello\n"), "{}", got.stderr);
}

#[test]
fn a_consumer_that_is_told_to_end_ends_in_order() {
    let (_folder, store) = store();
    let daemon = Daemon::start(&store);
    let flag = daemon.flag();
    done(&format!("produce {flag} -t t hello"));
    for signal in [Signal::TERM, Signal::INT] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_troupemq"));
        command.args(["consume", "-t", "t", "--broadcast"]).args(flag.split_whitespace());
        let mut consumer = command.stdout(Stdio::piped()).spawn().expect("the program starts");
        let mut line = String::new();
        BufReader::new(consumer.stdout.as_mut().expect("it is piped")).read_line(&mut line).expect("text");
        assert_eq!(line, "hello\n");
        kill_process(Pid::from_child(&consumer), signal).expect("the process is there");
        assert_eq!(consumer.wait().expect("it ends").code(), Some(0), "it is not killed by {signal:?}");
    }
}
