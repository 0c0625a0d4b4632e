//! GET_CONSUMER_LIST_BY_GROUP, LOCK_BATCH_MQ and UNLOCK_BATCH_MQ
//! (RocketMQ: `ConsumerManageProcessor`, `AdminBrokerProcessor`).
//!
//! Invariants:
//! - locking and unlocking never fail: the answer names what the client holds now; a group that is not there is as any
//!   other in this.

use troupemq_codec::loose_json::{from_loose, to_fastjson};
use troupemq_codec::request::{ConsumerList, GetConsumerListByGroupHeader, LockBody, LockReplyBody};
use troupemq_codec::{Command, ResponseCode};

use super::{ClientIds, LockQueues, UnlockQueues};
use crate::cast::BrokerCast;
use crate::groups::{LockAhead, UnlockAhead};
use crate::net::{Answer, Call, Refusal};

/// Answers GET_CONSUMER_LIST_BY_GROUP.
pub async fn consumer_list(cast: &BrokerCast, call: &Call) -> Answer {
    let header: GetConsumerListByGroupHeader = call.command.header()?;
    let client_ids = match cast.directory.group(&header.group) {
        Some(view) => view.coordinator().send(ClientIds).await?,
        None => Vec::new(),
    };
    if client_ids.is_empty() {
        let remark = format!("no consumer for this group, {}", header.group);
        return Err(Refusal::new(ResponseCode::SYSTEM_ERROR, remark));
    }
    let body = ConsumerList { consumer_id_list: client_ids };
    Ok(Command::response(ResponseCode::SUCCESS).with_body(to_fastjson(&body).into()))
}

/// Answers LOCK_BATCH_MQ.
pub async fn lock_batch(cast: &BrokerCast, call: &Call) -> Answer {
    let LockBody { client_id, consumer_group: group, queues, .. } = from_loose(&call.command.body)?;
    let wanted = LockQueues { client_id, queues };
    let made = match cast.directory.group(&group) {
        Some(view) => Err(view),
        None => cast.groups.send(LockAhead(group, wanted.clone())).await?,
    };
    let locked = match made {
        Ok(locked) => locked,
        Err(view) => view.coordinator().send(wanted).await?,
    };
    let reply = to_fastjson(&LockReplyBody { locked });
    Ok(Command::response(ResponseCode::SUCCESS).with_body(reply.into()))
}

/// Answers UNLOCK_BATCH_MQ.
pub async fn unlock_batch(cast: &BrokerCast, call: &Call) -> Answer {
    let LockBody { client_id, consumer_group: group, queues, .. } = from_loose(&call.command.body)?;
    let given = UnlockQueues { client_id, queues };
    let made = match cast.directory.group(&group) {
        Some(view) => Err(view),
        None => cast.groups.send(UnlockAhead(group, given.clone())).await?,
    };
    if let Err(view) = made {
        view.coordinator().send(given).await?;
    }
    Ok(Command::response(ResponseCode::SUCCESS))
}
