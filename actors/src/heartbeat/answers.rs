//! HEART_BEAT, UNREGISTER_CLIENT and CHECK_CLIENT_CONFIG (RocketMQ: `ClientManageProcessor`).
//!
//! Invariants:
//! - when a heartbeat is answered, its groups are published: a pull behind it finds them;
//! - a group that may not be made, or is one too many for its connection, is left out; the heartbeat of the others
//!   counts.

use std::sync::Arc;

use troupemq_codec::filter::{MessageFilter, TYPE_TAG};
use troupemq_codec::heartbeat_data::{ConsumerData, HeartbeatData, SubscriptionData};
use troupemq_codec::loose_json::from_loose;
use troupemq_codec::request::{CheckClientBody, HeartBeatReplyHeader, UnregisterClientHeader};
use troupemq_codec::{CodecError, Command, ResponseCode, Text};

use super::clients::{GROUPS_PER_LINK_MAX, LeftOut, Producer};
use super::{ClientBeat, ClientLeft};
use crate::cast::BrokerCast;
use crate::directory::GroupView;
use crate::groups::EnsureGroup;
use crate::net::{Answer, Call, LinkId, Refusal};
use crate::rebalance::members::{Beat, Changed, MEMBERS_MAX, Member};
use crate::rebalance::{MemberBeat, MemberLeft};
use crate::topic::UNIT_SUBSCRIBED;
use crate::topic::names::retry_topic;
use crate::topics::{EnsureGroupTopic, MarkOrdered};

/// Answers HEART_BEAT.
pub async fn heart_beat(cast: &BrokerCast, call: &Call) -> Answer {
    let began = cast.clock().nanos();
    let data: HeartbeatData = from_loose(&call.command.body)?;
    let mut subscription_changed = data.heartbeat_fingerprint == 0;
    let mut consumer_groups = Vec::with_capacity(data.consumer_data_set.len());
    for consumer in &data.consumer_data_set {
        match member_beat(cast, call, &data, consumer).await {
            Ok(changed) => {
                subscription_changed |= changed.fingerprint;
                consumer_groups.push(consumer.group_name.clone());
            }
            Err(refusal) => {
                tracing::warn!(group = %consumer.group_name, client = %data.client_id, remark = refusal.remark,
                    "a consumer group is left out of a heartbeat");
            }
        }
    }
    let client = Producer {
        client_id: data.client_id.clone(),
        language: call.command.language,
        version: call.command.version,
        seen_ms: cast.now_ms(),
    };
    let producer_groups = data.producer_data_set.iter().map(|one| one.group_name.clone()).collect();
    let link = call.link.id();
    let left_out =
        cast.heartbeats.send(ClientBeat { link, client, producer_groups, consumer_groups }).await?;
    leave(cast, link, &left_out).await?;
    let took_ms = cast.clock().nanos().saturating_sub(began) / 1_000_000;
    cast.stats.beat(data.consumer_data_set.len(), data.producer_data_set.len(), took_ms);
    let header =
        HeartBeatReplyHeader { supports_v2: Some(true), subscription_changed: Some(subscription_changed) };
    let answer = Command::response(ResponseCode::SUCCESS).with_header(&header);
    Ok(if left_out.count() == 0 { answer } else { answer.with_remark(too_many(&left_out)) })
}

/// Takes a connection out of the groups that it may not speak for: nobody would when it is gone.
async fn leave(cast: &BrokerCast, link: LinkId, left_out: &LeftOut) -> Result<(), Refusal> {
    for group in &left_out.consumers {
        if let Some(view) = cast.directory.group(group) {
            view.coordinator().send(MemberLeft(link)).await?;
        }
    }
    if left_out.count() > 0 {
        tracing::warn!(link = link.0, remark = too_many(left_out), "groups are left out of a heartbeat");
    }
    Ok(())
}

/// Why groups are left out.
fn too_many(left_out: &LeftOut) -> String {
    let (count, limit) = (left_out.count(), GROUPS_PER_LINK_MAX);
    let first = left_out.consumers.first().or(left_out.producers.first()).map_or("", Text::as_str);
    format!("{count} of its groups, from {first} on, are left out: a connection speaks for {limit} at most")
}

async fn member_beat(
    cast: &BrokerCast,
    call: &Call,
    data: &HeartbeatData,
    consumer: &ConsumerData,
) -> Result<Changed, Refusal> {
    let group = group_view(cast, &consumer.group_name).await?;
    let config = group.config();
    let topic = retry_topic(group.name());
    let order = reads_in_order(cast, consumer);
    match cast.directory.topic(&topic) {
        Some(retry) if order && !retry.config.order => cast.topics.send(MarkOrdered(vec![topic])).await?,
        Some(_) => {}
        None => {
            let sys_flag = if consumer.unit_mode { UNIT_SUBSCRIBED } else { 0 };
            let queue_nums = config.retry_queue_nums;
            cast.topics.send(EnsureGroupTopic { topic, queue_nums, sys_flag, order }).await??;
        }
    }
    let beat = Beat {
        link: call.link.id(),
        member: Member {
            client_id: data.client_id.clone(),
            language: call.command.language,
            version: call.command.version,
        },
        consume_type: consumer.consume_type,
        message_model: consumer.message_model,
        consume_from_where: consumer.consume_from_where,
        subscriptions: (!data.without_sub).then(|| consumer.subscription_data_set.clone()),
        fingerprint: data.heartbeat_fingerprint,
    };
    let changed = group.coordinator().send(MemberBeat(beat)).await?;
    if changed.refused {
        return Err(Refusal::busy(format_args!("{MEMBERS_MAX} connections of the group, its limit")));
    }
    Ok(changed)
}

/// Whether one of the topics that are subscribed is an ordered one: then the retry topic is one too.
fn reads_in_order(cast: &BrokerCast, consumer: &ConsumerData) -> bool {
    let is_ordered = |topic: &Text| cast.directory.topic(topic).is_some_and(|view| view.config.order);
    consumer.subscription_data_set.iter().any(|subscription| is_ordered(&subscription.topic))
}

/// The view of a group, made if that is allowed.
pub async fn group_view(cast: &BrokerCast, name: &Text) -> Result<Arc<GroupView>, Refusal> {
    match cast.directory.group(name) {
        Some(view) => Ok(view),
        None => cast.groups.send(EnsureGroup(name.clone())).await?,
    }
}

/// Answers UNREGISTER_CLIENT.
pub async fn unregister_client(cast: &BrokerCast, call: &Call) -> Answer {
    let header: UnregisterClientHeader = call.command.header()?;
    let named = |group: Option<Text>| group.filter(|name| !name.is_empty());
    let left = ClientLeft {
        link: call.link.id(),
        producer_group: named(header.producer_group),
        consumer_group: named(header.consumer_group),
    };
    if let Some(view) = left.consumer_group.as_ref().and_then(|group| cast.directory.group(group)) {
        view.coordinator().send(MemberLeft(left.link)).await?;
    }
    cast.heartbeats.send(left).await?;
    Ok(Command::response(ResponseCode::SUCCESS))
}

/// Answers CHECK_CLIENT_CONFIG: whether a subscription can be served.
pub fn check_client_config(cast: &BrokerCast, call: &Call) -> Answer {
    let body: CheckClientBody = from_loose(&call.command.body)?;
    check_subscription(cast, &body.subscription_data)?;
    Ok(Command::response(ResponseCode::SUCCESS))
}

/// The answer to a subscription that a class should filter. Java 5.x has no such filters either, and hands out
/// everything.
pub fn no_class_filter(topic: &str) -> String {
    format!(
        "the subscription of topic[{topic}] filters by class, which this broker does not: use tags or SQL92"
    )
}

fn check_subscription(cast: &BrokerCast, subscription: &SubscriptionData) -> Result<(), Refusal> {
    if subscription.class_filter_mode {
        return Err(Refusal::new(
            ResponseCode::SUBSCRIPTION_PARSE_FAILED,
            no_class_filter(&subscription.topic),
        ));
    }
    if matches!(subscription.expression_type.as_str(), "" | TYPE_TAG) {
        return Ok(());
    }
    if !cast.config.load().enable_property_filter {
        return Err(Refusal::new(
            ResponseCode::SYSTEM_ERROR,
            format!(
                "The broker does not support consumer to filter message by {}",
                subscription.expression_type
            ),
        ));
    }
    let compiled = MessageFilter::compile(Some(&subscription.expression_type), &subscription.sub_string);
    let refused =
        |error: CodecError| Refusal::new(ResponseCode::SUBSCRIPTION_PARSE_FAILED, error.to_string());
    compiled.map(drop).map_err(refused)
}
