//! Where the log ends: the one way in which every open finds it, after a stop or after a crash.
//!
//! Invariants:
//! - the scan starts at or before every position that a derived file may be behind of;
//! - the end is the first position without a whole record of that position with its CRC, of what may not have been
//!   on the disk; what once was and is damaged now is passed over, and the records behind it stay;
//! - behind the end nothing non-zero is left: neither Java nor the next open takes it for a record;
//! - what the disk cannot read is neither the end nor damage: the start is refused, with file, byte and cause.

use std::sync::Arc;

use rustix::fs::FallocateFlags;

use crate::checkpoint::Reached;
use crate::commit_log::scan::{Look, Step, ends_with_record, next_record, step};
use crate::error::StoreError;
use crate::faults::{self, Op};
use crate::segment::{Ahead, Segment, SegmentWriter};

/// Bytes in front of a place in which the record that ends there is looked for first.
const NEAR_BYTES: usize = 64 << 10;
/// How many times as many are looked at where there is none.
const NEARER: usize = 16;

/// What is known before the log is looked at.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known {
    /// The last user has closed the store.
    pub was_closed: bool,
    /// Our own checkpoint, if it counts.
    pub reached: Option<Reached>,
    /// Log offset behind the last record that has a unit, as the queues tell it.
    pub dispatched_to: Option<u64>,
    /// Store time below which, by Java's checkpoint, everything is on the disk.
    pub safe_time_ms: i64,
}

/// The first record of a segment, for choosing where to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHead {
    /// Offset of the first byte.
    pub start: u64,
    /// Offset behind the last byte.
    pub end: u64,
    /// Store time of the first record; nothing where there is none.
    pub store_ms: Option<i64>,
}

/// The end of the log and how it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEnd {
    /// Where the scan began.
    pub from: u64,
    /// Offset behind the last record, or behind its segment if a blank follows it.
    pub at: u64,
    /// Records in between.
    pub records: u64,
    /// Store time of the last one; 0 if there is none.
    pub last_store_ms: i64,
    /// What stands at the end.
    pub why: &'static str,
    /// What was passed over because no record is in it any more, in the order of the log.
    pub damages: Vec<Damage>,
}

/// A stretch of the log whose records are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// Offset of its first byte.
    pub from: u64,
    /// Offset of the first record behind it.
    pub to: u64,
    /// What stands at its first byte.
    pub why: &'static str,
}

/// Where the scan has to begin: the start of a record or of a segment.
pub fn scan_start(heads: &[SegmentHead], known: &Known) -> u64 {
    let (Some(first), Some(last)) = (heads.first(), heads.last()) else { return 0 };
    if let Some(reached) = &known.reached {
        let from = reached.dispatched_to.min(reached.flushed_to);
        if (first.start..=last.end).contains(&from) {
            return from;
        }
    }
    let is_safe = |head: &&SegmentHead| match head.store_ms {
        None | Some(0) => false,
        Some(_) if known.was_closed => known.dispatched_to.is_some_and(|to| head.start <= to),
        Some(store_ms) => store_ms <= known.safe_time_ms,
    };
    heads.iter().rev().find(is_safe).map_or(first.start, |head| head.start)
}

/// Looks at the first record of each segment. One that cannot be read tells nothing.
pub fn heads(segments: &[SegmentWriter]) -> Vec<SegmentHead> {
    let head = |writer: &SegmentWriter| {
        let (start, end) = (writer.segment().start(), writer.segment().end());
        let readable = Ahead::exactly(writer.segment()).want_record(start, writer.whole());
        let store_ms = match readable.map(|()| step(writer.whole(), start, Look::Lengths)) {
            Ok(Step::Record(record)) => Some(record.store_timestamp_ms()),
            Ok(Step::SegmentEnd | Step::End(_)) => None,
            Err(error) => {
                tracing::error!(%error, "the first message of a segment cannot be read from the disk");
                None
            }
        };
        SegmentHead { start, end, store_ms }
    };
    segments.iter().map(head).collect()
}

/// `at` if a record or a segment begins there for sure, else the start of its segment: a checkpoint may be of
/// another time than the log.
pub fn sure_start(segments: &[SegmentWriter], at: u64) -> Result<u64, StoreError> {
    let Some(writer) = segments.iter().rfind(|writer| writer.segment().start() <= at) else { return Ok(at) };
    let segment = writer.segment();
    let start = segment.start();
    let skip = usize::try_from(at - start).unwrap_or(usize::MAX);
    let Some((front, rest)) = writer.whole().split_at_checked(skip) else { return Ok(start) };
    Ahead::exactly(segment).want_record(at, rest)?;
    let begins = at == start || !rest.is_empty() && !matches!(step(rest, at, Look::Lengths), Step::End(_));
    if begins || is_behind_record(segment, front)? {
        return Ok(at);
    }
    tracing::warn!(
        at,
        from = start,
        "no record of the log begins where the checkpoint says: its segment is read"
    );
    Ok(start)
}

/// Whether the last record in the front of a segment ends with it.
fn is_behind_record(segment: &Segment, front: &[u8]) -> Result<bool, StoreError> {
    let at = segment.start() + front.len() as u64;
    let mut near = NEAR_BYTES;
    loop {
        let end = &front[front.len().saturating_sub(near)..];
        segment.ready(at - end.len() as u64, end.len())?;
        if let Some(ends) = ends_with_record(end, at) {
            return Ok(ends);
        }
        if end.len() == front.len() {
            return Ok(false);
        }
        near = near.saturating_mul(NEARER);
    }
}

/// Up to where all was on the disk once, as far as is known: what is damaged there was not torn by a crash.
pub fn once_on_disk(heads: &[SegmentHead], known: &Known) -> u64 {
    match &known.reached {
        Some(reached) => reached.flushed_to,
        None if known.was_closed => u64::MAX,
        // Nobody says. Records in younger segments show that it was no torn end at least.
        None => heads.iter().rev().find(|head| head.store_ms.is_some()).map_or(0, |head| head.start),
    }
}

/// Walks from `from` to the end of the log. `segments` are sorted and without gaps. What is damaged below
/// `on_disk_to` is passed over.
///
/// # Errors
/// What the disk cannot read: it may be acknowledged messages, and readable the next time.
pub fn find_end(segments: &[SegmentWriter], from: u64, on_disk_to: u64) -> Result<LogEnd, StoreError> {
    let mut end = LogEnd { from, at: from, records: 0, last_store_ms: 0, why: "", damages: Vec::new() };
    loop {
        end.why = walk_sound(segments, &mut end)?;
        let Some(damage) = damage_at(segments, (end.at, end.why), on_disk_to)? else { return Ok(end) };
        let Damage { from, to, why } = damage;
        tracing::error!(from, to, why, "messages are lost: the log is damaged here, what follows is kept");
        end.damages.push(damage);
        end.at = to;
    }
}

/// The damaged stretch at the place where a walk ended; none if it is the end of the log.
pub fn damage_at(
    segments: &[SegmentWriter],
    (from, why): (u64, &'static str),
    on_disk_to: u64,
) -> Result<Option<Damage>, StoreError> {
    if from >= on_disk_to {
        return Ok(None);
    }
    for writer in segments.iter().filter(|writer| writer.segment().end() > from) {
        let segment = writer.segment();
        let at = segment.start().max(from + 1);
        let skip = usize::try_from(at - segment.start()).unwrap_or(usize::MAX);
        let Some(rest) = writer.whole().get(skip..) else { continue };
        segment.ready(at, rest.len())?;
        if let Some(skip) = next_record(rest, at) {
            return Ok(Some(Damage { from, to: at + skip as u64, why }));
        }
    }
    Ok(None)
}

/// Walks over records that are whole; answers what stands behind the last.
fn walk_sound(segments: &[SegmentWriter], end: &mut LogEnd) -> Result<&'static str, StoreError> {
    let from = end.at;
    for writer in segments.iter().filter(|writer| writer.segment().end() > from) {
        let start = writer.segment().start();
        let mut ahead = Ahead::over(writer.segment());
        loop {
            let rest = usize::try_from(end.at - start).ok().and_then(|skip| writer.whole().get(skip..));
            let rest = rest.unwrap_or_default();
            ahead.want_record(end.at, rest)?;
            match step(rest, end.at, Look::Crc) {
                Step::Record(record) => {
                    end.at += record.total_size() as u64;
                    end.records += 1;
                    end.last_store_ms = record.store_timestamp_ms();
                }
                Step::SegmentEnd => break,
                Step::End(why) => return Ok(why),
            }
        }
        end.at = writer.segment().end();
    }
    Ok("no further segment")
}

/// Zeroes everything behind the published position, and gives it its blocks on the disk.
pub fn zero_tail(writer: &mut SegmentWriter) -> Result<(), StoreError> {
    zero_from(writer, writer.position())
}

/// The same from `offset` on, which is not in front of that position. What was written before it is on the disk too.
pub(crate) fn zero_from(writer: &mut SegmentWriter, offset: u64) -> Result<(), StoreError> {
    let segment = Arc::clone(writer.segment());
    let (at, len) = (offset - segment.start(), segment.end() - offset);
    if len == 0 {
        return segment.sync();
    }
    let zero = || match rustix::fs::fallocate(segment.file(), FallocateFlags::ZERO_RANGE, at, len) {
        Err(rustix::io::Errno::OPNOTSUPP) => {
            let skip = usize::try_from(offset - writer.position()).expect("a segment fits the address space");
            clear(&mut writer.tail()[skip..]);
            Ok(())
        }
        done => Ok(done?),
    };
    faults::pass(Op::Allocate, segment.path(), zero)
        .map_err(StoreError::io("zero the end of", segment.path()))?;
    segment.sync()
}

/// Zeroes without touching pages that are zero already.
fn clear(bytes: &mut [u8]) {
    for page in bytes.chunks_mut(4096) {
        if page.iter().any(|byte| *byte != 0) {
            page.fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heads() -> Vec<SegmentHead> {
        let head = |start, store_ms| SegmentHead { start, end: start + 100, store_ms };
        vec![head(100, Some(1_000)), head(200, Some(2_000)), head(300, Some(3_000)), head(400, None)]
    }

    #[test]
    fn our_checkpoint_names_the_position() {
        let reached = Reached { dispatched_to: 250, flushed_to: 270, ..Reached::default() };
        let known = Known { reached: Some(reached), ..Known::default() };
        assert_eq!(scan_start(&heads(), &known), 250);
        let end = Reached { dispatched_to: 500, flushed_to: 500, ..Reached::default() };
        assert_eq!(scan_start(&heads(), &Known { reached: Some(end), ..known }), 500);
    }

    #[test]
    fn a_checkpoint_outside_the_log_is_not_believed() {
        for to in [0, 99, 501] {
            let reached = Reached { dispatched_to: to, flushed_to: to, ..Reached::default() };
            let known = Known { reached: Some(reached), safe_time_ms: 2_500, ..Known::default() };
            assert_eq!(scan_start(&heads(), &known), 200);
        }
    }

    #[test]
    fn after_a_crash_of_java_the_times_choose_the_segment() {
        let start = |safe_time_ms| scan_start(&heads(), &Known { safe_time_ms, ..Known::default() });
        assert_eq!(start(3_000), 300);
        assert_eq!(start(2_999), 200);
        assert_eq!(start(0), 100);
    }

    #[test]
    fn after_a_stop_of_java_the_queues_choose_the_segment() {
        let known = |to| Known { was_closed: true, dispatched_to: to, ..Known::default() };
        assert_eq!(scan_start(&heads(), &known(Some(299))), 200);
        assert_eq!(scan_start(&heads(), &known(Some(350))), 300);
        assert_eq!(scan_start(&heads(), &known(None)), 100);
    }

    #[test]
    fn an_empty_log_starts_at_zero() {
        assert_eq!(scan_start(&[], &Known::default()), 0);
        assert_eq!(find_end(&[], 0, u64::MAX).unwrap().at, 0);
        assert_eq!(sure_start(&[], 0).unwrap(), 0);
    }

    #[test]
    fn clearing_leaves_zeros_only() {
        let mut bytes = vec![0_u8; 10_000];
        bytes[9_999] = 1;
        bytes[3] = 1;
        clear(&mut bytes);
        assert!(bytes.iter().all(|byte| *byte == 0));
    }
}
