//! Detours: where a message waits before it reaches its topic — in a delay level, for a time it names, or as half of
//! a transaction.
//! Java: `HookUtils`, `TransactionalMessageBridge`.
//!
//! Invariants:
//! - a message that waits keeps its topic and queue in its properties, and everything else as it came;
//! - a delay level wins over a delivery time, a transaction waits before its delay begins;
//! - what was on a detour is delivered with the properties it waited with.

use std::sync::{Arc, OnceLock};

use bytes::BytesMut;
use troupemq_codec::ResponseCode;
use troupemq_codec::filter::tags::tags_code_of;
use troupemq_codec::message::properties::{
    DELAY, REAL_QUEUE_ID, REAL_TOPIC, TIMER_OUT_MS, TRANSACTION_ID, put_number_property, put_property,
};
use troupemq_store::dispatch::SCHEDULE_TOPIC;
use troupemq_store::dispatch::delay_levels::DelayLevels;
use troupemq_store::timer::TIMER_TOPIC;
use troupemq_store::{ConsumeQueue, QueueTable};

use crate::net::Refusal;
use crate::timer::admit::{TimeWish, TimerGate};
use crate::timer::enqueue::Marker;

/// Topic of the half messages. Java: `RMQ_SYS_TRANS_HALF_TOPIC`.
pub const HALF_TOPIC: &str = "RMQ_SYS_TRANS_HALF_TOPIC";

/// The most that a level or a time adds to the properties of a message which says where it goes: the time of its slot.
const NOTE_MAX_BYTES: usize = "TIMER_OUT_MS".len() + "\u{1}9223372036854775807\u{2}".len();

/// Room for the text of one detour after the other, and what the last one began and ended with: messages that come
/// together mostly go to one topic at one time.
#[derive(Debug, Default)]
pub struct DetourText {
    room: BytesMut,
    topic: String,
    /// The property that names the topic.
    front: BytesMut,
    slot_ms: i64,
    /// The property that names the time of the slot; empty before there was one.
    slot: BytesMut,
}

impl DetourText {
    /// The text that tells where a message goes.
    fn begin(&mut self, topic: &str, queue_id: i32) -> BytesMut {
        if self.front.is_empty() || self.topic != topic {
            topic.clone_into(&mut self.topic);
            self.front.clear();
            put_property(&mut self.front, REAL_TOPIC, topic);
        }
        let mut text = std::mem::take(&mut self.room);
        text.clear();
        text.reserve(self.front.len() + 96);
        text.extend_from_slice(&self.front);
        put_number_property(&mut text, REAL_QUEUE_ID, queue_id.into());
        text
    }

    /// Appends the time of a slot.
    fn put_slot(&mut self, text: &mut BytesMut, slot_ms: i64) {
        if self.slot.is_empty() || self.slot_ms != slot_ms {
            self.slot_ms = slot_ms;
            self.slot.clear();
            put_number_property(&mut self.slot, TIMER_OUT_MS, slot_ms);
        }
        text.extend_from_slice(&self.slot);
    }

    /// Takes the room of a detour back that is not needed any more.
    pub fn give_back(&mut self, detour: Detour) {
        self.room = detour.properties;
    }
}

/// What a message asks for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wish<'a> {
    /// Its delay level as it stands in its properties.
    pub level: Option<&'a str>,
    /// The time of its delivery.
    pub time: TimeWish<'a>,
    /// Whether it is half of a transaction.
    pub is_half: bool,
    /// Its unique id.
    pub uniq_key: &'a str,
    /// Its tags.
    pub tags: Option<&'a str>,
}

impl Wish<'_> {
    /// Room that half of a transaction must leave in its properties for what its commit notes.
    pub fn room_bytes(&self) -> usize {
        let waits = self.level.is_some() || self.time.is_any();
        if waits { NOTE_MAX_BYTES } else { 0 }
    }
}

/// Where a message waits.
#[derive(Debug)]
pub struct Detour {
    /// The topic it is stored in.
    pub topic: &'static str,
    /// The queue of that topic.
    pub queue: Arc<ConsumeQueue>,
    /// What its unit carries: when it is due in epoch ms, or the hash of its tags.
    pub tags_code: i64,
    /// Property text to store behind its own.
    pub properties: BytesMut,
    /// Bytes of them that tell where the message goes.
    target_bytes: usize,
    /// Room that its properties must leave for what it notes when it leaves this detour for the next.
    pub room_bytes: usize,
    /// The time of its slot, if it is a timer, epoch ms.
    pub slot_ms: Option<i64>,
}

impl Detour {
    /// A detour by a queue, with a text that tells where the message goes.
    fn to((topic, queue): (&'static str, Arc<ConsumeQueue>), tags_code: i64, properties: BytesMut) -> Detour {
        let target_bytes = properties.len();
        Detour { topic, queue, tags_code, properties, target_bytes, room_bytes: 0, slot_ms: None }
    }

    /// The time that stands in the handle by which a timer can be recalled, epoch ms.
    pub fn recall_ms(&self) -> Option<i64> {
        // A time within the slot: a cancellation that is due then falls into the same slot.
        self.slot_ms.map(|slot_ms| slot_ms + 1)
    }

    /// The property text that a message needs which says already where it goes.
    pub fn note(&self) -> &[u8] {
        &self.properties[self.target_bytes..]
    }
}

/// What decides about detours, and the queues they lead to.
#[derive(Debug)]
pub struct Detours {
    levels: DelayLevels,
    gate: TimerGate,
    table: QueueTable,
    timed: OnceLock<Arc<ConsumeQueue>>,
    scheduled: Box<[OnceLock<Arc<ConsumeQueue>>]>,
    half: OnceLock<Arc<ConsumeQueue>>,
}

impl Detours {
    /// Detours with these delay levels, and as `gate` lets timers pass, into the queues of `table`.
    pub fn new(levels: DelayLevels, gate: TimerGate, table: QueueTable) -> Detours {
        let count = usize::try_from(levels.max()).expect("levels are counted from 1");
        let scheduled = (0..count).map(|_| OnceLock::new()).collect();
        Detours { levels, gate, table, timed: OnceLock::new(), scheduled, half: OnceLock::new() }
    }

    /// Reads what timers say.
    pub fn marker(&self) -> &Marker {
        self.gate.marker()
    }

    /// The delay levels.
    pub fn levels(&self) -> &DelayLevels {
        &self.levels
    }

    /// Where a message for a queue of `topic` has to wait; none if it goes there at once.
    pub fn find(
        &self,
        wish: &Wish<'_>,
        topic: &str,
        queue_id: i32,
        now_ms: i64,
    ) -> Result<Option<Detour>, Refusal> {
        self.find_with(&mut DetourText::default(), wish, (topic, queue_id), now_ms)
    }

    /// The same with this room for its text.
    ///
    /// # Errors
    /// What the message asks for that cannot be.
    pub fn find_with(
        &self,
        text: &mut DetourText,
        wish: &Wish<'_>,
        target: (&str, i32),
        now_ms: i64,
    ) -> Result<Option<Detour>, Refusal> {
        let level = level_of(wish.level, self.levels.max())?;
        if wish.is_half {
            // A time that cannot be is refused here: with it the transaction could never be committed.
            if level <= 0 {
                self.gate.slot(&wish.time, now_ms)?;
            }
            return self.half(text, wish, target).map(Some);
        }
        if level <= 0 {
            return self.timed(text, wish, target, now_ms);
        }
        let used = self.levels.clamp(level);
        let queue = self.queue_of_level(used)?;
        let tags_code = now_ms.saturating_add(self.levels.delay_ms(used));
        let text = text.begin(target.0, target.1);
        let mut detour = Detour::to((SCHEDULE_TOPIC, queue), tags_code, text);
        if used != level {
            put_number_property(&mut detour.properties, DELAY, used.into());
        }
        Ok(Some(detour))
    }

    fn timed(
        &self,
        text: &mut DetourText,
        wish: &Wish<'_>,
        (topic, queue_id): (&str, i32),
        now_ms: i64,
    ) -> Result<Option<Detour>, Refusal> {
        let Some(slot_ms) = self.gate.slot(&wish.time, now_ms)? else { return Ok(None) };
        let queue = self.kept(&self.timed, TIMER_TOPIC, 0)?;
        let target = text.begin(topic, queue_id);
        let mut detour = Detour::to((TIMER_TOPIC, queue), tags_code_of(wish.tags), target);
        text.put_slot(&mut detour.properties, slot_ms);
        detour.slot_ms = Some(slot_ms);
        Ok(Some(detour))
    }

    fn half(
        &self,
        text: &mut DetourText,
        wish: &Wish<'_>,
        (topic, queue_id): (&str, i32),
    ) -> Result<Detour, Refusal> {
        let queue = self.kept(&self.half, HALF_TOPIC, 0)?;
        let text = text.begin(topic, queue_id);
        let mut detour = Detour::to((HALF_TOPIC, queue), tags_code_of(wish.tags), text);
        put_property(&mut detour.properties, TRANSACTION_ID, wish.uniq_key);
        detour.room_bytes = wish.room_bytes();
        Ok(detour)
    }

    fn queue_of_level(&self, level: i32) -> Result<Arc<ConsumeQueue>, Refusal> {
        let at = usize::try_from(level - 1).expect("a message without a level makes no detour");
        let slot = self.scheduled.get(at).expect("the level was clamped");
        self.kept(slot, SCHEDULE_TOPIC, level - 1)
    }

    fn kept(
        &self,
        slot: &OnceLock<Arc<ConsumeQueue>>,
        topic: &str,
        queue_id: i32,
    ) -> Result<Arc<ConsumeQueue>, Refusal> {
        if let Some(queue) = slot.get() {
            return Ok(queue.clone());
        }
        let opened = self.table.open_or_create(topic, queue_id);
        let queue = opened.map_err(|error| Refusal::new(ResponseCode::SYSTEM_ERROR, error.to_string()))?;
        Ok(slot.get_or_init(|| queue).clone())
    }
}

/// The level a message asks for; 0 for none.
fn level_of(level: Option<&str>, max: i32) -> Result<i32, Refusal> {
    let Some(text) = level else { return Ok(0) };
    text.parse().map_err(|_| {
        let remark = format!("the delay level \"{text}\" is no number; levels are 1 to {max}");
        Refusal::new(ResponseCode::SYSTEM_ERROR, remark)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use troupemq_codec::message::PropertiesView;
    use troupemq_store::StoreConfig;

    fn detours(dir: &std::path::Path) -> Detours {
        let table = QueueTable::load(&StoreConfig::in_dir(dir)).unwrap();
        Detours::new(DelayLevels::parse("1s 5s 10s").unwrap(), TimerGate::open_to_all(), table)
    }

    /// 3.3 #28.
    #[test]
    fn a_time_leads_to_the_timers_unless_there_is_a_level() {
        let dir = tempfile::tempdir().unwrap();
        let detours = detours(dir.path());
        let time = TimeWish { deliver: Some("5500"), ..TimeWish::default() };
        let wish = |level| Wish { level, time, tags: Some("T"), ..Wish::default() };
        let found = detours.find(&wish(None), "Topic", 3, 1000).unwrap().expect("a detour");
        assert_eq!((found.topic, found.queue.queue_id(), found.recall_ms()), (TIMER_TOPIC, 0, Some(5001)));
        let view = PropertiesView(&found.properties);
        assert_eq!((view.get(TIMER_OUT_MS), view.get(REAL_TOPIC)), (Some("5000"), Some("Topic")));
        let found = detours.find(&wish(Some("1")), "Topic", 3, 1000).unwrap().expect("a detour");
        assert_eq!((found.topic, found.recall_ms()), (SCHEDULE_TOPIC, None));
        assert!(detours.find(&wish(Some("0")), "Topic", 3, 6000).unwrap().is_none(), "the time is past");
    }

    #[test]
    fn a_detour_has_the_same_text_whatever_detours_had_the_room_before() {
        let dir = tempfile::tempdir().unwrap();
        let detours = detours(dir.path());
        let timer = |deliver| Wish {
            time: TimeWish { deliver: Some(deliver), ..TimeWish::default() },
            ..Wish::default()
        };
        let half = Wish { is_half: true, uniq_key: "U", ..Wish::default() };
        let level = Wish { level: Some("99"), ..Wish::default() };
        let mut text = DetourText::default();
        for (wish, topic, queue_id) in [
            (timer("5500"), "Topic", 3),
            (timer("5500"), "Topic", 12),
            (timer("7500"), "Other", 0),
            (half, "Other", 0),
            (level, "A longer topic", 1),
            (timer("7500"), "T", 1),
        ] {
            let alone = detours.find(&wish, topic, queue_id, 1000).unwrap().expect("a detour");
            let found =
                detours.find_with(&mut text, &wish, (topic, queue_id), 1000).unwrap().expect("a detour");
            assert_eq!((&found.properties, found.note()), (&alone.properties, alone.note()));
            assert_eq!(PropertiesView(&found.properties).get(REAL_TOPIC), Some(topic));
            text.give_back(found);
        }
    }

    #[test]
    fn a_level_leads_to_its_queue_and_says_when() {
        let dir = tempfile::tempdir().unwrap();
        let detours = detours(dir.path());
        let wish = |level| Wish { level: Some(level), ..Wish::default() };
        let found = detours.find(&wish("2"), "T", 3, 1000).unwrap().expect("a detour");
        assert_eq!((found.topic, found.queue.queue_id(), found.tags_code), (SCHEDULE_TOPIC, 1, 6000));
        let view = PropertiesView(&found.properties);
        assert_eq!((view.get(REAL_TOPIC), view.get(REAL_QUEUE_ID)), (Some("T"), Some("3")));
        assert_eq!(view.get(DELAY), None);
        // 3.3 #23: a level above the last is the last, below 1 is none.
        let found = detours.find(&wish("99"), "T", 0, 0).unwrap().expect("a detour");
        assert_eq!((found.queue.queue_id(), PropertiesView(&found.properties).get(DELAY)), (2, Some("3")));
        assert!(detours.find(&wish("0"), "T", 0, 0).unwrap().is_none());
        assert!(detours.find(&wish("-1"), "T", 0, 0).unwrap().is_none());
        for no_number in ["soon", "1.5", "99999999999", ""] {
            let refusal = detours.find(&wish(no_number), "T", 0, 0).expect_err("no number");
            assert_eq!(refusal.code, ResponseCode::SYSTEM_ERROR);
            let wanted = format!("the delay level \"{no_number}\" is no number; levels are 1 to 3");
            assert_eq!(refusal.remark, wanted);
        }
    }

    #[test]
    fn half_of_a_transaction_waits_before_its_delay() {
        let dir = tempfile::tempdir().unwrap();
        let wish = Wish { level: Some("2"), is_half: true, uniq_key: "U", ..Wish::default() };
        let found = detours(dir.path()).find(&wish, "T", 3, 1000).unwrap().expect("a detour");
        assert_eq!((found.topic, found.queue.queue_id()), (HALF_TOPIC, 0));
        let view = PropertiesView(&found.properties);
        assert_eq!((view.get(TRANSACTION_ID), view.get(REAL_QUEUE_ID)), (Some("U"), Some("3")));
    }

    /// 3.3 #27: what could never be committed is not taken in either.
    #[test]
    fn half_of_a_transaction_with_a_level_or_a_time_that_cannot_be_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let detours = detours(dir.path());
        let half = Wish { is_half: true, uniq_key: "U", ..Wish::default() };
        let far = TimeWish { seconds: Some("259201"), ..TimeWish::default() };
        let refusal = detours.find(&Wish { time: far, ..half }, "T", 3, 1000).expect_err("too far ahead");
        assert_eq!(refusal.code, ResponseCode::MESSAGE_ILLEGAL);
        let refusal =
            detours.find(&Wish { level: Some("soon"), ..half }, "T", 3, 1000).expect_err("no number");
        assert!(refusal.remark.contains("\"soon\""), "{}", refusal.remark);
        let leveled = Wish { level: Some("1"), time: far, ..half };
        assert!(detours.find(&leveled, "T", 3, 1000).is_ok(), "the level wins");
    }
}
