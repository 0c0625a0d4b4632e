//! What a topic may be called (Java: `TopicValidator`).
//!
//! Invariants:
//! - a name is also the name of a folder: the characters allowed can do no harm there;
//! - refusals begin with Java's texts, clients match some of them.

pub use troupemq_codec::topic::{DEAD_LETTER_PREFIX, RETRY_PREFIX};
use troupemq_codec::{ResponseCode, Text};

use crate::net::Refusal;

/// Longest name of a topic, in bytes.
pub const NAME_MAX: usize = 127;
/// Longest name of a topic that a broker makes for a group, in bytes.
pub const GROUP_TOPIC_NAME_MAX: usize = 255;
/// Begins the names of the system's own topics.
const SYSTEM_PREFIX: &str = "rmq_sys_";

/// Topics of the system with a fixed name.
pub const SYSTEM: [&str; 11] = [
    "BenchmarkTest",
    "CHECKPOINT_TOPIC",
    "OFFSET_MOVED_EVENT",
    "RMQ_SYS_TRACE_TOPIC",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "SCHEDULE_TOPIC_XXXX",
    "SELF_TEST_TOPIC",
    "TBW102",
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "rmq_sys_wheel_timer",
];

/// Topics of the system that no client may send to.
const NOT_SENT_TO: [&str; 6] = [
    "OFFSET_MOVED_EVENT",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "SCHEDULE_TOPIC_XXXX",
    "SELF_TEST_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
];

/// Whether the name alone says that a topic is the system's own.
pub fn is_system(topic: &str) -> bool {
    topic.starts_with(SYSTEM_PREFIX) || SYSTEM.contains(&topic)
}

/// Whether no client may send to this topic.
pub fn is_not_sent_to(topic: &str) -> bool {
    NOT_SENT_TO.contains(&topic)
}

/// Whether a topic is made for a group: retry or dead letters.
pub fn is_of_group(topic: &str) -> bool {
    topic.starts_with(RETRY_PREFIX) || topic.starts_with(DEAD_LETTER_PREFIX)
}

/// The topic to which failed messages of a group go.
pub fn retry_topic(group: &str) -> Text {
    Text::from(format!("{RETRY_PREFIX}{group}"))
}

/// The topic to which goes what a group has given up.
pub fn dead_letter_topic(group: &str) -> Text {
    Text::from(format!("{DEAD_LETTER_PREFIX}{group}"))
}

/// Refuses a name that no client may use.
pub fn check(topic: &str) -> Result<(), Refusal> {
    check_within(topic, if is_of_group(topic) { GROUP_TOPIC_NAME_MAX } else { NAME_MAX }, is_allowed)
}

/// Refuses a name that a broker may not use for a topic of a group.
pub fn check_of_group(topic: &str) -> Result<(), Refusal> {
    // The second form of pop's retry topics is `%RETRY%group+topic`.
    check_within(topic, GROUP_TOPIC_NAME_MAX, |c| is_allowed(c) || c == b'+')
}

/// The refusal of a name that is the system's own.
pub fn conflict(topic: &str) -> Refusal {
    refusal(format!("The topic[{topic}] is conflict with system topic."))
}

/// The refusal of a name that is none.
pub fn blank() -> Refusal {
    refusal("The specified topic is blank.".to_owned())
}

fn is_allowed(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'%' | b'|' | b'-' | b'_')
}

fn check_within(topic: &str, len_max: usize, is_allowed: impl Fn(u8) -> bool) -> Result<(), Refusal> {
    if topic.trim().is_empty() {
        return Err(blank());
    }
    if !topic.bytes().all(is_allowed) {
        let allowed = "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$";
        let shown: String = topic.chars().take(len_max).collect();
        return Err(refusal(format!("{allowed}: it is [{shown}]")));
    }
    if topic.len() > len_max {
        let len = topic.len();
        let remark = "The specified topic is longer than topic max length.";
        return Err(refusal(format!("{remark} It has {len} bytes, at most {len_max} are allowed.")));
    }
    Ok(())
}

fn refusal(remark: String) -> Refusal {
    Refusal::new(ResponseCode::INVALID_PARAMETER, remark)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remark(topic: &str) -> Option<String> {
        check(topic).err().map(|refusal| refusal.remark)
    }

    #[test]
    fn a_name_has_the_characters_and_length_that_java_allows() {
        for name in ["T", "a-b_C|9%", "%RETRY%g", &"x".repeat(127), &format!("%RETRY%{}", "x".repeat(248))] {
            assert_eq!(remark(name), None, "{name}");
        }
        assert_eq!(remark("").as_deref(), Some("The specified topic is blank."));
        assert_eq!(remark("  ").as_deref(), Some("The specified topic is blank."));
        for name in ["a.b", "a/b", "..", "a b", "ä", "a\0"] {
            assert!(remark(name).is_some_and(|remark| remark.contains("illegal characters")), "{name}");
        }
        assert!(check("%RETRY%g+T").is_err() && check_of_group("%RETRY%g+T").is_ok());
        let long = |has: usize, most: usize| {
            let java = "The specified topic is longer than topic max length.";
            Some(format!("{java} It has {has} bytes, at most {most} are allowed."))
        };
        assert_eq!(remark(&"x".repeat(128)), long(128, 127));
        assert_eq!(remark(&format!("%DLQ%{}", "x".repeat(251))), long(256, 255));
    }

    #[test]
    fn the_system_has_fixed_names_and_a_prefix() {
        assert!(is_system("TBW102") && is_system("rmq_sys_anything") && !is_system("T"));
        assert!(is_not_sent_to("SCHEDULE_TOPIC_XXXX") && !is_not_sent_to("TBW102"));
    }
}
