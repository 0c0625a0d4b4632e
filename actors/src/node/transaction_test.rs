//! Transactions of a node: decisions, checks, refusals, a store that Java left, conversations that Java had. The
//! clock is turned by hand.
//!
//! Invariants:
//! - nothing here waits for real time to pass but for the wake of an actor.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use troupemq_codec::heartbeat_data::{HeartbeatData, ProducerData};
use troupemq_codec::message::{Message, OffsetId, RecordView};
use troupemq_codec::request::*;
use troupemq_codec::{Command, Request, ResponseCode, Text};
use troupemq_store::testing::GoldenStore;
use troupemq_store::{ManualClock, StoreConfig};

use super::delivery_test::{NOW_MS, count, start};
use crate::config::BrokerConfig;
use crate::golden::{Frame, conversation};
use crate::heartbeat::ProducersOf;
use crate::node::NodeHandle;
use crate::testing::{
    Client, beat_request, block_on, request, send_request, start_broker_at, stored, until, wait_for,
};

pub(super) const OPS: &str = "RMQ_SYS_TRANS_OP_HALF_TOPIC";
pub(super) const GIVEN_UP: &str = "TRANS_CHECK_MAX_TIME_TOPIC";

/// A node whose broker is configured by `change`.
pub(super) fn start_as(
    dir: &Path,
    clock: &Arc<ManualClock>,
    change: impl FnOnce(&mut BrokerConfig),
) -> NodeHandle {
    start_broker_at(clock, dir, |part| change(&mut part.config))
}

pub(super) fn beat(group: &str) -> Command {
    let data = HeartbeatData {
        client_id: Text::from("client-1"),
        producer_data_set: vec![ProducerData { group_name: Text::from(group) }],
        ..HeartbeatData::default()
    };
    beat_request(&data)
}

/// A producer of a group; it stays one as long as its connection is kept.
pub(super) fn produce_for(node: &NodeHandle, group: &str) -> Client {
    let mut client = Client::of(node);
    assert_eq!(client.call(beat(group)).code, 0);
    client
}

pub(super) fn ending(group: &str, at: (i64, i64), outcome: i32) -> EndTransactionHeader {
    EndTransactionHeader {
        producer_group: Text::from(group),
        queue_offset: at.0,
        log_offset: at.1,
        outcome,
        ..EndTransactionHeader::default()
    }
}

pub(super) fn end(client: &mut Client, at: (i64, i64), outcome: i32) -> Command {
    client.call(request::<EndTransaction>(&ending("Payers", at, outcome)))
}

fn refused(answer: &Command, remark: &str) {
    assert_eq!(answer.response_code(), ResponseCode::SYSTEM_ERROR, "{answer:?}");
    assert_eq!(answer.remark.as_deref(), Some(remark));
}

/// A send of half of a transaction.
pub(super) fn half_request(uniq_key: &str, more: &str) -> Command {
    let properties =
        format!("TRAN_MSG\u{1}true\u{2}PGROUP\u{1}Payers\u{2}UNIQ_KEY\u{1}{uniq_key}\u{2}{more}");
    let mut send = send_request("Paid", 1, uniq_key.as_bytes(), &properties);
    send.fields.set("f", "4");
    send
}

/// The queue offset in the half topic and the log offset that the answer to a send names.
pub(super) fn place(answer: &Command) -> (i64, i64) {
    let header = stored(answer);
    let id: OffsetId = header.message_id.parse().expect("an offset id");
    (header.queue_offset, id.log_offset)
}

/// Sends half of a transaction.
pub(super) fn half(client: &mut Client, uniq_key: &str, more: &str) -> (i64, i64) {
    place(&client.call(half_request(uniq_key, more)))
}

/// A question that a producer was asked.
pub(super) struct Question {
    pub(super) header: CheckTransactionStateHeader,
    pub(super) message: Message,
}

impl Question {
    fn of(frame: Command) -> Question {
        assert_eq!((frame.code, frame.is_oneway()), (CheckTransactionState::CODE, true));
        let header = frame.header().expect("a whole header");
        Question { header, message: Message::decode_all(frame.body).expect("a whole record").remove(0) }
    }

    pub(super) fn wait(producer: &mut Client) -> Question {
        Question::of(producer.receive().expect("a question"))
    }

    /// Unique id of the message that is asked about.
    pub(super) fn id(&self) -> Text {
        self.header.message_id.clone().expect("a question names its message")
    }

    pub(super) fn at(&self) -> (i64, i64) {
        (self.header.queue_offset, self.header.log_offset)
    }

    pub(super) fn times(&self) -> Option<&str> {
        self.message.properties.get("TRANSACTION_CHECK_TIMES")
    }
}

/// The message at an offset of a topic that may have to be made first, as soon as it is there.
pub(super) fn poll(client: &mut Client, topic: &str, offset: i64) -> Message {
    until("the queue has it", || client.pull(topic, 0, offset, "*").code == 0);
    wait_for(client, topic, 0, offset)
}

/// 3.11 #104, #105, #109.
#[test]
fn a_committed_transaction_is_delivered_once_and_a_rolled_back_one_never() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let (good, bad, open) =
        (half(&mut client, "G", ""), half(&mut client, "B", ""), half(&mut client, "O", ""));
    assert_eq!(count(&mut client, "Paid", 1), 0);
    assert_eq!(end(&mut client, open, TRANSACTION_UNKNOWN).code, 0);
    assert_eq!(end(&mut client, good, TRANSACTION_COMMIT).code, 0);
    assert_eq!(end(&mut client, bad, TRANSACTION_ROLLBACK).code, 0);
    for late in [good, bad] {
        let text = format!(
            "the transaction of half message {} was decided before; the first decision counts",
            late.0
        );
        refused(&end(&mut client, late, TRANSACTION_COMMIT), &text);
    }
    let message = wait_for(&mut client, "Paid", 1, 0);
    assert_eq!(&message.body[..], b"G");
    assert_eq!(message.prepared_log_offset, good.1);
    for (name, value) in [("TRAN_MSG", "true"), ("__transactionId__", "G"), ("PGROUP", "Payers")] {
        assert_eq!(message.properties.get(name), Some(value), "{name}");
    }
    node.stop_and_wait().expect("a clean stop");
    // What was decided stays so, what was open can be decided.
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    assert_eq!(end(&mut client, good, TRANSACTION_COMMIT).response_code(), ResponseCode::SYSTEM_ERROR);
    assert_eq!(end(&mut client, open, TRANSACTION_COMMIT).code, 0);
    assert_eq!(&wait_for(&mut client, "Paid", 1, 1).body[..], b"O");
    assert_eq!(count(&mut client, "Paid", 1), 2);
    node.stop_and_wait().expect("a clean stop");
}

/// 3.11 #109: forged answers change nothing and are told what is wrong.
#[test]
fn an_answer_that_names_no_half_message_or_a_wrong_one_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let plain = place(&client.produce("Paid", 1, b"no half", ""));
    let good = half(&mut client, "G", "");
    let end_of_log = good.1 + 8_000_000;
    let log_end = i64::try_from(node.broker().unwrap().log.wrote_to()).unwrap();
    let nothing = |at: i64| {
        format!(
            "Find prepared transaction message failed: no half message begins at commitLogOffset {at} of the \
             log from 0 to {log_end}"
        )
    };
    for at in [good.1 + 1, end_of_log, -1, i64::MAX, plain.1] {
        refused(&end(&mut client, (good.0, at), TRANSACTION_COMMIT), &nothing(at));
    }
    let wrong = "The transaction state table offset wrong: 7, the half message is at 0";
    refused(&end(&mut client, (7, good.1), TRANSACTION_COMMIT), wrong);
    let stranger = client.call(request::<EndTransaction>(&ending("Thieves", good, TRANSACTION_COMMIT)));
    refused(&stranger, "The producer group wrong: Thieves, the half message is of Payers");
    let wrong = "commitOrRollback field wrong: 3 is none of 8 (commit), 12 (roll back) and 0 (not known)";
    refused(&end(&mut client, good, 3), wrong);
    assert_eq!(count(&mut client, "Paid", 1), 1);
    assert_eq!(end(&mut client, good, TRANSACTION_COMMIT).code, 0);
    assert_eq!(count(&mut client, "Paid", 1), 2);
    node.stop_and_wait().expect("a clean stop");
}

/// 3.11 #106, #107, #111.
#[test]
fn a_producer_is_asked_about_its_open_transaction_and_answers() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let first = half(&mut client, "Q", "DELAY\u{1}1\u{2}");
    let mut producer = produce_for(&node, "Payers");
    clock.advance_ms(30_000);
    let asked = Question::wait(&mut producer);
    let id = OffsetId { host: node.broker_address().unwrap(), log_offset: asked.at().1 }.to_string();
    assert_eq!(asked.header.offset_message_id.as_deref(), Some(id.as_str()));
    assert_eq!((asked.header.message_id.as_deref(), asked.header.queue_offset), (Some("Q"), first.0 + 1));
    let message = &asked.message;
    assert_eq!((message.topic.as_str(), message.queue_id, &message.body[..]), ("Paid", 1, &b"Q"[..]));
    assert_eq!(asked.times(), Some("1"));
    assert_eq!(end(&mut client, asked.at(), TRANSACTION_COMMIT).code, 0);
    assert_eq!(end(&mut client, first, TRANSACTION_ROLLBACK).response_code(), ResponseCode::SYSTEM_ERROR);
    clock.advance_ms(1000);
    assert_eq!(&wait_for(&mut client, "Paid", 1, 0).body[..], b"Q");
    node.stop_and_wait().expect("a clean stop");
}

/// 3.11 #106, and RESUME_CHECK_HALF_MESSAGE.
#[test]
fn a_transaction_nobody_decides_is_given_up_after_its_last_check_and_can_be_resumed() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let first = half(&mut client, "L", "");
    let mut producer = produce_for(&node, "Payers");
    for times in 1..=15 {
        clock.advance_ms(30_000);
        assert_eq!(Question::wait(&mut producer).times(), Some(times.to_string().as_str()));
        // The connection stays alive by its heartbeats.
        assert_eq!(producer.call(beat("Payers")).code, 0);
    }
    clock.advance_ms(30_000);
    let given_up = poll(&mut client, GIVEN_UP, 0);
    assert_eq!(&given_up.body[..], b"L");
    assert_eq!(count(&mut client, "Paid", 1), 0);
    assert_eq!(end(&mut client, first, TRANSACTION_COMMIT).response_code(), ResponseCode::SYSTEM_ERROR);

    let mut resume = |id: &str| {
        let header = ResumeCheckHalfMessageHeader { topic: None, message_id: Some(Text::from(id)) };
        client.call(request::<ResumeCheckHalfMessage>(&header))
    };
    let id_at = |log_offset| OffsetId { host: node.broker_address().unwrap(), log_offset }.to_string();
    let failed = "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed: ";
    refused(&resume("L"), &format!("{failed}msgId \"L\" is no offset id of 32 or 56 hex digits"));
    refused(&resume(&id_at(3)), &format!("{failed}no message begins at log offset 3"));
    refused(&resume(&id_at(first.1)), &format!("{failed}its transaction was decided before"));
    assert_eq!(resume(&id_at(given_up.log_offset)).code, 0);
    assert_eq!(producer.call(beat("Payers")).code, 0);
    clock.advance_ms(30_000);
    let asked = Question::wait(&mut producer);
    assert_eq!(asked.times(), Some("1"));
    // One that is open already is not there twice.
    assert_eq!(resume(&id_at(given_up.log_offset)).code, 0);
    assert_eq!(end(&mut client, asked.at(), TRANSACTION_COMMIT).code, 0);
    assert_eq!(&wait_for(&mut client, "Paid", 1, 0).body[..], b"L");
    assert_eq!(end(&mut client, asked.at(), TRANSACTION_COMMIT).response_code(), ResponseCode::SYSTEM_ERROR);
    assert_eq!(count(&mut client, "Paid", 1), 1);
    node.stop_and_wait().expect("a clean stop");
}

/// 3.11 #107: a check goes to any live producer of the group, and counts only when there was one.
#[test]
fn a_lost_producer_is_replaced_by_another_of_its_group_and_no_check_counts_before_one_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = produce_for(&node, "Payers");
    let first = half(&mut client, "Q", "");
    drop(client);
    let heartbeats = node.broker().unwrap().heartbeats.clone();
    let all_gone = || block_on(heartbeats.send(ProducersOf(Text::from("Payers")))).unwrap().is_empty();
    until("the broker knows that it is gone", all_gone);
    let mut stranger = produce_for(&node, "Others");
    let mut client = Client::of(&node);
    let mut younger = half_request("Younger", "");
    younger.fields.set("i", "TRAN_MSG\u{1}true\u{2}PGROUP\u{1}Others\u{2}UNIQ_KEY\u{1}Younger\u{2}");
    stored(&client.call(younger));
    for times in 1..=3 {
        clock.advance_ms(30_000);
        // The oldest comes first in a round: when this one is asked about, the other was passed.
        assert_eq!(Question::wait(&mut stranger).times(), Some(times.to_string().as_str()));
        assert_eq!(stranger.call(beat("Others")).code, 0);
    }
    let halves =
        Message::decode_all(client.pull("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0, "*").body).expect("records");
    let lost = halves.iter().filter(|half| &half.body[..] == b"Q").count();
    assert_eq!((lost, halves.len()), (1, 5), "nobody was asked about it, nothing was counted");
    let mut second = produce_for(&node, "Payers");
    clock.advance_ms(30_000);
    let asked = Question::wait(&mut second);
    assert_eq!((asked.times(), asked.header.message_id.as_deref()), (Some("1"), Some("Q")));
    // The answer to the first half decides as well: it is the same transaction.
    assert_eq!(end(&mut client, first, TRANSACTION_ROLLBACK).code, 0);
    assert_eq!(end(&mut client, asked.at(), TRANSACTION_COMMIT).response_code(), ResponseCode::SYSTEM_ERROR);
    assert_eq!(count(&mut client, "Paid", 1), 0);
    node.stop_and_wait().expect("a clean stop");
}

/// 3.11 #108.
#[test]
fn a_producer_sets_when_it_is_asked_first_and_may_not_decide_unasked_after_that() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let late = half(&mut client, "late", "CHECK_IMMUNITY_TIME_IN_SECONDS\u{1}40\u{2}");
    let early = half(&mut client, "early", "");
    let mut producer = produce_for(&node, "Payers");
    clock.advance_ms(30_000);
    assert_eq!(Question::wait(&mut producer).header.message_id.as_deref(), Some("early"));
    assert_eq!(end(&mut client, early, TRANSACTION_ROLLBACK).code, 0);
    clock.advance_ms(10_001);
    let answer = end(&mut client, late, TRANSACTION_COMMIT);
    assert_eq!(answer.response_code(), ResponseCode::ILLEGAL_OPERATION);
    assert_eq!(answer.remark.as_deref(), Some("the half message is 40001 ms old, 40000 ms are allowed"));
    clock.advance_ms(20_000);
    let asked = Question::wait(&mut producer);
    assert_eq!(asked.header.message_id.as_deref(), Some("late"));
    let answer =
        EndTransactionHeader { from_check: Some(true), ..ending("Payers", asked.at(), TRANSACTION_COMMIT) };
    assert_eq!(client.call(request::<EndTransaction>(&answer)).code, 0);
    assert_eq!(count(&mut client, "Paid", 1), 1);
    node.stop_and_wait().expect("a clean stop");
}

#[test]
fn further_half_messages_are_refused_while_too_many_are_open() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start_as(dir.path(), &clock, |config| config.open_transactions_max = 3);
    let mut client = Client::of(&node);
    let done = half(&mut client, "done", "");
    assert_eq!(end(&mut client, done, TRANSACTION_ROLLBACK).code, 0);
    let open: Vec<_> = (0..3).map(|at| half(&mut client, &format!("k{at}"), "")).collect();
    // An answer that decides nothing makes the owner count.
    assert_ne!(end(&mut client, done, TRANSACTION_COMMIT).code, 0);
    let busy = client.call(half_request("k3", ""));
    assert_eq!(busy.response_code(), ResponseCode::SYSTEM_BUSY);
    let remark = "3 transactions are open, openTransactionsMax = 3 allows no more";
    assert_eq!(busy.remark.as_deref(), Some(remark));
    stored(&client.produce("Paid", 1, b"plain", ""));
    assert_eq!(end(&mut client, open[1], TRANSACTION_COMMIT).code, 0);
    half(&mut client, "again", "");
    node.stop_and_wait().expect("a clean stop");
}

/// A node on the store that Java left, at the time at which Java stopped.
pub(super) fn take_over(golden: &GoldenStore) -> (NodeHandle, Arc<ManualClock>) {
    let newest = golden.messages().iter().map(|message| message.store_timestamp).max().expect("messages");
    let clock = Arc::new(ManualClock::at(newest));
    let of = |value: &serde_json::Value| value.as_u64().expect("a number");
    let settings = &golden.manifest()["settings"];
    let node = start_broker_at(&clock, &golden.dir(), |part| {
        part.store = StoreConfig {
            log_segment_bytes: of(&settings["mappedFileSizeCommitLog"]),
            queue_file_bytes: u32::try_from(of(&settings["mappedFileSizeConsumeQueue"])).unwrap().into(),
            index_slots_max: 500,
            index_entries_max: 1200,
            delay_levels: settings["messageDelayLevel"].as_str().expect("levels").to_owned(),
            reserved_hours: 87_600,
            ..part.store.clone()
        };
        part.config.transaction_check_max = 6;
    });
    (node, clock)
}

/// The transaction that Java had asked about five times when it stopped goes on to each of its ends.
#[test]
fn an_open_transaction_of_a_store_that_java_left_goes_on_to_its_end() {
    for outcome in [TRANSACTION_COMMIT, TRANSACTION_ROLLBACK, TRANSACTION_UNKNOWN] {
        let golden = GoldenStore::unpack("delivery-clean");
        let (node, clock) = take_over(&golden);
        let mut client = Client::of(&node);
        let mut producer = produce_for(&node, "pg_tx");
        clock.advance_ms(30_000);
        let asked = Question::wait(&mut producer);
        let header = &asked.header;
        assert_eq!(
            (header.message_id.as_deref(), header.queue_offset),
            (Some("7F000001461B4E0E2F2A93A79CDE009B"), 22)
        );
        assert_eq!((asked.times(), asked.message.topic.as_str()), (Some("6"), "GoldTx"));
        let before = count(&mut client, "GoldTx", 1);
        let answer = ending("pg_tx", asked.at(), outcome);
        assert_eq!(client.call(request::<EndTransaction>(&answer)).code, 0);
        let delivered = count(&mut client, "GoldTx", 1) - before;
        assert_eq!(delivered, usize::from(outcome == TRANSACTION_COMMIT));
        if outcome == TRANSACTION_UNKNOWN {
            assert_eq!(producer.call(beat("pg_tx")).code, 0);
            clock.advance_ms(30_000);
            let given_up = poll(&mut client, GIVEN_UP, 1);
            assert_eq!((&given_up.body[..], given_up.keys().next()), (&b"tx-pending"[..], Some("txlast")));
        }
        let op = |client: &mut Client, offset: i64| poll(client, OPS, offset);
        let (java, ours) = (op(&mut client, 2), op(&mut client, 3));
        assert_eq!((&java.body[..], &ours.body[..]), (&b"16,"[..], &b"21,"[..]), "the copy took its place");
        assert_eq!(java.properties.encoded(), ours.properties.encoded());
        assert_eq!((java.flag, java.sys_flag, java.queue_id), (ours.flag, ours.sys_flag, ours.queue_id));
        node.stop_and_wait().expect("a clean stop");
    }
}

/// Replays what Java's producers said; where they name places in Java's log, they name ours.
fn replay(name: &str) {
    let frames = conversation(name, "broker");
    let is_send = |frame: &&Frame| frame.command.code == SendMessageV2::CODE && !frame.is_from_server;
    let first = frames.iter().find(is_send).expect("a send");
    let born: i64 = first.command.fields.get("g").expect("a time").parse().unwrap();
    let clock = Arc::new(ManualClock::at(born + 50));
    let dir = tempfile::tempdir().unwrap();
    let node = start_as(dir.path(), &clock, |config| config.broker_name = "broker-a".to_owned());
    let mut client = Client::of(&node);
    let mut places: HashMap<String, (i64, i64)> = HashMap::new();
    let mut questions: HashMap<String, Command> = HashMap::new();
    let (mut compared, mut asked) = (0, 0);
    for frame in &frames {
        let java = &frame.command;
        if frame.is_from_server && java.code == CheckTransactionState::CODE {
            asked += 1;
            if asked == 1 {
                clock.advance_ms(30_000);
            }
            let key = java.fields.get("msgId").expect("an id").to_owned();
            while !questions.contains_key(&key) {
                let ours = client.receive().expect("a question");
                questions.insert(ours.fields.get("msgId").expect("an id").to_owned(), ours);
            }
            let ours = questions.remove(&key).expect("it came");
            same_question(java, &ours);
            places.insert(key, Question::of(ours).at());
        } else if !frame.is_from_server {
            let mut command = java.clone();
            if let Some(place) = java.fields.get("msgId").and_then(|key| places.get(key)) {
                command.fields.set("tranStateTableOffset", place.0.to_string());
                command.fields.set("commitLogOffset", place.1.to_string());
            }
            client.send_as(&command);
            if command.is_oneway() {
                continue;
            }
            let ours = client.receive().expect("an answer");
            let is_answer = |frame: &&Frame| {
                frame.is_from_server && frame.command.is_response() && frame.command.opaque == java.opaque
            };
            let java = &frames.iter().find(is_answer).expect("Java answered").command;
            assert_eq!((ours.code, keys(&ours)), (java.code, keys(java)), "{name} {}", frame.number);
            compared += 1;
            if command.code == SendMessageV2::CODE {
                let id = ours.fields.get("transactionId").expect("an id").to_owned();
                assert_eq!(
                    (Some(id.as_str()), ours.fields.get("queueId")),
                    (java.fields.get("transactionId"), java.fields.get("queueId"))
                );
                places.insert(id, place(&ours));
            }
        }
    }
    assert!(compared >= 6 && asked == 2, "{compared} answers, {asked} questions");
    let topic = first.command.fields.get("b").expect("a topic");
    let mut delivered = Vec::new();
    for queue_id in 0..4 {
        let answer = client.pull(topic, queue_id, 0, "*");
        delivered.extend(
            Message::decode_all(answer.body)
                .unwrap_or_default()
                .into_iter()
                .flat_map(|message| message.keys().map(str::to_owned).collect::<Vec<_>>()),
        );
    }
    delivered.sort();
    assert_eq!(delivered, ["tx-COMMIT_MESSAGE", "tx-UNKNOW", "tx-throw"]);
    node.stop_and_wait().expect("a clean stop");
}

fn keys(command: &Command) -> Vec<String> {
    let mut keys: Vec<String> = command.fields.iter().map(|(key, _)| key.to_owned()).collect();
    keys.sort();
    keys
}

/// A question has Java's fields, and Java's message but for what differs from broker to broker.
fn same_question(java: &Command, ours: &Command) {
    assert_eq!((java.flag, keys(java)), (ours.flag, keys(ours)));
    for key in ["bname", "topic", "msgId", "transactionId"] {
        assert_eq!(java.fields.get(key), ours.fields.get(key), "{key}");
    }
    let messages: [Message; 2] =
        [java, ours].map(|command| Message::decode_all(command.body.clone()).expect("a record").remove(0));
    let [java, ours] = &messages;
    assert_eq!((&java.topic, java.queue_id, &java.body), (&ours.topic, ours.queue_id, &ours.body));
    assert_eq!((java.flag, java.born_timestamp_ms), (ours.flag, ours.born_timestamp_ms));
    let properties = |message: &Message| -> Vec<(String, String)> {
        let all = message.properties.iter().filter(|(name, _)| *name != "CLUSTER");
        let mut all: Vec<_> = all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        all.sort();
        all
    };
    assert_eq!(properties(java), properties(ours));
}

#[test]
fn the_conversations_of_javas_transaction_producers_go_as_they_went_with_java() {
    ["tx-498", "tx-531"].into_iter().for_each(replay);
}

/// The record of a question is one that stands in no log: it parses, with the offsets of the copy.
#[test]
fn a_question_holds_a_record_that_names_the_copy() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    half(&mut client, "Q", "");
    let mut producer = produce_for(&node, "Payers");
    clock.advance_ms(30_000);
    let frame = producer.receive().expect("a question");
    let header: CheckTransactionStateHeader = frame.header().expect("a whole header");
    let record = RecordView::parse(&frame.body).expect("a record");
    assert_eq!((record.queue_offset(), record.log_offset()), (header.queue_offset, header.log_offset));
    assert!(record.body_is_intact());
    node.stop_and_wait().expect("a clean stop");
}

/// A broker that starts again knows that each of these halves was decided.
fn assert_stay_decided(dir: &Path, clock: &Arc<ManualClock>, halves: &[(i64, i64)]) {
    let node = start(dir, clock);
    for at in halves {
        let again = end(&mut Client::of(&node), *at, TRANSACTION_COMMIT);
        assert!(again.remark.is_some_and(|remark| remark.contains("was decided before")));
    }
    node.stop_and_wait().expect("a clean stop");
}

#[test]
fn ends_that_come_together_are_all_stored_and_the_first_of_each_counts() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let halves: Vec<_> = (0..40).map(|at| half(&mut client, &format!("U{at}"), "")).collect();
    let mut asked = Vec::new();
    for (number, at) in halves.iter().enumerate() {
        // Each is ended twice, in one way and the other: one of the two counts, whichever it is.
        for outcome in [TRANSACTION_COMMIT, TRANSACTION_ROLLBACK] {
            let opaque = client.send(request::<EndTransaction>(&ending("Payers", *at, outcome)));
            asked.push((opaque, number, outcome));
        }
    }
    let mut won = HashMap::new();
    for _ in &asked {
        let answer = client.receive().expect("each is answered");
        let (_, number, outcome) = asked.iter().find(|(opaque, ..)| *opaque == answer.opaque).unwrap();
        if answer.code == 0 {
            assert_eq!(won.insert(*number, *outcome), None, "half {number} was decided twice");
        }
    }
    assert_eq!(won.len(), halves.len(), "each was decided");
    let committed = won.values().filter(|outcome| **outcome == TRANSACTION_COMMIT).count();
    assert_eq!(count(&mut client, "Paid", 1), committed.min(32), "a pull gives 32 at most");
    node.stop_and_wait().expect("a clean stop");
    assert_stay_decided(dir.path(), &clock, &halves);
}

/// As Java's producer ends them.
#[test]
fn ends_that_nobody_waits_for_are_gathered_and_all_stored_also_when_somebody_waits_for_one_behind_them() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let halves: Vec<_> = (0..60).map(|at| half(&mut client, &format!("U{at:02}"), "")).collect();
    let oneway = |at, outcome| request::<EndTransaction>(&ending("Payers", at, outcome)).oneway();
    let (waited_for, unasked) = halves.split_last().unwrap();
    for some in unasked.chunks(12) {
        for at in some {
            client.send(oneway(*at, TRANSACTION_COMMIT));
            client.send(oneway(*at, TRANSACTION_ROLLBACK));
        }
        // What came before on the connection is begun when this is answered; no time passes for who gathers.
        assert_eq!(client.pull("Paid", 1, 1_000, "*").code, 21);
    }
    assert_eq!(end(&mut client, *waited_for, TRANSACTION_COMMIT).code, 0);
    let bodies: Vec<_> =
        (0..60).map(|offset| wait_for(&mut client, "Paid", 1, offset).body.to_vec()).collect();
    let wanted: Vec<_> = (0..60).map(|at| format!("U{at:02}").into_bytes()).collect();
    assert_eq!(bodies, wanted, "the first end of each counts, in their order");
    node.stop_and_wait().expect("a clean stop");
    assert_stay_decided(dir.path(), &clock, &halves);
}
