//! From the topic of the timers into the wheel: what a record says about its timer.
//!
//! Invariants:
//! - a message is due within its slot, whatever its properties say: behind its first moment, at the latest at its end;
//! - a relative time counts from when the message was stored; one that was stored again is due at the end of its slot.

use troupemq_codec::filter::java_hash;
use troupemq_codec::message::RecordView;
use troupemq_codec::message::properties::{
    KEYS, REAL_QUEUE_ID, REAL_TOPIC, TAGS, TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELETE_UNIQUE_KEY,
    TIMER_DELIVER_MS, TIMER_OUT_MS, TIMER_ROLL_TIMES, UNIQ_KEY,
};
use troupemq_store::{ConsumeQueue, Unit};

use crate::cast::BrokerCast;
use crate::delayed::Aim;
use crate::read_ahead::Records;
use crate::timer::name_hash::NameHashes;
use crate::timer::recall::delete_key;

/// Bytes of a name that is put together without asking for memory.
const NAME_BYTES: usize = 128;

/// What a message of the timer topic says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark {
    /// Time of its slot, epoch ms.
    pub slot_ms: i64,
    /// When it is due, epoch ms.
    pub due_ms: i64,
    /// When it was stored, epoch ms.
    pub stored_ms: i64,
    /// Its place in the timer topic.
    pub queue_offset: i64,
    /// Hash of what it cancels, if it is a cancellation.
    pub cancels: Option<u64>,
    /// Hashes of the names by which it can be cancelled: with its topic, and alone as before 5.3.2.
    pub names: [u64; 2],
    /// Java's hash of its topic.
    pub topic_hash: i32,
    /// Where it goes.
    pub aim: Aim,
}

/// What a message says, but for when and where it is stored.
#[derive(Debug, Clone, Copy)]
pub struct Draft {
    slot_ms: i64,
    slot_end_ms: i64,
    due: Due,
    names: [u64; 2],
    topic_hash: i32,
    aim: Aim,
}

/// When a message is due.
#[derive(Debug, Clone, Copy)]
pub enum Due {
    /// At this time, epoch ms.
    At(i64),
    /// So many milliseconds after it was stored.
    Behind(i64),
    /// At the end of its slot.
    WithSlot,
}

/// What was found out of a message of the timer topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// It is a timer.
    Timer(Mark),
    /// It is none, or no longer kept.
    Nothing,
    /// The disk cannot read it now.
    Unreadable,
}

/// The names of a timer.
#[derive(Debug, Clone, Copy)]
pub struct Names<'a> {
    /// Its topic.
    pub topic: &'a str,
    /// Java's hash of that.
    pub topic_hash: i32,
    /// Its unique id.
    pub uniq_key: &'a str,
}

impl<'a> Names<'a> {
    /// Those of a timer for this topic, with this unique id.
    pub fn of(topic: &'a str, uniq_key: &'a str) -> Names<'a> {
        Names { topic, topic_hash: java_hash(topic), uniq_key }
    }
}

/// Reads marks; all of one node are read by one of these.
#[derive(Debug, Clone)]
pub struct Marker {
    /// Width of a slot, ms.
    pub precision_ms: i64,
    /// What makes hashes of names.
    pub hashes: NameHashes,
}

impl Marker {
    /// What a record says; none if it is no timer.
    pub fn mark(&self, bytes: &[u8]) -> Option<Mark> {
        let record = RecordView::parse(bytes).ok()?;
        let properties = record.properties();
        let [out, topic, queue_id, tags, uniq_key, keys, cancels, seconds, ms, deliver, rolls] = properties
            .pick([
                TIMER_OUT_MS,
                REAL_TOPIC,
                REAL_QUEUE_ID,
                TAGS,
                UNIQ_KEY,
                KEYS,
                TIMER_DELETE_UNIQUE_KEY,
                TIMER_DELAY_SEC,
                TIMER_DELAY_MS,
                TIMER_DELIVER_MS,
                TIMER_ROLL_TIMES,
            ]);
        let slot_ms: i64 = out?.parse().ok()?;
        let due = Due::of((seconds, ms, deliver), rolls.is_some());
        let aim = Aim::of(properties, [topic, queue_id, tags, uniq_key, keys]);
        let names = Names::of(topic?, uniq_key.unwrap_or_default());
        let draft = self.draft(slot_ms, &names, due, aim);
        let cancels = cancels.map(|name| self.hash(&[name]));
        Some(Mark { cancels, ..draft.mark(record.store_timestamp_ms(), record.queue_offset()) })
    }

    /// What a message says that has these names, waits in this slot, goes there and cancels nothing.
    pub fn draft(&self, slot_ms: i64, names: &Names<'_>, due: Due, aim: Aim) -> Draft {
        let Names { topic, topic_hash, uniq_key } = *names;
        Draft {
            slot_ms,
            slot_end_ms: slot_ms.saturating_add(self.precision_ms),
            due,
            names: [self.hash(&delete_key(topic, uniq_key)), self.hash(&[uniq_key])],
            topic_hash,
            aim,
        }
    }

    /// The hash of a name, whatever its pieces.
    fn hash(&self, pieces: &[&str]) -> u64 {
        if let [name] = pieces {
            return self.hashes.hash(name.as_bytes());
        }
        // One piece is hashed faster than several: most names are short.
        let mut room = [0; NAME_BYTES];
        let mut end = 0;
        for piece in pieces {
            let Some(place) = room.get_mut(end..end + piece.len()) else {
                return self.hashes.hash(pieces.concat().as_bytes());
            };
            place.copy_from_slice(piece.as_bytes());
            end += piece.len();
        }
        self.hashes.hash(&room[..end])
    }

    /// Reads the marks of messages that were stored in a queue of timers.
    pub async fn read_queue(&self, cast: &BrokerCast, queue: &ConsumeQueue, units: &[Unit]) -> Vec<Said> {
        self.marks(&Records::of_queue(cast, queue, units).await)
    }

    /// Reads the marks of records, where waiting for the disk is allowed.
    pub async fn read(&self, cast: &BrokerCast, units: &[Unit]) -> Vec<Said> {
        self.marks(&Records::read(cast, units.iter().copied()).await)
    }

    fn marks(&self, records: &Records) -> Vec<Said> {
        let said = |(at, record): (usize, Option<&[u8]>)| match record.and_then(|bytes| self.mark(bytes)) {
            Some(mark) => Said::Timer(mark),
            None if records.is_unreadable(at) => Said::Unreadable,
            None => Said::Nothing,
        };
        records.iter().enumerate().map(said).collect()
    }
}

impl Due {
    /// As its properties say: how many seconds and milliseconds it waits, when it is to be delivered; and whether it
    /// was stored again.
    pub fn of((seconds, ms, deliver): (Option<&str>, Option<&str>, Option<&str>), is_again: bool) -> Due {
        let number = |text: &str| text.parse::<i64>().unwrap_or(i64::MAX);
        match (seconds, ms, deliver) {
            (None, None, Some(deliver)) => Due::At(number(deliver)),
            (_, _, _) if is_again => Due::WithSlot,
            (Some(seconds), _, _) => Due::Behind(number(seconds).saturating_mul(1000)),
            (None, Some(ms), _) => Due::Behind(number(ms)),
            (None, None, None) => Due::WithSlot,
        }
    }
}

impl Draft {
    /// What it says now that it is stored: then, and at this place in the timer topic.
    pub fn mark(&self, stored_ms: i64, queue_offset: i64) -> Mark {
        let Draft { slot_ms, slot_end_ms, due, names, topic_hash, aim } = *self;
        let due_ms = match due {
            Due::At(at_ms) => at_ms,
            Due::Behind(delay_ms) => stored_ms.saturating_add(delay_ms),
            Due::WithSlot => slot_end_ms,
        };
        let first_ms = slot_ms.saturating_add(1);
        let due_ms = due_ms.clamp(first_ms, slot_end_ms.max(first_ms));
        Mark { slot_ms, due_ms, stored_ms, queue_offset, cancels: None, names, topic_hash, aim }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use troupemq_codec::message::{NewRecord, fill_holes};

    const SLOT_MS: i64 = 1_795_000_003_000;

    fn mark(more: &str) -> Option<Mark> {
        let text = format!("REAL_TOPIC\u{1}T\u{2}UNIQ_KEY\u{1}U\u{2}{more}");
        let record = NewRecord {
            topic: "rmq_sys_wheel_timer",
            body: b"x",
            properties: &[text.as_bytes()],
            ..NewRecord::PLAIN
        };
        let mut bytes = BytesMut::new();
        record.encode(&mut bytes).unwrap();
        fill_holes(&mut bytes, 7, 0, 1_795_000_000_250);
        Marker { precision_ms: 1000, hashes: NameHashes::random() }.mark(&bytes)
    }

    fn due_ms(more: &str) -> i64 {
        mark(&format!("TIMER_OUT_MS\u{1}{SLOT_MS}\u{2}{more}")).unwrap().due_ms - SLOT_MS
    }

    #[test]
    fn a_message_is_due_at_its_time_within_its_slot() {
        assert_eq!(due_ms("TIMER_DELIVER_MS\u{1}1795000003456\u{2}"), 456);
        assert_eq!(due_ms("TIMER_DELIVER_MS\u{1}1795000004000\u{2}"), 1000);
        assert_eq!(due_ms("TIMER_DELAY_SEC\u{1}3\u{2}"), 250);
        assert_eq!(due_ms("TIMER_DELAY_MS\u{1}3100\u{2}"), 350);
        assert_eq!(due_ms("TIMER_DELAY_MS\u{1}3100\u{2}TIMER_ROLL_TIMES\u{1}1\u{2}"), 1000);
        assert_eq!(due_ms(""), 1000);
    }

    #[test]
    fn a_name_has_one_hash_whatever_its_pieces_and_however_long_it_is() {
        let marker = Marker { precision_ms: 1000, hashes: NameHashes::random() };
        for bytes in [0, 1, NAME_BYTES - 3, NAME_BYTES - 2, NAME_BYTES - 1, NAME_BYTES, 1000] {
            let uniq_key = "u".repeat(bytes);
            let whole = format!("T+{uniq_key}");
            assert_eq!(marker.hash(&delete_key("T", &uniq_key)), marker.hash(&[&whole]), "{bytes}");
            assert_ne!(marker.hash(&delete_key("T", &uniq_key)), marker.hash(&[&uniq_key]));
        }
    }

    #[test]
    fn a_time_outside_the_slot_is_not_believed() {
        assert_eq!(due_ms("TIMER_DELIVER_MS\u{1}5\u{2}"), 1);
        assert_eq!(due_ms("TIMER_DELIVER_MS\u{1}1795000009000\u{2}"), 1000);
        assert_eq!(due_ms("TIMER_DELAY_SEC\u{1}9223372036854775807\u{2}"), 1000);
        assert_eq!(mark(""), None, "no timer");
        assert_eq!(mark("TIMER_OUT_MS\u{1}soon\u{2}"), None);
    }
}
