//! A command on its way into a connection, with the one who waits for its answer.
//!
//! Invariants:
//! - the head is a frame up to its body, the length word included: it can be written as it is;
//! - the body is what the sender gave; it is never copied here.

use bytes::{Bytes, BytesMut};

use crate::command::{Command, FLAG_ONEWAY, Head, HeaderForm};
use crate::frame::LENGTH_BYTES;
use crate::header::Header;
use crate::language::Language;
use crate::request::Request;
use crate::version::OUR_VERSION;

/// Bytes of a head beside its fields.
const HEAD_BYTES: usize = 128;
/// Bytes of a field beside its key and value, some escapes among them.
const FIELD_BYTES: usize = 16;
/// Room for a value whose length is not looked at.
const VALUE_BYTES: usize = 24;

/// Something to be written; `W` is who waits for the answer to it.
#[derive(Debug)]
pub struct Order<W> {
    /// The number by which the answer is known.
    pub opaque: i32,
    /// The frame up to the body.
    pub head: Bytes,
    /// The body.
    pub body: Bytes,
    /// Who waits; none for what is not answered.
    pub waiter: Option<W>,
}

impl<W> Order<W> {
    /// Writes the head of a command.
    pub fn new(command: &Command, waiter: Option<W>) -> Order<W> {
        // Room for the lengths, the fixed parts and the quotes around each field: the head is written without growing.
        let bytes =
            |(key, value): (&str, &str)| key.len().saturating_add(value.len()).saturating_add(FIELD_BYTES);
        let fields: usize = command.fields.iter().map(bytes).sum();
        let mut head = BytesMut::with_capacity(HEAD_BYTES.saturating_add(fields));
        command.encode_head(command.body.len(), &mut head);
        Order { opaque: command.opaque, head: head.freeze(), body: command.body.clone(), waiter }
    }

    /// Writes the head of a request, without making a command of it first; nobody answers one for which nobody waits.
    pub fn request<R: Request>(opaque: i32, header: &R::Header, body: Bytes, waiter: Option<W>) -> Order<W> {
        let field = VALUE_BYTES.saturating_add(FIELD_BYTES);
        let fields = R::Header::KEYS.len().saturating_mul(field);
        let mut head = BytesMut::with_capacity(HEAD_BYTES.saturating_add(fields));
        let parts = Head {
            code: R::CODE,
            language: Language::Java,
            version: OUR_VERSION,
            opaque,
            flag: if waiter.is_none() { FLAG_ONEWAY } else { 0 },
            remark: None,
            form: HeaderForm::Json,
        };
        let mut writer = parts.begin(&mut head);
        header.encode(&mut writer);
        writer.finish(body.len());
        Order { opaque, head: head.freeze(), body, waiter }
    }

    /// The head without its length word, as [`CommandView::parse`](crate::CommandView::parse) wants a frame.
    pub fn frame(&self) -> Bytes {
        self.head.slice(LENGTH_BYTES.min(self.head.len())..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::take_frame;
    use crate::request::{GetMaxOffset, GetMaxOffsetHeader};

    #[test]
    fn head_and_body_are_the_frame_of_the_command() {
        let header = GetMaxOffsetHeader { topic: "T".into(), queue_id: 3, ..Default::default() };
        let mut command = Command::request::<GetMaxOffset>(&header).with_body(Bytes::from_static(b"body"));
        command.opaque = 7;
        let order = Order::<()>::new(&command, None);
        let mut stream = BytesMut::from(&order.head[..]);
        stream.extend_from_slice(&order.body);
        let frame = take_frame(&mut stream).expect("a good length").expect("a whole frame");
        assert_eq!(Command::decode(frame).expect("a good frame"), command);
        let direct = Order::request::<GetMaxOffset>(7, &header, command.body.clone(), Some(()));
        assert_eq!((direct.opaque, &direct.head, &direct.body), (7, &order.head, &order.body));
        let oneway = Order::<()>::request::<GetMaxOffset>(7, &header, command.body.clone(), None);
        assert_eq!(oneway.head, Order::<()>::new(&command.clone().oneway(), None).head);
        let bodiless = Command::decode(order.frame()).expect("a frame without its body");
        assert_eq!((bodiless.opaque, bodiless.body.len()), (7, 0));
    }
}
