//! Escapes in JSON strings, out and in.
//!
//! Invariants:
//! - what is written is legal JSON in UTF-8 and needs no map or copy of the text;
//! - `unescape` takes text that `escape_len` has walked over: it never fails, half a surrogate pair becomes
//!   U+FFFD.

use bytes::BufMut;

use crate::error::CodecError;

/// Writes the text between (not including) the quotes of a JSON string.
pub(crate) fn escape(text: &str, out: &mut impl BufMut) {
    let mut rest = text.as_bytes();
    while let Some(at) = first_escape(rest) {
        let (plain, tail) = rest.split_at_checked(at).unwrap_or_default();
        out.put_slice(plain);
        let Some((byte, tail)) = tail.split_first() else { return };
        put_escape(*byte, out);
        rest = tail;
    }
    out.put_slice(rest);
}

/// Whether [`escape`] writes the text as it is.
pub(crate) fn is_plain(text: &[u8]) -> bool {
    first_escape(text).is_none()
}

/// Writes it in pure ASCII: everything beyond becomes `\uXXXX`.
pub(crate) fn escape_to_ascii(text: &str, out: &mut impl BufMut) {
    for char in text.chars() {
        if char.is_ascii() {
            escape(char.encode_utf8(&mut [0; 4]), out);
            continue;
        }
        for unit in char.encode_utf16(&mut [0; 2]) {
            put_unicode(*unit, out);
        }
    }
}

/// Where the first byte is that needs an escape. Eight bytes at a time, because almost no text has one.
fn first_escape(text: &[u8]) -> Option<usize> {
    let (words, _) = text.as_chunks::<8>();
    let plain_words = words.iter().position(|word| any_needs_escape(*word)).unwrap_or(words.len());
    let plain = plain_words.saturating_mul(8);
    let within = text.get(plain..).unwrap_or_default().iter().position(|byte| needs_escape(*byte))?;
    Some(plain.saturating_add(within))
}

/// Whether one of eight bytes needs an escape.
fn any_needs_escape(bytes: [u8; 8]) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    let word = u64::from_be_bytes(bytes);
    // Finds a zero byte, without telling which.
    let has_zero = |word: u64| word.wrapping_sub(ONES) & !word & HIGHS;
    let quote = has_zero(word ^ 0x2222_2222_2222_2222);
    let backslash = has_zero(word ^ 0x5c5c_5c5c_5c5c_5c5c);
    let control = has_zero(word & 0xe0e0_e0e0_e0e0_e0e0);
    quote | backslash | control != 0
}

fn needs_escape(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

fn put_escape(byte: u8, out: &mut impl BufMut) {
    match byte {
        b'"' => out.put_slice(b"\\\""),
        b'\\' => out.put_slice(b"\\\\"),
        b'\n' => out.put_slice(b"\\n"),
        b'\r' => out.put_slice(b"\\r"),
        b'\t' => out.put_slice(b"\\t"),
        0x08 => out.put_slice(b"\\b"),
        0x0c => out.put_slice(b"\\f"),
        _ => put_unicode(u16::from(byte), out),
    }
}

fn put_unicode(unit: u16, out: &mut impl BufMut) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |shift: u32| DIGITS.get(usize::from((unit >> shift) & 0xf)).copied().unwrap_or(b'0');
    // Properties have several: each is one piece.
    out.put_slice(&[b'\\', b'u', digit(12), digit(8), digit(4), digit(0)]);
}

/// Length of the escape at the beginning of `text` (which starts with a backslash).
pub(crate) fn escape_len(text: &[u8]) -> Result<usize, CodecError> {
    let bad = || CodecError::invalid("escape in JSON", text.get(..6).unwrap_or(text));
    match text.get(1) {
        Some(b'u') => match text.get(2..6) {
            Some(digits) if digits.iter().all(u8::is_ascii_hexdigit) => Ok(6),
            _ => Err(bad()),
        },
        Some(b'"' | b'\'' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'0'..=b'7' | b'x') => {
            Ok(2)
        }
        _ => Err(bad()),
    }
}

/// Writes what the text between the quotes of a JSON string means.
pub(crate) fn unescape(text: &str, out: &mut impl BufMut) {
    let mut rest = text.as_bytes();
    while let Some(at) = memchr::memchr(b'\\', rest) {
        let (plain, escape) = rest.split_at_checked(at).unwrap_or_default();
        out.put_slice(plain);
        rest = match escape.get(1) {
            Some(b'u') => match small_unicode(escape) {
                // The marks between properties, which are most of all.
                Some((meant, rest)) => {
                    out.put_u8(meant);
                    rest
                }
                None => put_meant_unicode(escape, out),
            },
            Some(letter) => {
                out.put_u8(meant_by(*letter));
                escape.get(2..).unwrap_or_default()
            }
            None => &[],
        };
    }
    out.put_slice(rest);
}

/// What one of the first ten characters means, and what is left behind it.
fn small_unicode(escape: &[u8]) -> Option<(u8, &[u8])> {
    let ([b'\\', b'u', b'0', b'0', b'0', digit @ b'0'..=b'9'], rest) = escape.split_first_chunk::<6>()?
    else {
        return None;
    };
    Some((digit & 0xf, rest))
}

fn meant_by(letter: u8) -> u8 {
    match letter {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'f' => 0x0c,
        b'v' => 0x0b,
        b'0'..=b'7' => letter & 7,
        same => same,
    }
}

/// Writes the character of one `\uXXXX` or of a pair of them; gives what is left.
fn put_meant_unicode<'a>(escape: &'a [u8], out: &mut impl BufMut) -> &'a [u8] {
    let after = |len| escape.get(len..).unwrap_or_default();
    let first = unicode_at(escape, 0).unwrap_or(0xfffd);
    if first < 0x80 {
        out.put_u8(first.to_be_bytes().last().copied().unwrap_or_default());
        return after(6);
    }
    let second = unicode_at(escape, 6).filter(|_| (0xd800..0xdc00).contains(&first));
    let (units, len) = match second {
        Some(second) if (0xdc00..0xe000).contains(&second) => ([first, second], 12),
        _ => ([first, 0], 6),
    };
    let meant = char::decode_utf16(units).next().and_then(Result::ok).unwrap_or(char::REPLACEMENT_CHARACTER);
    out.put_slice(meant.encode_utf8(&mut [0; 4]).as_bytes());
    after(len)
}

fn unicode_at(escape: &[u8], at: usize) -> Option<u16> {
    let (slash, digits) = escape.get(at..)?.get(..6)?.split_first_chunk::<2>()?;
    if slash != b"\\u" {
        return None;
    }
    let mut unit = 0u16;
    for digit in digits {
        let value = char::from(*digit).to_digit(16)?;
        unit = (unit << 4) | u16::try_from(value).ok()?;
    }
    Some(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning(text: &str) -> String {
        let mut out = Vec::new();
        unescape(text, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_character_survives_both_forms() {
        let text: String = (0..0x3000).chain(0x1f600..0x1f640).filter_map(char::from_u32).collect();
        let (mut plain, mut ascii) = (Vec::new(), Vec::new());
        escape(&text, &mut plain);
        escape_to_ascii(&text, &mut ascii);
        assert!(ascii.is_ascii());
        assert_eq!(meaning(&String::from_utf8(plain).unwrap()), text);
        assert_eq!(meaning(&String::from_utf8(ascii).unwrap()), text);
    }

    #[test]
    fn what_needs_an_escape_is_found_at_every_place() {
        for byte in 0..=0xff_u8 {
            for (len, place) in (1..20).flat_map(|len| (0..len).map(move |place| (len, place))) {
                let mut text = vec![b'x'; len];
                *text.get_mut(place).unwrap() = byte;
                assert_eq!(first_escape(&text), needs_escape(byte).then_some(place));
            }
        }
    }

    #[test]
    fn separators_of_properties_are_written_as_java_does() {
        let mut out = Vec::new();
        escape("KEYS\u{1}a\u{2}", &mut out);
        assert_eq!(out, b"KEYS\\u0001a\\u0002");
    }

    #[test]
    fn half_a_surrogate_pair_becomes_the_replacement_character() {
        assert_eq!(meaning("a\\ud83db"), "a\u{fffd}b");
        assert_eq!(meaning("\\ude00"), "\u{fffd}");
        assert_eq!(meaning("\\ud83d\\u0041"), "\u{fffd}A");
        assert_eq!(meaning("\\ud83d\\uDE00"), "😀");
    }

    #[test]
    fn an_escape_that_means_nothing_is_an_error() {
        assert!(escape_len(b"\\q").is_err());
        assert!(escape_len(b"\\u12").is_err());
        assert!(escape_len(b"\\u12g4").is_err());
        assert!(escape_len(b"\\").is_err());
        assert_eq!(escape_len(b"\\u12af"), Ok(6));
        assert_eq!(escape_len(b"\\nx"), Ok(2));
    }
}
