//! The records of transactions: the delivered message, the op message, the half message to be checked.
//!
//! Invariants:
//! - a delivered message keeps the property text of its half message, so a consumer sees that it was one;
//! - an op message names half messages by their queue offsets, a comma behind each, as Java does;
//! - a copy says which half message it stands for, see `instead_of`: if its op message is lost, nothing else is.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use troupemq_codec::Text;
use troupemq_codec::command::{DIGITS_MAX, digits_of};
use troupemq_codec::filter::tags::tags_code_of;
use troupemq_codec::message::properties::{
    CHECK_IMMUNITY_TIME_IN_SECONDS, DELAY, KEYS, PRODUCER_GROUP, PROPERTIES_MAX_BYTES, REAL_QUEUE_ID,
    REAL_TOPIC, TAGS, TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS, TRANSACTION_CHECK_TIMES,
    TRANSACTION_PREPARED_QUEUE_OFFSET, UNIQ_KEY,
};
use troupemq_codec::message::{MovedRecord, NewRecord, Properties, RecordView, StoredRecord, fill_holes};

use super::halves::Seen;
use crate::cast::BrokerCast;
use crate::detour::{Detour, HALF_TOPIC, Wish};
use crate::net::Refusal;
use crate::send::{Own, set_within};
use crate::timer::admit::TimeWish;

/// Topic of the op messages. Java: `RMQ_SYS_TRANS_OP_HALF_TOPIC`.
pub const OP_TOPIC: &str = "RMQ_SYS_TRANS_OP_HALF_TOPIC";
/// Topic of the half messages that nobody decided. Java: `TRANS_CHECK_MAX_TIME_TOPIC`.
pub const GIVEN_UP_TOPIC: &str = "TRANS_CHECK_MAX_TIME_TOPIC";
/// Properties of an op message.
const OP_PROPERTIES: &[u8] = b"WAIT\x01true\x02TAGS\x01d\x02";
/// Tag of an op message.
const OP_TAG: &str = "d";
/// Longest body of an op message that names several. Java: `transactionOpMsgMaxSize`.
const NOTE_MAX_BYTES: usize = 4096;
/// The longest name in it.
const NAME_MAX_BYTES: usize = "9223372036854775807,".len();

/// What a half message says about its transaction.
#[derive(Debug, Clone, Copy)]
pub struct HalfView<'a> {
    /// The record.
    pub record: RecordView<'a>,
    /// The topic it is for.
    pub topic: &'a str,
    /// The queue it is for.
    pub queue_id: i32,
    /// The producer's group.
    pub group: &'a str,
    /// The unique id.
    pub uniq_key: &'a str,
    /// Time before the first check that it asks for, in seconds.
    pub immunity_s: Option<i64>,
    /// How often it was checked.
    pub checks: i32,
    keys: Option<&'a str>,
    tags: Option<&'a str>,
    level: Option<&'a str>,
    time: TimeWish<'a>,
}

impl<'a> HalfView<'a> {
    /// Reads the record of a half message; none if it says not where it goes.
    pub fn parse(bytes: &'a [u8]) -> Option<HalfView<'a>> {
        let record = RecordView::parse(bytes).ok()?;
        let [topic, queue_id, group, uniq_key, keys, immunity, checks, tags, level, seconds, ms, deliver] =
            record.properties().pick([
                REAL_TOPIC,
                REAL_QUEUE_ID,
                PRODUCER_GROUP,
                UNIQ_KEY,
                KEYS,
                CHECK_IMMUNITY_TIME_IN_SECONDS,
                TRANSACTION_CHECK_TIMES,
                TAGS,
                DELAY,
                TIMER_DELAY_SEC,
                TIMER_DELAY_MS,
                TIMER_DELIVER_MS,
            ]);
        Some(HalfView {
            record,
            topic: topic?,
            queue_id: queue_of(queue_id?)?,
            group: group.unwrap_or_default(),
            uniq_key: uniq_key.unwrap_or_default(),
            immunity_s: immunity.and_then(|seconds| seconds.parse().ok()),
            checks: checks.and_then(|times| times.parse().ok()).unwrap_or(0),
            keys,
            tags,
            level,
            time: TimeWish { seconds, ms, deliver, ..TimeWish::default() },
        })
    }

    /// Whether it is the half message at this place: a unit that was damaged may lead to another.
    pub fn is_at(&self, queue_offset: i64) -> bool {
        self.record.topic() == HALF_TOPIC && self.record.queue_offset() == queue_offset
    }

    /// Where the message has to wait when it is committed.
    fn detour(&self, cast: &BrokerCast) -> Result<Option<Detour>, Refusal> {
        cast.detours.find(&self.wish(), self.topic, self.queue_id, cast.now_ms())
    }

    fn wish(&self) -> Wish<'a> {
        Wish { level: self.level, time: self.time, tags: self.tags, ..Wish::default() }
    }

    /// Where its message goes when it is committed now.
    pub fn goes(&self, cast: &BrokerCast) -> Result<Goes, Refusal> {
        let detour = self.detour(cast)?;
        let tags_code = detour.as_ref().map_or_else(|| tags_code_of(self.tags), |detour| detour.tags_code);
        let uniq_key = Some(self.uniq_key).filter(|key| !key.is_empty());
        Ok(Goes {
            topic_at: self.part_of(self.topic),
            keys_at: [uniq_key, self.keys].map(|key| key.map(|key| self.part_of(key))),
            queue_id: self.queue_id,
            tags_code,
            detour: detour.map(Box::new),
        })
    }

    /// Where in its record a part of it stands.
    fn part_of(&self, part: &str) -> Part {
        let begin = part.as_ptr().addr() - self.record.bytes().as_ptr().addr();
        Part::from(begin..begin + part.len())
    }

    /// The half message once more, behind the newest, in the place of one that is open; `pieces` are its properties.
    pub fn copied<'p>(&self, topic: &'p str, pieces: &'p [&'p [u8]], instead_of: Option<i64>) -> Own<'p>
    where
        'a: 'p,
    {
        // Java writes zero here, and reads it of delivered messages only.
        let prepared_log_offset = instead_of.map_or(0, |queue_offset| !queue_offset);
        let record = NewRecord { topic, queue_id: 0, prepared_log_offset, ..self.again(pieces) };
        Own { record, tags_code: tags_code_of(self.tags), keys: None }
    }

    /// The properties of a copy that was checked so often; none where they have no room for the number, and for what a
    /// commit notes.
    pub fn with_checks(&self, checks: i32) -> Option<Properties> {
        let mut properties = self.properties();
        let most = PROPERTIES_MAX_BYTES - self.wish().room_bytes();
        set_within(&mut properties, TRANSACTION_CHECK_TIMES, &checks.to_string(), most).then_some(properties)
    }

    /// Its properties as they are.
    pub fn properties(&self) -> Properties {
        Properties::parse(Bytes::copy_from_slice(self.record.properties().as_bytes()))
    }

    /// The record that a producer is asked about: at this place in its queue and in the log, with the real target.
    pub fn question(&self, properties: &[u8], at: (i64, u64), now_ms: i64) -> Bytes {
        let pieces = [properties];
        let record = NewRecord { topic: self.topic, queue_id: self.queue_id, ..self.again(&pieces) };
        let mut bytes = BytesMut::with_capacity(record.encoded_len());
        if record.encode(&mut bytes).is_ok() {
            fill_holes(&mut bytes, at.0, at.1.cast_signed(), now_ms);
        }
        bytes.freeze()
    }

    fn again<'p>(&self, pieces: &'p [&'p [u8]]) -> NewRecord<'p>
    where
        'a: 'p,
    {
        again(&self.record, pieces)
    }
}

/// Where in its record a part of a half message stands. Half messages that wait for their ends have some each, so it
/// is small.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    start: u32,
    end: u32,
}

impl Part {
    /// The part that stands there.
    pub fn of<'a>(&self, record: &'a [u8]) -> Option<&'a [u8]> {
        record.get(usize::try_from(self.start).ok()?..usize::try_from(self.end).ok()?)
    }
}

impl From<Range<usize>> for Part {
    /// What stands behind 4 GiB, where no record goes on, stands nowhere.
    fn from(range: Range<usize>) -> Part {
        let [start, end] = [range.start, range.end].map(|at| u32::try_from(at).unwrap_or(u32::MAX));
        Part { start, end }
    }
}

/// Where the message of a half message goes: found out once, by who reads its properties for the first time.
#[derive(Debug)]
pub struct Goes {
    /// Where in the record of the half message its topic stands.
    pub topic_at: Part,
    /// Where its unique key and its keys stand, if it has some.
    pub keys_at: [Option<Part>; 2],
    /// Its queue.
    pub queue_id: i32,
    /// What its unit carries.
    pub tags_code: i64,
    /// Where it waits before.
    pub detour: Option<Box<Detour>>,
}

/// The message of a half message that is committed.
#[derive(Debug)]
pub struct Commit {
    /// The record of the half message.
    pub half: Bytes,
    /// Where it goes.
    pub goes: Goes,
}

/// The same, read.
#[derive(Debug)]
pub struct CommitView<'a> {
    half: StoredRecord<'a>,
    commit: &'a Commit,
    /// The properties of the message and those of its detour: the half message says already where it goes.
    properties: [&'a [u8]; 2],
}

impl Commit {
    /// Reads it; none if its record cannot be read.
    pub fn view(&self) -> Option<CommitView<'_>> {
        let half = StoredRecord::take(&self.half).ok()?;
        let note = self.goes.detour.as_ref().map_or(&[][..], |detour| detour.note());
        Some(CommitView { half, commit: self, properties: [half.properties().as_bytes(), note] })
    }
}

impl CommitView<'_> {
    /// The message as it is delivered, or as it waits; none if its record does not say where it goes. `last` is the
    /// topic that another one goes to: mostly the same.
    pub fn message<'a>(&'a self, last: &'a str) -> Option<Own<'a, MovedRecord<'a>>> {
        let Commit { half, goes } = self.commit;
        let (topic, queue_id) = match &goes.detour {
            Some(detour) => (detour.topic, detour.queue.queue_id()),
            None => match goes.topic_at.of(half)? {
                same if same == last.as_bytes() => (last, goes.queue_id),
                other => (std::str::from_utf8(other).ok()?, goes.queue_id),
            },
        };
        let stored = self.half;
        let record = MovedRecord { stored, topic, queue_id, properties: &self.properties, is_commit: true };
        let keys = goes.keys_at.map(|at| at.and_then(|at| at.of(half)));
        Some(Own { record, tags_code: goes.tags_code, keys: Some(keys) })
    }
}

/// A record once more, with these properties.
fn again<'p>(record: &RecordView<'p>, pieces: &'p [&'p [u8]]) -> NewRecord<'p> {
    NewRecord {
        topic: record.topic(),
        queue_id: record.queue_id(),
        flag: record.flag(),
        sys_flag: record.sys_flag(),
        born_timestamp_ms: record.born_timestamp_ms(),
        born_host: record.born_host(),
        store_host: record.store_host(),
        reconsume_times: record.reconsume_times(),
        prepared_log_offset: 0,
        body: record.body(),
        body_crc: Some(record.body_crc().cast_unsigned()),
        properties: pieces,
    }
}

/// The op message that says that a half message is done.
pub fn op<'p>(cast: &BrokerCast, body: &'p [u8]) -> Own<'p> {
    let record = NewRecord {
        topic: OP_TOPIC,
        queue_id: 0,
        flag: 0,
        sys_flag: 0,
        born_timestamp_ms: cast.now_ms(),
        born_host: cast.advertised,
        store_host: cast.advertised,
        reconsume_times: 0,
        prepared_log_offset: 0,
        body,
        body_crc: None,
        properties: &[OP_PROPERTIES],
    };
    Own { record, tags_code: tags_code_of(Some(OP_TAG)), keys: Some([None, None]) }
}

/// The place in the half topic of the half message for which this one stands since, if it is a copy: its complement
/// stands where a delivered message has the place of its half message in the log, so that no room is needed and no
/// other one is meant.
pub(super) fn instead_of(record: &RecordView<'_>) -> Option<i64> {
    Some(!record.prepared_log_offset()).filter(|queue_offset| *queue_offset >= 0)
}

/// What a record of the half topic says that its place does not; none if it says not where its message goes. All are
/// read, and few things of each.
pub(super) fn seen(bytes: &[u8]) -> Option<Seen> {
    let record = RecordView::parse(bytes).ok()?;
    let [topic, queue_id, uniq_key, checks, moved] = record.properties().pick([
        REAL_TOPIC,
        REAL_QUEUE_ID,
        UNIQ_KEY,
        TRANSACTION_CHECK_TIMES,
        TRANSACTION_PREPARED_QUEUE_OFFSET,
    ]);
    topic?;
    queue_of(queue_id?)?;
    let is_copy = checks.is_some() || moved.is_some();
    Some(Seen {
        copy_of: is_copy.then(|| Text::from(uniq_key.unwrap_or_default())),
        moved_from: moved.and_then(|from| from.parse().ok()),
        instead_of: instead_of(&record),
    })
}

fn queue_of(text: &str) -> Option<i32> {
    text.parse().ok().filter(|id| *id >= 0)
}

/// What one op message says.
#[derive(Debug, PartialEq, Eq)]
pub struct Note {
    /// Its body, digits and commas.
    pub body: Vec<u8>,
    /// How many half messages it names.
    pub names: usize,
}

/// Few op messages that name all these half messages, in their order.
pub fn notes(halves: impl IntoIterator<Item = i64>) -> Vec<Note> {
    let mut notes: Vec<Note> = Vec::new();
    for queue_offset in halves {
        let mut room = [0; DIGITS_MAX];
        let digits = digits_of(queue_offset, &mut room);
        let has_room = |note: &&mut Note| note.body.len() + NAME_MAX_BYTES <= NOTE_MAX_BYTES;
        if let Some(note) = notes.last_mut().filter(has_room) {
            note.names += 1;
            note.body.extend_from_slice(digits);
            note.body.push(b',');
        } else {
            notes.push(Note { body: [digits, b","].concat(), names: 1 });
        }
    }
    notes
}

/// The half messages that an op message names; old brokers wrote a single one without a comma.
pub fn named_by_op(bytes: &[u8]) -> Vec<i64> {
    let Ok(record) = RecordView::parse(bytes) else { return Vec::new() };
    let text = std::str::from_utf8(record.body()).unwrap_or_default();
    text.split(',').filter_map(|number| number.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn op_messages_name_all_half_messages_in_their_order_and_are_no_longer_than_javas() {
        assert_eq!(notes([]), []);
        assert_eq!(notes([7]), [Note { body: b"7,".to_vec(), names: 1 }]);
        let halves: Vec<i64> = (0..2000).map(|at| i64::MAX - at).chain(0..5000).collect();
        let notes = notes(halves.iter().copied());
        assert!(notes.iter().all(|note| note.body.len() <= NOTE_MAX_BYTES));
        assert!(notes.len() <= 17, "{}", notes.len());
        let mut named = Vec::new();
        for note in &notes {
            let record = NewRecord { topic: OP_TOPIC, body: &note.body, ..NewRecord::PLAIN };
            let mut bytes = BytesMut::new();
            record.encode(&mut bytes).expect("a short message");
            let before = named.len();
            named.extend(named_by_op(&bytes));
            assert_eq!(named.len() - before, note.names);
        }
        assert_eq!(named, halves);
    }
}
