//! Messages that made a detour, as they stand in their topic in the end. The clock is turned by hand.
//!
//! Invariants:
//! - nothing here waits for real time to pass but for the wake of an actor.

use std::sync::Arc;

use troupemq_codec::message::Message;
use troupemq_codec::request::{QueryMessage, QueryMessageHeader, TRANSACTION_COMMIT};
use troupemq_codec::{ResponseCode, Text};
use troupemq_store::ManualClock;

use super::delivery_test::{NOW_MS, start};
use super::transaction_test::{end, half, produce_for};
use crate::testing::{Client, request, stored, wait_for};

/// The bodies of the messages of a topic that a key finds.
fn found(client: &mut Client, topic: &str, key: &str, is_unique_key: bool) -> Vec<String> {
    let answer = client.call(request::<QueryMessage>(&QueryMessageHeader {
        topic: Text::from(topic),
        key: Text::from(key),
        messages_max: 64,
        begin_timestamp_ms: 0,
        end_timestamp_ms: i64::MAX,
        is_unique_key: is_unique_key.then_some(true),
    }));
    if answer.response_code() == ResponseCode::QUERY_NOT_FOUND {
        return Vec::new();
    }
    let messages = Message::decode_all(answer.body).expect("whole messages").into_iter();
    messages.map(|message| String::from_utf8(message.body.to_vec()).unwrap()).collect()
}

#[test]
fn messages_that_made_a_detour_are_found_by_their_keys_in_their_own_topic() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = produce_for(&node, "Payers");
    let keys = |id: &str| format!("UNIQ_KEY\u{1}{id}\u{2}KEYS\u{1}{id}-a {id}-b\u{2}");
    for (id, wish) in [("level", "DELAY\u{1}1\u{2}"), ("timer", "TIMER_DELAY_MS\u{1}1500\u{2}")] {
        stored(&client.produce("Late", 0, id.as_bytes(), &format!("{}{wish}", keys(id))));
    }
    for (id, more) in [("paid", ""), ("both", "DELAY\u{1}1\u{2}")] {
        let at = half(&mut client, id, &format!("KEYS\u{1}{id}-a {id}-b\u{2}{more}"));
        assert!(found(&mut client, "Paid", &format!("{id}-a"), false).is_empty(), "{id} is not there yet");
        assert_eq!(end(&mut client, at, TRANSACTION_COMMIT).code, 0);
    }
    clock.advance_ms(3_000);
    (0..2).for_each(|at| _ = wait_for(&mut client, "Late", 0, at));
    (0..2).for_each(|at| _ = wait_for(&mut client, "Paid", 1, at));
    for (topic, id) in [("Late", "level"), ("Late", "timer"), ("Paid", "paid"), ("Paid", "both")] {
        for key in ["a", "b"].map(|end| format!("{id}-{end}")) {
            assert_eq!(found(&mut client, topic, &key, false), [id]);
        }
        assert_eq!(found(&mut client, topic, id, true), [id]);
    }
    node.stop_and_wait().expect("a clean stop");
}
