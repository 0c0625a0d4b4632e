//! A command that is only looked at: positions in a frame, nothing copied.
//!
//! Invariants:
//! - parsing is one pass over the header and allocates nothing for up to 24 fields;
//! - every piece of text was checked to be UTF-8 when the frame was parsed;
//! - of equal keys the last counts.

use std::borrow::Cow;
use std::ops::Range;

use bytes::BufMut;

use crate::command::json::{int_from, long_from, meaning};
use crate::command::mold::Molds;
use crate::command::span::{FieldSpans, Span};
use crate::command::{FLAG_ONEWAY, FLAG_RESPONSE, HeaderForm, binary, escape, json};
use crate::cursor::Cursor;
use crate::error::CodecError;
use crate::language::Language;

/// What a header says, as numbers and positions in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Parsed<'a> {
    pub(super) code: i32,
    pub(super) language: Language,
    pub(super) version: i32,
    pub(super) opaque: i32,
    /// Where the opaque stands.
    pub(super) opaque_at: Span,
    pub(super) flag: i32,
    pub(super) remark: Option<Span>,
    pub(super) fields: FieldSpans,
    /// The part of the header that is known to be text.
    pub(super) text: &'a str,
    /// Where in the header that part begins.
    pub(super) text_at: usize,
}

/// A command that borrows its frame.
#[derive(Debug, Clone)]
pub struct CommandView<'a> {
    /// Request or response code.
    pub code: i32,
    /// Language of the sender.
    pub language: Language,
    /// Version of the sender.
    pub version: i32,
    /// Correlation id.
    pub opaque: i32,
    /// Bit 0: response, bit 1: one-way.
    pub flag: i32,
    /// Form of the header.
    pub form: HeaderForm,
    /// Where in the frame the body is.
    pub body: Range<usize>,
    header: &'a [u8],
    parsed: Parsed<'a>,
}

impl<'a> CommandView<'a> {
    /// Parses a frame as [`take_frame`](crate::frame::take_frame) gives it.
    pub fn parse(frame: &'a [u8]) -> Result<CommandView<'a>, CodecError> {
        CommandView::parse_by(frame, |(form, header), parsed| match form {
            HeaderForm::Json => json::parse(header, parsed),
            HeaderForm::Binary => binary::parse(header, parsed),
        })
    }

    /// The same, faster where the header is like one that was read by these molds before.
    pub fn parse_like(frame: &'a [u8], molds: &mut Molds) -> Result<CommandView<'a>, CodecError> {
        CommandView::parse_by(frame, |header, parsed| molds.read(header, parsed))
    }

    fn parse_by(
        frame: &'a [u8],
        parse: impl FnOnce((HeaderForm, &'a [u8]), &mut Parsed<'a>) -> Result<(), CodecError>,
    ) -> Result<CommandView<'a>, CodecError> {
        let (form, header_at) = header_of(frame)?;
        let header = frame.get(header_at.clone()).unwrap_or_default();
        let mut view = CommandView {
            code: 0,
            language: Language::Other,
            version: 0,
            opaque: 0,
            flag: 0,
            form,
            body: header_at.end..frame.len(),
            header,
            parsed: Parsed::default(),
        };
        // In place, because the fields are too many to be moved for nothing.
        parse((form, header), &mut view.parsed)?;
        view.code = view.parsed.code;
        view.language = view.parsed.language;
        view.version = view.parsed.version;
        view.opaque = view.parsed.opaque;
        view.flag = view.parsed.flag;
        Ok(view)
    }

    /// Whether this is an answer.
    pub fn is_response(&self) -> bool {
        self.flag & FLAG_RESPONSE != 0
    }

    /// Whether no answer is wanted.
    pub fn is_oneway(&self) -> bool {
        self.flag & FLAG_ONEWAY != 0
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<Cow<'a, str>> {
        self.value(key).map(Value::to_cow)
    }

    /// The value of a key as it stands in the header.
    pub fn value(&self, key: &str) -> Option<Value<'a>> {
        let mut latest_first = self.parsed.fields.iter().rev();
        latest_first.find(|field| self.value_at(field.key).is(key)).map(|field| self.value_at(field.value))
    }

    /// The remark.
    pub fn remark(&self) -> Option<Cow<'a, str>> {
        self.parsed.remark.map(|span| self.value_at(span).to_cow())
    }

    /// All fields in their order, key and value as they stand in the header.
    pub fn fields(&self) -> impl Iterator<Item = (Value<'a>, Value<'a>)> {
        self.parsed.fields.iter().map(|field| (self.value_at(field.key), self.value_at(field.value)))
    }

    /// The values whose keys `place` gives a place, each in its place; of equal keys the last counts. Looks at
    /// the values that are wanted only.
    #[inline]
    pub fn pick<const N: usize>(&self, place: impl Fn(&[u8]) -> Option<usize>) -> [Option<Value<'a>>; N] {
        let mut found = [None; N];
        // From within: the loop over two rows of fields looks at each step which one it is in.
        self.parsed.fields.iter().for_each(|field| {
            let key = self.header.get(field.key.range()).unwrap_or_default();
            if let Some(slot) = place(key).and_then(|place| found.get_mut(place)) {
                *slot = Some(self.value_at(field.value));
            }
        });
        found
    }

    /// Number of fields.
    pub fn fields_len(&self) -> usize {
        self.parsed.fields.len()
    }

    /// Where in the header the value of a key stands, without its quotes.
    pub(crate) fn place_of(&self, key: &str) -> Option<Range<usize>> {
        let mut latest_first = self.parsed.fields.iter().rev();
        latest_first.find(|field| self.value_at(field.key).is(key)).map(|field| field.value.range())
    }

    /// Where in the header the opaque stands.
    pub(crate) fn place_of_opaque(&self) -> Range<usize> {
        self.parsed.opaque_at.range()
    }

    pub(super) fn field_spans(&self) -> &FieldSpans {
        &self.parsed.fields
    }

    pub(super) fn remark_span(&self) -> Option<Span> {
        self.parsed.remark
    }

    #[inline]
    pub(super) fn value_at(&self, span: Span) -> Value<'a> {
        let range = span.range();
        let in_text =
            range.start.checked_sub(self.parsed.text_at).zip(range.end.checked_sub(self.parsed.text_at));
        let text = in_text.and_then(|(start, end)| self.parsed.text.get(start..end));
        let text = text.or_else(|| std::str::from_utf8(self.header.get(range)?).ok());
        Value { text: text.unwrap_or_default(), has_escapes: span.has_escapes() }
    }
}

/// Reads the header word: form and place of the header.
fn header_of(frame: &[u8]) -> Result<(HeaderForm, Range<usize>), CodecError> {
    let mut cursor = Cursor::new(frame);
    let form = HeaderForm::from_number(cursor.u8("header word")?)?;
    let high = usize::from(cursor.u8("header word")?);
    let low = cursor.i16("header word")?.to_be_bytes();
    let len = high << 16 | usize::from(u16::from_be_bytes(low));
    let start = cursor.at();
    cursor.take(len, "header")?;
    Ok((form, start..cursor.at()))
}

/// A piece of text as it stands in a header, perhaps with JSON escapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Value<'a> {
    text: &'a str,
    has_escapes: bool,
}

impl<'a> Value<'a> {
    /// A text without escapes.
    pub(crate) fn of(text: &'a str) -> Value<'a> {
        Value { text, has_escapes: false }
    }

    /// What it means; a copy only if it has escapes.
    pub fn to_cow(self) -> Cow<'a, str> {
        if self.has_escapes { Cow::Owned(meaning(self.text)) } else { Cow::Borrowed(self.text) }
    }

    /// The text, if it has no escapes.
    pub fn plain(self) -> Option<&'a str> {
        if self.has_escapes { None } else { Some(self.text) }
    }

    /// Writes what it means.
    pub fn write_to(self, out: &mut impl BufMut) {
        if self.has_escapes {
            escape::unescape(self.text, out);
        } else {
            out.put_slice(self.text.as_bytes());
        }
    }

    /// Most bytes that [`Value::write_to`] can write.
    pub fn len_max(self) -> usize {
        self.text.len()
    }

    /// Whether it is this text.
    pub fn is(self, text: &str) -> bool {
        if self.has_escapes { meaning(self.text) == text } else { self.text.as_bytes() == text.as_bytes() }
    }

    /// The bytes as they stand in the header; with escapes they are not what is meant.
    pub fn as_bytes(self) -> &'a [u8] {
        self.text.as_bytes()
    }

    /// Whether nothing is there; in the binary form that stands for absent.
    pub fn is_empty(self) -> bool {
        self.text.is_empty()
    }

    /// The number it is.
    pub fn to_i32(self, key: &'static str) -> Result<i32, CodecError> {
        int_from(self.text.as_bytes()).ok_or_else(|| CodecError::invalid(key, self.text))
    }

    /// The number it is, 64 bits.
    pub fn to_i64(self, key: &'static str) -> Result<i64, CodecError> {
        long_from(self.text.as_bytes()).ok_or_else(|| CodecError::invalid(key, self.text))
    }

    /// The truth value it is, read as Java does.
    pub fn to_bool(self) -> bool {
        self.text.eq_ignore_ascii_case("true")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(header: &str, body: &[u8]) -> Vec<u8> {
        let len = u32::try_from(header.len()).unwrap();
        [&len.to_be_bytes(), header.as_bytes(), body].concat()
    }

    #[test]
    fn a_header_as_cpp_writes_it_is_understood() {
        let header = concat!(
            r#"{"code":14,"extFields":{"AccessKey":"","consumerGroup":"g1","queueId":0,"topic":"T\u00e4"},"#,
            r#""flag":2,"language":"CPP","opaque":3,"remark":"","version":333}"#
        );
        let frame = frame(header, b"body");
        let view = CommandView::parse(&frame).unwrap();
        assert_eq!((view.code, view.opaque, view.version, view.language), (14, 3, 333, Language::Cpp));
        assert_eq!(view.value("queueId").unwrap().to_i32("queueId"), Ok(0));
        assert_eq!(view.get("topic").unwrap(), "Tä");
        assert_eq!(view.get("AccessKey").unwrap(), "");
        assert_eq!((view.get("nothing"), view.remark()), (None, Some(Cow::Borrowed(""))));
        assert_eq!(frame.get(view.body.clone()), Some(&b"body"[..]));
        assert!(view.is_oneway() && !view.is_response());
    }

    #[test]
    fn a_header_longer_than_its_frame_is_an_error() {
        assert!(matches!(CommandView::parse(&[0, 0, 0, 3, b'{', b'}']), Err(CodecError::Short { .. })));
        assert!(CommandView::parse(&[7, 0, 0, 2, b'{', b'}']).is_err());
        assert!(CommandView::parse(&[0, 0, 0]).is_err());
        assert!(CommandView::parse(&[0, 0, 0, 2, b'{', b'}']).is_ok());
    }

    #[test]
    fn bytes_that_are_not_utf8_are_refused() {
        let mut frame = frame(r#"{"remark":"x"}"#, &[]);
        *frame.iter_mut().find(|byte| **byte == b'x').unwrap() = 0xff;
        assert!(CommandView::parse(&frame).is_err());
    }
}
