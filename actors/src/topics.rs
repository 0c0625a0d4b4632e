//! `Topics`: makes topics and publishes their views. Java: `TopicConfigManager`.
//!
//! Invariants:
//! - a topic is in the directory before the request that made it is answered;
//! - nobody else publishes topics.

use std::sync::Arc;

use actix::{Actor, Context, Handler, Message};
use troupemq_codec::topic::TopicConfig;
use troupemq_codec::{ResponseCode, Text};
use troupemq_store::QueueTable;

use crate::config::BrokerConfig;
use crate::directory::{Directory, TopicView};
use crate::net::Refusal;

// ---- messages

/// Wanted by a send or a pull whose topic is unknown: make it from its template if that is allowed.
/// Answered at once with the view, or with why there is none.
#[derive(Debug, Message)]
#[rtype(result = "Result<Arc<TopicView>, Refusal>")]
pub struct EnsureTopic {
    /// The topic wanted.
    pub topic: Text,
    /// The template, usually `TBW102`. A retry or dead-letter topic needs none.
    pub template: Text,
    /// Queues wished; the template's count limits them.
    pub queue_nums: i32,
}

// ---- actor

/// Owner of the topic table.
#[derive(Debug)]
pub struct Topics {
    directory: Arc<Directory>,
    auto_create: bool,
    queue_nums_max: i32,
}

impl Topics {
    /// The owner of the topics in `directory`. Topics that have queues in the store are published.
    pub fn new(directory: Arc<Directory>, config: &BrokerConfig, queues: &QueueTable) -> Topics {
        for name in queues.topics() {
            let count = queues.of_topic(&name).iter().map(|queue| queue.queue_id() + 1).max().unwrap_or(1);
            directory.publish_topic(name.clone(), topic_of(name, count));
        }
        Topics {
            directory,
            auto_create: config.auto_create_topic_enable,
            queue_nums_max: config.default_topic_queue_nums,
        }
    }
}

fn topic_of(name: Text, queue_nums: i32) -> TopicConfig {
    TopicConfig {
        topic_name: name,
        read_queue_nums: queue_nums,
        write_queue_nums: queue_nums,
        ..TopicConfig::default()
    }
}

impl Actor for Topics {
    type Context = Context<Topics>;
}

impl Handler<EnsureTopic> for Topics {
    type Result = Result<Arc<TopicView>, Refusal>;

    fn handle(&mut self, wanted: EnsureTopic, _: &mut Context<Topics>) -> Self::Result {
        if let Some(view) = self.directory.topic(&wanted.topic) {
            return Ok(view);
        }
        let of_group = wanted.topic.starts_with("%RETRY%") || wanted.topic.starts_with("%DLQ%");
        let may_be_made = self.auto_create && &*wanted.template == "TBW102";
        if !of_group && !may_be_made {
            return Err(Refusal::new(
                ResponseCode::TOPIC_NOT_EXIST,
                format!("topic[{}] not exist, apply first please!", wanted.topic),
            ));
        }
        let queue_nums = if of_group { 1 } else { wanted.queue_nums.clamp(1, self.queue_nums_max) };
        let config = topic_of(wanted.topic.clone(), queue_nums);
        Ok(self.directory.publish_topic(wanted.topic, config))
    }
}
