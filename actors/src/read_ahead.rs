//! Records of the log for actors that deliver them: read where waiting is allowed.
//!
//! Invariants:
//! - a page that is not in memory is first read on a thread that may wait, never on an arbiter, and through the file: a
//!   record that the disk cannot read is not there yet, which is not the same as gone;
//! - the operating system is asked once for records that lie side by side;
//! - units that this process has not written are compared with their records, where the queue is known;
//! - nothing is copied;
//! - who has read old records leaves none of them in the process.

use std::ops::Range;

use bytes::Bytes;
use troupemq_store::{ConsumeQueue, LogReader, StoreError, Unit};

use crate::cast::BrokerCast;

/// Bytes of the log that are taken, and asked about, at once.
const SPAN_BYTES: usize = 256 << 10;

/// The records of some units, in their order.
#[derive(Debug)]
pub struct Records {
    found: Vec<Found>,
    log: LogReader,
    /// Stretches of the log from the first record read in them to the end of the last.
    read: Vec<Range<u64>>,
}

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
        let (mut cold, mut read) = (Vec::new(), Vec::new());
        let mut span = Span { log: &cast.log, from: 0, bytes: Bytes::new(), is_resident: false };
        for unit in units {
            let len = usize::try_from(unit.size).unwrap_or(0);
            let bytes = if unit.is_hole() { None } else { span.slice(unit.log_offset, len) };
            if bytes.is_some() && !span.is_resident(unit.log_offset, len) {
                cold.push((records.len(), unit.log_offset, len));
            }
            if bytes.is_some() {
                note(&mut read, unit.log_offset..unit.log_offset + len as u64);
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
        Records { found: records, log: cast.log.clone(), read }
    }

    /// Reads the records of units of one queue. A unit from before the start may be damaged: if another record stands
    /// where it points, there is none.
    pub async fn of_queue(cast: &BrokerCast, queue: &ConsumeQueue, units: &[Unit]) -> Records {
        let mut records = Records::read(cast, units.iter().copied()).await;
        for (record, unit) in records.found.iter_mut().zip(units) {
            if matches!(record, Found::Record(bytes) if !is_own(queue, unit, bytes)) {
                *record = Found::Nothing;
            }
        }
        records
    }

    /// The records.
    pub fn iter(&self) -> impl Iterator<Item = Option<&[u8]>> {
        self.found.iter().map(|record| match record {
            Found::Record(bytes) => Some(&bytes[..]),
            Found::Nothing | Found::Unreadable => None,
        })
    }

    /// Whether the disk cannot read the record at this place now: it may be there the next time.
    pub fn is_unreadable(&self, at: usize) -> bool {
        matches!(self.found.get(at), Some(Found::Unreadable))
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        for stretch in self.read.drain(..) {
            self.log.unmap_old(stretch);
        }
    }
}

/// Adds a record to the last of these stretches, if it stands near enough behind it, or else begins another.
fn note(stretches: &mut Vec<Range<u64>>, record: Range<u64>) {
    match stretches.last_mut() {
        Some(last) if (last.end..last.end + SPAN_BYTES as u64).contains(&record.start) => {
            last.end = record.end
        }
        _ => stretches.push(record),
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use troupemq_store::testing::{Sample, mapped_bytes, until};
    use troupemq_store::{ManualClock, StoreConfig, open};

    use super::*;

    #[test]
    fn records_that_stand_near_to_each_other_are_one_stretch() {
        let mut stretches = Vec::new();
        for record in [0..300, 300..600, 5_000..5_100, 1 << 20..(1 << 20) + 10, 600..700] {
            note(&mut stretches, record);
        }
        assert_eq!(stretches, [0..5_100, 1 << 20..(1 << 20) + 10, 600..700]);
    }

    #[test]
    fn old_records_leave_the_process_when_they_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let config = StoreConfig { log_segment_bytes: 80 << 20, ..StoreConfig::in_dir(dir.path()) };
        let mut store = open(config, Arc::new(ManualClock::at(0))).unwrap();
        for _ in 0..70 {
            Sample { queue_id: 0, fill: 1, body_bytes: 1 << 20 }.store(&mut store, Sample::TOPIC, 1);
        }
        store.flusher.flush().unwrap();
        let mapped = || mapped_bytes(&dir.path().join("commitlog"));
        let read = |log: Range<u64>| {
            let len = usize::try_from(log.end - log.start).unwrap();
            let record = store.reader.slice(log.start, len).unwrap();
            assert!(record.iter().step_by(4096).filter(|byte| **byte == 1).count() > 1000);
            Records { found: vec![Found::Record(record)], log: store.reader.clone(), read: vec![log] }
        };
        // The system may take a page at any time.
        until("they are in the process", || {
            let before = mapped();
            let records = read(0..4 << 20);
            let meanwhile = mapped();
            drop(records);
            assert!(mapped() <= before, "{} bytes, {before} before", mapped());
            meanwhile >= before + (4 << 20)
        });
        until("what was flushed a moment ago stays", || {
            drop(read(60 << 20..64 << 20));
            mapped() >= 4 << 20
        });
    }
}
