//! A log of which the disk cannot read a part, under a running node.
//!
//! Invariants:
//! - every test has its own node, folder and ports.

use troupemq_codec::ResponseCode;
use troupemq_store::faults::{Op, arm};

use super::end_to_end_test::{found, refused, stored, with_cold_log};
use crate::testing::Client;

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
