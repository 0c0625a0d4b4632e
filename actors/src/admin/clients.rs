//! Who is connected and what they read: GET_CONSUMER_CONNECTION_LIST (203), GET_PRODUCER_CONNECTION_LIST (204),
//! GET_ALL_PRODUCER_INFO (328), QUERY_TOPIC_CONSUME_BY_WHO (300), QUERY_TOPICS_BY_CONSUMER (343),
//! QUERY_SUBSCRIPTION_BY_CONSUMER (345).
//!
//! Invariants:
//! - a group is online while one of its connections is registered, whatever its offsets say;
//! - a connection that has just been closed is in no list.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde::Serialize;
use troupemq_codec::loose_json::to_fastjson;
use troupemq_codec::request::{
    Connection, ConsumerConnection, GetConsumerConnectionListHeader, GetProducerConnectionListHeader,
    GroupList, ProducerConnection, ProducerInfo, ProducerTable, QuerySubscriptionByConsumerHeader,
    QueryTopicConsumeByWhoHeader, QueryTopicsByConsumerHeader, SubscriptionOfGroup, TopicList,
};
use troupemq_codec::{Command, ResponseCode, Text};

use crate::cast::BrokerCast;
use crate::heartbeat::{AllProducers, ProducersOf};
use crate::net::{Answer, Call, Refusal};
use crate::offsets::{GroupsOfTopic, TopicsOfGroup};
use crate::rebalance::{DescribeGroup, GroupOnline};

/// A success with a body in fastjson's dialect.
pub(crate) fn body(value: &impl Serialize) -> Answer {
    Ok(Command::response(ResponseCode::SUCCESS).with_body(Bytes::from(to_fastjson(value))))
}

/// What administration sees of a group; none when nobody is online.
pub(super) async fn describe(cast: &BrokerCast, group: &str) -> Result<Option<GroupOnline>, Refusal> {
    match cast.directory.group(group) {
        Some(view) => Ok(view.coordinator().send(DescribeGroup).await?),
        None => Ok(None),
    }
}

/// GET_CONSUMER_CONNECTION_LIST.
pub async fn consumer_connections(cast: &BrokerCast, call: &Call) -> Answer {
    let header: GetConsumerConnectionListHeader = call.command.header()?;
    let Some(online) = describe(cast, &header.group).await? else {
        let remark = format!("the consumer group[{}] not online", header.group);
        return Err(Refusal::new(ResponseCode::CONSUMER_NOT_ONLINE, remark));
    };
    let connections = online.members.into_iter().filter_map(|(link, member)| {
        Some(Connection {
            client_addr: Text::from(cast.directory.link(link)?.peer().to_string()),
            client_id: member.client_id,
            language: member.language,
            version: member.version,
        })
    });
    let subscriptions = online.subscriptions.into_iter().map(|data| (data.topic.clone(), data));
    body(&ConsumerConnection {
        connection_set: connections.collect(),
        consume_from_where: online.consume_from_where,
        consume_type: online.consume_type,
        message_model: online.message_model,
        subscription_table: subscriptions.collect(),
    })
}

/// GET_PRODUCER_CONNECTION_LIST.
pub async fn producer_connections(cast: &BrokerCast, call: &Call) -> Answer {
    let header: GetProducerConnectionListHeader = call.command.header()?;
    let producers = cast.heartbeats.send(ProducersOf(header.group.clone())).await?;
    let connections = producers.into_iter().filter_map(|(link, producer)| {
        Some(Connection {
            client_addr: Text::from(cast.directory.link(link)?.peer().to_string()),
            client_id: producer.client_id,
            language: producer.language,
            version: producer.version,
        })
    });
    let connection_set: Vec<_> = connections.collect();
    if connection_set.is_empty() {
        let remark = format!("the producer group[{}] not exist", header.group);
        return Err(Refusal::new(ResponseCode::SYSTEM_ERROR, remark));
    }
    body(&ProducerConnection { connection_set })
}

/// GET_ALL_PRODUCER_INFO.
pub async fn all_producers(cast: &BrokerCast, _: &Call) -> Answer {
    let groups = cast.heartbeats.send(AllProducers).await?;
    let data = groups.into_iter().map(|(group, producers)| {
        let infos = producers.into_iter().filter_map(|(link, producer)| {
            Some(ProducerInfo {
                client_id: producer.client_id,
                language: producer.language,
                last_update_timestamp: producer.seen_ms,
                remote_ip: Text::from(format!("/{}", cast.directory.link(link)?.peer())),
                version: producer.version,
            })
        });
        (group, infos.collect::<Vec<_>>())
    });
    body(&ProducerTable { data: data.filter(|(_, infos)| !infos.is_empty()).collect() })
}

/// QUERY_TOPIC_CONSUME_BY_WHO: groups that subscribe now, and those that have offsets.
pub async fn groups_of_topic(cast: &BrokerCast, call: &Call) -> Answer {
    let header: QueryTopicConsumeByWhoHeader = call.command.header()?;
    let mut groups: BTreeSet<Text> =
        cast.offsets.send(GroupsOfTopic(header.topic.clone())).await?.into_iter().collect();
    for view in cast.directory.groups() {
        if view.online().is_some_and(|online| online.subscriptions.contains_key(&header.topic)) {
            groups.insert(view.name().clone());
        }
    }
    body(&GroupList { group_list: groups.into_iter().collect() })
}

/// QUERY_TOPICS_BY_CONSUMER: topics in which a group has offsets.
pub async fn topics_of_group(cast: &BrokerCast, call: &Call) -> Answer {
    let header: QueryTopicsByConsumerHeader = call.command.header()?;
    let topics = cast.offsets.send(TopicsOfGroup(header.group)).await?;
    let broker_addr = Some(Text::from(cast.advertised.to_string()));
    body(&TopicList { broker_addr, topic_list: topics })
}

/// QUERY_SUBSCRIPTION_BY_CONSUMER.
pub async fn subscription(cast: &BrokerCast, call: &Call) -> Answer {
    let header: QuerySubscriptionByConsumerHeader = call.command.header()?;
    let online = describe(cast, &header.group).await?;
    let subscriptions = online.map(|online| online.subscriptions).unwrap_or_default();
    let subscription_data = subscriptions.into_iter().find(|data| data.topic == header.topic);
    body(&SubscriptionOfGroup { group: header.group, subscription_data, topic: header.topic })
}
