//! Reads queues by hand: offsets, pulls, commits (RocketMQ's `DefaultMQPullConsumer`).
//!
//! Invariants:
//! - offsets are asked of and committed to the master; messages come from where the broker last suggested;
//! - a pull that finds nothing is no error: its status says why, and `next_offset` where to go on.

use std::time::Duration;

use bytes::Bytes;
use troupemq_codec::filter::{TYPE_SQL92, TYPE_TAG};
use troupemq_codec::message::Message as StoredMessage;
use troupemq_codec::request::{
    Boundary, GetMaxOffset, GetMaxOffsetHeader, GetMinOffset, GetMinOffsetHeader, PULL_HAS_SUBSCRIPTION,
    PULL_SUSPENDS, PullMessage, PullMessageHeader, PullMessageReplyHeader, QueryConsumerOffset,
    QueryConsumerOffsetHeader, SearchOffsetByTimestamp, SearchOffsetByTimestampHeader, UpdateConsumerOffset,
    UpdateConsumerOffsetHeader,
};
use troupemq_codec::{ResponseCode, Text};

use super::Client;
use super::error::ClientError;
use super::queue::Queue;

/// Added to the time a broker may hold a pull, before the client takes it for lost.
const HOLD_GRACE: Duration = Duration::from_secs(10);

/// What to pull.
#[derive(Debug, Clone)]
pub struct PullRequest {
    /// The group in whose name it is read.
    pub group: Text,
    /// First offset wanted.
    pub queue_offset: i64,
    /// Most messages wanted.
    pub messages_max: i32,
    /// Tags with `||` between them or `*`, or an expression of SQL92.
    pub expression: Text,
    /// What kind of expression it is.
    pub expression_type: ExpressionType,
    /// Version of the expression: the time it was made.
    pub expression_version: i64,
    /// How long the broker may hold the request until something arrives; none at all if zero.
    pub hold: Duration,
    /// The broker to read from, 0 the master.
    pub broker_id: i64,
}

/// Outcome of a pull.
#[derive(Debug, Clone, PartialEq)]
pub struct Pulled {
    /// Why there are as many messages as there are.
    pub status: PullStatus,
    /// The messages, in order.
    pub messages: Vec<StoredMessage>,
    /// Where the next pull begins.
    pub next_offset: i64,
    /// First offset of the queue.
    pub min_offset: i64,
    /// The offset that the next message will get.
    pub max_offset: i64,
    /// The broker to read from next time.
    pub broker_id: i64,
}

/// What kind of expression selects messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExpressionType {
    /// Tags with `||` between them, or `*`.
    #[default]
    Tag,
    /// SQL92 over the properties of a message.
    Sql92,
}

impl ExpressionType {
    /// RocketMQ's name of it.
    pub(crate) fn name(self) -> Text {
        Text::from_static(match self {
            ExpressionType::Tag => TYPE_TAG,
            ExpressionType::Sql92 => TYPE_SQL92,
        })
    }
}

/// Why a pull has messages or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullStatus {
    /// There are messages. RocketMQ: `FOUND`.
    Found,
    /// Nothing new has arrived. RocketMQ: `NO_NEW_MSG`.
    NothingNew,
    /// Nothing of what was looked through matches. RocketMQ: `NO_MATCHED_MSG`.
    NothingMatched,
    /// The offset lies outside the queue; `next_offset` lies within. RocketMQ: `OFFSET_ILLEGAL`.
    OffsetMoved,
}

impl PullRequest {
    /// Up to 32 messages from an offset on, not held by the broker.
    pub fn from(group: &str, queue_offset: i64) -> PullRequest {
        PullRequest {
            group: group.into(),
            queue_offset,
            messages_max: 32,
            expression: "*".into(),
            expression_type: ExpressionType::Tag,
            expression_version: 0,
            hold: Duration::ZERO,
            broker_id: 0,
        }
    }
}

impl Client {
    /// Pulls messages of a queue.
    ///
    /// # Errors
    /// The broker's refusal, trouble with the connection, or an answer that cannot be read.
    pub async fn pull(&self, queue: &Queue, wanted: &PullRequest) -> Result<Pulled, ClientError> {
        // A queue that was just made by a send is known to its broker a moment before the name servers hear of it.
        let route = self.hub.routes.route_for_send(&self.hub.peers, &queue.topic).await?;
        let no_queue = || ClientError::NoQueue { topic: queue.topic.to_string(), wanted: "readable" };
        let address = route.reader(&queue.broker_name, wanted.broker_id).ok_or_else(no_queue)?;
        let link = self.hub.peers.link(address).await?;
        let held = if wanted.hold.is_zero() { 0 } else { PULL_SUSPENDS };
        let header = PullMessageHeader {
            group: wanted.group.clone(),
            topic: queue.topic.clone(),
            queue_id: queue.queue_id,
            queue_offset: wanted.queue_offset,
            messages_max: wanted.messages_max,
            sys_flag: held | PULL_HAS_SUBSCRIPTION,
            commit_offset: 0,
            suspend_timeout_ms: i64::try_from(wanted.hold.as_millis()).unwrap_or(i64::MAX),
            subscription: Some(wanted.expression.clone()),
            subscription_version: wanted.expression_version,
            expression_type: Some(wanted.expression_type.name()),
            ..Default::default()
        };
        let within = if held == 0 { self.hub.within } else { wanted.hold + HOLD_GRACE };
        let answer = link.call::<PullMessage>(&header, Bytes::new(), within).await?;
        let status = match answer.response_code() {
            ResponseCode::SUCCESS => PullStatus::Found,
            ResponseCode::PULL_NOT_FOUND => PullStatus::NothingNew,
            ResponseCode::PULL_RETRY_IMMEDIATELY => PullStatus::NothingMatched,
            ResponseCode::PULL_OFFSET_MOVED => PullStatus::OffsetMoved,
            _ => return Err(link.refusal::<PullMessage>(&answer)),
        };
        let malformed = |cause| link.malformed::<PullMessage>(cause);
        let reply: PullMessageReplyHeader = answer.header().map_err(malformed)?;
        Ok(Pulled {
            status,
            messages: StoredMessage::decode_all(answer.body).map_err(malformed)?,
            next_offset: reply.next_offset,
            min_offset: reply.min_offset,
            max_offset: reply.max_offset,
            broker_id: reply.suggested_broker_id,
        })
    }

    /// The address of the broker from which a queue is read.
    ///
    /// # Errors
    /// [`ClientError::NoRoute`] or [`ClientError::NoQueue`] if there is none.
    pub async fn address_of(&self, queue: &Queue) -> Result<String, ClientError> {
        let route = self.hub.route(&queue.topic).await?;
        let no_queue = || ClientError::NoQueue { topic: queue.topic.to_string(), wanted: "readable" };
        Ok(route.reader(&queue.broker_name, 0).ok_or_else(no_queue)?.to_string())
    }

    /// The first offset of a queue.
    ///
    /// # Errors
    /// As [`Client::pull`].
    pub async fn min_offset(&self, queue: &Queue) -> Result<i64, ClientError> {
        let link = self.hub.master_of(&queue.topic, &queue.broker_name).await?;
        let header = GetMinOffsetHeader { topic: queue.topic.clone(), queue_id: queue.queue_id };
        Ok(link.ask::<GetMinOffset>(&header, Bytes::new(), self.hub.within).await?.0.queue_offset)
    }

    /// The offset that the next message of a queue will get.
    ///
    /// # Errors
    /// As [`Client::pull`].
    pub async fn max_offset(&self, queue: &Queue) -> Result<i64, ClientError> {
        let link = self.hub.master_of(&queue.topic, &queue.broker_name).await?;
        let header =
            GetMaxOffsetHeader { topic: queue.topic.clone(), queue_id: queue.queue_id, ..Default::default() };
        Ok(link.ask::<GetMaxOffset>(&header, Bytes::new(), self.hub.within).await?.0.queue_offset)
    }

    /// The offset of the first message of a queue stored at a time or later: epoch ms.
    ///
    /// # Errors
    /// As [`Client::pull`].
    pub async fn offset_at(&self, queue: &Queue, epoch_ms: i64) -> Result<i64, ClientError> {
        let link = self.hub.master_of(&queue.topic, &queue.broker_name).await?;
        let header = SearchOffsetByTimestampHeader {
            topic: queue.topic.clone(),
            queue_id: queue.queue_id,
            timestamp_ms: epoch_ms,
            boundary: Some(Boundary::Lower),
        };
        Ok(link.ask::<SearchOffsetByTimestamp>(&header, Bytes::new(), self.hub.within).await?.0.queue_offset)
    }

    /// What a group has committed in a queue; `None` if it has not.
    ///
    /// # Errors
    /// As [`Client::pull`].
    pub async fn committed(&self, group: &str, queue: &Queue) -> Result<Option<i64>, ClientError> {
        let link = self.hub.master_of(&queue.topic, &queue.broker_name).await?;
        let header = QueryConsumerOffsetHeader {
            group: group.into(),
            topic: queue.topic.clone(),
            queue_id: queue.queue_id,
            zero_if_not_found: Some(false),
        };
        match link.ask::<QueryConsumerOffset>(&header, Bytes::new(), self.hub.within).await {
            Ok((reply, _)) => Ok(Some(reply.queue_offset)),
            Err(ClientError::Refused { code: ResponseCode::QUERY_NOT_FOUND, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Commits the progress of a group in a queue: the offset of the first message not yet done.
    ///
    /// # Errors
    /// As [`Client::pull`].
    pub async fn commit(&self, group: &str, queue: &Queue, queue_offset: i64) -> Result<(), ClientError> {
        let link = self.hub.master_of(&queue.topic, &queue.broker_name).await?;
        let header = UpdateConsumerOffsetHeader {
            group: group.into(),
            topic: queue.topic.clone(),
            queue_id: queue.queue_id,
            queue_offset,
        };
        link.ask::<UpdateConsumerOffset>(&header, Bytes::new(), self.hub.within).await.map(|_| ())
    }
}
