//! Reads the end of a transaction by one before it: a client's differ in numbers, ids and names alone.
//!
//! Invariants:
//! - a mold changes how long it takes to read an end, never what is read: what does not fit is left to
//!   [`EndView::read`](crate::request::EndView::read);
//! - a reader has one: another takes its place when it did not fit so often in a row.

use std::borrow::Cow;
use std::ops::Range;

use crate::command::{CommandView, Value};
use crate::pattern::{Pattern, behind, number, word};
use crate::request::{EndTransaction, EndView, Request};

/// Ends that a mold does not fit, one after the other, before another is made.
const MISSES_MAX: u8 = 8;
/// What differs, by the key of its value.
const DIFFERENT: [(&str, Gap); 7] = [
    ("commitLogOffset", Gap::LogOffset),
    ("tranStateTableOffset", Gap::QueueOffset),
    ("commitOrRollback", Gap::Outcome),
    ("producerGroup", Gap::Group),
    ("topic", Gap::Topic),
    ("msgId", Gap::Word),
    ("transactionId", Gap::Word),
];

/// An end that was asked for, in the form of JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending<'a> {
    /// Correlation id.
    pub opaque: i32,
    /// Whether no answer is wanted.
    pub is_oneway: bool,
    /// What is asked for.
    pub end: EndView<'a>,
}

/// The mold of one reader of frames.
#[derive(Debug)]
pub struct EndMolds {
    current: Option<Box<Mold>>,
    misses: u8,
}

/// An end without what differs.
#[derive(Debug)]
struct Mold {
    pattern: Pattern<Gap>,
    /// The group of the one that it was made of, which is known to be text.
    group: Box<str>,
    /// Its topic, as it stands there.
    topic: Box<[u8]>,
    is_oneway: bool,
    from_check: bool,
}

/// What differs from end to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gap {
    Opaque,
    LogOffset,
    QueueOffset,
    Outcome,
    Group,
    Topic,
    /// A text that nobody reads.
    Word,
}

impl Default for EndMolds {
    /// None yet: the first end makes one.
    fn default() -> EndMolds {
        EndMolds { current: None, misses: MISSES_MAX }
    }
}

impl EndMolds {
    /// Reads a frame, if it is the end of a transaction like the one before.
    #[inline]
    pub fn read<'a>(&'a mut self, frame: &'a [u8]) -> Option<Ending<'a>> {
        let read = self.current.as_ref()?.read(frame)?;
        self.misses = 0;
        Some(read)
    }

    /// An end was read in another way; those that come may be like it.
    pub fn learn(&mut self, view: &CommandView<'_>, frame: &[u8], end: &EndView<'_>) {
        if self.misses < MISSES_MAX {
            self.misses = self.misses.saturating_add(1);
            return;
        }
        let known = Ending { opaque: view.opaque, is_oneway: view.is_oneway(), end: end.clone() };
        let mold = Mold::of(view, frame, &known);
        // It is one if it reads what it was made of.
        let is_one = |mold: &Mold| mold.read(frame).is_some_and(|read| read == known);
        self.current = mold.filter(is_one).map(Box::new);
        self.misses = 0;
    }
}

impl Mold {
    fn of(view: &CommandView<'_>, frame: &[u8], known: &Ending<'_>) -> Option<Mold> {
        if view.code != EndTransaction::CODE || view.is_response() {
            return None;
        }
        let mut places: Vec<(Range<usize>, Gap)> = vec![(view.place_of_opaque(), Gap::Opaque)];
        places.extend(DIFFERENT.iter().filter_map(|(key, gap)| Some((view.place_of(key)?, *gap))));
        let pattern = Pattern::of(frame, places)?;
        let group = known.end.producer_group.as_ref().into();
        let topic = view.value("topic").map(Value::as_bytes).unwrap_or_default().into();
        Some(Mold { pattern, group, topic, is_oneway: known.is_oneway, from_check: known.end.from_check })
    }

    fn read<'a>(&'a self, frame: &'a [u8]) -> Option<Ending<'a>> {
        let (mut opaque, mut queue_offset, mut log_offset, mut outcome) = (None, None, None, None);
        let mut group = None;
        self.pattern.read(frame, |gap, text| match gap {
            Gap::Opaque => number(text, &mut opaque),
            Gap::LogOffset => number(text, &mut log_offset),
            Gap::QueueOffset => number(text, &mut queue_offset),
            Gap::Outcome => number(text, &mut outcome),
            Gap::Group => {
                if let Some(rest) = behind(text, self.group.as_bytes()) {
                    group = Some(&*self.group);
                    return Some(rest);
                }
                let (word, rest) = word(text)?;
                group = Some(std::str::from_utf8(word).ok()?);
                Some(rest)
            }
            Gap::Topic => behind(text, &self.topic).or_else(|| Some(word(text)?.1)),
            Gap::Word => Some(word(text)?.1),
        })?;
        let end = EndView {
            producer_group: Cow::Borrowed(group?),
            queue_offset: queue_offset?,
            log_offset: log_offset?,
            outcome: outcome?,
            from_check: self.from_check,
        };
        Some(Ending { opaque: opaque?, is_oneway: self.is_oneway, end })
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::command::{Command, HeaderForm};
    use crate::frame::take_frame;
    use crate::request::EndTransactionHeader;

    /// As Java writes it: numbers as texts, fields it does not need beside them.
    const JAVA: &str = concat!(
        r#"{"code":37,"extFields":{"topic":"T","bname":"b","commitLogOffset":"104857600","#,
        r#""commitOrRollback":"8","fromTransactionCheck":"false","msgId":"7F0001","producerGroup":"group","#,
        r#""tranStateTableOffset":"17","transactionId":"7F0002"},"flag":2,"language":"JAVA","opaque":100,"#,
        r#""serializeTypeCurrentRPC":"JSON","version":479}"#
    );

    fn frame(header: &[u8]) -> Vec<u8> {
        [&u32::try_from(header.len()).unwrap().to_be_bytes(), header].concat()
    }

    /// Reads as a connection does; tells whether the mold fitted. What is read must be what is read without it.
    fn read(molds: &mut EndMolds, frame: &[u8]) -> bool {
        let view = CommandView::parse(frame);
        let like = molds.read(frame);
        let Ok(view) = view else {
            assert_eq!(like, None, "it is no frame");
            return false;
        };
        let known = EndView::read(&view);
        let fits = like.is_some();
        if let Some(ending) = like {
            let wanted = (view.code, view.opaque, view.is_oneway(), view.is_response());
            assert_eq!(wanted, (37, ending.opaque, ending.is_oneway, false));
            assert_eq!(known.as_ref(), Ok(&ending.end));
            assert_eq!((view.form, view.body.len()), (HeaderForm::Json, 0));
        } else {
            known.iter().for_each(|end| molds.learn(&view, frame, end));
        }
        fits
    }

    /// Whether a header fits the mold of `JAVA`.
    fn fits(header: &str) -> bool {
        let mut molds = EndMolds::default();
        assert!(!read(&mut molds, &frame(JAVA.as_bytes())) && read(&mut molds, &frame(JAVA.as_bytes())));
        read(&mut molds, &frame(header.as_bytes()))
    }

    #[test]
    fn ends_that_differ_in_numbers_ids_and_names_are_read_by_the_first() {
        for (from, to) in [
            ("104857600", "9223372036854775807"),
            ("\"17\"", "\"0\""),
            ("\"8\"", "\"12\""),
            ("group", "another|group 1"),
            ("\"T\"", "\"%RETRY%T_2\""),
            ("7F0001", ""),
            ("7F0002", "a,b"),
            ("\"opaque\":100", "\"opaque\":2147483647"),
        ] {
            assert!(fits(&JAVA.replace(from, to)), "{to}");
        }
    }

    #[test]
    fn what_is_not_like_it_is_read_as_ever() {
        for (from, to) in [
            ("\"code\":37", "\"code\":310"),
            ("\"flag\":2", "\"flag\":3"),
            ("\"flag\":2", "\"flag\":0"),
            ("\"false\"", "\"true\""),
            ("104857600", "9223372036854775808"),
            ("104857600", "-1"),
            ("104857600", ""),
            ("\"8\"", "\"8.0\""),
            ("\"8\"", "\"4294967304\""),
            ("group", "gr\\u0041p"),
            ("group", "gr\u{e4}p"),
            ("7F0002", "a\\\"b"),
            ("\"opaque\":100", "\"opaque\":-1"),
            ("\"msgId\":\"7F0001\",", ""),
            ("\"bname\":\"b\"", "\"bname\":\"c\""),
            ("\"JAVA\"", "\"GO\""),
            ("\"bname\":\"b\"", "\"msgId\":\"b\""),
            ("{\"topic\"", "{\"producerGroup\":\"x\",\"topic\""),
        ] {
            let other = JAVA.replace(from, to);
            assert!(!fits(&other), "{to}");
            // So often that the mold is made of it, if it can be.
            let mut molds = EndMolds::default();
            (0..=2 * MISSES_MAX).for_each(|_| _ = read(&mut molds, &frame(other.as_bytes())));
            read(&mut molds, &frame(JAVA.as_bytes()));
        }
    }

    #[test]
    fn every_changed_byte_and_every_end_reads_as_it_does_without_a_mold() {
        let known = frame(JAVA.as_bytes());
        let mut molds = EndMolds::default();
        read(&mut molds, &known);
        for place in 4..known.len() {
            for byte in 0..=0xff_u8 {
                let mut other = known.clone();
                *other.get_mut(place).unwrap() = byte;
                // None is made of this one yet.
                molds.misses = 0;
                read(&mut molds, &other);
                assert!(read(&mut molds, &known), "it is the same mold");
            }
            assert!(molds.read(known.get(..place).unwrap()).is_none());
        }
        let with_body = [&known[..], b"body"].concat();
        assert!(!read(&mut molds, &with_body));
    }

    #[test]
    fn ends_of_this_crate_fit_and_those_in_the_binary_form_are_left_alone() {
        let header = EndTransactionHeader {
            topic: Some("T".into()),
            producer_group: "group".into(),
            queue_offset: 7,
            log_offset: 1 << 40,
            outcome: 8,
            from_check: None,
            message_id: "M".into(),
            transaction_id: Some("M".into()),
        };
        for (form, like) in [(HeaderForm::Json, true), (HeaderForm::Binary, false)] {
            let mut command = Command::request::<EndTransaction>(&header);
            command.form = form;
            let mut bytes = BytesMut::new();
            command.encode(&mut bytes);
            let frame = take_frame(&mut bytes).unwrap().unwrap();
            let mut molds = EndMolds::default();
            assert_eq!([(); 2].map(|()| read(&mut molds, &frame)), [false, like]);
        }
    }
}
