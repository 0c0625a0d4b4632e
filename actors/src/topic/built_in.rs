//! The topics every broker has from its first start.
//!
//! Invariants:
//! - making them moves no version on, as in Java: a broker that never made a topic has version 0.

use troupemq_codec::Text;
use troupemq_codec::topic::{PERM_INHERIT, PERM_READ, PERM_WRITE, TopicConfig};

use crate::topics::table::{TopicRules, plain};

/// The template of topics that clients make by sending to them.
pub const TEMPLATE: &str = "TBW102";
/// Read, write and serve as a template.
const OPEN: i32 = PERM_READ | PERM_WRITE | PERM_INHERIT;
/// Read and write.
const PLAIN: i32 = PERM_READ | PERM_WRITE;

/// Name of the topic that shows the members of a broker name.
pub fn member_topic(broker: &str) -> Text {
    Text::from(format!("rmq_sys_SYNC_BROKER_MEMBER_{broker}"))
}

/// Name of the topic that keeps the check points of pop.
pub fn revive_topic(cluster: &str) -> Text {
    Text::from(format!("rmq_sys_REVIVE_LOG_{cluster}"))
}

/// Name of the topic that keeps the replies of requests.
pub fn reply_topic(cluster: &str) -> Text {
    Text::from(format!("{cluster}_REPLY_TOPIC"))
}

/// All of them.
pub(crate) fn topics(rules: &TopicRules) -> Vec<TopicConfig> {
    let mut topics = vec![
        built_in("SELF_TEST_TOPIC", 1, PLAIN),
        built_in("BenchmarkTest", 1024, PLAIN),
        built_in(&rules.cluster, 16, OPEN),
        built_in(&rules.broker, 1, OPEN),
        built_in("OFFSET_MOVED_EVENT", 1, PLAIN),
        built_in("SCHEDULE_TOPIC_XXXX", 18, PLAIN),
        built_in("RMQ_SYS_TRACE_TOPIC", 1, PLAIN),
        built_in(&reply_topic(&rules.cluster), 1, PLAIN),
        built_in(&revive_topic(&rules.cluster), rules.revive_queues, PLAIN),
        built_in(&member_topic(&rules.broker), 1, PERM_INHERIT),
        built_in("RMQ_SYS_TRANS_HALF_TOPIC", 1, PLAIN),
        built_in("RMQ_SYS_TRANS_OP_HALF_TOPIC", 1, PLAIN),
        built_in("rmq_sys_wheel_timer", 1, PLAIN),
    ];
    if rules.auto_create {
        topics.push(built_in(TEMPLATE, rules.default_queues, OPEN));
    }
    topics
}

fn built_in(topic: &str, queues: i32, perm: i32) -> TopicConfig {
    TopicConfig { perm, ..plain(topic, queues) }
}
