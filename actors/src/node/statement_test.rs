//! Statements about the broker (4.x), asked one after the other: each request with code and words of its answer.
//!
//! Invariants:
//! - the tables say which statement each row is from; all rows that do not hold are told at once;
//! - every test has its own node, folder and ports.

use std::sync::Arc;

use troupemq_codec::group::SubscriptionGroupConfig;
use troupemq_codec::heartbeat_data::{ConsumerData, MessageModel};
use troupemq_codec::loose_json::{from_loose, to_fastjson};
use troupemq_codec::request::*;
use troupemq_codec::{Command, Text};
use troupemq_store::ManualClock;

use crate::config::{BrokerConfig, BrokerPart, NodeClock};
use crate::node::{Node, NodeHandle};
use crate::testing::{
    Client, beat_request, commit_request, held_pull_header, member_data, pull_header, pull_request,
    reader_of, request, send_request, small_broker, start_broker, start_broker_as, topic_request,
};

/// What a row expects: the code, a part of the remark, and what was not as expected goes here.
struct Rows(Vec<String>);

impl Rows {
    fn ask(&mut self, client: &mut Client, statement: &str, asked: Command, (code, words): (i32, &str)) {
        let answer = client.call_past_notices(asked);
        let remark = answer.remark.as_deref().unwrap_or_default();
        if answer.code != code || !remark.contains(words) {
            let wanted = format!("{code} \"{words}\"");
            self.0.push(format!("{statement}: wanted {wanted}, got {} \"{remark}\"", answer.code));
        }
    }

    fn hold(self) {
        assert!(self.0.is_empty(), "\n{}", self.0.join("\n"));
    }
}

/// A broker that makes no groups by itself, with the topic `T` of some messages and the group `G`.
fn prepared(dir: &std::path::Path) -> (NodeHandle, Client) {
    let node = start_broker_as(dir, |part| part.config.auto_create_subscription_group = false);
    let mut client = Client::of(&node);
    assert_eq!(client.produce("T", 0, b"x", "").code, 0);
    save_group(&mut client, "G", |_| {});
    (node, client)
}

fn save_group(client: &mut Client, name: &str, change: impl FnOnce(&mut SubscriptionGroupConfig)) {
    let mut group = SubscriptionGroupConfig { group_name: Text::from(name), ..Default::default() };
    change(&mut group);
    let asked = request::<UpdateAndCreateSubscriptiongroup>(&Default::default());
    assert_eq!(client.call_past_notices(asked.with_body(to_fastjson(&group).into())).code, 0);
}

/// A pull of a group whose subscription stands in its heart-beat, in that version.
fn pull_of(group: &str, topic: &str, version: i64) -> Command {
    let header = PullMessageHeader {
        group: Text::from(group),
        sys_flag: 0,
        subscription: None,
        subscription_version: version,
        ..pull_header(topic, 0, 0, "*")
    };
    request::<PullMessage>(&header)
}

/// A heart-beat of a member that reads `T`.
fn beat(group: &str, version: i64, message_model: MessageModel) -> Command {
    let consumer = ConsumerData { message_model, ..reader_of(group, "T", version) };
    beat_request(&member_data("client", consumer))
}

fn without(mut asked: Command, key: &str) -> Command {
    asked.fields.remove(key);
    asked
}

#[test]
fn the_checks_of_a_pull_come_in_their_order_with_their_codes() {
    let dir = tempfile::tempdir().unwrap();
    let (_node, mut client) = prepared(dir.path());
    let client = &mut client;
    save_group(client, "Off", |group| group.consume_enable = false);
    save_group(client, "Narrow", |group| group.consume_broadcast_enable = false);
    let of = |group: &str, topic: &str, queue_id| {
        let header = PullMessageHeader { group: Text::from(group), ..pull_header(topic, queue_id, 0, "*") };
        request::<PullMessage>(&header)
    };
    let mut rows = Rows(Vec::new());
    rows.ask(client, "4.5 group before topic", of("Nobody", "Nowhere", 9), (26, "[Nobody] does not exist"));
    rows.ask(client, "4.5 group may not consume", of("Off", "Nowhere", 9), (16, "no permission, Off"));
    rows.ask(client, "4.5 topic before queue", of("G", "Nowhere", 9), (17, "topic[Nowhere] not exist"));
    rows.ask(client, "4.5 queue before subscription", of("G", "T", 99), (29, "queueId[99] is illegal"));
    rows.ask(
        client,
        "4.5 nobody is online",
        pull_of("G", "T", 0),
        (24, "the consumer's group info not exist"),
    );
    rows.ask(client, "4.9 heart-beat", beat("G", 5, MessageModel::Clustering), (0, ""));
    rows.ask(client, "4.5 another topic", pull_of("G", "TBW102", 5), (24, "subscription not exist"));
    rows.ask(client, "4.5 a version that is known", pull_of("G", "T", 5), (0, "FOUND"));
    rows.ask(client, "4.5 an older version", pull_of("G", "T", 4), (0, "FOUND"));
    rows.ask(client, "4.5 a newer version", pull_of("G", "T", 6), (25, "subscription not latest"));
    rows.ask(client, "4.9 broadcasting", beat("Narrow", 1, MessageModel::Broadcasting), (0, ""));
    rows.ask(
        client,
        "4.5 no broadcasting",
        pull_of("Narrow", "T", 1),
        (16, "can not consume by broadcast way"),
    );
    let sql = PullMessageHeader {
        group: Text::from("G"),
        expression_type: Some(Text::from("SQL92")),
        ..pull_header("T", 0, 0, "a >")
    };
    rows.ask(client, "4.5 a text that is no expression", request::<PullMessage>(&sql), (23, ""));
    rows.hold();
}

/// Sends a pull and, behind it, the heart-beat that it needs; the code of the pull's answer.
fn pull_then_beat(client: &mut Client, version: i64) -> i32 {
    let pull = client.send(pull_of("G", "T", version));
    let beaten = client.send(beat("G", version, MessageModel::Clustering));
    let mut answers = std::collections::HashMap::new();
    while answers.len() < 2 {
        let frame = client.receive().expect("an answer comes");
        if frame.is_response() {
            answers.insert(frame.opaque, frame.code);
        }
    }
    assert_eq!(answers[&beaten], 0);
    answers[&pull]
}

/// 4.5: clients of 4.x pull before they heart-beat. Such a pull is told when the heart-beat is there.
#[test]
fn a_pull_that_comes_before_its_heartbeat_is_answered_when_that_has_come() {
    let dir = tempfile::tempdir().unwrap();
    let (node, mut client) = prepared(dir.path());
    assert_eq!(client.call_past_notices(beat("G", 5, MessageModel::Clustering)).code, 0);
    let mut early = Client::of(&node);
    // A machine that takes longer than the pull waits may do so a few times.
    let codes: Vec<i32> = (6..26).map(|version| pull_then_beat(&mut early, version)).collect();
    assert!(codes.contains(&0), "{codes:?}");
    assert!(codes.iter().all(|code| [0, 25].contains(code)), "{codes:?}");
}

#[test]
fn what_is_not_there_is_told_with_rocketmqs_codes_and_words() {
    let dir = tempfile::tempdir().unwrap();
    let (_node, mut client) = prepared(dir.path());
    let client = &mut client;
    let (group, topic) = (|| Text::from("Nobody"), || Text::from("Nowhere"));
    let mut rows = Rows(Vec::new());
    let back = |group: &str, log_offset| {
        request::<ConsumerSendMsgBack>(&ConsumerSendMsgBackHeader {
            log_offset,
            group: Text::from(group),
            ..Default::default()
        })
    };
    rows.ask(client, "4.3 group", back("Nobody", 0), (26, "subscription group not exist, Nobody"));
    rows.ask(client, "4.3 message", back("G", 77), (1, "look message by offset failed, 77"));
    let commit = |group: &str, topic: &str| commit_request(group, topic, 0, 1);
    rows.ask(client, "4.8 commit, group", commit("Nobody", "Nowhere"), (26, "Group Nobody not exist!"));
    rows.ask(client, "4.8 commit, topic", commit("G", "Nowhere"), (17, "Topic Nowhere not exist!"));
    rows.ask(client, "4.8 commit, no queue", without(commit("G", "T"), "queueId"), (29, "queueId"));
    rows.ask(client, "4.8 commit, no offset", without(commit("G", "T"), "commitOffset"), (29, "Offset"));
    let asked = QueryConsumerOffsetHeader {
        group: Text::from("G"),
        topic: Text::from("T"),
        queue_id: 0,
        zero_if_not_found: Some(false),
    };
    let first = "Not found, do not set to zero, maybe this group boot first";
    rows.ask(client, "4.8 progress", request::<QueryConsumerOffset>(&asked), (22, first));
    let members = GetConsumerListByGroupHeader { group: group() };
    let none = "no consumer for this group, Nobody";
    rows.ask(client, "4.8 members", request::<GetConsumerListByGroup>(&members), (1, none));
    let at = ViewMessageByIdHeader { topic: None, log_offset: 77 };
    let none = "can not find message by the offset, 77";
    rows.ask(client, "4.12 by offset", request::<ViewMessageById>(&at), (1, none));
    let key = QueryMessageHeader {
        topic: Text::from("T"),
        key: Text::from("nothing"),
        messages_max: 32,
        begin_timestamp_ms: 0,
        end_timestamp_ms: i64::MAX,
        is_unique_key: None,
    };
    let none = "can not find message, maybe time range not correct";
    rows.ask(client, "4.12 by key", request::<QueryMessage>(&key), (22, none));
    let online = GetConsumerConnectionListHeader { group: group() };
    let none = "the consumer group[Nobody] not online";
    rows.ask(client, "4.18 consumers", request::<GetConsumerConnectionList>(&online), (206, none));
    let online = GetProducerConnectionListHeader { group: group() };
    let none = "the producer group[Nobody] not exist";
    rows.ask(client, "4.18 producers", request::<GetProducerConnectionList>(&online), (1, none));
    let asked = GetTopicStatsInfoHeader { topic: topic() };
    rows.ask(client, "4.18 queues", request::<GetTopicStatsInfo>(&asked), (17, "topic[Nowhere] not exist"));
    let asked = GetTopicConfigHeader { topic: topic(), is_logical: None };
    rows.ask(client, "4.18 topic", request::<GetTopicConfig>(&asked), (17, ""));
    let running = GetConsumerRunningInfoHeader { group: group(), client_id: "me".into(), with_stacks: None };
    let none = "The Consumer <Nobody> <me> not online";
    rows.ask(client, "4.18 client", request::<GetConsumerRunningInfo>(&running), (1, none));
    let gone = DeleteTopicInBrokerHeader { topic: Text::from("SCHEDULE_TOPIC_XXXX") };
    let none = "conflict with system topic";
    rows.ask(client, "4.18 delete", request::<DeleteTopicInBroker>(&gone), (29, none));
    rows.ask(client, "4.2 queue of a send", send_request("T", 99, b"x", ""), (29, "queueId[99] is illegal"));
    rows.hold();
}

// 4.12: LOWER is the first message at a time or later, UPPER the last at it or before, both within the queue.
#[test]
fn offsets_by_time_are_those_around_the_messages_and_stay_within_the_queue() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(1_795_000_000_000));
    let mut config = small_broker(dir.path());
    config.clock = NodeClock(clock.clone());
    let node = Node::start(config).unwrap();
    let mut client = Client::of(&node);
    for _ in 0..3 {
        assert_eq!(client.produce("T", 0, b"x", "").code, 0);
        clock.advance_ms(1000);
    }
    let mut wrong = Vec::new();
    for (after_ms, lower, upper) in
        [(-500, 0, 0), (0, 0, 0), (500, 1, 0), (1000, 1, 1), (1001, 2, 1), (2000, 2, 2), (2500, 3, 2)]
    {
        for (boundary, wanted) in [(Boundary::Lower, lower), (Boundary::Upper, upper)] {
            let header = SearchOffsetByTimestampHeader {
                topic: Text::from("T"),
                queue_id: 0,
                timestamp_ms: 1_795_000_000_000 + after_ms,
                boundary: Some(boundary),
            };
            let answer = client.call(request::<SearchOffsetByTimestamp>(&header));
            let found = answer.fields.get("offset").and_then(|offset| offset.parse::<i64>().ok());
            if found != Some(wanted) {
                wrong.push((after_ms, boundary, wanted, found));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

// 4.16: what a group is that nobody configured, and the groups that are there from the start.
#[test]
fn groups_made_on_use_and_those_of_the_system_are_as_in_java() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    assert_eq!(client.call_past_notices(beat("Made", 1, MessageModel::Clustering)).code, 0);
    let mut config = |name: &str| {
        let header = GetSubscriptiongroupConfigHeader { group: Text::from(name) };
        let answer = client.call_past_notices(request::<GetSubscriptiongroupConfig>(&header));
        assert_eq!(answer.code, 0, "{name}: {:?}", answer.remark);
        from_loose::<SubscriptionGroupConfig>(&answer.body).expect("a group")
    };
    let made = config("Made");
    assert_eq!((made.consume_enable, made.consume_from_min_enable), (true, true));
    assert_eq!((made.consume_broadcast_enable, made.consume_message_orderly), (true, false));
    assert_eq!((made.retry_queue_nums, made.retry_max_times, made.consume_timeout_minute), (1, 16, 15));
    assert_eq!((made.broker_id, made.which_broker_when_consume_slowly, made.group_sys_flag), (0, 1, 0));
    assert!(made.notify_consumer_ids_changed_enable);
    for name in [
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_RMQ_SYS_TRANS",
    ] {
        assert_eq!(config(name).group_name.as_str(), name);
    }
}

/// A half message for `T`.
fn half() -> Command {
    let mut half = send_request("T", 0, b"x", "TRAN_MSG\u{1}true\u{2}PGROUP\u{1}P\u{2}UNIQ_KEY\u{1}U\u{2}");
    half.fields.set("f", "4");
    half
}

fn sql_pull() -> Command {
    let sql = Some(Text::from_static("SQL92"));
    request::<PullMessage>(&PullMessageHeader { expression_type: sql, ..pull_header("T", 0, 0, "a > 1") })
}

// 4.2 steps 4, 7, 13; 4.5.
#[test]
fn settings_that_close_a_way_close_it_with_rocketmqs_codes() {
    let lite = || request::<LitePullMessage>(&pull_header("T", 0, 0, "*"));
    let send = || send_request("New", 0, b"x", "");
    type Change = fn(&mut BrokerConfig);
    let ways: [(&str, Change, Command, (i32, &str)); 6] = [
        ("4.2 4", |config| config.start_accept_send_request_time_stamp = i64::MAX, send(), (1, "until")),
        ("4.2 7", |config| config.auto_create_topic_enable = false, send(), (17, "apply first please!")),
        (
            "4.2 13",
            |config| config.reject_transaction_message = true,
            half(),
            (16, "sending transaction message is forbidden"),
        ),
        ("4.5 R", |config| config.broker_permission = 2, pull_request("T", 0, 0, "*"), (16, "forbidden")),
        ("4.5 361", |config| config.lite_pull_message_enable = false, lite(), (16, "lite pull consumer")),
        ("4.5 SQL", |config| config.enable_property_filter = false, sql_pull(), (1, "by SQL92")),
    ];
    let mut rows = Rows(Vec::new());
    for (statement, change, asked, wanted) in ways {
        let dir = tempfile::tempdir().unwrap();
        let node = start_broker(dir.path());
        assert_eq!(Client::of(&node).produce("T", 0, b"x", "").code, 0);
        node.stop_and_wait().expect("a clean stop");
        let node = start_broker_as(dir.path(), |part| change(&mut part.config));
        rows.ask(&mut Client::of(&node), statement, asked, wanted);
        node.stop_and_wait().expect("a clean stop");
    }
    rows.hold();
}

// 3.1 #16, 4.2 step 5: also on a connection that has sent to the topic before.
#[test]
fn an_ordered_topic_takes_nothing_while_the_broker_may_not_be_written_to() {
    let dir = tempfile::tempdir().unwrap();
    let (_node, mut client) = prepared(dir.path());
    assert_eq!(client.call(topic_request("Ordered", 1, 6, Some(true))).code, 0);
    for (permission, wanted) in [(6, 0), (4, 16), (6, 0)] {
        let setting = format!("brokerPermission={permission}").into_bytes();
        let change = request::<UpdateBrokerConfig>(&Default::default()).with_body(setting.into());
        assert_eq!(client.call(change).code, 0);
        let answer = client.produce("Ordered", 0, b"x", "");
        assert_eq!(answer.code, wanted, "{permission}: {:?}", answer.remark);
        assert_eq!(client.produce("T", 0, b"x", "").code, 0);
    }
}

// 4.5: each 16 sets forbiddenType: 1 broker, 2 group, 3 topic, 4 broadcasting.
#[test]
fn a_pull_that_is_forbidden_says_by_what() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker_as(dir.path(), |part| part.config.lite_pull_message_enable = false);
    let mut client = Client::of(&node);
    for topic in ["T", "Closed"] {
        assert_eq!(client.produce(topic, 0, b"x", "").code, 0);
    }
    save_group(&mut client, "Off", |group| group.consume_enable = false);
    save_group(&mut client, "Narrow", |group| group.consume_broadcast_enable = false);
    assert_eq!(client.call(topic_request("Closed", 4, 2, None)).code, 0);
    assert_eq!(client.call_past_notices(beat("Narrow", 1, MessageModel::Broadcasting)).code, 0);
    let of_group = PullMessageHeader { group: Text::from("Off"), ..pull_header("T", 0, 0, "*") };
    let asked = [
        (request::<LitePullMessage>(&pull_header("T", 0, 0, "*")), "1"),
        (request::<PullMessage>(&of_group), "2"),
        (pull_request("Closed", 0, 0, "*"), "3"),
        (pull_of("Narrow", "T", 1), "4"),
    ];
    for (pull, by) in asked {
        let answer = client.call_past_notices(pull);
        assert_eq!((answer.code, answer.fields.get("forbiddenType")), (16, Some(by)), "{:?}", answer.remark);
    }
}

// 4.6: held for the time of the request, or, if longPollingEnable is off, for shortPollingTimeMills.
#[test]
fn without_long_polling_a_pull_is_held_for_the_short_time_only() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker_as(dir.path(), |BrokerPart { config, .. }| {
        (config.long_polling_enable, config.short_polling_time_mills) = (false, 40);
    });
    let mut client = Client::of(&node);
    assert_eq!(client.produce("T", 0, b"x", "").code, 0);
    // Longer than this client waits for anything.
    let header = held_pull_header("T", 0, 1, "*");
    let header = PullMessageHeader { suspend_timeout_ms: 3_600_000, ..header };
    assert_eq!(client.call(request::<PullMessage>(&header)).code, 19);
}

// 4.9: 35 removes a consumer or a producer at once, and a group that nobody knows is no error.
#[test]
fn who_leaves_by_request_is_gone_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (_node, mut client) = prepared(dir.path());
    assert_eq!(client.call_past_notices(beat("G", 1, MessageModel::Clustering)).code, 0);
    let online = || {
        let header = GetConsumerConnectionListHeader { group: Text::from("G") };
        request::<GetConsumerConnectionList>(&header)
    };
    assert_eq!(client.call_past_notices(online()).code, 0);
    for group in ["Nobody", "G", "G"] {
        let header = UnregisterClientHeader {
            client_id: Text::from("client"),
            consumer_group: Some(Text::from(group)),
            producer_group: None,
        };
        assert_eq!(client.call_past_notices(request::<UnregisterClient>(&header)).code, 0, "{group}");
    }
    assert_eq!(client.call_past_notices(online()).code, 206);
    assert_eq!(client.call_past_notices(pull_of("G", "T", 1)).code, 24);
}
