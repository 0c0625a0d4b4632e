//! What tests of this floor and those above use: stores that Java wrote, and a judge of their content.
//!
//! Invariants:
//! - every set is unpacked into a folder of its own, so tests may write and run at once;
//! - nothing here is compiled into a release.

mod recovery;
mod sample;
mod sha256;
mod small;
mod unpack;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;

pub use self::recovery::{copy as copy_dir, recover_from};
pub use self::sample::{Random, Sample};
pub use self::sha256::sha256_hex;
pub use self::small::{close_well, small_files};
use crate::clock::{Clock, SystemClock};

/// How long a test waits for anything: far longer than that takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Names of all sets of `tests/golden/store`.
pub const GOLDEN_SETS: &[&str] = &[
    "plain-clean",
    "plain-killed",
    "plain-torn",
    "plain-torn-wide",
    "delivery-clean",
    "batch-cq",
    "ipv6",
    "pop",
    "recall",
];

/// A store that Java wrote, in a folder of its own.
#[derive(Debug)]
pub struct GoldenStore {
    folder: TempDir,
    set: String,
}

/// What Java found in a store (`found` of the manifest).
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FoundByJava {
    /// Start of the log.
    pub commit_log_min_offset: u64,
    /// End of the log.
    pub commit_log_max_offset: u64,
    /// Every queue.
    pub queues: Vec<QueueFoundByJava>,
    /// Every segment.
    pub segments: Vec<SegmentFoundByJava>,
}

/// A queue as Java found it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueFoundByJava {
    /// Topic.
    pub topic: String,
    /// Number of the queue.
    pub queue_id: i32,
    /// `SimpleCQ` or `BatchCQ`.
    #[serde(rename = "type")]
    pub kind: String,
    /// First offset.
    pub min: i64,
    /// Offset behind the last message.
    pub max: i64,
    /// Number of units.
    pub units: u64,
}

/// A segment as Java found it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SegmentFoundByJava {
    /// Name of the file.
    pub name: String,
    /// Number of records.
    pub records: u64,
    /// Log offset behind the last one, or of the file's end where a blank follows.
    pub end: u64,
}

/// A unit and its record as Java read them: a line of `messages.jsonl`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageFoundByJava {
    /// Topic of the queue.
    pub topic: String,
    /// Number of the queue.
    pub queue_id: i32,
    /// Offset in the queue.
    #[serde(rename = "cqOffset")]
    pub queue_offset: i64,
    /// Offset in the log.
    #[serde(rename = "phyOffset")]
    pub log_offset: u64,
    /// Bytes of the record.
    pub size: u32,
    /// What the unit carries.
    pub tags_code: i64,
    /// Store time, ms.
    pub store_timestamp: i64,
    /// Hash of the body as stored.
    pub stored_body_sha256: String,
    /// Hash of the whole record.
    pub record_sha256: String,
    /// Unique key, where the message has one.
    pub uniq_key: Option<String>,
    /// Properties by name; the last of a name counts.
    pub properties: serde_json::Map<String, Value>,
    /// Messages in the unit of a batch queue.
    pub batch_num: Option<u16>,
    /// What the extension of the queue keeps.
    #[serde(rename = "cqExt")]
    pub extension: Option<ExtensionFoundByJava>,
}

/// A unit of a queue's extension as Java found it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExtensionFoundByJava {
    /// Hash of the tags.
    pub tags_code: i64,
    /// Store time, ms.
    pub msg_store_time: i64,
    /// The bits in hexadecimal digits.
    pub filter_bit_map: String,
}

/// Waits until it is so.
///
/// # Panics
/// If that takes longer than a test waits for anything.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    while !is_so() {
        assert!(Duration::from_nanos(clock.nanos()) < PATIENCE, "in vain: {what}");
        std::thread::yield_now();
    }
}

/// Bytes of these files, or of all in this folder, that this process has mapped pages for.
///
/// # Panics
/// If the system does not tell.
pub fn mapped_bytes(of: &Path) -> u64 {
    let of = of.display().to_string();
    let smaps = std::fs::read_to_string("/proc/self/smaps").expect("the system tells");
    let (mut is_of, mut kib) = (false, 0);
    for line in smaps.lines() {
        match line.strip_prefix("Rss:") {
            Some(size) if is_of => {
                kib += size.trim().trim_end_matches(" kB").parse::<u64>().expect("a number of KiB");
            }
            // The fields of a map follow its first line, which has no colon behind its first word.
            None if !line.split(' ').next().is_some_and(|word| word.ends_with(':')) => {
                is_of = line.contains(&of);
            }
            _ => {}
        }
    }
    kib << 10
}

/// Has the disk take the files in `dir`, and the system forget what it knows of them, as far as it does that: what is
/// in memory afterwards nobody can rely on. To have readers find nothing there, see `faults::forget`.
///
/// # Panics
/// If they cannot be listed, or the disk cannot take them.
pub fn evict(dir: &Path) {
    for entry in std::fs::read_dir(dir).expect("the folder can be listed") {
        let file = std::fs::File::open(entry.expect("it can be listed").path()).expect("it can be opened");
        file.sync_all().expect("the disk takes it");
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("it is a file");
    }
}

impl GoldenStore {
    /// Unpacks the set.
    ///
    /// # Panics
    /// If there is no such set or it cannot be unpacked.
    pub fn unpack(set: &str) -> GoldenStore {
        let folder = TempDir::new().expect("a temporary folder can be made");
        let archive =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/store").join(format!("{set}.tar.gz"));
        unpack::unpack(&archive, folder.path());
        GoldenStore { folder, set: set.to_owned() }
    }

    /// Root folder of the store.
    pub fn dir(&self) -> PathBuf {
        self.folder.path().join(&self.set)
    }

    /// Text of the file `<set>.<name>` beside the store, such as `acks.jsonl`.
    ///
    /// # Panics
    /// If the set has no such file.
    pub fn beside(&self, name: &str) -> String {
        let path = self.folder.path().join(format!("{}.{name}", self.set));
        std::fs::read_to_string(&path).expect("the set has this file")
    }

    /// The manifest.
    ///
    /// # Panics
    /// If it is damaged.
    pub fn manifest(&self) -> Value {
        serde_json::from_str(&self.beside("manifest.json")).expect("the manifest is JSON")
    }

    /// What Java found in it.
    ///
    /// # Panics
    /// If the manifest is damaged.
    pub fn found(&self) -> FoundByJava {
        let found = self.manifest()["found"].clone();
        serde_json::from_value(found).expect("the manifest has what Java found")
    }

    /// Every unit with its record.
    ///
    /// # Panics
    /// If a line is damaged.
    pub fn messages(&self) -> Vec<MessageFoundByJava> {
        let text = self.beside("messages.jsonl");
        text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_unpacks_to_the_files_of_its_manifest() {
        for set in GOLDEN_SETS {
            let store = GoldenStore::unpack(set);
            let manifest = store.manifest();
            for file in manifest["files"].as_array().unwrap() {
                let (path, size) = (file["path"].as_str().unwrap(), file["size"].as_u64().unwrap());
                // Kept packed: it is nearly all zeros.
                if path != "timerwheel" {
                    let len = std::fs::metadata(store.dir().join(path)).unwrap().len();
                    assert_eq!(len, size, "{set}: {path}");
                }
            }
            assert!(!store.messages().is_empty());
        }
    }
}
