//! Which queues of a topic are a member's own: computed from the list of members, or asked of a broker.
//!
//! Invariants:
//! - a member that its brokers do not know yet has no share, and asks again soon;
//! - a broker that cannot be reached or does not answer is passed over: the next address is asked;
//! - a broker that does not hand out queues (before RocketMQ 5) is no failure: the share is computed then.
//!
//! Deliberately absent: queues that a broker wants popped are refused, this client only pulls.

use bytes::Bytes;
use troupemq_codec::heartbeat_data::MessageModel;
use troupemq_codec::loose_json::{from_loose, to_standard};
use troupemq_codec::request::{
    AssignmentBody, AssignmentReplyBody, ConsumerList, GetConsumerListByGroup, GetConsumerListByGroupHeader,
    QueryAssignment, RequestMode,
};
use troupemq_codec::{NoHeader, Request, ResponseCode, Text};

use super::Settings;
use crate::client::Client;
use crate::client::allocation::share;
use crate::client::error::ClientError;
use crate::client::link::Link;
use crate::client::queue::Queue;

/// How brokers are asked to share queues out.
const STRATEGY: &str = "AVG";

/// The queues of a topic that are this member's.
pub(crate) async fn own(
    client: &Client,
    settings: &Settings,
    topic: &Text,
) -> Result<Vec<Queue>, ClientError> {
    let hub = &client.hub;
    let route = hub.route(topic).await?;
    let queues = route.readable();
    if settings.broadcast {
        return Ok(queues);
    }
    let mut last = ClientError::NoQueue { topic: topic.to_string(), wanted: "reachable" };
    for (_, address) in route.addresses() {
        match told_by(client, settings, topic, (&address, &queues)).await {
            // What one that is away would say, another knows too.
            Err(error) if error.is_transport() => last = error,
            told => return told,
        }
    }
    Err(last)
}

/// The queues that are this member's, as the broker at an address knows it.
async fn told_by(
    client: &Client,
    settings: &Settings,
    topic: &Text,
    (address, queues): (&str, &[Queue]),
) -> Result<Vec<Queue>, ClientError> {
    let hub = &client.hub;
    let link = hub.peers.link_within(address, hub.within).await?;
    if settings.by_broker
        && let Some(own) = asked(client, settings, topic, &link).await?
    {
        return Ok(own);
    }
    let header = GetConsumerListByGroupHeader { group: settings.group.clone() };
    let (_, body) = link.ask::<GetConsumerListByGroup>(&header, Bytes::new(), hub.within).await?;
    let list: ConsumerList =
        from_loose(&body).map_err(|cause| link.malformed::<GetConsumerListByGroup>(cause))?;
    let own = hub.identity.client_id();
    // A broker of a topic that was just found has not heard of this member yet.
    if !list.consumer_id_list.contains(own) {
        return Err(unknown(GetConsumerListByGroup::NAME));
    }
    Ok(share(queues, &list.consumer_id_list, own))
}

/// The share as a broker says it; `None` from one that does not hand out queues.
async fn asked(
    client: &Client,
    settings: &Settings,
    topic: &Text,
    link: &Link,
) -> Result<Option<Vec<Queue>>, ClientError> {
    let body = AssignmentBody {
        client_id: client.hub.identity.client_id().clone(),
        consumer_group: settings.group.clone(),
        message_model: MessageModel::Clustering,
        strategy_name: Some(STRATEGY.into()),
        topic: topic.clone(),
    };
    let answer = link.ask::<QueryAssignment>(&NoHeader, to_standard(&body).into(), client.hub.within).await;
    let body = match answer {
        Ok((_, body)) => body,
        Err(ClientError::Refused { code: ResponseCode::REQUEST_CODE_NOT_SUPPORTED, .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let reply: AssignmentReplyBody =
        from_loose(&body).map_err(|cause| link.malformed::<QueryAssignment>(cause))?;
    let assigned = reply.message_queue_assignments.ok_or_else(|| unknown(QueryAssignment::NAME))?;
    if assigned.iter().any(|queue| queue.mode == RequestMode::Pop) {
        return Err(ClientError::WantsPop {
            address: link.address().to_owned(),
            topic: topic.to_string(),
            group: settings.group.to_string(),
        });
    }
    let queues = assigned.into_iter().map(|assigned| {
        let queue = assigned.message_queue;
        Queue { topic: queue.topic, broker_name: queue.broker_name, queue_id: queue.queue_id }
    });
    Ok(Some(queues.collect()))
}

fn unknown(request: &str) -> ClientError {
    ClientError::Setting { setting: "group", why: format!("{request} does not know this member yet") }
}
