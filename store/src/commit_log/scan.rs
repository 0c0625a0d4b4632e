//! Walking over the records of the log.
//!
//! Invariants:
//! - a record counts only if its stored log offset is its position: a recycled file may hold others;
//! - where the CRC is asked for, a record counts only if its body has it, and no sector of its properties, which no CRC
//!   covers, was lost with the power;
//! - a blank counts only if it reaches exactly to the end of its segment.

use std::sync::Arc;

use troupemq_codec::message::{RecordView, Scan, scan};

use crate::reader::LogReader;
use crate::segment::Segment;

/// The least that a disk writes at once.
const SECTOR: usize = 512;
/// The same, as an offset.
const SECTOR_BYTES: u64 = SECTOR as u64;

/// How closely a record is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Lengths, magic and position.
    Lengths,
    /// Also the CRC of the body, and the sectors of the properties.
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
        Scan::Record(record) if look == Look::Crc && lost_a_sector(&record, log_offset) => {
            Step::End("properties of which a sector is zero")
        }
        Scan::Record(record) => Step::Record(record),
        Scan::Blank { remaining } if remaining as usize == bytes.len() => Step::SegmentEnd,
        Scan::Blank { .. } => Step::End("a blank of another position"),
        Scan::Nothing if bytes.iter().take(8).all(|byte| *byte == 0) => Step::End("zeros"),
        Scan::Nothing => Step::End("no whole record"),
    }
}

/// Whether a sector of the properties is zero: a loss of power leaves some sectors of what was not flushed, and zeros
/// for the others. A zero that somebody has put into a property fills no sector, nor does any record end with one.
fn lost_a_sector(record: &RecordView<'_>, log_offset: u64) -> bool {
    let properties = record.properties().as_bytes();
    let begin = log_offset + (record.total_size() - properties.len()) as u64;
    let skip = usize::try_from(begin.next_multiple_of(SECTOR_BYTES) - begin).expect("less than a sector");
    let mut sectors = properties.get(skip..).unwrap_or_default().chunks(SECTOR);
    sectors.any(|sector| sector.iter().all(|byte| *byte == 0))
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

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use troupemq_codec::message::{NewRecord, fill_holes};

    use super::*;

    /// A record at log offset 0 whose properties go on behind the first sector.
    fn record(value: &[u8]) -> BytesMut {
        let mut bytes = BytesMut::new();
        let properties: &[&[u8]] = &[b"mine\x01", value, b"\x02CLUSTER\x01c\x02"];
        NewRecord { topic: "T", body: &[7; 300], properties, ..NewRecord::PLAIN }.encode(&mut bytes).unwrap();
        fill_holes(&mut bytes, 0, 0, 5);
        bytes
    }

    #[test]
    fn a_record_that_lost_a_sector_of_its_properties_is_none() {
        for len in [130, 700, 1500] {
            let whole = record(&vec![b'x'; len]);
            assert!(matches!(step(&whole, 0, Look::Crc), Step::Record(_)), "{len}");
            for sector in (512..whole.len()).step_by(512) {
                let mut torn = whole.clone();
                let end = torn.len().min(sector + 512);
                torn[sector..end].fill(0);
                assert!(
                    matches!(step(&torn, 0, Look::Crc), Step::End(why) if why.contains("sector")),
                    "{len} {sector}"
                );
            }
        }
    }

    #[test]
    fn zeros_that_somebody_has_put_into_a_property_are_no_loss() {
        let mut value = vec![b'x'; 800];
        value[200..600].fill(0);
        assert!(matches!(step(&record(&value), 0, Look::Crc), Step::Record(_)));
    }
}
