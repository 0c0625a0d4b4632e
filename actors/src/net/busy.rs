//! Busy polling: an arbiter that serves one peer, request by request, looks for the next request for some microseconds
//! before it sleeps. To wake a thread on a processor that has halted takes longer than to serve a send.
//!
//! Invariants:
//! - it polls only while one connection alone has requests and they mostly come within the limit, so that it costs
//!   nothing when idle, at low rates, and where there is enough to do anyway;
//! - whatever else the arbiter carries goes on while it polls.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tokio::sync::Notify;

use crate::net::LinkId;
use crate::net::wire::Hall;

/// Looks for the next request before the arbiter sleeps, whatever the clock says: more than fit into the limit.
const LOOKS_MAX: u32 = 2_000;

/// When an arbiter polls.
#[derive(Debug)]
pub struct Busy {
    gaps: RefCell<Gaps>,
    /// When to sleep, in monotonic nanoseconds; none while there is nothing to poll for.
    until: Cell<Option<u64>>,
    wanted: Notify,
}

/// How long an arbiter waits between two turns.
#[derive(Debug, Default)]
struct Gaps {
    limit: u64,
    last: Option<LinkId>,
    ended: u64,
    /// Usual time from the end of a turn to the next one of the same connection.
    usual: u64,
}

impl Busy {
    /// Polls for at most so long; never if it is 0.
    pub fn new(limit_nanos: u64) -> Busy {
        let gaps = Gaps { limit: limit_nanos, usual: limit_nanos.saturating_mul(2), ..Gaps::default() };
        Busy { gaps: RefCell::new(gaps), until: Cell::new(None), wanted: Notify::new() }
    }

    /// A turn of `link` begins.
    pub(crate) fn began(&self, link: LinkId, now: u64) {
        self.until.set(None);
        self.gaps.borrow_mut().began(link, now);
    }

    /// The turn that began last has ended.
    pub(crate) fn ended(&self, now: u64) {
        self.until.set(self.gaps.borrow_mut().ended(now));
        if self.until.get().is_some() {
            self.wanted.notify_one();
        }
    }
}

impl Gaps {
    fn began(&mut self, link: LinkId, now: u64) {
        // One long gap counts like many short ones: who pauses is not waited for.
        let gap = match self.last.replace(link) {
            Some(last) if last == link => now.saturating_sub(self.ended).min(self.limit.saturating_mul(8)),
            _ => self.limit.saturating_mul(8),
        };
        self.usual = self.usual - self.usual / 8 + gap / 8;
    }

    /// Until when the next turn is worth polling for.
    fn ended(&mut self, now: u64) -> Option<u64> {
        self.ended = now;
        (self.usual < self.limit).then(|| now.saturating_add(self.limit))
    }
}

/// Polls whenever it is worth it.
pub(crate) async fn poll(hall: Rc<Hall>) {
    loop {
        hall.busy.wanted.notified().await;
        for _ in 0..LOOKS_MAX {
            if hall.busy.until.get().is_none_or(|until| hall.clock.0.nanos() >= until) {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns of 1 us, `gap` apart, of the connections in turn. Tells whether the last was followed by polling.
    fn polls_after(turns: u64, gap: u64, connections: u64, gaps: &mut Gaps) -> bool {
        let mut polls = false;
        for turn in 0..turns {
            let now = gaps.ended + gap;
            gaps.began(LinkId(turn % connections), now);
            polls = gaps.ended(now + 1_000).is_some();
        }
        polls
    }

    fn gaps(limit: u64) -> Gaps {
        Gaps { limit, usual: 2 * limit, ..Gaps::default() }
    }

    #[test]
    fn one_peer_that_answers_soon_is_polled_for_and_sleeps_when_it_pauses() {
        let mut gaps = gaps(50_000);
        assert!(!polls_after(2, 10_000, 1, &mut gaps), "nothing is known yet");
        assert!(polls_after(20, 10_000, 1, &mut gaps));
        assert!(!polls_after(1, 1_000_000, 1, &mut gaps), "a pause ends it");
        assert!(polls_after(20, 10_000, 1, &mut gaps));
    }

    #[test]
    fn several_peers_and_seldom_requests_are_not_polled_for() {
        assert!(!polls_after(100, 10_000, 2, &mut gaps(50_000)));
        assert!(!polls_after(100, 200_000, 1, &mut gaps(50_000)));
        assert!(!polls_after(100, 10_000, 1, &mut gaps(0)));
    }
}
