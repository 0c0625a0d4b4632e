//! Settings of the store, each declared once.
//!
//! Invariants:
//! - Java's names come from serde, so a `broker.conf` of RocketMQ is understood;
//! - `check` holds for every value that reaches `open`;
//! - sizes rule over new files only: what exists keeps the size it was made with.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::dispatch::delay_levels::DelayLevels;
use crate::error::StoreError;

/// When an append counts as stored.
#[cfg_attr(feature = "describe", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FlushMode {
    /// The disk has it: one flush for all appends that wait.
    #[serde(rename = "SYNC_FLUSH")]
    Sync,
    /// The page cache has it: flushed every some hundred milliseconds.
    #[serde(rename = "ASYNC_FLUSH")]
    Async,
}

/// Settings of the store (RocketMQ: `MessageStoreConfig`).
#[cfg_attr(feature = "describe", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StoreConfig {
    /// Root folder. Default: `./troupemq-data`.
    #[serde(rename = "storePathRootDir")]
    pub dir: PathBuf,
    /// Size of a new log's segments in bytes. Default: 1 GiB. Bounds: 64 KiB … 2 GiB − 1, whole pages.
    #[serde(rename = "mappedFileSizeCommitLog")]
    pub log_segment_bytes: u64,
    /// Size of a new consume queue's files in bytes, rounded up to whole units of 20. Default: 6,000,000.
    /// Bounds: 20 … 2 GiB − 1.
    #[serde(rename = "mappedFileSizeConsumeQueue")]
    pub queue_file_bytes: u64,
    /// Size of a new batch consume queue's files in bytes, whole units of 46. Default: 13,800,000.
    /// Bounds: 46 … 2 GiB − 1.
    #[serde(rename = "mapperFileSizeBatchConsumeQueue")]
    pub batch_queue_file_bytes: u64,
    /// Size of a new consume queue extension's files in bytes. Default: 48 MiB. Bounds: 4 KiB … 2 GiB − 1.
    #[serde(rename = "mappedFileSizeConsumeQueueExt")]
    pub queue_extension_file_bytes: u64,
    /// Whether new units keep filter bits in an extension. Default: false. What exists is read either way.
    #[serde(rename = "enableConsumeQueueExt")]
    pub queue_extension_enabled: bool,
    /// Whether there are light queues: names that begin with `%LMQ%` and need no configuration. Default: false.
    #[serde(rename = "enableLmq")]
    pub light_queues_enabled: bool,
    /// Whether a message goes to the light queues that its `INNER_MULTI_DISPATCH` names; needs `enableLmq`.
    /// Default: false.
    #[serde(rename = "enableMultiDispatch")]
    pub multi_dispatch_enabled: bool,
    /// Light queues of the store; one more is refused. Default: 20,000. Bounds: 1 … 1,000,000.
    #[serde(rename = "maxLmqConsumeQueueNum")]
    pub light_queues_max: u32,
    /// Hash slots of a new index file. Default: 5,000,000. Bounds: 1 … 2^31 − 1.
    #[serde(rename = "maxHashSlotNum")]
    pub index_slots_max: u32,
    /// Entries of a new index file. Default: 20,000,000. Bounds: 2 … 2^31 − 1.
    #[serde(rename = "maxIndexNum")]
    pub index_entries_max: u32,
    /// Whether keys are indexed. Default: true.
    #[serde(rename = "messageIndexEnable")]
    pub index_enabled: bool,
    /// Delays of the fixed levels, level 1 first. Default: RocketMQ's 18, `1s` … `2h`.
    #[serde(rename = "messageDelayLevel")]
    pub delay_levels: String,
    /// Size of a new timer log's files in bytes. Default: 100 MiB. Bounds: 4 KiB … 2 GiB − 1.
    #[serde(rename = "mappedFileSizeTimerLog")]
    pub timer_log_file_bytes: u64,
    /// Width of a slot of the timer wheel. Default: 1,000 ms. Bounds: 1 … 1,000.
    #[serde(rename = "timerPrecisionMs")]
    pub timer_precision_ms: u32,
    /// Slots ahead up to which a timer goes to its own; later ones go round. Default: 172,800. Bounds: 2 … 604,740.
    #[serde(rename = "timerRollWindowSlot")]
    pub timer_roll_window_slots: u32,
    /// When an append counts as stored. Default: `ASYNC_FLUSH`.
    #[serde(rename = "flushDiskType")]
    pub flush: FlushMode,
    /// Longest time between two flushes in asynchronous mode. Default: 500 ms. Bounds: 1 … 60,000.
    #[serde(rename = "flushIntervalCommitLog")]
    pub flush_interval_ms: u32,
    /// Bytes after which an asynchronous flush does not wait for its time. Default: 16 MiB.
    /// Bounds: 4 KiB … 1 TiB.
    #[serde(rename = "flushCommitLogBytes")]
    pub flush_bytes: u64,
    /// Age at which log segments expire. Default: 72 h. Bounds: 1 ….
    #[serde(rename = "fileReservedTime")]
    pub reserved_hours: u32,
    /// Hours of the day, local time, at which expired segments go, `;` between. Default: `04`.
    #[serde(rename = "deleteWhen")]
    pub delete_when: String,
    /// Used part of the disk above which expired segments go at any hour. Default: 75 %. Bounds: 10 … 95.
    #[serde(rename = "diskMaxUsedSpaceRatio")]
    pub disk_used_max_percent: u8,
    /// Used part above which the oldest segments go, expired or not. Default: 85 %. Bounds: 30 … 99.
    #[serde(rename = "diskSpaceCleanForciblyRatio")]
    pub disk_clean_percent: u8,
    /// Used part above which writes are refused. Default: 90 %. Bounds: 35 … 100 (100 = never).
    #[serde(rename = "diskSpaceWarningLevelRatio")]
    pub disk_full_percent: u8,
    /// Free bytes below which writes are refused. Default: 256 MiB.
    #[serde(rename = "diskFreeFloorBytes")]
    pub disk_free_floor_bytes: u64,
    /// Whether unexpired segments may go when the disk is full. Default: true.
    #[serde(rename = "cleanFileForciblyEnable")]
    pub clean_forcibly: bool,
    /// Most segments deleted in one run. Default: 10. Bounds: 1 … 1,048,576.
    #[serde(rename = "deleteFileBatchMax")]
    pub delete_batch_max: u32,
    /// Expired segments kept for use as new ones. Default: 1. Bounds: 0 … 8.
    #[serde(rename = "recycledSegmentsMax")]
    pub recycled_max: u32,
}

/// Keys that may change while the store is open, if who owns it takes them over.
pub const RELOADABLE: &[&str] = &[
    "flushIntervalCommitLog",
    "flushCommitLogBytes",
    "fileReservedTime",
    "deleteWhen",
    "diskMaxUsedSpaceRatio",
    "diskSpaceCleanForciblyRatio",
    "diskSpaceWarningLevelRatio",
    "diskFreeFloorBytes",
    "cleanFileForciblyEnable",
    "deleteFileBatchMax",
];

impl Default for StoreConfig {
    fn default() -> StoreConfig {
        StoreConfig {
            dir: PathBuf::from("./troupemq-data"),
            log_segment_bytes: 1 << 30,
            queue_file_bytes: 6_000_000,
            batch_queue_file_bytes: 13_800_000,
            queue_extension_file_bytes: 48 << 20,
            queue_extension_enabled: false,
            light_queues_enabled: false,
            multi_dispatch_enabled: false,
            light_queues_max: 20_000,
            index_slots_max: 5_000_000,
            index_entries_max: 20_000_000,
            index_enabled: true,
            delay_levels: "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h".to_owned(),
            timer_log_file_bytes: 100 << 20,
            timer_precision_ms: 1_000,
            timer_roll_window_slots: 172_800,
            flush: FlushMode::Async,
            flush_interval_ms: 500,
            flush_bytes: 16 << 20,
            reserved_hours: 72,
            delete_when: "04".to_owned(),
            disk_used_max_percent: 75,
            disk_clean_percent: 85,
            disk_full_percent: 90,
            disk_free_floor_bytes: 256 << 20,
            clean_forcibly: true,
            delete_batch_max: 10,
            recycled_max: 1,
        }
    }
}

/// Smallest segment of the log, in bytes.
pub(crate) const SEGMENT_MIN_BYTES: u64 = 64 << 10;
/// Files are addressed with 31 bits, as in Java.
const FILE_MAX_BYTES: u64 = (1 << 31) - 1;

impl StoreConfig {
    /// Settings with every default, in `dir`.
    pub fn in_dir(dir: impl Into<PathBuf>) -> StoreConfig {
        StoreConfig { dir: dir.into(), ..StoreConfig::default() }
    }

    /// Refuses values outside their bounds, by name.
    pub fn check(&self) -> Result<(), StoreError> {
        let within = [
            ("mappedFileSizeCommitLog", self.log_segment_bytes, SEGMENT_MIN_BYTES, FILE_MAX_BYTES),
            ("mappedFileSizeConsumeQueue", self.queue_file_bytes, 20, FILE_MAX_BYTES),
            ("mapperFileSizeBatchConsumeQueue", self.batch_queue_file_bytes, 46, FILE_MAX_BYTES),
            ("mappedFileSizeConsumeQueueExt", self.queue_extension_file_bytes, 4096, FILE_MAX_BYTES),
            ("maxLmqConsumeQueueNum", self.light_queues_max.into(), 1, 1_000_000),
            ("maxHashSlotNum", self.index_slots_max.into(), 1, FILE_MAX_BYTES),
            ("maxIndexNum", self.index_entries_max.into(), 2, FILE_MAX_BYTES),
            ("mappedFileSizeTimerLog", self.timer_log_file_bytes, 4096, FILE_MAX_BYTES),
            ("timerPrecisionMs", self.timer_precision_ms.into(), 1, 1_000),
            ("timerRollWindowSlot", self.timer_roll_window_slots.into(), 2, 604_740),
            ("flushIntervalCommitLog", self.flush_interval_ms.into(), 1, 60_000),
            ("flushCommitLogBytes", self.flush_bytes, 4096, 1 << 40),
            ("fileReservedTime", self.reserved_hours.into(), 1, u64::from(u32::MAX)),
            ("diskMaxUsedSpaceRatio", self.disk_used_max_percent.into(), 10, 95),
            ("diskSpaceCleanForciblyRatio", self.disk_clean_percent.into(), 30, 99),
            ("diskSpaceWarningLevelRatio", self.disk_full_percent.into(), 35, 100),
            ("deleteFileBatchMax", self.delete_batch_max.into(), 1, 1 << 20),
            ("recycledSegmentsMax", self.recycled_max.into(), 0, 8),
        ];
        for (key, value, min, max) in within {
            if value < min || value > max {
                return Err(StoreError::Config {
                    key, why: format!("{value} is not within {min} … {max}")
                });
            }
        }
        if !self.log_segment_bytes.is_multiple_of(4096) {
            let why = format!("{} is no multiple of 4096", self.log_segment_bytes);
            return Err(StoreError::Config { key: "mappedFileSizeCommitLog", why });
        }
        DelayLevels::parse(&self.delay_levels)?;
        self.delete_hours().map(|_| ())
    }

    /// Whether messages go to the light queues that they name.
    pub fn dispatches_to_light_queues(&self) -> bool {
        self.light_queues_enabled && self.multi_dispatch_enabled
    }

    /// The hours of `deleteWhen`, each 0 … 23.
    pub fn delete_hours(&self) -> Result<Vec<u8>, StoreError> {
        let mut hours = Vec::new();
        for part in self.delete_when.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            match part.parse::<u8>() {
                Ok(hour) if hour < 24 => hours.push(hour),
                _ => {
                    let why = format!("\"{part}\" is no hour of the day");
                    return Err(StoreError::Config { key: "deleteWhen", why });
                }
            }
        }
        Ok(hours)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_within_their_bounds() {
        StoreConfig::default().check().unwrap();
    }

    #[test]
    fn javas_names_are_understood() {
        let text =
            r#"{"storePathRootDir":"/x","mappedFileSizeCommitLog":65536,"flushDiskType":"SYNC_FLUSH"}"#;
        let config: StoreConfig = serde_json::from_str(text).unwrap();
        assert_eq!(config.dir, PathBuf::from("/x"));
        assert_eq!(config.log_segment_bytes, 65_536);
        assert_eq!(config.flush, FlushMode::Sync);
        assert_eq!(config.queue_file_bytes, 6_000_000);
    }

    #[test]
    fn a_value_outside_its_bounds_is_refused_by_name() {
        let small = StoreConfig { log_segment_bytes: 4096, ..StoreConfig::default() };
        assert!(small.check().unwrap_err().to_string().contains("mappedFileSizeCommitLog"));
        let hour = StoreConfig { delete_when: "04;25".to_owned(), ..StoreConfig::default() };
        assert!(hour.check().unwrap_err().to_string().contains("\"25\""));
        for levels in ["", "1s 5x", "1s,2s", "-1s"] {
            let levels = StoreConfig { delay_levels: levels.to_owned(), ..StoreConfig::default() };
            assert!(levels.check().unwrap_err().to_string().starts_with("setting messageDelayLevel"));
        }
    }

    #[test]
    fn every_reloadable_key_exists() {
        let value = serde_json::to_value(StoreConfig::default()).unwrap();
        for key in RELOADABLE {
            assert!(value.get(key).is_some(), "{key} is no setting");
        }
    }
}
