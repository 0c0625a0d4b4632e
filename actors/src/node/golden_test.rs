//! Conversations that Java's clients had with Java's broker, held with ours over a socket: sends, pulls, queries,
//! heart-beats, groups, offsets.
//!
//! Invariants:
//! - every answer to a request of [`COMPARED`] is compared: code, keys of the extension fields, remark, offsets,
//!   messages, what a JSON body says;
//! - every conversation that was recorded is held here, or stands in [`ELSEWHERE`];
//! - where ours differs it stands in [`DIFFERENCES`], with the reason.

use std::collections::BTreeSet;

use troupemq_codec::Request;
use troupemq_codec::group::SubscriptionGroupConfig;
use troupemq_codec::request::*;

use crate::golden::conversation::{Conversation, Play};
use crate::golden::replay::{Intended, Replay};
use crate::golden::{Frame, conversations};
use crate::testing::block_on;

/// The conversations with nothing special.
const PLAIN: &[&str] = &[
    "broadcast-498",
    "broadcast-531",
    "errors-client-531",
    "litepull-498",
    "litepull-531",
    "litesub-498",
    "litesub-531",
    "orderly-498",
    "orderly-531",
    "orderly-binary-498",
    "orderly-binary-531",
    "producer-498",
    "producer-531",
    "producer-binary-498",
    "producer-binary-531",
    "pull-498",
    "pull-531",
    "push-498",
    "push-531",
    "sql-498",
    "sql-531",
    "sql-bad-498",
    "sql-bad-531",
    "trace-498",
    "trace-531",
];

/// Conversations about times, with the time at which each began, epoch ms.
const TIMED: &[(&str, i64)] = &[("timer-531", 1_795_968_579_187), ("recall-533", 1_795_968_728_083)];

/// Those of tools that send, read and query as clients do. What tools ask as tools is compared in `admin`.
const TOOLS: &[&str] = &[
    "mqadmin-checkMsgSendRT",
    "mqadmin-clusterRT",
    "mqadmin-consumeMessage",
    "mqadmin-consumeMessage-2",
    "mqadmin-printMsg",
    "mqadmin-printMsgByQueue",
    "mqadmin-queryMsgById-2",
    "mqadmin-queryMsgByKey",
    "mqadmin-queryMsgByOffset",
    "mqadmin-queryMsgByUniqueKey",
    "mqadmin-queryMsgTraceById",
    "mqadmin-resetOffsetByTime-3",
    "mqadmin-sendMessage",
    "mqadmin-sendMessage-2",
    "mqadmin-sendMsgStatus",
];

/// Conversations that are held elsewhere, or wait for what they speak about.
const ELSEWHERE: &[&str] = &["pop-push-531", "pop-raw-531", "rpc-498", "rpc-531", "tx-498", "tx-531"];

/// Requests whose answers are compared here; others are sent because later ones presuppose them.
const COMPARED: &[i32] = &[
    SendMessage::CODE,
    SendMessageV2::CODE,
    SendBatchMessage::CODE,
    PullMessage::CODE,
    LitePullMessage::CODE,
    ViewMessageById::CODE,
    QueryMessage::CODE,
    QueryConsumerOffset::CODE,
    UpdateConsumerOffset::CODE,
    SearchOffsetByTimestamp::CODE,
    GetMaxOffset::CODE,
    GetMinOffset::CODE,
    GetEarliestMsgStoretime::CODE,
    HeartBeat::CODE,
    UnregisterClient::CODE,
    ConsumerSendMsgBack::CODE,
    GetConsumerListByGroup::CODE,
    LockBatchMq::CODE,
    UnlockBatchMq::CODE,
    CheckClientConfig::CODE,
    GetConsumerRunningInfo::CODE,
    ConsumeMessageDirectly::CODE,
    RecallMessage::CODE,
    UNKNOWN,
];

/// A number that no request has.
const UNKNOWN: i32 = 9999;

/// Where ours answers otherwise.
const DIFFERENCES: &[Intended] = &[
    ("errors", 5, LATER),
    ("errors", 11, LATER),
    ("errors", 15, LATER),
    ("errors", 17, LATER),
    ("errors", 47, LATER),
    ("errors", 21, "a message without a body is refused as such; Java's answer is an accident"),
    ("errors", 35, ACCIDENT),
    ("errors", 37, ACCIDENT),
    ("errors", 55, "an expression that does not compile is refused; Java returns every message"),
    ("errors", 57, "an unknown type of expression is refused; Java returns every message"),
    ("errors", 97, "an offset within a record is no record; Java's answer is an accident"),
    ("errors", 101, "the missing key is named; Java's answer is an accident"),
    ("push-498", 115, "a pull in front of its heart-beat waits for it a moment; Java refuses it"),
    ("errors", 181, "recalls came with 5.3.2"),
    ("timer-531", 5, HANDLE),
    ("timer-531", 9, HANDLE),
    ("timer-531", 11, HANDLE),
    ("timer-531", 36, EMPTY),
    ("timer-531", 38, EMPTY),
    ("errors", 71, EMPTY),
    ("errors", 73, EMPTY),
    ("errors", 79, "the missing key is named, and releases since 5.3.2 answer 29"),
    ("errors", 185, PARSER),
    ("sql-bad-498", 11, PARSER),
    ("sql-bad-531", 9, PARSER),
    ("orderly-498", 44, EMPTY),
    ("orderly-498", 47, EMPTY),
    ("orderly-binary-498", 42, EMPTY),
    ("orderly-binary-498", 48, EMPTY),
    ("push-498", 30, EMPTY),
    ("trace-498", 26, EMPTY),
    ("trace-531", 28, EMPTY),
    ("sql-498", 36, EMPTY),
    ("producer-531", 16, USED),
    ("producer-binary-498", 18, USED),
    ("producer-binary-531", 18, USED),
];

const HANDLE: &str = "releases since 5.3.2 tell a handle by which a timer can be recalled";
const EMPTY: &str =
    "a new group begins at 0 of an empty queue; with Java's answer it would skip what comes meanwhile";
const PARSER: &str = "the words of the parser are its own";
const USED: &str = "the delay level of Java's broker had been used before";
const LATER: &str = "releases since 5.3.2 answer 29, with the same text";
const ACCIDENT: &str =
    "the missing key is named, with the fields of every answer; Java's answer is an accident";

#[test]
fn clients_are_answered_as_java_answers_them() {
    let mut replay = Replay::new(DIFFERENCES);
    for name in PLAIN.iter().chain(TOOLS) {
        Play::plain(name, COMPARED).hold(&mut replay);
    }
    let config = |config: &mut crate::NodeConfig| {
        config.broker.as_mut().unwrap().config.max_message_size = 65_536;
    };
    Play { config, before: before_errors, ..Play::plain("errors", COMPARED) }.hold(&mut replay);
    for (name, began_ms) in TIMED {
        let config = |config: &mut crate::NodeConfig| {
            config.broker.as_mut().unwrap().config.recall_message_enable = true;
        };
        Play { config, began_ms: Some(*began_ms), ..Play::plain(name, COMPARED) }.hold(&mut replay);
    }
    let batches = |held: &Conversation, _: &[Frame]| {
        held.make_topic_with("FrameBcq", (2, 6), Some("+queue.type=BatchCQ"));
    };
    Play { before: batches, ..Play::plain("batchcq-531", COMPARED) }.hold(&mut replay);
    let compared = replay.end();
    let never: Vec<_> = COMPARED.iter().filter(|code| !compared.contains_key(code)).collect();
    assert!(never.is_empty(), "nobody asked {never:?}");
}

#[test]
fn every_conversation_with_a_client_is_held() {
    let recorded: BTreeSet<String> = conversations("broker")
        .into_iter()
        .filter(|(name, frames)| !name.starts_with("mqadmin-") && !frames.is_empty())
        .map(|(name, _)| name)
        .collect();
    let timed = TIMED.iter().map(|(name, _)| name);
    let held = PLAIN.iter().chain(ELSEWHERE).chain(&["errors", "batchcq-531"]).chain(timed);
    assert_eq!(recorded, held.map(|name| (*name).to_owned()).collect());
}

fn before_errors(held: &Conversation, _: &[Frame]) {
    for (topic, perm) in [("ErrTopic", 6), ("EmptyTopic", 6), ("NoWrite", 4), ("NoRead", 2)] {
        held.make_topic(topic, 2, perm);
    }
    let group = SubscriptionGroupConfig {
        group_name: "no_consume".into(),
        consume_enable: false,
        ..SubscriptionGroupConfig::default()
    };
    let put = held.broker.groups.send(crate::groups::PutGroups(vec![group]));
    block_on(async { put.await.unwrap().unwrap().await.unwrap() }).unwrap();
}
