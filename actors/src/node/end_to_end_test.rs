//! A node over its socket: send, pull, hold, query, stop and start again.
//!
//! Invariants:
//! - every test has its own node, folder and ports.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use troupemq_codec::message::batch::BatchItem;
use troupemq_codec::message::{Message, NewRecord, OffsetId, PropertiesView};
use troupemq_codec::request::{
    PullMessage, PullMessageHeader, PullMessageReplyHeader, QueryMessage, QueryMessageHeader,
    ViewMessageById, ViewMessageByIdHeader,
};
use troupemq_codec::{Command, HeaderForm, ResponseCode};
use troupemq_store::faults::forget;
use troupemq_store::{FlushMode, ManualClock};

use crate::cast::CAST;
use crate::net::dialer::dial;
use crate::node::{Node, NodeHandle};
use crate::send::{Own, store};
use crate::testing::{
    Client, block_on, evict, held_pull_header, pull_header, pull_request, request, send_request,
    small_broker, start_broker, start_broker_as, start_broker_at, stored, until,
};

pub(super) fn found(answer: &Command) -> (PullMessageReplyHeader, Vec<Message>) {
    let header = answer.header().expect("a pull has its offsets");
    (header, Message::decode_all(answer.body.clone()).expect("whole records"))
}

pub(super) fn refused(answer: &Command, code: ResponseCode, remark: &str) {
    assert_eq!(answer.response_code(), code, "{answer:?}");
    let said = answer.remark.as_deref().unwrap_or_default();
    assert!(said.contains(remark), "{said}");
}

#[test]
fn what_is_sent_is_pulled_with_its_properties() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    let sent =
        client.produce("Greetings", 2, b"hello", "KEYS\u{1}k1\u{2}UNIQ_KEY\u{1}U1\u{2}TAGS\u{1}A\u{2}");
    let header = stored(&sent);
    assert_eq!((header.queue_id, header.queue_offset), (2, 0));
    assert_eq!(header.transaction_id.as_deref(), Some("U1"));
    assert_eq!((header.region.as_deref(), header.trace_on), (Some("DefaultRegion"), Some(true)));
    let id: OffsetId = header.message_id.parse().expect("an offset id");
    assert_eq!(Some(id.host), node.broker_address());

    let pulled = client.pull("Greetings", 2, 0, "*");
    assert_eq!((pulled.code, pulled.remark.as_deref()), (0, Some("FOUND")));
    let (header, messages) = found(&pulled);
    assert_eq!((header.next_offset, header.min_offset, header.max_offset), (1, 0, 1));
    assert_eq!(header.suggested_broker_id, 0);
    let [message] = &messages[..] else { panic!("one message, not {messages:?}") };
    assert_eq!((&message.body[..], message.queue_offset, message.queue_id), (&b"hello"[..], 0, 2));
    let expected = [
        ("UNIQ_KEY", "U1"),
        ("TAGS", "A"),
        ("KEYS", "k1"),
        ("CLUSTER", "DefaultCluster"),
        ("MSG_REGION", "DefaultRegion"),
        ("TRACE_ON", "true"),
    ];
    for (name, value) in expected {
        assert_eq!(message.properties.get(name), Some(value), "{name}");
    }
    node.stop_and_wait().expect("a clean stop");
}

#[test]
fn a_message_without_a_unique_id_gets_one() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    let made = stored(&client.produce("T", 0, b"x", "A\u{1}b")).transaction_id.expect("an id is made");
    assert_eq!(made.len(), 32);
    let (_, messages) = found(&client.pull("T", 0, 0, ""));
    assert_eq!(messages[0].properties.get("UNIQ_KEY"), Some(made.as_str()));
    assert_eq!(messages[0].properties.get("A"), Some("b"));
}

#[test]
fn pipelined_sends_are_all_answered_and_keep_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    stored(&client.produce("Many", 0, b"first", ""));
    let mut wanted = Vec::new();
    for at in 0..1000_u32 {
        let mut request = send_request("Many", 0, &at.to_be_bytes(), "");
        request.form = if at % 2 == 0 { HeaderForm::Json } else { HeaderForm::Binary };
        wanted.push(client.send(request));
    }
    for (at, opaque) in wanted.into_iter().enumerate() {
        let answer = client.receive().expect("an answer");
        assert_eq!(answer.opaque, opaque);
        assert_eq!(answer.form == HeaderForm::Json, at % 2 == 0);
        assert_eq!(stored(&answer).queue_offset, i64::try_from(at).unwrap() + 1);
    }
    let mut offset = 0;
    let mut seen = Vec::new();
    while offset < 1001 {
        let (header, messages) = found(&client.pull("Many", 0, offset, "*"));
        assert_eq!(messages.len(), 32.min(usize::try_from(1001 - offset).unwrap()));
        seen.extend(messages.into_iter().skip(usize::from(offset == 0)).map(|message| message.body));
        offset = header.next_offset;
    }
    let expected: Vec<Bytes> = (0..1000_u32).map(|at| Bytes::copy_from_slice(&at.to_be_bytes())).collect();
    assert_eq!(seen, expected);
}

#[test]
fn a_held_pull_is_woken_by_a_matching_message_only() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let (mut producer, mut consumer) = (Client::of(&node), Client::of(&node));
    stored(&producer.produce("Held", 0, b"old", "TAGS\u{1}A\u{2}"));
    let held = consumer.send(request::<PullMessage>(&held_pull_header("Held", 0, 1, "B")));
    // Another request of the same connection is served while the pull is held.
    refused(&consumer.call(pull_request("Nowhere", 0, 0, "*")), ResponseCode::TOPIC_NOT_EXIST, "Nowhere");
    stored(&producer.produce("Held", 0, b"other", "TAGS\u{1}A\u{2}"));
    stored(&producer.produce("Held", 0, b"wanted", "TAGS\u{1}B\u{2}"));
    let woken = consumer.receive().expect("the pull is woken");
    assert_eq!((woken.opaque, woken.code), (held, 0));
    let (header, messages) = found(&woken);
    assert_eq!((messages.len(), &messages[0].body[..]), (1, &b"wanted"[..]));
    assert_eq!(header.next_offset, 3);
}

#[test]
fn a_held_pull_is_answered_at_its_deadline() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(1_795_000_000_000));
    let node = start_broker_at(&clock, dir.path(), |_| {});
    let (mut producer, mut consumer) = (Client::of(&node), Client::of(&node));
    stored(&producer.produce("Quiet", 0, b"old", ""));
    let header = PullMessageHeader { suspend_timeout_ms: 300, ..held_pull_header("Quiet", 0, 1, "B") };
    let hold = |consumer: &mut Client| {
        consumer.send(request::<PullMessage>(&header));
        // Requests of a connection are served in their order: once this is answered the pull is held.
        refused(&consumer.call(pull_request("Nowhere", 0, 0, "*")), ResponseCode::TOPIC_NOT_EXIST, "Nowhere");
    };
    hold(&mut consumer);
    clock.advance_ms(300);
    let answer = consumer.receive().expect("an answer at the deadline");
    assert_eq!((answer.code, answer.remark.as_deref()), (19, Some("OFFSET_OVERFLOW_ONE")));
    hold(&mut consumer);
    stored(&producer.produce("Quiet", 0, b"other", "TAGS\u{1}A\u{2}"));
    clock.advance_ms(300);
    let answer = consumer.receive().expect("an answer at the deadline");
    assert_eq!((answer.code, answer.remark.as_deref()), (20, Some("NO_MATCHED_MESSAGE")));
    assert_eq!(found(&answer).0.next_offset, 2);
}

#[test]
fn pulls_at_the_edges_say_where_to_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    for at in 0..4_u8 {
        stored(&client.produce("Edge", 0, &[at], "TAGS\u{1}A\u{2}"));
    }
    let cases = [
        (0, -1, "*", 21, "OFFSET_TOO_SMALL", 0),
        (0, 4, "*", 19, "OFFSET_OVERFLOW_ONE", 4),
        (0, 999, "*", 21, "OFFSET_OVERFLOW_BADLY", 4),
        (0, 1, "B", 20, "NO_MATCHED_MESSAGE", 4),
        (0, 1, "B || A", 0, "FOUND", 4),
        (1, 0, "*", 19, "NO_MESSAGE_IN_QUEUE", 0),
        (1, 5, "*", 21, "NO_MESSAGE_IN_QUEUE", 0),
    ];
    for (queue_id, offset, tags, code, remark, next) in cases {
        let answer = client.pull("Edge", queue_id, offset, tags);
        assert_eq!((answer.code, answer.remark.as_deref()), (code, Some(remark)), "{offset} {tags}");
        assert_eq!(found(&answer).0.next_offset, next, "{offset} {tags}");
    }
    for request_source in [-1, 0, 1, 2, 9] {
        let through_a_proxy = PullMessageHeader {
            request_source: Some(request_source),
            proxy_client_id: Some("behind".into()),
            ..pull_header("Edge", 0, -1, "*")
        };
        let answer = client.call(request::<PullMessage>(&through_a_proxy));
        assert_eq!((answer.code, found(&answer).0.next_offset), (21, 0), "whoever asks through a proxy");
    }
    refused(&client.pull("Edge", 77, 0, "*"), ResponseCode::INVALID_PARAMETER, "queueId[77] is illegal");
    refused(&client.pull("Edge", -1, 0, "*"), ResponseCode::INVALID_PARAMETER, "queueId[-1] is illegal");
    let header = pull_header("Edge", 0, 0, "*");
    let registered = PullMessageHeader { sys_flag: 0, ..header };
    let answer = client.call(request::<PullMessage>(&registered));
    refused(&answer, ResponseCode::SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist");
}

#[test]
fn a_batch_is_stored_as_consecutive_messages() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    let mut body = BytesMut::new();
    for at in 0..3_u8 {
        let properties = format!("UNIQ_KEY\u{1}U{at}\u{2}TAGS\u{1}T{at}\u{2}");
        let properties = PropertiesView(properties.as_bytes());
        BatchItem { flag: 5, body: &[at; 10], properties }.encode(&mut body).unwrap();
    }
    let mut command = send_request("Batches", 0, &body, "UNIQ_KEY\u{1}WHOLE\u{2}");
    command.fields.set("m", "true");
    let header = stored(&client.call(command.clone()));
    assert_eq!((header.queue_offset, header.transaction_id.as_deref()), (0, Some("WHOLE")));
    assert_eq!(header.message_id.split(',').count(), 3);
    let (_, messages) = found(&client.pull("Batches", 0, 0, "*"));
    for (at, message) in messages.iter().enumerate() {
        assert_eq!(message.properties.get("UNIQ_KEY"), Some(format!("U{at}").as_str()));
        assert_eq!((message.queue_offset, message.flag), (i64::try_from(at).unwrap(), 5));
    }
    assert_eq!(messages.len(), 3);
    command.body = body.freeze().slice(..20);
    refused(&client.call(command), ResponseCode::MESSAGE_ILLEGAL, "the message is illegal");
    assert_eq!(found(&client.pull("Batches", 0, 0, "*")).1.len(), 3);
}

#[test]
fn messages_are_found_by_id_and_by_key() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    let sent = stored(&client.produce("Keys", 0, b"one", "KEYS\u{1}k1 k2\u{2}UNIQ_KEY\u{1}U1\u{2}"));
    stored(&client.produce("Keys", 0, b"two", "KEYS\u{1}k2\u{2}"));
    let by_key = |client: &mut Client, key: &str| {
        let header = QueryMessageHeader {
            topic: "Keys".into(),
            key: key.into(),
            messages_max: 10,
            begin_timestamp_ms: 0,
            end_timestamp_ms: i64::MAX,
            is_unique_key: None,
        };
        client.call(request::<QueryMessage>(&header))
    };
    for (key, count) in [("k1", 1), ("k2", 2), ("U1", 1)] {
        let answer = by_key(&mut client, key);
        assert_eq!((answer.code, found_messages(&answer).len()), (0, count), "{key}");
    }
    refused(&by_key(&mut client, "nokey"), ResponseCode::QUERY_NOT_FOUND, "can not find message");

    let place: OffsetId = sent.message_id.parse().unwrap();
    let view = |client: &mut Client, log_offset| {
        client.call(request::<ViewMessageById>(&ViewMessageByIdHeader { topic: None, log_offset }))
    };
    let answer = view(&mut client, place.log_offset);
    assert_eq!(&found_messages(&answer)[0].body[..], b"one");
    for wrong in [place.log_offset + 3, -1, 99_999_999] {
        let remark = format!("can not find message by the offset, {wrong}");
        refused(&view(&mut client, wrong), ResponseCode::SYSTEM_ERROR, &remark);
    }
}

fn found_messages(answer: &Command) -> Vec<Message> {
    Message::decode_all(answer.body.clone()).expect("whole records")
}

#[test]
fn sends_that_may_not_be_are_refused_with_rocketmqs_codes() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker_as(dir.path(), |part| part.config.max_message_size = 65_536);
    let mut client = Client::of(&node);
    stored(&client.produce("Good", 0, b"x", ""));
    let large = "v".repeat(32_768);
    let properties = format!("k\u{1}{large}\u{2}");
    let cases: Vec<(Command, ResponseCode, &str)> = vec![
        (
            send_request("Good", 99, b"x", ""),
            ResponseCode::INVALID_PARAMETER,
            "request queueId[99] is illegal",
        ),
        (send_request("", 0, b"x", ""), ResponseCode::INVALID_PARAMETER, "The specified topic is blank."),
        (send_request("bad.topic", 0, b"x", ""), ResponseCode::INVALID_PARAMETER, "illegal characters"),
        (send_request("SCHEDULE_TOPIC_XXXX", 0, b"x", ""), ResponseCode::NO_PERMISSION, "is forbidden."),
        (send_request("Good", 0, &[0; 65_537], ""), ResponseCode::MESSAGE_ILLEGAL, "limit 65536B"),
        (send_request("Good", 0, b"", ""), ResponseCode::MESSAGE_ILLEGAL, "the message is illegal"),
        (send_request("Good", 0, b"x", &properties), ResponseCode::MESSAGE_ILLEGAL, "limit 32KB"),
    ];
    for (command, code, remark) in cases {
        let answer = client.call(command);
        refused(&answer, code, remark);
        assert_eq!(answer.fields.get("MSG_REGION"), Some("DefaultRegion"));
        assert_eq!(answer.fields.get("TRACE_ON"), Some("true"));
    }
    let mut no_template = send_request("Unknown", 0, b"x", "");
    no_template.fields.set("c", "NoTemplate");
    refused(&client.call(no_template), ResponseCode::TOPIC_NOT_EXIST, "topic[Unknown] not exist");
    let chosen = stored(&client.produce("Good", -100, &[0; 65_536], "")).queue_id;
    let (_, messages) = found(&client.pull("Good", chosen, 0, "*"));
    assert_eq!(messages.last().map(|message| message.body.len()), Some(65_536));
}

#[test]
fn a_oneway_request_is_never_answered_and_an_unknown_one_politely() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    client.send(send_request("T", 0, b"x", "").oneway());
    client.send(send_request("bad.topic", 0, b"x", "").oneway());
    let mut unknown = send_request("T", 0, b"x", "");
    unknown.code = 9999;
    client.send(unknown.clone().oneway());
    refused(
        &client.call(unknown),
        ResponseCode::REQUEST_CODE_NOT_SUPPORTED,
        " request type 9999 not supported",
    );
    assert_eq!(stored(&client.produce("T", 0, b"y", "")).queue_offset, 1);
}

#[test]
fn garbage_closes_its_connection_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut good = Client::of(&node);
    for garbage in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0xff; 64],
        &[0, 0, 0, 1, 0],
        &[0, 0, 0, 8, 0, 0, 0, 200, 1, 2, 3, 4],
        &[0, 0, 0, 8, 9, 0, 0, 1, 1, 2, 3, 4],
    ] {
        let mut bad = Client::of(&node);
        bad.write(garbage);
        assert!(bad.receive().is_none(), "{garbage:?}");
    }
    stored(&good.produce("T", 0, b"x", ""));
}

#[test]
fn frames_arrive_in_any_pieces() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    let mut bytes = BytesMut::new();
    let large = vec![7; 1 << 20];
    for (at, body) in [&b"small"[..], &large, &b"last"[..]].into_iter().enumerate() {
        let mut command = send_request("Pieces", 0, body, "");
        command.opaque = i32::try_from(at).unwrap();
        command.encode(&mut bytes);
    }
    for piece in bytes.chunks(70_001) {
        client.write(piece);
    }
    for at in 0..3 {
        assert_eq!(stored(&client.receive().expect("an answer")).queue_offset, at);
    }
    let (header, messages) = found(&client.pull("Pieces", 0, 1, "*"));
    assert_eq!((header.next_offset, messages.len(), messages[0].body.len()), (2, 1, 1 << 20));
    let mut slow = BytesMut::new();
    send_request("Pieces", 1, b"slow", "").encode(&mut slow);
    slow.iter().for_each(|byte| client.write(&[*byte]));
    assert_eq!(stored(&client.receive().expect("an answer")).queue_id, 1);
}

#[test]
fn a_node_that_starts_again_has_everything() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let node = start_broker(dir.path());
        assert!(dir.path().join("abort").try_exists().unwrap());
        let mut client = Client::of(&node);
        assert_eq!(stored(&client.produce("Kept", 0, b"x", "KEYS\u{1}k\u{2}")).queue_offset, round);
        assert_eq!(found(&client.pull("Kept", 0, 0, "*")).1.len(), usize::try_from(round).unwrap() + 1);
        node.stop_and_wait().expect("a clean stop");
        assert!(!dir.path().join("abort").try_exists().unwrap(), "a clean stop takes the mark away");
    }
}

#[test]
fn a_killed_nodes_store_keeps_what_was_acknowledged() {
    let (dir, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    for at in 0..50_u8 {
        stored(&client.produce("Killed", i32::from(at % 4), &[at], ""));
    }
    // What the page cache holds is what a killed process leaves behind.
    copy_folder(dir.path(), copy.path());
    node.stop_and_wait().expect("a clean stop");
    let node = start_broker(copy.path());
    let mut client = Client::of(&node);
    let count: usize = (0..4).map(|queue| found(&client.pull("Killed", queue, 0, "*")).1.len()).sum();
    assert_eq!(count, 50);
}

#[test]
fn the_checkpoint_is_saved_while_the_log_grows() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker_as(dir.path(), |part| part.store.flush = FlushMode::Sync);
    let mut client = Client::of(&node);
    let read = || std::fs::read(dir.path().join("checkpoint")).unwrap_or_default();
    let before = read();
    until("a checkpoint is saved", || {
        stored(&client.produce("Steady", 0, b"x", ""));
        read() != before
    });
}

/// Copies a folder as it is; what goes meanwhile is left out.
fn copy_folder(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else if let Err(error) = std::fs::copy(entry.path(), target) {
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
        }
    }
}

/// A node that has just started with 24 messages of 1 MB, whose number is every byte of the body; unless the file
/// system keeps everything in memory, those in the midst of the first segment are on the disk alone.
pub(super) fn with_cold_log(dir: &std::path::Path) -> NodeHandle {
    let start = || start_broker_as(dir, |part| part.store.log_segment_bytes = 20 << 20);
    let node = start();
    let mut client = Client::of(&node);
    // Two segments: a start looks at the last one and at the head of the first.
    for at in 0..24_u8 {
        stored(&client.produce("Cold", 0, &[at; 1_000_000], ""));
    }
    node.stop_and_wait().expect("a clean stop");
    drop((node, client));
    evict(&dir.join("commitlog"));
    start()
}

#[test]
fn what_is_not_in_memory_is_read_by_a_thread_that_may_wait() {
    let dir = tempfile::tempdir().unwrap();
    let node = with_cold_log(dir.path());
    let broker = node.broker().unwrap().clone();
    let mut client = Client::of(&node);
    let forgotten = forget(&dir.path().join("commitlog"));
    let mut is_found = |forgotten: &str| {
        let (header, messages) = found(&client.pull("Cold", 0, 13, "*"));
        assert_eq!((header.next_offset, messages.len()), (14, 1), "{forgotten}");
        assert_eq!(messages[0].body, Bytes::from(vec![13; 1_000_000]), "{forgotten}");
    };
    is_found("as the system would have it that has forgotten it");
    assert_eq!(broker.stats.read().cold_pulls, 1);
    assert!(forgotten.seen() > 0, "it was read through the file");
    drop(forgotten);
    is_found("as it is");
}

#[test]
fn an_idle_connection_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = small_broker(dir.path());
    config.net.idle_ms = 50;
    let node = Node::start(config).unwrap();
    assert!(Client::of(&node).receive().is_none());
}

#[test]
fn too_many_bytes_in_flight_are_refused_with_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let broker = node.broker().unwrap().clone();
    let _all = broker.credits.take(broker.credits.limit_bytes()).expect("nothing is in flight");
    let answer = Client::of(&node).produce("T", 0, b"x", "");
    refused(&answer, ResponseCode::SYSTEM_BUSY, "67108864 of 67108864 bytes of requests in flight");
}

#[test]
fn the_cast_that_is_started_is_the_cast_that_is_written_down() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = small_broker(dir.path());
    config.name_server = Some(crate::NameServerPart {
        listen: ([127, 0, 0, 1], 0).into(),
        config: crate::NameServerConfig::default(),
    });
    let node = Node::start(config).unwrap();
    let mut started = node.cast().to_vec();
    let mut written: Vec<_> = CAST.iter().map(|role| role.actor).collect();
    started.sort_unstable();
    written.sort_unstable();
    assert_eq!(started, written);
}

#[test]
fn several_nodes_live_in_one_process_and_a_port_in_use_is_an_error() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let nodes = dirs.each_ref().map(|dir| start_broker(dir.path()));
    for node in &nodes {
        assert_eq!(stored(&Client::of(node).produce("T", 0, b"x", "")).queue_offset, 0);
    }
    let dir = tempfile::tempdir().unwrap();
    let mut config = small_broker(dir.path());
    config.broker.as_mut().unwrap().listen = nodes[0].broker_address().unwrap();
    let error = Node::start(config).expect_err("the port is in use");
    assert!(error.to_string().starts_with("cannot listen on 127.0.0.1:"), "{error}");
    let error = Node::start(small_broker(dirs[0].path())).expect_err("the store is in use");
    assert!(error.to_string().contains("is open in another process"), "{error}");
}

#[test]
fn what_the_broker_stores_itself_wakes_a_held_pull() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    let broker = node.broker().unwrap().clone();
    stored(&client.produce("Own", 0, b"first", ""));
    client.send(request::<PullMessage>(&held_pull_header("Own", 0, 1, "*")));
    refused(&client.call(pull_request("Nowhere", 0, 0, "*")), ResponseCode::TOPIC_NOT_EXIST, "Nowhere");
    let record = |topic, queue_id| NewRecord {
        topic,
        queue_id,
        flag: 3,
        sys_flag: 0,
        born_timestamp_ms: 1,
        born_host: broker.advertised,
        store_host: broker.advertised,
        reconsume_times: 2,
        prepared_log_offset: 0,
        body: b"own",
        body_crc: None,
        properties: &[],
    };
    let own = [0, 1].map(|queue_id| Own { record: record("Own", queue_id), tags_code: 0, keys: None });
    let places = block_on(store(&broker, &own)).expect("both are stored");
    assert_eq!(places.iter().map(|place| place.queue_offset).collect::<Vec<_>>(), [1, 0]);
    let (_, messages) = found(&client.receive().expect("the pull is woken"));
    assert_eq!((messages[0].reconsume_times, &messages[0].body[..]), (2, &b"own"[..]));
    let nowhere = [Own { record: record("Nowhere", 0), tags_code: 0, keys: None }];
    let refusal = block_on(store(&broker, &nowhere)).expect_err("no such topic");
    assert_eq!(refusal.code, ResponseCode::TOPIC_NOT_EXIST);
    let in_front = block_on(store(&broker, &[own[0], nowhere[0], own[1]])).expect("the first is stored");
    assert_eq!(in_front.iter().map(|place| place.queue_offset).collect::<Vec<_>>(), [2]);
}

#[test]
fn in_sync_mode_an_answer_waits_for_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker_as(dir.path(), |part| part.store.flush = FlushMode::Sync);
    let broker = node.broker().unwrap().clone();
    let mut clients = [Client::of(&node), Client::of(&node)];
    for at in 0..20_u8 {
        let client = &mut clients[usize::from(at % 2)];
        let id: OffsetId = stored(&client.produce("Sync", 0, &[at], "")).message_id.parse().unwrap();
        assert!(broker.log.flushed_to() > u64::try_from(id.log_offset).unwrap());
    }
    let unwaited = stored(&clients[0].produce("Sync", 0, b"x", "WAIT\u{1}false\u{2}"));
    assert_eq!(unwaited.queue_offset, 20);
    node.stop_and_wait().expect("a clean stop");
}

#[test]
fn a_connection_of_our_own_calls_and_is_called() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let broker = node.broker().unwrap().clone();
    let (to, sessions) = (node.broker_address().unwrap(), broker.sessions.clone());
    block_on(async {
        let served = crate::router::Served::Broker(broker.clone());
        let timeout = std::time::Duration::from_secs(60);
        let link = dial(&sessions, to, served, timeout).await.expect("the broker listens");
        let answer = link.ask(send_request("T", 0, b"x", ""), timeout).await.expect("an answer");
        assert_eq!(stored(&answer).queue_offset, 0);
        let other = broker.directory.link(link.id()).expect("the connection is published");
        assert_eq!(other.peer(), to);
        link.close();
        let mut request = send_request("T", 0, b"x", "");
        request.body = Bytes::new();
        let mut outcome = link.ask(request.clone(), timeout).await;
        while outcome.is_ok() {
            outcome = link.ask(request.clone(), timeout).await;
        }
        assert_eq!(outcome.unwrap_err(), crate::CallError::Closed);
    });
}
