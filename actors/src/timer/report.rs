//! What the owner of the timers tells of them.
//!
//! Invariants:
//! - all numbers are of one moment; what is counted is counted since the start of the broker.

use actix::Message;
use troupemq_codec::timer_record::TimerCheckpoint;
use troupemq_store::timer::TimerView;

use super::Timer;

/// How far the timers are. Sent by administration.
#[derive(Debug, Message)]
#[rtype(result = "TimerReport")]
pub struct Report;

/// How far the timers are.
#[derive(Debug, Clone)]
pub struct TimerReport {
    /// The check point.
    pub checkpoint: TimerCheckpoint,
    /// Timers that wait.
    pub pending: i64,
    /// Messages of the timer topic that are not entered yet.
    pub behind: i64,
    /// When the next timer of the open slots is due, epoch ms.
    pub next_ms: Option<i64>,
    /// Timers that were delivered since the start.
    pub delivered: u64,
    /// Timers that were recalled since the start.
    pub recalled: u64,
    /// Timers that were given up since the start, as the disk never read them.
    pub given_up: u64,
    /// Messages that were entered a second, lately (RocketMQ: `timerEnqueueTps`).
    pub enters_a_second: f64,
    /// Timers that were delivered a second, lately (RocketMQ: `timerDequeueTps`).
    pub leaves_a_second: f64,
    /// What waits, slot by slot.
    pub view: TimerView,
}

impl Timer {
    /// What there is to tell now.
    pub(super) fn report(&self) -> TimerReport {
        let now_ms = self.cast.now_ms();
        TimerReport {
            checkpoint: self.store.checkpoint(),
            pending: self.store.pending(),
            behind: self.behind(),
            next_ms: self.open.next_ms(),
            delivered: self.delivered.total(),
            recalled: self.open.cancelled(),
            given_up: self.patience.given_up(),
            enters_a_second: self.entered.per_second(now_ms),
            leaves_a_second: self.delivered.per_second(now_ms),
            view: self.store.view(),
        }
    }
}
