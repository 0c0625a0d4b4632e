//! Checks of transactions that meet trouble. The clock is turned by hand.
//!
//! Invariants:
//! - nothing here waits for real time to pass but for the wake of an actor.

use std::sync::Arc;

use troupemq_codec::request::TRANSACTION_COMMIT;
use troupemq_codec::{Command, ResponseCode, Text};
use troupemq_store::ManualClock;

use super::delivery_test::{NOW_MS, count, start};
use super::transaction_test::{Question, beat, end, half, half_request, place, produce_for};
use crate::testing::{Client, send_request, stored, wait_for};

/// A half message with a property of so many characters behind what it wishes.
fn half_of_length(len: usize, wish: &str) -> Command {
    half_request("Full", &format!("{wish}long\u{1}{}\u{2}", "v".repeat(len)))
}

/// The longest property that a half message may have.
struct Longest {
    len: usize,
    /// The answer to it.
    taken: Command,
    /// What was said of the one that is longer by a character.
    refusal: Option<Text>,
}

fn longest_that_fits(mut send: impl FnMut(usize) -> Command) -> Longest {
    let mut refusal = None;
    for len in (0..32_700).rev() {
        let answer = send(len);
        if answer.response_code() != ResponseCode::MESSAGE_ILLEGAL {
            return Longest { len, taken: answer, refusal };
        }
        refusal = answer.remark;
    }
    panic!("no length fits: {refusal:?}")
}

/// 3.11 #106: the properties of one half message leave no room for the number of its checks.
#[test]
fn a_half_message_that_cannot_count_its_checks_is_asked_about_and_holds_up_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let full = longest_that_fits(|len| client.call(half_of_length(len, "")));
    let full = place(&full.taken);
    half(&mut client, "Behind", "");
    let mut producer = produce_for(&node, "Payers");
    for times in ["1", "2"] {
        clock.advance_ms(30_000);
        let asked = Question::wait(&mut producer);
        assert_eq!((asked.header.message_id.as_deref(), asked.times()), (Some("Full"), None));
        assert_eq!(asked.at(), full, "it stays where it is");
        let asked = Question::wait(&mut producer);
        assert_eq!((asked.header.message_id.as_deref(), asked.times()), (Some("Behind"), Some(times)));
        assert_eq!(producer.call(beat("Payers")).code, 0);
    }
    assert_eq!(end(&mut client, full, TRANSACTION_COMMIT).code, 0);
    assert_eq!(&wait_for(&mut client, "Paid", 1, 0).body[..], b"Full");
    node.stop_and_wait().expect("a clean stop");
}

/// What a commit has to note finds room, or the half message is refused with what it has and what it may have.
#[test]
fn a_half_message_with_a_level_or_a_time_leaves_its_commit_room_or_is_refused() {
    for (wish, delay_ms) in [("DELAY\u{1}99\u{2}", 7_200_000), ("TIMER_DELAY_SEC\u{1}20\u{2}", 20_000)] {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(NOW_MS));
        let node = start(dir.path(), &clock);
        let mut client = Client::of(&node);
        let full = longest_that_fits(|len| client.call(half_of_length(len, wish)));
        let told = "its properties have 32735 bytes, 32767 are the most, and half of a transaction with a level or a \
                    time leaves 33 of them to its commit";
        assert!(full.refusal.as_ref().is_some_and(|remark| remark.ends_with(told)), "{:?}", full.refusal);
        // Those that are a little shorter have room for the number of their checks, or for what the commit notes.
        let rest = [10, 26, 40].map(|less| place(&client.call(half_of_length(full.len - less, wish))));
        let mut producer = produce_for(&node, "Payers");
        clock.advance_ms(30_000);
        let asked: Vec<Question> = (0..4).map(|_| Question::wait(&mut producer)).collect();
        assert_eq!(asked.iter().map(Question::times).collect::<Vec<_>>(), [None, None, Some("1"), Some("1")]);
        assert_eq!(asked[1].at(), rest[0], "it stays where it is");
        for question in asked {
            assert_eq!(end(&mut client, question.at(), TRANSACTION_COMMIT).code, 0, "{:?}", question.times());
        }
        clock.advance_ms(delay_ms);
        let mut client = Client::of(&node);
        for offset in 0..4 {
            let message = wait_for(&mut client, "Paid", 1, offset);
            assert_eq!(
                (&message.body[..], message.properties.get("REAL_TOPIC")),
                (&b"Full"[..], Some("Paid"))
            );
        }
        node.stop_and_wait().expect("a clean stop");
    }
}

/// What could never be committed is refused when it is sent.
#[test]
fn half_of_a_transaction_for_a_time_that_cannot_be_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    for (wish, value, code) in [
        ("DELAY", "soon", ResponseCode::SYSTEM_ERROR),
        ("TIMER_DELAY_SEC", "259201", ResponseCode::MESSAGE_ILLEGAL),
        ("TIMER_DELIVER_MS", "tomorrow", ResponseCode::MESSAGE_ILLEGAL),
    ] {
        let answer = client.call(half_request("Never", &format!("{wish}\u{1}{value}\u{2}")));
        assert_eq!(answer.response_code(), code, "{wish}");
        let plain = client.call(send_request("Paid", 1, b"x", &format!("{wish}\u{1}{value}\u{2}")));
        assert_eq!(answer.remark, plain.remark, "as a plain message is");
    }
    assert_eq!(count(&mut client, "RMQ_SYS_TRANS_HALF_TOPIC", 0), 0);
    stored(&client.call(half_request("Good", "TIMER_DELAY_SEC\u{1}20\u{2}")));
    assert_eq!(count(&mut client, "RMQ_SYS_TRANS_HALF_TOPIC", 0), 1);
    node.stop_and_wait().expect("a clean stop");
}

/// The bits of a transaction in the flags of a message that is none would hide it when its queue is made again.
#[test]
fn a_message_that_is_no_half_is_plain_whatever_its_flags_say() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    for flags in ["4", "8", "12", "13"] {
        let mut send = send_request("Plain", 0, flags.as_bytes(), "");
        send.fields.set("f", flags);
        stored(&client.call(send));
    }
    node.stop_and_wait().expect("a clean stop");
    std::fs::remove_dir_all(dir.path().join("consumequeue")).expect("the queues are files");
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    for (offset, (body, flags)) in (0..).zip([("4", 0), ("8", 0), ("12", 0), ("13", 1)]) {
        let message = wait_for(&mut client, "Plain", 0, offset);
        assert_eq!((&message.body[..], message.sys_flag), (body.as_bytes(), flags));
    }
    node.stop_and_wait().expect("a clean stop");
}
