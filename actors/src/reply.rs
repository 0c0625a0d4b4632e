//! Replies: SEND_REPLY_MESSAGE and SEND_REPLY_MESSAGE_V2, pushed to the client that asked.
//! Java: `ReplyMessageProcessor`.
//!
//! Invariants:
//! - the replier is answered once the requester has answered, or has not for `PATIENCE`;
//! - whether the push succeeded is the code of the answer, whether the reply was stored is not;
//! - a reply that could not be stored, because of its topic, queue or size, is not pushed either;
//! - a stored reply waits for nothing: delays and transactions among its properties do not count.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use troupemq_codec::filter::tags::tags_code_of;
use troupemq_codec::message::properties::{
    MSG_REGION, POP_CK, PUSH_REPLY_TIME, REPLY_TO_CLIENT, TAGS, TRACE_ON, UNIQ_KEY, put_property,
};
use troupemq_codec::message::{NewRecord, Properties, sys_flag};
use troupemq_codec::request::{
    PushReplyMessageToClient, PushReplyMessageToClientHeader, SendAnswerHeader, SendMessageHeader,
    SendMessageReplyHeader, SendMessageV2Header, SendReplyMessageV2,
};
use troupemq_codec::{Command, Request, ResponseCode, Text};

use crate::cast::BrokerCast;
use crate::heartbeat::LinkOfClient;
use crate::net::{Answer, Call, Refusal};
use crate::send::bench::check_service;
use crate::send::check::check_sizes;
use crate::send::place::Places;
use crate::send::{Own, StoredOwn, store};
use crate::topic::counters::Pair;
use crate::topics::EnsureTopic;

/// How long the requester may take to answer the push.
const PATIENCE: Duration = Duration::from_secs(10);

/// Answers SEND_REPLY_MESSAGE and SEND_REPLY_MESSAGE_V2.
pub async fn send_reply(cast: &BrokerCast, call: &Call) -> Answer {
    let header: SendMessageHeader = match call.command.code {
        SendReplyMessageV2::CODE => call.command.header::<SendMessageV2Header>()?.into(),
        _ => call.command.header()?,
    };
    let reply = match Reply::admit(cast, call, header).await {
        Ok(reply) => reply,
        Err(refusal) => return Ok(refused(cast, refusal)),
    };
    let pushed = reply.push(cast).await;
    let stored = match cast.config.load().store_reply_message_enable {
        true => reply.store(cast).await,
        false => None,
    };
    Ok(reply.answer(cast, pushed, stored))
}

/// A reply that may be delivered.
struct Reply<'a> {
    call: &'a Call,
    header: SendMessageHeader,
    properties: Properties,
    queue_id: i32,
}

impl Reply<'_> {
    /// Checks the reply and finds its queue; makes its topic if there is none yet.
    async fn admit<'a>(
        cast: &BrokerCast,
        call: &'a Call,
        header: SendMessageHeader,
    ) -> Result<Reply<'a>, Refusal> {
        let config = cast.config.load_full();
        check_service(cast, &config)?;
        let mut places = Places::default();
        let place = match places.find(cast, &header.topic)? {
            Some(place) => place,
            None => {
                let wanted = EnsureTopic {
                    topic: header.topic.clone(),
                    template: header.default_topic.clone(),
                    queue_nums: header.default_topic_queues,
                };
                cast.topics.send(wanted).await??;
                places.find(cast, &header.topic)?.ok_or_else(|| Refusal::gone("the topic just made"))?
            }
        };
        let queue_id = places.choose(&place, header.queue_id);
        place.queue(cast, queue_id, &call.link)?;
        let text = header.properties.clone().unwrap_or_default();
        let mut properties = Properties::parse(Bytes::copy_from_slice(text.as_bytes()));
        properties.remove(POP_CK);
        let bytes = properties.encoded().len() + cast.own_properties.len();
        check_sizes(&config, &call.command.body, bytes)?;
        Ok(Reply { call, header, properties, queue_id })
    }

    /// Hands the reply to the client that waits for it.
    async fn push(&self, cast: &BrokerCast) -> Result<(), Refusal> {
        let failed = |remark: String| Err(Refusal::new(ResponseCode::SYSTEM_ERROR, remark));
        let Some(client_id) = self.properties.get(REPLY_TO_CLIENT) else {
            return failed(format!("reply message properties[{REPLY_TO_CLIENT}] is null"));
        };
        let link = cast.heartbeats.send(LinkOfClient(Text::from(client_id))).await?;
        let Some(link) = link.and_then(|id| cast.directory.link(id)) else {
            return failed(format!("push reply message fail, channel of <{client_id}> not found."));
        };
        let body = self.call.command.body.clone();
        match link.call::<PushReplyMessageToClient>(&self.pushed(cast), body, PATIENCE).await {
            Ok(answer) if answer.code == ResponseCode::SUCCESS.0 => Ok(()),
            Ok(answer) => {
                let why = answer.remark.as_deref().unwrap_or_default();
                tracing::info!(client_id, code = answer.code, why, "a client refused a reply");
                failed(format!("push reply message to {client_id}fail."))
            }
            Err(error) => {
                tracing::info!(client_id, %error, patience = ?PATIENCE, "a client did not take a reply");
                failed(format!("push reply message to {client_id}fail."))
            }
        }
    }

    fn pushed(&self, cast: &BrokerCast) -> PushReplyMessageToClientHeader {
        let mut properties = self.properties.clone();
        properties.set(MSG_REGION, &cast.region);
        properties.set(TRACE_ON, if cast.trace_on { "true" } else { "false" });
        properties.set(PUSH_REPLY_TIME, &cast.now_ms().to_string());
        let header = &self.header;
        PushReplyMessageToClientHeader {
            producer_group: header.producer_group.clone(),
            topic: header.topic.clone(),
            default_topic: header.default_topic.clone(),
            default_topic_queues: header.default_topic_queues,
            queue_id: header.queue_id,
            sys_flag: header.sys_flag,
            born_timestamp_ms: header.born_timestamp_ms,
            flag: header.flag,
            properties: Some(Text::from(String::from_utf8_lossy(properties.encoded()).into_owned())),
            reconsume_times: Some(header.reconsume_times.unwrap_or(0)),
            unit_mode: Some(header.unit_mode.unwrap_or(false)),
            born_host: Text::from(self.call.link.peer().to_string()),
            store_host: Text::from(cast.advertised.to_string()),
            store_timestamp_ms: cast.now_ms(),
        }
    }

    /// Keeps the reply in its topic. That it could not be kept is logged and no more.
    async fn store(&self, cast: &BrokerCast) -> Option<StoredOwn> {
        let mut made = BytesMut::new();
        if self.properties.get(UNIQ_KEY).is_none() {
            put_property(&mut made, UNIQ_KEY, cast.ids.next(cast.now_ms()).as_str());
        }
        let record = NewRecord {
            topic: &self.header.topic,
            queue_id: self.queue_id,
            flag: self.header.flag,
            sys_flag: sys_flag::with_transaction(self.header.sys_flag, 0),
            born_timestamp_ms: self.header.born_timestamp_ms,
            born_host: self.call.link.peer(),
            store_host: cast.advertised,
            reconsume_times: self.header.reconsume_times.unwrap_or(0),
            prepared_log_offset: 0,
            body: &self.call.command.body,
            body_crc: None,
            properties: &[self.properties.encoded(), &cast.own_properties, &made],
        };
        let tags_code = tags_code_of(self.properties.get(TAGS));
        match store(cast, &[Own { record, tags_code, keys: None }]).await {
            Ok(stored) => {
                let stored = stored.first().copied()?;
                let size = usize::try_from(stored.size).unwrap_or(0);
                cast.count_put(&self.header.topic, [(self.queue_id, Pair::of(1, size, 1, 0))]);
                Some(stored)
            }
            Err(refusal) => {
                tracing::warn!(topic = %self.header.topic, why = refusal.remark, "a reply was not stored");
                None
            }
        }
    }

    fn answer(&self, cast: &BrokerCast, pushed: Result<(), Refusal>, stored: Option<StoredOwn>) -> Command {
        let answer = match pushed {
            Ok(()) => Command::response(ResponseCode::SUCCESS),
            Err(refusal) if stored.is_none() => return refused(cast, refusal),
            Err(refusal) => Command::response(refusal.code).with_remark(refusal.remark),
        };
        let reply = SendMessageReplyHeader {
            // Java's answer for a reply that is not kept: clients read an id whether there is one or not.
            message_id: stored.map_or(Text::from_static("0"), |stored| {
                Text::from(cast.message_ids.of(stored.log_offset).as_str())
            }),
            queue_id: self.queue_id,
            queue_offset: stored.map_or(0, |stored| stored.queue_offset),
            region: Some(cast.region.clone()),
            trace_on: Some(cast.trace_on),
            ..SendMessageReplyHeader::default()
        };
        answer.with_header(&reply)
    }
}

fn refused(cast: &BrokerCast, refusal: Refusal) -> Command {
    let header = SendAnswerHeader { region: cast.region.clone(), trace_on: cast.trace_on };
    Command::response(refusal.code).with_remark(refusal.remark).with_header(&header)
}

#[cfg(test)]
mod reply_test;
