//! What tools ask a broker about topics: UPDATE_AND_CREATE_TOPIC (17), UPDATE_AND_CREATE_TOPIC_LIST (18),
//! GET_ALL_TOPIC_CONFIG (21), DELETE_TOPIC_IN_BROKER (215), GET_SYSTEM_TOPIC_LIST_FROM_BROKER (305),
//! GET_TOPIC_CONFIG (351).
//!
//! Invariants:
//! - a change is answered once it is on disk and published;
//! - the same change again is a success and changes nothing.

use bytes::Bytes;
use troupemq_codec::loose_json::{from_loose, to_fastjson};
use troupemq_codec::request::{
    DeleteTopicInBrokerHeader, GetAllTopicConfigReplyHeader, GetTopicConfigHeader, TopicConfigList,
    TopicList, UpdateAndCreateTopicHeader,
};
use troupemq_codec::topic::{TopicConfig, TopicFilterType};
use troupemq_codec::{Command, ResponseCode, Text};

use crate::cast::BrokerCast;
use crate::net::{Answer, Call, Refusal};
use crate::offsets::{Forget, GroupsOfTopic};
use crate::topic::TopicChange;
use crate::topic::names::RETRY_PREFIX;
use crate::topics::{AllTopics, ChangeTopics, DeleteTopic, SystemTopics};

/// UPDATE_AND_CREATE_TOPIC.
pub async fn update_topic(cast: &BrokerCast, call: &Call) -> Answer {
    let header: UpdateAndCreateTopicHeader = call.command.header()?;
    let config = TopicConfig {
        topic_name: header.topic,
        read_queue_nums: header.read_queue_nums,
        write_queue_nums: header.write_queue_nums,
        perm: header.perm,
        topic_filter_type: filter_type(&header.topic_filter_type)?,
        topic_sys_flag: header.topic_sys_flag.unwrap_or(0),
        order: header.order.unwrap_or(false),
        ..TopicConfig::default()
    };
    let change = TopicChange { config, attributes: header.attributes.unwrap_or_default() };
    cast.topics.send(ChangeTopics(vec![change])).await??;
    Ok(Command::response(ResponseCode::SUCCESS))
}

/// UPDATE_AND_CREATE_TOPIC_LIST: all of them or none.
pub async fn update_topics(cast: &BrokerCast, call: &Call) -> Answer {
    let list: TopicConfigList = from_loose(&call.command.body)?;
    let changes = list.topic_config_list.into_iter().map(|config| {
        // In a list attributes have their sign in the key.
        let pieces = config.attributes.iter().map(|(key, value)| match key.starts_with('-') {
            true => key.to_string(),
            false => format!("+{}={value}", key.trim_start_matches('+')),
        });
        let attributes = Text::from(pieces.collect::<Vec<_>>().join(","));
        TopicChange { config, attributes }
    });
    cast.topics.send(ChangeTopics(changes.collect())).await??;
    Ok(Command::response(ResponseCode::SUCCESS))
}

/// GET_ALL_TOPIC_CONFIG.
pub async fn all_topics(cast: &BrokerCast, _: &Call) -> Answer {
    let snapshot = cast.topics.send(AllTopics).await?;
    let body = to_fastjson(&snapshot.told());
    let answer =
        Command::response(ResponseCode::SUCCESS).with_header(&GetAllTopicConfigReplyHeader::default());
    Ok(answer.with_body(Bytes::from(body)))
}

/// DELETE_TOPIC_IN_BROKER: a success whether there was such a topic or not. The retry topics that groups had for
/// it under pop go with it, and what groups had read of all of them.
pub async fn delete_topic(cast: &BrokerCast, call: &Call) -> Answer {
    let DeleteTopicInBrokerHeader { topic } = call.command.header()?;
    let groups = cast.offsets.send(GroupsOfTopic(topic.clone())).await?;
    let with: Vec<Text> = groups.iter().flat_map(|group| pop_retry_topics(cast, group, &topic)).collect();
    cast.topics.send(DeleteTopic { topic: topic.clone(), with: with.clone() }).await??;
    for gone in std::iter::once(topic).chain(with) {
        cast.offsets.send(Forget::Topic(gone)).await?;
    }
    Ok(Command::response(ResponseCode::SUCCESS))
}

/// The retry topics of a topic under pop. The older form can also be the retry topic of another group: then it
/// stays.
fn pop_retry_topics(cast: &BrokerCast, group: &str, topic: &str) -> Vec<Text> {
    let older = format!("{group}_{topic}");
    let is_group = cast.directory.group(&older).is_some();
    let older = Some(older).filter(|_| !is_group);
    let both = older.into_iter().chain([format!("{group}+{topic}")]);
    both.map(|rest| Text::from(format!("{RETRY_PREFIX}{rest}"))).collect()
}

/// GET_SYSTEM_TOPIC_LIST_FROM_BROKER.
pub async fn system_topics(cast: &BrokerCast, _: &Call) -> Answer {
    let topic_list = cast.topics.send(SystemTopics).await?;
    let body = to_fastjson(&TopicList { broker_addr: None, topic_list });
    Ok(Command::response(ResponseCode::SUCCESS).with_body(Bytes::from(body)))
}

/// GET_TOPIC_CONFIG.
pub async fn topic_config(cast: &BrokerCast, call: &Call) -> Answer {
    let header: GetTopicConfigHeader = call.command.header()?;
    let Some(view) = cast.directory.topic(&header.topic) else {
        let remark = format!("No topic in this broker. topic: {}", header.topic);
        return Err(Refusal::new(ResponseCode::TOPIC_NOT_EXIST, remark));
    };
    let body = to_fastjson(&view.config);
    Ok(Command::response(ResponseCode::SUCCESS).with_body(Bytes::from(body)))
}

fn filter_type(name: &str) -> Result<TopicFilterType, Refusal> {
    match name {
        "SINGLE_TAG" => Ok(TopicFilterType::SingleTag),
        "MULTI_TAG" => Ok(TopicFilterType::MultiTag),
        other => {
            let remark = format!("topicFilterType = [{other}] value invalid");
            Err(Refusal::new(ResponseCode::INVALID_PARAMETER, remark))
        }
    }
}
