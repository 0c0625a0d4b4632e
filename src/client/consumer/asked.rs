//! What brokers ask of a consumer, mostly for tools: 307 what it does, 309 consume this, 220 go on from there,
//! 221 how far it has come.
//!
//! Invariants:
//! - the member's task answers, or the application by settling a message; what is dropped is answered too.

use std::collections::BTreeMap;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use troupemq_codec::loose_json::{from_loose, to_fastjson};
use troupemq_codec::message::Message as StoredMessage;
use troupemq_codec::request::{
    ConsumeDirectlyResult, ConsumeMessageDirectly, ConsumeMessageDirectlyHeader, ConsumerRunningInfo,
    ConsumerStatus, DirectResult, GetConsumerRunningInfo, GetConsumerRunningInfoHeader,
    GetConsumerStatusFromClient, InvokeBrokerToGetConsumerStatusHeader, InvokeBrokerToResetOffsetHeader,
    ResetConsumerClientOffset, ResetOffsetBody,
};
use troupemq_codec::topic::MessageQueue;
use troupemq_codec::{Command, Request, ResponseCode, Text};

use crate::client::epoch_ms;

/// A question to the member's task.
#[derive(Debug)]
pub(crate) enum Asked {
    /// What are you doing?
    RunningInfo(oneshot::Sender<ConsumerRunningInfo>),
    /// How far have you come in the queues of this topic?
    Status(Text, oneshot::Sender<BTreeMap<MessageQueue, i64>>),
    /// Go on from these offsets.
    Reset(BTreeMap<MessageQueue, i64>),
    /// Consume this message now.
    Directly(Box<StoredMessage>, oneshot::Sender<DirectResult>),
}

/// Whether a request is about one consumer.
pub(crate) fn is_about_consumer(code: i32) -> bool {
    let codes = [
        GetConsumerRunningInfo::CODE,
        ConsumeMessageDirectly::CODE,
        ResetConsumerClientOffset::CODE,
        GetConsumerStatusFromClient::CODE,
    ];
    codes.contains(&code)
}

/// Asks the consumer and makes the answer.
pub(crate) async fn answer(
    command: &Command,
    member: impl Fn(&str) -> Option<mpsc::Sender<Asked>>,
) -> Command {
    match answered(command, member).await {
        Ok(body) => Command::response(ResponseCode::SUCCESS).with_body(body),
        Err(remark) => Command::response(ResponseCode::SYSTEM_ERROR).with_remark(remark),
    }
}

async fn answered(
    command: &Command,
    member: impl Fn(&str) -> Option<mpsc::Sender<Asked>>,
) -> Result<Bytes, String> {
    let unreadable = |cause: troupemq_codec::CodecError| cause.to_string();
    let of =
        |group: &str| member(group).ok_or_else(|| format!("no consumer of group {group} in this client"));
    match command.code {
        GetConsumerRunningInfo::CODE => {
            let header: GetConsumerRunningInfoHeader = command.header().map_err(unreadable)?;
            let info = ask(of(&header.group)?, Asked::RunningInfo).await?;
            Ok(to_fastjson(&info).into())
        }
        GetConsumerStatusFromClient::CODE => {
            let header: InvokeBrokerToGetConsumerStatusHeader = command.header().map_err(unreadable)?;
            let topic = header.topic.clone();
            let offsets = ask(of(&header.group)?, |reply| Asked::Status(topic, reply)).await?;
            Ok(to_fastjson(&ConsumerStatus { message_queue_table: offsets, ..Default::default() }).into())
        }
        ResetConsumerClientOffset::CODE => {
            let header: InvokeBrokerToResetOffsetHeader = command.header().map_err(unreadable)?;
            let wanted: ResetOffsetBody = from_loose(&command.body).map_err(unreadable)?;
            let asked = of(&header.group)?.send(Asked::Reset(wanted.offset_table)).await;
            asked.map(|()| Bytes::new()).map_err(|_| gone())
        }
        _ => {
            let header: ConsumeMessageDirectlyHeader = command.header().map_err(unreadable)?;
            let messages = StoredMessage::decode_all(command.body.clone()).map_err(unreadable)?;
            let message = messages.into_iter().next().ok_or("the request has no message")?;
            let begun_ms = epoch_ms();
            let member = of(&header.group)?;
            let said = ask(member, |reply| Asked::Directly(Box::new(message), reply)).await;
            let result = ConsumeDirectlyResult {
                consume_result: said.unwrap_or(DirectResult::ReturnNull),
                spent_time_mills: epoch_ms() - begun_ms,
                ..Default::default()
            };
            Ok(to_fastjson(&result).into())
        }
    }
}

async fn ask<T>(
    member: mpsc::Sender<Asked>,
    question: impl FnOnce(oneshot::Sender<T>) -> Asked,
) -> Result<T, String> {
    let (reply, answer) = oneshot::channel();
    member.send(question(reply)).await.map_err(|_| gone())?;
    answer.await.map_err(|_| gone())
}

fn gone() -> String {
    "the consumer is shut down".to_owned()
}
