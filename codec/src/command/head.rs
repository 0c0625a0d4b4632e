//! Writes a frame up to its body, field by field, in both forms.
//!
//! Invariants:
//! - nothing is allocated but room in the output;
//! - keys at the top level stand in Java's order; without a field `extFields` is left out, as Java does;
//! - lengths are filled in last, so the parts need not be known before.

use bytes::{BufMut, BytesMut};

use crate::command::HeaderForm;
use crate::command::escape::escape;
use crate::frame::{HEADER_WORD_BYTES, LENGTH_BYTES};
use crate::language::Language;
use crate::response::ResponseCode;
use crate::version::OUR_VERSION;

/// The fixed parts of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head<'a> {
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
    /// Text for humans.
    pub remark: Option<&'a str>,
    /// Form of the header.
    pub form: HeaderForm,
}

impl<'a> Head<'a> {
    /// An answer to the request with this `opaque`, in its form.
    pub fn answer(code: ResponseCode, opaque: i32, form: HeaderForm) -> Head<'a> {
        Head {
            code: code.0,
            language: Language::Java,
            version: OUR_VERSION,
            opaque,
            flag: super::FLAG_RESPONSE,
            remark: None,
            form,
        }
    }

    /// The same with a text for humans.
    pub fn with_remark(self, remark: &'a str) -> Head<'a> {
        Head { remark: Some(remark), ..self }
    }

    /// Begins to write; fields come next, then [`HeadWriter::finish`].
    pub fn begin<'o>(self, out: &'o mut BytesMut) -> HeadWriter<'a, 'o> {
        let start = out.len();
        out.reserve(256);
        out.put_bytes(0, LENGTH_BYTES.saturating_add(HEADER_WORD_BYTES));
        match self.form {
            HeaderForm::Json => {
                out.put_slice(b"{\"code\":");
                put_number(i64::from(self.code), out);
            }
            HeaderForm::Binary => self.put_binary(out),
        }
        let fields_start = out.len();
        HeadWriter { head: self, out, start, fields_start }
    }

    /// Appends the frame up to its body, whose fields are these in JSON.
    pub(crate) fn put_json(self, fields: &[&[u8]], body_len: usize, out: &mut BytesMut) {
        let start = out.len();
        out.reserve(512);
        out.put_bytes(0, LENGTH_BYTES.saturating_add(HEADER_WORD_BYTES));
        out.put_slice(b"{\"code\":");
        put_number(i64::from(self.code), out);
        out.put_slice(b",\"extFields\":");
        fields.iter().for_each(|piece| out.put_slice(piece));
        self.put_json_end(out);
        fill_lengths((start, self.form), body_len, out);
    }

    fn put_binary(&self, out: &mut BytesMut) {
        out.put_i16(low_half(self.code));
        out.put_u8(self.language.number());
        out.put_i16(low_half(self.version));
        out.put_i32(self.opaque);
        out.put_i32(self.flag);
        let remark = self.remark.unwrap_or_default();
        out.put_i32(len32(remark.len()));
        out.put_slice(remark.as_bytes());
        out.put_i32(0);
    }

    fn put_json_end(&self, out: &mut BytesMut) {
        out.put_slice(b",\"flag\":");
        put_number(i64::from(self.flag), out);
        out.put_slice(b",\"language\":\"");
        out.put_slice(self.language.name().as_bytes());
        out.put_slice(b"\",\"opaque\":");
        put_number(i64::from(self.opaque), out);
        if let Some(remark) = self.remark {
            out.put_slice(b",\"remark\":\"");
            escape(remark, out);
            out.put_u8(b'"');
        }
        out.put_slice(b",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":");
        put_number(i64::from(self.version), out);
        out.put_u8(b'}');
    }
}

/// A frame whose header is being written.
#[derive(Debug)]
pub struct HeadWriter<'a, 'o> {
    head: Head<'a>,
    out: &'o mut BytesMut,
    start: usize,
    fields_start: usize,
}

impl HeadWriter<'_, '_> {
    /// Adds a field.
    pub fn field(&mut self, key: &str, value: &str) -> &mut Self {
        match self.head.form {
            HeaderForm::Json => {
                self.put_json_key(key);
                escape(value, self.out);
                self.out.put_u8(b'"');
            }
            HeaderForm::Binary => {
                self.put_binary_key(key);
                self.out.put_i32(len32(value.len()));
                self.out.put_slice(value.as_bytes());
            }
        }
        self
    }

    /// Adds a field with a number.
    pub fn number(&mut self, key: &str, value: impl Into<i64>) -> &mut Self {
        let mut digits = [0; DIGITS_MAX];
        let digits = digits_of(value.into(), &mut digits);
        match self.head.form {
            HeaderForm::Json => {
                self.put_json_key(key);
                self.out.put_slice(digits);
                self.out.put_u8(b'"');
            }
            HeaderForm::Binary => {
                self.put_binary_key(key);
                self.out.put_i32(len32(digits.len()));
                self.out.put_slice(digits);
            }
        }
        self
    }

    /// Adds a field with a truth value.
    pub fn truth(&mut self, key: &str, value: bool) -> &mut Self {
        self.field(key, if value { "true" } else { "false" })
    }

    fn put_json_key(&mut self, key: &str) {
        let first = self.out.len() == self.fields_start;
        self.out.put_slice(if first { b",\"extFields\":{\"" } else { b",\"" });
        escape(key, self.out);
        self.out.put_slice(b"\":\"");
    }

    fn put_binary_key(&mut self, key: &str) {
        self.out.put_i16(i16::try_from(key.len()).unwrap_or(i16::MAX));
        self.out.put_slice(key.as_bytes());
    }

    /// Closes the header; `body_len` bytes of body must be sent next.
    pub fn finish(self, body_len: usize) {
        let has_fields = self.out.len() > self.fields_start;
        match self.head.form {
            HeaderForm::Json => {
                if has_fields {
                    self.out.put_u8(b'}');
                }
                self.head.put_json_end(self.out);
            }
            HeaderForm::Binary => {
                let fields_len = len32(self.out.len().saturating_sub(self.fields_start));
                let length_at = self.fields_start.saturating_sub(LENGTH_BYTES);
                fill(self.out, length_at, fields_len);
            }
        }
        fill_lengths((self.start, self.head.form), body_len, self.out);
    }
}

/// Writes the lengths of a frame that begins at `start` and is written up to its body.
pub(crate) fn fill_lengths((start, form): (usize, HeaderForm), body_len: usize, out: &mut BytesMut) {
    let written = out.len().saturating_sub(start);
    let frame_len = written.saturating_sub(LENGTH_BYTES).saturating_add(body_len);
    let header_len = written.saturating_sub(LENGTH_BYTES.saturating_add(HEADER_WORD_BYTES));
    let word = i32::from(form.number()) << 24 | len32(header_len);
    fill(out, start, len32(frame_len));
    fill(out, start.saturating_add(LENGTH_BYTES), word);
}

/// Lengths here are those of our own output, far below 2^31.
fn len32(len: usize) -> i32 {
    i32::try_from(len).unwrap_or(i32::MAX)
}

/// The lower 16 bits: all that the binary form has room for.
fn low_half(number: i32) -> i16 {
    let [_, _, high, low] = number.to_be_bytes();
    i16::from_be_bytes([high, low])
}

fn fill(out: &mut BytesMut, at: usize, number: i32) {
    let place = out.get_mut(at..at.saturating_add(4)).expect("room was made in `begin`");
    place.copy_from_slice(&number.to_be_bytes());
}

/// The longest text of a number, in bytes.
pub const DIGITS_MAX: usize = 20;

fn put_number(number: i64, out: &mut BytesMut) {
    out.put_slice(digits_of(number, &mut [0; DIGITS_MAX]));
}

/// Appends the frame of a command without a body whose header in JSON is `pieces` and then `end`.
pub(crate) fn put_json_frame(pieces: &[&[u8]], end: &[u8], out: &mut BytesMut) {
    let header_len = pieces.iter().fold(end.len(), |len, piece| len.saturating_add(piece.len()));
    let frame_len = HEADER_WORD_BYTES.saturating_add(header_len);
    out.reserve(LENGTH_BYTES.saturating_add(frame_len));
    out.put_i32(len32(frame_len));
    out.put_i32(i32::from(HeaderForm::Json.number()) << 24 | len32(header_len));
    for piece in pieces {
        out.extend_from_slice(piece);
    }
    out.extend_from_slice(end);
}

/// The decimal digits of a number.
pub fn digits_of(number: i64, room: &mut [u8; DIGITS_MAX]) -> &[u8] {
    let mut left = number.unsigned_abs();
    let mut used = 0usize;
    for pair in room.as_rchunks_mut::<2>().1.iter_mut().rev() {
        // Two digits for each division.
        let [.., two] = (left % 100).to_be_bytes();
        *pair = [b'0'.wrapping_add(two / 10), b'0'.wrapping_add(two % 10)];
        left /= 100;
        used = used.saturating_add(2);
        if left == 0 {
            used = used.saturating_sub(usize::from(two < 10));
            break;
        }
    }
    if number < 0 {
        used = used.saturating_add(1);
        if let Some(place) = room.iter_mut().rev().nth(used.saturating_sub(1)) {
            *place = b'-';
        }
    }
    room.get(DIGITS_MAX.saturating_sub(used)..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::CommandView;
    use crate::frame::take_frame;

    #[test]
    fn numbers_are_written_as_they_are_read() {
        for number in [0, 1, -1, 10, 99, -100, i64::MAX, i64::MIN, 1_700_000_000_000] {
            let mut out = BytesMut::new();
            put_number(number, &mut out);
            assert_eq!(out, number.to_string().as_bytes());
        }
    }

    #[test]
    fn an_answer_reads_back_in_both_forms() {
        for form in [HeaderForm::Json, HeaderForm::Binary] {
            let mut out = BytesMut::from(&b"before"[..]);
            let head = Head::answer(ResponseCode::SLAVE_NOT_AVAILABLE, -5, form).with_remark("a \"b\"");
            let mut writer = head.begin(&mut out);
            writer.field("msgId", "7F\n").number("queueOffset", i64::MIN).truth("TRACE_ON", true);
            writer.finish(4);
            out.put_slice(b"body");
            let mut rest = out.split_off(6);
            let frame = take_frame(&mut rest).unwrap().unwrap();
            let view = CommandView::parse(&frame).unwrap();
            assert_eq!((view.code, view.opaque, view.flag, view.version), (11, -5, 1, OUR_VERSION));
            assert_eq!(view.remark().unwrap(), "a \"b\"");
            assert_eq!(view.get("msgId").unwrap(), "7F\n");
            assert_eq!(view.value("queueOffset").unwrap().to_i64("queueOffset"), Ok(i64::MIN));
            assert!(view.value("TRACE_ON").unwrap().to_bool());
            assert_eq!(frame.get(view.body.clone()), Some(&b"body"[..]));
        }
    }

    #[test]
    fn json_is_written_byte_for_byte_as_java_does() {
        let mut out = BytesMut::new();
        let mut writer = Head::answer(ResponseCode::SUCCESS, 17, HeaderForm::Json).begin(&mut out);
        writer.number("offset", 42);
        writer.finish(0);
        let wanted = concat!(
            r#"{"code":0,"extFields":{"offset":"42"},"flag":1,"language":"JAVA","opaque":17,"#,
            r#""serializeTypeCurrentRPC":"JSON","version":479}"#
        );
        assert_eq!(out.get(8..).unwrap(), wanted.as_bytes());
    }
}
