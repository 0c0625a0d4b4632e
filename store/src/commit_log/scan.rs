//! Walking over the records of the log.
//!
//! Invariants:
//! - a record counts only if its stored log offset is its position: a recycled file may hold others;
//! - where the CRC is asked for, a record counts only if its body has it, and its properties look as they were written;
//! - properties have a CRC only where the record has one of its own (`__CRC32#`). Of others no more can be told than
//!   whether sectors were lost with the power, which leaves zeros from one border of sectors to another. Zeros that
//!   somebody has put into a property are taken for that only if they begin and end there too: one value in some
//!   260,000 that has so many;
//! - a blank counts only if it reaches exactly to the end of its segment;
//! - a damaged stretch costs the records in it, not those behind: a record names its own position;
//! - what may not be in memory is read through the file before it is looked at: what the disk cannot read is an error
//!   with its place, and no walk passes over it, as it may be read the next time.

use std::ops::Range;
use std::sync::Arc;

use memchr::memmem;
use troupemq_codec::message::record::MAGIC_V1;
use troupemq_codec::message::{RecordView, Scan, record_crc, scan};

use crate::error::StoreError;
use crate::reader::LogReader;
use crate::segment::{Ahead, Segment};

/// The least that a disk writes at once.
const SECTOR: usize = 512;
/// The same, as an offset.
const SECTOR_BYTES: u64 = SECTOR as u64;
/// Where the magic stands in a record, in bytes.
const MAGIC_AT: usize = 4;

/// How closely a record is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Lengths, magic and position.
    Lengths,
    /// Also the CRC of the body, and the properties.
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
        Scan::Record(record) if look == Look::Crc => match record_crc::is_intact(record.bytes()) {
            Some(false) => Step::End("a record without its crc"),
            None if lost_a_sector(&record, log_offset) => Step::End("properties of which a sector is zero"),
            Some(true) | None => Step::Record(record),
        },
        Scan::Record(record) => Step::Record(record),
        Scan::Blank { remaining } if remaining as usize == bytes.len() => Step::SegmentEnd,
        Scan::Blank { .. } => Step::End("a blank of another position"),
        Scan::Nothing if bytes.iter().take(8).all(|byte| *byte == 0) => Step::End("zeros"),
        Scan::Nothing => Step::End("no whole record"),
    }
}

/// Place in `bytes`, the log from `log_offset` on, of the first record behind a damaged stretch: it is whole and of
/// its position.
pub(crate) fn next_record(bytes: &[u8], log_offset: u64) -> Option<usize> {
    let magic = magic();
    let mut places = memmem::find_iter(bytes, &magic).filter_map(|at| at.checked_sub(MAGIC_AT));
    let is_sound =
        |at: &usize| matches!(step(&bytes[*at..], log_offset + *at as u64, Look::Crc), Step::Record(_));
    places.find(is_sound)
}

/// Whether the last record in `bytes`, which end at `log_offset`, ends there too; none if they hold no record.
pub(crate) fn ends_with_record(bytes: &[u8], log_offset: u64) -> Option<bool> {
    let from = log_offset - bytes.len() as u64;
    let record_end = |at: usize| match step(&bytes[at..], from + at as u64, Look::Lengths) {
        Step::Record(record) => Some(at + record.total_size()),
        Step::SegmentEnd | Step::End(_) => None,
    };
    let magic = magic();
    let mut places = memmem::rfind_iter(bytes, &magic).filter_map(|at| at.checked_sub(MAGIC_AT));
    places.find_map(record_end).map(|end| end == bytes.len())
}

/// What both magics of records begin with.
fn magic() -> [u8; 3] {
    let [first, second, third, _] = MAGIC_V1.to_be_bytes();
    [first, second, third]
}

/// Whether the properties are zero from one border of sectors to another, or at their end: a loss of power leaves some
/// sectors of what was not flushed, and a kill the front of what was being written; the rest are zeros. No record ends
/// with a zero that somebody has put there.
fn lost_a_sector(record: &RecordView<'_>, log_offset: u64) -> bool {
    let properties = record.properties().as_bytes();
    if properties.last() == Some(&0) {
        return true;
    }
    let begin = log_offset + (record.total_size() - properties.len()) as u64;
    let skip = usize::try_from(begin.next_multiple_of(SECTOR_BYTES) - begin).expect("less than a sector");
    let (front, rest) = properties.split_at(skip.min(properties.len()));
    let mut before = front.last();
    let mut border = 0;
    while let Some(from_border) = rest.get(border..).filter(|bytes| !bytes.is_empty()) {
        let zeros = from_border.iter().take_while(|byte| **byte == 0).count();
        let is_to_a_border = zeros > 0 && zeros.is_multiple_of(SECTOR) && before != Some(&0);
        if is_to_a_border {
            return true;
        }
        border += zeros.max(1).next_multiple_of(SECTOR);
        before = rest.get(border - 1);
    }
    false
}

impl LogReader {
    /// Hands each record that begins in `from..to` to `visit`, in order, and answers the offset behind the
    /// last one. `from` is the start of a record or of a segment. Passes over what is damaged; ends early where no
    /// record follows. Waits for the disk.
    ///
    /// # Errors
    /// What `visit` answers, and what the disk cannot read.
    pub fn walk<E: From<StoreError>>(
        &self,
        from: u64,
        to: u64,
        visit: impl FnMut(&RecordView<'_>) -> Result<(), E>,
    ) -> Result<u64, E> {
        self.walk_looking(Look::Lengths, from..to, visit)
    }

    /// The same, with the records looked at as closely as asked for.
    pub(crate) fn walk_looking<E: From<StoreError>>(
        &self,
        look: Look,
        log: Range<u64>,
        mut visit: impl FnMut(&RecordView<'_>) -> Result<(), E>,
    ) -> Result<u64, E> {
        let mut at = log.start;
        while at < log.end {
            let Some(segment) = self.segments().at(at) else { break };
            let (reached, is_end) = walk_segment(&segment, look, at..log.end, &mut visit)?;
            at = reached;
            if is_end {
                break;
            }
        }
        Ok(at)
    }

    /// Hands the record at this offset to `read`, if one begins there. For those that are in memory.
    pub fn record_at<T>(&self, log_offset: u64, read: impl FnOnce(&RecordView<'_>) -> T) -> Option<T> {
        let segment = self.segments().at(log_offset)?;
        match step(rest_of(&segment, log_offset)?, log_offset, Look::Lengths) {
            Step::Record(record) => Some(read(&record)),
            Step::SegmentEnd | Step::End(_) => None,
        }
    }

    /// The same for one that may be on the disk alone. Waits for it.
    ///
    /// # Errors
    /// If the disk cannot read it.
    pub fn fetch_record<T>(
        &self,
        log_offset: u64,
        read: impl FnOnce(&RecordView<'_>) -> T,
    ) -> Result<Option<T>, StoreError> {
        let Some(segment) = self.segments().at(log_offset) else { return Ok(None) };
        if let Some(rest) = rest_of(&segment, log_offset) {
            Ahead::exactly(&segment).want_record(log_offset, rest)?;
        }
        Ok(self.record_at(log_offset, read))
    }
}

/// The final bytes of a segment from an offset on.
fn rest_of(segment: &Segment, log_offset: u64) -> Option<&[u8]> {
    let len = usize::try_from(segment.published().checked_sub(log_offset)?).ok()?;
    segment.slice(log_offset, len)
}

/// Walks within one segment; answers where it stopped and whether the log ends there.
fn walk_segment<E: From<StoreError>>(
    segment: &Arc<Segment>,
    look: Look,
    log: Range<u64>,
    visit: &mut impl FnMut(&RecordView<'_>) -> Result<(), E>,
) -> Result<(u64, bool), E> {
    let bytes = segment.mapping().bytes();
    let mut ahead = Ahead::over(segment);
    let mut at = log.start;
    while at < log.end {
        let rest = usize::try_from(at - segment.start()).ok().and_then(|skip| bytes.get(skip..));
        let rest = rest.unwrap_or_default();
        ahead.want_record(at, rest)?;
        match step(rest, at, look) {
            Step::Record(record) => {
                visit(&record)?;
                at += record.total_size() as u64;
            }
            Step::SegmentEnd if segment.published() == segment.end() => return Ok((segment.end(), false)),
            Step::SegmentEnd => return Ok((at, true)),
            Step::End(_) => match next_in(segment, at)? {
                Some(next) => at = next,
                None if segment.published() == segment.end() => return Ok((segment.end(), false)),
                None => return Ok((at, true)),
            },
        }
    }
    Ok((at, false))
}

/// Offset of the first record of a segment behind a damaged place.
#[cold]
fn next_in(segment: &Segment, damaged: u64) -> Result<Option<u64>, StoreError> {
    let from = damaged + 1;
    let Some(rest) = rest_of(segment, from) else { return Ok(None) };
    segment.ready(from, rest.len())?;
    Ok(next_record(rest, from).map(|skip| from + skip as u64))
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
    fn the_record_behind_a_damaged_stretch_is_found_by_its_own_position() {
        let mut log = record(b"x");
        let (first, mut second) = (log.len(), record(b"y"));
        fill_holes(&mut second, 1, first.try_into().unwrap(), 5);
        log.extend_from_slice(&second);
        assert_eq!(next_record(&log[1..], 1), Some(first - 1));
        assert_eq!(next_record(&log[1..], 2), None, "a record of another position");
        let ends = |to: usize| ends_with_record(&log[..to], to as u64);
        assert_eq!((ends(log.len()), ends(first)), (Some(true), Some(true)));
        assert_eq!((ends(first + 9), ends(9)), (Some(false), None));
        log[first + 200] ^= 1;
        assert_eq!(next_record(&log[1..], 1), None, "its body has not its crc");
    }

    /// As a kill in the midst of a write leaves it, or a disk that was full.
    #[test]
    fn a_record_of_which_only_the_front_was_written_is_none() {
        let whole = record(b"x");
        for written in 0..whole.len() {
            let mut torn = whole.clone();
            torn[written..].fill(0);
            assert!(!matches!(step(&torn, 0, Look::Crc), Step::Record(_)), "{written} of {}", whole.len());
        }
    }

    #[test]
    fn zeros_that_somebody_has_put_into_a_property_are_no_loss() {
        for zeros in [200..600, 0..1500, 100..1400, 700..701] {
            let mut value = vec![b'x'; 1500];
            value[zeros].fill(0);
            let whole = record(&value);
            assert!(matches!(step(&whole, 0, Look::Crc), Step::Record(_)));
            // A sector that is lost beside them is seen, unless they reach to its border.
            let mut torn = whole.clone();
            let end = torn.len();
            torn[end.next_multiple_of(512) - 512..].fill(0);
            assert!(matches!(step(&torn, 0, Look::Crc), Step::End(_)));
        }
    }

    #[test]
    fn a_crc_of_the_whole_record_tells_more_than_zeros_do() {
        let record = NewRecord {
            topic: "T",
            body: &[7; 300],
            properties: &[b"mine\x01", &[0; 700], b"\x02", record_crc::RECORD_CRC_HOLE],
            ..NewRecord::PLAIN
        };
        let mut sealed = BytesMut::new();
        record.encode(&mut sealed).unwrap();
        fill_holes(&mut sealed, 0, 0, 5);
        assert!(record_crc::seal(&mut sealed));
        assert!(matches!(step(&sealed, 0, Look::Crc), Step::Record(_)));
        let at = sealed.len() - 100;
        sealed[at] = 1;
        assert!(matches!(step(&sealed, 0, Look::Crc), Step::End("a record without its crc")));
    }
}
