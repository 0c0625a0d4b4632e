//! Reads a header in JSON in one pass, without an allocation.
//!
//! Invariants:
//! - the bytes are checked to be UTF-8 first, so a piece between ASCII marks is UTF-8 too;
//! - unknown keys are passed over whatever their value; `null` counts as absent;
//! - in extension fields strings, numbers and truth values are taken (C++ clients write numbers), nothing
//!   nested;
//! - no recursion, so no depth can hurt.

use crate::command::escape::{escape_len, unescape};
use crate::command::span::{FieldSpan, Span};
use crate::command::view::Parsed;
use crate::error::CodecError;
use crate::language::Language;

/// Strings up to this many words are walked over word by word, which is faster than to begin a search.
const SHORT_STRING_WORDS: usize = 4;

/// Reads the whole header.
pub(super) fn parse<'a>(header: &'a [u8], parsed: &mut Parsed<'a>) -> Result<(), CodecError> {
    let text = std::str::from_utf8(header);
    parsed.text = text.map_err(|_| CodecError::invalid("UTF-8 of a header", header))?;
    let mut scan = Scan { bytes: header, at: 0 };
    scan.members(|scan, key| scan.top_level(key, parsed))
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Scan<'_> {
    fn top_level(&mut self, key: Span, parsed: &mut Parsed<'_>) -> Result<(), CodecError> {
        match self.bytes.get(key.range()).unwrap_or_default() {
            b"code" => parsed.code = self.int()?,
            b"flag" => parsed.flag = self.int()?,
            b"opaque" => {
                parsed.opaque_at = self.scalar()?.unwrap_or_default();
                parsed.opaque = self.int_at(parsed.opaque_at)?;
            }
            b"version" => parsed.version = self.int()?,
            b"language" => parsed.language = self.language()?,
            b"remark" => parsed.remark = self.scalar()?,
            b"extFields" => self.ext_fields(parsed)?,
            _ => self.skip_value()?,
        }
        Ok(())
    }

    fn ext_fields(&mut self, parsed: &mut Parsed<'_>) -> Result<(), CodecError> {
        if self.peek() == Some(b'n') {
            return self.scalar().map(drop);
        }
        self.members(|scan, key| {
            if let Some(value) = scan.scalar()? {
                parsed.fields.push(FieldSpan { key, value });
            }
            Ok(())
        })
    }

    /// Walks over an object; `member` stands on each value and must pass it.
    fn members(
        &mut self,
        mut member: impl FnMut(&mut Self, Span) -> Result<(), CodecError>,
    ) -> Result<(), CodecError> {
        self.expect(b'{')?;
        if self.peek() == Some(b'}') {
            return self.expect(b'}');
        }
        loop {
            self.expect(b'"')?;
            let key = self.string()?;
            self.expect(b':')?;
            self.skip_blanks();
            member(self, key)?;
            match self.peek() {
                Some(b',') => self.at = self.at.wrapping_add(1),
                _ => return self.expect(b'}'),
            }
        }
    }

    /// The next byte that is not blank; stays before it.
    fn peek(&mut self) -> Option<u8> {
        self.skip_blanks();
        self.bytes.get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.bytes.get(self.at) {
            self.at = self.at.wrapping_add(1);
        }
    }

    fn expect(&mut self, wanted: u8) -> Result<(), CodecError> {
        if self.peek() != Some(wanted) {
            return Err(self.error());
        }
        self.at = self.at.wrapping_add(1);
        Ok(())
    }

    #[cold]
    fn error(&self) -> CodecError {
        match self.bytes.get(self.at..) {
            None | Some([]) => CodecError::Short { what: "header in JSON", need: 1, have: 0 },
            Some(rest) => CodecError::invalid("header in JSON", rest),
        }
    }

    /// The text up to the closing quote; the opening one is passed.
    fn string(&mut self) -> Result<Span, CodecError> {
        let start = self.at;
        for _ in 0..SHORT_STRING_WORDS {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let Some(word) = rest.first_chunk::<8>() else { break };
            let Some(len) = mark_in(*word) else {
                self.at = self.at.wrapping_add(8);
                continue;
            };
            let end = self.at.wrapping_add(len);
            if self.bytes.get(end) != Some(&b'"') {
                break;
            }
            self.at = end.wrapping_add(1);
            return Ok(Span::new(start, end));
        }
        self.long_string(start)
    }

    fn long_string(&mut self, start: usize) -> Result<Span, CodecError> {
        let mut escapes = false;
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let Some(len) = memchr::memchr2(b'"', b'\\', rest) else {
                self.at = self.bytes.len();
                return Err(self.error());
            };
            let end = self.at.wrapping_add(len);
            if rest.get(len) == Some(&b'"') {
                self.at = end.wrapping_add(1);
                return Ok(if escapes { Span::with_escapes(start, end) } else { Span::new(start, end) });
            }
            escapes = true;
            let escape = escape_len(rest.get(len..).unwrap_or_default())?;
            self.at = end.wrapping_add(escape);
        }
    }

    /// A string, number or truth value; `None` for null.
    fn scalar(&mut self) -> Result<Option<Span>, CodecError> {
        if self.bytes.get(self.at) == Some(&b'"') {
            self.at = self.at.wrapping_add(1);
            return self.string().map(Some);
        }
        let start = self.at;
        let rest = self.bytes.get(start..).unwrap_or_default();
        let len = rest.iter().position(|byte| !is_bare(*byte)).unwrap_or(rest.len());
        if len == 0 {
            return Err(self.error());
        }
        self.at = start.wrapping_add(len);
        let is_null = rest.get(..len) == Some(b"null");
        Ok(if is_null { None } else { Some(Span::new(start, self.at)) })
    }

    fn int(&mut self) -> Result<i32, CodecError> {
        let span = self.scalar()?.unwrap_or_default();
        self.int_at(span)
    }

    /// The number that stands there; `null`, which stands nowhere, counts as 0.
    fn int_at(&self, span: Span) -> Result<i32, CodecError> {
        if span == Span::default() {
            return Ok(0);
        }
        let digits = self.bytes.get(span.range()).unwrap_or_default();
        int_from(digits).ok_or_else(|| CodecError::invalid("number in header", digits))
    }

    fn language(&mut self) -> Result<Language, CodecError> {
        let name = self.scalar()?.map(Span::range).unwrap_or_default();
        let name = self.bytes.get(name).unwrap_or_default();
        let number = int_from(name).and_then(|number| u8::try_from(number).ok());
        Ok(number.map_or_else(|| Language::from_name(name), Language::from_number))
    }

    fn skip_value(&mut self) -> Result<(), CodecError> {
        let mut depth = 0usize;
        loop {
            match self.peek() {
                Some(b'{' | b'[') => {
                    self.at = self.at.wrapping_add(1);
                    depth = depth.wrapping_add(1);
                }
                Some(b'}' | b']' | b',' | b':') if depth > 0 => {
                    let closes = matches!(self.bytes.get(self.at), Some(b'}' | b']'));
                    self.at = self.at.wrapping_add(1);
                    depth = if closes { depth.wrapping_sub(1) } else { depth };
                }
                _ => {
                    self.scalar()?;
                }
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }
}

/// Where in eight bytes the first quote or backslash is.
fn mark_in(bytes: [u8; 8]) -> Option<usize> {
    const LOW_BITS: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let zeros = |word: u64| !((word & LOW_BITS).wrapping_add(LOW_BITS) | word | LOW_BITS);
    let word = u64::from_be_bytes(bytes);
    let marks = zeros(word ^ 0x2222_2222_2222_2222) | zeros(word ^ 0x5c5c_5c5c_5c5c_5c5c);
    if marks == 0 { None } else { Some((marks.leading_zeros() / 8) as usize) }
}

fn is_bare(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.')
}

/// A decimal number; `None` if it is none or too large.
pub(crate) fn int_from(digits: &[u8]) -> Option<i32> {
    long_from(digits).and_then(|number| i32::try_from(number).ok())
}

/// A decimal number of 64 bits; `None` if it is none or too large.
pub(crate) fn long_from(digits: &[u8]) -> Option<i64> {
    let (negative, digits) = match digits.split_first() {
        Some((b'-', digits)) => (true, digits),
        Some((b'+', digits)) => (false, digits),
        _ => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let mut number = 0i64;
    for digit in digits {
        let value = i64::from(digit.wrapping_sub(b'0'));
        if value > 9 {
            return None;
        }
        // Downwards, because the lowest number has no positive counterpart.
        number = number.checked_mul(10)?.checked_sub(value)?;
    }
    if negative { Some(number) } else { number.checked_neg() }
}

/// What the text at a span with escapes means.
pub(super) fn meaning(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    unescape(text, &mut bytes);
    String::from_utf8(bytes).expect("unescaping UTF-8 gives UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(header: &str) -> Result<Parsed<'_>, CodecError> {
        let mut parsed = Parsed::default();
        parse(header.as_bytes(), &mut parsed).map(|()| parsed)
    }

    #[test]
    fn blanks_unknown_keys_and_nulls_do_no_harm() {
        let header = r#" { "code" : 14 , "x":{"y":["}",{"z":"\"]"}],"n":null},"remark":null,
            "extFields" : { "a" : null, "b":-7 , "c":true } ,"opaque":-2147483648, "extra":[] }"#;
        let parsed = parsed(header).unwrap();
        assert_eq!((parsed.code, parsed.opaque, parsed.remark), (14, i32::MIN, None));
        let values: Vec<&str> =
            parsed.fields.iter().map(|field| header.get(field.value.range()).unwrap()).collect();
        assert_eq!(values, ["-7", "true"]);
    }

    #[test]
    fn absent_extension_fields_are_none() {
        assert_eq!(parsed(r#"{"code":34}"#).unwrap().fields.len(), 0);
        assert_eq!(parsed(r#"{"code":34,"extFields":null}"#).unwrap().fields.len(), 0);
        assert_eq!(parsed(r#"{"extFields":{},"code":34}"#).unwrap().code, 34);
        assert_eq!(parsed("{}").unwrap().code, 0);
    }

    #[test]
    fn language_comes_by_name_or_number() {
        let language = |text: &str| parsed(&format!(r#"{{"language":{text}}}"#)).unwrap().language;
        assert_eq!(language(r#""CPP""#), Language::Cpp);
        assert_eq!(language("9"), Language::Go);
        assert_eq!(language(r#""COBOL""#), Language::Other);
    }

    #[test]
    fn what_is_no_header_is_an_error() {
        let bad = ["", "{", "[]", "{\"code\"}", "{\"code\":}", "{\"code\":1x}", "{\"code\":99999999999}"];
        for header in bad {
            assert!(parsed(header).is_err(), "{header}");
        }
        assert!(parsed(r#"{"extFields":{"a":{}}}"#).is_err());
        assert!(parsed(r#"{"extFields":{"a":"\q"}}"#).is_err());
        assert!(parsed(&format!(r#"{{"x":{}"#, "[".repeat(100_000))).is_err());
    }

    #[test]
    fn the_first_mark_of_a_word_is_found_at_every_place() {
        for mark in [b'"', b'\\'] {
            for other in [0, b'!', b'#', b'[', b']', 0x7f, 0x80, 0xa2, 0xdc, 0xff] {
                for place in 0..8 {
                    let mut word = [other; 8];
                    *word.get_mut(place).unwrap() = mark;
                    assert_eq!(mark_in(word), Some(place));
                    assert_eq!(mark_in([other; 8]), None);
                }
            }
        }
    }

    #[test]
    fn strings_of_all_lengths_end_where_they_end() {
        for len in 0..100 {
            for (tail, escapes) in [("", false), ("\\n", true)] {
                let header = format!(r#"{{"remark":"{}{tail}","opaque":7}}"#, "ä".repeat(len));
                let parsed = parsed(&header).unwrap();
                let remark = parsed.remark.unwrap();
                let wanted = "ä".repeat(len).len().saturating_add(tail.len());
                assert_eq!((remark.range().len(), parsed.opaque), (wanted, 7));
                assert_eq!(remark.has_escapes(), escapes);
            }
        }
    }

    #[test]
    fn numbers_stop_at_their_limits() {
        assert_eq!(long_from(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(long_from(b"9223372036854775808"), None);
        assert_eq!(int_from(b"2147483647"), Some(i32::MAX));
        assert_eq!(int_from(b"-"), None);
        assert_eq!(int_from(b"1.5"), None);
    }
}
