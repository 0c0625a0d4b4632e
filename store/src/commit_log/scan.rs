//! Walking over the records of the log.
//!
//! Invariants:
//! - a record counts only if its stored log offset is its position: a recycled file may hold others;
//! - where the CRC is asked for, a record counts only if its body has it;
//! - a blank counts only if it reaches exactly to the end of its segment.

use std::sync::Arc;

use troupemq_codec::message::{RecordView, Scan, scan};

use crate::reader::LogReader;
use crate::segment::Segment;

/// How closely a record is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Lengths, magic and position.
    Lengths,
    /// Also the CRC of the body.
    Crc,
}

/// What stands at a position of the log.
#[derive(Debug)]
pub enum Step<'a> {
    /// A record of the log.
    Record(RecordView<'a>),
    /// The rest of the segment is blank, or there is no rest.
    SegmentEnd,
    /// The log ends here, and why.
    End(&'static str),
}

/// Looks at `bytes`: the log from `log_offset` to the end of its segment.
pub fn step(bytes: &[u8], log_offset: u64, look: Look) -> Step<'_> {
    if bytes.is_empty() {
        return Step::SegmentEnd;
    }
    match scan(bytes) {
        Scan::Record(record) if u64::try_from(record.log_offset()) != Ok(log_offset) => {
            Step::End("a record of another position")
        }
        Scan::Record(record) if look == Look::Crc && !record.body_is_intact() => {
            Step::End("a body without its crc")
        }
        Scan::Record(record) => Step::Record(record),
        Scan::Blank { remaining } if remaining as usize == bytes.len() => Step::SegmentEnd,
        Scan::Blank { .. } => Step::End("a blank of another position"),
        Scan::Nothing if bytes.iter().take(8).all(|byte| *byte == 0) => Step::End("zeros"),
        Scan::Nothing => Step::End("no whole record"),
    }
}

impl LogReader {
    /// Hands each record that begins in `from..to` to `visit`, in order, and answers the offset behind the
    /// last one. `from` is the start of a record or of a segment. Ends early where the log has no record.
    pub fn walk<E>(
        &self,
        from: u64,
        to: u64,
        mut visit: impl FnMut(&RecordView<'_>) -> Result<(), E>,
    ) -> Result<u64, E> {
        let mut at = from;
        while at < to {
            let Some(segment) = self.segments().at(at) else { break };
            let (reached, is_end) = walk_segment(&segment, at, to, &mut visit)?;
            at = reached;
            if is_end {
                break;
            }
        }
        Ok(at)
    }

    /// Like `walk`, but stops where `visit` says so.
    pub fn record_at<T>(&self, log_offset: u64, read: impl FnOnce(&RecordView<'_>) -> T) -> Option<T> {
        let segment = self.segments().at(log_offset)?;
        let len = usize::try_from(segment.published().checked_sub(log_offset)?).ok()?;
        match step(segment.slice(log_offset, len)?, log_offset, Look::Lengths) {
            Step::Record(record) => Some(read(&record)),
            Step::SegmentEnd | Step::End(_) => None,
        }
    }
}

/// Walks within one segment; answers where it stopped and whether the log ends there.
fn walk_segment<E>(
    segment: &Arc<Segment>,
    from: u64,
    to: u64,
    visit: &mut impl FnMut(&RecordView<'_>) -> Result<(), E>,
) -> Result<(u64, bool), E> {
    let bytes = segment.mapping().bytes();
    let mut at = from;
    while at < to {
        let rest = usize::try_from(at - segment.start()).ok().and_then(|skip| bytes.get(skip..));
        match step(rest.unwrap_or_default(), at, Look::Lengths) {
            Step::Record(record) => {
                visit(&record)?;
                at += record.total_size() as u64;
            }
            Step::SegmentEnd if segment.published() == segment.end() => return Ok((segment.end(), false)),
            Step::SegmentEnd | Step::End(_) => return Ok((at, true)),
        }
    }
    Ok((at, false))
}
