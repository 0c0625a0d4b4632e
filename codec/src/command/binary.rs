//! Reads a header in RocketMQ's binary form.
//!
//! Invariants:
//! - every length is checked against what is left before a byte behind it is looked at;
//! - keys, values and the remark are UTF-8;
//! - codes of the pop family, which do not fit into 16 bits, are given back whole.
//!
//! | size | field |
//! |---|---|
//! | 2 | code |
//! | 1 | language |
//! | 2 | version |
//! | 4 | opaque |
//! | 4 | flag |
//! | 4 + n | length and remark |
//! | 4 + m | length and fields: key length (2), key, value length (4), value, again and again |

use crate::command::span::{FieldSpan, Span};
use crate::command::view::Parsed;
use crate::command::{FLAG_RESPONSE, LONG_CODES};
use crate::cursor::Cursor;
use crate::error::CodecError;
use crate::language::Language;

/// Reads the whole header.
pub(super) fn parse<'a>(header: &'a [u8], parsed: &mut Parsed<'a>) -> Result<(), CodecError> {
    let mut cursor = Cursor::new(header);
    parsed.code = i32::from(cursor.i16("code")?);
    parsed.language = Language::from_number(cursor.u8("language")?);
    parsed.version = i32::from(cursor.i16("version")?);
    let opaque_at = cursor.at();
    parsed.opaque = cursor.i32("opaque")?;
    parsed.opaque_at = Span::new(opaque_at, cursor.at());
    parsed.flag = cursor.i32("flag")?;
    if parsed.flag & FLAG_RESPONSE == 0 {
        parsed.code = whole_code(parsed.code);
    }
    let remark_len = cursor.len32("remark")?;
    if remark_len > 0 {
        let remark = piece(&mut cursor, remark_len, "remark")?;
        utf8(header, remark)?;
        parsed.remark = Some(remark);
    }
    let fields_len = cursor.len32("extension fields")?;
    let fields_start = cursor.at();
    let fields = cursor.take(fields_len, "extension fields")?;
    // Lengths below 128 are ASCII, so one check mostly does for all.
    let all_utf8 = std::str::from_utf8(fields).ok();
    parsed.text = all_utf8.unwrap_or_default();
    parsed.text_at = fields_start;
    let mut cursor = Cursor::new(fields);
    while cursor.left() > 0 {
        let key_len = cursor.len16("key")?;
        let key = piece(&mut cursor, key_len, "key")?;
        let value_len = cursor.len32("value")?;
        let value = piece(&mut cursor, value_len, "value")?;
        for span in [key, value] {
            match all_utf8 {
                Some(text) if text.get(span.range()).is_some() => {}
                _ => utf8(fields, span)?,
            }
        }
        parsed.fields.push(FieldSpan { key: moved(key, fields_start), value: moved(value, fields_start) });
    }
    Ok(())
}

fn piece(cursor: &mut Cursor<'_>, len: usize, what: &'static str) -> Result<Span, CodecError> {
    let start = cursor.at();
    cursor.take(len, what)?;
    Ok(Span::new(start, cursor.at()))
}

fn moved(span: Span, by: usize) -> Span {
    Span::new(span.range().start.saturating_add(by), span.range().end.saturating_add(by))
}

fn utf8(bytes: &[u8], span: Span) -> Result<(), CodecError> {
    let bytes = bytes.get(span.range()).unwrap_or_default();
    match std::str::from_utf8(bytes) {
        Ok(_) => Ok(()),
        Err(_) => Err(CodecError::invalid("UTF-8 text", bytes)),
    }
}

/// The code that was cut to 16 bits.
fn whole_code(cut: i32) -> i32 {
    LONG_CODES.iter().copied().find(|long| long & 0xffff == cut).unwrap_or(cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(fields: &[u8]) -> Vec<u8> {
        let mut header = vec![0, 34, 9, 1, 0xdf, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0];
        header.extend(u32::try_from(fields.len()).unwrap().to_be_bytes());
        header.extend(fields);
        header
    }

    fn parsed(header: &[u8]) -> Result<Parsed<'_>, CodecError> {
        let mut parsed = Parsed::default();
        parse(header, &mut parsed).map(|()| parsed)
    }

    #[test]
    fn the_fixed_part_is_read() {
        let header = header(&[0, 1, b'k', 0, 0, 0, 2, b'v', b'w']);
        let parsed = parsed(&header).unwrap();
        let numbers = (parsed.code, parsed.version, parsed.opaque, parsed.flag);
        assert_eq!(numbers, (34, 479, 7, 0));
        assert_eq!((parsed.language, parsed.remark, parsed.fields.len()), (Language::Go, None, 1));
    }

    #[test]
    fn lengths_that_lie_are_errors() {
        assert!(parsed(&header(&[0, 2, b'k'])).is_err());
        assert!(parsed(&header(&[0xff, 0xff, b'k', 0, 0, 0, 0])).is_err());
        assert!(parsed(&header(&[0, 1, b'k', 0x7f, 0xff, 0xff, 0xff])).is_err());
        assert!(parsed(&header(&[0, 1, b'k', 0, 0, 0, 1, 0xc3])).is_err());
    }

    #[test]
    fn a_character_cut_by_a_length_is_an_error() {
        // Together the bytes of both values are UTF-8, apart they are not.
        let whole = [0, 1, 0xc3, 0, 0, 0, 1, 0xa4];
        assert!(parsed(&header(&whole)).is_err());
    }

    #[test]
    fn cut_codes_of_the_pop_family_are_given_back() {
        for (cut, whole) in [(3442, 200_050), (3443, 200_051), (3543, 200_151), (3448, 200_056), (34, 34)] {
            assert_eq!(whole_code(cut), whole);
        }
    }
}
