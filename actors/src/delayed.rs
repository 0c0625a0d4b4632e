//! Messages that leave a delay: read where they waited, stored where they go.
//!
//! Invariants:
//! - a message keeps everything it was sent with; what it waited with stays in its properties, as in Java;
//! - a message that cannot be stored now is tried again by whoever waits with it, never passed over; one that the log
//!   no longer has, or whose topic was deleted, is passed over with a warning;
//! - one that the disk cannot read now is tried again too, after a pause that grows, as long as the log has it, and
//!   holds up no other;
//! - what [`Before`] knows as delivered is passed over.
//!
//! Contents: `aim` where they go, `before` what was delivered before the start.

mod aim;
mod before;

use bytes::Bytes;
use troupemq_codec::filter::tags::tags_code_of;
use troupemq_codec::message::properties::{
    KEYS, PROPERTIES_MAX_BYTES, REAL_QUEUE_ID, REAL_TOPIC, TAGS, TIMER_ROLL_TIMES, UNIQ_KEY,
};
use troupemq_codec::message::{MovedRecord, Properties, RecordView, StoredRecord};
use troupemq_store::Unit;
use troupemq_store::timer::TIMER_TOPIC;

use crate::cast::BrokerCast;
use crate::detour::HALF_TOPIC;
use crate::net::Refusal;
use crate::read_ahead::Records;
use crate::send::{Own, OwnBatch, set_if_room};
use before::Delivery;

pub use aim::{Aim, Aimed};
pub use before::Before;

/// Bytes of one batch, more only for a single message.
pub const BATCH_BYTES: u64 = 1 << 20;
/// What the name of its topic and some marks may add to a message that leaves its delay.
const MORE_BYTES: usize = 128;
/// How long it takes until a message is tried again that the disk could not read for the first time.
const PAUSE_FIRST_MS: i64 = 1_000;
/// How often that time doubles at most.
const PAUSE_DOUBLINGS: u32 = 6;
/// The longest such time.
const PAUSE_MAX_MS: i64 = 60_000;

/// A message whose time has come.
#[derive(Debug, Clone)]
pub struct Leaving {
    /// Where it waited.
    pub unit: Unit,
    /// Where it goes, if that is known.
    pub aim: Aim,
    /// Property text to store behind its own.
    pub more: Bytes,
    /// Whether it goes round once more instead of to its topic.
    pub rolls: bool,
}

impl Leaving {
    /// One that leaves a delay level.
    pub fn level(unit: Unit) -> Leaving {
        Leaving { unit, aim: Aim::default(), more: Bytes::new(), rolls: false }
    }
}

/// How many messages of these sizes, from the front, make a batch of at most `max_bytes`; one at least.
pub fn fitting(sizes: impl Iterator<Item = u32>, max_bytes: u64) -> usize {
    let sums = sizes.scan(0_u64, |sum, size| {
        *sum += u64::from(size);
        Some(*sum)
    });
    sums.take_while(|sum| *sum <= max_bytes).count().max(1)
}

/// How long to wait before a message is tried again that the disk could not read so many times, ms.
pub fn pause_ms(tries: u32) -> i64 {
    (PAUSE_FIRST_MS << tries.saturating_sub(1).min(PAUSE_DOUBLINGS)).min(PAUSE_MAX_MS)
}

/// What became of messages that leave their delay.
#[derive(Debug, Default)]
pub struct Outcome {
    /// How many, from the front, are stored or need not be, or cannot be read now.
    pub passed: usize,
    /// Which of those the disk cannot read now, in their order.
    pub unreadable: Vec<usize>,
}

impl Outcome {
    /// Whether the one at this place is stored or need not be.
    pub fn is_done(&self, at: usize) -> bool {
        at < self.passed && !self.is_unreadable(at)
    }

    /// Whether the disk cannot read the one at this place now.
    pub fn is_unreadable(&self, at: usize) -> bool {
        self.unreadable.binary_search(&at).is_ok()
    }
}

/// Stores messages where they go. What the disk cannot read now holds up nothing behind it, unless there is no more
/// `room` for such.
pub async fn deliver(cast: &BrokerCast, leaving: &[Leaving], before: &mut Before, room: usize) -> Outcome {
    let records = Records::read(cast, leaving.iter().map(|leaving| leaving.unit)).await;
    let mut unreadable: Vec<usize> = (0..leaving.len()).filter(|at| records.is_unreadable(*at)).collect();
    let taken = unreadable.get(room).copied().unwrap_or(leaving.len());
    let mut places = Vec::with_capacity(taken);
    let mut messages = Vec::with_capacity(taken);
    let mut known = Vec::new();
    let mut topics = Topics { cast, found: "" };
    for (at, (record, leaving)) in records.iter().zip(leaving).take(taken).enumerate() {
        let Some(message) = record.and_then(|record| Delayed::of(&mut topics, record, leaving)) else {
            if record.is_none() && !leaving.unit.is_hole() && !records.is_unreadable(at) {
                let log_offset = leaving.unit.log_offset;
                tracing::warn!(log_offset, "a delayed message is no longer in the log");
            }
            continue;
        };
        if let Some(delivery) = message.delivered(before) {
            known.push((at, delivery));
            continue;
        }
        places.push(at);
        messages.push(message);
    }
    let pieces: Vec<[&[u8]; 2]> = messages.iter().map(Delayed::pieces).collect();
    let passed = match store_all(cast, &messages, &pieces).await {
        Ok(stored) if stored == messages.len() => taken,
        Ok(stored) => places[stored],
        Err(refusal) => {
            tracing::warn!(remark = refusal.remark, "delayed messages could not be delivered yet");
            places[0]
        }
    };
    if passed < leaving.len() {
        cast.stats.put_off(leaving.len() - passed);
    }
    // What comes again is asked for again.
    known.into_iter().filter(|(at, _)| *at >= passed).for_each(|(_, delivery)| before.put_back(delivery));
    unreadable.retain(|at| *at < passed);
    Outcome { passed, unreadable }
}

/// Stores messages with these texts of properties; answers how many of them, from the front, are stored.
async fn store_all(
    cast: &BrokerCast,
    messages: &[Delayed<'_>],
    pieces: &[[&[u8]; 2]],
) -> Result<usize, Refusal> {
    // What goes round again grows by its number, and finds room for that.
    let bytes = messages.iter().map(|message| message.stored.bytes().len() + message.more.len() + MORE_BYTES);
    let mut batch = OwnBatch::with_room(cast, messages.len(), bytes.sum());
    for (message, pieces) in messages.iter().zip(pieces) {
        let (record, tags_code) = (message.record(pieces), message.tags_code);
        if !batch.add(&Own { record, tags_code, keys: Some(message.keys) })? {
            break;
        }
    }
    Ok(batch.store().await?.len())
}

/// The topics of messages that are delivered together: mostly the same again.
struct Topics<'a> {
    cast: &'a BrokerCast,
    /// The last one that was there.
    found: &'a str,
}

impl<'a> Topics<'a> {
    /// The topic of this name, if it is there.
    fn named(&mut self, name: &'a [u8]) -> Option<&'a str> {
        if name == self.found.as_bytes() {
            return Some(self.found);
        }
        std::str::from_utf8(name).ok().filter(|topic| self.has(topic))
    }

    fn has(&mut self, topic: &'a str) -> bool {
        if topic == self.found {
            return true;
        }
        let is_there = topic != HALF_TOPIC && self.cast.directory.topic(topic).is_some();
        if is_there {
            self.found = topic;
        }
        is_there
    }
}

/// A message that leaves its delay.
struct Delayed<'a> {
    stored: StoredRecord<'a>,
    topic: &'a str,
    queue_id: i32,
    tags_code: i64,
    /// Its unique key and its keys.
    keys: [Option<&'a [u8]>; 2],
    more: &'a [u8],
    /// Its properties, counted up, when it goes round again.
    again: Option<Properties>,
    rolls: i64,
}

impl<'a> Delayed<'a> {
    /// The message of a record; none if it has no target any more.
    fn of(topics: &mut Topics<'a>, bytes: &'a [u8], leaving: &'a Leaving) -> Option<Delayed<'a>> {
        let stored = StoredRecord::take(bytes).ok()?;
        if !leaving.rolls
            && let Some(aimed) = leaving.aim.within(stored.properties())
            && let Some(topic) = topics.named(aimed.topic)
        {
            let (Aimed { queue_id, tags_code, keys, .. }, more) = (aimed, &leaving.more[..]);
            return Some(Delayed { stored, topic, queue_id, tags_code, keys, more, again: None, rolls: 0 });
        }
        Delayed::read(topics, stored, leaving)
    }

    /// The same as its properties say.
    fn read(topics: &mut Topics<'a>, stored: StoredRecord<'a>, leaving: &'a Leaving) -> Option<Delayed<'a>> {
        let log_offset = leaving.unit.log_offset;
        let [topic, queue_id, tags, rolls, uniq_key, keys] =
            stored.properties().pick([REAL_TOPIC, REAL_QUEUE_ID, TAGS, TIMER_ROLL_TIMES, UNIQ_KEY, KEYS]);
        let queue_id = queue_id.and_then(|id| id.parse().ok()).filter(|id: &i32| *id >= 0);
        let (Some(topic), Some(queue_id)) = (topic, queue_id) else {
            tracing::warn!(log_offset, "a delayed message says not where it goes");
            return None;
        };
        if !topics.has(topic) {
            tracing::warn!(topic, log_offset, "a delayed message has no topic any more");
            return None;
        }
        let (again, rolls) = match leaving.rolls {
            true => counted_up(&stored, rolls.and_then(|times| times.parse().ok()).unwrap_or(0)),
            false => (None, 0),
        };
        let more = &leaving.more[..];
        let (tags_code, keys) = (tags_code_of(tags), [uniq_key, keys].map(|key| key.map(str::as_bytes)));
        Some(Delayed { stored, topic, queue_id, tags_code, keys, more, again, rolls })
    }

    /// Its delivery before the start, if one is known.
    fn delivered(&self, before: &mut Before) -> Option<Delivery> {
        if before.is_empty() {
            return None;
        }
        let record = RecordView::parse(self.stored.bytes()).ok()?;
        before.take(&record, (self.topic, self.queue_id), self.rolls)
    }

    /// The texts of its properties.
    fn pieces(&self) -> [&[u8]; 2] {
        let own = match &self.again {
            Some(again) => &again.encoded()[..],
            None => self.stored.properties().as_bytes(),
        };
        // A message that was accepted must not be lost to what the broker wants to tell about it.
        let fits = own.len() + 1 + self.more.len() <= PROPERTIES_MAX_BYTES;
        [own, if fits { self.more } else { &[] }]
    }

    fn record<'p>(&self, properties: &'p [&'p [u8]]) -> MovedRecord<'p>
    where
        'a: 'p,
    {
        let (topic, queue_id) = match self.again {
            Some(_) => (TIMER_TOPIC, 0),
            None => (self.topic, self.queue_id),
        };
        MovedRecord { stored: self.stored, topic, queue_id, properties, is_commit: false }
    }
}

/// The properties of a message that goes round once more after so many times, and how many times they tell then: the
/// number stays where there is no room for a longer one.
fn counted_up(stored: &StoredRecord<'_>, times: i64) -> (Option<Properties>, i64) {
    let mut properties = Properties::parse(Bytes::copy_from_slice(stored.properties().as_bytes()));
    let next = times.saturating_add(1);
    let is_told = set_if_room(&mut properties, TIMER_ROLL_TIMES, &next.to_string());
    (Some(properties), if is_told { next } else { times })
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use troupemq_codec::message::NewRecord;

    use super::*;

    #[test]
    fn a_timer_goes_round_without_its_number_where_there_is_no_room_for_it() {
        let next = |text: &str| {
            let record = NewRecord { body: b"x", properties: &[text.as_bytes()], ..NewRecord::PLAIN };
            let mut bytes = BytesMut::new();
            record.encode(&mut bytes).expect("it is stored so");
            let stored = StoredRecord::take(&bytes).expect("a whole record");
            let times = stored.properties().get(TIMER_ROLL_TIMES).map_or(0, |times| times.parse().unwrap());
            let (again, told) = counted_up(&stored, times);
            let again = again.expect("it goes round");
            let properties = &[&again.encoded()[..]];
            let record = NewRecord { properties, ..record };
            record.encode(&mut BytesMut::new()).expect("it can be stored again");
            (again.get(TIMER_ROLL_TIMES).map(str::to_owned), told)
        };
        let full =
            |more: &str| format!("n\u{1}{}\u{2}{more}", "v".repeat(PROPERTIES_MAX_BYTES - 3 - more.len()));
        assert_eq!(next("n\u{1}v\u{2}"), (Some("1".to_owned()), 1));
        assert_eq!(next(&full("")), (None, 0));
        assert_eq!(next(&full("TIMER_ROLL_TIMES\u{1}8\u{2}")), (Some("9".to_owned()), 9));
        assert_eq!(next(&full("TIMER_ROLL_TIMES\u{1}9\u{2}")), (Some("9".to_owned()), 9));
    }

    #[test]
    fn what_cannot_be_read_is_tried_again_after_a_pause_that_grows_and_has_a_limit() {
        let pauses: Vec<_> = (1..9).map(pause_ms).collect();
        assert_eq!(pauses, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
        assert_eq!((pause_ms(0), pause_ms(u32::MAX)), (1_000, 60_000));
    }

    #[test]
    fn a_batch_has_a_limit_of_bytes_but_for_a_single_message() {
        assert_eq!(fitting([400, 400, 200, 1].into_iter(), 1000), 3);
        assert_eq!(fitting([5000, 1].into_iter(), 1000), 1);
        assert_eq!(fitting([1, 2].into_iter(), 1000), 2);
    }
}
