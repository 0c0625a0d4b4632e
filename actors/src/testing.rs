//! For tests: a node in a folder of its own, and a client that speaks frames over a plain socket.
//!
//! Invariants:
//! - every node has its own folder and ports, so tests run side by side;
//! - the client waits for at most `PATIENCE`: a test that waits for nothing fails, it does not hang.

pub mod bad_input;

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use troupemq_codec::frame::take_frame;
use troupemq_codec::heartbeat_data::{ConsumerData, HeartbeatData, SubscriptionData};
use troupemq_codec::loose_json::to_fastjson;
use troupemq_codec::message::Message;
use troupemq_codec::request::{
    HeartBeat, PULL_HAS_SUBSCRIPTION, PULL_SUSPENDS, PullMessage, PullMessageHeader, SendMessageReplyHeader,
    SendMessageV2, SendMessageV2Header, UpdateAndCreateTopic, UpdateAndCreateTopicHeader,
    UpdateConsumerOffset, UpdateConsumerOffsetHeader,
};
use troupemq_codec::{Command, Request, Text};
pub use troupemq_store::testing::{evict, until};
use troupemq_store::{Clock, ManualClock, StoreConfig, SystemClock};

use crate::config::{BrokerPart, NodeClock, NodeConfig};
use crate::node::{Node, NodeHandle};

/// How long a client waits for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// What was written within it, before or after now, was written by a test of today.
const AN_HOUR: Duration = Duration::from_secs(3600);

/// The configuration of a small broker on any free port, with its store in `dir`.
pub fn small_broker(dir: &Path) -> NodeConfig {
    let store = StoreConfig {
        log_segment_bytes: 8 << 20,
        index_slots_max: 1000,
        index_entries_max: 4000,
        queue_file_bytes: 20_000,
        disk_full_percent: 100,
        disk_free_floor_bytes: 0,
        ..StoreConfig::in_dir(dir)
    };
    let mut part = BrokerPart::new(store);
    part.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    part.config.broker_name = "broker-a".to_owned();
    NodeConfig { broker: Some(part), ..NodeConfig::empty() }
}

/// Seeds of random histories: those that `MODEL_SEEDS` names (`7`, or `100..200`), else the usual ones.
///
/// # Panics
/// If it names none.
pub fn seeds(usual: &[u64]) -> Vec<u64> {
    let Ok(named) = std::env::var("MODEL_SEEDS") else { return usual.to_vec() };
    let number = |text: &str| text.parse::<u64>().expect("MODEL_SEEDS is a number, or two with .. between");
    match named.split_once("..") {
        Some((from, to)) => (number(from)..number(to)).collect(),
        None => vec![number(&named)],
    }
}

/// The first segment of the log of a broker with its store in `dir`.
pub fn first_segment(dir: &Path) -> PathBuf {
    dir.join("commitlog").join(format!("{:020}", 0))
}

/// The folder of the units of a queue of that broker.
pub fn queue_dir(dir: &Path, topic: &str, queue_id: i32) -> PathBuf {
    dir.join("consumequeue").join(topic).join(queue_id.to_string())
}

/// Dates the segments of the log that were written since the last time by the clock of the test: how old a segment is,
/// its file tells, and that is dated by the clock of the system.
pub fn date_log(dir: &Path, now_ms: i64) {
    let system = SystemTime::UNIX_EPOCH + millis(SystemClock::new().now_ms());
    for segment in std::fs::read_dir(dir.join("commitlog")).expect("the broker has a log") {
        let file = match File::options().write(true).open(segment.expect("it is there").path()) {
            // It was old, and went meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            opened => opened.expect("it can be opened"),
        };
        let written = file.metadata().and_then(|of| of.modified()).expect("a file has its time");
        let away = system.duration_since(written).unwrap_or_else(|ahead| ahead.duration());
        if away < AN_HOUR {
            file.set_modified(SystemTime::UNIX_EPOCH + millis(now_ms)).expect("it can be dated");
        }
    }
}

fn millis(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).expect("times are after 1970"))
}

/// Waits for something that actors or the node answer.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a plain runtime").block_on(future)
}

/// Starts a small broker with its store in `dir`.
pub fn start_broker(dir: &Path) -> NodeHandle {
    start_broker_as(dir, |_| {})
}

/// Starts a small broker with its store in `dir`, after `change` has changed its settings.
pub fn start_broker_as(dir: &Path, change: impl FnOnce(&mut BrokerPart)) -> NodeHandle {
    start_changed(small_broker(dir), change)
}

/// The same with a clock that the test turns.
pub fn start_broker_at(
    clock: &Arc<ManualClock>,
    dir: &Path,
    change: impl FnOnce(&mut BrokerPart),
) -> NodeHandle {
    start_changed(NodeConfig { clock: NodeClock(clock.clone()), ..small_broker(dir) }, change)
}

fn start_changed(mut config: NodeConfig, change: impl FnOnce(&mut BrokerPart)) -> NodeHandle {
    change(config.broker.as_mut().expect("a small broker has one"));
    Node::start(config).expect("a small broker starts")
}

/// A client on a plain socket.
#[derive(Debug)]
pub struct Client {
    socket: TcpStream,
    buffer: BytesMut,
    next_opaque: i32,
}

impl Client {
    /// Connects to a broker or name server.
    pub fn connect(to: SocketAddr) -> Client {
        let socket = TcpStream::connect(to).expect("the port is listened on");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        socket.set_nodelay(true).expect("the option can be set");
        Client { socket, buffer: BytesMut::new(), next_opaque: 1000 }
    }

    /// Connects to the broker of a node.
    pub fn of(node: &NodeHandle) -> Client {
        Client::connect(node.broker_address().expect("the node has a broker"))
    }

    /// Sends bytes as they are.
    pub fn write(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("the connection takes bytes");
    }

    /// Sends a request if the connection still takes it.
    pub fn try_send(&mut self, request: &Command) -> bool {
        let mut out = BytesMut::new();
        request.encode(&mut out);
        self.socket.write_all(&out).is_ok()
    }

    /// Sends a request and returns its opaque.
    pub fn send(&mut self, mut request: Command) -> i32 {
        request.opaque = self.next_opaque;
        self.next_opaque += 1;
        let mut out = BytesMut::new();
        request.encode(&mut out);
        self.write(&out);
        request.opaque
    }

    /// Sends a command as it is, with its own opaque.
    pub fn send_as(&mut self, command: &Command) {
        let mut out = BytesMut::new();
        command.encode(&mut out);
        self.write(&out);
    }

    /// The next frame; none when the peer has closed the connection.
    pub fn receive(&mut self) -> Option<Command> {
        loop {
            if let Some(frame) = take_frame(&mut self.buffer).expect("the node sends good frames") {
                return Some(Command::decode(frame).expect("the node sends good commands"));
            }
            let mut chunk = [0; 65_536];
            match self.socket.read(&mut chunk) {
                Ok(0) => return None,
                Ok(read) => self.buffer.extend_from_slice(&chunk[..read]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("no frame came: {error}"),
            }
        }
    }

    /// Whether a frame has come, or the connection was closed.
    pub fn has_answer(&self) -> bool {
        self.socket.set_nonblocking(true).expect("the socket can be set");
        let peeked = self.socket.peek(&mut [0]);
        self.socket.set_nonblocking(false).expect("the socket can be set");
        !self.buffer.is_empty() || peeked.is_ok()
    }

    /// Sends a request and waits for its answer.
    pub fn call(&mut self, request: Command) -> Command {
        let opaque = self.send(request);
        let answer = self.receive().expect("an answer comes");
        assert_eq!(answer.opaque, opaque, "the answer is to another request: {answer:?}");
        assert_eq!(answer.flag, 1);
        answer
    }

    /// Sends a request and waits for its answer, past notices that the broker sends on its own.
    pub fn call_past_notices(&mut self, request: Command) -> Command {
        let opaque = self.send(request);
        loop {
            let frame = self.receive().expect("an answer comes");
            if frame.is_response() {
                assert_eq!(frame.opaque, opaque, "the answer is to another request: {frame:?}");
                return frame;
            }
        }
    }

    /// Sends a message to a queue and waits for the answer.
    pub fn produce(&mut self, topic: &str, queue_id: i32, body: &[u8], properties: &str) -> Command {
        self.call(send_request(topic, queue_id, body, properties))
    }

    /// Pulls from a queue, with the subscription in the request, and waits for the answer.
    pub fn pull(&mut self, topic: &str, queue_id: i32, offset: i64, tags: &str) -> Command {
        self.call(pull_request(topic, queue_id, offset, tags))
    }

    /// Closes the sending half.
    pub fn finish(&mut self) {
        // A peer that has closed already leaves nothing to close.
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
    }
}

/// A request to store a message.
pub fn send_request(topic: &str, queue_id: i32, body: &[u8], properties: &str) -> Command {
    let header = SendMessageV2Header {
        producer_group: Text::from_static("producers"),
        topic: Text::from(topic),
        default_topic: Text::from_static("TBW102"),
        default_topic_queues: 4,
        queue_id,
        born_timestamp_ms: 1_795_000_000_000,
        properties: Some(Text::from(properties)),
        ..SendMessageV2Header::default()
    };
    Command::request::<SendMessageV2>(&header).with_body(Bytes::copy_from_slice(body))
}

/// A request for the messages of a queue.
pub fn pull_request(topic: &str, queue_id: i32, offset: i64, tags: &str) -> Command {
    Command::request::<PullMessage>(&pull_header(topic, queue_id, offset, tags))
}

/// A request to note how far a group has come in a queue.
pub fn commit_request(group: &str, topic: &str, queue_id: i32, queue_offset: i64) -> Command {
    let (group, topic) = (Text::from(group), Text::from(topic));
    request::<UpdateConsumerOffset>(&UpdateConsumerOffsetHeader { group, topic, queue_id, queue_offset })
}

/// The header of a pull with its subscription in it.
pub fn pull_header(topic: &str, queue_id: i32, offset: i64, tags: &str) -> PullMessageHeader {
    PullMessageHeader {
        group: Text::from_static("consumers"),
        topic: Text::from(topic),
        queue_id,
        queue_offset: offset,
        messages_max: 32,
        sys_flag: PULL_HAS_SUBSCRIPTION,
        suspend_timeout_ms: 15_000,
        subscription: Some(Text::from(tags)),
        expression_type: Some(Text::from_static("TAG")),
        ..PullMessageHeader::default()
    }
}

/// The header of a pull that is held at the end of its queue until a message comes.
pub fn held_pull_header(topic: &str, queue_id: i32, offset: i64, tags: &str) -> PullMessageHeader {
    let header = pull_header(topic, queue_id, offset, tags);
    PullMessageHeader { sys_flag: header.sys_flag | PULL_SUSPENDS, ..header }
}

/// What the answer to a send says of a message that was stored.
pub fn stored(answer: &Command) -> SendMessageReplyHeader {
    assert_eq!(answer.code, 0, "{answer:?}");
    answer.header().expect("a stored message has the whole header")
}

/// The message at an offset of a queue, as soon as it is there.
pub fn wait_for(client: &mut Client, topic: &str, queue_id: i32, offset: i64) -> Message {
    let header = held_pull_header(topic, queue_id, offset, "*");
    let answer = client.call(request::<PullMessage>(&header));
    assert_eq!(answer.code, 0, "{answer:?}");
    Message::decode_all(answer.body).expect("whole records").remove(0)
}

/// Stores a message in the first queue of a topic and gives it as those who read there get it.
pub fn publish(client: &mut Client, topic: &str, body: &[u8]) -> Message {
    let place = stored(&client.produce(topic, 0, body, ""));
    wait_for(client, topic, 0, place.queue_offset)
}

/// A request by its header.
pub fn request<R: Request>(header: &R::Header) -> Command {
    Command::request::<R>(header)
}

/// A heart-beat.
pub fn beat_request(data: &HeartbeatData) -> Command {
    Command::request::<HeartBeat>(&Default::default()).with_body(to_fastjson(data).into())
}

/// What the heart-beat of a member of one group says.
pub fn member_data(client_id: &str, consumer: ConsumerData) -> HeartbeatData {
    let client_id = Text::from(client_id);
    HeartbeatData { client_id, consumer_data_set: vec![consumer], ..HeartbeatData::default() }
}

/// What a member of a group says of it, with the topic that it reads.
pub fn reader_of(group: &str, topic: &str, sub_version: i64) -> ConsumerData {
    let (topic, sub_string) = (Text::from(topic), Text::from_static("*"));
    let subscription = SubscriptionData { topic, sub_string, sub_version, ..SubscriptionData::default() };
    let group_name = Text::from(group);
    ConsumerData { group_name, subscription_data_set: vec![subscription], ..ConsumerData::default() }
}

/// A member of a group; it stays one as long as its connection is kept.
pub fn join(node: &NodeHandle, data: &HeartbeatData) -> Client {
    let mut member = Client::of(node);
    assert_eq!(member.call_past_notices(beat_request(data)).code, 0, "a member is taken in");
    member
}

/// A request to make or change a topic of so many queues.
pub fn topic_request(topic: &str, queues: i32, perm: i32, order: Option<bool>) -> Command {
    request::<UpdateAndCreateTopic>(&UpdateAndCreateTopicHeader {
        topic: Text::from(topic),
        default_topic: Text::from_static("TBW102"),
        read_queue_nums: queues,
        write_queue_nums: queues,
        perm,
        topic_filter_type: Text::from_static("SINGLE_TAG"),
        order,
        ..UpdateAndCreateTopicHeader::default()
    })
}
