//! What is known of sends that make a detour, once they are stored: half messages are kept for their ends, and the
//! owner of the timers hears what theirs say. Neither has to read their records then.
//!
//! Invariants:
//! - it is only for the sake of speed: whoever does not hear of it reads the records.

use std::ops::Range;

use troupemq_codec::message::properties::REAL_TOPIC;
use troupemq_store::AppendBatch;

use crate::cast::BrokerCast;
use crate::delayed::Aim;
use crate::detour::{Detour, HALF_TOPIC};
use crate::net::wire::Wire;
use crate::send::check::Marks;
use crate::timer::enqueue::{Draft, Marker, Names};
use crate::timer::told::TellTimers;
use crate::transaction::kept::Known;
use crate::transaction::records::{Goes, Part};

/// What is known of the sends of a batch, each with the number of its record.
#[derive(Debug, Default)]
pub(super) struct Noted {
    halves: Vec<(usize, Option<Known>)>,
    timers: Vec<(usize, Draft)>,
    /// The topic of the last timer, and its hash: that of the next is mostly the same.
    topic: (String, i32),
}

/// A send that makes a detour, as its record was encoded. Places are those in the record.
pub(super) struct Encoded<'a> {
    /// Its number in the batch.
    pub(super) record: usize,
    /// Topic and queue that it goes to in the end.
    pub(super) target: (&'a str, i32),
    /// Its unique id, and where that stands.
    pub(super) id: (&'a str, Range<usize>),
    /// The properties that it came with, and where they stand.
    pub(super) properties: (&'a [u8], usize),
    /// Where those of its detour stand.
    pub(super) detour_at: usize,
}

impl Encoded<'_> {
    /// Where a part of the properties that it came with stands.
    fn place_of(&self, part: &str) -> Range<usize> {
        place_within(part, self.properties.0, self.properties.1)
    }

    /// Where in the record the topic stands that it goes to in the end.
    fn topic_at(&self) -> Range<usize> {
        let start = self.detour_at + REAL_TOPIC.len() + 1;
        start..start + self.target.0.len()
    }

    /// Where it goes, for who has its properties.
    fn aim(&self, marks: &Marks<'_>, tags_code: i64) -> Aim {
        let start = self.properties.1;
        let within = |place: Range<usize>| place.start - start..place.end - start;
        let keys = [Some(self.id.1.clone()), marks.keys.map(|keys| self.place_of(keys))];
        Aim::at(within(self.topic_at()), self.target.1, tags_code, keys.map(|key| key.map(within)))
    }
}

impl Noted {
    /// Notes what is known of a send.
    pub(super) fn note(
        &mut self,
        marker: &Marker,
        (marks, detour): (&Marks<'_>, &Detour),
        encoded: &Encoded<'_>,
    ) {
        if detour.topic == HALF_TOPIC {
            self.halves.push((encoded.record, known_of_half(marks, detour, encoded)));
        } else if let (Some(slot_ms), Some(due)) = (detour.slot_ms, marks.due()) {
            let names = self.names((encoded.target.0, encoded.id.0));
            let draft = marker.draft(slot_ms, &names, due, encoded.aim(marks, detour.tags_code));
            self.timers.push((encoded.record, draft));
        }
    }

    /// The names of a timer for this topic, with this unique id.
    fn names<'a>(&mut self, (topic, uniq_key): (&'a str, &'a str)) -> Names<'a> {
        if self.topic.0 == topic {
            return Names { topic, topic_hash: self.topic.1, uniq_key };
        }
        let names = Names::of(topic, uniq_key);
        self.topic = (topic.to_owned(), names.topic_hash);
        names
    }

    /// Tells it of those records of the batch that are stored, which are so many from the front, and forgets it.
    pub(super) fn tell(&mut self, cast: &BrokerCast, wire: &Wire, (batch, stored): (&AppendBatch, usize)) {
        let records = &batch.records[..stored];
        if !self.halves.is_empty() {
            let mut kept = wire.hall.halves.borrow_mut();
            for (record, known) in self.halves.drain(..) {
                let Some(record) = records.get(record) else { break };
                kept.keep((record.log_offset, record.queue_offset), batch.bytes_of(record), known);
            }
        }
        if !self.timers.is_empty() {
            let mut marks = Vec::with_capacity(self.timers.len());
            for (record, draft) in self.timers.drain(..) {
                let Some(record) = records.get(record) else { break };
                marks.push((record.log_offset, draft.mark(batch.stored_ms, record.queue_offset)));
            }
            // An owner that takes no more reads the records.
            let _ = cast.timer.try_send(TellTimers(marks));
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.halves.clear();
        self.timers.clear();
    }
}

fn known_of_half(marks: &Marks<'_>, detour: &Detour, encoded: &Encoded<'_>) -> Option<Known> {
    if marks.asks_more_of_its_end() {
        return None;
    }
    let goes = Goes {
        topic_at: encoded.topic_at().into(),
        keys_at: [Some(encoded.id.1.clone()), marks.keys.map(|keys| encoded.place_of(keys))]
            .map(|at| at.map(Part::from)),
        queue_id: encoded.target.1,
        tags_code: detour.tags_code,
        detour: None,
    };
    Some(Known { group_at: marks.group.map_or(0..0, |group| encoded.place_of(group)).into(), goes })
}

/// Where a part of the properties lies in a record whose properties begin at `start`.
pub(super) fn place_within(part: &str, properties: &[u8], start: usize) -> Range<usize> {
    let at = start + (part.as_ptr().addr() - properties.as_ptr().addr());
    at..at + part.len()
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use troupemq_codec::filter::tags::tags_code_of;
    use troupemq_codec::message::properties::{KEYS, TAGS, UNIQ_KEY};
    use troupemq_codec::message::{NewRecord, PropertiesView, fill_holes};
    use troupemq_store::dispatch::delay_levels::DelayLevels;
    use troupemq_store::{QueueTable, StoreConfig};

    use super::*;
    use crate::detour::Detours;
    use crate::timer::admit::TimerGate;
    use crate::transaction::records::HalfView;

    const NOW_MS: i64 = 1_795_000_000_250;
    const QUEUE_OFFSET: i64 = 7;

    /// What is noted of a send with these properties to queue 3 of `Topic`, its record as it is stored then, and who
    /// reads it. Without an id it gets the id `MADE`.
    fn noted(text: &str) -> (Noted, BytesMut, Marker) {
        let dir = tempfile::tempdir().unwrap();
        let table = QueueTable::load(&StoreConfig::in_dir(dir.path())).unwrap();
        let levels = DelayLevels::parse("1s 5s").unwrap();
        let detours = Detours::new(levels, TimerGate::open_to_all(), table);
        let marks = Marks::of(PropertiesView(text.as_bytes()));
        let made = if marks.uniq_key.is_none() { "UNIQ_KEY\u{1}MADE\u{2}" } else { "" };
        let id = marks.uniq_key.unwrap_or("MADE");
        let detour = detours.find(&marks.wish(id, false), "Topic", 3, NOW_MS).unwrap().expect("a detour");
        let record = NewRecord {
            topic: detour.topic,
            body: b"body",
            properties: &[text.as_bytes(), b"MSG_REGION\x01R\x02", &detour.properties, made.as_bytes()],
            ..NewRecord::PLAIN
        };
        let mut bytes = BytesMut::new();
        record.encode(&mut bytes).unwrap();
        fill_holes(&mut bytes, QUEUE_OFFSET, 100, NOW_MS);
        let properties = (text.as_bytes(), bytes.len() - record.properties_len());
        let id_at = match made.is_empty() {
            true => place_within(id, properties.0, properties.1),
            false => bytes.len() - 1 - id.len()..bytes.len() - 1,
        };
        let detour_at = bytes.len() - made.len() - detour.properties.len();
        let (target, id) = (("Topic", 3), (id, id_at));
        let mut noted = Noted::default();
        let encoded = Encoded { record: 0, target, id, properties, detour_at };
        noted.note(detours.marker(), (&marks, &detour), &encoded);
        (noted, bytes, detours.marker().clone())
    }

    #[test]
    fn what_is_known_of_a_half_message_is_what_its_record_says() {
        let half = |more: &str| format!("TRAN_MSG\u{1}true\u{2}{more}");
        for more in [
            "PGROUP\u{1}G\u{2}UNIQ_KEY\u{1}U\u{2}KEYS\u{1}a b\u{2}TAGS\u{1}T\u{2}",
            "UNIQ_KEY\u{1}U\u{2}PGROUP\u{1}G",
            "PGROUP\u{1}G\u{2}PGROUP\u{1}Of the last\u{2}TAGS\u{1}T",
            "REAL_TOPIC\u{1}Other\u{2}REAL_QID\u{1}9\u{2}UNIQ_KEY\u{1} \u{2}",
            "PGROUP\u{1}\u{2}UNIQ_KEY\u{1}U\u{2}KEYS\u{1}\u{2}",
        ] {
            let (mut noted, bytes, _) = noted(&half(more));
            let (_, known) = noted.halves.pop().expect("a half message");
            let Known { group_at, goes } = known.expect("nothing more is asked for");
            let read = HalfView::parse(&bytes).expect("a half message");
            let text = |at: Part| std::str::from_utf8(at.of(&bytes).unwrap()).unwrap();
            assert_eq!((text(goes.topic_at), text(group_at)), (read.topic, read.group), "{more}");
            let keys = goes.keys_at.map(|at| at.map(text));
            let properties = read.record.properties();
            assert_eq!(keys, [UNIQ_KEY, KEYS].map(|name| properties.get(name)), "{more}");
            assert_eq!((goes.queue_id, goes.tags_code), (3, tags_code_of(properties.get(TAGS))), "{more}");
        }
        for more in ["DELAY\u{1}1", "TIMER_DELAY_MS\u{1}5000", "CHECK_IMMUNITY_TIME_IN_SECONDS\u{1}5"] {
            let (noted, ..) = noted(&half(more));
            assert!(matches!(noted.halves[..], [(0, None)]), "{more}");
        }
    }

    #[test]
    fn the_names_of_a_timer_are_those_of_its_own_topic_whatever_was_noted_before() {
        let mut noted = Noted::default();
        for topic in ["", "T", "T", "Other", "T"] {
            let (names, wanted) = (noted.names((topic, "U")), Names::of(topic, "U"));
            assert_eq!((names.topic, names.topic_hash, names.uniq_key), (topic, wanted.topic_hash, "U"));
        }
    }

    #[test]
    fn what_is_told_of_a_timer_is_what_its_record_says() {
        for text in [
            "TIMER_DELIVER_MS\u{1}1795000003456\u{2}UNIQ_KEY\u{1}U\u{2}",
            "TIMER_DELAY_MS\u{1}3100\u{2}TIMER_DELIVER_MS\u{1}5\u{2}",
            "KEYS\u{1}a b\u{2}UNIQ_KEY\u{1}U\u{2}TAGS\u{1}T\u{2}TIMER_DELAY_MS\u{1}3100\u{2}KEYS\u{1}c",
            "UNIQ_KEY\u{1} \u{2}KEYS\u{1}\u{2}TIMER_DELAY_MS\u{1}3100",
            "REAL_TOPIC\u{1}Other\u{2}TIMER_DELAY_SEC\u{1}3\u{2}TIMER_DELAY_MS\u{1}7",
        ] {
            let (noted, bytes, marker) = noted(text);
            let (_, draft) = noted.timers[0];
            let told = draft.mark(NOW_MS, QUEUE_OFFSET);
            assert_eq!(Some(told), marker.mark(&bytes), "{text}");
            assert_ne!(told.aim, Aim::default(), "{text}");
        }
        for more in ["TIMER_ROLL_TIMES\u{1}1", "TIMER_DEL_UNIQKEY\u{1}Topic+U"] {
            let (noted, ..) = noted(&format!("TIMER_DELAY_MS\u{1}3100\u{2}{more}"));
            assert!(noted.timers.is_empty(), "more of it counts: {more}");
        }
    }
}
