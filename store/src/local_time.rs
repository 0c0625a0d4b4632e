//! How far the clocks where the broker stands are ahead of UTC, as the system's zone file tells.
//!
//! Invariants:
//! - a missing or strange zone file means UTC, never a failure;
//! - the file is read once, when a `LocalTime` is made.
//!
//! | part of the file (RFC 8536) | size |
//! |---|---|
//! | head: magic `TZif`, version, six counts | 44 |
//! | times of change, seconds | count × 4, in the second half of version 2 and above × 8 |
//! | kind of time from each on | count × 1 |
//! | kinds: offset in seconds, summer time, name | count × 6 |

use std::path::PathBuf;

/// A zone's offsets from UTC.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LocalTime {
    /// Seconds of the epoch from which on an offset holds, and the offset in seconds; sorted.
    changes: Vec<(i64, i64)>,
    /// Offset in front of all changes.
    first: i64,
}

impl LocalTime {
    /// The zone of this machine: `TZ` where it names one, else `/etc/localtime`.
    pub fn of_machine() -> LocalTime {
        let named = std::env::var("TZ").ok();
        let path = match named.as_deref().map(|zone| zone.trim_start_matches(':')) {
            None => PathBuf::from("/etc/localtime"),
            Some(zone) => PathBuf::from("/usr/share/zoneinfo").join(zone),
        };
        std::fs::read(path).ok().and_then(|bytes| LocalTime::parse(&bytes)).unwrap_or_default()
    }

    /// Hour of the day, 0 … 23.
    pub fn hour(&self, now_ms: i64) -> u8 {
        let seconds = now_ms.div_euclid(1_000) + self.offset_s(now_ms);
        u8::try_from(seconds.div_euclid(3_600).rem_euclid(24)).unwrap_or_default()
    }

    /// Seconds that local time is ahead of UTC.
    pub fn offset_s(&self, now_ms: i64) -> i64 {
        let now = now_ms.div_euclid(1_000);
        let behind = self.changes.partition_point(|(from, _)| *from <= now);
        behind
            .checked_sub(1)
            .and_then(|index| self.changes.get(index))
            .map_or(self.first, |(_, offset)| *offset)
    }

    fn parse(bytes: &[u8]) -> Option<LocalTime> {
        let old = Head::read(bytes)?;
        if old.version == 0 {
            return old.table(bytes.get(44..)?, 4);
        }
        let second = bytes.get(44 + old.body_bytes(4)..)?;
        Head::read(second)?.table(second.get(44..)?, 8)
    }
}

/// Counts in the head of one half of a zone file.
struct Head {
    version: u8,
    marks: usize,
    leaps: usize,
    changes: usize,
    kinds: usize,
    letters: usize,
}

impl Head {
    fn read(bytes: &[u8]) -> Option<Head> {
        let head = bytes.get(..44).filter(|head| head.starts_with(b"TZif"))?;
        let count = |index: usize| {
            let word = head.get(20 + index * 4..24 + index * 4)?.try_into().ok()?;
            // A zone file is some kilobytes long.
            usize::try_from(u32::from_be_bytes(word)).ok().filter(|count| *count < 1 << 16)
        };
        let marks = count(0)? + count(1)?;
        let (leaps, changes, kinds, letters) = (count(2)?, count(3)?, count(4)?, count(5)?);
        Some(Head { version: *head.get(4)?, marks, leaps, changes, kinds, letters })
    }

    fn body_bytes(&self, time: usize) -> usize {
        self.changes * (time + 1) + self.kinds * 6 + self.letters + self.leaps * (time + 4) + self.marks
    }

    fn table(&self, body: &[u8], time: usize) -> Option<LocalTime> {
        let (times, rest) = body.split_at_checked(self.changes * time)?;
        let (kinds_of, rest) = rest.split_at_checked(self.changes)?;
        let kinds: Vec<i64> = rest
            .get(..self.kinds * 6)?
            .chunks_exact(6)
            .filter_map(|kind| Some(i64::from(i32::from_be_bytes(*kind.first_chunk()?))))
            .collect();
        let mut changes = Vec::with_capacity(self.changes);
        for (when, kind) in times.chunks_exact(time).zip(kinds_of) {
            let from = match time {
                4 => i64::from(i32::from_be_bytes(*when.first_chunk()?)),
                _ => i64::from_be_bytes(*when.first_chunk()?),
            };
            changes.push((from, *kinds.get(usize::from(*kind))?));
        }
        Some(LocalTime { changes, first: kinds.first().copied().unwrap_or_default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of version 0 with two kinds of time and two changes.
    fn file() -> Vec<u8> {
        let mut bytes = b"TZif".to_vec();
        bytes.resize(20, 0);
        for count in [0_u32, 0, 0, 2, 2, 4] {
            bytes.extend_from_slice(&count.to_be_bytes());
        }
        for when in [7_200_i32, 14_400] {
            bytes.extend_from_slice(&when.to_be_bytes());
        }
        bytes.extend_from_slice(&[1, 0]);
        for offset in [3_600_i32, 7_200] {
            bytes.extend_from_slice(&offset.to_be_bytes());
            bytes.extend_from_slice(&[0, 0]);
        }
        bytes.extend_from_slice(b"A\0B\0");
        bytes
    }

    #[test]
    fn the_offset_of_the_time_counts() {
        let zone = LocalTime::parse(&file()).unwrap();
        assert_eq!(
            [0, 7_199_999, 7_200_000, 14_400_000].map(|ms| zone.offset_s(ms)),
            [3_600, 3_600, 7_200, 3_600]
        );
        assert_eq!((zone.hour(0), zone.hour(7_200_000), zone.hour(-7_200_000)), (1, 4, 23));
    }

    #[test]
    fn a_damaged_file_means_no_zone() {
        let whole = file();
        for len in 0..whole.len() {
            let _never_panics = LocalTime::parse(&whole[..len]);
        }
        assert_eq!(LocalTime::parse(&whole[..60]), None);
        assert_eq!(LocalTime::default().hour(3_600_000), 1);
    }

    #[test]
    fn the_zone_files_of_this_machine_are_read() {
        let zone = |name: &str| {
            let bytes = std::fs::read(format!("/usr/share/zoneinfo/{name}")).ok()?;
            Some(LocalTime::parse(&bytes).expect("the system's files are whole"))
        };
        if let Some(tokyo) = zone("Asia/Tokyo") {
            assert_eq!(tokyo.offset_s(1_700_000_000_000), 9 * 3_600);
        }
        if let Some(berlin) = zone("Europe/Berlin") {
            assert_eq!(berlin.offset_s(1_700_000_000_000), 3_600);
        }
    }
}
