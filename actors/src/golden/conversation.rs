//! A recorded conversation, held with a broker of ours over sockets.
//!
//! Invariants:
//! - every frame of a client is sent, in its order and over its connection, with its own number; the answer is
//!   awaited where the recording has it;
//! - messages that were there before are stored first, from what Java's answers show;
//! - what Java's broker told on its own (NOTIFY_CONSUMER_IDS_CHANGED) ours tells too, over the same connection.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use troupemq_codec::filter::tags_code_of;
use troupemq_codec::message::{Message, NewRecord};
use troupemq_codec::request::*;
use troupemq_codec::{Command, Request, ResponseCode, Text};
use troupemq_store::ManualClock;

use super::replay::{Replay, asked, difference, says};
use super::shape::said_by;
use super::{Frame, conversation};
use crate::cast::BrokerCast;
use crate::config::{NodeClock, NodeConfig};
use crate::node::{Node, NodeHandle};
use crate::send::{Own, store};
use crate::testing::{Client, block_on, request, small_broker};
use crate::topics::EnsureTopic;

/// How long a pull is held at most, in ms: nothing comes that the recording does not have.
const HOLD_MS: &str = "500";

/// When a message comes that waits, where a conversation is not about times.
const FAR: &str = "1d";

/// A conversation to be held.
pub(crate) struct Play {
    /// Its file.
    pub(crate) name: &'static str,
    /// Requests whose answers are compared; others are sent because later ones presuppose them.
    pub(crate) compared: &'static [i32],
    /// What is other than usual in the broker's configuration.
    pub(crate) config: fn(&mut NodeConfig),
    /// When it began, epoch ms, if it is about times: then the clock shows what it showed, and nothing was there.
    pub(crate) began_ms: Option<i64>,
    /// What was there before, beside messages.
    pub(crate) before: fn(&Conversation, &[Frame]),
}

/// A conversation that is held.
pub(crate) struct Conversation {
    /// The broker.
    pub(crate) broker: Arc<BrokerCast>,
    node: NodeHandle,
    clients: HashMap<u64, Peer>,
    /// Messages that Java's answers show and nobody sends in the conversation, by their place.
    known: HashMap<Place, Message>,
    /// Places taken by what is sent in the conversation.
    sent: HashSet<Place>,
    /// Places of messages by where they lie in the log of Java's broker.
    in_log: HashMap<i64, Place>,
    is_timed: bool,
}

/// Topic, queue, offset.
type Place = (String, i32, i64);

/// One connection, with what came and was not asked for yet.
struct Peer {
    client: Client,
    answers: HashMap<i32, Command>,
    /// What the broker told on its own.
    told: Vec<Command>,
}

impl Play {
    /// A conversation with nothing special.
    pub(crate) fn plain(name: &'static str, compared: &'static [i32]) -> Play {
        Play { name, compared, config: |_| {}, began_ms: None, before: Conversation::make_pulled_topics }
    }

    /// Holds the conversation with a fresh broker.
    pub(crate) fn hold(&self, replay: &mut Replay) {
        let frames = conversation(self.name, "broker");
        let dir = tempfile::tempdir().unwrap();
        let mut config = small_broker(dir.path());
        (self.config)(&mut config);
        let clock = self.began_ms.map(|began_ms| Arc::new(ManualClock::at(began_ms)));
        if let (None, Some(part)) = (&clock, &mut config.broker) {
            // However long it takes here, nothing that waits comes in its midst.
            part.store.delay_levels = [FAR; 18].join(" ");
        }
        if let Some(clock) = &clock {
            config.clock = NodeClock(clock.clone());
        }
        let node = Node::start(config).unwrap();
        let mut held = Conversation::new(node, &frames);
        held.is_timed = clock.is_some();
        (self.before)(&held, &frames);
        let java: HashMap<i64, &Command> = asked(&frames)
            .into_iter()
            .filter_map(|asked| Some((asked.request.number, asked.java?)))
            .collect();
        let mut open: HashMap<(u64, i32), &Frame> = HashMap::new();
        for frame in &frames {
            if let (Some(clock), Some(began_ms)) = (&clock, self.began_ms) {
                clock.advance_to(began_ms + frame.at_ms);
            }
            let key = (frame.conn, frame.command.opaque);
            if !frame.is_from_server && !frame.command.is_response() {
                open.insert(key, frame);
                held.send(frame, java.get(&frame.number).copied());
            } else if let Some(request) = open.remove(&key).filter(|_| frame.is_from_server) {
                let ours = held.answer(frame.conn, frame.command.opaque);
                if self.compared.contains(&request.command.code) {
                    let why = unlike(&request.command, &frame.command, &ours);
                    replay.note(self.name, request, why);
                }
            }
        }
        held.compare_what_was_told(self.name, &frames, replay);
    }
}

impl Conversation {
    fn new(node: NodeHandle, frames: &[Frame]) -> Conversation {
        let mut held = Conversation {
            broker: node.broker().unwrap().clone(),
            node,
            clients: HashMap::new(),
            known: HashMap::new(),
            sent: HashSet::new(),
            in_log: HashMap::new(),
            is_timed: false,
        };
        for asked in asked(frames) {
            let Some(java) = asked.java.filter(|java| java.code == 0) else { continue };
            held.sent.extend(sent_places(&asked.request.command, java).into_iter().flatten());
            if [PullMessage::CODE, LitePullMessage::CODE, QueryMessage::CODE]
                .contains(&asked.request.command.code)
            {
                for message in Message::decode_all(java.body.clone()).unwrap() {
                    let place = (message.topic.to_string(), message.queue_id, message.queue_offset);
                    held.in_log.insert(message.log_offset, place.clone());
                    held.known.insert(place, message);
                }
            }
        }
        held
    }

    /// Makes the topics that are pulled from.
    pub(crate) fn make_pulled_topics(&self, frames: &[Frame]) {
        let pulls = frames.iter().filter(|frame| crate::pull::is_pull(frame.command.code));
        let names: BTreeSet<&str> = pulls.filter_map(|pull| pull.command.fields.get("topic")).collect();
        names.into_iter().filter(|name| !name.starts_with('%')).for_each(|name| self.make_topic(name, 4, 6));
    }

    /// Makes a topic.
    pub(crate) fn make_topic(&self, topic: &str, queues: i32, perm: i32) {
        self.make_topic_with(topic, (queues, perm), None);
    }

    /// Makes a topic with attributes.
    pub(crate) fn make_topic_with(
        &self,
        topic: &str,
        (queues, perm): (i32, i32),
        attributes: Option<&'static str>,
    ) {
        let header = UpdateAndCreateTopicHeader {
            topic: topic.into(),
            default_topic: "TBW102".into(),
            read_queue_nums: queues,
            write_queue_nums: queues,
            perm,
            topic_filter_type: "SINGLE_TAG".into(),
            attributes: attributes.map(Text::from_static),
            ..UpdateAndCreateTopicHeader::default()
        };
        let answer = Client::of(&self.node).call(request::<UpdateAndCreateTopic>(&header));
        assert_eq!(answer.code, 0, "{answer:?}");
    }

    fn peer(&mut self, conn: u64) -> &mut Peer {
        let node = &self.node;
        let new = || Peer { client: Client::of(node), answers: HashMap::new(), told: Vec::new() };
        self.clients.entry(conn).or_insert_with(new)
    }

    fn send(&mut self, frame: &Frame, java: Option<&Command>) {
        if !self.is_timed {
            self.presuppose(&frame.command, java);
        }
        let mut command = frame.command.clone();
        if command.fields.get("suspendTimeoutMillis").is_some() && !self.is_timed {
            command.fields.set("suspendTimeoutMillis", HOLD_MS);
        }
        if command.code == ConsumerSendMsgBack::CODE
            && let Some(log_offset) = self.in_our_log(&command)
        {
            command.fields.set("offset", log_offset.to_string().as_str());
        }
        if command.code == SearchOffsetByTimestamp::CODE && self.is_later_than_all(&command) {
            command.fields.set("timestamp", (self.broker.now_ms() + 1).to_string().as_str());
        }
        self.peer(frame.conn).client.send_as(&command);
    }

    /// Where the message that is sent back lies in our log.
    fn in_our_log(&self, command: &Command) -> Option<u64> {
        let header: ConsumerSendMsgBackHeader = command.header().ok()?;
        let (topic, queue_id, queue_offset) = self.in_log.get(&header.log_offset)?;
        let units = self.broker.queues.get(topic, *queue_id)?;
        units.unit(*queue_offset).map(|unit| unit.log_offset)
    }

    /// Whether a time lies behind every message that was there: what is stored in a replay is stored now.
    fn is_later_than_all(&self, command: &Command) -> bool {
        let header: SearchOffsetByTimestampHeader = command.header().unwrap();
        let mut there = self.known.values().filter(|message| message.topic == header.topic);
        there.all(|message| message.store_timestamp_ms < header.timestamp_ms)
    }

    fn answer(&mut self, conn: u64, opaque: i32) -> Command {
        let peer = self.peer(conn);
        loop {
            if let Some(answer) = peer.answers.remove(&opaque) {
                return answer;
            }
            let came = peer.client.receive().expect("the connection stays open");
            match came.is_response() {
                true => _ = peer.answers.insert(came.opaque, came),
                false => peer.told.push(came),
            }
        }
    }

    /// How often a broker tells that members have changed depends on the moment; whom, and what, does not.
    fn compare_what_was_told(&self, name: &str, frames: &[Frame], replay: &mut Replay) {
        let told = frames.iter().filter(|frame| {
            frame.is_from_server
                && frame.command.code == NotifyConsumerIdsChanged::CODE
                && !frame.command.is_response()
        });
        for frame in told {
            let peer = self.clients.get(&frame.conn);
            let ours = peer.and_then(|peer| peer.told.iter().find(|told| told.code == frame.command.code));
            let why = match ours {
                Some(ours) if ours.is_oneway() => difference(&frame.command, ours),
                other => Some(format!("it told {other:?}")),
            };
            replay.note(name, frame, why);
        }
    }

    /// Messages that were stored before: a send is answered with its offset, a pull with where the queue ends.
    fn presuppose(&self, command: &Command, java: Option<&Command>) {
        let may_have = [ResponseCode::SUCCESS, ResponseCode::PULL_RETRY_IMMEDIATELY];
        let Some(java) = java.filter(|java| may_have.contains(&java.response_code())) else { return };
        if let Some(places) = sent_places(command, java) {
            places.iter().for_each(|(topic, queue_id, offset)| self.fill(topic, *queue_id, *offset));
        }
        if crate::pull::is_pull(command.code) {
            let header: PullMessageHeader = command.header().unwrap();
            let reply: PullMessageReplyHeader = java.header().unwrap();
            self.fill(&header.topic, header.queue_id, reply.max_offset);
        }
        if [GetMaxOffset::CODE, SearchOffsetByTimestamp::CODE].contains(&command.code) {
            let header: GetMaxOffsetHeader = command.header().unwrap();
            let reply: GetMaxOffsetReplyHeader = java.header().unwrap();
            self.fill(&header.topic, header.queue_id, reply.queue_offset);
        }
        if command.code == QueryMessage::CODE {
            for message in Message::decode_all(java.body.clone()).unwrap() {
                self.fill(&message.topic, message.queue_id, message.queue_offset + 1);
            }
        }
    }

    /// Stores what was there before until the queue ends at `end`, or where something will be sent to.
    fn fill(&self, topic: &str, queue_id: i32, end: i64) {
        let has = self.broker.queues.get(topic, queue_id).map_or(0, |queue| queue.max_offset());
        for offset in has..end {
            let place = (topic.to_owned(), queue_id, offset);
            if self.sent.contains(&place) {
                return;
            }
            let Some(message) = self.known.get(&place) else {
                self.put(topic, queue_id, (&[], b"filler", 0));
                continue;
            };
            let tags_code = tags_code_of(message.tags());
            self.put(topic, queue_id, (message.properties.encoded(), &message.body, tags_code));
        }
    }

    fn put(&self, topic: &str, queue_id: i32, (properties, body, tags_code): (&[u8], &[u8], i64)) {
        block_on(async {
            if self.broker.directory.topic(topic).is_none() {
                let template = Text::from_static("TBW102");
                let wanted = EnsureTopic { topic: topic.into(), template, queue_nums: 4 };
                self.broker.topics.send(wanted).await.unwrap().unwrap();
            }
            let record = NewRecord {
                queue_id,
                born_host: self.broker.advertised,
                store_host: self.broker.advertised,
                topic,
                body,
                properties: &[properties],
                ..NewRecord::PLAIN
            };
            store(&self.broker, &[Own { record, tags_code, keys: None }]).await.unwrap();
        });
    }
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

/// How ours differs from Java's answer, if it does.
fn unlike(request: &Command, java: &Command, ours: &Command) -> Option<String> {
    if let Some(why) = difference(java, ours) {
        return Some(why);
    }
    if crate::pull::is_pull(request.code) && !says(ours, java) {
        return Some(format!("{:?} instead of {:?}", ours.remark, java.remark));
    }
    const SAME: [&str; 9] = [
        "queueId",
        "queueOffset",
        "nextBeginOffset",
        "minOffset",
        "maxOffset",
        "suggestWhichBrokerId",
        "offset",
        "IS_SUPPORT_HEART_BEAT_V2",
        "IS_SUB_CHANGE",
    ];
    for key in SAME {
        let (ours, java) = (ours.fields.get(key), java.fields.get(key));
        if ours != java {
            return Some(format!("{key} {ours:?} instead of {java:?}"));
        }
    }
    let has_messages = [PullMessage::CODE, LitePullMessage::CODE, QueryMessage::CODE, ViewMessageById::CODE];
    if has_messages.contains(&request.code) {
        let bodies = |command: &Command| -> Vec<_> {
            let messages = Message::decode_all(command.body.clone()).unwrap();
            messages.into_iter().map(|message| (message.queue_offset, message.body)).collect()
        };
        return (bodies(java) != bodies(ours)).then(|| "other messages".to_owned());
    }
    let (java, ours) = (said_by(&java.body), said_by(&ours.body));
    (java != ours).then(|| format!("{ours} instead of {java}"))
}
