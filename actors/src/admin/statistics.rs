//! VIEW_BROKER_STATS_DATA (315): sums and rates of the broker, of topics, queues and groups (RocketMQ:
//! `BrokerStatsManager`).
//!
//! Invariants:
//! - what Java 5.3.1 counts is told under its names and keys; its other names have nothing behind them there unless
//!   hooks of a vendor, pop or the replication of another broker count, and do not exist here either;
//! - what was never counted does not exist, with Java's words; a queue that is not counted apart is told the limit.

use troupemq_codec::request::ViewBrokerStatsDataHeader;
use troupemq_codec::{ResponseCode, Text};

use super::clients::body;
use crate::cast::BrokerCast;
use crate::net::{Answer, Call, Refusal};
use crate::stats::rates::{self, Sums};
use crate::topic::TellSums;
use crate::topic::counters::{Key, QUEUES_MAX};
use crate::topic::statistics::Of;

/// Behind the group in the keys of dead letters.
const TO_DEAD_LETTERS: &str = "SEND_BACK_TO_DLQ";
/// Stands for the owner in those keys: who pays is known to nobody.
const NO_OWNER: &str = "null";

/// What is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Wanted {
    /// The whole broker; the cluster that the key has to name, if it has to.
    Broker(Sums, Option<Text>),
    /// A topic, or a part of it.
    Topic(Text, Key, Of),
}

/// VIEW_BROKER_STATS_DATA.
pub async fn stats_data(cast: &BrokerCast, call: &Call) -> Answer {
    let header: ViewBrokerStatsDataHeader = call.command.header()?;
    let mut why = String::new();
    let stats = match wanted(&header.name, &header.key) {
        Some(Wanted::Broker(sums, cluster)) => {
            let is_ours = cluster.is_none_or(|name| cast.config.load().broker_cluster_name == name.as_str());
            if is_ours { cast.sampler.send(rates::TellSums(sums)).await? } else { None }
        }
        Some(Wanted::Topic(topic, key, of)) => {
            let is_high = |queue_id: i32| usize::try_from(queue_id).is_ok_and(|at| at >= QUEUES_MAX);
            if key.queue_id.is_some_and(is_high) {
                why = format!(": queues from {QUEUES_MAX} on are counted with their topic only");
            }
            cast.topics.send(TellSums { topic, key, of }).await?
        }
        None => None,
    };
    match stats {
        Some(stats) => body(&stats),
        None => Err(Refusal::new(
            ResponseCode::SYSTEM_ERROR,
            format!("The stats <{}> <{}> not exist{why}", header.name, header.key),
        )),
    }
}

/// What a name and a key ask about; none if that is nothing.
fn wanted(name: &str, key: &str) -> Option<Wanted> {
    let broker = |sums| Some(Wanted::Broker(sums, Some(Text::from(key))));
    let topic = |of| Some(Wanted::Topic(Text::from(key), Key::default(), of));
    match name {
        "BROKER_PUT_NUMS" => broker(Sums::Puts),
        "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC" => broker(Sums::UsersPuts),
        "BROKER_GET_NUMS" => broker(Sums::Gets),
        "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC" => broker(Sums::UsersGets),
        "CONSUMER_REGISTER_TIME" => broker(Sums::ConsumerBeats),
        "PRODUCER_REGISTER_TIME" => broker(Sums::ProducerBeats),
        "CHANNEL_ACTIVITY" => Some(Wanted::Broker(activity(key)?, None)),
        "TOPIC_PUT_NUMS" => topic(Of::Messages),
        "TOPIC_PUT_SIZE" => topic(Of::Bytes),
        "TOPIC_PUT_LATENCY" => of_queue(key.split_once('@')?, Of::Latency),
        "QUEUE_PUT_NUMS" => of_queue(swapped(key.split_once('@')?), Of::Messages),
        "QUEUE_PUT_SIZE" => of_queue(swapped(key.split_once('@')?), Of::Bytes),
        "QUEUE_GET_NUMS" => of_reader(reader(key, false)?, Of::Messages),
        "QUEUE_GET_SIZE" => of_reader(reader(key, false)?, Of::Bytes),
        // Java leaves the queue out where it counts none (`enableDetailStat=false`).
        "GROUP_GET_LATENCY" => match reader(key, true) {
            Some(reader) => of_reader(reader, Of::Latency),
            None => of_group(key.split_once('@')?, Of::Latency),
        },
        "GROUP_GET_NUMS" => of_group(key.split_once('@')?, Of::Messages),
        "GROUP_GET_SIZE" => of_group(key.split_once('@')?, Of::Bytes),
        "SNDBCK_PUT_NUMS" => of_group(key.split_once('@')?, Of::SentBack),
        "SNDBCK2DLQ_TIMES" => {
            let rest = key.strip_prefix(NO_OWNER)?.strip_prefix('@')?;
            of_group(rest.strip_suffix(TO_DEAD_LETTERS)?.strip_suffix('@')?.split_once('@')?, Of::Dead)
        }
        _ => None,
    }
}

fn activity(key: &str) -> Option<Sums> {
    match key {
        "CONNECT" => Some(Sums::Connects),
        "CLOSE" => Some(Sums::Closes),
        "IDLE" => Some(Sums::IdleEnds),
        "EXCEPTION" => Some(Sums::FailedEnds),
        _ => None,
    }
}

fn swapped<'k>((one, other): (&'k str, &'k str)) -> (&'k str, &'k str) {
    (other, one)
}

/// Queue, topic and group of a key, which begins with the queue or has it behind the topic.
fn reader(key: &str, begins_with_queue: bool) -> Option<(&str, &str, &str)> {
    let (first, rest) = key.split_once('@')?;
    let (second, group) = rest.split_once('@')?;
    Some(if begins_with_queue { (first, second, group) } else { (second, first, group) })
}

fn of_queue((queue_id, topic): (&str, &str), of: Of) -> Option<Wanted> {
    let key = Key { group: None, queue_id: Some(queue_id.parse().ok()?) };
    Some(Wanted::Topic(Text::from(topic), key, of))
}

fn of_reader((queue_id, topic, group): (&str, &str, &str), of: Of) -> Option<Wanted> {
    let key = Key { group: Some(Text::from(group)), queue_id: Some(queue_id.parse().ok()?) };
    Some(Wanted::Topic(Text::from(topic), key, of))
}

fn of_group((topic, group): (&str, &str), of: Of) -> Option<Wanted> {
    Some(Wanted::Topic(Text::from(topic), Key { group: Some(Text::from(group)), queue_id: None }, of))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_of_java_has_its_key_and_the_rest_is_nothing() {
        let of = |group: &str, queue_id: Option<i32>, of| {
            let group = (!group.is_empty()).then(|| Text::from(group));
            Some(Wanted::Topic(Text::from("T"), Key { group, queue_id }, of))
        };
        let broker = |sums| Some(Wanted::Broker(sums, Some(Text::from("C"))));
        for (name, key, meant) in [
            ("BROKER_PUT_NUMS", "C", broker(Sums::Puts)),
            ("BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", "C", broker(Sums::UsersGets)),
            ("PRODUCER_REGISTER_TIME", "C", broker(Sums::ProducerBeats)),
            ("CHANNEL_ACTIVITY", "IDLE", Some(Wanted::Broker(Sums::IdleEnds, None))),
            ("CHANNEL_ACTIVITY", "C", None),
            ("TOPIC_PUT_NUMS", "T", of("", None, Of::Messages)),
            ("TOPIC_PUT_SIZE", "T", of("", None, Of::Bytes)),
            ("TOPIC_PUT_LATENCY", "3@T", of("", Some(3), Of::Latency)),
            ("TOPIC_PUT_LATENCY", "T@3", None),
            ("QUEUE_PUT_NUMS", "T@3", of("", Some(3), Of::Messages)),
            ("QUEUE_PUT_SIZE", "T@3", of("", Some(3), Of::Bytes)),
            ("QUEUE_GET_NUMS", "T@3@G", of("G", Some(3), Of::Messages)),
            ("QUEUE_GET_SIZE", "T@3@G", of("G", Some(3), Of::Bytes)),
            ("GROUP_GET_NUMS", "T@G", of("G", None, Of::Messages)),
            ("GROUP_GET_SIZE", "T@G", of("G", None, Of::Bytes)),
            ("GROUP_GET_LATENCY", "3@T@G", of("G", Some(3), Of::Latency)),
            ("GROUP_GET_LATENCY", "T@G", of("G", None, Of::Latency)),
            ("SNDBCK_PUT_NUMS", "T@G", of("G", None, Of::SentBack)),
            ("SNDBCK2DLQ_TIMES", "null@T@G@SEND_BACK_TO_DLQ", of("G", None, Of::Dead)),
            ("SNDBCK2DLQ_TIMES", "T@G", None),
            ("DLQ_PUT_NUMS", "T@G", None),
            ("GROUP_GET_FROM_DISK_NUMS", "T@G", None),
            ("COMMERCIAL_SEND_TIMES", "owner@T@G@SEND_SUCCESS", None),
            ("GROUP_ACK_NUMS", "T@G", None),
        ] {
            assert_eq!(wanted(name, key), meant, "{name} {key}");
        }
    }
}
