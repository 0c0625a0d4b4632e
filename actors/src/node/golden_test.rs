//! Conversations that Java's clients had with Java's broker, held with ours over a socket: sends, pulls, queries.
//!
//! Invariants:
//! - every frame of a client is sent, in its order and over its connection; every answer is compared: code, keys
//!   of the extension fields, remark, and of a pull its offsets and messages;
//! - what a conversation presupposes (topics, messages stored before) is made first, from Java's answers;
//! - where ours differs it stands in [`DIFFERENCES`], with the reason.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use troupemq_codec::group::SubscriptionGroupConfig;
use troupemq_codec::message::{Message, NewRecord};
use troupemq_codec::request::*;
use troupemq_codec::{Command, Request, Text};

use crate::cast::BrokerCast;
use crate::golden::{Frame, conversation};
use crate::node::{Node, NodeHandle};
use crate::send::{Own, store};
use crate::testing::{Client, request, small_broker};
use crate::topics::EnsureTopic;

/// The conversations.
const CONVERSATIONS: &[&str] = &[
    "errors",
    "producer-498",
    "producer-531",
    "producer-binary-498",
    "producer-binary-531",
    "pull-498",
    "pull-531",
    "litepull-498",
    "litepull-531",
    "push-498",
    "push-531",
];

/// Requests whose answers are compared here; others are sent because later ones presuppose them.
const COMPARED: &[i32] = &[
    SendMessage::CODE,
    SendMessageV2::CODE,
    SendBatchMessage::CODE,
    PullMessage::CODE,
    LitePullMessage::CODE,
    ViewMessageById::CODE,
    QueryMessage::CODE,
];

/// Where ours answers otherwise: file, number of the request, reason.
const DIFFERENCES: &[(&str, i64, &str)] = &[
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
    ("errors", 25, TIMER),
    ("errors", 27, TIMER),
    ("producer-531", 16, USED),
    ("producer-binary-498", 18, USED),
    ("producer-binary-531", 18, USED),
];

const TIMER: &str = "timer messages are refused, because nobody would deliver them yet";
const USED: &str = "the delay level of Java's broker had been used before";
const LATER: &str = "releases since 5.3.2 answer 29, with the same text";
const ACCIDENT: &str =
    "the missing key is named, with the fields of every answer; Java's answer is an accident";

#[test]
fn sends_pulls_and_queries_are_answered_as_java_answers_them() {
    let mut compared = 0;
    let mut found = BTreeSet::new();
    let mut wrong = Vec::new();
    for name in CONVERSATIONS {
        for difference in Conversation::hold(name, &mut compared) {
            match DIFFERENCES.iter().find(|known| known.0 == *name && known.1 == difference.0) {
                Some(known) => _ = found.insert((known.0, known.1)),
                None => wrong.push(format!("{name} {}: {}", difference.0, difference.1)),
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {compared} answers:\n{}", wrong.len(), wrong.join("\n"));
    let listed: BTreeSet<_> = DIFFERENCES.iter().map(|known| (known.0, known.1)).collect();
    assert_eq!(found, listed, "differences that are none any more");
}

struct Conversation {
    node: NodeHandle,
    broker: Arc<BrokerCast>,
    clients: HashMap<u64, Peer>,
    /// Messages that Java's answers show and nobody sends in the conversation, by their place.
    known: HashMap<Place, Message>,
    /// Places taken by what is sent in the conversation.
    sent: HashSet<Place>,
}

/// Topic, queue, offset.
type Place = (String, i32, i64);

/// One connection, with the answers that came and were not asked for yet.
struct Peer {
    client: Client,
    came: HashMap<i32, Command>,
}

impl Conversation {
    fn hold(name: &str, compared: &mut u32) -> Vec<(i64, String)> {
        let frames = conversation(name, "broker");
        let dir = tempfile::tempdir().unwrap();
        let mut config = small_broker(dir.path());
        if name == "errors" {
            config.broker.as_mut().unwrap().config.max_message_size = 65_536;
        }
        let node = Node::start(config).unwrap();
        let broker = node.broker().unwrap().clone();
        let (known, sent) = places(&frames);
        let mut held = Conversation { node, broker, clients: HashMap::new(), known, sent };
        held.prepare(name, &frames);
        let mut differences = Vec::new();
        let mut asked: HashMap<(u64, i32), &Frame> = HashMap::new();
        for frame in &frames {
            let key = (frame.conn, frame.command.opaque);
            if !frame.is_from_server && !frame.command.is_response() {
                asked.insert(key, frame);
                held.send(frame, answer_to(&frames, frame));
            } else if frame.is_from_server
                && frame.command.is_response()
                && let Some(request) = asked.get(&key)
            {
                let ours = held.answer(frame.conn, frame.command.opaque);
                if COMPARED.contains(&request.command.code) {
                    *compared += 1;
                    let why = difference(&request.command, &frame.command, &ours);
                    differences.extend(why.map(|why| (request.number, why)));
                }
            }
        }
        differences
    }

    fn peer(&mut self, conn: u64) -> &mut Peer {
        let node = &self.node;
        self.clients.entry(conn).or_insert_with(|| Peer { client: Client::of(node), came: HashMap::new() })
    }

    fn send(&mut self, frame: &Frame, java: Option<&Command>) {
        self.presuppose(&frame.command, java);
        let mut command = frame.command.clone();
        if command.fields.get("suspendTimeoutMillis").is_some() {
            command.fields.set("suspendTimeoutMillis", "1500");
        }
        self.peer(frame.conn).client.send_as(&command);
    }

    fn answer(&mut self, conn: u64, opaque: i32) -> Command {
        let peer = self.peer(conn);
        loop {
            if let Some(answer) = peer.came.remove(&opaque) {
                return answer;
            }
            let came = peer.client.receive().expect("the connection stays open");
            if came.is_response() {
                peer.came.insert(came.opaque, came);
            }
        }
    }

    /// Topics and groups that were there before.
    fn prepare(&mut self, name: &str, frames: &[Frame]) {
        let mut admin = Client::of(&self.node);
        let mut topic = |topic: &str, queues: i32, perm: i32| {
            let header = UpdateAndCreateTopicHeader {
                topic: topic.into(),
                default_topic: "TBW102".into(),
                read_queue_nums: queues,
                write_queue_nums: queues,
                perm,
                topic_filter_type: "SINGLE_TAG".into(),
                ..UpdateAndCreateTopicHeader::default()
            };
            assert_eq!(admin.call(request::<UpdateAndCreateTopic>(&header)).code, 0);
        };
        if name == "errors" {
            [("ErrTopic", 6), ("EmptyTopic", 6), ("NoWrite", 4), ("NoRead", 2)]
                .into_iter()
                .for_each(|(name, perm)| topic(name, 2, perm));
            let group = SubscriptionGroupConfig {
                group_name: "no_consume".into(),
                consume_enable: false,
                ..SubscriptionGroupConfig::default()
            };
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let put = self.broker.groups.send(crate::groups::PutGroups(vec![group]));
            runtime.block_on(async { put.await.unwrap().unwrap().await.unwrap() }).unwrap();
            return;
        }
        let pulled = frames.iter().filter_map(|frame| frame.command.header::<PullMessageHeader>().ok());
        let names: BTreeSet<Text> = pulled.map(|header| header.topic).collect();
        names.iter().filter(|name| !name.starts_with('%')).for_each(|name| topic(name, 4, 6));
    }

    /// Messages that were stored before: a send is answered with its offset, a pull with where the queue ends.
    fn presuppose(&self, command: &Command, java: Option<&Command>) {
        let Some(java) = java.filter(|java| java.code == 0) else { return };
        if let Some(places) = sent_places(command, java) {
            places.iter().for_each(|(topic, queue_id, offset)| self.fill(topic, *queue_id, *offset));
        }
        if crate::pull::is_pull(command.code) {
            let header: PullMessageHeader = command.header().unwrap();
            let reply: PullMessageReplyHeader = java.header().unwrap();
            self.fill(&header.topic, header.queue_id, reply.max_offset);
        }
        if command.code == QueryMessage::CODE {
            for message in Message::decode_all(java.body.clone()).unwrap() {
                self.fill(&message.topic, message.queue_id, message.queue_offset + 1);
            }
        }
    }

    /// Stores what was there before until the queue ends at `end`, or where something will be sent to.
    fn fill(&self, topic: &str, queue_id: i32, end: i64) {
        for offset in self.end_of(topic, queue_id)..end {
            let place = (topic.to_owned(), queue_id, offset);
            if self.sent.contains(&place) {
                return;
            }
            let Some(message) = self.known.get(&place) else {
                self.put(topic, queue_id, (&[], b"filler", 0));
                continue;
            };
            let tags_code = troupemq_codec::filter::tags_code_of(message.tags());
            self.put(topic, queue_id, (message.properties.encoded(), &message.body, tags_code));
        }
    }

    fn end_of(&self, topic: &str, queue_id: i32) -> i64 {
        self.broker.queues.get(topic, queue_id).map_or(0, |queue| queue.max_offset())
    }

    fn put(&self, topic: &str, queue_id: i32, (properties, body, tags_code): (&[u8], &[u8], i64)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            if self.broker.directory.topic(topic).is_none() {
                let template = Text::from_static("TBW102");
                let wanted = EnsureTopic { topic: topic.into(), template, queue_nums: 4 };
                self.broker.topics.send(wanted).await.unwrap().unwrap();
            }
            let record = NewRecord {
                topic,
                queue_id,
                flag: 0,
                sys_flag: 0,
                born_timestamp_ms: 1,
                born_host: self.broker.advertised,
                store_host: self.broker.advertised,
                reconsume_times: 0,
                prepared_log_offset: 0,
                body,
                properties: &[properties],
            };
            store(&self.broker, &[Own { record, tags_code }]).await.unwrap();
        });
    }
}

/// What Java's answers show: messages that were there before, and the places of those sent meanwhile.
fn places(frames: &[Frame]) -> (HashMap<Place, Message>, HashSet<Place>) {
    let mut known = HashMap::new();
    let mut sent = HashSet::new();
    for request in frames.iter().filter(|frame| !frame.is_from_server) {
        let Some(java) = answer_to(frames, request).filter(|java| java.code == 0) else { continue };
        sent.extend(sent_places(&request.command, java).into_iter().flatten());
        let has_messages = [PullMessage::CODE, LitePullMessage::CODE, QueryMessage::CODE];
        if has_messages.contains(&request.command.code) {
            for message in Message::decode_all(java.body.clone()).unwrap() {
                let place = (message.topic.to_string(), message.queue_id, message.queue_offset);
                known.insert(place, message);
            }
        }
    }
    (known, sent)
}

/// The places that a send took.
fn sent_places(command: &Command, java: &Command) -> Option<Vec<Place>> {
    let is_send = [SendMessage::CODE, SendMessageV2::CODE, SendBatchMessage::CODE].contains(&command.code);
    let header: SendMessageReplyHeader = java.header().ok().filter(|_| is_send)?;
    let topic = command.fields.get("b").or(command.fields.get("topic"))?;
    let count = header.message_id.split(',').count();
    let offsets = (header.queue_offset..).take(count);
    Some(offsets.map(|offset| (topic.to_owned(), header.queue_id, offset)).collect())
}

fn answer_to<'a>(frames: &'a [Frame], request: &Frame) -> Option<&'a Command> {
    let is_answer = |frame: &&Frame| {
        frame.is_from_server
            && frame.command.is_response()
            && frame.number > request.number
            && (frame.conn, frame.command.opaque) == (request.conn, request.command.opaque)
    };
    frames.iter().find(is_answer).map(|frame| &frame.command)
}

/// How ours differs from Java's answer, if it does.
fn difference(request: &Command, java: &Command, ours: &Command) -> Option<String> {
    if java.code != ours.code {
        return Some(format!("code {} instead of {}, {:?}", ours.code, java.code, ours.remark));
    }
    let keys = |command: &Command| -> BTreeSet<String> {
        command.fields.iter().map(|(key, _)| key.to_owned()).collect()
    };
    if keys(java) != keys(ours) {
        return Some(format!("fields {:?} instead of {:?}", keys(ours), keys(java)));
    }
    let is_pull = crate::pull::is_pull(request.code);
    let remark = |command: &Command| command.remark.as_deref().map(without_ports);
    if (is_pull || java.code != 0) && remark(java) != remark(ours) {
        return Some(format!("{:?} instead of {:?}", ours.remark, java.remark));
    }
    let same =
        ["queueId", "queueOffset", "nextBeginOffset", "minOffset", "maxOffset", "suggestWhichBrokerId"];
    for key in same {
        if java.fields.get(key) != ours.fields.get(key) {
            let (ours, java) = (ours.fields.get(key), java.fields.get(key));
            return Some(format!("{key} {ours:?} instead of {java:?}"));
        }
    }
    let bodies = |command: &Command| -> Vec<_> {
        let messages = Message::decode_all(command.body.clone()).unwrap();
        messages.into_iter().map(|message| (message.queue_offset, message.body)).collect()
    };
    (bodies(java) != bodies(ours)).then(|| "other messages".to_owned())
}

/// A text with the numbers of ports, which differ from run to run, left out.
fn without_ports(text: &str) -> String {
    let Some(at) = text.find("127.0.0.1:") else { return text.to_owned() };
    let (head, tail) = text.split_at(at + "127.0.0.1:".len());
    format!("{head}{}", tail.trim_start_matches(|c: char| c.is_ascii_digit()))
}
