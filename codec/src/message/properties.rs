//! Message properties: `name 0x01 value 0x02`, repeated.
//!
//! Invariants:
//! - a pair counts only if neither its name nor its value is empty, as in Java;
//! - the closing mark of the last pair may be absent: old clients leave it out;
//! - a name may occur twice; the last one wins;
//! - reading allocates nothing: the pairs stay in their text.
//!
//! RocketMQ's name for it: `MessageDecoder#string2messageProperties`.

use std::fmt;
use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};

mod names;

use crate::command::digits_of;
pub use names::*;

/// Stands between a name and its value.
pub const NAME_END: u8 = 1;
/// Stands behind a value.
pub const PAIR_END: u8 = 2;
/// Longest property text that a record can carry.
pub const PROPERTIES_MAX_BYTES: usize = 32_767;

/// Properties in their stored text, borrowed. The text need not be UTF-8: a torn record may hold anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PropertiesView<'a>(pub &'a [u8]);

impl<'a> PropertiesView<'a> {
    /// The value of a name: the last one, if it is UTF-8. Searches from the end.
    pub fn get(self, name: &str) -> Option<&'a str> {
        let value = self.get_bytes(name)?;
        std::str::from_utf8(value).ok()
    }

    /// Whether the name has a value.
    pub fn contains(self, name: &str) -> bool {
        self.get_bytes(name).is_some()
    }

    /// Where the first run of more than `max` zero bytes stands. One search, if there is no zero at all.
    pub fn zeros_beyond(self, max: usize) -> Option<Range<usize>> {
        if self.0.len() <= max {
            return None;
        }
        let mut at = memchr::memchr(0, self.0)?;
        loop {
            let rest = self.0.get(at..)?;
            let count = rest.iter().position(|byte| *byte != 0).unwrap_or(rest.len());
            let end = at.saturating_add(count);
            if count > max {
                return Some(at..end);
            }
            at = end.saturating_add(memchr::memchr(0, self.0.get(end..)?)?);
        }
    }

    /// The name of the property that the byte at `at` belongs to; empty if that has none.
    pub fn name_at(self, at: usize) -> &'a [u8] {
        let before = self.0.get(..at).unwrap_or(self.0);
        let begin = memchr::memrchr(PAIR_END, before).map_or(0, |end| end.saturating_add(1));
        let piece = before.get(begin..).unwrap_or_default();
        memchr::memchr(NAME_END, piece).and_then(|end| piece.get(..end)).unwrap_or_default()
    }

    /// The value as a decimal number, if it is one.
    pub fn get_i64(self, name: &str) -> Option<i64> {
        self.get(name)?.parse().ok()
    }

    /// The value as bytes.
    pub fn get_bytes(self, name: &str) -> Option<&'a [u8]> {
        // Most messages of a producer have none.
        if self.0.is_empty() {
            return None;
        }
        let mut rest = self.0;
        loop {
            let (before, piece) = match memchr::memrchr(PAIR_END, rest) {
                Some(at) => (rest.get(..at), rest.get(at.saturating_add(1)..)?),
                None => (None, rest),
            };
            let value = piece.strip_prefix(name.as_bytes()).and_then(|end| end.strip_prefix(&[NAME_END]));
            if let Some(value) = value.filter(|value| !value.is_empty() && !name.is_empty()) {
                return Some(value);
            }
            rest = before?;
        }
    }

    /// The values of several names in one walk: for the dispatcher, which wants a few of many.
    pub fn pick<const N: usize>(self, names: [&str; N]) -> [Option<&'a str>; N] {
        let mut found = [None; N];
        self.pick_into(&names, &mut found);
        found
    }

    /// The same for any number of names; a slot keeps what it holds if its name has no value.
    pub(crate) fn pick_into<N: AsRef<str>>(self, names: &[N], slots: &mut [Option<&'a str>]) {
        for piece in self.pieces() {
            for (slot, name) in slots.iter_mut().zip(names) {
                let name = name.as_ref().as_bytes();
                if piece.get(name.len()) != Some(&NAME_END) || !piece.starts_with(name) || name.is_empty() {
                    continue;
                }
                let value = piece.get(name.len().saturating_add(1)..).unwrap_or_default();
                if !value.is_empty() {
                    *slot = std::str::from_utf8(value).ok();
                }
            }
        }
    }

    /// What stands between the marks behind values, in order: pairs, and what is none, but nothing empty.
    pub fn pieces(self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at_checked(before(PAIR_END, rest))?;
                rest = behind.get(1..).unwrap_or_default();
                if !piece.is_empty() {
                    return Some(piece);
                }
            }
            None
        })
    }

    /// Name and value of each pair in order, as bytes.
    pub fn pairs(self) -> Pairs<'a> {
        Pairs { rest: self.0 }
    }

    /// Name and value of each pair in order; pairs that are no UTF-8 are left out.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.pairs().filter_map(|(name, value)| {
            Some((std::str::from_utf8(name).ok()?, std::str::from_utf8(value).ok()?))
        })
    }

    /// The text.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

/// Name and value of a piece, as bytes; none if it has no mark between them.
#[inline]
pub fn split_pair(piece: &[u8]) -> Option<(&[u8], &[u8])> {
    let (name, value) = piece.split_at_checked(before(NAME_END, piece))?;
    Some((name, value.split_first()?.1))
}

/// How many bytes stand before the first of these marks; all, if there is none. Most names and values are so short that
/// a search made for long texts begins slower than this ends.
#[inline]
fn before(mark: u8, text: &[u8]) -> usize {
    let (near, far) = text.split_at_checked(NEAR_BYTES).unwrap_or((text, &[]));
    let (words, last) = near.as_chunks::<8>();
    let mut at = 0_usize;
    for word in words {
        // A byte becomes 0 where the mark is, and its top bit says so.
        let differs = u64::from_be_bytes(*word) ^ u64::from_be_bytes([mark; 8]);
        let marks = !((differs & !TOPS).wrapping_add(!TOPS) | differs) & TOPS;
        if marks != 0 {
            return at.saturating_add((marks.leading_zeros() / 8) as usize);
        }
        at = at.saturating_add(8);
    }
    let end = last.iter().position(|byte| *byte == mark).map(|within| at.saturating_add(within));
    end.or_else(|| memchr::memchr(mark, far).map(|behind| behind.saturating_add(near.len())))
        .unwrap_or(text.len())
}

/// Bytes that are looked at a word at a time.
const NEAR_BYTES: usize = 64;
/// The top bit of each byte of a word.
const TOPS: u64 = u64::from_be_bytes([0x80; 8]);

/// Walks the pairs of a property text.
#[derive(Debug, Clone)]
pub struct Pairs<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() {
            let end = memchr::memchr(PAIR_END, self.rest).unwrap_or(self.rest.len());
            let (piece, rest) = self.rest.split_at_checked(end)?;
            self.rest = rest.get(1..).unwrap_or_default();
            let Some(name_end) = memchr::memchr(NAME_END, piece) else { continue };
            let (name, value) = piece.split_at_checked(name_end)?;
            let value = value.get(1..).unwrap_or_default();
            if !name.is_empty() && !value.is_empty() {
                return Some((name, value));
            }
        }
        None
    }
}

/// Appends a pair to property text.
#[inline]
pub fn put_property(out: &mut impl BufMut, name: &str, value: &str) {
    out.put_slice(name.as_bytes());
    out.put_u8(NAME_END);
    out.put_slice(value.as_bytes());
    out.put_u8(PAIR_END);
}

/// The same for a number.
#[inline]
pub fn put_number_property(out: &mut impl BufMut, name: &str, number: i64) {
    let mut room = Default::default();
    out.put_slice(name.as_bytes());
    out.put_u8(NAME_END);
    out.put_slice(digits_of(number, &mut room));
    out.put_u8(PAIR_END);
}

/// Whether a property with this name and value reads back as it was written.
pub fn is_storable(name: &str, value: &str) -> bool {
    let has_mark = |text: &str| text.bytes().any(|byte| byte == NAME_END || byte == PAIR_END);
    !name.is_empty() && !value.is_empty() && !has_mark(name) && !value.bytes().any(|byte| byte == PAIR_END)
}

/// Owned properties, in order, kept as their text: cloning shares it, a change writes it anew.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Properties {
    text: Bytes,
}

impl Properties {
    /// No properties.
    pub fn new() -> Properties {
        Properties::default()
    }

    /// Takes property text as it is, without a copy; what is no UTF-8 is replaced, as Java does.
    pub fn parse(text: Bytes) -> Properties {
        if std::str::from_utf8(&text).is_ok() {
            return Properties { text };
        }
        Properties { text: Bytes::from(String::from_utf8_lossy(&text).into_owned()) }
    }

    /// The pairs, borrowed.
    pub fn view(&self) -> PropertiesView<'_> {
        PropertiesView(&self.text)
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.view().get(name)
    }

    /// The value as a decimal number, if it is one.
    pub fn get_i64(&self, name: &str) -> Option<i64> {
        self.view().get_i64(name)
    }

    /// Whether the name has a value.
    pub fn contains(&self, name: &str) -> bool {
        self.view().contains(name)
    }

    /// Gives a name a value; former values of it go. An empty value removes the name. The marks of the
    /// format inside name or value are left out: who takes names from users asks [`is_storable`] first.
    pub fn set(&mut self, name: &str, value: &str) {
        let name = without_marks(name);
        let value = without_marks(value);
        let mut text = self.without(&name, name.len().saturating_add(value.len()).saturating_add(2));
        if !name.is_empty() && !value.is_empty() {
            put_property(&mut text, &name, &value);
        }
        self.text = text.freeze();
    }

    /// Removes all values of a name; tells whether there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        let was_there = self.contains(name);
        if was_there {
            self.text = self.without(name, 0).freeze();
        }
        was_there
    }

    /// Name and value of each pair in order. A name that occurs twice comes twice: the last one counts.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.view().iter()
    }

    /// Whether there is no pair.
    pub fn is_empty(&self) -> bool {
        self.view().pairs().next().is_none()
    }

    /// The text as stored and sent.
    pub fn encoded(&self) -> &Bytes {
        &self.text
    }

    fn without(&self, name: &str, more: usize) -> BytesMut {
        let mut text = BytesMut::with_capacity(self.text.len().saturating_add(more).saturating_add(1));
        for (known, value) in self.iter().filter(|(known, _)| *known != name) {
            put_property(&mut text, known, value);
        }
        text
    }
}

impl fmt::Debug for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<N: AsRef<str>, V: AsRef<str>> FromIterator<(N, V)> for Properties {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Properties {
        let mut properties = Properties::new();
        for (name, value) in pairs {
            properties.set(name.as_ref(), value.as_ref());
        }
        properties
    }
}

fn without_marks(text: &str) -> std::borrow::Cow<'_, str> {
    let is_mark = |c: char| c == char::from(NAME_END) || c == char::from(PAIR_END);
    if text.contains(is_mark) { text.replace(is_mark, "").into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(text: &str) -> PropertiesView<'_> {
        PropertiesView(text.as_bytes())
    }

    #[test]
    fn pairs_with_an_empty_name_or_value_do_not_count() {
        let view = view("\u{1}v\u{2}A\u{1}\u{2}B\u{2}\u{2}C\u{1}1\u{2}");
        assert_eq!(view.iter().collect::<Vec<_>>(), [("C", "1")]);
        assert_eq!(
            (view.get("A"), view.get(""), view.get("B"), view.get("C")),
            (None, None, None, Some("1"))
        );
    }

    #[test]
    fn the_last_pair_needs_no_closing_mark() {
        let view = view("A\u{1}1\u{2}AA\u{1}2");
        assert_eq!((view.get("A"), view.get("AA")), (Some("1"), Some("2")));
        assert_eq!(view.iter().count(), 2);
    }

    #[test]
    fn a_number_is_written_as_its_digits() {
        let mut text = Vec::new();
        [0, -7, i64::MIN, i64::MAX].iter().for_each(|number| put_number_property(&mut text, "N", *number));
        let wanted = "N\u{1}0\u{2}N\u{1}-7\u{2}N\u{1}-9223372036854775808\u{2}N\u{1}9223372036854775807\u{2}";
        assert_eq!(String::from_utf8(text).unwrap(), wanted);
    }

    #[test]
    fn pieces_end_where_the_marks_are_however_long_they_are() {
        for len in 0..200 {
            for text in [vec![b'x'; len], (0..len).map(|at| [1, 3, 0x82, 0][at % 4]).collect()] {
                let pieces = |text: &[u8]| -> Vec<Vec<u8>> {
                    PropertiesView(text).pieces().map(<[u8]>::to_vec).collect()
                };
                let wanted: Vec<Vec<u8>> =
                    [&text[..]].into_iter().filter(|text| !text.is_empty()).map(Into::into).collect();
                assert_eq!(pieces(&text), wanted);
                let closed = [&text[..], b"\x02y\x02\x02z"].concat();
                assert_eq!(pieces(&closed), [&wanted[..], &[b"y".to_vec(), b"z".to_vec()]].concat());
            }
        }
    }

    #[test]
    fn a_piece_is_split_at_its_first_mark_wherever_it_stands() {
        for len in 0..100 {
            let name = vec![b'n'; len];
            assert_eq!(split_pair(&name), None);
            for value in [&b""[..], b"v", b"a\x01b"] {
                let piece = [&name[..], &[NAME_END], value].concat();
                assert_eq!(split_pair(&piece), Some((&name[..], value)));
            }
        }
    }

    #[test]
    fn the_last_of_two_values_wins() {
        let view = view("U\u{1}own\u{2}W\u{1}true\u{2}U\u{1}of the batch\u{2}");
        assert_eq!(view.get("U"), Some("of the batch"));
        assert_eq!(view.pick(["W", "U", "absent"]), [Some("true"), Some("of the batch"), None]);
    }

    #[test]
    fn an_empty_last_value_does_not_hide_the_one_before() {
        let view = view("A\u{1}1\u{2}A\u{1}\u{2}");
        assert_eq!((view.get("A"), view.pick(["A"])), (Some("1"), [Some("1")]));
    }

    #[test]
    fn a_value_may_hold_the_mark_behind_names() {
        assert_eq!(view("A\u{1}x\u{1}y\u{2}").get("A"), Some("x\u{1}y"));
    }

    #[test]
    fn setting_replaces_every_former_value_and_goes_to_the_end() {
        let mut properties = Properties::parse(Bytes::from_static(b"A\x011\x02B\x012\x02A\x013"));
        properties.set("A", "4");
        assert_eq!(properties.encoded().as_ref(), b"B\x012\x02A\x014\x02");
        properties.set("B", "");
        assert_eq!(properties.encoded().as_ref(), b"A\x014\x02");
        assert!(properties.remove("A"));
        assert!(!properties.remove("A"));
        assert!(properties.is_empty());
    }

    #[test]
    fn what_users_name_cannot_break_the_text() {
        assert!(is_storable("colour", "bl\u{1}ue") && !is_storable("a\u{1}b", "c"));
        assert!(!is_storable("a", "b\u{2}c") && !is_storable("a", "") && !is_storable("", "a"));
        let mut properties = Properties::new();
        properties.set("co\u{1}lour", "bl\u{2}ue");
        assert_eq!(properties.iter().collect::<Vec<_>>(), [("colour", "blue")]);
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced_as_in_java() {
        let torn: &[u8] = b"A\x01\xFF\x02B\x012\x02";
        assert_eq!(PropertiesView(torn).iter().collect::<Vec<_>>(), [("B", "2")]);
        let properties = Properties::parse(Bytes::from_static(torn));
        assert_eq!(properties.get("A"), Some("\u{FFFD}"));
        assert_eq!(properties.get("B"), Some("2"));
    }

    #[test]
    fn a_name_is_reserved_once() {
        let mut names = RESERVED.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), RESERVED.len());
    }
}
