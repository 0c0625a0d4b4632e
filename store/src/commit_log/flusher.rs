//! Has the disk take what the log wrote, for the thread that flushes.
//!
//! Invariants:
//! - `flushed_to` moves only after the disk has answered for every byte below it;
//! - a flush that failed is never tried again: the page cache may have dropped what it could not write;
//! - pages far behind the flushed position are taken out of the process, so that it stays small.

use std::sync::Arc;

use crate::error::StoreError;
use crate::poison::Poison;
use crate::reader::{KEEP_MAPPED_BYTES, LogReader, Positions};
use crate::segment::Segment;

/// Pages are taken out in steps of this many bytes.
const DROP_STEP_BYTES: u64 = 16 << 20;

/// The flushing end of the log; owned by one thread.
#[derive(Debug)]
pub struct LogFlusher {
    reader: LogReader,
    positions: Arc<Positions>,
    poison: Poison,
    dropped_to: u64,
}

/// Tells how far the log is on the disk; clones tell the same.
#[derive(Debug, Clone)]
pub struct FlushWatch {
    positions: Arc<Positions>,
}

impl LogFlusher {
    pub(crate) fn new(reader: LogReader, positions: Arc<Positions>, poison: Poison) -> LogFlusher {
        let dropped_to = positions.flushed_to();
        LogFlusher { reader, positions, poison, dropped_to }
    }

    /// End of the log.
    pub fn wrote_to(&self) -> u64 {
        self.positions.wrote_to()
    }

    /// End of what is on the disk.
    pub fn flushed_to(&self) -> u64 {
        self.positions.flushed_to()
    }

    /// Has the disk take everything written so far; answers how far that is.
    ///
    /// # Errors
    /// After the first failure every call fails: the store takes no more writes.
    pub fn flush(&mut self) -> Result<u64, StoreError> {
        self.poison.check()?;
        let store_ms = self.positions.store_ms();
        let (from, to) = (self.positions.flushed_to(), self.positions.wrote_to());
        if from >= to {
            return Ok(from);
        }
        for segment in self.touched(from, to) {
            segment.sync().map_err(|error| self.poison.set(error))?;
        }
        tracing::trace!(to, "the log is on the disk");
        self.positions.set_flushed_to(to);
        self.positions.set_flushed_ms(store_ms);
        self.drop_pages(to);
        Ok(to)
    }

    /// What tells others how far this has come.
    pub fn watch(&self) -> FlushWatch {
        FlushWatch { positions: Arc::clone(&self.positions) }
    }

    /// The segments with bytes in `from..to`.
    fn touched(&self, from: u64, to: u64) -> Vec<Arc<Segment>> {
        let list = self.reader.segments().snapshot();
        let touched = list.iter().filter(|segment| segment.end() > from && segment.start() < to);
        touched.map(Arc::clone).collect()
    }

    fn drop_pages(&mut self, flushed_to: u64) {
        let to = flushed_to.saturating_sub(KEEP_MAPPED_BYTES);
        if to < self.dropped_to + DROP_STEP_BYTES {
            return;
        }
        self.reader.unmap_old(self.dropped_to..to);
        self.dropped_to = to;
    }
}

impl FlushWatch {
    /// End of what is on the disk.
    pub fn flushed_to(&self) -> u64 {
        self.positions.flushed_to()
    }

    /// Store time of a record below that, the last one as far as known; 0 if nothing is known.
    pub fn flushed_time_ms(&self) -> i64 {
        self.positions.flushed_ms()
    }
}
