//! SQL92 filters of pulls over a socket, and what a poisoned node does.
//!
//! Invariants:
//! - every test has its own node, folder and ports.

use std::collections::BTreeSet;
use std::sync::Arc;

use troupemq_codec::heartbeat_data::{ConsumerData, HeartbeatData, SubscriptionData};
use troupemq_codec::loose_json::to_fastjson;
use troupemq_codec::message::Message;
use troupemq_codec::request::{
    CheckClientBody, CheckClientConfig, HeartBeat, PULL_FILTERS_BY_CLASS, PULL_SUSPENDS, PullMessage,
    PullMessageHeader, PullMessageReplyHeader,
};
use troupemq_codec::{Command, ResponseCode, Text};
use troupemq_store::ManualClock;
use troupemq_store::testing::GoldenStore;

use crate::node::{NodeError, NodeHandle};
use crate::testing::{
    Client, block_on, pull_header, request, start_broker, start_broker_as, start_broker_at,
};

/// A broker that notes what matches which filter.
fn noting_broker(dir: &std::path::Path) -> NodeHandle {
    start_broker_as(dir, |part| {
        part.config.enable_calc_filter_bit_map = true;
        part.store.queue_extension_enabled = true;
    })
}

fn subscription(topic: &str, expression: &str) -> SubscriptionData {
    SubscriptionData {
        topic: Text::from(topic),
        expression_type: Text::from("SQL92"),
        sub_string: Text::from(expression),
        sub_version: 7,
        ..SubscriptionData::default()
    }
}

/// Registers a member of a group, past the notices that the broker sends on its own.
fn beat(client: &mut Client, group: &str, subscription: SubscriptionData) {
    let data = HeartbeatData {
        client_id: Text::from("client"),
        consumer_data_set: vec![ConsumerData {
            group_name: Text::from(group),
            subscription_data_set: vec![subscription],
            ..ConsumerData::default()
        }],
        ..HeartbeatData::default()
    };
    client.send(Command::request::<HeartBeat>(&Default::default()).with_body(to_fastjson(&data).into()));
    while !client.receive().expect("the heartbeat is answered").is_response() {}
}

/// A pull by what the group registered.
fn group_pull(group: &str, topic: &str, queue_id: i32, offset: i64) -> PullMessageHeader {
    let group = Text::from(group);
    PullMessageHeader {
        group,
        sys_flag: 0,
        subscription: None,
        expression_type: Some("SQL92".into()),
        subscription_version: 7,
        ..pull_header(topic, queue_id, offset, "")
    }
}

fn check(client: &mut Client, subscription_data: SubscriptionData) -> Command {
    let body = CheckClientBody { subscription_data, ..CheckClientBody::default() };
    client
        .call(Command::request::<CheckClientConfig>(&Default::default()).with_body(to_fastjson(&body).into()))
}

fn sql_pull(offset: i64, expression: &str) -> PullMessageHeader {
    let expression_type = Some("SQL92".into());
    PullMessageHeader { expression_type, ..pull_header("Sql", 0, offset, expression) }
}

fn bodies(answer: &Command) -> Vec<u8> {
    let messages = Message::decode_all(answer.body.clone()).unwrap();
    messages.iter().map(|message| message.body[0]).collect()
}

fn produce(client: &mut Client, price: u8) {
    let properties = format!("price\u{1}{price}\u{2}");
    assert_eq!(client.produce("Sql", 0, &[price], &properties).code, 0);
}

#[test]
fn a_pull_selects_by_properties() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    (0..10).for_each(|price| produce(&mut client, price));
    let cases: [(&str, &[u8], i64); 3] =
        [("price > 6", &[7, 8, 9], 0), ("price BETWEEN 2 AND 3", &[2, 3], 0), ("price > 99", &[], 20)];
    for (expression, expected, code) in cases {
        let answer = client.call(request::<PullMessage>(&sql_pull(0, expression)));
        assert_eq!((i64::from(answer.code), bodies(&answer)), (code, expected.to_vec()), "{expression}");
        let header: PullMessageReplyHeader = answer.header().unwrap();
        assert_eq!(header.next_offset, 10);
    }
    let broken = client.call(request::<PullMessage>(&sql_pull(0, "price >")));
    assert_eq!(broken.response_code(), ResponseCode::SUBSCRIPTION_PARSE_FAILED);
    assert!(broken.remark.unwrap().ends_with("found the end at line 1, column 8"));
    let by_class = PullMessageHeader { sys_flag: 4 | PULL_FILTERS_BY_CLASS, ..sql_pull(0, "*") };
    let refused = client.call(request::<PullMessage>(&by_class));
    assert_eq!(refused.response_code(), ResponseCode::SUBSCRIPTION_PARSE_FAILED);
    assert!(refused.remark.unwrap().contains("topic[Sql] filters by class"));
}

// 3.7 #64: bad SQL -> heartbeat-time 46 CHECK_CLIENT_CONFIG answers 23 with the parser's text.
#[test]
fn a_broken_expression_is_refused_before_the_consumer_starts_and_its_pulls_say_why() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    produce(&mut client, 1);
    assert_eq!(check(&mut client, subscription("Sql", "price > 6")).code, 0);
    let bomb = format!("{}price > 6{}", "(".repeat(65), ")".repeat(65));
    for (expression, why) in [
        ("price >", "found the end at line 1, column 8"),
        (bomb.as_str(), "nesting deeper than 64 levels at line 1, column 6"),
        (&"a".repeat(65_537), "is 65537 long, at most 65536 is allowed"),
    ] {
        let refused = check(&mut client, subscription("Sql", expression));
        assert_eq!(refused.response_code(), ResponseCode::SUBSCRIPTION_PARSE_FAILED);
        assert!(refused.remark.clone().unwrap().contains(why), "{:?} should tell: {why}", refused.remark);
    }
    let by_class = SubscriptionData { class_filter_mode: true, ..subscription("Sql", "com.example.Filter") };
    assert_eq!(check(&mut client, by_class).response_code(), ResponseCode::SUBSCRIPTION_PARSE_FAILED);
    beat(&mut client, "broken", subscription("Sql", "price >"));
    let refused = client.call(request::<PullMessage>(&group_pull("broken", "Sql", 0, 0)));
    assert_eq!(refused.response_code(), ResponseCode::FILTER_DATA_NOT_EXIST);
    assert!(refused.remark.unwrap().ends_with("found the end at line 1, column 8"));
}

#[test]
fn messages_that_come_while_a_group_is_away_get_its_bits_even_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let node = noting_broker(dir.path());
    let mut client = Client::of(&node);
    produce(&mut client, 1);
    beat(&mut client, "dear", subscription("Sql", "price > 6"));
    node.stop_and_wait().expect("a clean stop");
    let node = noting_broker(dir.path());
    let mut client = Client::of(&node);
    [5, 7, 6].into_iter().for_each(|price| produce(&mut client, price));
    let cast = node.broker().unwrap();
    let filter = cast.filters.find("Sql", "dear", "price > 6").expect("it was saved");
    let queue = cast.queues.get("Sql", 0).unwrap();
    let wants = |offset| filter.may_want(&queue.extension_unit(offset).unwrap());
    assert!(wants(0), "older than the filter: it must be looked at");
    assert_eq!([wants(1), wants(2), wants(3)], [false, true, false]);
    beat(&mut client, "dear", subscription("Sql", "price > 6"));
    let answer = client.call(request::<PullMessage>(&group_pull("dear", "Sql", 0, 0)));
    assert_eq!((bodies(&answer), answer.fields.get("nextBeginOffset")), (vec![7], Some("4")));
}

#[test]
fn the_groups_of_a_store_of_java_get_what_they_got_there() {
    let golden = GoldenStore::unpack("batch-cq");
    let wanted = golden.beside("sql.txt");
    let node = noting_broker(&golden.dir());
    let mut client = Client::of(&node);
    let groups =
        [("cg_sql_1", "price > 30"), ("cg_sql_2", "region IN ('r1', 'r2') AND price BETWEEN 5 AND 50")];
    let mut found = BTreeSet::new();
    for (group, expression) in groups {
        beat(&mut client, group, subscription("GoldSql", expression));
        for queue_id in 0..2 {
            let mut offset = 0;
            loop {
                let answer =
                    client.call(request::<PullMessage>(&group_pull(group, "GoldSql", queue_id, offset)));
                let header: PullMessageReplyHeader = answer.header().unwrap();
                for message in Message::decode_all(answer.body.clone()).unwrap() {
                    found.insert(format!("{group} {queue_id} {}", message.queue_offset));
                }
                offset = header.next_offset;
                if offset >= header.max_offset {
                    break;
                }
            }
        }
    }
    let wanted: BTreeSet<String> = wanted
        .lines()
        .filter_map(|line| {
            Some(line.splitn(4, ' ').take(3).collect::<Vec<_>>().join(" ")).filter(|_| !line.is_empty())
        })
        .collect();
    assert!(wanted.len() > 300, "{}", wanted.len());
    assert_eq!(found, wanted);
}

#[test]
fn one_pull_goes_through_a_bounded_number_of_bytes_and_moves_on() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    let long = format!("long\u{1}{}\u{2}", "x".repeat(30_000));
    (0..100).for_each(|_| assert_eq!(client.produce("Sql", 0, b"x", &long).code, 0));
    let answer = client.call(request::<PullMessage>(&sql_pull(0, "price > 6")));
    let next: i64 = answer.fields.get("nextBeginOffset").unwrap().parse().unwrap();
    assert_eq!((answer.code, next), (20, 70), "2 MiB of properties, 30 KB each");
    let answer = client.call(request::<PullMessage>(&sql_pull(next, "price > 6")));
    assert_eq!((answer.code, answer.fields.get("nextBeginOffset")), (20, Some("100")));
}

#[test]
fn a_held_pull_sleeps_on_through_what_its_sql_does_not_select() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(1_795_000_000_000));
    let node = start_broker_at(&clock, dir.path(), |_| {});
    let (mut producer, mut consumer) = (Client::of(&node), Client::of(&node));
    produce(&mut producer, 1);
    let header = sql_pull(1, "price > 6");
    let sys_flag = header.sys_flag | PULL_SUSPENDS;
    let held = consumer.send(request::<PullMessage>(&PullMessageHeader { sys_flag, ..header.clone() }));
    // Requests of a connection are served in their order: once this is answered the pull is held.
    assert_eq!(consumer.pull("Nowhere", 0, 0, "*").response_code(), ResponseCode::TOPIC_NOT_EXIST);
    (1..6).for_each(|price| produce(&mut producer, price));
    produce(&mut producer, 8);
    let woken = consumer.receive().expect("the pull is woken");
    assert_eq!((woken.opaque, woken.code, bodies(&woken)), (held, 0, vec![8]));
    let header = PullMessageHeader { sys_flag, suspend_timeout_ms: 300, queue_offset: 7, ..header };
    consumer.send(request::<PullMessage>(&header));
    assert_eq!(consumer.pull("Nowhere", 0, 0, "*").response_code(), ResponseCode::TOPIC_NOT_EXIST);
    produce(&mut producer, 2);
    clock.advance_ms(300);
    let late = consumer.receive().expect("an answer at the deadline");
    assert_eq!((late.code, late.fields.get("nextBeginOffset")), (20, Some("8")));
}

#[test]
fn a_broker_that_does_not_filter_by_properties_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker_as(dir.path(), |part| part.config.enable_property_filter = false);
    let mut client = Client::of(&node);
    produce(&mut client, 1);
    let refused = check(&mut client, subscription("Sql", "price > 6"));
    assert_eq!(refused.response_code(), ResponseCode::SYSTEM_ERROR);
    let answer = client.call(request::<PullMessage>(&sql_pull(0, "price > 6")));
    assert_eq!(answer.response_code(), ResponseCode::SYSTEM_ERROR);
    assert!(answer.remark.unwrap().contains("does not support consumer to filter message by SQL92"));
}

#[test]
fn a_poisoned_node_stops_says_why_and_recovers_at_its_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    assert_eq!(Client::of(&node).produce("Kept", 0, b"x", "").code, 0);
    node.broker().unwrap().poison.trip("the test says so");
    let ended = block_on(node.ended()).expect_err("a poisoned node does not end well");
    assert!(matches!(&*ended, NodeError::Poisoned { cause } if cause == "the test says so"));
    assert!(dir.path().join("abort").try_exists().unwrap(), "the next start must recover");
    drop(node);
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    assert_eq!(Message::decode_all(client.pull("Kept", 0, 0, "*").body).unwrap().len(), 1);
}
