//! Reads an answer to a send by one before it: a broker's answers differ in numbers and ids alone.
//!
//! Invariants:
//! - a mold changes how long it takes to read an answer, never what is read: what does not fit is left to
//!   [`Sent::read`](super::Sent::read);
//! - a connection has one: another takes its place when it did not fit so often in a row.

use std::ops::Range;

use super::{Sent, Stored};
use crate::command::CommandView;
use crate::pattern::{Pattern, number, word};
use crate::response::ResponseCode;
use crate::text::Text;

/// Answers that a mold does not fit, one after the other, before another is made.
const MISSES_MAX: u8 = 8;
/// What differs, by the key of its value.
const DIFFERENT: [(&str, Part); 5] = [
    ("msgId", Part::Id),
    ("queueId", Part::Queue),
    ("queueOffset", Part::Offset),
    ("transactionId", Part::Word),
    ("batchUniqId", Part::Word),
];

/// The mold of a connection.
#[derive(Debug)]
pub struct Molds {
    current: Option<Box<Mold>>,
    misses: u8,
}

/// An answer without what differs.
#[derive(Debug)]
struct Mold {
    pattern: Pattern<Part>,
    code: ResponseCode,
    region: Option<Text>,
}

/// What differs from answer to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Opaque,
    /// The id of the message, or those of a batch.
    Id,
    Queue,
    Offset,
    /// A text that nobody reads.
    Word,
}

impl Default for Molds {
    /// None yet: the first answer makes one.
    fn default() -> Molds {
        Molds { current: None, misses: MISSES_MAX }
    }
}

impl Molds {
    /// Reads the frame of an answer, if it is like the one before: the number of its request, and what it says.
    pub fn read(&mut self, frame: &[u8]) -> Option<(i32, Sent)> {
        let read = self.current.as_ref()?.read(frame)?;
        self.misses = 0;
        Some(read)
    }

    /// An answer was read in another way; those that come may be like it.
    pub fn learn(&mut self, view: &CommandView<'_>, frame: &[u8], sent: &Sent) {
        if self.misses < MISSES_MAX {
            self.misses = self.misses.saturating_add(1);
            return;
        }
        let mold = Mold::of(view, frame, sent);
        // It is one if it reads what it was made of.
        let is_one = |mold: &Mold| mold.read(frame).is_some_and(|read| read == (view.opaque, sent.clone()));
        self.current = mold.filter(is_one).map(Box::new);
        self.misses = 0;
    }
}

impl Mold {
    fn of(view: &CommandView<'_>, frame: &[u8], sent: &Sent) -> Option<Mold> {
        let Sent::Stored(code, Stored { recall_handle: None, region, .. }) = sent else { return None };
        let mut places: Vec<(Range<usize>, Part)> = vec![(view.place_of_opaque(), Part::Opaque)];
        places.extend(DIFFERENT.iter().filter_map(|(key, part)| Some((view.place_of(key)?, *part))));
        let pattern = Pattern::of(frame, places)?;
        Some(Mold { pattern, code: *code, region: region.clone() })
    }

    fn read(&self, frame: &[u8]) -> Option<(i32, Sent)> {
        let (mut opaque, mut id, mut queue_id, mut queue_offset) = (None, None, None, None);
        self.pattern.read(frame, |part, text| match part {
            Part::Opaque => number(text, &mut opaque),
            Part::Queue => number(text, &mut queue_id),
            Part::Offset => number(text, &mut queue_offset),
            Part::Id => {
                let (word, rest) = plain_word(text)?;
                id = Some(word);
                Some(rest)
            }
            Part::Word => Some(plain_word(text)?.1),
        })?;
        let stored = Stored {
            message_id: std::str::from_utf8(id?).ok()?.to_owned(),
            queue_id: queue_id?,
            queue_offset: queue_offset?,
            recall_handle: None,
            region: self.region.clone(),
        };
        Some((opaque?, Sent::Stored(self.code, stored)))
    }
}

/// Takes a word off the front, if it is made of letters, digits and commas.
fn plain_word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (word, rest) = word(text)?;
    // All of it, without a look after each: such a loop takes many bytes at once.
    let is_plain = word.iter().fold(true, |is, byte| is & (byte.is_ascii_alphanumeric() | (*byte == b',')));
    is_plain.then_some((word, rest))
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::command::Command;
    use crate::frame::take_frame;

    const HOME: Text = Text::from_static("DefaultRegion");

    fn frame(opaque: i32, code: ResponseCode, fields: &[(&str, &str)]) -> bytes::Bytes {
        let mut answer = Command::response(code);
        answer.opaque = opaque;
        answer.fields = fields.iter().copied().collect();
        let mut out = BytesMut::new();
        answer.encode(&mut out);
        take_frame(&mut out).unwrap().unwrap()
    }

    /// Reads as a connection does; tells whether the mold fitted. What is read must be what is read without it.
    fn read(molds: &mut Molds, frame: &[u8]) -> bool {
        let view = CommandView::parse(frame).unwrap();
        let known = Sent::read(&view, &HOME);
        let like = molds.read(frame);
        match &like {
            Some((opaque, sent)) => assert_eq!((*opaque, Ok(sent)), (view.opaque, known.as_ref())),
            None => known.iter().for_each(|sent| molds.learn(&view, frame, sent)),
        }
        like.is_some()
    }

    #[test]
    fn answers_that_differ_in_ids_and_numbers_are_read_by_the_first() {
        let mut molds = Molds::default();
        let mut sizes = Vec::new();
        for (opaque, id, queue, offset, other) in [
            (1, "7F00", "3", "9", "UNIQ"),
            (-1, "7F01", "0", "10", ""),
            (1_000_000, "7F01", "2147483647", "9223372036854775807", "a,b"),
            (2, "7F00,7F01", "1", "0", "UNIQ2"),
        ] {
            let fields = [
                ("msgId", id),
                ("MSG_REGION", "elsewhere"),
                ("queueOffset", offset),
                ("queueId", queue),
                ("transactionId", other),
                ("TRACE_ON", "true"),
            ];
            sizes.push(read(&mut molds, &frame(opaque, ResponseCode::SUCCESS, &fields)));
        }
        assert_eq!(sizes, [false, false, true, true], "all but the first and one with a sign");
    }

    #[test]
    fn what_is_not_like_it_is_read_as_ever() {
        let plain = [("msgId", "7F00"), ("queueId", "3"), ("queueOffset", "9"), ("transactionId", "U")];
        let with = |key: &str, value: &'static str| {
            let fields = plain.map(|(known, old)| (known, if known == key { value } else { old }));
            frame(7, ResponseCode::SUCCESS, &fields)
        };
        let known = frame(1, ResponseCode::SUCCESS, &plain);
        let mut others = vec![
            with("msgId", "a\"b"),
            with("msgId", "ä"),
            with("msgId", "a b"),
            with("queueId", "-3"),
            with("queueId", "4294967296"),
            with("queueOffset", "x"),
            with("transactionId", "\\"),
            frame(7, ResponseCode::FLUSH_DISK_TIMEOUT, &plain),
            frame(7, ResponseCode::SYSTEM_ERROR, &plain),
            frame(7, ResponseCode::SUCCESS, &plain[..3]),
            frame(7, ResponseCode::SUCCESS, &[&plain[..], &[("recallHandle", "h")]].concat()),
            frame(7, ResponseCode::SUCCESS, &[&plain[..], &[("msgId", "7F02")]].concat()),
        ];
        let mut with_body = known.to_vec();
        with_body.push(b'b');
        others.push(with_body.into());
        for other in &others {
            let mut molds = Molds::default();
            assert!(!read(&mut molds, &known) && read(&mut molds, &known));
            assert!(!read(&mut molds, other), "{other:?}");
            assert!(read(&mut molds, &known), "one of another kind leaves the mold as it is");
            // So often that the mold is made of it, if it can be.
            for _ in 0..=2 * MISSES_MAX {
                read(&mut molds, other);
            }
            read(&mut molds, &known);
        }
        for end in 0..known.len() {
            let mut molds = Molds::default();
            read(&mut molds, &known);
            assert!(molds.read(&known[..end]).is_none());
        }
    }
}
