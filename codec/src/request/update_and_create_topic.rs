//! UPDATE_AND_CREATE_TOPIC (17): creates or changes a topic.
//!
//! Invariants:
//! - the same configuration again changes no version.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// The topic.
    pub struct UpdateAndCreateTopicHeader {
        topic: Text = "topic",
        /// Template, of no use here.
        default_topic: Text = "defaultTopic",
        read_queue_nums: i32 = "readQueueNums",
        write_queue_nums: i32 = "writeQueueNums",
        perm: i32 = "perm",
        /// `SINGLE_TAG` or `MULTI_TAG`.
        topic_filter_type: Text = "topicFilterType",
        topic_sys_flag: Option<i32> = "topicSysFlag",
        order: Option<bool> = "order",
        /// `+key=value,-key`.
        attributes: Option<Text> = "attributes",
        force: Option<bool> = "force",
    }
}

/// UPDATE_AND_CREATE_TOPIC.
pub struct UpdateAndCreateTopic;

impl Request for UpdateAndCreateTopic {
    const CODE: i32 = 17;
    const NAME: &'static str = "UPDATE_AND_CREATE_TOPIC";
    const TO: Direction = Direction::ClientToBroker;
    type Header = UpdateAndCreateTopicHeader;
    type Reply = NoHeader;
}
