//! A hundred thousand damaged frames of Java against a running node: it answers or closes the connection, and lives.
//!
//! Invariants:
//! - the seed is printed; with it (`MUTATION_SEED`) a run sends the same bytes;
//! - behind each damaged frame goes a good request: it is answered, or the node has closed the connection. So each
//!   frame is looked at, and a node that lost its way in one is seen;
//! - how many damaged frames keep their connection is known within bounds: a node that closes all of them, or none,
//!   does not pass;
//! - the memory of the process stays within bounds, where the system tells it.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use flate2::read::GzDecoder;
use serde_json::Value;
use troupemq_codec::base64;
use troupemq_codec::frame::take_frame;
use troupemq_codec::{Command, ResponseCode};
use troupemq_store::testing::Random;
use troupemq_store::{Clock, SystemClock};

use crate::config::NameServerPart;
use crate::node::{Node, NodeHandle};
use crate::testing::{Client, send_request, small_broker, until};

/// Frames of the whole test.
const FRAMES: usize = 100_000;
/// Threads that send.
const SENDERS: usize = 2;
/// The number of the good request at the end.
const LAST: i32 = 0x7eed_beef;
/// Longer frames are left out: what is in them is bodies.
const FRAME_MAX_BYTES: usize = 4_000;

/// What the process may take meanwhile: some thousands of bytes for each frame would be far beyond.
const MEMORY_MAX_BYTES: u64 = 512 << 20;

/// Memory of this process alone, mapped files left out; none where the system does not tell.
fn own_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = text.split(' ').skip(1).map_while(|pages| pages.parse::<u64>().ok());
    let (resident, shared) = (pages.next()?, pages.next()?);
    Some(resident.saturating_sub(shared) * 4096)
}

/// One request of each code and form that Java clients and tools sent, length word included.
fn requests() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/frames");
    let mut seen = std::collections::BTreeSet::new();
    let mut found = Vec::new();
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        let mut text = String::new();
        GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
        for line in text.lines().skip(1) {
            let line: Value = serde_json::from_str(line).unwrap();
            let is_request = line["from"] == "client" && line["flag"].as_i64().unwrap() & 1 == 0;
            let kind = (line["code"].as_i64().unwrap(), line["codec"].as_i64(), line["flag"].as_i64());
            if !is_request || seen.iter().filter(|one| **one == (kind, 0) || **one == (kind, 1)).count() > 1 {
                continue;
            }
            seen.insert((kind, usize::from(seen.contains(&(kind, 0)))));
            found.push(base64::decode(line["raw"].as_str().unwrap()).unwrap());
        }
    }
    found.retain(|frame| frame.len() <= FRAME_MAX_BYTES);
    assert!(found.len() > 60, "{} kinds of requests", found.len());
    found
}

/// A frame that was damaged in one to four places, and whether its length is true. Most keep a true length, or
/// nothing behind it would be read; many a header of the right length, or few would get past the header's end.
fn damaged(frame: &[u8], random: &mut Random) -> (Vec<u8>, bool) {
    let mut bytes = frame.to_vec();
    let header = usize::try_from(u32::from_be_bytes(frame[4..8].try_into().unwrap()) & 0x00ff_ffff).unwrap();
    let body = frame.len() - 8 - header;
    for _ in 0..=random.below(4) {
        let at = 4 + random.below((bytes.len() - 4).max(1));
        let Some(byte) = bytes.get_mut(at) else { break };
        match random.below(6) {
            0 => *byte = random.byte(),
            1 => *byte ^= 1 << random.below(8),
            2 => bytes.truncate(at.max(8)),
            3 => bytes.insert(at, b"{}[]\",:\\u0-9"[random.below(12)]),
            4 => drop(bytes.remove(at)),
            _ => {
                let from = random.below(bytes.len());
                let piece: Vec<u8> = bytes[from..].iter().take(1 + random.below(16)).copied().collect();
                bytes.splice(at..at, piece);
            }
        }
    }
    if random.below(4) > 0 && bytes.len() > 8 + body {
        let fitting = u32::try_from(bytes.len() - 8 - body).unwrap().to_be_bytes();
        bytes[5..8].copy_from_slice(&fitting[1..]);
    }
    let length = u32::try_from(bytes.len() - 4).unwrap().to_be_bytes();
    if random.below(50) > 0 {
        bytes[..4].copy_from_slice(&length);
    }
    let is_true = bytes[..4] == length;
    (bytes, is_true)
}

/// A peer that sends damaged frames, over a new connection whenever the node has closed the one it had.
struct Peer {
    to: SocketAddr,
    socket: Option<TcpStream>,
    /// The good request that follows each frame.
    last: BytesMut,
}

impl Peer {
    fn new(to: SocketAddr) -> Peer {
        let mut last = send_request("Last", 0, b"x", "");
        last.opaque = LAST;
        let mut out = BytesMut::new();
        last.encode(&mut out);
        Peer { to, socket: None, last: out }
    }

    /// Sends a frame and the good request behind it. Whether that was answered; else the node has closed the
    /// connection.
    fn send(&mut self, mut frame: Vec<u8>, has_true_length: bool) -> bool {
        let mut socket = self.socket.take().unwrap_or_else(|| {
            let socket = TcpStream::connect(self.to).expect("the node listens");
            socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            socket.set_nodelay(true).unwrap();
            socket
        });
        frame.extend_from_slice(&self.last);
        if socket.write_all(&frame).is_err() {
            return false;
        }
        // A length that swallows the request behind it is seen to lie at the end of the stream.
        if !has_true_length && socket.shutdown(Shutdown::Write).is_err() {
            return false;
        }
        let answered = Peer::is_answered(&mut socket);
        if answered && has_true_length {
            self.socket = Some(socket);
        }
        answered
    }

    fn is_answered(socket: &mut TcpStream) -> bool {
        let mut buffer = BytesMut::new();
        let mut chunk = vec![0; 65_536];
        loop {
            while let Some(frame) = take_frame(&mut buffer).expect("the node sends good frames") {
                let answer: Command =
                    Command::decode(Bytes::from(frame.to_vec())).expect("good commands too");
                if answer.is_response() && answer.opaque == LAST {
                    return true;
                }
            }
            match socket.read(&mut chunk) {
                Ok(0) => return false,
                Ok(read) => buffer.extend_from_slice(&chunk[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return false,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => panic!("neither an answer nor the end came: {error}"),
            }
        }
    }
}

fn node(dir: &Path) -> NodeHandle {
    let mut config = small_broker(dir);
    config.broker.as_mut().unwrap().store.log_segment_bytes = 64 << 20;
    config.net.idle_ms = 2_000;
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut part = NameServerPart { listen, ..NameServerPart::default() };
    part.config.kv_config_path = dir.join("kv.json").to_string_lossy().into_owned();
    config.name_server = Some(part);
    Node::start(config).expect("a small node starts")
}

#[test]
fn a_hundred_thousand_damaged_frames_leave_a_node_that_serves() {
    let given = std::env::var("MUTATION_SEED").ok().map(|seed| seed.parse().expect("a number"));
    let seed: u64 = given.unwrap_or_else(|| SystemClock::new().now_ms().unsigned_abs());
    eprintln!("seed {seed}");
    let memory_before = own_bytes();
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path());
    let requests = Arc::new(requests());
    let broker = node.broker().unwrap();
    let targets = [node.broker_address().unwrap(), node.name_server_address().unwrap()];
    // Sound ones first, so that topics and groups are there; then none is made for each name that damage makes.
    for frame in requests.iter() {
        for to in targets {
            Peer::new(to).send(frame.clone(), true);
        }
    }
    let before = broker.config.load_full();
    let mut strict = (*before).clone();
    strict.auto_create_topic_enable = false;
    strict.auto_create_subscription_group = false;
    broker.config.store(Arc::new(strict));
    let senders = (0..SENDERS as u64).map(|number| {
        let requests = Arc::clone(&requests);
        std::thread::spawn(move || {
            let mut random = Random::seeded(seed + number);
            let mut peers = targets.map(Peer::new);
            let mut answered = 0;
            for _ in 0..FRAMES / SENDERS {
                let (bytes, has_true_length) = damaged(&requests[random.below(requests.len())], &mut random);
                let peer = &mut peers[usize::from(random.below(4) == 0)];
                answered += usize::from(peer.send(bytes, has_true_length));
            }
            answered
        })
    });
    let senders: Vec<_> = senders.collect();
    let answered: usize = senders.into_iter().map(|sender| sender.join().expect("see the seed above")).sum();
    eprintln!("{answered} of {FRAMES} damaged frames kept their connection");
    assert!((FRAMES / 20..FRAMES / 2).contains(&answered), "{answered} of {FRAMES} kept their connection");
    broker.config.store(before);
    assert_eq!(broker.poison.cause(), None);
    assert_eq!(Client::of(&node).produce("Healthy", 0, b"x", "").response_code(), ResponseCode::SUCCESS);
    if let (Some(before), Some(after)) = (memory_before, own_bytes()) {
        // Other tests run in this process at the same time.
        assert!(after < before + MEMORY_MAX_BYTES, "{before} bytes of memory became {after}");
    }
    until("what was in flight has given its bytes back", || broker.credits.used_bytes() == 0);
    node.stop_and_wait().unwrap();
}
