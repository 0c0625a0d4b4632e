//! Records of the log for actors that deliver them: read where waiting is allowed.
//!
//! Invariants:
//! - a page that is not in memory is first read on a thread that may wait, never on an arbiter, and through the file: a
//!   record that the disk cannot read is not there yet, which is not the same as gone;
//! - the operating system is asked once for records that lie side by side;
//! - units that this process has not written are compared with their records, where the queue is known;
//! - nothing is copied.

use std::ops::Range;

use bytes::Bytes;
use troupemq_store::{ConsumeQueue, LogReader, StoreError, Unit};

use crate::cast::BrokerCast;

/// Bytes of the log that are taken, and asked about, at once.
const SPAN_BYTES: usize = 256 << 10;

/// The records of some units, in their order.
#[derive(Debug)]
pub struct Records(Vec<Found>);

/// What was found of a record.
#[derive(Debug)]
enum Found {
    Record(Bytes),
    /// It is no longer kept, or there never was one.
    Nothing,
    /// The disk cannot read it now.
    Unreadable,
}

impl Records {
    /// Reads the records of `units`. What is no longer kept is none.
    pub async fn read(cast: &BrokerCast, units: impl IntoIterator<Item = Unit>) -> Records {
        let units = units.into_iter();
        let mut records = Vec::with_capacity(units.size_hint().0);
        let mut cold = Vec::new();
        let mut span = Span { log: &cast.log, from: 0, bytes: Bytes::new(), is_resident: false };
        for unit in units {
            let len = usize::try_from(unit.size).unwrap_or(0);
            let bytes = if unit.is_hole() { None } else { span.slice(unit.log_offset, len) };
            if bytes.is_some() && !span.is_resident(unit.log_offset, len) {
                cold.push((records.len(), unit.log_offset, len));
            }
            records.push(bytes.map_or(Found::Nothing, Found::Record));
        }
        if !cold.is_empty() {
            let log = cast.log.clone();
            let all = cold.iter().map(|(at, _, _)| *at).collect();
            let unreadable = actix_rt::task::spawn_blocking(move || fetch(&log, &cold)).await;
            // Where no thread can be had, nothing was brought into memory.
            for at in unreadable.unwrap_or(all) {
                records[at] = Found::Unreadable;
            }
        }
        Records(records)
    }

    /// Reads the records of units of one queue. A unit from before the start may be damaged: if another record stands
    /// where it points, there is none.
    pub async fn of_queue(cast: &BrokerCast, queue: &ConsumeQueue, units: &[Unit]) -> Records {
        let mut records = Records::read(cast, units.iter().copied()).await;
        for (record, unit) in records.0.iter_mut().zip(units) {
            if matches!(record, Found::Record(bytes) if !is_own(queue, unit, bytes)) {
                *record = Found::Nothing;
            }
        }
        records
    }

    /// The records.
    pub fn iter(&self) -> impl Iterator<Item = Option<&[u8]>> {
        self.0.iter().map(|record| match record {
            Found::Record(bytes) => Some(&bytes[..]),
            Found::Nothing | Found::Unreadable => None,
        })
    }

    /// Whether the disk cannot read the record at this place now: it may be there the next time.
    pub fn is_unreadable(&self, at: usize) -> bool {
        matches!(self.0.get(at), Some(Found::Unreadable))
    }
}

/// A stretch of the log, for the records that stand in it.
struct Span<'a> {
    log: &'a LogReader,
    /// Where it begins.
    from: u64,
    bytes: Bytes,
    /// Whether all of it is in memory.
    is_resident: bool,
}

impl Span<'_> {
    /// The bytes of a record, and of what follows it for the sake of the next one.
    fn slice(&mut self, log_offset: u64, len: usize) -> Option<Bytes> {
        if let Some(place) = self.place_of(log_offset, len) {
            return Some(self.bytes.slice(place));
        }
        // What follows in the same file: another one is another question.
        let rest = self.log.rest(log_offset, SPAN_BYTES.max(len)).filter(|rest| rest.len() >= len)?;
        (self.from, self.bytes) = (log_offset, rest);
        self.is_resident = self.log.is_resident(log_offset, self.bytes.len());
        self.place_of(log_offset, len).map(|place| self.bytes.slice(place))
    }

    /// Whether a record that was just sliced is in memory.
    fn is_resident(&self, log_offset: u64, len: usize) -> bool {
        self.is_resident || self.log.is_resident(log_offset, len)
    }

    fn place_of(&self, log_offset: u64, len: usize) -> Option<Range<usize>> {
        let at = usize::try_from(log_offset.checked_sub(self.from)?).ok()?;
        let end = at.checked_add(len)?;
        (end <= self.bytes.len()).then_some(at..end)
    }
}

/// The record of a unit of a queue; none if there is none, or another one. Waits for the disk.
///
/// # Errors
/// If the disk cannot read it.
pub fn record_of(log: &LogReader, queue: &ConsumeQueue, unit: &Unit) -> Result<Option<Vec<u8>>, StoreError> {
    if unit.is_hole() {
        return Ok(None);
    }
    let bytes = log.read(unit.log_offset, usize::try_from(unit.size).unwrap_or(usize::MAX))?;
    Ok(bytes.filter(|bytes| is_own(queue, unit, bytes)))
}

/// Whether these bytes are the record that a unit speaks of; tells of a unit that is damaged.
fn is_own(queue: &ConsumeQueue, unit: &Unit, bytes: &[u8]) -> bool {
    let is_own = !queue.is_doubtful(unit) || queue.is_record_of(unit, bytes);
    if !is_own {
        tell_damaged(queue, unit);
    }
    is_own
}

/// Tells of a unit whose record is another one.
pub fn tell_damaged(queue: &ConsumeQueue, unit: &Unit) {
    let (topic, queue_id, queue_offset) = (queue.topic(), queue.queue_id(), unit.queue_offset);
    tracing::error!(
        %topic, queue_id, queue_offset,
        "damaged unit is passed over; `troupemq store rebuild` mends it"
    );
}

/// Brings records into memory; answers the numbers of those that the disk cannot read.
fn fetch(log: &LogReader, cold: &[(usize, u64, usize)]) -> Vec<usize> {
    let mut unreadable = Vec::new();
    for (number, log_offset, len) in cold {
        if let Err(error) = log.fetch(*log_offset, *len) {
            tracing::error!(%error, log_offset, "a message cannot be read from the disk now");
            unreadable.push(*number);
        }
    }
    unreadable
}
