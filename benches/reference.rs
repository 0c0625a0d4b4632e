//! A server without actors: it stores sends under one mutex, so that the price of the actor model stays visible.
//!
//! `cargo bench --bench reference -- ADDRESS DIR [THREADS [bare]]` serves until it is killed; `benches/compare` runs it
//! beside the broker. It has the broker's codec, store and batches: all complete frames of one read are one
//! append, dispatched before the answer, which is one write. It has no limits, no flow control, no pulls, and takes
//! whatever topic it is sent to.
//!
//! With `bare` behind the number of threads it is a floor instead: it reads frames, writes them to a file as they came,
//! one write for each read, and answers every send and pull with the same bytes but for the opaque. No broker on the
//! same sockets and files takes less.
//!
//! Invariants:
//! - one lock for each batch; nothing else is shared but counters;
//! - a client of RocketMQ finds it as name server and as broker on the same port.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;
use troupemq_actors::net::inbound::{READ_BYTES, first_frame};
use troupemq_actors::send::ids::{IdSource, PlaceIds};
use troupemq_codec::command::{Head, Molds};
use troupemq_codec::message::message_id::UniqueIdText;
use troupemq_codec::message::properties::{UNIQ_KEY, put_property};
use troupemq_codec::message::{NewRecord, PropertiesView};
use troupemq_codec::request::{
    GetRouteinfoByTopic, PullMessageReplyHeader, SendReply, SendView, StoredAt, StoredReplies, StoredUsually,
};
use troupemq_codec::route::{BrokerData, QueueData, TopicRouteData};
use troupemq_codec::{Command, CommandView, HeaderForm, Request, ResponseCode, Text};
use troupemq_store::{
    AppendBatch, Clock, CommitLog, ConsumeQueue, DispatchWriter, LogFlusher, QueueTable, StoreConfig,
    SystemClock, open,
};

const QUEUES: i32 = 4;
const OWN_PROPERTIES: &[u8] =
    b"MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02";
/// Bytes of the file of a bare server; then it begins anew, in pages that are in memory.
const BARE_BYTES: u64 = 1 << 30;
const PULLED: usize = 32;
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);

#[expect(clippy::disallowed_types, reason = "what the actors are compared with")]
type Lock<T> = std::sync::Mutex<T>;

/// What all connections share.
struct Shared {
    writers: Lock<(CommitLog, DispatchWriter)>,
    queues: QueueTable,
    clock: SystemClock,
    address: SocketAddr,
    ids: IdSource,
    places: PlaceIds,
    replies: StoredReplies,
    bare: Option<Bare>,
}

/// What answers without looking.
struct Bare {
    file: File,
    at: AtomicU64,
    send: Canned,
    pull: Canned,
}

/// An answer whose opaque has ten digits, as those of the load have.
struct Canned {
    frame: Vec<u8>,
    opaque_at: usize,
}

/// One connection.
struct Session {
    shared: Arc<Shared>,
    peer: SocketAddr,
    /// The queues that were sent to.
    queues: Vec<Arc<ConsumeQueue>>,
    batch: AppendBatch,
    slots: Vec<Slot>,
    molds: Molds,
    out: BytesMut,
    scratch: BytesMut,
    made: BytesMut,
}

/// One send of a batch.
struct Slot {
    opaque: i32,
    form: HeaderForm,
    queue_id: i32,
    uniq_key: UniqKey,
}

enum UniqKey {
    Made(UniqueIdText),
    Theirs(String),
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let (Some(address), Some(dir)) = (arguments.next(), arguments.next()) else { return };
    let address: SocketAddr = address.parse().expect("the first argument is an address");
    let threads = arguments.next().map_or(2, |threads| threads.parse().expect("a number of threads"));
    let is_bare = arguments.next().is_some_and(|word| word == "bare");
    let opened = open(StoreConfig::in_dir(Path::new(&dir)), Arc::new(SystemClock::new())).expect("a store");
    let clock = SystemClock::new();
    let shared = Arc::new(Shared {
        writers: Lock::new((opened.log, opened.dispatch)),
        queues: opened.queues,
        address,
        ids: IdSource::new(address.ip(), clock.now_ms()),
        places: PlaceIds::new(address),
        replies: StoredReplies::new("DefaultRegion", true),
        bare: is_bare.then(|| Bare::new(Path::new(&dir), address)),
        clock,
    });
    let mut hands = Vec::new();
    for _ in 0..threads {
        let (hand, connections) = tokio::sync::mpsc::unbounded_channel();
        let shared = shared.clone();
        std::thread::spawn(move || work(&shared, connections));
        hands.push(hand);
    }
    std::thread::spawn(move || flush(opened.flusher));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(accept(address, &hands));
}

async fn accept(address: SocketAddr, hands: &[tokio::sync::mpsc::UnboundedSender<std::net::TcpStream>]) {
    let listener = TcpListener::bind(address).await.expect("the port is free");
    for hand in hands.iter().cycle() {
        let (stream, _) = listener.accept().await.expect("connections come");
        stream.set_nodelay(true).expect("the socket takes options");
        hand.send(stream.into_std().expect("a socket")).expect("the thread lives");
    }
}

/// Serves the connections of one thread.
fn work(shared: &Arc<Shared>, mut connections: tokio::sync::mpsc::UnboundedReceiver<std::net::TcpStream>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, async move {
        while let Some(stream) = connections.recv().await {
            let stream = TcpStream::from_std(stream).expect("a socket");
            let session = Session {
                peer: stream.peer_addr().expect("a connected socket"),
                shared: shared.clone(),
                queues: Vec::new(),
                batch: AppendBatch::default(),
                slots: Vec::new(),
                molds: Molds::default(),
                out: BytesMut::new(),
                scratch: BytesMut::new(),
                made: BytesMut::new(),
            };
            tokio::task::spawn_local(session.run(stream));
        }
    });
}

fn flush(mut flusher: LogFlusher) {
    let (_kept, never) = mpsc::channel::<()>();
    loop {
        let _elapsed = never.recv_timeout(FLUSH_INTERVAL);
        flusher.flush().expect("the disk takes it");
    }
}

impl Bare {
    fn new(dir: &Path, address: SocketAddr) -> Bare {
        let record = NewRecord {
            topic: "BenchmarkTopic01",
            born_timestamp_ms: 1,
            born_host: address,
            store_host: address,
            body: &[b'x'; 1024],
            properties: &[OWN_PROPERTIES],
            ..NewRecord::PLAIN
        };
        let mut records = BytesMut::new();
        for _ in 0..PULLED {
            record.encode(&mut records).expect("the record is short");
        }
        let replies = StoredReplies::new("DefaultRegion", true);
        let stored = StoredUsually {
            message_id: b"7F00000100002A9F000000000012D687",
            queue_id: 3,
            queue_offset: 123_456,
            unique_id: b"7F00000110424E0E2F2A93B109210000",
            recall_handle: None,
        };
        let pulled = PullMessageReplyHeader { next_offset: 32, max_offset: 64, ..Default::default() };
        Bare {
            file: File::create(dir.join("bare")).expect("a file can be made"),
            at: AtomicU64::new(0),
            send: Canned::of(|opaque, out| {
                assert!(replies.encode(opaque, &stored, out), "the id needs no escape");
            }),
            pull: Canned::of(|opaque, out| {
                let head = Head::answer(ResponseCode::SUCCESS, opaque, HeaderForm::Json);
                pulled.encode_head(head, records.len(), out);
                out.extend_from_slice(&records);
            }),
        }
    }

    /// Answers a send or a pull with a header in JSON, whatever it says.
    fn answer(&self, frame: &[u8], out: &mut BytesMut) -> bool {
        let header = &frame[4..];
        let canned = match header {
            _ if header.starts_with(b"{\"code\":310,") => &self.send,
            _ if header.starts_with(b"{\"code\":11,") => &self.pull,
            _ => return false,
        };
        const KEY: &[u8] = b"\"opaque\":";
        let Some(key_at) = memchr::memmem::find(header, KEY) else { return false };
        let opaque_at = key_at + KEY.len();
        let at = out.len() + canned.opaque_at;
        out.extend_from_slice(&canned.frame);
        out[at..at + 10].copy_from_slice(&header[opaque_at..opaque_at + 10]);
        true
    }

    /// Writes what was read.
    fn write(&self, frames: &[u8]) {
        let at = self.at.fetch_add(frames.len() as u64, Ordering::Relaxed) % BARE_BYTES;
        self.file.write_all_at(frames, at).expect("the disk takes it");
    }
}

impl Canned {
    /// The opaque stands where two encodings differ.
    fn of(encode: impl Fn(i32, &mut BytesMut)) -> Canned {
        let [frame, other] = [1_000_000_000, i32::MAX].map(|opaque| {
            let mut frame = BytesMut::new();
            encode(opaque, &mut frame);
            frame.to_vec()
        });
        let opaque_at = frame.iter().zip(&other).position(|(one, other)| one != other);
        Canned { frame, opaque_at: opaque_at.expect("two opaques differ in their first digit") }
    }
}

impl Session {
    async fn run(mut self, mut stream: TcpStream) {
        let mut input = BytesMut::with_capacity(READ_BYTES);
        loop {
            input.reserve(READ_BYTES);
            if !matches!(stream.read_buf(&mut input).await, Ok(1..)) {
                return;
            }
            let mut consumed = 0;
            while let Some(frame) = first_frame(&input[consumed..]).expect("the load sends frames") {
                let is_canned =
                    self.shared.bare.as_ref().is_some_and(|bare| bare.answer(frame, &mut self.out));
                if !is_canned {
                    self.look_at(frame);
                }
                consumed += frame.len() + 4;
            }
            if let Some(bare) = &self.shared.bare {
                bare.write(&input[..consumed]);
            }
            input.advance(consumed);
            self.store();
            while !self.out.is_empty() {
                match stream.try_write(&self.out) {
                    Ok(written) => self.out.advance(written),
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                        if stream.writable().await.is_err() {
                            return;
                        }
                    }
                    Err(_) => return,
                }
            }
        }
    }

    fn look_at(&mut self, frame: &[u8]) {
        let view = CommandView::parse_like(frame, &mut self.molds).expect("the load sends commands");
        if troupemq_actors::send::is_send(view.code) {
            return self.take_in(&view, &frame[view.body.clone()]);
        }
        let command = Command::from_view(&view, &Bytes::copy_from_slice(frame));
        let answer = match view.code {
            GetRouteinfoByTopic::CODE => Command::response(ResponseCode::SUCCESS).with_body(self.route()),
            _ => Command::response(ResponseCode::SUCCESS),
        };
        if !view.is_oneway() {
            answer.answering(&command).encode(&mut self.out);
        }
    }

    fn take_in(&mut self, view: &CommandView<'_>, body: &[u8]) {
        let send = SendView::read(view).expect("the load sends whole headers");
        let shared = &self.shared;
        let (topic, queue_id) = (&*send.topic, send.queue_id.max(0));
        let is_it =
            |queue: &Arc<ConsumeQueue>| queue.queue_id() == queue_id && queue.topic().as_str() == topic;
        let known = self.queues.iter().position(is_it);
        if known.is_none() {
            self.queues.push(shared.queues.open_or_create(topic, queue_id).expect("a queue"));
        }
        let queue = &self.queues[known.unwrap_or(self.queues.len() - 1)];
        self.scratch.clear();
        self.made.clear();
        if let Some(properties) = send.properties {
            properties.write_to(&mut self.scratch);
        }
        let uniq_key = match PropertiesView(&self.scratch).get(UNIQ_KEY) {
            Some(theirs) => UniqKey::Theirs(theirs.to_owned()),
            None => {
                let id = shared.ids.next(shared.clock.now_ms());
                put_property(&mut self.made, UNIQ_KEY, id.as_str());
                UniqKey::Made(id)
            }
        };
        let record = NewRecord {
            topic: &send.topic,
            queue_id: queue.queue_id(),
            flag: send.flag,
            sys_flag: send.sys_flag,
            born_timestamp_ms: send.born_timestamp_ms,
            born_host: self.peer,
            store_host: shared.address,
            reconsume_times: 0,
            prepared_log_offset: 0,
            body,
            body_crc: None,
            properties: &[&self.scratch, OWN_PROPERTIES, &self.made],
        };
        let start = self.batch.bytes.len();
        record.encode(&mut self.batch.bytes).expect("the load sends short messages");
        self.batch.push(start, queue, 1, 0);
        let (opaque, form) = (view.opaque, view.form);
        self.slots.push(Slot { opaque, form, queue_id, uniq_key });
    }

    /// Stores the batch and writes its answers.
    fn store(&mut self) {
        if self.slots.is_empty() {
            return;
        }
        {
            let mut writers = self.shared.writers.lock().expect("no thread panics with the lock");
            let (log, dispatch) = &mut *writers;
            let appended = log.append(&mut self.batch, self.shared.clock.now_ms()).expect("the log takes it");
            dispatch.dispatch(&self.batch, &appended).expect("the records follow each other");
        }
        for (slot, record) in self.slots.drain(..).zip(&self.batch.records) {
            let place = self.shared.places.of(record.log_offset);
            let unique_id = match &slot.uniq_key {
                UniqKey::Made(id) => id.as_str(),
                UniqKey::Theirs(key) => key.as_str(),
            };
            let usually = StoredUsually {
                message_id: place.as_bytes(),
                queue_id: slot.queue_id,
                queue_offset: record.queue_offset,
                unique_id: unique_id.as_bytes(),
                recall_handle: None,
            };
            let replies = &self.shared.replies;
            if slot.form == HeaderForm::Json && replies.encode(slot.opaque, &usually, &mut self.out) {
                continue;
            }
            let stored = StoredAt {
                message_id: place.as_str(),
                queue_id: slot.queue_id,
                queue_offset: record.queue_offset,
                transaction_id: Some(unique_id),
                batch_unique_id: None,
                recall_handle: None,
            };
            let head = Head::answer(ResponseCode::SUCCESS, slot.opaque, slot.form);
            SendReply { head, region: "DefaultRegion", trace_on: true, stored: Some(stored) }
                .encode(&mut self.out);
        }
        self.batch.clear();
    }

    /// Every topic is here.
    fn route(&self) -> Bytes {
        let name = Text::from_static("reference");
        let address = Text::from(self.shared.address.to_string());
        let route = TopicRouteData {
            broker_datas: vec![BrokerData {
                broker_addrs: BTreeMap::from([(0, address)]),
                broker_name: name.clone(),
                ..BrokerData::default()
            }],
            queue_datas: vec![QueueData {
                broker_name: name,
                perm: 6,
                read_queue_nums: QUEUES,
                write_queue_nums: QUEUES,
                ..QueueData::default()
            }],
            ..TopicRouteData::default()
        };
        serde_json::to_vec(&route).expect("a route is JSON").into()
    }
}
