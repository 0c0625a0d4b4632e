//! A plain connection to a broker, for requests the client has no words for.
//!
//! Invariants:
//! - one request at a time; its answer is the one with its number.

use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use troupemq_codec::frame::take_frame;
use troupemq_codec::message::sys_flag;
use troupemq_codec::request::{
    DeleteExpiredCommitlog, EndTransaction, EndTransactionHeader, SendMessageReplyHeader, SendMessageV2,
    SendMessageV2Header,
};
use troupemq_codec::{Command, ResponseCode, Text};

/// The connection.
#[derive(Debug)]
pub(crate) struct Wire {
    socket: TcpStream,
    buffer: BytesMut,
    opaque: i32,
}

impl Wire {
    pub(crate) async fn connect(to: SocketAddr) -> Option<Wire> {
        let socket = TcpStream::connect(to).await.ok()?;
        Some(Wire { socket, buffer: BytesMut::new(), opaque: 0 })
    }

    /// The answer; none when the connection has ended.
    async fn call(&mut self, mut request: Command) -> Option<Command> {
        self.opaque += 1;
        request.opaque = self.opaque;
        let mut out = BytesMut::new();
        request.encode(&mut out);
        self.socket.write_all(&out).await.ok()?;
        loop {
            if let Some(frame) = take_frame(&mut self.buffer).ok()? {
                let answer = Command::decode(frame).ok()?;
                if answer.is_response() && answer.opaque == self.opaque {
                    return Some(answer);
                }
                continue;
            }
            if self.socket.read_buf(&mut self.buffer).await.ok()? == 0 {
                return None;
            }
        }
    }

    /// Has the broker delete what has expired.
    pub(crate) async fn clean(&mut self) -> Option<()> {
        let request = Command::request::<DeleteExpiredCommitlog>(&Default::default());
        self.call(request).await.map(drop)
    }

    /// Sends a half message, and ends its transaction. Answers once the end is acknowledged.
    pub(crate) async fn transact(
        &mut self,
        topic: &str,
        (id, body): (&str, Vec<u8>),
        is_committed: bool,
    ) -> Option<()> {
        let header = SendMessageV2Header {
            producer_group: "deciders".into(),
            topic: topic.into(),
            default_topic: "TBW102".into(),
            default_topic_queues: 4,
            queue_id: 0,
            sys_flag: sys_flag::TRANSACTION_PREPARED,
            born_timestamp_ms: 1_795_000_000_000,
            properties: Some(Text::from(format!(
                "TRAN_MSG\u{1}true\u{2}PGROUP\u{1}deciders\u{2}UNIQ_KEY\u{1}{id}"
            ))),
            ..Default::default()
        };
        let half = self.call(Command::request::<SendMessageV2>(&header).with_body(Bytes::from(body))).await?;
        if half.response_code() != ResponseCode::SUCCESS {
            return None;
        }
        let sent: SendMessageReplyHeader = half.header().ok()?;
        let log_offset = crate::load::log_offsets(&sent.message_id).next()?;
        let end = EndTransactionHeader {
            topic: Some(topic.into()),
            producer_group: "deciders".into(),
            queue_offset: sent.queue_offset,
            log_offset: i64::try_from(log_offset).ok()?,
            outcome: match is_committed {
                true => sys_flag::TRANSACTION_COMMIT,
                false => sys_flag::TRANSACTION_ROLLBACK,
            },
            from_check: Some(false),
            message_id: id.into(),
            transaction_id: Some(id.into()),
        };
        let answer = self.call(Command::request::<EndTransaction>(&end)).await?;
        (answer.response_code() == ResponseCode::SUCCESS).then_some(())
    }
}
