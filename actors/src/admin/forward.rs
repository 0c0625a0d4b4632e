//! Questions that a broker passes on to a client: GET_CONSUMER_RUNNING_INFO (307), CONSUME_MESSAGE_DIRECTLY (309),
//! INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223).
//!
//! Invariants:
//! - what the client answers goes back as it is: code, remark and body;
//! - a client that is not connected, too old or too slow is named in the refusal.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use troupemq_codec::loose_json::from_loose;
use troupemq_codec::message::OffsetId;
use troupemq_codec::request::{
    ConsumeMessageDirectly, ConsumeMessageDirectlyHeader, ConsumerStatus, GetConsumerRunningInfo,
    GetConsumerRunningInfoHeader, GetConsumerStatusFromClient, InvokeBrokerToGetConsumerStatusHeader,
};
use troupemq_codec::version::{RESETS_OFFSETS, TELLS_RUNNING_INFO, version_name};
use troupemq_codec::{Command, ResponseCode, Text};

use super::clients::{body, describe};
use crate::cast::BrokerCast;
use crate::net::{Answer, Call, CallError, Link, Refusal};
use crate::query::record;

/// How long a client may take for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long each of several clients may take.
const PATIENCE_EACH: Duration = Duration::from_secs(5);

/// GET_CONSUMER_RUNNING_INFO.
pub async fn running_info(cast: &BrokerCast, call: &Call) -> Answer {
    let header: GetConsumerRunningInfoHeader = call.command.header()?;
    let link = client(cast, &header.group, &header.client_id).await?;
    let request = Command::request::<GetConsumerRunningInfo>(&header);
    pass_on(&link, request, (&header.group, &header.client_id)).await
}

/// CONSUME_MESSAGE_DIRECTLY: the client gets the stored message with the request.
pub async fn consume_directly(cast: &BrokerCast, call: &Call) -> Answer {
    let mut header: ConsumeMessageDirectlyHeader = call.command.header()?;
    let client_id = header.client_id.clone().unwrap_or_default();
    let link = client(cast, &header.group, &client_id).await?;
    let id = header.message_id.clone().unwrap_or_default();
    let found = match id.parse::<OffsetId>() {
        Ok(id) => record(cast, id.log_offset).await?,
        Err(_) => None,
    };
    let Some(record) = found else {
        let remark = format!("no message has the id {id}");
        return Err(Refusal::new(ResponseCode::SYSTEM_ERROR, remark));
    };
    header.broker_name = Some(cast.broker_name.clone());
    if let Some(view) = header.topic.as_ref().and_then(|topic| cast.directory.topic(topic)) {
        header.topic_sys_flag = Some(view.config.topic_sys_flag);
    }
    if let Some(view) = cast.directory.group(&header.group) {
        header.group_sys_flag = Some(view.config().group_sys_flag);
    }
    let request = Command::request::<ConsumeMessageDirectly>(&header).with_body(record);
    pass_on(&link, request, (&header.group, &client_id)).await
}

/// INVOKE_BROKER_TO_GET_CONSUMER_STATUS: asks each client of the group, or the one that is named.
pub async fn consumer_status(cast: &BrokerCast, call: &Call) -> Answer {
    let header: InvokeBrokerToGetConsumerStatusHeader = call.command.header()?;
    let online = describe(cast, &header.group).await?;
    let wanted = header.client_address.clone().filter(|address| !address.is_empty());
    let Some(online) = online else {
        let remark = format!("No Any Consumer online in the consumer group: [{}]", header.group);
        return Err(Refusal::new(ResponseCode::SYSTEM_ERROR, remark));
    };
    let mut status = ConsumerStatus { consumer_table: BTreeMap::new(), ..ConsumerStatus::default() };
    for (link, member) in online.members {
        if member.version < RESETS_OFFSETS {
            return Err(too_old(&header.group, &member.client_id, member.version));
        }
        let Some(link) = cast.directory.link(link) else { continue };
        if wanted.as_ref().is_some_and(|wanted| *wanted != member.client_id) {
            continue;
        }
        let asked = link.call::<GetConsumerStatusFromClient>(&header, Bytes::new(), PATIENCE_EACH).await;
        let told = match asked {
            Ok(answer) if answer.code == ResponseCode::SUCCESS.0 => {
                from_loose::<ConsumerStatus>(&answer.body)?
            }
            Ok(_) | Err(_) => continue,
        };
        status.consumer_table.insert(member.client_id, told.message_queue_table);
        if wanted.is_some() {
            break;
        }
    }
    body(&status)
}

/// The connection of a client of a group that understands such questions.
async fn client(cast: &BrokerCast, group: &Text, client_id: &Text) -> Result<Arc<Link>, Refusal> {
    let members = describe(cast, group).await?.map(|online| online.members).unwrap_or_default();
    let found = members.into_iter().find(|(_, member)| member.client_id == *client_id);
    let absent = || {
        let remark = format!("The Consumer <{group}> <{client_id}> not online");
        Refusal::new(ResponseCode::SYSTEM_ERROR, remark)
    };
    let (link, member) = found.ok_or_else(absent)?;
    if member.version < TELLS_RUNNING_INFO {
        return Err(too_old(group, client_id, member.version));
    }
    cast.directory.link(link).ok_or_else(absent)
}

fn too_old(group: &str, client_id: &str, version: i32) -> Refusal {
    let remark = format!(
        "The Consumer <{group}> <{client_id}> Version <{}> too low to finish, please upgrade it to V3_1_8_SNAPSHOT",
        version_name(version)
    );
    Refusal::new(ResponseCode::SYSTEM_ERROR, remark)
}

async fn pass_on(link: &Link, request: Command, (group, client_id): (&Text, &Text)) -> Answer {
    match link.ask(request, PATIENCE).await {
        Ok(told) => {
            let mut answer = Command::response(ResponseCode(told.code)).with_body(told.body);
            answer.remark = told.remark;
            Ok(answer)
        }
        Err(CallError::TimedOut) => {
            let remark = format!("consumer <{group}> <{client_id}> Timeout: no answer in {PATIENCE:?}");
            Err(Refusal::new(ResponseCode::CONSUME_MSG_TIMEOUT, remark))
        }
        Err(error) => {
            let remark = format!("invoke consumer <{group}> <{client_id}> failed: {error}");
            Err(Refusal::new(ResponseCode::SYSTEM_ERROR, remark))
        }
    }
}
