//! The queues of the topics: for each message its place in the log (RocketMQ's `ConsumeQueue`).
//!
//! Invariants:
//! - a queue is shared by everyone and changed by few: the dispatcher appends, the commit log assigns offsets,
//!   retention moves the minimum, and none of them waits for another;
//! - units below `max_offset` are complete: the offset is published after the unit;
//! - a queue nobody wrote has neither file nor map;
//! - the store knows no topic configuration: whether a queue is a batch queue is said when it is made.
//!
//! | file | what |
//! |---|---|
//! | `unit.rs` | the bytes of a unit |
//! | `units.rs` | units one after the other |
//! | `files.rs` | the files of a queue |
//! | `append.rs` | writing units |
//! | `batch.rs` | batch queues: searching for the unit of an offset |
//! | `by_time.rs` | offset by time |
//! | `cold.rs` | units that are on the disk only |
//! | `read.rs` | units through the files, for those who must not meet an error of the disk in a map |
//! | `expire.rs` | moving the minimum, deleting what expired |
//! | `recover.rs` | finding the end after a start, cutting at the end of the log |
//! | `extension.rs` | filter bits beside a queue |
//! | `table.rs` | all queues of a store |

mod append;
mod batch;
mod by_time;
mod cold;
mod expire;
mod extension;
mod files;
mod read;
mod recover;
mod table;
pub(crate) mod unit;
mod units;

#[cfg(test)]
mod consume_queue_test;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use troupemq_codec::Text;
use troupemq_codec::message::RecordView;

use self::extension::{QueueExtension, is_address};
use self::files::QueueFiles;
use self::recover::Found;
use self::unit::{BATCH_UNIT_BYTES, UNIT_BYTES};
use crate::config::StoreConfig;
use crate::dispatch::SCHEDULE_TOPIC;
use crate::error::StoreError;
use crate::faults::{self, Op};
use crate::index::topic_seed;
use crate::light;
use crate::paths::Paths;

pub use self::append::Put;
pub use self::by_time::{Boundary, stored_ms};
pub use self::extension::ExtensionUnit;
pub use self::recover::Trust;
pub use self::table::QueueTable;
pub use self::unit::Unit;
pub use self::units::Units;

/// How a queue counts (RocketMQ: topic attribute `queue.type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueKind {
    /// One unit for each message (`SimpleCQ`).
    Plain,
    /// One unit for each record, which may hold many messages (`BatchCQ`).
    Batch,
}

impl QueueKind {
    /// The folder of all queues of this kind.
    fn folder(self, store: &Paths) -> PathBuf {
        match self {
            QueueKind::Plain => store.consume_queue(),
            QueueKind::Batch => store.batch_consume_queue(),
        }
    }

    /// Bytes of a unit.
    pub(crate) fn unit_bytes(self) -> u64 {
        match self {
            QueueKind::Plain => UNIT_BYTES as u64,
            QueueKind::Batch => BATCH_UNIT_BYTES as u64,
        }
    }
}

/// Where the queues of one kind lie, and how long their files are.
#[derive(Debug)]
pub(crate) struct QueueFolder {
    root: PathBuf,
    kind: QueueKind,
    file_bytes: AtomicU64,
    /// The folder, open since it was needed first: an error of its disk is told to who had it open before.
    disk: OnceLock<File>,
    /// Size of a new extension's files.
    extension_bytes: u64,
}

impl QueueFolder {
    fn new(config: &StoreConfig, kind: QueueKind) -> QueueFolder {
        let file_bytes = match kind {
            QueueKind::Plain => config.queue_file_bytes,
            QueueKind::Batch => config.batch_queue_file_bytes,
        };
        QueueFolder {
            root: kind.folder(&Paths::below(&config.dir)),
            kind,
            file_bytes: AtomicU64::new(file_bytes.next_multiple_of(kind.unit_bytes())),
            disk: OnceLock::new(),
            extension_bytes: config.queue_extension_file_bytes,
        }
    }

    /// Root folder of the store.
    fn store(&self) -> &Path {
        self.root.parent().unwrap_or(&self.root)
    }

    /// Opens the folder, if it is there.
    fn open(&self) {
        if self.disk.get().is_none()
            && let Ok(disk) = File::open(&self.root)
        {
            let _is_open = self.disk.set(disk);
        }
    }

    /// Forces the whole file system of the folder to the disk.
    fn flush_disk(&self) -> Result<(), StoreError> {
        self.open();
        let Some(disk) = self.disk.get() else { return Ok(()) };
        let synced = faults::pass(Op::Flush, &self.root, || Ok(rustix::fs::syncfs(disk)?));
        synced.map_err(StoreError::io("flush the disk of", &self.root))
    }

    fn file_bytes(&self) -> u64 {
        self.file_bytes.load(Ordering::Relaxed)
    }
}

/// One queue of one topic.
#[derive(Debug)]
pub struct ConsumeQueue {
    topic: Text,
    queue_id: i32,
    folder: Arc<QueueFolder>,
    files: QueueFiles,
    min_offset: AtomicI64,
    max_offset: AtomicI64,
    next_offset: AtomicI64,
    /// Byte position behind the last unit.
    end: AtomicU64,
    /// Position in the log behind the last record that has a unit.
    log_end: AtomicU64,
    /// Log offset of the record at the minimum, plus one; 0 = not known, the file tells.
    min_log: AtomicU64,
    /// Byte position up to which the files were forced to the disk.
    flushed: AtomicU64,
    /// Offset from which on this process has written the units itself.
    own_from: AtomicI64,
    removed: AtomicBool,
    /// Offset that it had reached at least when its files were given up; 0 if they were not.
    given_up_at: AtomicI64,
    /// Hash of the front of all index keys of the topic.
    key_seed: i32,
    /// Units carry the time of delivery instead of tags.
    is_schedule: bool,
    /// Opened on first need, which most stores never have.
    extension: OnceLock<QueueExtension>,
}

impl ConsumeQueue {
    fn new(topic: Text, queue_id: i32, folder: Arc<QueueFolder>, files: QueueFiles) -> ConsumeQueue {
        ConsumeQueue {
            key_seed: topic_seed(&topic),
            is_schedule: topic.as_str() == SCHEDULE_TOPIC,
            topic,
            queue_id,
            folder,
            files,
            min_offset: AtomicI64::new(0),
            max_offset: AtomicI64::new(0),
            next_offset: AtomicI64::new(0),
            end: AtomicU64::new(0),
            log_end: AtomicU64::new(0),
            min_log: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            own_from: AtomicI64::new(0),
            removed: AtomicBool::new(false),
            given_up_at: AtomicI64::new(0),
            extension: OnceLock::new(),
        }
    }

    /// Topic of the queue.
    pub fn topic(&self) -> &Text {
        &self.topic
    }

    /// Number of the queue in its topic.
    pub fn queue_id(&self) -> i32 {
        self.queue_id
    }

    /// How the queue counts.
    pub fn kind(&self) -> QueueKind {
        self.folder.kind
    }

    /// First offset that can still be read.
    pub fn min_offset(&self) -> i64 {
        self.min_offset.load(Ordering::Acquire)
    }

    /// Offset behind the last message that can be read.
    pub fn max_offset(&self) -> i64 {
        self.max_offset.load(Ordering::Acquire)
    }

    /// Offset the commit log gives to the next message; ahead of `max_offset` by what is not dispatched yet.
    pub fn next_offset(&self) -> i64 {
        self.next_offset.load(Ordering::Relaxed)
    }

    /// Sets the offset of the next message. For the commit log alone, which is the one to assign offsets.
    pub fn assign_next_offset(&self, next: i64) {
        self.next_offset.store(next, Ordering::Relaxed);
    }

    /// Position in the log behind the last record that has a unit here.
    pub fn log_end(&self) -> u64 {
        self.log_end.load(Ordering::Acquire)
    }

    /// What the extension of the queue keeps of a message, if there is one (`enableConsumeQueueExt`).
    pub fn extension_unit(&self, queue_offset: i64) -> Option<ExtensionUnit> {
        let position = self.position_of(queue_offset).filter(|_| self.unit(queue_offset).is_some())?;
        let unit = self.unit_as_it_stands(&*self.files.at(position)?, position)?;
        self.read_extension(unit.tags_code)
    }

    /// Hash of the front of all index keys of the topic.
    pub(crate) fn key_seed(&self) -> i32 {
        self.key_seed
    }

    /// Whether units carry the time of delivery instead of tags.
    pub(crate) fn is_schedule(&self) -> bool {
        self.is_schedule
    }

    /// Whether it has no file: nobody has written it, or what was written is gone.
    pub(crate) fn is_unwritten(&self) -> bool {
        self.files.list().is_empty()
    }

    /// Whether the topic was deleted; its queues take no more units.
    pub fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    /// The unit that holds the message with this offset.
    pub fn unit(&self, queue_offset: i64) -> Option<Unit> {
        self.units(queue_offset, 1).next()
    }

    /// Whether a unit comes from a file that was there at the start: it may be damaged, however old it is, and is
    /// compared with its record before that leaves.
    pub fn is_doubtful(&self, unit: &Unit) -> bool {
        unit.queue_offset < self.own_from.load(Ordering::Acquire)
    }

    /// Whether `bytes`, which stand in the log where the unit says, are its record.
    pub fn is_record_of(&self, unit: &Unit, bytes: &[u8]) -> bool {
        let Ok(record) = RecordView::parse(bytes) else { return false };
        u64::try_from(record.log_offset()) == Ok(unit.log_offset) && self.is_of(unit, &record)
    }

    /// Whether a record that stands where the unit says is the one it speaks of: of this queue, or one that names it.
    pub(crate) fn is_of(&self, unit: &Unit, record: &RecordView<'_>) -> bool {
        let is_of_topic = record.queue_offset() == unit.queue_offset
            && record.queue_id() == self.queue_id
            && record.topic() == self.topic.as_str();
        let is_named = || {
            let here = (self.topic.as_str(), unit.queue_offset);
            light::is_light(here.0) && light::places(record).any(|place| place == here)
        };
        record.total_size() as u64 == u64::from(unit.size) && (is_of_topic || is_named())
    }

    /// Byte position of its end, if the disk may lack something in front of it.
    pub(crate) fn unflushed(&self) -> Option<u64> {
        let end = self.end.load(Ordering::Acquire);
        (self.flushed.load(Ordering::Relaxed) != end && !self.is_removed()).then_some(end)
    }

    /// Forces to the disk what was written since the last time, up to `end`.
    pub(crate) fn flush(&self, end: u64) -> Result<(), StoreError> {
        let flushed = self.flushed.load(Ordering::Relaxed);
        for file in self.files.list().iter().filter(|file| file.end() > flushed && file.start() < end) {
            file.flush()?;
        }
        if let Some(extension) = self.extension.get() {
            extension.flush()?;
        }
        Ok(())
    }

    /// The disk has all in front of `end`.
    pub(crate) fn flushed(&self, end: u64) {
        let flushed = self.flushed.swap(end, Ordering::Relaxed);
        for file in self.files.list().iter().filter(|file| file.end() > flushed && file.start() < end) {
            // However much is stored, only what is new takes memory of this process.
            file.drop_pages(end);
        }
    }

    /// The error of a unit that would leave a gap in a store that is open.
    pub(crate) fn gap(&self) -> StoreError {
        StoreError::Corrupt {
            file: self.dir(),
            at: self.end.load(Ordering::Relaxed),
            why: "the log gave out an offset that does not follow the last unit",
        }
    }

    /// The extension, opened by its first user.
    pub(crate) fn extension(&self) -> Result<&QueueExtension, StoreError> {
        if let Some(extension) = self.extension.get() {
            return Ok(extension);
        }
        let store = self.folder.store();
        let dir = extension::folder(store, &self.topic, self.queue_id);
        let opened = QueueExtension::open(store, dir, self.folder.extension_bytes)?;
        Ok(self.extension.get_or_init(|| opened))
    }

    /// Whether its last message points into an extension that has nothing there; `last` is its last unit.
    pub(crate) fn lacks_extension(&self, last: &Unit) -> Result<bool, StoreError> {
        let first = self.first_byte().unwrap_or(0);
        let (mut last, mut position) = (*last, self.end.load(Ordering::Acquire));
        // A hole points nowhere: those in front of it may.
        while last.is_hole() {
            position -= self.kind().unit_bytes();
            let before = position.checked_sub(self.kind().unit_bytes()).filter(|before| *before >= first);
            match before.map(|before| self.peek(before)).transpose()? {
                Some(Found::Unit(unit)) => last = unit,
                _ => return Ok(false),
            }
        }
        Ok(is_address(last.tags_code) && self.read_extension(last.tags_code).is_none())
    }

    /// Whether a unit, as it stands in its file, points to what the extension keeps of a message that was stored at
    /// another time than its own.
    pub(crate) fn has_foreign_extension(&self, unit: &Unit, stored_ms: i64) -> bool {
        self.read_extension(unit.tags_code).is_some_and(|kept| kept.store_timestamp_ms != stored_ms)
    }

    #[cold]
    fn read_extension(&self, tags_code: i64) -> Option<ExtensionUnit> {
        if !is_address(tags_code) {
            return None;
        }
        match self.extension() {
            Ok(extension) => extension.read(tags_code),
            Err(error) => {
                tracing::error!(%error, "extension of a queue cannot be read");
                None
            }
        }
    }

    /// Folder of the queue's files.
    fn dir(&self) -> PathBuf {
        self.folder.root.join(self.topic.as_str()).join(self.queue_id.to_string())
    }

    /// Byte position of the unit that holds a readable message.
    fn position_of(&self, queue_offset: i64) -> Option<u64> {
        match self.kind() {
            QueueKind::Plain => Some(u64::try_from(queue_offset).ok()? * UNIT_BYTES as u64),
            QueueKind::Batch => self.batch_position(queue_offset),
        }
    }

    /// Reads the unit at a byte position below the end, wherever its file is.
    fn unit_at(&self, position: u64) -> Option<Unit> {
        self.unit_in(&*self.files.at(position)?, position)
    }
}
