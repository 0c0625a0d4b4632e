//! What may be deleted, and when the disk is too full to write.
//!
//! Invariants:
//! - `plan` decides and touches nothing; whoever asked hands the segments to the reaper;
//! - the last segment is never deleted, and none that holds what waits for its delivery, unless the disk is full;
//! - a refusal for lack of space names its folder and both numbers, and ends by itself when there is room.

mod keeper;
mod needed;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;

use crate::config::StoreConfig;
use crate::error::{Size, StoreError};
use crate::faults;
use crate::reader::LogReader;
use crate::segment::Segment;

pub use self::keeper::{Cleaned, Keeper};
pub use self::needed::{Needed, Waiting};

/// A segment as far as retention is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentAge {
    /// Offset behind its last byte.
    pub end: u64,
    /// When the file was last written, epoch ms.
    pub modified_ms: i64,
}

/// State of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskUse {
    /// Bytes an unprivileged process can still write.
    pub free_bytes: u64,
    /// Used part of what such processes can use, rounded up.
    pub used_percent: u8,
}

/// Why segments are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// They expired, and the hour of deletion has come.
    Hour,
    /// They expired, and the disk is fuller than `diskMaxUsedSpaceRatio`.
    DiskUsed,
    /// The disk is too full; the oldest go, expired or not.
    DiskFull,
    /// An operator asked.
    Asked,
}

/// What to delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Number of segments from the oldest on.
    pub segments: usize,
    /// Offset at which the log begins afterwards.
    pub log_min: u64,
    /// Why.
    pub reason: Reason,
}

/// What `plan` looks at beside the settings.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Epoch ms.
    pub now_ms: i64,
    /// Hour of the day where the broker stands, 0 … 23.
    pub hour: u8,
    /// The disk of the log.
    pub disk: DiskUse,
    /// An operator asked for expired segments to go now.
    pub is_asked: bool,
    /// Log offset of the oldest message that waits for its delivery; the end of all offsets if none does.
    pub needed_from: u64,
}

/// Whether the disk is so full that what is not needed goes now.
pub fn is_full(config: &StoreConfig, disk: DiskUse) -> bool {
    disk.used_percent >= config.disk_clean_percent || disk.free_bytes < config.disk_free_floor_bytes
}

/// Decides which of the oldest segments go now; `segments` are all, oldest first.
pub fn plan(config: &StoreConfig, segments: &[SegmentAge], moment: &Moment) -> Option<Plan> {
    let disk = moment.disk;
    let is_full = is_full(config, disk);
    let is_hour = config.delete_hours().is_ok_and(|hours| hours.contains(&moment.hour));
    let reason = match () {
        () if is_full && config.clean_forcibly => Reason::DiskFull,
        () if moment.is_asked => Reason::Asked,
        () if is_full || disk.used_percent >= config.disk_used_max_percent => Reason::DiskUsed,
        () if is_hour => Reason::Hour,
        () => return None,
    };
    let reserved_ms = i64::from(config.reserved_hours).saturating_mul(3_600_000);
    let is_over = |age: &SegmentAge| {
        age.modified_ms.saturating_add(reserved_ms) <= moment.now_ms && age.end <= moment.needed_from
    };
    let goes = |age: &&SegmentAge| reason == Reason::DiskFull || is_over(age);
    let most = segments.len().saturating_sub(1).min(config.delete_batch_max as usize);
    let gone = segments.iter().take(most).take_while(goes).count();
    let log_min = segments.get(gone.checked_sub(1)?)?.end;
    Some(Plan { segments: gone, log_min, reason })
}

/// Looks at the segments' files.
pub fn ages(reader: &LogReader) -> Vec<SegmentAge> {
    let age = |segment: &Arc<Segment>| SegmentAge {
        end: segment.end(),
        // A file that cannot be asked counts as new: it stays.
        modified_ms: modified_ms(segment).unwrap_or(i64::MAX),
    };
    reader.segments().snapshot().iter().map(age).collect()
}

fn modified_ms(segment: &Segment) -> Option<i64> {
    let modified = segment.file().metadata().ok()?.modified().ok()?;
    let since = modified.duration_since(std::time::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_millis()).ok()
}

/// Asks the file system of `dir`. Blocks that are set apart for the system count neither as used nor as free.
///
/// # Errors
/// If the system cannot tell.
pub fn disk_use(dir: &Path) -> Result<DiskUse, StoreError> {
    if let Some(pretended) = faults::disk(dir) {
        return Ok(pretended);
    }
    let stat = rustix::fs::statvfs(dir).map_err(|errno| StoreError::io("inspect", dir)(errno.into()))?;
    let used = stat.f_blocks.saturating_sub(stat.f_bfree);
    let usable = used + stat.f_bavail;
    let percent = if usable == 0 { 100 } else { (used * 100).div_ceil(usable) };
    Ok(DiskUse {
        free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
        used_percent: u8::try_from(percent).unwrap_or(100),
    })
}

/// Size in bytes of the file system of `dir`.
///
/// # Errors
/// If the system cannot tell.
pub fn disk_total_bytes(dir: &Path) -> Result<u64, StoreError> {
    let stat = rustix::fs::statvfs(dir).map_err(|errno| StoreError::io("inspect", dir)(errno.into()))?;
    Ok(stat.f_blocks.saturating_mul(stat.f_frsize))
}

/// Keeps writers from a full disk. Clones share the verdict.
#[derive(Debug, Clone, Default)]
pub struct SpaceGuard {
    lack: Arc<ArcSwapOption<Lack>>,
    /// Why queues or index could not grow, until they could.
    halted: Arc<ArcSwapOption<Arc<str>>>,
    /// Bytes that must stay free, as it was judged by last.
    floor_bytes: Arc<AtomicU64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Lack {
    Bytes { dir: PathBuf, free_bytes: u64, floor_bytes: u64 },
    Ratio { dir: PathBuf, used_percent: u8, limit_percent: u8 },
}

impl SpaceGuard {
    /// Refuses while the disk is too full to write.
    pub fn check(&self) -> Result<(), StoreError> {
        if let Some(cause) = self.halted.load().as_deref() {
            return Err(StoreError::NoRoom { cause: Arc::clone(cause) });
        }
        match self.lack.load().as_deref() {
            None => Ok(()),
            Some(lack) => Err(lack.error()),
        }
    }

    /// Refuses writes until `go_on`, whatever the disk looks like; who is refused hears how much was free.
    pub(crate) fn halt(&self, cause: &StoreError) {
        let dir = cause.file().and_then(Path::parent);
        let disk = dir.and_then(|dir| Some((dir, disk_use(dir).ok()?.free_bytes)));
        let text = match disk {
            Some((dir, free)) => format!("free {} on {}: {cause}", Size(free), dir.display()),
            None => cause.to_string(),
        };
        self.halted.store(Some(Arc::new(text.into())));
    }

    /// Whether writes are refused.
    pub fn is_closed(&self) -> bool {
        self.check().is_err()
    }

    /// Ends what `halt` began.
    pub(crate) fn go_on(&self) {
        self.halted.store(None);
    }

    /// Bytes that must stay free: the setting may change while the store is open.
    pub(crate) fn floor_bytes(&self) -> u64 {
        self.floor_bytes.load(Ordering::Relaxed)
    }

    /// Judges the present state of the disk; what it finds holds until the next call.
    pub fn judge(&self, config: &StoreConfig, disk: DiskUse) -> Result<(), StoreError> {
        self.floor_bytes.store(config.disk_free_floor_bytes, Ordering::Relaxed);
        let lack = Lack::of(config, disk);
        let before = self.lack.swap(lack.clone().map(Arc::new));
        match (before.is_some(), &lack) {
            (false, Some(lack)) => tracing::warn!(cause = %lack.error(), "writes are refused"),
            (true, None) => tracing::info!(free_bytes = disk.free_bytes, "there is room again: writes go on"),
            _ => {}
        }
        lack.map_or(Ok(()), |lack| Err(lack.error()))
    }
}

impl Lack {
    fn of(config: &StoreConfig, disk: DiskUse) -> Option<Lack> {
        let dir = config.dir.clone();
        let (floor_bytes, limit_percent) = (config.disk_free_floor_bytes, config.disk_full_percent);
        if disk.free_bytes < floor_bytes {
            return Some(Lack::Bytes { dir, free_bytes: disk.free_bytes, floor_bytes });
        }
        let is_full = limit_percent < 100 && disk.used_percent >= limit_percent;
        is_full.then_some(Lack::Ratio { dir, used_percent: disk.used_percent, limit_percent })
    }

    fn error(&self) -> StoreError {
        match self.clone() {
            Lack::Bytes { dir, free_bytes, floor_bytes } => {
                StoreError::DiskFull { dir, free_bytes, floor_bytes }
            }
            Lack::Ratio { dir, used_percent, limit_percent } => {
                StoreError::DiskRatio { dir, used_percent, limit_percent }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: i64 = 3_600_000;

    /// Three segments, written 100, 80 and 10 hours before hour 1,000.
    fn segments() -> Vec<SegmentAge> {
        let age = |end, hours: i64| SegmentAge { end, modified_ms: (1_000 - hours) * HOUR_MS };
        vec![age(100, 100), age(200, 80), age(300, 10)]
    }

    fn moment(hour: u8, used_percent: u8) -> Moment {
        let disk = DiskUse { free_bytes: 1 << 40, used_percent };
        Moment { now_ms: 1_000 * HOUR_MS, hour, disk, is_asked: false, needed_from: u64::MAX }
    }

    fn config() -> StoreConfig {
        StoreConfig::in_dir("/data")
    }

    #[test]
    fn expired_segments_go_at_their_hour() {
        let plan_at = |hour| plan(&config(), &segments(), &moment(hour, 10));
        assert_eq!(plan_at(3), None);
        assert_eq!(plan_at(4), Some(Plan { segments: 2, log_min: 200, reason: Reason::Hour }));
    }

    #[test]
    fn a_segment_stays_as_long_as_something_waits_in_it_unless_the_disk_is_full() {
        let goes = |needed_from, used| {
            plan(&config(), &segments(), &Moment { needed_from, ..moment(4, used) })
                .map_or(0, |plan| plan.segments)
        };
        assert_eq!([99, 100, 199, 200].map(|needed_from| goes(needed_from, 10)), [0, 1, 1, 2]);
        assert_eq!(goes(0, 85), 2);
    }

    #[test]
    fn expired_segments_go_at_any_hour_when_the_disk_fills() {
        let found = plan(&config(), &segments(), &moment(12, 75));
        assert_eq!(found, Some(Plan { segments: 2, log_min: 200, reason: Reason::DiskUsed }));
        let fresh = vec![SegmentAge { end: 100, modified_ms: 999 * HOUR_MS }; 3];
        assert_eq!(plan(&config(), &fresh, &moment(12, 75)), None);
    }

    #[test]
    fn a_full_disk_takes_the_oldest_but_never_the_last() {
        let fresh = vec![SegmentAge { end: 100, modified_ms: 999 * HOUR_MS }; 3];
        let found = plan(&config(), &fresh, &moment(12, 85)).unwrap();
        assert_eq!((found.segments, found.reason), (2, Reason::DiskFull));
        assert_eq!(plan(&config(), &fresh[..1], &moment(12, 99)), None);
        let keep = StoreConfig { clean_forcibly: false, ..config() };
        assert_eq!(plan(&keep, &fresh, &moment(12, 85)), None);
    }

    #[test]
    fn too_few_free_bytes_count_as_a_full_disk() {
        let fresh = vec![SegmentAge { end: 100, modified_ms: 999 * HOUR_MS }; 3];
        let mut low = moment(12, 10);
        low.disk.free_bytes = 1;
        assert_eq!(plan(&config(), &fresh, &low).map(|plan| plan.reason), Some(Reason::DiskFull));
    }

    #[test]
    fn one_run_deletes_a_batch_at_most() {
        let old = vec![SegmentAge { end: 100, modified_ms: 0 }; 30];
        assert_eq!(plan(&config(), &old, &moment(4, 10)).map(|plan| plan.segments), Some(10));
        let asked = Moment { is_asked: true, ..moment(12, 10) };
        assert_eq!(plan(&config(), &old, &asked).map(|plan| plan.reason), Some(Reason::Asked));
    }

    #[test]
    fn writes_are_refused_with_the_cause_and_go_on_when_there_is_room() {
        let guard = SpaceGuard::default();
        let low = DiskUse { free_bytes: 100, used_percent: 10 };
        let fine = DiskUse { free_bytes: 1 << 40, used_percent: 10 };
        assert!(matches!(guard.judge(&config(), low), Err(StoreError::DiskFull { free_bytes: 100, .. })));
        assert!(guard.check().unwrap_err().to_string().contains("on /data"));
        guard.judge(&config(), fine).unwrap();
        guard.check().unwrap();
        let used = DiskUse { used_percent: 99, ..fine };
        assert!(matches!(guard.judge(&config(), used), Err(StoreError::DiskRatio { used_percent: 99, .. })));
    }

    #[test]
    fn what_had_no_room_is_told_with_what_it_wanted_and_what_was_free() {
        let (guard, dir) = (SpaceGuard::default(), Path::new("/none/numbers"));
        let _disk = faults::pretend_disk(dir, DiskUse { free_bytes: 8_192, used_percent: 99 });
        let cause = std::io::Error::from_raw_os_error(28);
        let refused = StoreError::Reserve { file: dir.join("T/0/00"), bytes: 20_480, cause };
        guard.halt(&refused);
        let told =
            "disk full: free 8.0 KiB on /none/numbers/T/0: cannot reserve 20.0 KiB for /none/numbers/T/0/00";
        let refused = guard.check().unwrap_err();
        assert!(refused.to_string().starts_with(told) && refused.is_out_of_space(), "{refused}");
        guard.go_on();
        assert!(!guard.is_closed());
    }

    #[test]
    fn this_machine_has_a_disk() {
        let found = disk_use(Path::new("/")).unwrap();
        assert!(found.used_percent <= 100 && found.free_bytes > 0);
    }
}
