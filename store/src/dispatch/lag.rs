//! Dispatching that stopped for lack of space, and goes on when there is room again.
//!
//! Invariants:
//! - what was missed is read from the log, in its order, before anything newer is dispatched;
//! - meanwhile the log takes nothing more, so that no more is missed than was under way;
//! - any other failure is final: the store has to be opened again.

use super::DispatchWriter;
use crate::consume_queue::Put;
use crate::error::StoreError;
use crate::reader::LogReader;

impl DispatchWriter {
    /// Whether records are in the log that could not be dispatched.
    pub fn is_behind(&self) -> bool {
        self.missed_from.is_some()
    }

    /// Tries to dispatch what could not be before. The log takes records again once it could.
    ///
    /// # Errors
    /// If there is still no room ([`StoreError::is_out_of_space`]), or for good.
    pub fn catch_up(&mut self, reader: &LogReader) -> Result<(), StoreError> {
        let Some(from) = self.missed_from else { return Ok(()) };
        reader.walk(from, reader.wrote_to(), |record| match self.dispatch_record(record)? {
            Put::Appended | Put::Known => Ok(()),
            Put::Gap { .. } => Err(self.queues.open_or_create(record.topic(), record.queue_id())?.gap()),
        })?;
        self.missed_from = None;
        self.space.go_on();
        tracing::info!(from, to = self.dispatched_to(), "there is room again: what was missed is dispatched");
        Ok(())
    }

    /// Refuses while it is behind: a newer record would leave a gap.
    pub(super) fn check_order(&self) -> Result<(), StoreError> {
        if self.is_behind() { self.space.check() } else { Ok(()) }
    }

    /// Notes that the records from `from` on could not be dispatched, and hands the reason back.
    pub(super) fn fell_behind(&mut self, from: u64, error: StoreError) -> StoreError {
        if error.is_out_of_space() {
            tracing::warn!(from, %error, "no room for queues or index: writes are refused");
            self.missed_from = Some(from);
            self.space.halt(&error);
        }
        error
    }
}
