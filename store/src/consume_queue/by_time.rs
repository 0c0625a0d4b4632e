//! The offset that belongs to a time.
//!
//! Invariants:
//! - the answer lies between minimum and maximum, whatever the time;
//! - store times are taken as sorted; where the clock went back, the answer is near, not exact;
//! - what the disk cannot read is an error: another answer would lead a consumer astray.

use troupemq_codec::message::sys_flag;

use super::batch::try_search;
use super::{ConsumeQueue, Unit};
use crate::error::StoreError;
use crate::reader::LogReader;

/// Bytes of a record up to the end of its store time, if its born host is an IPv6 one.
const HEAD_BYTES: usize = 76;

/// Which of the messages around a time is meant (RocketMQ: `BoundaryType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Boundary {
    /// The first message stored at this time or later; behind the last one: the maximum.
    #[default]
    Lower,
    /// The last message stored at this time or earlier; before the first one: the minimum.
    Upper,
}

impl ConsumeQueue {
    /// The offset that belongs to `time_ms` (epoch ms). Reads one record of the log for each halving, and waits for the
    /// disk.
    ///
    /// # Errors
    /// If it cannot read a unit or a record.
    pub fn offset_by_time(
        &self,
        time_ms: i64,
        boundary: Boundary,
        log: &LogReader,
    ) -> Result<i64, StoreError> {
        self.offset_by_stored_time(time_ms, boundary, |unit| stored_ms(log, unit))
    }

    /// The offset that belongs to `time_ms`, with `stored_ms` telling when a unit's record was stored.
    /// A record that is not there counts as older than any time.
    ///
    /// # Errors
    /// If the disk cannot read a unit or a record.
    pub fn offset_by_stored_time(
        &self,
        time_ms: i64,
        boundary: Boundary,
        stored_ms: impl Fn(&Unit) -> Result<Option<i64>, StoreError>,
    ) -> Result<i64, StoreError> {
        let (min, max) = (self.min_offset(), self.max_offset());
        if min >= max {
            return Ok(max);
        }
        let is_behind = |offset: u64| {
            let unit = self.read_unit(offset.cast_signed())?;
            let stored = unit.map(|unit| stored_ms(&unit)).transpose()?.flatten().unwrap_or(i64::MIN);
            Ok(match boundary {
                Boundary::Lower => stored >= time_ms,
                Boundary::Upper => stored > time_ms,
            })
        };
        let border = try_search(min.cast_unsigned(), max.cast_unsigned(), is_behind)?.cast_signed();
        Ok(match boundary {
            Boundary::Lower => border,
            Boundary::Upper => (border - 1).max(min),
        })
    }
}

/// When the record of a unit was stored, epoch ms; nothing if there is none. Waits for the disk.
///
/// # Errors
/// If it cannot read the record.
pub fn stored_ms(log: &LogReader, unit: &Unit) -> Result<Option<i64>, StoreError> {
    if unit.is_hole() {
        return Ok(None);
    }
    let read = |head: Vec<u8>| {
        let sys_flag = i32::from_be_bytes(*head.get(36..)?.first_chunk()?);
        let born_host = if sys_flag & sys_flag::BORN_HOST_V6 != 0 { 20 } else { 8 };
        Some(i64::from_be_bytes(*head.get(48 + born_host..)?.first_chunk()?))
    };
    Ok(log.read(unit.log_offset, HEAD_BYTES)?.and_then(read))
}
