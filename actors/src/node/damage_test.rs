//! Damaged queues of what waits: a wrong unit delivers nothing wrong and holds nothing up.
//!
//! Invariants:
//! - what is damaged is a file of a node that has stopped, as by a misdirected write;
//! - the clock is turned by hand.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use troupemq_codec::Text;
use troupemq_codec::message::Message;
use troupemq_codec::request::TRANSACTION_COMMIT;
use troupemq_store::ManualClock;

use super::delivery_test::{NOW_MS, count, start};
use super::transaction_test::{Question, end, half, produce_for};
use crate::testing::{Client, stored, wait_for};

const UNIT_BYTES: u64 = 20;

/// The first file of a queue of a node that has stopped.
fn units(dir: &Path, topic: &str, queue_id: i32) -> File {
    let path = dir.join(format!("consumequeue/{topic}/{queue_id}/00000000000000000000"));
    File::options().read(true).write(true).open(path).expect("the queue has a file")
}

fn copy_unit(file: &File, from: u64, to: u64) {
    let mut unit = [0; 20];
    file.read_exact_at(&mut unit, from * UNIT_BYTES).unwrap();
    file.write_all_at(&unit, to * UNIT_BYTES).unwrap();
}

/// Changes the time at which a unit says its message is due.
fn set_due(file: &File, at: u64, due_ms: i64) {
    file.write_all_at(&due_ms.to_be_bytes(), at * UNIT_BYTES + 12).unwrap();
}

/// Waits until the messages from one offset up to another are there.
fn wait_up_to(client: &mut Client, topic: &str, offsets: std::ops::Range<i64>) {
    offsets.for_each(|offset| _ = wait_for(client, topic, 0, offset));
}

fn bodies(client: &mut Client, topic: &str) -> Vec<u8> {
    let messages = Message::decode_all(client.pull(topic, 0, 0, "*").body).unwrap();
    messages.iter().map(|message| message.body[0]).collect()
}

#[test]
fn a_damaged_unit_of_a_level_delivers_nothing_else_is_not_early_and_holds_nothing_up() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    for at in 0..10_u8 {
        stored(&client.produce("Late", 0, &[at], "DELAY\u{1}3\u{2}"));
    }
    node.stop_and_wait().expect("a clean stop");
    let file = units(dir.path(), "SCHEDULE_TOPIC_XXXX", 2);
    set_due(&file, 0, NOW_MS - 1);
    copy_unit(&file, 3, 2);
    set_due(&file, 4, NOW_MS + 19_999);
    set_due(&file, 6, i64::MIN);
    file.write_all_at(&[0xff; 20], 8 * UNIT_BYTES).unwrap();

    clock.advance_ms(5000);
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    stored(&client.produce("Soon", 0, b"first", "DELAY\u{1}1\u{2}"));
    clock.advance_ms(4999);
    wait_for(&mut client, "Soon", 0, 0);
    assert_eq!(count(&mut client, "Late", 0), 0, "what says it is due is not");
    clock.advance_ms(1);
    wait_up_to(&mut client, "Late", 0..8);
    stored(&client.produce("Late", 0, &[10], "DELAY\u{1}3\u{2}"));
    clock.advance_ms(10_000);
    wait_up_to(&mut client, "Late", 8..9);
    assert_eq!(bodies(&mut client, "Late"), [0, 1, 3, 4, 5, 6, 7, 9, 10]);
    node.stop_and_wait().expect("a clean stop");
}

#[test]
fn a_damaged_unit_of_the_timers_enters_no_timer_twice() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    for at in 0..4_u8 {
        stored(&client.produce("Late", 0, &[at], "TIMER_DELAY_SEC\u{1}20\u{2}"));
    }
    node.stop_and_wait().expect("a clean stop");
    // A node that stops at once may have entered none of them: then there are no files of the log of timers.
    for part in ["timerwheel", "timerlog", "config/timercheck"] {
        let path = dir.path().join(part);
        let gone = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
        assert!(gone.is_ok() || gone.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound));
    }
    copy_unit(&units(dir.path(), "rmq_sys_wheel_timer", 0), 3, 1);

    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    clock.advance_ms(21_000);
    wait_up_to(&mut client, "Late", 0..3);
    stored(&client.produce("Late", 0, &[4], "TIMER_DELAY_SEC\u{1}20\u{2}"));
    clock.advance_ms(21_000);
    wait_up_to(&mut client, "Late", 3..4);
    let mut came = bodies(&mut client, "Late");
    came.sort_unstable();
    assert_eq!(came, [0, 2, 3, 4]);
    node.stop_and_wait().expect("a clean stop");
}

#[test]
fn a_half_message_whose_unit_is_damaged_is_still_decided_and_no_other_is_asked_about_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let places = ["U0", "U1", "U2", "U3"].map(|id| half(&mut client, id, ""));
    node.stop_and_wait().expect("a clean stop");
    let file = units(dir.path(), "RMQ_SYS_TRANS_HALF_TOPIC", 0);
    copy_unit(&file, 3, 1);
    copy_unit(&file, 3, 2);

    let node = start(dir.path(), &clock);
    let mut producer = produce_for(&node, "Payers");
    assert_eq!(end(&mut producer, places[1], TRANSACTION_COMMIT).code, 0);
    assert_eq!(&wait_for(&mut producer, "Paid", 1, 0).body[..], b"U1");
    clock.advance_ms(60_000);
    let asked = [(); 2].map(|()| Question::wait(&mut producer).id());
    assert_eq!(asked, ["U0", "U3"].map(Text::from_static));
    node.stop_and_wait().expect("a clean stop");
}
