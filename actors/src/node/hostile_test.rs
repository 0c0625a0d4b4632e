//! Peers that lie, stall, or close in the middle: the node stays up and its memory bounded.
//!
//! Invariants:
//! - random tests print their seed when they fail.

use std::sync::Arc;

use bytes::BytesMut;
use troupemq_codec::request::{QueryMessage, QueryMessageHeader};
use troupemq_codec::{Command, ResponseCode, Text};
use troupemq_store::ManualClock;
use troupemq_store::testing::Random;

use crate::cast::BrokerCast;
use crate::net::LinkId;
use crate::node::{Node, NodeHandle};
use crate::testing::{
    Client, pull_request, request, send_request, small_broker, start_broker, start_broker_at, until,
};

fn assert_healthy(node: &NodeHandle, seed: u64) {
    let answer = Client::of(node).produce("Healthy", 0, b"x", "");
    assert_eq!(answer.code, 0, "seed {seed}: {answer:?}");
    assert_eq!(node.broker().unwrap().poison.cause(), None, "seed {seed}");
}

/// A session gives its bytes back behind the answer.
fn until_given_back(broker: &BrokerCast) {
    until("all bytes are given back", || broker.credits.used_bytes() == 0);
}

#[test]
fn mutated_frames_never_bring_a_node_down() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    assert_healthy(&node, 0);
    for seed in 1..200 {
        let mut random = Random::seeded(seed);
        let mut bytes = BytesMut::new();
        send_request("Healthy", 0, &[1; 100], "KEYS\u{1}k\u{2}").encode(&mut bytes);
        pull_request("Healthy", 0, 0, "A || B").encode(&mut bytes);
        for _ in 0..1 + random.below(8) {
            let at = random.below(bytes.len());
            bytes[at] = random.byte();
        }
        bytes.truncate(1 + random.below(bytes.len()));
        let mut client = Client::of(&node);
        client.write(&bytes);
        client.finish();
        // Whatever comes back, the connection ends.
        while client.receive().is_some() {}
    }
    assert_healthy(&node, 200);
}

#[test]
fn random_bytes_never_bring_a_node_down() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    for seed in 1..100 {
        let mut random = Random::seeded(seed);
        // A length that may be true makes the rest look like a frame.
        let mut bytes = vec![0, 0, 0, random.byte(), random.byte() & 1, 0, 0, random.byte()];
        bytes.extend((0..random.below(600)).map(|_| random.byte()));
        let mut client = Client::of(&node);
        client.write(&bytes);
        client.finish();
        while client.receive().is_some() {}
    }
    assert_healthy(&node, 100);
}

#[test]
fn requests_beyond_those_that_a_connection_may_have_in_work_are_refused_with_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = small_broker(dir.path());
    config.net.calls_max = 1;
    let node = Node::start(config).unwrap();
    let mut client = Client::of(&node);
    let query = request::<QueryMessage>(&QueryMessageHeader {
        topic: Text::from("T"),
        key: Text::from("k"),
        messages_max: 1,
        end_timestamp_ms: i64::MAX,
        ..QueryMessageHeader::default()
    });
    let mut bytes = BytesMut::new();
    for opaque in 0..100 {
        Command { opaque, ..query.clone() }.encode(&mut bytes);
    }
    client.write(&bytes);
    let answers: Vec<Command> = (0..100).map(|_| client.receive().expect("each is answered")).collect();
    let busy: Vec<_> = answers.iter().filter(|answer| answer.code == ResponseCode::SYSTEM_BUSY.0).collect();
    assert!(!busy.is_empty() && busy.len() < 100, "{}", busy.len());
    assert!(
        busy.iter().all(|answer| answer
            .remark
            .as_deref()
            .unwrap()
            .contains("1 requests of the connection in work"))
    );
    let others = answers.iter().filter(|answer| answer.code == ResponseCode::QUERY_NOT_FOUND.0).count();
    assert_eq!(others + busy.len(), 100);
}

#[test]
fn a_peer_that_closes_its_half_gets_what_it_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    for _ in 0..10 {
        client.send(send_request("Half", 0, b"x", ""));
    }
    client.finish();
    let answers = std::iter::from_fn(|| client.receive()).filter(|answer| answer.code == 0).count();
    assert_eq!(answers, 10);
}

#[test]
fn a_reader_that_takes_nothing_is_closed_and_holds_nobody_up() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = small_broker(dir.path());
    config.net.outbound_max_bytes = 64 << 10;
    config.net.stall_ms = 200;
    let node = Node::start(config).unwrap();
    let mut good = Client::of(&node);
    for _ in 0..8 {
        assert_eq!(good.produce("Slow", 0, &[7; 100_000], "").code, 0);
    }
    // What the good one asks for fits into its sockets, however late it reads.
    assert_eq!(good.produce("Slow", 1, b"x", "").code, 0);
    let mut slow = Client::of(&node);
    // Each asks for all the messages: 400 answers are far more than the sockets hold.
    let asked = (0..400).take_while(|_| slow.try_send(&pull_request("Slow", 0, 0, "*"))).count();
    assert!(asked > 0);
    // Others are served meanwhile; the slow one is closed when nothing has moved for the stall time.
    let broker = node.broker().unwrap().clone();
    while broker.directory.links() > 1 {
        assert_eq!(good.pull("Slow", 1, 0, "*").code, 0);
    }
    assert_eq!(good.produce("Slow", 1, b"x", "").code, 0);
}

#[test]
fn a_flood_is_answered_to_the_last_request_and_stores_what_it_says() {
    const FLOODERS: usize = 8;
    const SENDS: usize = 600;
    let dir = tempfile::tempdir().unwrap();
    let mut config = small_broker(dir.path());
    config.net.in_flight_max_bytes = 1 << 20;
    config.broker.as_mut().unwrap().store.log_segment_bytes = 64 << 20;
    let node = Node::start(config).unwrap();
    assert_eq!(Client::of(&node).produce("Flood", 0, b"first", "").code, 0);
    let flooders: Vec<_> = (0..FLOODERS)
        .map(|_| {
            let mut client = Client::of(&node);
            std::thread::spawn(move || {
                for _ in 0..SENDS {
                    client.send(send_request("Flood", 0, &[1; 4096], ""));
                }
                let codes = (0..SENDS).map(|_| client.receive().expect("an answer").response_code());
                let (stored, busy): (Vec<_>, Vec<_>) = codes.partition(|code| *code == ResponseCode::SUCCESS);
                assert!(busy.iter().all(|code| *code == ResponseCode::SYSTEM_BUSY), "{busy:?}");
                stored.len()
            })
        })
        .collect();
    let stored: usize = flooders.into_iter().map(|flooder| flooder.join().unwrap()).sum();
    let broker = node.broker().unwrap();
    let end = broker.queues.get("Flood", 0).unwrap().max_offset();
    assert_eq!(usize::try_from(end).unwrap(), stored + 1);
    until_given_back(broker);
    assert_healthy(&node, 0);
}

#[test]
fn a_segment_that_is_late_holds_batches_back_and_refuses_none() {
    const SENDERS: usize = 4;
    const SENDS: usize = 300;
    let dir = tempfile::tempdir().unwrap();
    // Every dozen of messages needs a new segment, which takes the disk longer than the messages take to come. However
    // long that is, the clock stands still: no batch is given up.
    let clock = Arc::new(ManualClock::at(1_795_000_000_000));
    let node = start_broker_at(&clock, dir.path(), |part| part.store.log_segment_bytes = 64 << 10);
    assert_eq!(Client::of(&node).produce("Late", 0, b"first", "").code, 0);
    let senders: Vec<_> = (0..SENDERS)
        .map(|_| {
            let mut client = Client::of(&node);
            std::thread::spawn(move || {
                for _ in 0..SENDS {
                    client.send(send_request("Late", 0, &[1; 5_000], ""));
                }
                (0..SENDS).filter(|_| client.receive().is_some_and(|answer| answer.code == 0)).count()
            })
        })
        .collect();
    let stored: usize = senders.into_iter().map(|sender| sender.join().unwrap()).sum();
    assert_eq!(stored, SENDERS * SENDS);
    let broker = node.broker().unwrap();
    assert_eq!(broker.queues.get("Late", 0).unwrap().max_offset(), i64::try_from(stored).unwrap() + 1);
    until_given_back(broker);
    node.stop_and_wait().unwrap();
}

#[test]
fn a_frame_that_waits_for_bytes_of_the_purse_ends_with_its_connection_and_goes_on_when_there_are_some() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let broker = node.broker().unwrap();
    let mut large = BytesMut::new();
    send_request("Large", 0, &[7; 1 << 20], "").encode(&mut large);
    let front = 300 << 10;
    let all = broker.credits.take(broker.credits.limit_bytes()).expect("nothing is in flight");
    let mut ended = Client::of(&node);
    ended.write(&large[..front]);
    until("the frame waits for bytes", || broker.credits.waiting() == 1);
    (0..10).filter_map(|id| broker.directory.link(LinkId(id))).for_each(|link| link.close());
    assert!(ended.receive().is_none(), "it does not wait for the bytes");
    let mut patient = Client::of(&node);
    patient.write(&large[..front]);
    until("the frame waits for bytes", || broker.credits.waiting() == 1);
    drop(all);
    patient.write(&large[front..]);
    assert_eq!(patient.receive().expect("it is read on").code, 0);
    until_given_back(broker);
    assert_eq!(broker.credits.waiting(), 0);
}

#[test]
fn large_frames_that_never_come_whole_take_no_more_than_the_purse() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = small_broker(dir.path());
    config.net.in_flight_max_bytes = 20 << 20;
    config.net.idle_ms = 1500;
    let node = Node::start(config).unwrap();
    let credits = node.broker().unwrap().credits.clone();
    let mut liars: Vec<Client> = (0..4).map(|_| Client::of(&node)).collect();
    for liar in &mut liars {
        // 12 MiB are announced, a megabyte comes.
        liar.write(&[0, 0xC0, 0, 0, 0, 0, 0, 2, b'{', b'}']);
        liar.write(&vec![0; 1 << 20]);
    }
    assert!(credits.used_bytes() <= 20 << 20);
    // On a slow machine one that waits for its share of the purse may count as idle too.
    until("others are served when the liars have been silent too long", || {
        let mut good = Client::of(&node);
        let asked = good.try_send(&send_request("T", 0, b"x", ""));
        asked && good.receive().is_some_and(|answer| answer.response_code() == ResponseCode::SUCCESS)
    });
    liars.iter_mut().for_each(|liar| assert!(liar.receive().is_none()));
    assert_healthy(&node, 0);
}
