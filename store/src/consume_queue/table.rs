//! All queues of a store, found by topic and number.
//!
//! Invariants:
//! - the table is a handle: clones see the same queues;
//! - a queue is in the table before it has a file, and the files of a queue are in at most one entry;
//! - a folder that is no queue is left alone; a queue whose files do not fit together is deleted, to be built
//!   again from the log, and so is one of which a file cannot be read, but that file is put aside.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use dashmap::{DashMap, DashSet};
use troupemq_codec::Text;
use troupemq_codec::topic::TopicConfigTable;

use super::files::{QueueFile, QueueFiles};
use super::recover::Trust;
use super::{ConsumeQueue, QueueFolder, QueueKind, Unit};
use crate::config::StoreConfig;
use crate::error::StoreError;
use crate::faults::{self, Op};
use crate::light;
use crate::paths::{UNREADABLE, put_aside, remove, without_unreadable};
use crate::segments::{SegmentFile, list_files};
use crate::tables::TableFile;

/// Most mapped files before idle queues are unmapped.
const MAPS_MAX: usize = 16_384;

/// Most queues that are forced to the disk one by one. More are by one call for their file system: a new file costs
/// the disk its journal each, some milliseconds, and whoever makes the next file meanwhile waits for that.
const ONE_BY_ONE_MAX: usize = 256;

/// Handle on the queues of a store.
#[derive(Debug, Clone)]
pub struct QueueTable {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    plain: Arc<QueueFolder>,
    batch: Arc<QueueFolder>,
    /// Queues of a topic, sorted by their number.
    topics: DashMap<Text, Vec<Arc<ConsumeQueue>>>,
    /// Topics whose new queues are batch queues.
    batch_topics: DashSet<Text>,
    /// Topics of a table that may lack others; none where the table is whole.
    only_known: OnceLock<HashSet<Text>>,
    /// Whether a queue was found damaged, so that the log has to be read from its start.
    damaged: AtomicBool,
    /// Queues whose files were deleted, and the offset that each had reached at least.
    given_up: DashMap<(Text, i32), i64>,
    /// Whether more files were mapped at the last flush than should be.
    is_crowded: AtomicBool,
    maps_max: usize,
    one_by_one_max: usize,
    /// Light queues there are, and may be.
    light: AtomicUsize,
    light_max: usize,
}

impl QueueTable {
    /// Finds the queues on the disk; nothing is mapped, and nothing is known of their ends before `recover`.
    pub fn load(config: &StoreConfig) -> Result<QueueTable, StoreError> {
        let mut attempts = 0;
        let table = without_unreadable(&config.dir, || {
            attempts += 1;
            QueueTable::load_with(config, MAPS_MAX, ONE_BY_ONE_MAX)
        })?;
        if attempts > 1 {
            table.shared.damaged.store(true, Ordering::Relaxed);
        }
        Ok(table)
    }

    pub(crate) fn load_with(
        config: &StoreConfig,
        maps_max: usize,
        one_by_one_max: usize,
    ) -> Result<QueueTable, StoreError> {
        let plain = QueueFolder::new(config, QueueKind::Plain);
        let batch = QueueFolder::new(config, QueueKind::Batch);
        let table = QueueTable {
            shared: Arc::new(Shared {
                plain: Arc::new(plain),
                batch: Arc::new(batch),
                topics: DashMap::new(),
                batch_topics: DashSet::new(),
                only_known: OnceLock::new(),
                damaged: AtomicBool::new(false),
                given_up: DashMap::new(),
                is_crowded: AtomicBool::new(false),
                maps_max,
                one_by_one_max,
                light: AtomicUsize::new(0),
                light_max: usize::try_from(config.light_queues_max).unwrap_or(usize::MAX),
            }),
        };
        table.declare_configured(&config.dir);
        table.load_folder(&table.shared.plain)?;
        table.load_folder(&table.shared.batch)?;
        table.shared.plain.open();
        table.shared.batch.open();
        let light = table.shared.topics.iter().filter(|entry| light::is_light(entry.key())).count();
        table.shared.light.store(light, Ordering::Relaxed);
        Ok(table)
    }

    /// The queue, if it was written or made.
    pub fn get(&self, topic: &str, queue_id: i32) -> Option<Arc<ConsumeQueue>> {
        let queues = self.shared.topics.get(topic)?;
        let index = queues.binary_search_by_key(&queue_id, |queue| queue.queue_id).ok()?;
        queues.get(index).map(Arc::clone)
    }

    /// The queue, made if there is none: without a file until its first unit.
    ///
    /// Fails for names that cannot be a folder.
    pub fn open_or_create(&self, topic: &str, queue_id: i32) -> Result<Arc<ConsumeQueue>, StoreError> {
        if let Some(queue) = self.get(topic, queue_id) {
            return Ok(queue);
        }
        if !is_folder_name(topic) || queue_id < 0 {
            let why = format!("\"{topic}\" with queue {queue_id} cannot name a queue");
            return Err(StoreError::Config { key: "topic", why });
        }
        // A copy: the caller's text may be a slice of a whole frame.
        let topic = Text::from(topic);
        let mut queues = self.shared.topics.entry(topic.clone()).or_default();
        let index = match queues.binary_search_by_key(&queue_id, |queue| queue.queue_id) {
            Ok(index) => return Ok(Arc::clone(&queues[index])),
            Err(index) => index,
        };
        let is_batch = match queues.first() {
            Some(other) => other.kind() == QueueKind::Batch,
            None => self.shared.batch_topics.contains(&topic),
        };
        let folder = if is_batch { &self.shared.batch } else { &self.shared.plain };
        let queue = ConsumeQueue::new(topic, queue_id, Arc::clone(folder), QueueFiles::default());
        let queue = Arc::new(queue);
        if queues.is_empty() && light::is_light(queue.topic()) {
            self.shared.light.fetch_add(1, Ordering::Relaxed);
        }
        queues.insert(index, Arc::clone(&queue));
        Ok(queue)
    }

    /// The light queue of this name, made if there is none.
    ///
    /// # Errors
    /// For names that cannot be a folder, and for one more queue than `maxLmqConsumeQueueNum`.
    pub fn open_light(&self, name: &str) -> Result<Arc<ConsumeQueue>, StoreError> {
        if let Some(queue) = self.get(name, light::QUEUE_ID) {
            return Ok(queue);
        }
        let (there, max) = (self.shared.light.load(Ordering::Relaxed), self.shared.light_max);
        if there >= max {
            return Err(StoreError::TooMany { what: "light queues (maxLmqConsumeQueueNum)", max });
        }
        self.open_or_create(name, light::QUEUE_ID)
    }

    /// Says that new queues of `topic` are batch queues (topic attribute `queue.type=BatchCQ`). Queues that
    /// exist stay what they are.
    pub fn declare_batch(&self, topic: &str) {
        self.shared.batch_topics.insert(Text::from(topic));
    }

    /// Makes the queues of a topic batch queues, empty ones, if nobody knows what it was: only its records tell it.
    /// Answers whether it did.
    pub(crate) fn turn_to_batch(&self, topic: &str) -> Result<bool, StoreError> {
        let is_unknown = self.shared.only_known.get().is_some_and(|known| !known.contains(topic));
        if !is_unknown || self.shared.batch_topics.contains(topic) {
            return Ok(false);
        }
        tracing::warn!(topic, "its records are batches: its queues are made anew as such");
        self.remove(topic)?;
        self.declare_batch(topic);
        Ok(true)
    }

    /// The queues of a topic, sorted by their number.
    pub fn of_topic(&self, topic: &str) -> Vec<Arc<ConsumeQueue>> {
        self.shared.topics.get(topic).map(|queues| queues.clone()).unwrap_or_default()
    }

    /// All topics that have a queue.
    pub fn topics(&self) -> Vec<Text> {
        self.shared.topics.iter().map(|entry| entry.key().clone()).collect()
    }

    /// Deletes the queues of a topic with their files. Who holds one still may read it, not write it.
    pub fn remove(&self, topic: &str) -> Result<(), StoreError> {
        self.shared.batch_topics.remove(topic);
        let Some((_, queues)) = self.shared.topics.remove(topic) else { return Ok(()) };
        if light::is_light(topic) {
            self.shared.light.fetch_sub(1, Ordering::Relaxed);
        }
        for queue in &queues {
            queue.removed.store(true, Ordering::Release);
            remove_folder(&queue.dir())?;
        }
        match queues.first() {
            Some(queue) => remove_folder(&queue.folder.root.join(topic)),
            None => Ok(()),
        }
    }

    /// Finds the end of every queue. Answers the highest position in the log that some queue knows: nothing
    /// if there is no unit at all.
    pub fn recover(&self, trust: Trust) -> Result<Option<u64>, StoreError> {
        self.each(|queue| {
            if !queue.recover(trust)? {
                tracing::warn!(topic = %queue.topic(), queue_id = queue.queue_id(), "queue has lost units");
                self.shared.damaged.store(true, Ordering::Relaxed);
            }
            Ok(())
        })?;
        Ok(self.log_end())
    }

    /// Cuts all units whose record reaches beyond the end of the log.
    pub fn truncate(&self, log_end: u64) -> Result<(), StoreError> {
        self.each(|queue| queue.truncate(log_end))
    }

    /// Cuts units from the end of each queue until `is_right` accepts the last one. A queue whose extension is gone is
    /// dropped: its tags are lost with it, so it is made again from the log.
    pub fn verify(&self, is_right: impl Fn(&ConsumeQueue, &Unit) -> bool) -> Result<(), StoreError> {
        self.each(|queue| {
            let last = queue.verify(|unit| is_right(queue, unit))?;
            let lacks = last.map(|last| queue.lacks_extension(&last)).transpose()?;
            if lacks != Some(true) {
                return Ok(());
            }
            tracing::warn!(topic = %queue.topic(), queue_id = queue.queue_id(), "queue has lost its extension");
            self.shared.damaged.store(true, Ordering::Relaxed);
            queue.reset()
        })
    }

    /// Moves the minimum of every queue behind what the log has lost.
    pub fn correct_min(&self, log_min: u64) -> Result<(), StoreError> {
        let mut failed = Ok(());
        for queue in self.snapshot() {
            // One that cannot be looked at keeps no other from following the log.
            if let Err(error) = queue.correct_min(log_min) {
                failed = failed.and(Err(error));
            }
        }
        failed
    }

    /// Moves the minimum of every queue and deletes the files nobody can read any more; tells how many.
    pub fn expire(&self, log_min: u64) -> Result<usize, StoreError> {
        let mut files = 0;
        for queue in self.snapshot() {
            files += match queue.expire(log_min) {
                // Its files went while they were looked at.
                Err(_) if queue.is_removed() => 0,
                expired => expired?,
            };
        }
        Ok(files)
    }

    /// Forces every queue to the disk that was written since the last time.
    ///
    /// Old files are unmapped on the way, and where very many files are mapped, idle queues too; each is mapped
    /// again on its next need. Maps cost memory, and the system allows a process some 65,000.
    pub fn flush(&self) -> Result<(), StoreError> {
        let is_crowded = self.shared.is_crowded.load(Ordering::Relaxed);
        let mut mapped = 0;
        // Ends are read before the disk is: what comes meanwhile is left for the next time.
        let queues: Vec<_> = self.snapshot().into_iter().map(|queue| (queue.unflushed(), queue)).collect();
        let is_one_call = queues.iter().filter(|(end, _)| end.is_some()).count() > self.shared.one_by_one_max;
        if is_one_call {
            self.shared.plain.flush_disk()?;
            self.shared.batch.flush_disk()?;
        }
        for (end, queue) in &queues {
            if let Some(end) = *end {
                if !is_one_call {
                    queue.flush(end)?;
                }
                queue.flushed(end);
            }
            let with_last = is_crowded && end.is_none();
            match queue.files.mapped() {
                0 => {}
                1 if !with_last && queue.files.is_last_mapped() => {}
                _ => queue.files.unmap(with_last),
            }
            mapped += queue.files.mapped();
        }
        self.shared.is_crowded.store(mapped > self.shared.maps_max, Ordering::Relaxed);
        Ok(())
    }

    /// The highest position in the log that some queue knows.
    pub fn log_end(&self) -> Option<u64> {
        self.snapshot().iter().map(|queue| queue.log_end()).max().filter(|end| *end > 0)
    }

    /// The offset that each queue had reached at least whose files were given up.
    pub(crate) fn given_up(&self) -> Vec<((Text, i32), i64)> {
        let deleted = self.shared.given_up.iter().map(|entry| (entry.key().clone(), *entry.value()));
        let emptied = self
            .snapshot()
            .into_iter()
            .map(|queue| ((queue.topic.clone(), queue.queue_id), queue.given_up_at.load(Ordering::Relaxed)));
        deleted.chain(emptied).collect()
    }

    /// Whether a queue was found damaged and has to be built from the start of the log.
    pub fn is_damaged(&self) -> bool {
        self.shared.damaged.load(Ordering::Relaxed)
    }

    /// Does something with each queue. One that cannot be read is emptied, to be built again from the log.
    fn each(&self, mut act: impl FnMut(&ConsumeQueue) -> Result<(), StoreError>) -> Result<(), StoreError> {
        for queue in self.snapshot() {
            if let Err(error) = act(&queue) {
                self.give_up(&queue, error)?;
            }
        }
        Ok(())
    }

    /// Empties the queue whose file could not be read; it has to be built again from the log.
    ///
    /// # Errors
    /// The same error, if it is about something else.
    pub(crate) fn give_up_unreadable(&self, error: StoreError) -> Result<(), StoreError> {
        let is_of =
            |queue: &Arc<ConsumeQueue>| error.unreadable().is_some_and(|file| file.starts_with(queue.dir()));
        match self.snapshot().into_iter().find(is_of) {
            Some(queue) => self.give_up(&queue, error),
            None => Err(error),
        }
    }

    fn give_up(&self, queue: &ConsumeQueue, error: StoreError) -> Result<(), StoreError> {
        put_aside(queue.folder.store(), error)?;
        self.shared.damaged.store(true, Ordering::Relaxed);
        queue.reset()
    }

    fn snapshot(&self) -> Vec<Arc<ConsumeQueue>> {
        let mut queues = Vec::new();
        for entry in &self.shared.topics {
            queues.extend(entry.value().iter().map(Arc::clone));
        }
        queues
    }

    /// Declares the batch topics of the topic table: a queue that is gone is made again as what it was.
    fn declare_configured(&self, store: &Path) {
        // Whoever owns the table reports its damage; here it only says less.
        let Ok((file, topics)) = TableFile::<TopicConfigTable>::open(store) else { return };
        if file.has_lost().unwrap_or(true) {
            let known = topics.topic_config_table.keys().cloned().collect();
            self.shared.only_known.get_or_init(|| known);
        }
        for (name, topic) in &topics.topic_config_table {
            if topic.attributes.get("queue.type").is_some_and(|kind| kind.as_str() == "BatchCQ") {
                self.declare_batch(name);
            }
        }
    }

    fn load_folder(&self, folder: &Arc<QueueFolder>) -> Result<(), StoreError> {
        let mut found = Vec::new();
        for topic in folders_of(&folder.root)? {
            for queue in folders_of(&folder.root.join(&topic))? {
                // What is no number is no queue.
                let Ok(queue_id) = queue.parse::<i32>() else { continue };
                let dir = folder.root.join(&topic).join(queue);
                let mut files = list_files(&dir)?;
                if let Some(last) = files.pop_if(|file| file.len == 0) {
                    remove(&last.path)?;
                }
                if !files.is_empty() {
                    found.push(FoundQueue { topic: Text::from(topic.as_str()), queue_id, dir, files });
                }
            }
        }
        if let Some(file_bytes) = usual_size(&found, folder.kind.unit_bytes()) {
            folder.file_bytes.store(file_bytes, Ordering::Relaxed);
        }
        found.into_iter().try_for_each(|queue| self.load_queue(folder, queue))
    }

    fn load_queue(&self, folder: &Arc<QueueFolder>, found: FoundQueue) -> Result<(), StoreError> {
        let FoundQueue { topic, queue_id, dir, files } = found;
        if let Some(why) = misfit(&files, folder.file_bytes(), folder.kind.unit_bytes()) {
            tracing::warn!(dir = %dir.display(), why, "damaged queue is deleted and built again from the log");
            self.shared.damaged.store(true, Ordering::Relaxed);
            if let (QueueKind::Plain, Some(last)) = (folder.kind, files.last()) {
                let reached = last.start / folder.kind.unit_bytes();
                self.shared.given_up.insert((topic, queue_id), reached.cast_signed());
            }
            return remove_folder(&dir);
        }
        let file = |found: &SegmentFile| Arc::new(QueueFile::existing(&dir, found.start, found.len));
        let files = QueueFiles::found(files.iter().map(file).collect());
        let queue = Arc::new(ConsumeQueue::new(topic.clone(), queue_id, Arc::clone(folder), files));
        let mut queues = self.shared.topics.entry(topic).or_default();
        match queues.binary_search_by_key(&queue_id, |queue| queue.queue_id) {
            Ok(_) => tracing::warn!(dir = %dir.display(), "queue is there as plain and as batch queue"),
            Err(index) => queues.insert(index, queue),
        }
        Ok(())
    }
}

/// A queue on the disk.
struct FoundQueue {
    topic: Text,
    queue_id: i32,
    dir: PathBuf,
    files: Vec<SegmentFile>,
}

/// The size that most files have; the store's own, whatever the configuration says of new stores. A size that
/// does not fit units or the file's own name is damage.
fn usual_size(found: &[FoundQueue], unit_bytes: u64) -> Option<u64> {
    let mut sizes: BTreeMap<u64, usize> = BTreeMap::new();
    let fits = |file: &&SegmentFile| {
        file.len > 0 && file.len.is_multiple_of(unit_bytes) && file.start.is_multiple_of(file.len)
    };
    for file in found.iter().flat_map(|queue| &queue.files).filter(fits) {
        *sizes.entry(file.len).or_default() += 1;
    }
    sizes.into_iter().max_by_key(|(_, files)| *files).map(|(size, _)| size)
}

/// Why these files are no queue, if they are none.
fn misfit(files: &[SegmentFile], file_bytes: u64, unit_bytes: u64) -> Option<&'static str> {
    let is_row = files.windows(2).all(|pair| pair[0].start + file_bytes == pair[1].start);
    let is_aligned = files.first().is_none_or(|first| first.start.is_multiple_of(unit_bytes));
    if files.iter().any(|file| file.len != file_bytes) {
        Some("files of different size")
    } else if !is_row {
        Some("a file is missing")
    } else if !is_aligned || !file_bytes.is_multiple_of(unit_bytes) {
        Some("units do not fit the files")
    } else {
        None
    }
}

/// Whether a topic can be a folder below the queues and nothing else.
fn is_folder_name(topic: &str) -> bool {
    !matches!(topic, "" | "." | "..") && topic.len() <= 255 && !topic.contains(['/', '\0'])
}

/// Names of the folders in `dir`; none if it does not exist.
fn folders_of(dir: &Path) -> Result<Vec<String>, StoreError> {
    let entries = match faults::look(Op::Open, dir, || fs::read_dir(dir)) {
        Ok(entries) => entries,
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(cause) => return Err(StoreError::io("list", dir)(cause)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(StoreError::io("list", dir))?;
        let is_dir = entry.file_type().map_err(StoreError::io("inspect", &entry.path()))?.is_dir();
        match entry.file_name().into_string() {
            Ok(name) if is_dir && !name.ends_with(UNREADABLE) => names.push(name),
            _ => {}
        }
    }
    Ok(names)
}

/// Deletes a folder with all in it; one that is gone already is no failure.
fn remove_folder(dir: &Path) -> Result<(), StoreError> {
    match faults::pass(Op::Remove, dir, || fs::remove_dir_all(dir)) {
        Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => {
            Err(StoreError::io("delete", dir)(cause))
        }
        _ => Ok(()),
    }
}
