//! Transactions: a message that becomes visible only when the work it belongs to is done.
//!
//! Invariants:
//! - a half message is visible to nobody until it is committed;
//! - a transaction that is neither committed nor rolled back, or whose decision got lost, is asked about by the broker:
//!   the checker of the group answers, on whatever instance of the program it runs.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use troupemq_codec::message::Message as StoredMessage;
use troupemq_codec::message::message_id::OffsetId;
use troupemq_codec::message::properties::{PRODUCER_GROUP, TRANSACTION_PREPARED, UNIQ_KEY};
use troupemq_codec::message::sys_flag;
use troupemq_codec::request::{
    CheckTransactionStateHeader, EndTransaction, EndTransactionHeader, TRANSACTION_COMMIT,
    TRANSACTION_ROLLBACK, TRANSACTION_UNKNOWN,
};
use troupemq_codec::{Command, Text};

use super::epoch_ms;
use super::error::ClientError;
use super::message::{Message, Received};
use super::producer::{Producer, SendReceipt};
use super::queue::Queue;
use super::trace::collector::Tracer;
use super::trace::{Kind, Subject, Trace, What};

/// What becomes of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The message becomes visible.
    Commit,
    /// The message is dropped.
    Rollback,
    /// Not known yet: the broker asks again later.
    Unknown,
}

/// Answers the broker's question what became of a half message.
pub(crate) type Check = Arc<dyn Fn(Received) -> Pin<Box<dyn Future<Output = Decision> + Send>> + Send + Sync>;

/// The checker of a group.
#[derive(Clone)]
pub(crate) struct Checker {
    pub(crate) check: Check,
    /// Where its decisions are told, if the producer that brought it traces.
    pub(crate) tracer: Option<Tracer>,
}

/// A half message that wants its decision. One that is dropped undecided is asked about by the broker.
#[derive(Debug)]
pub struct Transaction {
    producer: Producer,
    receipt: SendReceipt,
    /// What traces tell of it.
    subject: Option<Subject>,
}

impl fmt::Debug for Checker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Checker")
    }
}

impl Decision {
    fn number(self) -> i32 {
        match self {
            Decision::Commit => TRANSACTION_COMMIT,
            Decision::Rollback => TRANSACTION_ROLLBACK,
            Decision::Unknown => TRANSACTION_UNKNOWN,
        }
    }
}

impl Producer {
    /// Stores a message that nobody sees until the transaction is committed. The producer must have a checker, see
    /// [`ProducerBuilder::checker`](super::producer::ProducerBuilder::checker). RocketMQ: `sendMessageInTransaction`,
    /// whose listener's `executeLocalTransaction` is what the program does between this and the decision.
    ///
    /// # Errors
    /// [`ClientError::Setting`] without a checker; else as [`Producer::send`].
    pub async fn begin(&self, message: Message) -> Result<Transaction, ClientError> {
        if !self.has_checker() {
            let why = "a producer of transactions needs one".to_owned();
            return Err(ClientError::Setting { setting: "checker", why });
        }
        let half =
            message.with_property(TRANSACTION_PREPARED, "true").with_property(PRODUCER_GROUP, self.group());
        let mut subject = self.tracer().map(|_| Subject::of(&half, "", Kind::Decided));
        let receipt = self.send_flagged(half, sys_flag::TRANSACTION_PREPARED).await?;
        if let Some(subject) = &mut subject {
            subject.message_id.clone_from(&receipt.message_id);
        }
        Ok(Transaction { producer: self.clone(), receipt, subject })
    }
}

impl Transaction {
    /// The id of the message, by which the checker will know it.
    pub fn message_id(&self) -> &str {
        &self.receipt.message_id
    }

    /// Where the half message is and how safe it is. RocketMQ's client rolls back what is not
    /// [`SendStatus::Stored`](super::producer::SendStatus::Stored); here the program decides.
    pub fn receipt(&self) -> &SendReceipt {
        &self.receipt
    }

    /// Makes the message visible.
    ///
    /// # Errors
    /// What the broker says, or trouble with the connection: the broker will ask the checker then.
    pub async fn commit(self) -> Result<(), ClientError> {
        self.end(Decision::Commit).await
    }

    /// Drops the message.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub async fn rollback(self) -> Result<(), ClientError> {
        self.end(Decision::Rollback).await
    }

    async fn end(mut self, decision: Decision) -> Result<(), ClientError> {
        let subject = self.subject.take();
        let receipt = &self.receipt;
        let place: OffsetId = receipt.offset_id.parse().map_err(|_| ClientError::Setting {
            setting: "offset id",
            why: format!("{:?} is none", receipt.offset_id),
        })?;
        let header = EndTransactionHeader {
            topic: Some(receipt.queue.topic.clone()),
            producer_group: self.producer.group().into(),
            queue_offset: receipt.queue_offset,
            log_offset: place.log_offset,
            outcome: decision.number(),
            from_check: Some(false),
            message_id: receipt.message_id.as_str().into(),
            transaction_id: Some(receipt.message_id.as_str().into()),
        };
        let hub = &self.producer.client().hub;
        let link = hub.master_of(&receipt.queue.topic, &receipt.queue.broker_name).await?;
        if let (Some(tracer), Some(subject)) = (self.producer.tracer(), subject) {
            let store_host = link.address().to_owned();
            let what = What::Ended { store_host, decision, by_check: false };
            tracer.take(Trace { subject, region: None, begun_ms: epoch_ms(), what });
        }
        link.end(header, hub.within).await
    }
}

/// Asks the checker about the message of a broker's question; gives the request that tells the broker.
pub(crate) async fn answer_check(
    command: &Command,
    store_host: &str,
    checker: impl FnOnce(&str) -> Option<(Text, Checker)>,
) -> Option<Command> {
    let asked: CheckTransactionStateHeader = command.header().ok()?;
    let half = StoredMessage::decode_all(command.body.clone()).ok()?.into_iter().next()?;
    let (group, checker) = checker(half.properties.get(PRODUCER_GROUP)?)?;
    let message_id: Text = half.properties.get(UNIQ_KEY).map(Text::from).or(asked.message_id.clone())?;
    let queue = Queue {
        topic: half.topic.clone(),
        broker_name: asked.broker_name.clone().unwrap_or_default(),
        queue_id: half.queue_id,
    };
    let topic = half.topic.clone();
    let half = Received::new(half, Arc::new(queue));
    let subject = checker.tracer.as_ref().and_then(|_| Subject::of_received(&half));
    let begun_ms = epoch_ms();
    let decision = (checker.check)(half).await;
    if let (Some(tracer), Some(subject)) = (&checker.tracer, subject) {
        let subject = Subject { kind: Kind::Decided, ..subject };
        let what = What::Ended { store_host: store_host.to_owned(), decision, by_check: true };
        tracer.take(Trace { subject, region: None, begun_ms, what });
    }
    let header = EndTransactionHeader {
        topic: Some(topic),
        producer_group: group,
        queue_offset: asked.queue_offset,
        log_offset: asked.log_offset,
        outcome: decision.number(),
        from_check: Some(true),
        transaction_id: asked.transaction_id.or_else(|| Some(message_id.clone())),
        message_id,
    };
    Some(Command::request::<EndTransaction>(&header).oneway())
}
