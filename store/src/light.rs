//! Light queues: queues that a message is in beside that of its topic, named by its property
//! `INNER_MULTI_DISPATCH` (RocketMQ: LMQ, `MultiDispatch`).
//!
//! Invariants:
//! - a light queue is the one queue, number 0, of a name that begins with `%LMQ%`; nobody configures it;
//! - its units point at records of other topics: what is in many queues is stored once;
//! - the offsets of a message in them stand in its `INNER_MULTI_QUEUE_OFFSET`, in the order of the names, so that
//!   they are made again from the log as they were.

use troupemq_codec::message::properties::{INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET};
use troupemq_codec::message::{RecordView, sys_flag};

use crate::dispatch::SCHEDULE_TOPIC;

/// Begins the name of every light queue.
pub const PREFIX: &str = "%LMQ%";
/// The number that the queue of every such name has.
pub const QUEUE_ID: i32 = 0;

/// Fronts of the names of topics whose messages wait, or come again: they are in no light queue. Java forgets half
/// messages here, and shows them before they are committed.
const NO_SOURCES: [&str; 4] = ["%RETRY%", "rmq_sys_", "RMQ_SYS_TRANS_", "TRANS_CHECK_MAX_TIME_TOPIC"];

/// Whether this names a light queue.
pub fn is_light(topic: &str) -> bool {
    topic.starts_with(PREFIX)
}

/// Whether messages of `topic` go to the light queues that they name.
pub fn is_source(topic: &str) -> bool {
    topic != SCHEDULE_TOPIC && !NO_SOURCES.iter().any(|front| topic.starts_with(front))
}

/// The names in an `INNER_MULTI_DISPATCH`; as in Java, empty ones at the end do not count.
pub fn names(list: &str) -> impl Iterator<Item = &str> {
    let list = list.trim_end_matches(',');
    list.split(',').filter(move |_| !list.trim().is_empty())
}

/// The light queues that a stored record says it is in, and its offset in each.
pub fn places<'a>(record: &RecordView<'a>) -> impl Iterator<Item = (&'a str, i64)> + use<'a> {
    let is_source = is_source(record.topic()) && record.sys_flag() & sys_flag::INNER_BATCH == 0;
    let [list, offsets] = match is_source {
        true => record.properties().pick([INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET]),
        false => [None, None],
    };
    let (list, offsets) = (list.unwrap_or_default(), offsets.unwrap_or_default());
    // Lists of different length belong to different messages: an offset would be that of another queue.
    let is_whole = names(list).count() == names(offsets).count();
    names(list).zip(names(offsets)).filter(move |_| is_whole).filter_map(|(name, offset)| {
        let offset = offset.parse().ok().filter(|offset| *offset >= 0)?;
        is_light(name).then_some((name, offset))
    })
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use troupemq_codec::message::NewRecord;

    use super::*;

    fn places_of(topic: &str, list: &str, offsets: &str) -> Vec<(String, i64)> {
        let text =
            format!("{INNER_MULTI_DISPATCH}\u{1}{list}\u{2}{INNER_MULTI_QUEUE_OFFSET}\u{1}{offsets}\u{2}");
        let properties: &[&[u8]] = &[text.as_bytes()];
        let record = NewRecord { topic, queue_id: 3, body: b"body", properties, ..NewRecord::PLAIN };
        let mut bytes = BytesMut::new();
        record.encode(&mut bytes).unwrap();
        let view = RecordView::parse(&bytes).unwrap();
        places(&view).map(|(name, offset)| (name.to_owned(), offset)).collect()
    }

    #[test]
    fn a_record_tells_its_light_queues_and_offsets_in_pairs() {
        let wanted = vec![("%LMQ%a".to_owned(), 7), ("%LMQ%b".to_owned(), 0)];
        assert_eq!(places_of("T", "%LMQ%a,%LMQ%b", "7,0"), wanted);
        assert_eq!(places_of("T", "%LMQ%a,other,%LMQ%b", "7,,0"), wanted, "Java numbers no other queue");
        assert_eq!(places_of("T", "%LMQ%a,%LMQ%b,", "7,0"), wanted);
    }

    #[test]
    fn lists_that_do_not_fit_tell_nothing() {
        for (list, offsets) in [("%LMQ%a,%LMQ%b", "7"), (",", "7"), ("%LMQ%a", "x"), ("%LMQ%a", "-1")] {
            assert_eq!(places_of("T", list, offsets), [], "{list} {offsets}");
        }
    }

    #[test]
    fn what_waits_or_comes_again_is_in_no_light_queue() {
        for topic in ["%RETRY%g", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC"] {
            assert_eq!(places_of(topic, "%LMQ%a", "7"), [], "{topic}");
        }
        assert_eq!(places_of("%DLQ%g", "%LMQ%a", "7").len(), 1);
    }
}
