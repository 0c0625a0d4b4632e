//! Whether a pull is allowed, and what it selects.
//!
//! Invariants:
//! - the checks come in RocketMQ's order, and the first that fails answers;
//! - `forbiddenType` stands in every NO_PERMISSION answer: 1 broker, 2 group, 3 topic, 4 broadcasting,
//!   5 subscription.

use std::sync::Arc;

use troupemq_codec::filter::{MessageFilter, TagFilter};
use troupemq_codec::request::{LitePullMessage, PULL_FILTERS_BY_CLASS, PULL_HAS_SUBSCRIPTION, PullView};
use troupemq_codec::{Request, ResponseCode, Text};

use crate::cast::BrokerCast;
use crate::directory::{GroupSubscription, GroupView, QueueView, TopicView};
use crate::filters::book::GroupFilter;
use crate::groups::EnsureGroup;
use crate::heartbeat::answers::no_class_filter;
use crate::net::{Link, Refusal};

/// Text at the end of remarks that a user can act on.
const FAQ: &str = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details.";

/// A pull that is allowed.
#[derive(Debug)]
pub struct Resolved {
    /// The topic.
    pub topic: Arc<TopicView>,
    /// The queue.
    pub queue: Arc<QueueView>,
    /// What it selects.
    pub selects: Selects,
}

/// What a pull selects.
#[derive(Debug, Clone)]
pub struct Selects {
    /// Asked about units and messages.
    pub filter: Arc<MessageFilter>,
    /// Asked before a message is looked at, if its queue may keep bits for the group.
    pub bits: Option<Arc<GroupFilter>>,
}

/// A pull that is not.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused {
    /// The answer.
    pub refusal: Refusal,
    /// What forbids it, with NO_PERMISSION.
    pub forbidden_type: Option<i32>,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Refused {
        Refused { refusal, forbidden_type: None }
    }
}

fn forbidden(kind: i32, remark: String) -> Refused {
    let refusal = Refusal::new(ResponseCode::NO_PERMISSION, remark);
    Refused { refusal, forbidden_type: Some(kind) }
}

/// Checks a pull and finds out what it is about.
pub fn resolve(cast: &BrokerCast, link: &Link, code: i32, pull: &PullView<'_>) -> Result<Resolved, Refused> {
    check_broker(cast, code)?;
    let group = check_group(cast, &pull.group)?;
    let topic = cast.directory.topic(&pull.topic).ok_or_else(|| no_topic(&pull.topic))?;
    if !topic.is_readable() {
        return Err(forbidden(3, format!("the topic[{}] pulling message is forbidden", pull.topic)));
    }
    let queue = find_queue(cast, &topic, pull, link)?;
    let selects = select(cast, group.as_deref(), pull)?;
    Ok(Resolved { topic, queue, selects })
}

fn check_broker(cast: &BrokerCast, code: i32) -> Result<(), Refused> {
    let config = cast.config.load();
    if !config.is_readable() {
        let host = cast.advertised.ip();
        return Err(forbidden(1, format!("the broker[{host}] pulling message is forbidden")));
    }
    if code == LitePullMessage::CODE && !config.lite_pull_message_enable {
        let host = cast.advertised.ip();
        return Err(forbidden(1, format!("the broker[{host}] for lite pull consumer is forbidden")));
    }
    Ok(())
}

fn check_group(cast: &BrokerCast, name: &str) -> Result<Option<Arc<GroupView>>, Refused> {
    let Some(group) = cast.directory.group(name) else {
        if cast.config.load().auto_create_subscription_group || cast.directory.is_light(name) {
            // A client that never heart-beats is known by its pulls, so that its commits count. The pull does
            // not wait for it; where the mailbox is full, the next pull asks again.
            let _ = cast.groups.try_send(EnsureGroup(Text::from(name)));
            return Ok(None);
        }
        let remark = format!("subscription group [{name}] does not exist, {FAQ}");
        return Err(Refusal::new(ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST, remark).into());
    };
    if !group.config().consume_enable {
        return Err(forbidden(2, format!("subscription group no permission, {name}")));
    }
    Ok(Some(group))
}

fn no_topic(name: &str) -> Refusal {
    let remark = format!("topic[{name}] not exist, apply first please! {FAQ}");
    Refusal::new(ResponseCode::TOPIC_NOT_EXIST, remark)
}

fn find_queue(
    cast: &BrokerCast,
    topic: &TopicView,
    pull: &PullView<'_>,
    link: &Link,
) -> Result<Arc<QueueView>, Refusal> {
    let illegal = || {
        let remark = format!(
            "queueId[{}] is illegal, topic:[{}] topicConfig.readQueueNums:[{}] consumer:[/{}]",
            pull.queue_id,
            pull.topic,
            topic.config.read_queue_nums,
            link.peer()
        );
        Refusal::new(ResponseCode::INVALID_PARAMETER, remark)
    };
    if pull.queue_id >= topic.config.read_queue_nums {
        return Err(illegal());
    }
    match cast.directory.queue(topic, pull.queue_id, &cast.queues) {
        Ok(queue) => queue.ok_or_else(illegal),
        Err(error) => Err(Refusal::new(ResponseCode::SYSTEM_ERROR, error.to_string())),
    }
}

/// What the pull selects: by the text in it, or by what its group registered.
fn select(cast: &BrokerCast, group: Option<&GroupView>, pull: &PullView<'_>) -> Result<Selects, Refused> {
    if pull.sys_flag & PULL_FILTERS_BY_CLASS != 0 {
        let remark = no_class_filter(&pull.topic);
        return Err(Refusal::new(ResponseCode::SUBSCRIPTION_PARSE_FAILED, remark).into());
    }
    if pull.sys_flag & PULL_HAS_SUBSCRIPTION != 0 {
        let text = pull.subscription.as_deref().unwrap_or(TagFilter::ALL);
        let filter = compile(cast, pull.expression_type.as_deref(), text)?;
        return Ok(Selects { filter, bits: None });
    }
    let missing = |what: &str| {
        Refusal::new(ResponseCode::SUBSCRIPTION_NOT_EXIST, format!("the consumer's {what} not exist{FAQ}"))
    };
    let view = group.ok_or_else(|| missing("group info"))?;
    let online = view.online().ok_or_else(|| missing("group info"))?;
    if online.is_broadcasting && !view.config().consume_broadcast_enable {
        let remark = format!("the consumer group[{}] can not consume by broadcast way", view.name());
        return Err(forbidden(4, remark));
    }
    if view.is_forbidden(&pull.topic) {
        let remark = format!("the consumer group[{}] is forbidden for topic[{}]", view.name(), pull.topic);
        return Err(forbidden(5, remark));
    }
    let Some(subscription) = online.subscriptions.get(&*pull.topic) else {
        return Err(missing("subscription").into());
    };
    if subscription.version < pull.subscription_version {
        let remark = "the consumer's subscription not latest";
        return Err(Refusal::new(ResponseCode::SUBSCRIPTION_NOT_LATEST, remark).into());
    }
    let Some(filter) = subscription.filter.clone() else { return Err(does_not_compile(subscription).into()) };
    check_served(cast, &filter)?;
    let bits = match &*filter {
        MessageFilter::Tags(_) => None,
        MessageFilter::Sql(_) => cast.filters.find(&pull.topic, view.name(), &subscription.expression),
    };
    Ok(Selects { filter, bits })
}

/// Why a subscription that a heartbeat brought has no filter.
fn does_not_compile(subscription: &GroupSubscription) -> Refusal {
    let GroupSubscription { expression_type, expression, .. } = subscription;
    let why = match MessageFilter::compile(Some(expression_type), expression) {
        Err(error) => error.to_string(),
        Ok(_) => "it filters by class, which this broker does not".to_owned(),
    };
    let remark =
        format!("The broker's consumer filter data is not exist!Your expression may be wrong! {why}");
    Refusal::new(ResponseCode::FILTER_DATA_NOT_EXIST, remark)
}

fn compile(cast: &BrokerCast, kind: Option<&str>, text: &str) -> Result<Arc<MessageFilter>, Refusal> {
    let filter = MessageFilter::compile(kind, text).map_err(|error| {
        let remark = format!("parse the consumer's subscription failed: {error}");
        Refusal::new(ResponseCode::SUBSCRIPTION_PARSE_FAILED, remark)
    })?;
    check_served(cast, &filter)?;
    Ok(Arc::new(filter))
}

fn check_served(cast: &BrokerCast, filter: &MessageFilter) -> Result<(), Refusal> {
    if matches!(filter, MessageFilter::Sql(_)) && !cast.config.load().enable_property_filter {
        let remark = "The broker does not support consumer to filter message by SQL92";
        return Err(Refusal::new(ResponseCode::SYSTEM_ERROR, remark));
    }
    Ok(())
}
