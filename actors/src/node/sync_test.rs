//! Synchronous flush over a socket: what is acknowledged is on the disk, whatever refuses.
//!
//! Invariants:
//! - every test has its own node, folder and ports.

use bytes::BytesMut;
use troupemq_codec::ResponseCode;
use troupemq_store::FlushMode;
use troupemq_store::faults::{Op, arm};

use crate::node::Node;
use crate::testing::{Client, send_request, small_broker};

const SEGMENT_BYTES: u64 = 1 << 20;
const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// A batch that meets the end of a segment is stored in part if there is no other.
#[test]
fn of_a_batch_stored_in_part_nothing_is_acknowledged_before_it_is_on_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = small_broker(dir.path());
    let store = &mut config.broker.as_mut().unwrap().store;
    (store.log_segment_bytes, store.flush) = (SEGMENT_BYTES, FlushMode::Sync);
    store.sync_flush_timeout_ms = 200;
    let log = dir.path().join("commitlog");
    let _no_room = arm(&log.join(format!("{SEGMENT_BYTES:020}")), Op::Create, 0, ENOSPC);
    let node = Node::start(config).unwrap();
    let mut client = Client::of(&node);
    let wrote_to = || node.broker().unwrap().log.wrote_to();
    while wrote_to() + 80_000 < SEGMENT_BYTES {
        assert_eq!(client.produce("Full", 0, &[7; 10_000], "").code, 0);
    }
    let _no_flush = arm(&log, Op::Flush, 0, EIO);
    let mut together = BytesMut::new();
    for opaque in 1..=12 {
        let mut send = send_request("Full", 0, &[7; 10_000], "");
        send.opaque = opaque;
        send.encode(&mut together);
    }
    let before = wrote_to();
    client.write(&together);
    // A node that cannot flush ends, so not all are answered.
    let answers = std::iter::from_fn(|| client.receive()).take(12);
    let codes: Vec<_> = answers.map(|answer| answer.response_code()).collect();
    assert!(wrote_to() > before, "none was stored, so nothing was seen: {codes:?}");
    assert!(!codes.contains(&ResponseCode::SUCCESS), "{codes:?}");
}
