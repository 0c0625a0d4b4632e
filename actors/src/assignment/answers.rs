//! QUERY_ASSIGNMENT and SET_MESSAGE_REQUEST_MODE (RocketMQ: `QueryAssignmentProcessor`).
//!
//! Invariants:
//! - what cannot be decided is answered with no list at all: the client keeps what it has;
//! - the members are those of this broker: every client tells every broker of its groups.

use std::time::Duration;

use bytes::Bytes;
use troupemq_codec::heartbeat_data::MessageModel;
use troupemq_codec::loose_json::{from_loose, to_fastjson};
use troupemq_codec::request::{
    AssignmentBody, AssignmentReplyBody, GetRouteinfoByTopic, GetRouteinfoByTopicHeader, QueueAssignment,
    RequestMode, RequestModeBody,
};
use troupemq_codec::route::TopicRouteData;
use troupemq_codec::topic::MessageQueue;
use troupemq_codec::{Command, ResponseCode, Text};
use troupemq_store::light;

use super::routes::readable;
use super::{Known, Learned, ModeOf, QueuesElsewhere, SetMode};
use crate::cast::BrokerCast;
use crate::heartbeat::answers::group_view;
use crate::net::{Answer, Call, Refusal};
use crate::rebalance::ClientIds;
use crate::rebalance::assign::{Strategy, assign, share};
use crate::registrar::Connections;
use crate::topic::names::RETRY_PREFIX;

/// How long a name server may take.
const ASKING: Duration = Duration::from_secs(3);

/// Answers QUERY_ASSIGNMENT.
pub async fn query_assignment(cast: &BrokerCast, call: &Call) -> Answer {
    let wanted: AssignmentBody = from_loose(&call.command.body)?;
    let (mode, share) = mode_of(cast, &wanted).await?;
    let queues = queues_for(cast, &wanted, (mode, share)).await?;
    let assigned = |queue| QueueAssignment { message_queue: queue, mode };
    let assignments = queues.map(|queues| queues.into_iter().map(assigned).collect());
    let body = to_fastjson(&AssignmentReplyBody { message_queue_assignments: assignments });
    Ok(Command::response(ResponseCode::SUCCESS).with_body(body.into()))
}

/// How the group reads the topic, and by how many members a queue is shared when it pops.
async fn mode_of(cast: &BrokerCast, wanted: &AssignmentBody) -> Result<(RequestMode, i32), Refusal> {
    let of = ModeOf { topic: wanted.topic.clone(), group: wanted.consumer_group.clone() };
    if let Some(set) = cast.assignments.send(of).await? {
        return Ok(set);
    }
    if wanted.topic.starts_with(RETRY_PREFIX) {
        return Ok((RequestMode::Pull, 0));
    }
    let config = cast.config.load();
    Ok((config.default_message_request_mode, config.default_pop_share_queue_num))
}

/// The queues that the client is to read; none if that cannot be said.
async fn queues_for(
    cast: &BrokerCast,
    wanted: &AssignmentBody,
    (mode, share_count): (RequestMode, i32),
) -> Result<Option<Vec<MessageQueue>>, Refusal> {
    let Some(mut queues) = queues_of(cast, &wanted.topic).await? else { return Ok(None) };
    queues.sort();
    if wanted.message_model == MessageModel::Broadcasting || !cast.config.load().server_load_balancer_enable {
        return Ok(Some(queues));
    }
    let members = match cast.directory.group(&wanted.consumer_group) {
        Some(view) => view.coordinator().send(ClientIds).await?,
        None => Vec::new(),
    };
    let strategy = wanted.strategy_name.as_deref().and_then(Strategy::from_name);
    let Some(strategy) = strategy.filter(|_| !members.is_empty()) else { return Ok(None) };
    Ok(Some(match mode {
        RequestMode::Pull => assign(strategy, &queues, &members, &wanted.client_id),
        RequestMode::Pop => share(strategy, &queues, &members, (&wanted.client_id, share_count)),
    }))
}

/// All queues of a topic that may be read, on this broker and on others; none without the topic.
async fn queues_of(cast: &BrokerCast, topic: &Text) -> Result<Option<Vec<MessageQueue>>, Refusal> {
    let own =
        |queue_id| MessageQueue { topic: topic.clone(), broker_name: cast.broker_name.clone(), queue_id };
    if light::is_light(topic) {
        return Ok(Some(vec![own(light::QUEUE_ID)]));
    }
    let here = cast.directory.topic(topic);
    let elsewhere = queues_elsewhere(cast, topic).await?;
    if here.is_none() && elsewhere.is_none() {
        return Ok(None);
    }
    let mut queues = elsewhere.unwrap_or_default();
    if let Some(view) = here.filter(|view| view.is_readable()) {
        queues.extend((0..view.config.read_queue_nums).map(own));
    }
    Ok(Some(queues))
}

/// The queues of a topic on other brokers; none if no name server knows the topic, or none can be asked.
async fn queues_elsewhere(cast: &BrokerCast, topic: &Text) -> Result<Option<Vec<MessageQueue>>, Refusal> {
    let age_max_ms = cast.config.load().load_balance_poll_name_server_interval;
    let known = cast.assignments.send(QueuesElsewhere { topic: topic.clone(), age_max_ms }).await?;
    let old = match known {
        Known::Fresh(queues) => return Ok(Some(queues)),
        Known::Old(queues) => Some(queues),
        Known::Unknown => None,
    };
    for link in cast.registrar.send(Connections).await? {
        let header =
            GetRouteinfoByTopicHeader { topic: topic.clone(), ..GetRouteinfoByTopicHeader::default() };
        let Ok(answer) = link.call::<GetRouteinfoByTopic>(&header, Bytes::new(), ASKING).await else {
            continue;
        };
        let queues = match answer.response_code() {
            ResponseCode::SUCCESS => {
                let Ok(route) = from_loose::<TopicRouteData>(&answer.body) else { continue };
                Some(readable(topic, &route, &cast.broker_name))
            }
            ResponseCode::TOPIC_NOT_EXIST => None,
            _ => continue,
        };
        let learned = Learned { topic: topic.clone(), queues: queues.clone() };
        cast.assignments.send(learned).await?;
        return Ok(queues);
    }
    Ok(old)
}

/// Answers SET_MESSAGE_REQUEST_MODE.
pub async fn set_mode(cast: &BrokerCast, call: &Call) -> Answer {
    let mode: RequestModeBody = from_loose(&call.command.body)?;
    let topic = &mode.topic;
    if topic.starts_with(RETRY_PREFIX) {
        return Err(Refusal::new(ResponseCode::NO_PERMISSION, "retry topic is not allowed to set mode"));
    }
    cast.topic(topic)?;
    let group = &mode.consumer_group;
    group_view(cast, group).await.map_err(|_| {
        let remark = format!("subscription group does not exist: {group}");
        Refusal::new(ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST, remark)
    })?;
    let saving = cast.assignments.send(SetMode(mode)).await??;
    saving.await.map_err(|_lost| Refusal::gone("Assignments"))??;
    Ok(Command::response(ResponseCode::SUCCESS))
}
