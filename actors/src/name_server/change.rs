//! What tools change at a name server: WIPE_WRITE_PERM_OF_BROKER (205), ADD_WRITE_PERM_OF_BROKER (327),
//! DELETE_TOPIC_IN_NAMESRV (216).
//!
//! Invariants:
//! - a change lasts until a broker registers a newer version of its topics.

use troupemq_codec::request::{
    AddWritePermOfBrokerHeader, AddWritePermOfBrokerReplyHeader, DeleteTopicInNamesrvHeader,
    WipeWritePermOfBrokerHeader, WipeWritePermOfBrokerReplyHeader,
};
use troupemq_codec::{Command, ResponseCode};

use super::registry::{ChangeWritePerm, DeleteTopic};
use crate::cast::NameServerCast;
use crate::net::{Answer, Call};

/// WIPE_WRITE_PERM_OF_BROKER.
pub(super) async fn wipe_write_perm(cast: &NameServerCast, call: &Call) -> Answer {
    let header: WipeWritePermOfBrokerHeader = call.command.header()?;
    let topics = cast.routes.send(ChangeWritePerm { broker: header.broker_name, may_write: false }).await?;
    let reply = WipeWritePermOfBrokerReplyHeader { topics_changed: count(topics) };
    Ok(Command::response(ResponseCode::SUCCESS).with_header(&reply))
}

/// ADD_WRITE_PERM_OF_BROKER.
pub(super) async fn add_write_perm(cast: &NameServerCast, call: &Call) -> Answer {
    let header: AddWritePermOfBrokerHeader = call.command.header()?;
    let topics = cast.routes.send(ChangeWritePerm { broker: header.broker_name, may_write: true }).await?;
    let reply = AddWritePermOfBrokerReplyHeader { topics_changed: count(topics) };
    Ok(Command::response(ResponseCode::SUCCESS).with_header(&reply))
}

/// DELETE_TOPIC_IN_NAMESRV: a success whether there was such a topic or not.
pub(super) async fn delete_topic(cast: &NameServerCast, call: &Call) -> Answer {
    let header: DeleteTopicInNamesrvHeader = call.command.header()?;
    let cluster = header.cluster_name.filter(|cluster| !cluster.is_empty());
    cast.routes.send(DeleteTopic { topic: header.topic, cluster }).await?;
    Ok(Command::response(ResponseCode::SUCCESS))
}

fn count(topics: usize) -> i32 {
    i32::try_from(topics).unwrap_or(i32::MAX)
}
