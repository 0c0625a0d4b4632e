//! A server without actors: it stores sends under one mutex, so that the price of the actor model stays visible.
//!
//! `cargo bench --bench reference -- ADDRESS DIR [THREADS]` serves until it is killed; `benches/compare` runs it
//! beside the broker. It has the broker's codec, store and batches: all complete frames of one read are one
//! append, dispatched before the answer, which is one write. It has no limits, no flow control, no pulls, and takes
//! whatever topic it is sent to.
//!
//! Invariants:
//! - one lock for each batch; nothing else is shared but counters;
//! - a client of RocketMQ finds it as name server and as broker on the same port.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;
use troupemq_actors::net::inbound::{READ_BYTES, first_frame};
use troupemq_actors::send::ids::{IdSource, PlaceIds};
use troupemq_codec::command::Head;
use troupemq_codec::message::message_id::UniqueIdText;
use troupemq_codec::message::properties::{UNIQ_KEY, put_property};
use troupemq_codec::message::{NewRecord, PropertiesView};
use troupemq_codec::request::{GetRouteinfoByTopic, SendReply, SendView, StoredAt};
use troupemq_codec::route::{BrokerData, QueueData, TopicRouteData};
use troupemq_codec::{Command, CommandView, HeaderForm, Request, ResponseCode, Text};
use troupemq_store::{
    AppendBatch, Clock, CommitLog, ConsumeQueue, DispatchWriter, LogFlusher, QueueTable, StoreConfig,
    SystemClock, open,
};

const QUEUES: i32 = 4;
const OWN_PROPERTIES: &[u8] =
    b"MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02";
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
}

/// One connection.
struct Session {
    shared: Arc<Shared>,
    peer: SocketAddr,
    /// The queues that were sent to.
    queues: Vec<Arc<ConsumeQueue>>,
    batch: AppendBatch,
    slots: Vec<Slot>,
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
    let opened = open(StoreConfig::in_dir(Path::new(&dir)), Arc::new(SystemClock::new())).expect("a store");
    let clock = SystemClock::new();
    let shared = Arc::new(Shared {
        writers: Lock::new((opened.log, opened.dispatch)),
        queues: opened.queues,
        address,
        ids: IdSource::new(address.ip(), clock.now_ms()),
        places: PlaceIds::new(address),
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
                self.look_at(frame);
                consumed += frame.len() + 4;
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
        let view = CommandView::parse(frame).expect("the load sends commands");
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
            |queue: &&Arc<ConsumeQueue>| queue.queue_id() == queue_id && queue.topic().as_str() == topic;
        let queue = self.queues.iter().find(is_it).cloned().unwrap_or_else(|| {
            let queue = shared.queues.open_or_create(topic, queue_id).expect("a queue");
            self.queues.push(queue.clone());
            queue
        });
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
            SendReply {
                head: Head::answer(ResponseCode::SUCCESS, slot.opaque, slot.form),
                region: "DefaultRegion",
                trace_on: true,
                stored: Some(StoredAt {
                    message_id: self.shared.places.of(record.log_offset).as_str(),
                    queue_id: slot.queue_id,
                    queue_offset: record.queue_offset,
                    transaction_id: Some(match &slot.uniq_key {
                        UniqKey::Made(id) => id.as_str(),
                        UniqKey::Theirs(key) => key.as_str(),
                    }),
                    batch_unique_id: None,
                    recall_handle: None,
                }),
            }
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
