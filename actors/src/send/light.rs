//! Light queues that a message names: `INNER_MULTI_DISPATCH`. Java: `MultiDispatch`.
//!
//! Invariants:
//! - the names are looked at when a client sends, the queues are given when the message reaches its topic;
//! - a name that is that of no light queue is refused: with a list that holds one Java's broker stops to dispatch;
//! - what the broker itself stores is never refused for the light queues it names: it is stored without them.

use std::sync::Arc;

use troupemq_codec::ResponseCode;
use troupemq_codec::message::properties::{
    INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET, PROPERTIES_MAX_BYTES,
};
use troupemq_codec::message::{NewRecord, PropertiesView};
use troupemq_store::commit_log::numbering::text_max_bytes;
use troupemq_store::{LightPlace, Numbers, StoreError, light};

use crate::cast::BrokerCast;
use crate::config::BrokerConfig;
use crate::directory::QueueView;
use crate::net::Refusal;
use crate::send::check::illegal;
use crate::send::own::OwnRecord;
use crate::topic::names;

/// Refuses names that no light queue can have.
pub(super) fn check(cast: &BrokerCast, list: Option<&str>) -> Result<(), Refusal> {
    if !cast.store_config.load().dispatches_to_light_queues() {
        return Ok(());
    }
    for name in light::names(list.unwrap_or_default()) {
        if !light::is_light(name) || names::check(name).is_err() {
            let remark = format!(
                "{INNER_MULTI_DISPATCH} names \"{name}\": a light queue is called {}name, of at most {} letters, \
                 digits, %|_-",
                light::PREFIX,
                names::NAME_MAX
            );
            return Err(Refusal::new(ResponseCode::MESSAGE_ILLEGAL, remark));
        }
    }
    Ok(())
}

/// The light queues that a message of `topic` goes to.
pub(super) fn queues(
    cast: &BrokerCast,
    topic: &str,
    list: Option<&str>,
) -> Result<Vec<Arc<QueueView>>, Refusal> {
    let Some(list) = list.filter(|_| cast.store_config.load().dispatches_to_light_queues()) else {
        return Ok(Vec::new());
    };
    if !light::is_source(topic) {
        return Ok(Vec::new());
    }
    check(cast, Some(list))?;
    let open = |name| cast.directory.light_queue(name, &cast.queues).map_err(|error| exceeded(cast, &error));
    light::names(list).map(open).collect()
}

/// The same for a message that may have to wait: then it is given to them when it comes to its topic.
pub(super) fn queues_unless_waiting(
    cast: &BrokerCast,
    topic: &str,
    (list, waits): (Option<&str>, bool),
) -> Result<Vec<Arc<QueueView>>, Refusal> {
    if list.is_none() {
        return Ok(Vec::new());
    }
    if waits { check(cast, list).map(|()| Vec::new()) } else { queues(cast, topic, list) }
}

/// The same for a message of the broker's own, as its pieces of properties say.
pub(super) fn queues_of<'a>(cast: &BrokerCast, record: &impl OwnRecord<'a>) -> Vec<Arc<QueueView>> {
    if !cast.store_config.load().dispatches_to_light_queues() {
        return Vec::new();
    }
    let (topic, pieces) = (record.topic(), record.properties());
    let named = pieces.iter().rev().find_map(|text| PropertiesView(text).get(INNER_MULTI_DISPATCH));
    let opened = queues(cast, topic, named).inspect_err(|refusal| {
        tracing::warn!(topic, remark = refusal.remark, "stored without its light queues");
    });
    let fits =
        |queues: &Vec<_>| record.properties_len() + text_max_bytes(queues.len()) <= PROPERTIES_MAX_BYTES;
    opened.ok().filter(fits).unwrap_or_default()
}

/// What the log is told of them.
pub(super) fn numbers(queues: &[Arc<QueueView>]) -> Numbers {
    Numbers::Light(queues.iter().map(|queue| LightPlace::of(queue.units.clone())).collect())
}

/// Whether a message that names light queues tells offsets, which only the broker gives.
pub(super) fn is_numbered(list: Option<&str>, properties: &[u8]) -> bool {
    list.is_some() && PropertiesView(properties).contains(INNER_MULTI_QUEUE_OFFSET)
}

/// Refuses a record that its offsets in light queues would make too long. As in Java, `maxMessageSize` limits the
/// whole record of such a message.
pub(super) fn check_size(
    config: &BrokerConfig,
    record: &NewRecord<'_>,
    queues: &[Arc<QueueView>],
) -> Result<(), Refusal> {
    if queues.is_empty() {
        return Ok(());
    }
    let text = text_max_bytes(queues.len());
    let max = usize::try_from(config.max_message_size).unwrap_or(0);
    if record.encoded_len() + text > max || record.properties_len() + text > PROPERTIES_MAX_BYTES {
        return Err(illegal(config));
    }
    Ok(())
}

fn exceeded(cast: &BrokerCast, error: &StoreError) -> Refusal {
    let remark = format!(
        "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]broker config enableLmq and enableMultiDispatch, lmq consumeQueue num \
         exceed maxLmqConsumeQueueNum config num, limit {}: {error}",
        cast.store_config.load().light_queues_max
    );
    Refusal::new(ResponseCode::SYSTEM_ERROR, remark)
}
