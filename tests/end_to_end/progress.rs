//! Commands that may take long: they tell on standard error how far they are.
//!
//! Invariants:
//! - what they print on standard output is the same with and without.

use crate::daemon::{Daemon, Ended, done, failed, run, run_with_file, silent_address, store};
use crate::waiting::give_up;

/// The lines about how far a command is.
fn told<'a>(ended: &'a Ended, what: &str) -> Vec<&'a str> {
    ended.stderr.lines().filter_map(|line| line.strip_prefix(what)?.strip_prefix(": ")).collect()
}

#[test]
fn long_commands_tell_percents_off_a_terminal() {
    let (folder, store) = store();
    let daemon = Daemon::start(&store);
    let flag = daemon.flag();
    let input = folder.path().join("lines");
    std::fs::write(&input, "line\n".repeat(100)).expect("writable");
    let sent = run_with_file(&format!("produce {flag} -t lines --key k --progress always"), &input);
    assert_eq!((sent.code, &*sent.stdout), (Some(0), "sent 100 messages to lines\n"), "{}", sent.stderr);
    let tens: Vec<String> = (1..=10).map(|ten| format!("{}0 %", ten)).collect();
    assert_eq!(told(&sent, "produce"), tens);
    let silent = run_with_file(&format!("produce {flag} -t lines --progress never"), &input);
    assert_eq!((told(&silent, "produce"), &silent.stdout), (vec![], &sent.stdout));
    let counted = run(&format!("produce {flag} -t lines --count 4 --progress always x"), "");
    assert_eq!(told(&counted, "produce"), ["25 %", "50 %", "75 %", "100 %"]);
    let endless =
        run(&format!("produce {flag} -t lines --progress always"), "of a pipe\nnobody knows the end\n");
    assert_eq!((told(&endless, "produce"), endless.code), (vec![], Some(0)));

    let found = run(&format!("message find {flag} lines --key k --progress always"), "");
    assert_eq!((told(&found, "find"), found.code), (vec!["100 %"], Some(0)));
    assert_eq!(found.stdout, done(&format!("message find {flag} lines --key k --progress never")));

    done(&format!("topic create {flag} orders --queues 1"));
    done(&format!("group create {flag} readers"));
    run(&format!("produce {flag} -t orders"), "first\nsecond\n");
    give_up(&flag, "orders", "readers");
    let resent = run(&format!("dlq resend {flag} readers --progress always"), "");
    assert_eq!((told(&resent, "resend").last(), resent.code), (Some(&"100 %"), Some(0)), "{}", resent.stderr);
    let nothing = run(&format!("dlq resend {flag} readers --progress always"), "");
    assert_eq!((told(&nothing, "resend"), &*nothing.stdout), (vec![], "0 resent\n"));
}

#[test]
fn every_name_server_that_is_down_is_named_with_its_cause() {
    let ((_kept, one), (_kept_too, other)) = (silent_address(), silent_address());
    let (code, why) = failed(&format!("topic list -n {one};{other}"));
    assert_eq!(code, Some(3), "{why}");
    assert!(why.contains("no name server answers: "), "{why}");
    for address in [one, other] {
        assert!(why.contains(&format!("cannot connect to {address}: ")), "{why}");
    }
    let (code, why) = failed(&format!("topic list -n {one}"));
    assert_eq!(code, Some(3), "{why}");
    assert!(why.contains(&format!("troupemq: cannot connect to {one}: ")), "{why}");
}
