//! Timers that are given up: what the disk has not read for so long after its time that no other message would be kept.
//!
//! Invariants:
//! - plain state: time is an argument;
//! - nothing is given up before it is late by as long as a message surely lies in the log, and was tried for an hour by
//!   this process;
//! - what is given up is counted, and named in the log with its file, its place and what the disk said; it holds its
//!   slot open no longer, and no segment of the log.

use std::collections::BTreeMap;

use troupemq_codec::timer_record::TimerUnit;
use troupemq_store::LogReader;
use troupemq_store::timer::SlotUnits;

use super::Timer;

/// How long something is tried at least, ms.
const TRIED_MIN_MS: i64 = 3_600_000;
/// Stands for a whole slot in place of a log offset.
const WHOLE_SLOT: i64 = -1;

/// Since when what of the open slots cannot be read.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// By time of the slot and log offset.
    since_ms: BTreeMap<(i64, i64), i64>,
    /// Timers that were given up since the start.
    given_up: u64,
}

impl Patience {
    /// Notes that the disk could not read something; tells whether it is given up. `kept_ms` is how long a message
    /// surely lies in the log.
    fn fails(&mut self, at: (i64, i64), kept_ms: i64, now_ms: i64) -> bool {
        let since_ms = *self.since_ms.entry(at).or_insert(now_ms);
        now_ms.saturating_sub(at.0) >= kept_ms && now_ms.saturating_sub(since_ms) >= TRIED_MIN_MS
    }

    /// Forgets the slots before a time: they are over.
    pub(super) fn close_before(&mut self, time_ms: i64) {
        if !self.since_ms.is_empty() {
            self.since_ms = self.since_ms.split_off(&(time_ms, i64::MIN));
        }
    }

    /// Timers that were given up since the start.
    pub(super) fn given_up(&self) -> u64 {
        self.given_up
    }
}

impl Timer {
    /// Whether a timer that could not be read is given up now.
    pub(super) fn gives_up(&mut self, slot_ms: i64, (log_offset, size): (u64, u32), now_ms: i64) -> bool {
        let is_over = self.patience.fails((slot_ms, log_offset.cast_signed()), self.store.kept_ms(), now_ms);
        if is_over {
            self.patience.given_up += 1;
            let log = self.cast.log.clone();
            actix_rt::task::spawn_blocking(move || tell(&log, slot_ms, (log_offset, size)));
        }
        is_over
    }

    /// Of what could not be read, what is tried again.
    pub(super) fn still_tried(
        &mut self,
        (mut units, mut slots): (Vec<(i64, TimerUnit)>, Vec<SlotUnits>),
        now_ms: i64,
    ) -> (Vec<(i64, TimerUnit)>, Vec<SlotUnits>) {
        units.retain(|(slot_ms, unit)| {
            let at = (unit.log_offset.cast_unsigned(), unit.size.cast_unsigned());
            let is_over = self.gives_up(*slot_ms, at, now_ms);
            if is_over {
                self.open.read(*slot_ms);
            }
            !is_over
        });
        slots.retain(|slot| {
            let is_over = self.patience.fails((slot.slot_ms, WHOLE_SLOT), self.store.kept_ms(), now_ms);
            if is_over {
                self.patience.given_up += u64::try_from(slot.count).unwrap_or(0).max(1);
                self.open.read(slot.slot_ms);
                let slot = slot.clone();
                actix_rt::task::spawn_blocking(move || tell_slot(&slot));
            }
            !is_over
        });
        (units, slots)
    }
}

/// Names a timer that is given up, as the disk names it. Waits for the disk.
fn tell(log: &LogReader, slot_ms: i64, (log_offset, size): (u64, u32)) {
    match log.read(log_offset, usize::try_from(size).unwrap_or(0)) {
        Err(error) => tracing::error!(
            %error, log_offset, slot_ms,
            "a timer is given up: the disk has not read it for as long as messages are kept"
        ),
        Ok(_) => tracing::error!(
            log_offset,
            slot_ms,
            "a timer was given up, and can be read again: look it up by its place in the log"
        ),
    }
}

/// The same of the timers of a whole slot.
fn tell_slot(slot: &SlotUnits) {
    let (slot_ms, timers) = (slot.slot_ms, slot.count);
    match slot.read() {
        Err(error) => tracing::error!(
            %error, slot_ms, timers,
            "the timers of a slot are given up: the disk has not read them for as long as messages are kept"
        ),
        Ok(units) => {
            let log_offsets: Vec<i64> = units.iter().map(|unit| unit.log_offset).collect();
            tracing::error!(
                ?log_offsets,
                slot_ms,
                "the timers of a slot were given up, and can be read again: look them up by their places in the log"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: i64 = 3_600_000;

    #[test]
    fn what_cannot_be_read_is_given_up_when_it_is_late_for_as_long_as_messages_are_kept_and_was_tried_for_an_hour()
     {
        let mut patience = Patience::default();
        let mut fails = |at, hours| patience.fails(at, 48 * HOUR_MS, hours * HOUR_MS);
        assert_eq!([0, 1, 47, 48].map(|hours| fails((0, 7), hours)), [false, false, false, true]);
        assert_eq!(
            [50, 51].map(|hours| fails((0, 8), hours)),
            [false, true],
            "after a start it is tried anew"
        );
        assert!(!fails((3 * HOUR_MS, 7), 3), "it is another one");
        assert_eq!([50, 51].map(|hours| fails((3 * HOUR_MS, 7), hours)), [false, true]);
    }

    #[test]
    fn what_is_over_is_forgotten() {
        let mut patience = Patience::default();
        for slot_ms in [1000, 2000, 3000] {
            assert!(!patience.fails((slot_ms, WHOLE_SLOT), HOUR_MS, slot_ms));
        }
        patience.close_before(2000);
        assert_eq!(patience.since_ms.len(), 2);
    }
}
