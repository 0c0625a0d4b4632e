//! What becomes of each property of a message: the table of RocketMQ's names, and what is stored of each.
//!
//! Invariants:
//! - every reserved name stands in the table; what a consumer gets is what is stored;
//! - the values are such that the message waits nowhere.

use troupemq_codec::ResponseCode;
use troupemq_codec::message::{Message, properties as names};

use crate::testing::{Client, start_broker};

/// What is stored of a property that a client sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Becomes {
    /// It stays as it was sent.
    Kept,
    /// It is not stored.
    Dropped,
    /// The broker has its own value for it.
    Replaced(&'static str),
    /// The send is refused with this code.
    Refused(ResponseCode),
}

use Becomes::{Dropped, Kept, Refused, Replaced};

/// The properties of §7.1 in its order, then those that later releases add.
const TABLE: &[(&str, &str, Becomes)] = &[
    (names::KEYS, "k1 k2", Kept),
    (names::TAGS, "A", Kept),
    (names::WAIT, "false", Kept),
    (names::DELAY, "0", Kept),
    (names::TIMER_DELAY_SEC, "0", Kept),
    (names::TIMER_DELAY_MS, "0", Kept),
    (names::TIMER_DELIVER_MS, "1", Kept),
    (names::TIMER_OUT_MS, "1", Kept),
    (names::TIMER_ENQUEUE_MS, "1", Kept),
    (names::TIMER_DEQUEUE_MS, "1", Kept),
    (names::TIMER_ROLL_TIMES, "1", Kept),
    (names::TIMER_DELAY_LEVEL, "1", Kept),
    (names::TIMER_DELETE_UNIQUE_KEY, "key", Kept),
    (names::RETRY_TOPIC, "R", Kept),
    (names::REAL_TOPIC, "R", Kept),
    (names::REAL_QUEUE_ID, "7", Kept),
    (names::TRANSACTION_PREPARED, "false", Kept),
    (names::PRODUCER_GROUP, "g", Kept),
    (names::MIN_OFFSET, "1", Kept),
    (names::MAX_OFFSET, "2", Kept),
    (names::BUYER_ID, "b", Kept),
    (names::TRANSFER_FLAG, "t", Kept),
    (names::CORRECTION_FLAG, "c", Kept),
    (names::MQ2_FLAG, "m", Kept),
    (names::ORIGIN_MESSAGE_ID, "id", Kept),
    (names::RECONSUME_TIME, "3", Kept),
    (names::MAX_RECONSUME_TIMES, "4", Kept),
    (names::MSG_REGION, "elsewhere", Replaced("DefaultRegion")),
    (names::TRACE_ON, "false", Replaced("true")),
    (names::UNIQ_KEY, "unique", Kept),
    (names::EXTEND_UNIQ_INFO, "x", Kept),
    (names::DUP_INFO, "d", Kept),
    (names::CONSUME_START_TIME, "9", Kept),
    (names::INNER_NUM, "2", Refused(ResponseCode::MESSAGE_ILLEGAL)),
    (names::INNER_BASE, "2", Kept),
    (names::CHECK_IMMUNITY_TIME_IN_SECONDS, "30", Kept),
    (names::TRANSACTION_PREPARED_QUEUE_OFFSET, "5", Kept),
    (names::TRANSACTION_ID, "tx", Kept),
    (names::TRANSACTION_CHECK_TIMES, "1", Kept),
    (names::INSTANCE_ID, "i", Kept),
    (names::CORRELATION_ID, "c", Kept),
    (names::REPLY_TO_CLIENT, "client", Kept),
    (names::TTL, "3000", Kept),
    (names::ARRIVE_TIME, "9", Kept),
    (names::PUSH_REPLY_TIME, "9", Kept),
    (names::CLUSTER, "elsewhere", Replaced("DefaultCluster")),
    (names::MSG_TYPE, "reply", Kept),
    (names::POP_CK, "0 1 2", Dropped),
    (names::POP_CK_OFFSET, "1", Kept),
    (names::FIRST_POP_TIME, "1", Kept),
    (names::SHARDING_KEY, "order", Kept),
    (names::FORWARD_QUEUE_ID, "1", Kept),
    (names::REDIRECT, "r", Kept),
    (names::INNER_MULTI_DISPATCH, "%LMQ%a", Kept),
    (names::INNER_MULTI_QUEUE_OFFSET, "1", Kept),
    (names::TRACE_CONTEXT, "trace", Kept),
    (names::BORN_HOST, "1.2.3.4", Kept),
    (names::BORN_TIMESTAMP, "1", Kept),
    (names::DLQ_ORIGIN_TOPIC, "D", Kept),
    (names::DLQ_ORIGIN_MESSAGE_ID, "id", Kept),
    (names::RECORD_CRC, "0000000001", Kept),
    ("__RMQ.TRANSIENT.TOPIC_SYS_FLAG", "1", Dropped),
    ("__RMQ.TRANSIENT.GROUP_SYS_FLAG", "1", Dropped),
    // 5.4 orders by it; up to 5.3.3 it is a property like any other, and here too.
    ("_SYS_MSG_PRIORITY_", "3", Kept),
    ("__LITE_TOPIC", "lite", Kept),
    ("a user's own", "värde 値", Kept),
];

#[test]
fn each_property_is_kept_dropped_replaced_or_refused_as_the_table_says() {
    let dir = tempfile::tempdir().expect("a folder");
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    let mut stored = 0;
    for (name, value, becomes) in TABLE {
        let answer = client.produce("T", 0, b"body", &format!("{name}\u{1}{value}\u{2}"));
        if let Refused(code) = becomes {
            assert_eq!(answer.code, code.0, "{name}");
            continue;
        }
        assert_eq!(answer.code, 0, "{name}: {:?}", answer.remark);
        let message = Message::decode_all(client.pull("T", 0, stored, "*").body).expect("a record").remove(0);
        stored += 1;
        let wanted = match becomes {
            Kept => Some(*value),
            Replaced(own) => Some(*own),
            Dropped | Refused(_) => None,
        };
        assert_eq!(message.properties.get(name), wanted, "{name}");
        let id = message.properties.get(names::UNIQ_KEY).expect("every message has one");
        assert_eq!(answer.fields.get("transactionId"), Some(id), "{name}");
    }
}

#[test]
fn all_of_them_together_are_kept_in_their_order() {
    let dir = tempfile::tempdir().expect("a folder");
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    let kept: Vec<_> = TABLE.iter().filter(|(_, _, becomes)| *becomes == Kept).collect();
    let text: String = kept.iter().map(|(name, value, _)| format!("{name}\u{1}{value}\u{2}")).collect();
    assert_eq!(client.produce("T", 0, b"body", &text).code, 0);
    let message = Message::decode_all(client.pull("T", 0, 0, "*").body).expect("a record").remove(0);
    for (name, value, _) in kept {
        // Of a message that names light queues the offsets are the broker's: without light queues there are none.
        let wanted = Some(*value).filter(|_| *name != names::INNER_MULTI_QUEUE_OFFSET);
        assert_eq!(message.properties.get(name), wanted, "{name}");
    }
}

#[test]
fn every_reserved_name_is_in_the_table() {
    for name in names::RESERVED {
        assert!(TABLE.iter().any(|(known, _, _)| known == name), "{name}");
    }
}
