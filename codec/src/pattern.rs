//! A header without what differs from one to the next: who writes such headers fills the same gaps again and again.
//!
//! Invariants:
//! - what stands between the gaps is compared byte for byte;
//! - a frame with a body, or in the binary form, fits no pattern.

use std::ops::Range;

use crate::command::HeaderForm;
use crate::frame::HEADER_WORD_BYTES;

/// The pattern; `G` says what stands in a gap.
#[derive(Debug)]
pub(crate) struct Pattern<G> {
    /// The gaps, each with what stands before it.
    gaps: Vec<(Box<[u8]>, G)>,
    /// What stands behind the last of them.
    end: Box<[u8]>,
}

impl<G: Copy> Pattern<G> {
    /// That of a frame whose gaps stand at these places of its header; none if they do not.
    pub(crate) fn of(frame: &[u8], mut places: Vec<(Range<usize>, G)>) -> Option<Pattern<G>> {
        places.sort_by_key(|(place, _)| place.start);
        let mut rest = header_of(frame)?;
        let (mut gaps, mut at) = (Vec::with_capacity(places.len()), 0_usize);
        for (place, gap) in places {
            let (before, behind) = rest.split_at_checked(place.start.checked_sub(at)?)?;
            gaps.push((before.into(), gap));
            rest = behind.get(place.len()..)?;
            at = place.end;
        }
        Some(Pattern { gaps, end: rest.into() })
    }

    /// Walks through a frame: `take` is given what stands in a gap and behind it, and gives back what it left. None if
    /// the frame does not fit.
    #[inline]
    pub(crate) fn read<'a>(
        &self,
        frame: &'a [u8],
        mut take: impl FnMut(G, &'a [u8]) -> Option<&'a [u8]>,
    ) -> Option<()> {
        let mut rest = header_of(frame)?;
        for (before, gap) in &self.gaps {
            rest = take(*gap, rest.strip_prefix(&**before)?)?;
        }
        (rest == &*self.end).then_some(())
    }
}

/// The header of a frame that has no body, in the form of JSON.
fn header_of(frame: &[u8]) -> Option<&[u8]> {
    let (word, header) = frame.split_first_chunk::<HEADER_WORD_BYTES>()?;
    let [form, len @ ..] = *word;
    let [high, middle, low] = len;
    let len = usize::try_from(u32::from_be_bytes([0, high, middle, low])).ok()?;
    (form == HeaderForm::Json.number() && len == header.len()).then_some(header)
}

/// Takes a number without a sign off the front; what is left. None if there is none, or it is too large.
#[inline]
pub(crate) fn number<'a, N: TryFrom<i64>>(text: &'a [u8], slot: &mut Option<N>) -> Option<&'a [u8]> {
    let (mut number, mut rest) = (0_i64, text);
    while let Some((byte, behind)) = rest.split_first().filter(|(byte, _)| byte.is_ascii_digit()) {
        number = number.checked_mul(10)?.checked_add(i64::from(byte & 0xf))?;
        rest = behind;
    }
    if rest.len() == text.len() {
        return None;
    }
    *slot = Some(N::try_from(number).ok()?);
    Some(rest)
}

/// What is left behind a word that is known, if it stands in front and ends there.
#[inline]
pub(crate) fn behind<'a>(text: &'a [u8], known: &[u8]) -> Option<&'a [u8]> {
    text.strip_prefix(known).filter(|rest| rest.first() == Some(&b'"'))
}

/// Takes off the front what stands before a quotation mark, if it means itself between the quotes of JSON and is made
/// of ASCII; what is left.
#[inline]
pub(crate) fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (word, rest) = text.split_at_checked(plain_len(text))?;
    (rest.first() == Some(&b'"')).then_some((word, rest))
}

/// How many bytes stand in front of the first that is no printable letter of ASCII, or a quotation mark or a backslash.
fn plain_len(text: &[u8]) -> usize {
    let (words, last) = text.as_chunks::<8>();
    let mut at = 0_usize;
    for word in words {
        // Eight bytes at once: the top bit of each says what is true of it. No sum carries beyond its byte.
        let bytes = u64::from_be_bytes(*word);
        let low = bytes & !TOPS;
        let is_printable = low.wrapping_add(each(0x80 - b' '));
        let is_no = |mark: u8| (low ^ each(mark)).wrapping_add(each(0x7f));
        let is_delete = low.wrapping_add(each(1));
        let is_plain = is_printable & is_no(b'"') & is_no(b'\\') & !is_delete & !bytes;
        let others = !is_plain & TOPS;
        if others != 0 {
            return at.saturating_add((others.leading_zeros() / 8) as usize);
        }
        at = at.saturating_add(8);
    }
    let is_other = |byte: &u8| !matches!(byte, b' '..=b'~') || *byte == b'"' || *byte == b'\\';
    at.saturating_add(last.iter().position(is_other).unwrap_or(last.len()))
}

/// The top bit of each byte of a word.
const TOPS: u64 = each(0x80);

/// A byte eight times.
const fn each(byte: u8) -> u64 {
    u64::from_be_bytes([byte; 8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_taken_as_far_as_its_digits_go_and_none_that_is_too_large() {
        let taken = |text: &'static str| {
            let mut number = None::<i64>;
            super::number(text.as_bytes(), &mut number).map(|rest| (number.unwrap(), rest))
        };
        assert_eq!(taken("0\","), Some((0, &b"\","[..])));
        assert_eq!(taken("007x8"), Some((7, &b"x8"[..])));
        assert_eq!(taken("9223372036854775807"), Some((i64::MAX, &b""[..])));
        for none in ["", "x", "-1", "+1", "9223372036854775808", "99999999999999999999"] {
            assert_eq!(taken(none), None, "{none}");
        }
        let mut small = None::<i32>;
        assert!(number(b"2147483648", &mut small).is_none() && small.is_none());
        assert_eq!((number(b"2147483647", &mut small), small), (Some(&b""[..]), Some(i32::MAX)));
    }

    #[test]
    fn a_word_that_is_known_is_passed_over_whole_or_not_at_all() {
        assert_eq!(behind(b"group\",", b"group"), Some(&b"\","[..]));
        assert_eq!((behind(b"groups\"", b"group"), behind(b"grou\"", b"group")), (None, None));
        assert_eq!((behind(b"group", b"group"), behind(b"\"", b"")), (None, Some(&b"\""[..])));
    }

    #[test]
    fn a_word_ends_at_the_first_byte_that_does_not_mean_itself_wherever_it_stands() {
        for byte in 0..=0xff_u8 {
            let is_plain = (b' '..0x7f).contains(&byte) && byte != b'"' && byte != b'\\';
            for (len, place) in (1..20).flat_map(|len| (0..len).map(move |place| (len, place))) {
                for around in [b'x', b'~', b' '] {
                    let mut text = vec![around; len];
                    *text.get_mut(place).unwrap() = byte;
                    assert_eq!(plain_len(&text), if is_plain { len } else { place }, "{byte} at {place}");
                }
            }
        }
        assert_eq!(word(b"a b\"c"), Some((&b"a b"[..], &b"\"c"[..])));
        assert_eq!((word(b"a\\b\""), word(b"a"), word(b"")), (None, None, None));
    }
}
