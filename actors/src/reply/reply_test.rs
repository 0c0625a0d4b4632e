//! Replies between plain sockets: what the requester is handed and what the replier hears.
//!
//! Invariants:
//! - requester and replier have a connection each, so that what one hears is not mixed with what the other hears.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use troupemq_codec::heartbeat_data::{ConsumerData, HeartbeatData, ProducerData};
use troupemq_codec::loose_json::to_fastjson;
use troupemq_codec::message::{PropertiesView, RecordView};
use troupemq_codec::request::*;
use troupemq_codec::{Command, Request, Text};

use crate::golden::conversation;
use crate::node::NodeHandle;
use crate::testing::{Client, request, start_broker_as};

const REPLY_TOPIC: &str = "DefaultCluster_REPLY_TOPIC";
const REQUESTER: &str = "127.0.0.1@requester";

fn broker(dir: &std::path::Path, stores: bool) -> NodeHandle {
    start_broker_as(dir, |part| part.config.store_reply_message_enable = stores)
}

/// A client that has beaten: for a producer group, or for a consumer group only.
fn online(node: &NodeHandle, is_producer: bool) -> Client {
    let mut client = Client::of(node);
    let producers = is_producer.then(|| ProducerData { group_name: Text::from("askers") });
    let consumers =
        (!is_producer).then(|| ConsumerData { group_name: Text::from("readers"), ..Default::default() });
    let data = HeartbeatData {
        client_id: Text::from(REQUESTER),
        producer_data_set: producers.into_iter().collect(),
        consumer_data_set: consumers.into_iter().collect(),
        ..HeartbeatData::default()
    };
    let beat = request::<HeartBeat>(&Default::default()).with_body(Bytes::from(to_fastjson(&data)));
    let opaque = client.send(beat);
    while client.receive().unwrap().opaque != opaque {}
    client
}

fn reply(topic: &str, properties: &str) -> SendMessageV2Header {
    SendMessageV2Header {
        producer_group: Text::from("repliers"),
        topic: Text::from(topic),
        default_topic: Text::from("TBW102"),
        default_topic_queues: 4,
        sys_flag: 0x101,
        born_timestamp_ms: 1_795_000_000_000,
        flag: 7,
        properties: Some(Text::from(properties)),
        ..SendMessageV2Header::default()
    }
}

fn to_requester(more: &str) -> SendMessageV2Header {
    reply(REPLY_TOPIC, &format!("REPLY_TO_CLIENT\u{1}{REQUESTER}\u{2}CORRELATION_ID\u{1}c1\u{2}{more}"))
}

fn send(client: &mut Client, header: &SendMessageV2Header) -> Command {
    client.call(Command::request::<SendReplyMessageV2>(header).with_body(Bytes::from_static(b"packed")))
}

/// Sends a reply and answers its push with `code`.
fn exchange(
    node: &NodeHandle,
    header: &SendMessageV2Header,
    code: i32,
) -> (PushReplyMessageToClientHeader, Command) {
    let mut requester = online(node, true);
    let mut replier = Client::of(node);
    let request = Command::request::<SendReplyMessageV2>(header).with_body(Bytes::from_static(b"packed"));
    let opaque = replier.send(request);
    let pushed = requester.receive().unwrap();
    assert_eq!((pushed.code, &pushed.body[..]), (PushReplyMessageToClient::CODE, &b"packed"[..]));
    requester.send_as(&Command::response(troupemq_codec::ResponseCode(code)).answering(&pushed));
    let answer = replier.receive().unwrap();
    assert_eq!(answer.opaque, opaque);
    (pushed.header().unwrap(), answer)
}

/// 3.12 #113.
#[test]
fn a_reply_is_pushed_to_who_asked_and_kept_in_its_topic() {
    let dir = tempfile::tempdir().unwrap();
    let node = broker(dir.path(), true);
    // A reply is no half message, whatever its flags say.
    let asked = SendMessageV2Header { sys_flag: 0x105, ..to_requester("POP_CK\u{1}x\u{2}") };
    let (pushed, answer) = exchange(&node, &asked, 0);
    assert_eq!((pushed.topic.as_str(), pushed.sys_flag, pushed.flag), (REPLY_TOPIC, 0x105, 7));
    assert_eq!(pushed.store_host, node.broker_address().unwrap().to_string().as_str());
    let text = pushed.properties.unwrap();
    let of = |name| PropertiesView(text.as_bytes()).get(name);
    assert_eq!(
        (of("CORRELATION_ID"), of("POP_CK"), of("MSG_REGION")),
        (Some("c1"), None, Some("DefaultRegion"))
    );
    assert_eq!(of("PUSH_REPLY_TIME").map(str::len), Some(13));
    let reply: SendMessageReplyHeader = answer.header().unwrap();
    assert_eq!((answer.code, reply.queue_id, reply.queue_offset), (0, 0, 0));
    assert_eq!(reply.message_id.len(), 32);
    let mut reader = Client::of(&node);
    let found = reader.pull(REPLY_TOPIC, 0, 0, "*");
    let kept = RecordView::parse(&found.body).unwrap();
    assert_eq!((kept.body(), kept.flag(), kept.total_size()), (&b"packed"[..], 7, found.body.len()));
    assert_eq!(kept.sys_flag() & 0x70D, 0x101, "the flags of the compression");
    assert_eq!(kept.properties().get("POP_CK"), None);
    assert!(kept.properties().get("UNIQ_KEY").is_some());
    node.stop_and_wait().unwrap();
}

#[test]
fn a_reply_that_is_not_kept_has_the_id_zero() {
    let dir = tempfile::tempdir().unwrap();
    let node = broker(dir.path(), false);
    let (_, answer) = exchange(&node, &to_requester(""), 0);
    let reply: SendMessageReplyHeader = answer.header().unwrap();
    assert_eq!((answer.code, reply.message_id.as_str(), reply.queue_offset), (0, "0", 0));
    assert_eq!(Client::of(&node).pull(REPLY_TOPIC, 0, 0, "*").body.len(), 0);
    node.stop_and_wait().unwrap();
}

#[test]
fn the_answer_of_the_requester_decides_whether_the_reply_is_kept_or_not() {
    for stores in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let node = broker(dir.path(), stores);
        let (_, answer) = exchange(&node, &to_requester(""), 1);
        assert_eq!(answer.code, 1);
        assert_eq!(answer.remark.as_deref(), Some(&*format!("push reply message to {REQUESTER}fail.")));
        assert_eq!(answer.fields.get("msgId").is_some(), stores, "the reply is stored all the same");
        node.stop_and_wait().unwrap();
    }
}

#[test]
fn a_requester_whose_connection_ends_is_told_to_the_replier() {
    let dir = tempfile::tempdir().unwrap();
    let node = broker(dir.path(), false);
    let mut requester = online(&node, true);
    let mut replier = Client::of(&node);
    replier
        .send(Command::request::<SendReplyMessageV2>(&to_requester("")).with_body(Bytes::from_static(b"x")));
    assert_eq!(requester.receive().unwrap().code, PushReplyMessageToClient::CODE);
    drop(requester);
    let answer = replier.receive().unwrap();
    assert_eq!((answer.code, answer.fields.get("TRACE_ON")), (1, Some("true")));
    assert_eq!(answer.remark.as_deref(), Some(&*format!("push reply message to {REQUESTER}fail.")));
    node.stop_and_wait().unwrap();
}

#[test]
fn replies_to_nobody_and_to_strangers_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = broker(dir.path(), false);
    let _consumer = online(&node, false);
    let mut client = Client::of(&node);
    let mut refused = |header: &SendMessageV2Header| {
        let answer = send(&mut client, header);
        assert_eq!(answer.fields.get("MSG_REGION"), Some("DefaultRegion"));
        assert_eq!(answer.fields.get("msgId"), None);
        (answer.code, answer.remark.unwrap())
    };
    let nobody = reply(REPLY_TOPIC, "CORRELATION_ID\u{1}c\u{2}");
    assert_eq!(refused(&nobody), (1, "reply message properties[REPLY_TO_CLIENT] is null".into()));
    // A client that only consumes never asked for anything.
    let stranger = format!("push reply message fail, channel of <{REQUESTER}> not found.");
    assert_eq!(refused(&to_requester("")), (1, stranger.into()));
    let forged = reply(REPLY_TOPIC, "REPLY_TO_CLIENT\u{1}/../\u{2}");
    assert_eq!(refused(&forged).1, "push reply message fail, channel of </../> not found.");
    let to = format!("REPLY_TO_CLIENT\u{1}{REQUESTER}\u{2}");
    let elsewhere = reply("SCHEDULE_TOPIC_XXXX", &to);
    assert_eq!(refused(&elsewhere).1, "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden.");
    let no_queue = SendMessageV2Header { queue_id: 9, ..to_requester("") };
    let (code, remark) = refused(&no_queue);
    assert_eq!(code, 29);
    assert!(
        remark.starts_with("request queueId[9] is illegal, TopicConfig [topicName=DefaultCluster_REPLY"),
        "{remark}"
    );
    let unknown = SendMessageV2Header { default_topic: Text::from("none"), ..reply("no_such_topic", &to) };
    assert_eq!(refused(&unknown).0, 17);
    let too_long = reply(REPLY_TOPIC, &format!("{to}a\u{1}{}\u{2}", "b".repeat(32_700)));
    assert_eq!(refused(&too_long).0, 13);
    node.stop_and_wait().unwrap();
}

/// The recorded requests of both Java clients: the broker pushes what Java's pushed, and answers alike.
#[test]
fn recorded_replies_go_the_way_they_went_with_java() {
    for name in ["rpc-498", "rpc-531"] {
        let dir = tempfile::tempdir().unwrap();
        let node =
            start_broker_as(dir.path(), |part| part.config.broker_cluster_name = "GoldCluster".to_owned());
        let mut clients: HashMap<u64, Client> = HashMap::new();
        let mut came: HashMap<u64, Vec<Command>> = HashMap::new();
        let mut seen = Vec::new();
        let keys = |command: &Command| -> BTreeSet<String> {
            command.fields.iter().map(|(key, _)| key.to_owned()).collect()
        };
        let frames = conversation(name, "broker");
        for frame in &frames {
            let client = clients.entry(frame.conn).or_insert_with(|| Client::of(&node));
            let came = came.entry(frame.conn).or_default();
            if !frame.is_from_server
                && [HeartBeat::CODE, SendReplyMessageV2::CODE].contains(&frame.command.code)
            {
                client.send_as(&frame.command);
            }
            let mut next = |wanted: &dyn Fn(&Command) -> bool| loop {
                if let Some(at) = came.iter().position(wanted) {
                    return came.remove(at);
                }
                came.push(client.receive().unwrap());
            };
            let java = &frame.command;
            match (frame.is_from_server, java.code) {
                (false, HeartBeat::CODE) => {
                    // A reply that comes before the requester is known would find nobody.
                    next(&|command| command.opaque == java.opaque && command.is_response());
                }
                // The requester's answer to the push, under the number that ours has.
                (false, 0) => {}
                (true, PushReplyMessageToClient::CODE) => {
                    let ours = next(&|command| command.code == PushReplyMessageToClient::CODE);
                    assert_eq!(keys(&ours), keys(java), "{name} {}", frame.number);
                    assert_eq!(ours.body, java.body);
                    let names = |command: &Command| -> BTreeSet<String> {
                        let text = command.fields.text("properties").unwrap();
                        PropertiesView(text.as_bytes()).iter().map(|(name, _)| name.to_owned()).collect()
                    };
                    assert_eq!(names(&ours), names(java));
                    seen.push(ours.code);
                    client.send_as(&Command::response(troupemq_codec::ResponseCode(0)).answering(&ours));
                }
                (true, code) if answers_a_reply(&frames, frame.conn, java.opaque) => {
                    let ours = next(&|command| command.opaque == java.opaque && command.is_response());
                    assert_eq!((ours.code, keys(&ours)), (code, keys(java)), "{name} {}", frame.number);
                    seen.push(SendReplyMessageV2::CODE);
                }
                _ => {}
            }
        }
        assert_eq!(seen, [PushReplyMessageToClient::CODE, SendReplyMessageV2::CODE], "{name}");
        node.stop_and_wait().unwrap();
    }
}

fn answers_a_reply(frames: &[crate::golden::Frame], conn: u64, opaque: i32) -> bool {
    frames.iter().any(|frame| {
        let command = &frame.command;
        !frame.is_from_server
            && frame.conn == conn
            && (command.code, command.opaque) == (SendReplyMessageV2::CODE, opaque)
    })
}
