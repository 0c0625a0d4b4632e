//! The names of the properties that RocketMQ knows.
//!
//! Invariants:
//! - a name stands here once; nowhere else is one written as a literal.
//!
//! RocketMQ's name for it: `MessageConst`.

/// Index keys, separated by one space.
pub const KEYS: &str = "KEYS";
/// What separates several keys.
pub const KEY_SEPARATOR: char = ' ';
/// The tag (for topics of several tags: all of them).
pub const TAGS: &str = "TAGS";
/// `false` if the producer does not wait for flush and replication.
pub const WAIT: &str = "WAIT";
/// Delay level, 1 to 18.
pub const DELAY: &str = "DELAY";
/// Original topic of a message sent back.
pub const RETRY_TOPIC: &str = "RETRY_TOPIC";
/// Target topic of a message in a delay, timer or half topic.
pub const REAL_TOPIC: &str = "REAL_TOPIC";
/// Target queue of a message in a delay, timer or half topic.
pub const REAL_QUEUE_ID: &str = "REAL_QID";
/// `true` on a half message.
pub const TRANSACTION_PREPARED: &str = "TRAN_MSG";
/// Producer group of a transaction.
pub const PRODUCER_GROUP: &str = "PGROUP";
/// Smallest offset of the queue, set by the pulling client.
pub const MIN_OFFSET: &str = "MIN_OFFSET";
/// Largest offset of the queue, set by the pulling client.
pub const MAX_OFFSET: &str = "MAX_OFFSET";
/// Legacy.
pub const BUYER_ID: &str = "BUYER_ID";
/// Id of the first delivery of a message sent back.
pub const ORIGIN_MESSAGE_ID: &str = "ORIGIN_MESSAGE_ID";
/// Legacy.
pub const TRANSFER_FLAG: &str = "TRANSFER_FLAG";
/// Legacy.
pub const CORRECTION_FLAG: &str = "CORRECTION_FLAG";
/// Legacy.
pub const MQ2_FLAG: &str = "MQ2_FLAG";
/// How often a message was consumed again; moved to the header of a send to a retry topic.
pub const RECONSUME_TIME: &str = "RECONSUME_TIME";
/// Region of the broker.
pub const MSG_REGION: &str = "MSG_REGION";
/// `false` if the message is not traced.
pub const TRACE_ON: &str = "TRACE_ON";
/// The producer's unique id: what users call the message id.
pub const UNIQ_KEY: &str = "UNIQ_KEY";
/// Legacy.
pub const EXTEND_UNIQ_INFO: &str = "EXTEND_UNIQ_INFO";
/// How often a message may be consumed again.
pub const MAX_RECONSUME_TIMES: &str = "MAX_RECONSUME_TIMES";
/// When the client began to consume: epoch ms.
pub const CONSUME_START_TIME: &str = "CONSUME_START_TIME";
/// Messages in an inner batch.
pub const INNER_NUM: &str = "INNER_NUM";
/// First queue offset of an inner batch.
pub const INNER_BASE: &str = "INNER_BASE";
/// Legacy.
pub const DUP_INFO: &str = "DUP_INFO";
/// Seconds before the first check of a half message.
pub const CHECK_IMMUNITY_TIME_IN_SECONDS: &str = "CHECK_IMMUNITY_TIME_IN_SECONDS";
/// Queue offset of the half message that this one was appended again for.
pub const TRANSACTION_PREPARED_QUEUE_OFFSET: &str = "TRAN_PREPARED_QUEUE_OFFSET";
/// Transaction id of the producer.
pub const TRANSACTION_ID: &str = "__transactionId__";
/// How often a half message was checked.
pub const TRANSACTION_CHECK_TIMES: &str = "TRANSACTION_CHECK_TIMES";
/// Namespace.
pub const INSTANCE_ID: &str = "INSTANCE_ID";
/// Joins a reply to its request.
pub const CORRELATION_ID: &str = "CORRELATION_ID";
/// Client id that a reply goes to.
pub const REPLY_TO_CLIENT: &str = "REPLY_TO_CLIENT";
/// How long a requester waits: ms.
pub const TTL: &str = "TTL";
/// When a reply reached the client: epoch ms.
pub const ARRIVE_TIME: &str = "ARRIVE_TIME";
/// When the broker pushed a reply: epoch ms.
pub const PUSH_REPLY_TIME: &str = "PUSH_REPLY_TIME";
/// Name of the cluster, added by the broker.
pub const CLUSTER: &str = "CLUSTER";
/// `reply` on a reply.
pub const MSG_TYPE: &str = "MSG_TYPE";
/// Receipt handle of a popped message.
pub const POP_CK: &str = "POP_CK";
/// Part of an old receipt handle.
pub const POP_CK_OFFSET: &str = "POP_CK_OFFSET";
/// When the message was popped first: epoch ms.
pub const FIRST_POP_TIME: &str = "1ST_POP_TIME";
/// What messages of one order share.
pub const SHARDING_KEY: &str = "__SHARDINGKEY";
/// Legacy.
pub const FORWARD_QUEUE_ID: &str = "PROPERTY_FORWARD_QUEUE_ID";
/// Legacy.
pub const REDIRECT: &str = "REDIRECT";
/// Light queues that also get the message, separated by commas.
pub const INNER_MULTI_DISPATCH: &str = "INNER_MULTI_DISPATCH";
/// Offsets in those light queues, in the same order.
pub const INNER_MULTI_QUEUE_OFFSET: &str = "INNER_MULTI_QUEUE_OFFSET";
/// Trace context of the front.
pub const TRACE_CONTEXT: &str = "TRACE_CONTEXT";
/// Relative delivery time: seconds.
pub const TIMER_DELAY_SEC: &str = "TIMER_DELAY_SEC";
/// Relative delivery time: ms.
pub const TIMER_DELAY_MS: &str = "TIMER_DELAY_MS";
/// Absolute delivery time: epoch ms.
pub const TIMER_DELIVER_MS: &str = "TIMER_DELIVER_MS";
/// Delivery time that the broker decided on: epoch ms.
pub const TIMER_OUT_MS: &str = "TIMER_OUT_MS";
/// When the timer took the message: epoch ms.
pub const TIMER_ENQUEUE_MS: &str = "TIMER_ENQUEUE_MS";
/// When the timer delivered the message: epoch ms.
pub const TIMER_DEQUEUE_MS: &str = "TIMER_DEQUEUE_MS";
/// How often the message went round the wheel.
pub const TIMER_ROLL_TIMES: &str = "TIMER_ROLL_TIMES";
/// Unique key of the timed message that this one recalls.
pub const TIMER_DELETE_UNIQUE_KEY: &str = "TIMER_DEL_UNIQKEY";
/// Delay level kept by the timer.
pub const TIMER_DELAY_LEVEL: &str = "TIMER_DELAY_LEVEL";
/// The producer's host as the front saw it.
pub const BORN_HOST: &str = "__BORNHOST";
/// When the producer made the message, as the front saw it: epoch ms.
pub const BORN_TIMESTAMP: &str = "BORN_TIMESTAMP";
/// Topic that a dead letter came from.
pub const DLQ_ORIGIN_TOPIC: &str = "DLQ_ORIGIN_TOPIC";
/// Id that a dead letter had in its topic.
pub const DLQ_ORIGIN_MESSAGE_ID: &str = "DLQ_ORIGIN_MESSAGE_ID";
/// CRC of the whole record, appended by the store.
pub const RECORD_CRC: &str = "__CRC32#";
/// Names that begin so are never stored.
pub const TRANSIENT_PREFIX: &str = "__RMQ.TRANSIENT.";

/// The names that a user may not set: clients refuse them (RocketMQ: `MessageConst.STRING_HASH_SET`).
pub const RESERVED: &[&str] = &[
    TRACE_ON,
    MSG_REGION,
    KEYS,
    TAGS,
    WAIT,
    DELAY,
    RETRY_TOPIC,
    REAL_TOPIC,
    REAL_QUEUE_ID,
    TRANSACTION_PREPARED,
    PRODUCER_GROUP,
    MIN_OFFSET,
    MAX_OFFSET,
    BUYER_ID,
    ORIGIN_MESSAGE_ID,
    TRANSFER_FLAG,
    CORRECTION_FLAG,
    MQ2_FLAG,
    RECONSUME_TIME,
    UNIQ_KEY,
    EXTEND_UNIQ_INFO,
    MAX_RECONSUME_TIMES,
    CONSUME_START_TIME,
    DUP_INFO,
    TRANSACTION_PREPARED_QUEUE_OFFSET,
    POP_CK,
    POP_CK_OFFSET,
    FIRST_POP_TIME,
    INSTANCE_ID,
    CORRELATION_ID,
    REPLY_TO_CLIENT,
    TTL,
    ARRIVE_TIME,
    PUSH_REPLY_TIME,
    CLUSTER,
    MSG_TYPE,
    INNER_MULTI_QUEUE_OFFSET,
    TIMER_DELAY_SEC,
    TIMER_DELAY_MS,
    TIMER_DELIVER_MS,
    TIMER_ENQUEUE_MS,
    TIMER_DEQUEUE_MS,
    TIMER_ROLL_TIMES,
    TIMER_OUT_MS,
    TIMER_DELETE_UNIQUE_KEY,
    TIMER_DELAY_LEVEL,
    BORN_HOST,
    BORN_TIMESTAMP,
    DLQ_ORIGIN_TOPIC,
    DLQ_ORIGIN_MESSAGE_ID,
    RECORD_CRC,
];
