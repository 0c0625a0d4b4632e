//! A plain connection to a broker, for requests the client has no words for.
//!
//! Invariants:
//! - what is sent together is answered before anything else is sent; an answer is the one with its request's number.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use troupemq_codec::frame::take_frame;
use troupemq_codec::loose_json::from_loose;
use troupemq_codec::message::batch::BatchItem;
use troupemq_codec::message::{Message, PropertiesView, sys_flag};
use troupemq_codec::request::{
    ConsumerSendMsgBack, ConsumerSendMsgBackHeader, DeleteExpiredCommitlog, EndTransaction,
    EndTransactionHeader, GetTopicConfig, GetTopicConfigHeader, PULL_HAS_SUBSCRIPTION, PullMessage,
    PullMessageHeader, PullMessageReplyHeader, QueryConsumerOffset, QueryConsumerOffsetHeader,
    QueryConsumerOffsetReplyHeader, SendBatchMessage, SendMessageReplyHeader, SendMessageV2,
    SendMessageV2Header, UpdateConsumerOffset, UpdateConsumerOffsetHeader,
};
use troupemq_codec::topic::TopicConfig;
use troupemq_codec::{Command, ResponseCode, Text};

use crate::model::{Place, body};

/// A half message.
#[derive(Debug)]
pub(crate) struct Half {
    id: String,
    queue_offset: i64,
    log_offset: i64,
}

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
    async fn call(&mut self, request: Command) -> Option<Command> {
        self.call_all(vec![request]).await?.pop()
    }

    /// Sends requests with one write. Their answers, in the order of the requests; none of those that want none.
    async fn call_all(&mut self, requests: Vec<Command>) -> Option<Vec<Command>> {
        let (mut out, mut awaited) = (BytesMut::new(), BTreeMap::new());
        for mut request in requests {
            self.opaque += 1;
            request.opaque = self.opaque;
            request.encode(&mut out);
            if !request.is_oneway() {
                awaited.insert(request.opaque, None);
            }
        }
        self.socket.write_all(&out).await.ok()?;
        while awaited.values().any(Option::is_none) {
            let answer = self.next_answer().await?;
            if let Some(place) = awaited.get_mut(&answer.opaque) {
                *place = Some(answer);
            }
        }
        Some(awaited.into_values().flatten().collect())
    }

    async fn next_answer(&mut self) -> Option<Command> {
        loop {
            if let Some(frame) = take_frame(&mut self.buffer).ok()? {
                let answer = Command::decode(frame).ok()?;
                if answer.is_response() {
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

    /// Sends a message by itself. Answers where it lies once it is acknowledged.
    pub(crate) async fn send_one(&mut self, topic: &str, queue_id: i32, number: u64) -> Option<Place> {
        self.send_with(topic, queue_id, number, "").await
    }

    /// The same for a message with properties beside its key.
    pub(crate) async fn send_with(
        &mut self,
        topic: &str,
        queue_id: i32,
        number: u64,
        more: &str,
    ) -> Option<Place> {
        let header = to_store(topic, queue_id, format!("KEYS\u{1}k{number}\u{2}{more}"));
        let request = Command::request::<SendMessageV2>(&header).with_body(Bytes::from(body(number)));
        self.send(request, number, None).await
    }

    /// Sends messages as one record. Answers where it lies once it is acknowledged.
    pub(crate) async fn send_inner(
        &mut self,
        topic: &str,
        queue_id: i32,
        numbers: Range<u64>,
    ) -> Option<Place> {
        let mut items = BytesMut::new();
        for number in numbers.clone() {
            let (body, properties) = (body(number), format!("UNIQ_KEY\u{1}crash{number:027}\u{2}"));
            let item = BatchItem { flag: 0, body: &body, properties: PropertiesView(properties.as_bytes()) };
            item.encode(&mut items).ok()?;
        }
        let first = numbers.start;
        let properties = format!("UNIQ_KEY\u{1}batch{first:027}\u{2}KEYS\u{1}k{first}\u{2}");
        let mut header = to_store(topic, queue_id, properties);
        header.is_batch = Some(true);
        let request = Command::request::<SendBatchMessage>(&header).with_body(items.freeze());
        self.send(request, first, i64::try_from(numbers.count()).ok()).await
    }

    /// None if it was refused or the connection has ended.
    async fn send(&mut self, request: Command, number: u64, batch: Option<i64>) -> Option<Place> {
        let answer = self.call(request).await?;
        if answer.response_code() != ResponseCode::SUCCESS {
            return None;
        }
        let SendMessageReplyHeader { message_id, queue_id, queue_offset, .. } = answer.header().ok()?;
        let log_offset = crate::load::log_offsets(&message_id).next()?;
        Some(Place { queue_id, queue_offset, log_offset, number, batch, waited: true })
    }

    /// Has a group fail with a message: it comes again after a level, or is given up below 0.
    pub(crate) async fn send_back(&mut self, group: &str, log_offset: u64, delay_level: i32) -> Option<()> {
        let header = ConsumerSendMsgBackHeader {
            log_offset: i64::try_from(log_offset).ok()?,
            group: group.into(),
            delay_level,
            ..Default::default()
        };
        let answer = self.call(Command::request::<ConsumerSendMsgBack>(&header)).await?;
        (answer.response_code() == ResponseCode::SUCCESS).then_some(())
    }

    /// Messages of a queue from an offset on, and the offset behind them.
    pub(crate) async fn pull(&mut self, group: &str, topic: &str, from: i64) -> Option<(Vec<Message>, i64)> {
        let header = PullMessageHeader {
            group: group.into(),
            topic: topic.into(),
            queue_offset: from,
            messages_max: 32,
            sys_flag: PULL_HAS_SUBSCRIPTION,
            subscription: Some("*".into()),
            ..Default::default()
        };
        let answer = self.call(Command::request::<PullMessage>(&header)).await?;
        let reply: PullMessageReplyHeader = answer.header().ok()?;
        Some((Message::decode_all(answer.body).ok()?, reply.next_offset))
    }

    /// Commits the progress of a group in queue 0 of a topic.
    pub(crate) async fn commit(&mut self, group: &str, topic: &str, queue_offset: i64) -> Option<()> {
        let header = UpdateConsumerOffsetHeader {
            group: group.into(),
            topic: topic.into(),
            queue_id: 0,
            queue_offset,
        };
        let answer = self.call(Command::request::<UpdateConsumerOffset>(&header)).await?;
        (answer.response_code() == ResponseCode::SUCCESS).then_some(())
    }

    /// That progress; none within if there is none.
    pub(crate) async fn committed(&mut self, group: &str, topic: &str) -> Option<Option<i64>> {
        let header = QueryConsumerOffsetHeader {
            group: group.into(),
            topic: topic.into(),
            queue_id: 0,
            zero_if_not_found: Some(false),
        };
        let answer = self.call(Command::request::<QueryConsumerOffset>(&header)).await?;
        match answer.response_code() {
            ResponseCode::SUCCESS => {
                Some(answer.header::<QueryConsumerOffsetReplyHeader>().ok().map(|reply| reply.queue_offset))
            }
            ResponseCode::QUERY_NOT_FOUND => Some(None),
            _ => None,
        }
    }

    /// The configuration of a topic; none within if the broker has no such topic.
    pub(crate) async fn topic(&mut self, topic: &str) -> Option<Option<TopicConfig>> {
        let header = GetTopicConfigHeader { topic: topic.into(), is_logical: None };
        let answer = self.call(Command::request::<GetTopicConfig>(&header)).await?;
        match answer.response_code() {
            ResponseCode::SUCCESS => from_loose(&answer.body).ok().map(Some),
            ResponseCode::TOPIC_NOT_EXIST => Some(None),
            _ => None,
        }
    }

    /// Sends a half message. Answers once that is acknowledged.
    pub(crate) async fn send_half(&mut self, topic: &str, number: u64) -> Option<Half> {
        let id = format!("crash{number:027}");
        let properties = format!("TRAN_MSG\u{1}true\u{2}PGROUP\u{1}deciders\u{2}UNIQ_KEY\u{1}{id}");
        let mut header = to_store(topic, 0, properties);
        header.sys_flag = sys_flag::TRANSACTION_PREPARED;
        let request = Command::request::<SendMessageV2>(&header).with_body(Bytes::from(body(number)));
        let half = self.call(request).await?;
        if half.response_code() != ResponseCode::SUCCESS {
            return None;
        }
        let SendMessageReplyHeader { message_id, queue_offset, .. } = half.header().ok()?;
        let log_offset = i64::try_from(crate::load::log_offsets(&message_id).next()?).ok()?;
        Some(Half { id, queue_offset, log_offset })
    }

    /// Ends transactions with one write: each is committed or not, and its answer is waited for or not. Answers which
    /// of those that are waited for are acknowledged, in their order.
    pub(crate) async fn end_all(&mut self, ends: &[(&Half, bool, bool)]) -> Option<Vec<bool>> {
        let request = |(half, is_committed, is_waited_for): &(&Half, bool, bool)| {
            let end = EndTransactionHeader {
                topic: None,
                producer_group: "deciders".into(),
                queue_offset: half.queue_offset,
                log_offset: half.log_offset,
                outcome: match is_committed {
                    true => sys_flag::TRANSACTION_COMMIT,
                    false => sys_flag::TRANSACTION_ROLLBACK,
                },
                from_check: Some(false),
                message_id: half.id.as_str().into(),
                transaction_id: Some(half.id.as_str().into()),
            };
            let request = Command::request::<EndTransaction>(&end);
            if *is_waited_for { request } else { request.oneway() }
        };
        let answers = self.call_all(ends.iter().map(request).collect()).await?;
        Some(answers.iter().map(|answer| answer.response_code() == ResponseCode::SUCCESS).collect())
    }
}

/// What every send says.
fn to_store(topic: &str, queue_id: i32, properties: String) -> SendMessageV2Header {
    SendMessageV2Header {
        producer_group: "deciders".into(),
        topic: topic.into(),
        default_topic: "TBW102".into(),
        default_topic_queues: 4,
        queue_id,
        born_timestamp_ms: 1_795_000_000_000,
        properties: Some(Text::from(properties)),
        ..Default::default()
    }
}
