//! Request and reply: a message that waits for its answer. Java: `DefaultMQProducer.request`.
//!
//! Invariants:
//! - a reply goes to the client that asked, through the broker that took the request;
//! - a requester waits no longer than it said; a reply that comes later is dropped.

use std::time::Duration;

use bytes::Bytes;
use dashmap::DashMap;
use tokio::sync::oneshot;
use tokio::time::timeout;
use troupemq_codec::message::compression::{EXPANDED_MAX_BYTES, plain_body};
use troupemq_codec::message::properties::{
    CLUSTER, CORRELATION_ID, MSG_TYPE, Properties, REPLY_TO_CLIENT, TTL,
};
use troupemq_codec::request::{PushReplyMessageToClient, PushReplyMessageToClientHeader};
use troupemq_codec::{Command, Request, ResponseCode, Text};

use super::epoch_ms;
use super::error::ClientError;
use super::message::{Message, Received};
use super::producer::{Producer, SendReceipt};

/// End of the name of the topic of a cluster's replies.
const REPLY_TOPIC_SUFFIX: &str = "_REPLY_TOPIC";

/// The answer to a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// The body.
    pub body: Bytes,
    properties: Properties,
}

/// Who waits for a reply, by correlation id.
#[derive(Debug, Default)]
pub(crate) struct Requesters(DashMap<Text, oneshot::Sender<Reply>>);

/// A place among the requesters, given up however the waiting ends.
struct Waiting<'a> {
    requesters: &'a Requesters,
    id: Text,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.requesters.0.remove(&self.id);
    }
}

impl Reply {
    /// A property by its name.
    pub fn property(&self, name: &str) -> Option<&str> {
        self.properties.get(name)
    }
}

impl Requesters {
    /// Tells everybody who waits that no reply will come.
    pub(crate) fn give_up(&self) {
        self.0.clear();
    }

    /// A broker brought a reply; gives what the broker is answered.
    pub(crate) fn replied(&self, command: &Command) -> Command {
        let answered = || -> Option<()> {
            let header: PushReplyMessageToClientHeader = command.header().ok()?;
            let body = plain_body(header.sys_flag, command.body.clone(), EXPANDED_MAX_BYTES).ok()?;
            let properties = Properties::parse(header.properties.unwrap_or_default().into_bytes());
            let (_, waiter) = self.0.remove(properties.get(CORRELATION_ID)?)?;
            waiter.send(Reply { body, properties }).ok()
        };
        match answered() {
            Some(()) => Command::response(ResponseCode::SUCCESS),
            None => Command::response(ResponseCode::SYSTEM_ERROR).with_remark("nobody waits for this reply"),
        }
    }
}

impl Producer {
    /// Sends a message and waits for the reply that its consumer gives with [`Producer::reply`], `within` a time for
    /// all together. RocketMQ: `DefaultMQProducer.request`.
    ///
    /// # Errors
    /// As [`Producer::send`]; [`ClientError::TimedOut`] if no reply comes in time, [`ClientError::ShutDown`] if the
    /// client ends before it does.
    pub async fn request(&self, message: Message, within: Duration) -> Result<Reply, ClientError> {
        let hub = &self.client().hub;
        let id: Text = hub.new_message_id(epoch_ms()).as_str().into();
        let (waiter, reply) = oneshot::channel();
        let _waiting = Waiting { requesters: &hub.requesters, id: id.clone() };
        hub.requesters.0.insert(id.clone(), waiter);
        let message = message
            .with_property(CORRELATION_ID, &id)
            .with_property(REPLY_TO_CLIENT, self.client().client_id())
            .with_property(TTL, &within.as_millis().to_string());
        let answered = async {
            // The broker finds the way back by the heart-beat of this client. One that is silent is not waited for to
            // the end: another may take the request.
            let _ = timeout(within / 2, self.meet_brokers(message.topic())).await;
            let receipt = self.send(message).await?;
            let gone = |_| ClientError::ShutDown { what: "client" };
            reply.await.map_err(gone).map(|reply| (receipt, reply))
        };
        match timeout(within, answered).await {
            Ok(answered) => answered.map(|(_, reply)| reply),
            Err(_) => Err(ClientError::TimedOut {
                address: "the consumer".to_owned(),
                request: PushReplyMessageToClient::NAME,
                after: within,
            }),
        }
    }

    /// Answers a request that a consumer got. RocketMQ: `MessageUtil.createReplyMessage`.
    ///
    /// # Errors
    /// [`ClientError::IllegalMessage`] if nobody waits for a reply to it; else as [`Producer::send`].
    pub async fn reply(
        &self,
        request: &Received,
        body: impl Into<Bytes>,
    ) -> Result<SendReceipt, ClientError> {
        let wanted = |name| {
            request.property(name).ok_or_else(|| ClientError::IllegalMessage {
                topic: request.topic().to_owned(),
                why: format!("it has no property {name}: its sender waits for no reply"),
            })
        };
        let topic = format!("{}{REPLY_TOPIC_SUFFIX}", wanted(CLUSTER)?);
        let mut reply = Message::new(topic, body).with_property(MSG_TYPE, "reply");
        for name in [CORRELATION_ID, REPLY_TO_CLIENT, TTL] {
            reply = reply.with_property(name, wanted(name)?);
        }
        self.send_reply(reply, request.queue()).await
    }
}
