//! A running node whose disk fills: writes are refused with the cause and its numbers, consumers get what is left, and
//! it heals when there is room. Old messages go by hour, by used part and by free bytes.
//!
//! Invariants:
//! - what the disk looks like is put in by the test, so that it holds on every machine;
//! - no test waits for a time: only until the thread that deletes has had its turn.

use std::path::Path;
use std::sync::Arc;

use troupemq_codec::message::Message;
use troupemq_codec::request::{PullMessageReplyHeader, UpdateBrokerConfig};
use troupemq_codec::{Command, ResponseCode};
use troupemq_store::faults::{Op, arm, pretend_disk};
use troupemq_store::retention::DiskUse;
use troupemq_store::{Clock, ManualClock, StoreConfig, SystemClock};

use crate::config::BrokerPart;
use crate::node::NodeHandle;
use crate::testing::{Client, block_on, request, start_broker_at, until};

const ENOSPC: i32 = 28;
const GIB: u64 = 1 << 30;
/// A disk with room.
const PLENTY: DiskUse = DiskUse { free_bytes: 100 * GIB, used_percent: 50 };

/// A broker with the limits of a production system, some days later than its files say.
fn start(dir: &Path, change: impl FnOnce(&mut StoreConfig)) -> NodeHandle {
    let four_days_later = ManualClock::at(SystemClock::new().now_ms() + 96 * 3_600_000);
    start_broker_at(&Arc::new(four_days_later), dir, |BrokerPart { store, .. }| {
        (store.log_segment_bytes, store.recycled_max) = (64 << 10, 0);
        (store.disk_free_floor_bytes, store.disk_full_percent) = (5 * GIB, 90);
        store.delete_when = String::new();
        change(store);
    })
}

/// Has the thread that deletes look at everything.
fn look(node: &NodeHandle) {
    let broker = node.broker().unwrap();
    broker.retention.clean_now();
    // It answers orders in their order, each before it cleans.
    block_on(broker.retention.follow()).expect("nothing fails");
}

fn change(client: &mut Client, settings: &str) {
    let change = request::<UpdateBrokerConfig>(&Default::default()).with_body(settings.to_owned().into());
    assert_eq!(client.call(change).code, 0, "{settings}");
}

fn refusal(answer: &Command) -> &str {
    assert_eq!(answer.response_code(), ResponseCode::SERVICE_NOT_AVAILABLE, "{answer:?}");
    answer.remark.as_deref().unwrap_or_default()
}

/// The bodies of all messages of the topic that can still be had.
fn bodies(client: &mut Client, topic: &str) -> Vec<Vec<u8>> {
    let (mut offset, mut bodies) = (0, Vec::new());
    loop {
        let answer = client.pull(topic, 0, offset, "*");
        let header: PullMessageReplyHeader = answer.header().expect("a pull has its offsets");
        offset = header.next_offset;
        match answer.response_code() {
            ResponseCode::SUCCESS => {
                let messages = Message::decode_all(answer.body).expect("whole records");
                bodies.extend(messages.into_iter().map(|message| message.body.to_vec()));
            }
            ResponseCode::PULL_OFFSET_MOVED => {}
            _ => return bodies,
        }
    }
}

/// Fills several segments of the log with messages, and tells how many those are.
fn fill(client: &mut Client) -> usize {
    for number in 0..60_u8 {
        assert_eq!(client.produce("Old", 0, &[number; 5_000], "").code, 0);
    }
    60
}

/// A lack ends by itself: nobody asks the node to look.
fn until_taken(client: &mut Client) {
    until("there is room, and writes are taken", || client.produce("Full", 0, b"again", "").code == 0);
}

#[test]
fn each_lack_of_space_refuses_sends_with_its_numbers_and_ends_by_itself_and_consumers_get_what_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().display().to_string();
    let disk = pretend_disk(dir.path(), PLENTY);
    let node = start(dir.path(), |store| store.clean_forcibly = false);
    let mut client = Client::of(&node);
    assert_eq!(client.produce("Full", 0, b"first", "").code, 0);
    let lacks = [
        (GIB * 12 / 10, 50, format!("disk full: free 1.1 GiB < floor 5.0 GiB on {root}")),
        (100 * GIB, 96, format!("disk full: 96 % used > limit 90 % on {root}")),
    ];
    for (at, (free_bytes, used_percent, told)) in lacks.into_iter().enumerate() {
        disk.look_like(DiskUse { free_bytes, used_percent });
        look(&node);
        for _ in 0..3 {
            let answer = client.produce("Full", 0, b"refused", "");
            assert!(refusal(&answer).contains(&told), "{answer:?}");
            assert!(refusal(&answer).ends_with("whether there is room is looked at every second"));
        }
        assert_eq!(bodies(&mut client, "Full").len(), at + 1);
        disk.look_like(PLENTY);
        until_taken(&mut client);
    }
    assert_eq!(bodies(&mut client, "Full"), [&b"first"[..], b"again", b"again"]);
}

#[test]
fn a_queue_that_finds_no_blocks_refuses_sends_with_both_numbers_and_what_was_stored_is_there_later() {
    let dir = tempfile::tempdir().unwrap();
    let _disk = pretend_disk(dir.path(), PLENTY);
    let node = start(dir.path(), |store| store.log_segment_bytes = 8 << 20);
    let mut client = Client::of(&node);
    assert_eq!(client.produce("Full", 0, &0_u32.to_be_bytes(), "").code, 0);
    let queues = dir.path().join("consumequeue");
    let refused_blocks = arm(&queues, Op::Allocate, 0, ENOSPC);
    let mut sent = 1_u32;
    let first = loop {
        let answer = client.produce("Full", 0, &sent.to_be_bytes(), "");
        sent += 1;
        match answer.code {
            0 => assert!(sent < 5_000, "the queue needed no blocks"),
            _ => break answer,
        }
    };
    assert!(
        refusal(&first).contains("cannot reserve ") && refusal(&first).contains(" KiB for "),
        "{first:?}"
    );
    let next = client.produce("Full", 0, b"refused", "");
    let folder = queues.join("Full").join("0");
    let told = format!("disk full: free 100.0 GiB on {}: cannot reserve ", folder.display());
    assert!(refusal(&next).contains(&told), "{next:?}");
    let left = bodies(&mut client, "Full");
    assert_eq!(left.len(), usize::try_from(sent).unwrap() - 1, "what was acknowledged is there");
    drop(refused_blocks);
    until_taken(&mut client);
    // The one whose sender heard no is in the log: it is there, once and in its order.
    let mut wanted: Vec<Vec<u8>> = (0..sent).map(|number| number.to_be_bytes().to_vec()).collect();
    wanted.push(b"again".to_vec());
    assert_eq!(bodies(&mut client, "Full"), wanted);
    node.stop_and_wait().expect("a clean stop");
}

#[test]
fn expired_messages_go_at_their_hour_and_stay_at_any_other() {
    let dir = tempfile::tempdir().unwrap();
    let _disk = pretend_disk(dir.path(), PLENTY);
    let node = start(dir.path(), |_| ());
    let mut client = Client::of(&node);
    let sent = fill(&mut client);
    // Settings that change are looked at, and there is no hour.
    change(&mut client, "deleteFileBatchMax=9");
    let broker = node.broker().unwrap();
    (0..2).for_each(|_| assert_eq!(block_on(broker.retention.follow()), Ok(0)));
    assert_eq!((broker.log.min_offset(), bodies(&mut client, "Old").len()), (0, sent));
    let hours: Vec<String> = (0..24).map(|hour| hour.to_string()).collect();
    change(&mut client, &format!("deleteWhen={}", hours.join(";")));
    until("the hour has come, and the oldest go", || broker.log.min_offset() > 0);
    let left = bodies(&mut client, "Old");
    assert!((1..sent).contains(&left.len()), "{} are left", left.len());
    assert_eq!(left.last(), Some(&vec![59; 5_000]), "the oldest go");
}

#[test]
fn what_expired_goes_at_any_hour_when_the_disk_fills_and_what_did_not_when_it_is_nearly_full() {
    let expired = |free_bytes, used_percent, reserved_hours| {
        let dir = tempfile::tempdir().unwrap();
        let disk = pretend_disk(dir.path(), PLENTY);
        let node = start(dir.path(), |store| store.reserved_hours = reserved_hours);
        let mut client = Client::of(&node);
        let sent = fill(&mut client);
        disk.look_like(DiskUse { free_bytes, used_percent });
        change(&mut client, "deleteFileBatchMax=9");
        let broker = node.broker().unwrap();
        (0..2).for_each(|_| assert!(block_on(broker.retention.follow()).is_ok()));
        let left = bodies(&mut client, "Old");
        assert_eq!(left.last(), Some(&vec![59; 5_000]), "the last segment stays");
        left.len() < sent
    };
    let (old, young) = (72, 200);
    assert!(!expired(100 * GIB, 74, old) && expired(100 * GIB, 75, old));
    assert!(!expired(100 * GIB, 84, young) && expired(100 * GIB, 85, young));
    assert!(expired(4 * GIB, 50, young), "too few free bytes");
}
