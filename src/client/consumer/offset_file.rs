//! The file in which a broadcasting consumer keeps how far it has come. Java: `LocalFileOffsetStore`.
//!
//! Invariants:
//! - a file is replaced as a whole: a crash leaves the old one or the new one;
//! - what cannot be read counts as not there, and is said.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use troupemq_codec::loose_json::{from_loose, to_fastjson};
use troupemq_codec::topic::MessageQueue;

use crate::client::queue::Queue;

/// What the file holds, as Java writes it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Table {
    offset_table: BTreeMap<MessageQueue, i64>,
}

/// The file and what was last written to it.
#[derive(Debug, Default)]
pub(crate) struct OffsetFile {
    path: Option<PathBuf>,
    table: Table,
}

impl OffsetFile {
    /// Reads the file, if there is to be one, on a thread that may wait for a disk.
    pub(crate) async fn open(path: Option<PathBuf>) -> OffsetFile {
        let Some(path) = path else { return OffsetFile::default() };
        let from = path.clone();
        // A thread that broke off has read nothing.
        let table = tokio::task::spawn_blocking(move || read(&from)).await.ok().flatten();
        OffsetFile { path: Some(path), table: table.unwrap_or_default() }
    }

    /// How far it had come in a queue.
    pub(crate) fn get(&self, queue: &Queue) -> Option<i64> {
        self.table.offset_table.get(&queue.into()).copied()
    }

    /// Notes how far it has come; tells whether that is news.
    pub(crate) fn set(&mut self, queue: &Queue, queue_offset: i64) -> bool {
        self.table.offset_table.insert(queue.into(), queue_offset) != Some(queue_offset)
    }

    /// Writes the file, on a thread that may wait for a disk.
    pub(crate) async fn save(&self) -> io::Result<()> {
        let Some(path) = self.path.clone() else { return Ok(()) };
        let bytes = to_fastjson(&self.table);
        let written = tokio::task::spawn_blocking(move || write(&path, &bytes));
        written.await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }
}

fn read(path: &Path) -> Option<Table> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "offsets not read");
            return None;
        }
    };
    from_loose(&bytes)
        .inspect_err(|error| tracing::warn!(path = %path.display(), %error, "offsets not understood"))
        .ok()
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let new = path.with_extension("new");
    std::fs::write(&new, bytes)?;
    std::fs::rename(new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn offsets_outlive_their_consumer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("of").join("offsets.json");
        let queue = Queue { topic: "T".into(), broker_name: "b".into(), queue_id: 1 };
        let mut file = OffsetFile::open(Some(path.clone())).await;
        assert_eq!(file.get(&queue), None);
        assert!(file.set(&queue, 7));
        assert!(!file.set(&queue, 7));
        file.save().await.unwrap();
        assert_eq!(OffsetFile::open(Some(path.clone())).await.get(&queue), Some(7));
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, r#"{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"T"}:7}}"#);
        std::fs::write(&path, "{").unwrap();
        assert_eq!(OffsetFile::open(Some(path)).await.get(&queue), None);
    }
}
