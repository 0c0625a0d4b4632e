//! Messages of the timer topic that are not entered yet.
//!
//! Invariants:
//! - while a thread reads the units of messages that came, no timer is taken that one of them may recall; while the
//!   disk cannot read them, they hold up none.

use std::sync::Arc;

use actix::Context;
use troupemq_store::timer::TIMER_TOPIC;
use troupemq_store::{ConsumeQueue, Unit};

use super::deliver::READ_MAX;
use super::enqueue::Mark;
use super::{LOOK_SOONEST_MS, Timer};
use crate::feed::{Fed, Feed};

/// The only queue of the timer topic.
pub(super) const TIMER_QUEUE: i32 = 0;

impl Timer {
    /// The queue of the timer topic and the first message in it that is not entered, if there is one.
    pub(super) fn not_entered(&mut self) -> Option<(Arc<ConsumeQueue>, i64)> {
        let queue = self.cast.queues.get(TIMER_TOPIC, TIMER_QUEUE)?;
        if self.store.next_queue_offset() < queue.min_offset() {
            self.store.entered(queue.min_offset());
        }
        let next = self.store.next_queue_offset();
        (next < queue.max_offset()).then_some((queue, next))
    }

    /// How many messages are to be entered now.
    pub(super) fn to_enter(&self) -> usize {
        let is_off = self.cast.config.load().timer_stop_enqueue;
        if is_off { 0 } else { usize::try_from(self.behind()).unwrap_or(usize::MAX) }
    }

    /// How many messages are not entered.
    pub(super) fn behind(&self) -> i64 {
        let end = self.cast.queues.get(TIMER_TOPIC, TIMER_QUEUE).map_or(0, |queue| queue.max_offset());
        (end - self.store.next_queue_offset()).max(0)
    }

    /// Whether there are messages to be entered now.
    pub(super) fn has_new(&mut self) -> bool {
        !self.cast.config.load().timer_stop_enqueue && self.not_entered().is_some()
    }

    /// The messages that are to be entered now, as many as are read at a time, if they are at hand, and what was told
    /// of them.
    pub(super) fn new_units(&mut self) -> Vec<(Unit, Option<Mark>)> {
        if !self.has_new() {
            return Vec::new();
        }
        match self.not_entered() {
            Some((queue, next)) => {
                let units = self.feed.look(&queue, next, READ_MAX);
                units.map(|unit| (unit, self.told.take(&unit))).collect()
            }
            None => Vec::new(),
        }
    }

    /// Whether a thread reads the units of messages that are to be entered: among them may be recalls.
    pub(super) fn is_reading_new(&mut self) -> bool {
        self.feed.lacks() && !self.feed.has_failed() && self.has_new()
    }
}

impl Fed for Timer {
    fn feed(&mut self, _: i32) -> &mut Feed {
        &mut self.feed
    }

    fn now_ms(&self) -> i64 {
        self.cast.now_ms()
    }

    fn fed(&mut self, context: &mut Context<Timer>) {
        if !self.busy && !self.stopping.is_asked() {
            self.look_in(context, LOOK_SOONEST_MS);
        }
    }
}
