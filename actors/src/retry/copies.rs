//! Copies of messages that were sent back: what they need, and how they are stored.
//!
//! Invariants:
//! - nothing here waits for the disk on an arbiter: old records are read where that is allowed;
//! - a retry stands in a queue that is written and read in its topic: the group's setting may have grown since the
//!   topic was made;
//! - one copy that cannot be stored holds up no other.

use std::sync::Arc;

use bytes::Bytes;
use troupemq_codec::filter::tags::tags_code_of;
use troupemq_codec::message::properties::{DELAY, RETRY_TOPIC, TAGS};
use troupemq_codec::message::{NewRecord, Properties, RecordView};
use troupemq_codec::request::ConsumerSendMsgBackHeader;
use troupemq_codec::{ResponseCode, Text};

use super::next::{self, Next};
use crate::cast::BrokerCast;
use crate::detour::{Detour, Wish};
use crate::directory::TopicView;
use crate::heartbeat::answers::group_view;
use crate::net::Refusal;
use crate::query::record;
use crate::send::{Own, store};
use crate::topic::UNIT_SUBSCRIBED;
use crate::topic::names::{dead_letter_topic, retry_topic};
use crate::topics::EnsureGroupTopic;

/// A message that is stored again.
#[derive(Debug)]
pub(super) struct Copy {
    /// The record of the message.
    bytes: Bytes,
    /// The group that failed with it.
    group: Text,
    /// Where it goes, at once or in the end.
    topic: Text,
    queue_id: i32,
    next: Next,
    properties: Properties,
    /// Where it waits before.
    detour: Option<Detour>,
}

/// What a message that is sent back needs to be stored again; nothing if its group drops what fails. Waits for nothing
/// if the record is new, and the group and its topic are there.
pub(super) async fn prepare(
    cast: Arc<BrokerCast>,
    header: ConsumerSendMsgBackHeader,
    version: i32,
) -> Result<Option<Copy>, Refusal> {
    let cast = &*cast;
    let group = group_view(cast, &header.group).await.map_err(|_| next::no_group(&header.group))?;
    if !cast.config.load().is_writable() {
        let remark = format!("the broker[{}] sending message is forbidden", cast.advertised.ip());
        return Err(Refusal::new(ResponseCode::NO_PERMISSION, remark));
    }
    let config = group.config();
    if config.retry_queue_nums <= 0 {
        return Ok(None);
    }
    let sys_flag = if header.unit_mode == Some(true) { UNIT_SUBSCRIBED } else { 0 };
    let retry = own_topic(cast, retry_topic(group.name()), (config.retry_queue_nums, sys_flag)).await?;
    let bytes = record(cast, header.log_offset).await?.ok_or_else(|| next::no_message(header.log_offset))?;
    let view = RecordView::parse(&bytes)?;
    next::check(&view)?;
    let max = next::retries_max(config.retry_max_times, header.reconsume_max, version);
    let next = next::of_sent_back(view.reconsume_times(), max, header.delay_level);
    let topic = match next {
        Next::Again(_) => retry,
        Next::GiveUp => own_topic(cast, dead_letter_topic(group.name()), (1, 0)).await?,
    };
    let queues = [config.retry_queue_nums, topic.config.write_queue_nums, topic.config.read_queue_nums];
    let queue_id = next::queue_of(next, view.log_offset(), queues);
    let properties = next::properties_of(&view, next);
    let wish = Wish { level: properties.get(DELAY), tags: properties.get(TAGS), ..Wish::default() };
    let detour = cast.detours.find(&wish, &topic.name, queue_id, cast.now_ms())?;
    let (group, topic) = (group.name().clone(), topic.name.clone());
    Ok(Some(Copy { bytes, group, topic, queue_id, next, properties, detour }))
}

/// The retry or dead-letter topic of a group, made if there is none; one that takes no messages is refused.
async fn own_topic(
    cast: &BrokerCast,
    topic: Text,
    (queue_nums, sys_flag): (i32, i32),
) -> Result<Arc<TopicView>, Refusal> {
    let view = match cast.directory.topic(&topic) {
        Some(view) => view,
        None => {
            let wanted = EnsureGroupTopic { topic: topic.clone(), queue_nums, sys_flag, order: false };
            cast.topics.send(wanted).await??
        }
    };
    if !view.is_writable() {
        let remark = format!("the topic[{topic}] sending message is forbidden");
        return Err(Refusal::new(ResponseCode::NO_PERMISSION, remark));
    }
    Ok(view)
}

/// Stores copies as one batch, and by themselves those behind one that cannot be stored. An outcome for each.
pub(super) async fn store_all<T>(cast: &BrokerCast, batch: &[(Copy, T)]) -> Vec<Result<(), Refusal>> {
    let views: Vec<RecordView<'_>> = batch.iter().map(|(copy, _)| copy.view()).collect();
    let pieces: Vec<[&[u8]; 2]> = batch.iter().map(|(copy, _)| copy.pieces()).collect();
    let parts = batch.iter().zip(&views).zip(&pieces);
    let own: Vec<Own<'_>> = parts.map(|(((copy, _), view), pieces)| copy.own(cast, view, pieces)).collect();
    let mut outcomes = match store(cast, &own).await {
        Ok(stored) => vec![Ok(()); stored.len()],
        Err(_) if own.len() > 1 => Vec::new(),
        Err(refusal) => vec![Err(refusal)],
    };
    for one in own.iter().skip(outcomes.len()) {
        outcomes.push(store(cast, std::slice::from_ref(one)).await.map(drop));
    }
    outcomes
}

impl Copy {
    /// Bytes of the record that it is a copy of.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Counts it as sent back.
    pub(super) fn count(&self, cast: &BrokerCast) {
        let view = self.view();
        let of = view.properties().get(RETRY_TOPIC).unwrap_or(view.topic());
        cast.directory.look_at_topic(of, |view| {
            view.counters.sent_back(&self.group, self.next == Next::GiveUp);
            cast.attend(view);
        });
    }

    fn view(&self) -> RecordView<'_> {
        RecordView::parse(&self.bytes).expect("it was parsed when it was prepared")
    }

    fn pieces(&self) -> [&[u8]; 2] {
        let more = self.detour.as_ref().map_or(&[][..], |detour| &detour.properties);
        [self.properties.encoded(), more]
    }

    fn own<'a>(&'a self, cast: &BrokerCast, view: &RecordView<'a>, pieces: &'a [&'a [u8]]) -> Own<'a> {
        let detour = self.detour.as_ref();
        let record = NewRecord {
            topic: detour.map_or(&self.topic, |detour| detour.topic),
            queue_id: detour.map_or(self.queue_id, |detour| detour.queue.queue_id()),
            flag: view.flag(),
            sys_flag: view.sys_flag(),
            born_timestamp_ms: view.born_timestamp_ms(),
            born_host: view.born_host(),
            store_host: cast.advertised,
            reconsume_times: next::times_after(view.reconsume_times()),
            prepared_log_offset: 0,
            body: view.body(),
            body_crc: Some(view.body_crc().cast_unsigned()),
            properties: pieces,
        };
        let tags_code =
            detour.map_or_else(|| tags_code_of(self.properties.get(TAGS)), |detour| detour.tags_code);
        Own { record, tags_code, keys: None }
    }
}
