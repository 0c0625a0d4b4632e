//! Deliveries that fail, because the disk is full: they are tried again, never dropped. The clock is turned by hand.
//!
//! Invariants:
//! - nothing here waits for real time to pass but for the wake of an actor.

use std::path::Path;
use std::sync::Arc;

use troupemq_codec::ResponseCode;
use troupemq_codec::loose_json::from_loose;
use troupemq_codec::request::{DeleteExpiredCommitlog, GetTimerMetrics, TimerMetrics, UpdateBrokerConfig};
use troupemq_store::ManualClock;

use super::delivery_test::{NOW_MS, count, start};
use crate::testing::{Client, publish, request, stored, until, wait_for};

/// Has the broker keep so many bytes free, and waits until it judges by that: more than there are fill the disk.
pub(super) fn keep_free(client: &mut Client, bytes: u64) {
    let setting = format!("diskFreeFloorBytes={bytes}");
    let change = request::<UpdateBrokerConfig>(&Default::default()).with_body(setting.into());
    assert_eq!(client.call(change).code, 0);
    assert_eq!(client.call(request::<DeleteExpiredCommitlog>(&Default::default())).code, 0);
    let wanted = if bytes == 0 { ResponseCode::SUCCESS } else { ResponseCode::SERVICE_NOT_AVAILABLE };
    until("the broker judges by that", || client.produce("Other", 0, b"x", "").response_code() == wanted);
}

/// Sends messages that wait, lets their time come while nothing can be stored, and then makes room.
fn deliver_late(dir: &Path, wait: &str, is_entered: impl Fn(&mut Client) -> bool) {
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir, &clock);
    let mut client = Client::of(&node);
    for at in 0..40_u8 {
        stored(&client.produce("Late", 0, &[at], &format!("{wait}UNIQ_KEY\u{1}U{at}\u{2}")));
    }
    until("all wait", || is_entered(&mut client));
    keep_free(&mut client, u64::MAX >> 1);
    clock.advance_ms(5000);
    let put_off = || node.broker().unwrap().stats.read().put_off;
    until("each was put off twice", || put_off() >= 80);
    assert_eq!(count(&mut client, "Late", 0), 0);
    keep_free(&mut client, 0);
    let come: Vec<u8> = (0..40).map(|at| wait_for(&mut client, "Late", 0, at).body[0]).collect();
    assert_eq!(come, (0..40).collect::<Vec<u8>>(), "all in their order");
    node.stop_and_wait().expect("a clean stop");
    let node = start(dir, &clock);
    let mut client = Client::of(&node);
    assert_eq!(publish(&mut client, "Late", b"last").queue_offset, 40, "and each once");
    node.stop_and_wait().expect("a clean stop");
}

/// 3.3 #30: a message that cannot be stored is not skipped.
#[test]
fn what_leaves_a_level_while_the_disk_is_full_comes_later_once_and_in_its_order() {
    let dir = tempfile::tempdir().unwrap();
    deliver_late(dir.path(), "DELAY\u{1}1\u{2}", |_| true);
}

#[test]
fn timers_that_are_due_while_the_disk_is_full_come_later_once_and_in_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let wait = format!("TIMER_DELIVER_MS\u{1}{}\u{2}", NOW_MS + 3000);
    deliver_late(dir.path(), &wait, |client| {
        let answer = client.call(request::<GetTimerMetrics>(&Default::default()));
        from_loose::<TimerMetrics>(&answer.body).unwrap().pending == 40
    });
}
