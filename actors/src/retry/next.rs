//! What becomes of a message that was not consumed. Plain decisions: no actor, no clock, no store.
//!
//! Invariants:
//! - a message that was consumed too often becomes a dead letter, and waits for nothing any more;
//! - a consumer sends back before it counts the failure, and counts it before it sends to the retry topic itself:
//!   both may fail as often;
//! - a copy tells the id and the topic of the first of its kind, and keeps every property of the application.

use bytes::Bytes;
use troupemq_codec::ResponseCode;
use troupemq_codec::message::properties::{
    DELAY, ORIGIN_MESSAGE_ID, REAL_QUEUE_ID, REAL_TOPIC, RETRY_TOPIC, WAIT,
};
use troupemq_codec::message::{OffsetId, Properties, RecordView, sys_flag};
use troupemq_codec::version::SETS_RECONSUME_LIMIT;
use troupemq_store::dispatch::SCHEDULE_TOPIC;
use troupemq_store::timer::TIMER_TOPIC;

use crate::detour::HALF_TOPIC;
use crate::net::Refusal;
use crate::transaction::records::OP_TOPIC;

/// Level of the first retry: 10 s with the usual levels.
const FIRST_LEVEL: i32 = 3;
/// Topics whose messages wait for their time or their decision: nobody has got them to send them back.
const WAITING: [&str; 4] = [HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC];

/// The level of a dead letter that was sent back.
const NO_LEVEL: &str = "0";
/// The level of a dead letter that a consumer sent to its retry topic.
pub const NO_LEVEL_OF_SENT: &str = "-1";

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It is delivered again after this delay level.
    Again(i32),
    /// It is a dead letter.
    GiveUp,
}

/// How many times a group may consume a message again: the client's own limit counts if it is new enough.
pub fn retries_max(of_group: i32, own: Option<i32>, version: i32) -> i32 {
    own.filter(|_| version >= SETS_RECONSUME_LIMIT).unwrap_or(of_group)
}

/// What becomes of a message that is sent back with a level: below 0 no more, 0 as the broker thinks fit.
pub fn of_sent_back(consumed_again: i32, max: i32, level: i32) -> Next {
    if level < 0 || consumed_again >= max {
        return Next::GiveUp;
    }
    Next::Again(if level == 0 { FIRST_LEVEL.saturating_add(consumed_again) } else { level })
}

/// Whether a message is a dead letter that a consumer sends to the retry topic of its group. One that consumes in
/// order retries by itself, and sends only what it gives up.
pub fn is_dead_when_sent(consumed_again: i32, max: i32, is_orderly: bool) -> bool {
    is_orderly || consumed_again > max
}

/// How often a copy was consumed again, as it says itself.
pub fn times_after(consumed_again: i32) -> i32 {
    consumed_again.saturating_add(1)
}

/// The queue of a copy. Dead letters have one. For a retry any will do of those that all of these numbers allow, and
/// one that follows from the place of the message needs no dice.
pub fn queue_of(next: Next, log_offset: i64, queues: [i32; 3]) -> i32 {
    if next == Next::GiveUp {
        return 0;
    }
    let count = queues.into_iter().min().unwrap_or(1).max(1);
    i32::try_from(log_offset.rem_euclid(i64::from(count))).unwrap_or(0)
}

/// Refuses what no consumer can have got, and what is more than one message.
pub fn check(record: &RecordView<'_>) -> Result<(), Refusal> {
    let at = record.log_offset();
    if WAITING.contains(&record.topic()) {
        let topic = record.topic();
        let Refusal { code, remark } = no_message(at);
        return Err(Refusal::new(code, format!("{remark}: a message of {topic} was given to no consumer")));
    }
    if record.sys_flag() & sys_flag::INNER_BATCH != 0 {
        // It holds more than the message that failed; the client sends that one by itself then.
        let remark = format!("the batch at {at} is not sent back as a whole");
        return Err(Refusal::new(ResponseCode::SYSTEM_ERROR, remark));
    }
    Ok(())
}

/// The answer where the group of a retry does not exist and is not made.
pub fn no_group(group: &str) -> Refusal {
    let remark = format!("subscription group not exist, {group}");
    Refusal::new(ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST, remark)
}

/// The answer where no message begins.
pub fn no_message(log_offset: i64) -> Refusal {
    Refusal::new(ResponseCode::SYSTEM_ERROR, format!("look message by offset failed, {log_offset}"))
}

/// The properties of a copy.
pub fn properties_of(record: &RecordView<'_>, next: Next) -> Properties {
    let text = Bytes::copy_from_slice(record.properties().as_bytes());
    let mut properties = Properties::parse(text);
    properties.remove(REAL_TOPIC);
    properties.remove(REAL_QUEUE_ID);
    if !properties.contains(RETRY_TOPIC) {
        properties.set(RETRY_TOPIC, record.topic());
    }
    if !properties.contains(ORIGIN_MESSAGE_ID) {
        let id = OffsetId { host: record.store_host(), log_offset: record.log_offset() };
        properties.set(ORIGIN_MESSAGE_ID, &id.to_string());
    }
    properties.set(WAIT, "false");
    match next {
        Next::Again(level) => properties.set(DELAY, &level.to_string()),
        Next::GiveUp => properties.set(DELAY, NO_LEVEL),
    }
    properties
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use troupemq_codec::message::{NewRecord, fill_holes};

    use super::*;

    /// 3.5 #37, #39, #40, 4.3 steps 6, 7.
    #[test]
    fn a_retry_waits_longer_each_time_until_it_is_given_up() {
        for max in -1..=20 {
            for times in 0..=20 {
                for level in [i32::MIN, -1, 0, 1, 2, 18, 19, i32::MAX] {
                    let wanted = match level {
                        i32::MIN..0 => Next::GiveUp,
                        _ if times >= max => Next::GiveUp,
                        0 => Next::Again(times + 3),
                        own => Next::Again(own),
                    };
                    assert_eq!(of_sent_back(times, max, level), wanted, "{times} of {max}, level {level}");
                }
            }
        }
        let levels: Vec<Next> = (0..=16).map(|times| of_sent_back(times, 16, 0)).collect();
        let wanted: Vec<Next> = (3..=18).map(Next::Again).chain([Next::GiveUp]).collect();
        assert_eq!(levels, wanted, "16 retries, from 10 s to 2 h");
        assert_eq!(of_sent_back(i32::MAX - 1, i32::MAX, 0), Next::Again(i32::MAX));
    }

    /// 3.5 #39, 4.3 step 6.
    #[test]
    fn the_limit_of_a_client_counts_from_its_version_on() {
        for version in [0, SETS_RECONSUME_LIMIT - 1] {
            assert_eq!([None, Some(0), Some(99)].map(|own| retries_max(16, own, version)), [16, 16, 16]);
        }
        for version in [SETS_RECONSUME_LIMIT, 475] {
            assert_eq!([None, Some(0), Some(99)].map(|own| retries_max(16, own, version)), [16, 0, 99]);
        }
    }

    /// 3.5 #40, #41, 4.2 step 10: both ways of a consumer end after as many failures.
    #[test]
    fn what_a_consumer_sends_itself_is_given_up_after_as_many_failures_as_what_it_sends_back() {
        for max in 0..=20 {
            for failures in 1..=25 {
                let sent_back = of_sent_back(failures - 1, max, 0) == Next::GiveUp;
                assert_eq!(is_dead_when_sent(failures, max, false), sent_back, "{failures} of {max}");
                assert!(is_dead_when_sent(failures, max, true), "one that consumes in order gives up");
            }
        }
    }

    #[test]
    fn a_copy_goes_to_a_queue_that_the_group_wants_and_its_topic_has_for_both() {
        let again = |log_offset, queues| queue_of(Next::Again(3), log_offset, queues);
        for log_offset in (0..100).chain([i64::MAX, i64::MIN]) {
            for queues in [[1, 8, 8], [8, 1, 8], [8, 8, 1], [0, 8, 8], [-3, 8, 8], [4, 0, 1]] {
                assert_eq!(again(log_offset, queues), 0, "{queues:?}");
            }
            assert!((0..3).contains(&again(log_offset, [8, 3, 4])));
            assert_eq!(queue_of(Next::GiveUp, log_offset, [8, 8, 8]), 0, "dead letters have one queue");
        }
        let all: std::collections::BTreeSet<i32> = (0..100).map(|at| again(at, [3, 9, 9])).collect();
        assert_eq!(all.into_iter().collect::<Vec<_>>(), [0, 1, 2]);
    }

    fn encoded(record: &NewRecord<'_>, log_offset: i64) -> Vec<u8> {
        let mut bytes = BytesMut::new();
        record.encode(&mut bytes).expect("a record");
        fill_holes(&mut bytes, 0, log_offset, 1);
        bytes.to_vec()
    }

    /// 3.5 #38, #44, 4.3 steps 5, 8: through every hop to the dead letter, whatever the limit.
    #[test]
    fn a_message_keeps_its_properties_its_first_id_and_its_first_topic_through_every_hop() {
        let own = "KEYS\u{1}k1 k2\u{2}TAGS\u{1}A\u{2}UNIQ_KEY\u{1}U\u{2}mine\u{1}wert\u{2}";
        let first =
            format!("{own}DELAY\u{1}9\u{2}REAL_TOPIC\u{1}Work\u{2}REAL_QID\u{1}3\u{2}WAIT\u{1}true\u{2}");
        for max in 0..=17 {
            let mut properties = first.clone();
            let (mut times, mut topic, mut first_id) = (0, "Work", None);
            loop {
                let pieces: &[&[u8]] = &[properties.as_bytes()];
                let record = NewRecord {
                    topic,
                    body: b"x",
                    reconsume_times: times,
                    properties: pieces,
                    ..NewRecord::PLAIN
                };
                let bytes = encoded(&record, 1000 + i64::from(times));
                let view = RecordView::parse(&bytes).expect("a whole record");
                let next = of_sent_back(times, max, 0);
                let copy = properties_of(&view, next);
                let id = OffsetId { host: view.store_host(), log_offset: view.log_offset() }.to_string();
                let first_id = first_id.get_or_insert(id);
                let told = [RETRY_TOPIC, ORIGIN_MESSAGE_ID, REAL_TOPIC, REAL_QUEUE_ID, WAIT]
                    .map(|name| copy.get(name).map(str::to_owned));
                let wanted = [Some("Work"), Some(first_id.as_str()), None, None, Some("false")];
                assert_eq!(told, wanted.map(|value| value.map(str::to_owned)), "hop {times} of {max}");
                for (name, value) in [("KEYS", "k1 k2"), ("TAGS", "A"), ("UNIQ_KEY", "U"), ("mine", "wert")] {
                    assert_eq!(copy.get(name), Some(value), "hop {times} of {max}");
                }
                times = times_after(times);
                if next == Next::GiveUp {
                    assert_eq!((times, copy.get(DELAY)), (max + 1, Some("0")));
                    break;
                }
                assert_eq!(
                    (next, copy.get(DELAY)),
                    (Next::Again(times + 2), Some((times + 2).to_string().as_str()))
                );
                topic = "%RETRY%Group";
                properties = String::from_utf8(copy.encoded().to_vec()).expect("it is text");
                properties.push_str("REAL_TOPIC\u{1}%RETRY%Group\u{2}REAL_QID\u{1}0\u{2}");
            }
        }
    }

    #[test]
    fn what_waits_and_what_is_a_batch_is_not_taken_back() {
        let refused = |topic, sys_flag| {
            let record = NewRecord { topic, sys_flag, body: b"x", ..NewRecord::PLAIN };
            let bytes = encoded(&record, 77);
            check(&RecordView::parse(&bytes).expect("a whole record")).err().map(|refusal| refusal.remark)
        };
        for topic in ["Work", "%RETRY%Group", "%DLQ%Group", "rmq_sys_other"] {
            assert_eq!(refused(topic, 0), None, "{topic}");
        }
        for topic in WAITING {
            let remark = refused(topic, 0).expect("it waits");
            let wanted =
                format!("look message by offset failed, 77: a message of {topic} was given to no consumer");
            assert_eq!(remark, wanted);
        }
        let remark = refused("Work", sys_flag::INNER_BATCH).expect("a batch");
        assert_eq!(remark, "the batch at 77 is not sent back as a whole");
    }
}
