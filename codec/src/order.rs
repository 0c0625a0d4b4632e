//! A command on its way into a connection, with the one who waits for its answer.
//!
//! Invariants:
//! - the head of an [`Order`] is a frame up to its body, the length word included: it can be written as it is;
//! - a [`SendOrder`] and an [`EndOrder`] become frames where they are written, and none at all where the broker is in
//!   the same process;
//! - the body is what the sender gave; it is never copied here.
//!
//! Contents: `stencil` writes the heads of sends that are nearly alike.

mod stencil;

use bytes::{Bytes, BytesMut};

use crate::command::{Command, FLAG_ONEWAY, Head, HeaderForm};
use crate::frame::LENGTH_BYTES;
use crate::header::Header;
use crate::language::Language;
use crate::request::{
    EndTransaction, EndTransactionHeader, Request, SendBatchMessage, SendMessageV2, SendMessageV2Header,
};
use crate::sent::Sent;
use crate::version::OUR_VERSION;

pub use stencil::Stencils;

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

/// A message, or a batch of them, on its way to a broker.
#[derive(Debug)]
pub struct SendOrder<S> {
    /// All but the body.
    pub header: SendMessageV2Header,
    /// The body.
    pub body: Bytes,
    /// Who waits.
    pub waiter: S,
}

/// The end of a transaction on its way to a broker.
#[derive(Debug)]
pub struct EndOrder<C> {
    /// The number by which the answer is known, where a frame is written.
    pub opaque: i32,
    /// Which half message, and what becomes of it.
    pub header: EndTransactionHeader,
    /// Who waits.
    pub waiter: C,
}

/// What goes into a connection: `C` waits for a command, `S` for what becomes of a send.
#[derive(Debug)]
pub enum Outgoing<C, S> {
    /// Any command.
    Frame(Order<C>),
    /// A send, which most are.
    Send(SendOrder<S>),
    /// The end of a transaction.
    End(EndOrder<C>),
}

/// Answers that came together, each with who waits for it.
#[derive(Debug)]
pub enum Answers<C, S> {
    /// To commands.
    Commands(Vec<(C, Command)>),
    /// To sends.
    Sends(Vec<(S, Sent)>),
}

impl<C, S> Answers<C, S> {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Answers::Commands(all) => all.len(),
            Answers::Sends(all) => all.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives each to who waits for it.
    pub fn give(self, command: impl FnMut((C, Command)), send: impl FnMut((S, Sent))) {
        match self {
            Answers::Commands(all) => all.into_iter().for_each(command),
            Answers::Sends(all) => all.into_iter().for_each(send),
        }
    }
}

impl<S> SendOrder<S> {
    /// The code of the request that it is.
    pub fn code(&self) -> i32 {
        if self.header.is_batch == Some(true) { SendBatchMessage::CODE } else { SendMessageV2::CODE }
    }

    /// Appends the frame up to the body.
    pub fn encode_head(&self, opaque: i32, out: &mut BytesMut) {
        let mut writer = request(self.code(), opaque, 0).begin(out);
        self.header.encode(&mut writer);
        writer.finish(self.body.len());
    }
}

impl<C> EndOrder<C> {
    /// The same as a frame.
    pub fn framed(self) -> Order<C> {
        Order::request::<EndTransaction>(self.opaque, &self.header, Bytes::new(), Some(self.waiter))
    }
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
        let flag = if waiter.is_none() { FLAG_ONEWAY } else { 0 };
        let mut writer = request(R::CODE, opaque, flag).begin(&mut head);
        header.encode(&mut writer);
        writer.finish(body.len());
        Order { opaque, head: head.freeze(), body, waiter }
    }

    /// The head without its length word, as [`CommandView::parse`](crate::CommandView::parse) wants a frame.
    pub fn frame(&self) -> Bytes {
        self.head.slice(LENGTH_BYTES.min(self.head.len())..)
    }
}

/// The fixed parts of a request.
fn request(code: i32, opaque: i32, flag: i32) -> Head<'static> {
    Head {
        code,
        language: Language::Java,
        version: OUR_VERSION,
        opaque,
        flag,
        remark: None,
        form: HeaderForm::Json,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::take_frame;
    use crate::request::{GetMaxOffset, GetMaxOffsetHeader};

    #[test]
    fn the_head_of_a_send_is_that_of_its_request() {
        let (header, body) =
            (SendMessageV2Header { topic: "T".into(), ..Default::default() }, Bytes::from_static(b"b"));
        for is_batch in [None, Some(false), Some(true)] {
            let header = SendMessageV2Header { is_batch, ..header.clone() };
            let known = match is_batch {
                Some(true) => Order::request::<SendBatchMessage>(7, &header, body.clone(), Some(())),
                _ => Order::request::<SendMessageV2>(7, &header, body.clone(), Some(())),
            };
            let (order, mut head) = (SendOrder { header, body: body.clone(), waiter: () }, BytesMut::new());
            order.encode_head(7, &mut head);
            assert_eq!(head, known.head);
        }
    }

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
