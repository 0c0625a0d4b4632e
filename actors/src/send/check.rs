//! What may be sent: names, sizes, kinds of messages.
//!
//! Invariants:
//! - limits are of bytes, as they stand in the frame;
//! - remarks that clients match are RocketMQ's.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use troupemq_codec::ResponseCode;
use troupemq_codec::message::properties::{
    CHECK_IMMUNITY_TIME_IN_SECONDS, DELAY, INNER_MULTI_DISPATCH, INNER_NUM, KEYS, NAME_END, POP_CK,
    PRODUCER_GROUP, PROPERTIES_MAX_BYTES, TAGS, TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELETE_UNIQUE_KEY,
    TIMER_DELIVER_MS, TIMER_OUT_MS, TIMER_ROLL_TIMES, TRANSACTION_PREPARED, TRANSIENT_PREFIX, UNIQ_KEY, WAIT,
    split_pair,
};
use troupemq_codec::message::{PropertiesView, sys_flag};
use troupemq_codec::topic::TopicConfig;
use troupemq_store::commit_log::ZEROS_MAX;

use crate::cast::BrokerCast;
use crate::config::BrokerConfig;
use crate::detour::{Detour, DetourText, Wish};
use crate::net::Refusal;
use crate::timer::admit::TimeWish;
use crate::timer::enqueue::Due;
use crate::topic::{attributes, names};

/// Characters of a property's name that a refusal shows.
const NAME_SHOWN_MAX: usize = 64;

/// Checks the name of a topic that a client sends to.
pub fn check_topic(topic: &str) -> Result<(), Refusal> {
    names::check(topic)?;
    if names::is_not_sent_to(topic) {
        let remark = format!("Sending message to topic[{topic}] is forbidden.");
        return Err(Refusal::new(ResponseCode::NO_PERMISSION, remark));
    }
    Ok(())
}

/// Refuses sends to ordered topics while the broker may not be written to; the others are the route's to keep away.
pub fn check_order(config: &BrokerConfig, host: SocketAddr, topic: &TopicConfig) -> Result<(), Refusal> {
    if topic.order && !config.is_writable() {
        let remark = format!("the broker[{}] sending message is forbidden", host.ip());
        return Err(Refusal::new(ResponseCode::NO_PERMISSION, remark));
    }
    Ok(())
}

/// Refuses a message without a key where keys decide what is kept.
pub fn check_keys(topic: &TopicConfig, properties: PropertiesView<'_>) -> Result<(), Refusal> {
    let has_key = || properties.get(KEYS).is_some_and(|keys| !keys.trim().is_empty());
    if attributes::is_compacted(topic) && !has_key() {
        return Err(Refusal::new(ResponseCode::MESSAGE_ILLEGAL, "Required message key is missing"));
    }
    Ok(())
}

/// Checks the sizes of a message; `properties_bytes` counts those the broker adds.
pub fn check_sizes(config: &BrokerConfig, body: &[u8], properties_bytes: usize) -> Result<(), Refusal> {
    let max = usize::try_from(config.max_message_size).unwrap_or(0);
    if body.is_empty() || body.len() > max || properties_bytes > PROPERTIES_MAX_BYTES {
        return Err(illegal(config));
    }
    Ok(())
}

/// Refuses half of a transaction whose commit would not find the room to note when it is delivered.
pub fn check_room(properties_bytes: usize, room_bytes: usize) -> Result<(), Refusal> {
    if properties_bytes + room_bytes <= PROPERTIES_MAX_BYTES {
        return Ok(());
    }
    let remark = format!(
        "the message is illegal: its properties have {properties_bytes} bytes, {PROPERTIES_MAX_BYTES} are the most, \
         and half of a transaction with a level or a time leaves {room_bytes} of them to its commit"
    );
    Err(Refusal::new(ResponseCode::MESSAGE_ILLEGAL, remark))
}

/// Refuses properties with so many zeros in a row that a recovery takes them for a sector the disk has lost.
pub fn check_zeros(properties: PropertiesView<'_>) -> Result<(), Refusal> {
    let Some(zeros) = properties.zeros_beyond(ZEROS_MAX) else { return Ok(()) };
    let name = String::from_utf8_lossy(properties.name_at(zeros.start));
    let name: String = name.chars().take(NAME_SHOWN_MAX).collect();
    let remark = format!(
        "the message is illegal: property {name:?} has {} zero bytes in a row, from byte {} of the properties on; \
         {ZEROS_MAX} are the most, more would read as a sector that the disk has lost",
        zeros.len(),
        zeros.start
    );
    Err(Refusal::new(ResponseCode::MESSAGE_ILLEGAL, remark))
}

/// The answer to a message whose parts do not fit.
pub fn illegal(config: &BrokerConfig) -> Refusal {
    Refusal::new(
        ResponseCode::MESSAGE_ILLEGAL,
        format!(
            "the message is illegal, maybe msg body or properties length not matched. \
             msg body length limit {}B, msg properties length limit 32KB.",
            config.max_message_size
        ),
    )
}

/// The properties of a message that decide what becomes of it.
#[derive(Debug, Clone, Copy)]
pub struct Marks<'a> {
    /// The producer's unique id.
    pub uniq_key: Option<&'a str>,
    /// The tags.
    pub tags: Option<&'a str>,
    /// The keys, with blanks between.
    pub keys: Option<&'a str>,
    /// Whether the producer waits for the disk.
    pub waits: bool,
    /// Whether the message was popped before: the mark is not stored again.
    pub was_popped: bool,
    /// The delay level as it was written.
    pub level: Option<&'a str>,
    /// Whether it is half of a transaction.
    pub is_transaction: bool,
    /// The light queues that it goes to.
    pub light: Option<&'a str>,
    /// Whether it has a property that is not stored.
    pub has_transient: bool,
    /// The group of the producer of a transaction.
    pub group: Option<&'a str>,
    time: TimeWish<'a>,
    is_inner_batch: bool,
    /// Whether it says that it went round as a timer.
    went_round: bool,
    /// Whether it names a time before which its transaction is to end.
    has_immunity: bool,
}

/// The names of the marks; nearly all messages have the first.
const NAMES: [&str; 17] = [
    UNIQ_KEY,
    TAGS,
    KEYS,
    WAIT,
    POP_CK,
    TRANSACTION_PREPARED,
    DELAY,
    INNER_NUM,
    TIMER_DELAY_SEC,
    TIMER_DELAY_MS,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    TIMER_DELETE_UNIQUE_KEY,
    INNER_MULTI_DISPATCH,
    PRODUCER_GROUP,
    TIMER_ROLL_TIMES,
    CHECK_IMMUNITY_TIME_IN_SECONDS,
];

/// Bytes of the longest of them.
const NAME_MAX_BYTES: usize = {
    let (mut at, mut max) = (0, 0);
    while at < NAMES.len() {
        max = if NAMES[at].len() > max { NAMES[at].len() } else { max };
        at += 1;
    }
    max
};

/// The unique id of a message that has no other property, as most have that come in batches.
fn only_uniq_key(properties: PropertiesView<'_>) -> Option<&str> {
    let mut pieces = properties.pieces();
    let value = pieces.next()?.strip_prefix(UNIQ_KEY.as_bytes())?.strip_prefix(&[NAME_END])?;
    if pieces.next().is_some() {
        return None;
    }
    std::str::from_utf8(value).ok().filter(|value| !is_blank(value))
}

/// The places of the names that have so many bytes, a bit each: few are compared with the name of a property then.
const PLACES: [u32; NAME_MAX_BYTES + 1] = {
    let mut places = [0; NAME_MAX_BYTES + 1];
    let mut at = 0;
    while at < NAMES.len() {
        places[NAMES[at].len()] |= 1 << at;
        at += 1;
    }
    places
};

/// Which of the names this is.
fn place_of(name: &[u8]) -> Option<usize> {
    let mut places = *PLACES.get(name.len())?;
    while places != 0 {
        let place = places.trailing_zeros() as usize;
        // Mostly the first byte tells.
        if NAMES[place].as_bytes().first() == name.first() && NAMES[place].as_bytes() == name {
            return Some(place);
        }
        places &= places - 1;
    }
    None
}

/// Finds the values of the marks in one pass, and whether there is a property that is not stored.
fn find(properties: PropertiesView<'_>) -> ([Option<&str>; NAMES.len()], bool) {
    let (mut found, mut has_transient) = ([None; NAMES.len()], false);
    for piece in properties.pieces() {
        has_transient |= piece.starts_with(TRANSIENT_PREFIX.as_bytes());
        let Some((name, value)) = split_pair(piece) else { continue };
        if let Some(place) = place_of(name).filter(|_| !value.is_empty()) {
            found[place] = std::str::from_utf8(value).ok();
        }
    }
    (found, has_transient)
}

/// Whether there is nothing but blanks.
fn is_blank(text: &str) -> bool {
    !text.starts_with(|first: char| first.is_ascii_graphic()) && text.trim().is_empty()
}

impl<'a> Marks<'a> {
    /// Those of a message that has a unique id and nothing else.
    fn plain(uniq_key: &'a str) -> Marks<'a> {
        Marks {
            uniq_key: Some(uniq_key),
            tags: None,
            keys: None,
            waits: true,
            was_popped: false,
            level: None,
            is_transaction: false,
            time: TimeWish::default(),
            is_inner_batch: false,
            light: None,
            has_transient: false,
            group: None,
            went_round: false,
            has_immunity: false,
        }
    }

    /// Looks for the marks in one pass.
    pub fn of(properties: PropertiesView<'a>) -> Marks<'a> {
        only_uniq_key(properties).map_or_else(|| Marks::of_any(properties), Marks::plain)
    }

    fn of_any(properties: PropertiesView<'a>) -> Marks<'a> {
        let (found, has_transient) = find(properties);
        let [uniq_key, tags, keys, wait, pop, transaction, delay, inner, rest @ ..] = found;
        let [seconds, ms, deliver, out, cancels, light, group, rolls, immunity] = rest;
        let is_true = |value: Option<&str>| value.is_some_and(|value| value.eq_ignore_ascii_case("true"));
        Marks {
            uniq_key: uniq_key.filter(|key| !is_blank(key)),
            tags: tags.filter(|tags| !tags.is_empty()),
            keys,
            waits: wait.is_none() || is_true(wait),
            was_popped: pop.is_some(),
            level: delay,
            is_transaction: is_true(transaction),
            time: TimeWish { seconds, ms, deliver, was_timed: out.is_some(), cancels: cancels.is_some() },
            is_inner_batch: inner.is_some(),
            light,
            has_transient,
            group,
            went_round: rolls.is_some(),
            has_immunity: immunity.is_some(),
        }
    }

    /// Whether it may have to wait before it reaches its topic.
    pub fn may_wait(&self) -> bool {
        self.level.is_some() || self.is_transaction || self.time.is_any()
    }

    /// When it is due, if it is a timer and nothing more has to be known of it.
    pub fn due(&self) -> Option<Due> {
        let TimeWish { seconds, ms, deliver, cancels, .. } = self.time;
        (!cancels && !self.went_round).then(|| Due::of((seconds, ms, deliver), false))
    }

    /// Whether the end of its transaction depends on more than whether it is a commit.
    pub fn asks_more_of_its_end(&self) -> bool {
        self.level.is_some() || self.time.is_any() || self.has_immunity
    }

    /// Whether a delay level counts: it wins over a delivery time, which is not even stored then.
    pub fn has_level(&self) -> bool {
        self.level.and_then(|level| level.parse().ok()).is_some_and(|level: i32| level > 0)
    }

    /// Whether a property must not be stored as it came.
    pub fn needs_cleaning(&self) -> bool {
        self.was_popped || (self.time.is_any() && self.has_level())
    }

    /// What the message asks for; `uniq_key` is its id, made or not.
    pub fn wish(&self, uniq_key: &'a str, is_again: bool) -> Wish<'a> {
        // A message that is retried after a delay is no half any more.
        let is_half = self.is_transaction && !(is_again && self.has_level());
        Wish { level: self.level, time: self.time, is_half, uniq_key, tags: self.tags }
    }

    /// Where the message has to wait before it reaches a queue of `topic`; nowhere unless it may have to.
    pub fn detour(
        &self,
        (cast, text): (&BrokerCast, &mut DetourText),
        (uniq_key, is_again, may_wait): (&str, bool, bool),
        target: (&str, i32),
        now_ms: i64,
    ) -> Result<Option<Detour>, Refusal> {
        if !may_wait {
            return Ok(None);
        }
        cast.detours.find_with(text, &self.wish(uniq_key, is_again), target, now_ms)
    }

    /// Refuses a kind of message that this broker does not deliver.
    pub fn check(&self, cast: &BrokerCast, config: &BrokerConfig, flags: i32) -> Result<(), Refusal> {
        let host = cast.advertised.ip();
        if self.is_transaction && config.reject_transaction_message {
            let remark = format!("the broker[{host}] sending transaction message is forbidden");
            return Err(Refusal::new(ResponseCode::NO_PERMISSION, remark));
        }
        if self.is_transaction {
            check_open(cast, config)?;
        }
        if self.is_inner_batch || flags & sys_flag::INNER_BATCH != 0 {
            return Err(illegal(config));
        }
        Ok(())
    }
}

/// Refuses half of a transaction while too many are open.
fn check_open(cast: &BrokerCast, config: &BrokerConfig) -> Result<(), Refusal> {
    let (open, max) = (cast.open_halves.load(Ordering::Relaxed), config.open_transactions_max);
    if open < max {
        return Ok(());
    }
    let remark = format!("{open} transactions are open, openTransactionsMax = {max} allows no more");
    Err(Refusal::new(ResponseCode::SYSTEM_BUSY, remark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_of_the_brokers_own_take_no_sends() {
        assert_eq!(check_topic("Good-Topic_1|%"), Ok(()));
        assert_eq!(check_topic("a.b").map_err(|refusal| refusal.code), Err(ResponseCode::INVALID_PARAMETER));
        let refusal = check_topic("SCHEDULE_TOPIC_XXXX").expect_err("the broker's own");
        assert_eq!(refusal.code, ResponseCode::NO_PERMISSION);
        assert_eq!(refusal.remark, "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden.");
    }

    #[test]
    fn every_mark_is_found_by_its_name_and_nothing_by_another() {
        for (place, name) in NAMES.iter().enumerate() {
            assert_eq!(place_of(name.as_bytes()), Some(place));
            assert_eq!(place_of(&vec![b'?'; name.len()]), None);
        }
        assert_eq!([place_of(b""), place_of(&[b'?'; 2 * NAME_MAX_BYTES])], [None, None]);
    }

    #[test]
    fn sizes_are_limited_at_the_byte() {
        let config = BrokerConfig { max_message_size: 1024, ..BrokerConfig::default() };
        assert_eq!(check_sizes(&config, &[0; 1024], PROPERTIES_MAX_BYTES), Ok(()));
        for (body, properties) in [(1025, 0), (0, 0), (1, PROPERTIES_MAX_BYTES + 1)] {
            let refusal = check_sizes(&config, &vec![0; body], properties).expect_err("too much or nothing");
            assert_eq!(refusal.code, ResponseCode::MESSAGE_ILLEGAL);
            assert!(refusal.remark.contains("limit 1024B, msg properties length limit 32KB"));
        }
    }

    #[test]
    fn so_many_zeros_that_they_could_be_a_lost_sector_are_refused_with_their_place() {
        let text =
            |zeros| [b"KEYS\x01a\0b\x02mine\x01" as &[u8], &vec![0; zeros], b"\x02TAGS\x01A\x02"].concat();
        assert_eq!(check_zeros(PropertiesView(b"KEYS\x01a\x02")), Ok(()));
        assert_eq!(check_zeros(PropertiesView(&text(ZEROS_MAX))), Ok(()));
        let refusal = check_zeros(PropertiesView(&text(ZEROS_MAX + 1))).expect_err("one too many");
        assert_eq!(refusal.code, ResponseCode::MESSAGE_ILLEGAL);
        let told = "property \"mine\" has 512 zero bytes in a row, from byte 14 of the properties on; 511 are the most";
        assert!(refusal.remark.contains(told), "{}", refusal.remark);
        let refusal = check_zeros(PropertiesView(&[0; 600])).expect_err("in a name too, and at the end");
        assert!(refusal.remark.contains("property \"\" has 600 zero bytes"), "{}", refusal.remark);
    }

    #[test]
    fn a_message_that_has_but_an_id_has_the_marks_that_any_has() {
        let ids = ["id", " ", "", "\u{1}", "i\u{1}d", "ä"];
        let texts = ids.map(|id| format!("UNIQ_KEY\u{1}{id}"));
        let ends = [
            "",
            "\u{2}",
            "\u{2}\u{2}",
            "\u{2}TAGS\u{1}A",
            "\u{2}UNIQ_KEY\u{1}other\u{2}",
            "\u{2}WAIT\u{1}false",
        ];
        let mut plain = 0;
        for text in texts.iter().map(String::as_str).chain(["", "UNIQ_KEY", "UNIQ_KEYS\u{1}id", "TAGS\u{1}A"])
        {
            for text in ends.map(|end| format!("{text}{end}")) {
                let properties = PropertiesView(text.as_bytes());
                let [one, any] =
                    [Marks::of(properties), Marks::of_any(properties)].map(|marks| format!("{marks:?}"));
                assert_eq!(one, any, "{text:?}");
                plain += usize::from(only_uniq_key(properties).is_some());
            }
        }
        assert_eq!(plain, 4 * 3 + 1, "those with an id that is not blank and nothing else");
    }

    #[test]
    fn the_marks_of_a_message_are_found_in_one_pass() {
        let text = "UNIQ_KEY\u{1}id\u{2}TAGS\u{1}A\u{2}WAIT\u{1}false\u{2}DELAY\u{1}0\u{2}";
        let marks = Marks::of(PropertiesView(text.as_bytes()));
        assert_eq!((marks.uniq_key, marks.tags), (Some("id"), Some("A")));
        assert!(!marks.waits && !marks.has_level() && !marks.is_transaction && !marks.was_popped);
        let marks = Marks::of(PropertiesView(b"DELAY\x013\x02TRAN_MSG\x01true\x02POP_CK\x01x\x02"));
        assert!(marks.waits && marks.has_level() && marks.is_transaction && marks.was_popped);
        assert!(marks.wish("id", false).is_half && !marks.wish("id", true).is_half);
        assert!(marks.may_wait() && !marks.has_transient);
        let long = "x".repeat(NAME_MAX_BYTES + 1);
        let text =
            format!("KEYS\u{1}\u{2}{long}\u{1}y\u{2}KEYS\u{1}a b\u{2}__RMQ.TRANSIENT.A\u{1}1\u{2}KEYS");
        let marks = Marks::of(PropertiesView(text.as_bytes()));
        assert_eq!((marks.keys, marks.uniq_key, marks.has_transient), (Some("a b"), None, true));
        assert!(!marks.may_wait() && marks.waits);
        let has_transient = |text: &str| Marks::of(PropertiesView(text.as_bytes())).has_transient;
        assert!(has_transient("__RMQ.TRANSIENT.A\u{1}1"));
        assert!(has_transient("A\u{1}1\u{2}__RMQ.TRANSIENT.B\u{1}2\u{2}"));
        assert!(!has_transient("A\u{1}__RMQ.TRANSIENT.B\u{2}X__RMQ.TRANSIENT.C\u{1}1\u{2}"));
        assert!(!has_transient(""));
        for blank in [" ", "\u{3000}", "\t \n"] {
            let text = format!("UNIQ_KEY\u{1}{blank}\u{2}");
            assert_eq!(Marks::of(PropertiesView(text.as_bytes())).uniq_key, None, "{blank:?}");
        }
    }
}
