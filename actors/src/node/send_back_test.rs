//! Messages that are sent back together, and some of them in vain. The clock is turned by hand.
//!
//! Invariants:
//! - nothing here waits for real time to pass but for the wake of an actor.

use std::collections::HashMap;
use std::sync::Arc;

use troupemq_codec::ResponseCode;
use troupemq_codec::message::Message;
use troupemq_store::ManualClock;

use super::delivery_test::{NOW_MS, back, count, start};
use super::put_off_test::keep_free;
use crate::testing::{Client, publish, wait_for};

const RETRY: &str = "%RETRY%Group";
const DEAD: &str = "%DLQ%Group";
/// A client whose own limit counts.
const NEW: i32 = 475;

/// Sends messages back one behind the other, and then looks at the answers: their codes and remarks, as asked.
fn all_back(client: &mut Client, messages: &[Message], level: i32) -> Vec<(ResponseCode, String)> {
    let sent: Vec<i32> =
        messages.iter().map(|message| client.send(back(message, level, (None, NEW)))).collect();
    let answers = sent.iter().map(|_| client.receive().expect("an answer comes"));
    let mut answers: HashMap<i32, _> = answers.map(|answer| (answer.opaque, answer)).collect();
    let answers = sent.iter().map(|opaque| answers.remove(opaque).expect("each is answered once"));
    answers
        .map(|answer| (answer.response_code(), answer.remark.map_or_else(String::new, String::from)))
        .collect()
}

/// 4.3: as fast as they come, and in the order in which they were sent back, those included for which the topics of
/// the group are made.
#[test]
fn what_is_sent_back_together_comes_again_in_its_order_and_what_cannot_be_holds_up_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    // No member has made the group's topics: the first messages wait for that, and the others come meanwhile.
    let count_of = 600_u16;
    let mut messages: Vec<Message> =
        (0..count_of).map(|at| publish(&mut client, "Work", &at.to_be_bytes())).collect();
    let nowhere = |log_offset| Message { log_offset, ..messages[0].clone() };
    let (none, negative) = (nowhere(messages[5].log_offset + 1), nowhere(-7));
    messages.insert(300, none.clone());
    messages.insert(10, negative);
    let answers = all_back(&mut client, &messages, 1);
    for (at, (code, remark)) in answers.iter().enumerate() {
        let wanted = match at {
            10 => "look message by offset failed, -7".to_owned(),
            301 => format!("look message by offset failed, {}", none.log_offset),
            _ => String::new(),
        };
        let is_good = wanted.is_empty();
        assert_eq!((*code == ResponseCode::SUCCESS, remark), (is_good, &wanted), "{at}");
    }
    messages.retain(|message| message.log_offset >= 0 && message.log_offset != none.log_offset);
    let dead = all_back(&mut client, &messages, -1);
    assert!(dead.iter().all(|(code, _)| *code == ResponseCode::SUCCESS), "{dead:?}");
    clock.advance_ms(1000);
    for topic in [RETRY, DEAD] {
        let again = (0..count_of).map(|at| wait_for(&mut client, topic, 0, i64::from(at)));
        let again: Vec<u16> =
            again.map(|message| u16::from_be_bytes([message.body[0], message.body[1]])).collect();
        assert_eq!(again, (0..count_of).collect::<Vec<u16>>(), "{topic}");
        let end = node.broker().unwrap().queues.get(topic, 0).expect("it was made").max_offset();
        assert_eq!(end, i64::from(count_of), "each once in {topic}");
    }
    node.stop_and_wait().expect("a clean stop");
}

/// 4.3 step 9: what cannot be stored is told with its cause, and can be sent back when there is room.
#[test]
fn what_is_sent_back_while_the_disk_is_full_is_refused_with_the_cause_and_taken_later() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let messages: Vec<Message> = (0..20_u8).map(|at| publish(&mut client, "Work", &[at])).collect();
    keep_free(&mut client, u64::MAX >> 1);
    for (code, remark) in all_back(&mut client, &messages, -1) {
        assert_eq!(code, ResponseCode::SERVICE_NOT_AVAILABLE);
        assert!(remark.contains("free"), "{remark}");
    }
    assert_eq!(count(&mut client, DEAD, 0), 0);
    keep_free(&mut client, 0);
    let answers = all_back(&mut client, &messages, -1);
    assert!(answers.iter().all(|(code, _)| *code == ResponseCode::SUCCESS), "{answers:?}");
    let dead: Vec<u8> = (0..20).map(|at| wait_for(&mut client, DEAD, 0, at).body[0]).collect();
    assert_eq!(dead, (0..20).collect::<Vec<u8>>());
    node.stop_and_wait().expect("a clean stop");
}
