//! One remoting command, request or answer (RocketMQ's `RemotingCommand`).
//!
//! Invariants:
//! - the body and all fields are slices of the frame they came in;
//! - an answer carries the opaque and the header form of its request and has flag 1, whatever the request's
//!   flags;
//! - codes of the pop family survive the binary form, which has only 16 bits for them.
//!
//! Contents: [`CommandView`] looks at a frame without copying anything, [`Head`] writes one field by field,
//! [`Command`] owns one.

mod binary;
mod escape;
mod head;
mod json;
mod mold;
pub(crate) mod span;
mod view;

use bytes::{BufMut, Bytes, BytesMut};

use crate::error::CodecError;
use crate::fields::{Fields, Piece};
use crate::frame::HEADER_WORD_BYTES;
use crate::header::Header;
use crate::language::Language;
use crate::request::Request;
use crate::response::ResponseCode;
use crate::text::Text;
use crate::version::OUR_VERSION;

pub(crate) use escape::{escape, escape_len, escape_to_ascii, is_plain, unescape};
pub use head::{DIGITS_MAX, Head, HeadWriter, digits_of};
pub(crate) use head::{fill_lengths, put_json_frame};
pub use mold::Molds;
pub use view::{CommandView, Value};

/// Bit of the flag word: this is an answer.
pub const FLAG_RESPONSE: i32 = 1;
/// Bit of the flag word: no answer is wanted.
pub const FLAG_ONEWAY: i32 = 2;

/// Request codes that do not fit into the 16 bits of the binary form.
const LONG_CODES: [i32; 8] = [200_050, 200_051, 200_052, 200_053, 200_054, 200_055, 200_056, 200_151];

/// How a header is written (RocketMQ's `SerializeType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum HeaderForm {
    /// JSON; every client understands it.
    #[default]
    Json,
    /// RocketMQ's own binary form.
    Binary,
}

impl HeaderForm {
    /// The number in the header word.
    pub fn number(self) -> u8 {
        match self {
            HeaderForm::Json => 0,
            HeaderForm::Binary => 1,
        }
    }

    /// By the number in the header word.
    pub fn from_number(number: u8) -> Result<HeaderForm, CodecError> {
        match number {
            0 => Ok(HeaderForm::Json),
            1 => Ok(HeaderForm::Binary),
            _ => Err(CodecError::invalid("header form", number.to_string())),
        }
    }
}

/// A request or an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Request or response code.
    pub code: i32,
    /// Language of the sender.
    pub language: Language,
    /// Version of the sender.
    pub version: i32,
    /// Correlation id; an answer carries that of its request.
    pub opaque: i32,
    /// Bit 0: response, bit 1: one-way.
    pub flag: i32,
    /// Text for humans.
    pub remark: Option<Text>,
    /// Extension fields: the header of the request and free ones.
    pub fields: Fields,
    /// Body; empty is the same as absent.
    pub body: Bytes,
    /// Form in which the header came or goes.
    pub form: HeaderForm,
}

impl Command {
    /// A request; the connection gives it its opaque.
    pub fn request<R: Request>(header: &R::Header) -> Command {
        Command::empty(R::CODE, 0).with_header(header)
    }

    /// An answer that does not know its request yet; see [`Command::answering`].
    pub fn response(code: ResponseCode) -> Command {
        Command::empty(code.0, FLAG_RESPONSE)
    }

    fn empty(code: i32, flag: i32) -> Command {
        Command {
            code,
            // The only name that every client and server since 3.0 knows.
            language: Language::Java,
            version: OUR_VERSION,
            opaque: 0,
            flag,
            remark: None,
            fields: Fields::new(),
            body: Bytes::new(),
            form: HeaderForm::Json,
        }
    }

    /// Makes this the answer to `request`: its opaque, its form.
    pub fn answering(mut self, request: &Command) -> Command {
        self.opaque = request.opaque;
        self.form = request.form;
        self.flag |= FLAG_RESPONSE;
        self
    }

    /// The same with a body.
    pub fn with_body(mut self, body: Bytes) -> Command {
        self.body = body;
        self
    }

    /// The same with a text for humans.
    pub fn with_remark(mut self, remark: impl Into<Text>) -> Command {
        self.remark = Some(remark.into());
        self
    }

    /// The same with the fields of a header added.
    pub fn with_header<H: Header>(mut self, header: &H) -> Command {
        self.fields.reserve(H::KEYS.len());
        header.write(&mut self.fields);
        self
    }

    /// The same, and no answer is wanted.
    pub fn oneway(mut self) -> Command {
        self.flag |= FLAG_ONEWAY;
        self
    }

    /// Whether this is an answer.
    pub fn is_response(&self) -> bool {
        self.flag & FLAG_RESPONSE != 0
    }

    /// Whether no answer is wanted.
    pub fn is_oneway(&self) -> bool {
        self.flag & FLAG_ONEWAY != 0
    }

    /// The code of an answer.
    pub fn response_code(&self) -> ResponseCode {
        ResponseCode(self.code)
    }

    /// The fields as a typed header.
    pub fn header<H: Header>(&self) -> Result<H, CodecError> {
        H::read(&self.fields)
    }

    /// Reads a frame as [`take_frame`](crate::frame::take_frame) gives it; the body stays a slice of it.
    pub fn decode(frame: Bytes) -> Result<Command, CodecError> {
        let view = CommandView::parse(&frame)?;
        Ok(Command::from_view(&view, &frame))
    }

    /// What a view has read already, without reading it again; `frame` is what it was read from or a copy of it.
    pub fn from_view(view: &CommandView<'_>, frame: &Bytes) -> Command {
        let header = frame.slice(HEADER_WORD_BYTES..view.body.start);
        let piece = |span: span::Span| match view.value_at(span).plain() {
            Some(_) => Piece::InHeader(span),
            None => Piece::Own(Text::from(view.value_at(span).to_cow())),
        };
        let spans = view.field_spans();
        let mut pairs = Vec::with_capacity(spans.len());
        pairs.extend(spans.iter().map(|field| (piece(field.key), piece(field.value))));
        Command {
            code: view.code,
            language: view.language,
            version: view.version,
            opaque: view.opaque,
            flag: view.flag,
            remark: view.remark_span().map(|span| Text::from(view.value_at(span).to_cow())),
            fields: Fields::in_header(header, pairs),
            body: frame.slice(view.body.clone()),
            form: view.form,
        }
    }

    /// Appends the complete frame, length word and body included.
    pub fn encode(&self, out: &mut BytesMut) {
        self.encode_head(self.body.len(), out);
        out.put_slice(&self.body);
    }

    /// Appends everything before the body, which must follow with `body_len` bytes.
    pub fn encode_head(&self, body_len: usize, out: &mut BytesMut) {
        let mut writer = self.head().begin(out);
        for (key, value) in self.fields.iter() {
            writer.field(key, value);
        }
        writer.finish(body_len);
    }

    fn head(&self) -> Head<'_> {
        Head {
            code: self.code,
            language: self.language,
            version: self.version,
            opaque: self.opaque,
            flag: self.flag,
            remark: self.remark.as_deref(),
            form: self.form,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::take_frame;

    fn sample(form: HeaderForm) -> Command {
        let mut command = Command::empty(200_050, FLAG_ONEWAY).with_body(Bytes::from_static(b"\x00body"));
        command.opaque = 77;
        command.form = form;
        command.fields =
            [("topic", "Thema größe"), ("properties", "A\u{1}b\u{2}"), ("empty", "")].into_iter().collect();
        command.with_remark("über \"alles\"")
    }

    fn encoded(command: &Command) -> Bytes {
        let mut out = BytesMut::new();
        command.encode(&mut out);
        take_frame(&mut out).unwrap().unwrap()
    }

    #[test]
    fn a_command_reads_back_in_both_forms() {
        for form in [HeaderForm::Json, HeaderForm::Binary] {
            let command = sample(form);
            assert_eq!(Command::decode(encoded(&command)), Ok(command));
        }
    }

    #[test]
    fn body_and_fields_are_slices_of_the_frame() {
        let frame = encoded(&sample(HeaderForm::Binary));
        let within = |piece: &Bytes| frame.as_ptr_range().contains(&piece.as_ptr());
        let command = Command::decode(frame.clone()).unwrap();
        assert!(within(&command.body));
        assert!(within(&command.fields.text("topic").unwrap().into_bytes()));
    }

    #[test]
    fn a_view_becomes_a_command_with_a_copy_of_its_frame() {
        for form in [HeaderForm::Json, HeaderForm::Binary] {
            let frame = encoded(&sample(form));
            let view = CommandView::parse(&frame).unwrap();
            let copy = Bytes::copy_from_slice(&frame);
            assert_eq!(Command::from_view(&view, &copy), sample(form));
        }
    }

    #[test]
    fn an_answer_has_the_opaque_and_form_of_its_request_and_only_the_response_flag() {
        let answer = Command::response(ResponseCode::SUCCESS).answering(&sample(HeaderForm::Binary));
        assert_eq!((answer.opaque, answer.form, answer.flag), (77, HeaderForm::Binary, FLAG_RESPONSE));
        assert!(answer.is_response() && !answer.is_oneway());
    }

    #[test]
    fn every_truncation_is_an_error_and_never_a_panic() {
        for form in [HeaderForm::Json, HeaderForm::Binary] {
            let mut command = sample(form);
            command.body = Bytes::new();
            let frame = encoded(&command);
            for len in 0..frame.len() {
                assert!(Command::decode(frame.slice(..len)).is_err(), "{form:?} cut to {len}");
            }
        }
    }
}
