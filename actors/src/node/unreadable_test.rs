//! A log of which the disk cannot read a part, under a running node.
//!
//! Invariants:
//! - every test has its own node, folder and ports.

use troupemq_codec::ResponseCode;
use troupemq_store::faults::{Op, arm};

use super::end_to_end_test::{evict, found, refused, stored, with_cold_log};
use crate::node::Node;
use crate::testing::{Client, small_broker, start_broker};

#[test]
fn what_the_disk_cannot_read_is_an_answer_that_names_it_and_the_node_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("commitlog");
    let first = log.join(format!("{:020}", 0));
    let node = with_cold_log(dir.path());
    let disk = std::fs::OpenOptions::new().write(true).open(&first).unwrap();
    let broker = node.broker().unwrap().clone();
    let mut client = Client::of(&node);
    // Some file systems keep everything in memory; then nothing is read from the disk.
    if !broker.log.is_resident(13_000_000, 1_000_000) {
        let broken = arm(&log, Op::Read, 0, 5);
        let answer = client.pull("Cold", 0, 13, "*");
        refused(&answer, ResponseCode::SYSTEM_ERROR, &format!("cannot read {}: ", first.display()));
        drop(broken);
        assert_eq!(found(&client.pull("Cold", 0, 13, "*")).1.len(), 1, "the disk reads again");
    }
    // Somebody cuts the file while it is mapped.
    disk.set_len(16_000_000).unwrap();
    let answer = client.pull("Cold", 0, 17, "*");
    refused(&answer, ResponseCode::SYSTEM_ERROR, &format!("cannot read {}: ", first.display()));
    for offset in [14, 22] {
        assert_eq!(found(&client.pull("Cold", 0, offset, "*")).0.next_offset, offset + 1);
    }
    stored(&client.produce("Cold", 0, b"goes on", ""));
}

#[test]
fn units_that_the_disk_cannot_read_are_an_answer_that_names_their_file() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    // Three pages of units: a start looks at the first and the last one.
    for at in 0..600_u16 {
        stored(&client.produce("Units", 0, &at.to_be_bytes(), ""));
    }
    node.stop_and_wait().expect("a clean stop");
    drop((node, client));
    let queue = dir.path().join("consumequeue/Units/0");
    evict(&queue);
    let node = start_broker(dir.path());
    let broker = node.broker().unwrap().clone();
    let mut client = Client::of(&node);
    let topic = broker.directory.topic("Units").unwrap();
    let units = broker.directory.queue(&topic, 0, &broker.queues).unwrap().unwrap().units.clone();
    // Some file systems keep everything in memory; then nothing is read from the disk.
    if !units.was_resident(300, 1, 0) {
        let broken = arm(&queue, Op::Read, 0, 5);
        let answer = client.pull("Units", 0, 300, "*");
        let file = queue.join(format!("{:020}", 0));
        refused(&answer, ResponseCode::SYSTEM_ERROR, &format!("cannot read {}: ", file.display()));
        drop(broken);
        assert_eq!(broker.stats.read().cold_pulls, 1);
    }
    let (header, messages) = found(&client.pull("Units", 0, 300, "*"));
    assert_eq!((header.next_offset, &messages[0].body[..]), (332, &300_u16.to_be_bytes()[..]));
    assert!(units.was_resident(300, 32, 0));
}

#[test]
fn what_this_node_wrote_and_the_system_has_evicted_is_read_where_waiting_is_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = small_broker(dir.path());
    config.broker.as_mut().unwrap().store.log_segment_bytes = 20 << 20;
    let node = Node::start(config).unwrap();
    let mut client = Client::of(&node);
    // More than what counts as in memory because it was written last.
    for at in 0..90_u8 {
        stored(&client.produce("Own", 0, &[at; 1_000_000], ""));
    }
    evict(&dir.path().join("commitlog"));
    let broker = node.broker().unwrap().clone();
    let is_cold = !broker.log.is_resident(5_000_000, 1_000_000);
    let (_, messages) = found(&client.pull("Own", 0, 5, "*"));
    assert_eq!(messages[0].body[..], [5; 1_000_000]);
    assert_eq!(broker.stats.read().cold_pulls, u64::from(is_cold));
    assert_eq!(found(&client.pull("Own", 0, 89, "*")).1.len(), 1);
    assert_eq!(broker.stats.read().cold_pulls, u64::from(is_cold), "the end is in memory");
}
