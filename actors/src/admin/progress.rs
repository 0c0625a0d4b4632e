//! How far groups are: GET_CONSUME_STATS (208), GET_BROKER_CONSUME_STATS (317), QUERY_CONSUME_TIME_SPAN (303),
//! QUERY_CORRECTION_OFFSET (308).
//!
//! Invariants:
//! - every readable queue of a topic is told, whether the group has read it or not;
//! - a topic that an online group no longer subscribes to is left out;
//! - store times are read where a page that is not in memory delays nobody else.

use std::collections::BTreeMap;

use troupemq_codec::Text;
use troupemq_codec::request::{
    ConsumeStats, ConsumeStatsList, ConsumeTimeSpans, ConsumedOffset, CorrectionOffsets,
    GetBrokerConsumeStatsHeader, GetConsumeStatsHeader, QueryConsumeTimeSpanHeader,
    QueryCorrectionOffsetHeader, QueueTimeSpan,
};
use troupemq_codec::topic::MessageQueue;
use troupemq_store::consume_queue::stored_ms;
use troupemq_store::{ConsumeQueue, LogReader, QueueTable};

use super::clients::body;
use crate::cast::BrokerCast;
use crate::directory::TopicView;
use crate::net::{Answer, Call, Refusal};
use crate::offsets::{GroupProgress, GroupsOfTopic, TopicProgress, TopicsOfGroup};
use crate::topic::TellSums;
use crate::topic::counters::Key;
use crate::topic::statistics::Of;

/// What a group has done in one topic.
struct InTopic {
    topic: Text,
    queues: BTreeMap<i32, GroupProgress>,
}

/// Where queues and their records are read.
#[derive(Clone)]
struct Source {
    queues: QueueTable,
    log: LogReader,
    broker_name: Text,
    now_ms: i64,
}

/// GET_CONSUME_STATS. An unknown group has an empty table.
pub async fn consume_stats(cast: &BrokerCast, call: &Call) -> Answer {
    let header: GetConsumeStatsHeader = call.command.header()?;
    let named = |text: Option<&Text>| text.filter(|text| !text.is_empty()).cloned();
    let topics = if let Some(list) = named(header.topics.as_ref()) {
        list.split(';').map(Text::from).collect()
    } else if let Some(topic) = named(header.topic.as_ref()) {
        vec![topic]
    } else {
        cast.offsets.send(TopicsOfGroup(header.group.clone())).await?
    };
    let (read, consume_tps) = progress(cast, &header.group, topics).await?;
    let stats = off_the_arbiter(cast, move |source| ConsumeStats {
        consume_tps,
        offset_table: read.iter().flat_map(|one| source.offsets(one)).collect(),
    });
    body(&stats.await?)
}

/// GET_BROKER_CONSUME_STATS: all groups, each topic by itself.
pub async fn broker_consume_stats(cast: &BrokerCast, call: &Call) -> Answer {
    let header: GetBrokerConsumeStatsHeader = call.command.header()?;
    let mut groups: Vec<Text> = cast.directory.groups().iter().map(|view| view.name().clone()).collect();
    groups.sort();
    let mut read = Vec::with_capacity(groups.len());
    for group in groups {
        let mut topics = cast.offsets.send(TopicsOfGroup(group.clone())).await?;
        topics.retain(|topic| {
            cast.directory.topic(topic).is_some_and(|view| view.config.order == header.is_order)
        });
        let mut of_group = Vec::with_capacity(topics.len());
        for topic in topics {
            of_group.push(progress(cast, &group, vec![topic]).await?);
        }
        read.push((group, of_group));
    }
    let broker_addr = Text::from(cast.advertised.to_string());
    let list = off_the_arbiter(cast, move |source| {
        let groups = read.into_iter().map(|(group, topics)| {
            let stats = topics.into_iter().filter(|(read, _)| !read.is_empty());
            let stats = stats.map(|(read, consume_tps)| ConsumeStats {
                consume_tps,
                offset_table: read.iter().flat_map(|one| source.offsets(one)).collect(),
            });
            BTreeMap::from([(group, stats.collect::<Vec<_>>())])
        });
        let consume_stats_list: Vec<_> = groups.collect();
        let all = || consume_stats_list.iter().flat_map(BTreeMap::values).flatten();
        let in_flight = |stats: &ConsumeStats| {
            stats.offset_table.values().map(|queue| queue.pull_offset - queue.consumer_offset).sum::<i64>()
        };
        ConsumeStatsList {
            broker_addr,
            total_diff: all().map(ConsumeStats::total_lag).sum(),
            total_inflight_diff: all().map(in_flight).sum(),
            consume_stats_list,
        }
    });
    body(&list.await?)
}

/// QUERY_CONSUME_TIME_SPAN.
pub async fn time_span(cast: &BrokerCast, call: &Call) -> Answer {
    let header: QueryConsumeTimeSpanHeader = call.command.header()?;
    let view = cast.topic(&header.topic)?;
    let read = of_topic(cast, &header.group, &view).await?;
    let spans = off_the_arbiter(cast, move |source| ConsumeTimeSpans {
        consume_time_span_set: read
            .queues
            .iter()
            .map(|(queue_id, progress)| source.time_span(&read.topic, *queue_id, progress))
            .collect(),
    });
    body(&spans.await?)
}

/// QUERY_CORRECTION_OFFSET: the smallest offset that other groups have committed in each queue, or the largest
/// number there is where the group compared with is behind it.
pub async fn correction(cast: &BrokerCast, call: &Call) -> Answer {
    let header: QueryCorrectionOffsetHeader = call.command.header()?;
    let view = cast.topic(&header.topic)?;
    let left_out: Vec<&str> = header.filter_groups.iter().flat_map(|groups| groups.split(',')).collect();
    let mut smallest: BTreeMap<i32, i64> = BTreeMap::new();
    for group in cast.offsets.send(GroupsOfTopic(header.topic.clone())).await? {
        if left_out.contains(&group.as_str()) {
            continue;
        }
        for (queue_id, progress) in of_topic(cast, &group, &view).await?.queues {
            let Some(committed) = progress.committed else { continue };
            let begins = cast.queues.get(&header.topic, queue_id).map_or(0, |units| units.min_offset());
            // A group that stands before the first message left counts for nothing.
            if committed >= begins {
                let so_far = smallest.entry(queue_id).or_insert(committed);
                *so_far = committed.min(*so_far);
            }
        }
    }
    for (queue_id, progress) in of_topic(cast, &header.compare_group, &view).await?.queues {
        if let (Some(own), Some(offset)) = (progress.committed, smallest.get_mut(&queue_id))
            && *offset > own
        {
            *offset = i64::MAX;
        }
    }
    body(&CorrectionOffsets { correction_offsets: smallest })
}

/// What the group has done in those of the topics that count, and the messages a second it reads there.
async fn progress(
    cast: &BrokerCast,
    group: &Text,
    topics: Vec<Text>,
) -> Result<(Vec<InTopic>, f64), Refusal> {
    let online = cast.directory.group(group).and_then(|view| view.online());
    let is_foreign = |topic: &Text| {
        online.as_ref().is_some_and(|online| {
            !online.subscriptions.is_empty() && !online.subscriptions.contains_key(topic)
        })
    };
    let mut read = Vec::with_capacity(topics.len());
    let mut rate = 0.0;
    for topic in topics {
        let Some(view) = cast.directory.topic(&topic).filter(|_| !is_foreign(&topic)) else { continue };
        read.push(of_topic(cast, group, &view).await?);
        let sums =
            TellSums { topic, key: Key { group: Some(group.clone()), queue_id: None }, of: Of::Messages };
        let counted = cast.topics.send(sums).await?;
        rate += counted.map_or(0.0, |stats| stats.stats_minute.tps);
    }
    Ok((read, rate))
}

async fn of_topic(cast: &BrokerCast, group: &Text, view: &TopicView) -> Result<InTopic, Refusal> {
    let asked = TopicProgress {
        group: group.clone(),
        topic: view.name.clone(),
        queue_count: view.config.read_queue_nums,
    };
    let mut queues = cast.offsets.send(asked).await?;
    for (queue_id, progress) in &mut queues {
        // The owner of offsets does not hear of pulls that merely go on.
        let latest = view.known_queue(*queue_id).and_then(|queue| queue.readers.pulled(group));
        progress.pulled = progress.pulled.map(|told| latest.unwrap_or(told));
    }
    Ok(InTopic { topic: view.name.clone(), queues })
}

/// Runs what reads the store on a thread that may wait.
async fn off_the_arbiter<T: Send + 'static>(
    cast: &BrokerCast,
    read: impl FnOnce(&Source) -> T + Send + 'static,
) -> Result<T, Refusal> {
    let source = Source {
        queues: cast.queues.clone(),
        log: cast.log.clone(),
        broker_name: cast.broker_name.clone(),
        now_ms: cast.now_ms(),
    };
    let reading = actix_rt::task::spawn_blocking(move || read(&source));
    reading.await.map_err(|_| Refusal::gone("the reader"))
}

impl Source {
    fn queue(&self, topic: &Text, queue_id: i32) -> MessageQueue {
        MessageQueue { broker_name: self.broker_name.clone(), queue_id, topic: topic.clone() }
    }

    fn offsets(&self, read: &InTopic) -> Vec<(MessageQueue, ConsumedOffset)> {
        let entry = |(queue_id, progress): (&i32, &GroupProgress)| {
            let units = self.queues.get(&read.topic, *queue_id);
            let consumer_offset = progress.committed.unwrap_or(0).max(0);
            let offsets = ConsumedOffset {
                broker_offset: units.as_ref().map_or(0, |units| units.max_offset()),
                consumer_offset,
                last_timestamp: self.stored_ms(units.as_deref(), consumer_offset - 1).unwrap_or(0),
                pull_offset: progress.pulled.unwrap_or(0).max(consumer_offset),
            };
            (self.queue(&read.topic, *queue_id), offsets)
        };
        read.queues.iter().map(entry).collect()
    }

    fn time_span(&self, topic: &Text, queue_id: i32, progress: &GroupProgress) -> QueueTimeSpan {
        let units = self.queues.get(topic, queue_id);
        let stored_ms = |queue_offset| self.stored_ms(units.as_deref(), queue_offset);
        let (min, max) = units.as_ref().map_or((0, 0), |units| (units.min_offset(), units.max_offset()));
        let consumed = progress.committed.unwrap_or(0);
        // Java's answer for what is not there.
        let min_time_stamp = stored_ms(min).unwrap_or(-1);
        let consume_time_stamp =
            if consumed > 0 { stored_ms(consumed - 1).unwrap_or(-1) } else { min_time_stamp };
        let next_ms = if consumed < max { stored_ms(consumed.max(min)) } else { None };
        QueueTimeSpan {
            consume_time_stamp,
            delay_time: next_ms.map_or(0, |stored_ms| self.now_ms - stored_ms),
            max_time_stamp: stored_ms(max - 1).unwrap_or(-1),
            message_queue: self.queue(topic, queue_id),
            min_time_stamp,
        }
    }

    /// When the message at an offset was stored, in epoch milliseconds.
    fn stored_ms(&self, units: Option<&ConsumeQueue>, queue_offset: i64) -> Option<i64> {
        if queue_offset < 0 {
            return None;
        }
        let units = units?;
        let stored_ms = || match units.read_unit(queue_offset)? {
            Some(unit) => stored_ms(&self.log, &unit),
            None => Ok(None),
        };
        stored_ms().unwrap_or_else(|error| {
            tracing::error!(%error, "when a message was stored cannot be told");
            None
        })
    }
}
