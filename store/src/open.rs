//! Opening and closing a store: one path, whatever happened before.
//!
//! Order: lock, checkpoint, log files, queues, end of the log, then what derives from the log is cut at that
//! end or told of what it misses. Closing goes the other way and takes the abort mark off last.
//!
//! Invariants:
//! - the mark `abort` stands from before the first change until everything is on the disk;
//! - a derived file that is damaged, missing or cannot be read is never a reason not to open;
//! - each part of an open store has one owner; what is shared is read-only or published.

#[cfg(test)]
mod crash_test;
#[cfg(test)]
mod fault_test;
mod floor;
#[cfg(test)]
mod floor_test;
#[cfg(test)]
mod golden_test;
#[cfg(test)]
mod keyless_test;
#[cfg(test)]
mod rot_test;
#[cfg(test)]
mod small_disk_test;
#[cfg(test)]
mod unreadable_test;

use std::path::Path;
use std::sync::Arc;

use troupemq_codec::topic::{TopicConfig, TopicConfigTable};

use crate::abort_mark::AbortMark;
use crate::checkpoint::{Checkpoint, CheckpointFile, Reached};
use crate::clock::Clock;
use crate::commit_log::flusher::{FlushWatch, LogFlusher};
use crate::commit_log::load::{LogFiles, load};
use crate::commit_log::recover::{
    Damage, Known, LogEnd, find_end, heads, once_on_disk, scan_start, sure_start, zero_tail,
};
use crate::commit_log::{CommitLog, LogParts};
use crate::config::StoreConfig;
use crate::consume_queue::{QueueTable, Trust};
use crate::dispatch::{DispatchFlushed, DispatchFlusher, DispatchWriter, FilterBits};
use crate::error::StoreError;
use crate::index::Durable;
use crate::local_time::LocalTime;
use crate::paths::{Paths, remove, sync_dir, without_unreadable};
use crate::poison::Poison;
use crate::preparer::{Preparer, Recipe};
use crate::process_lock::ProcessLock;
use crate::reader::{LogReader, Positions};
use crate::reaper::Reaper;
use crate::retention::{Keeper, Needed, SpaceGuard, disk_use};
use crate::segment::{Allocate, SegmentWriter};
use crate::segments::Segments;
use crate::tables::TableFile;

/// The parts of an open store.
#[derive(Debug)]
pub struct Opened {
    /// Write side of the log.
    pub log: CommitLog,
    /// Read side of the log.
    pub reader: LogReader,
    /// Flushes the log.
    pub flusher: LogFlusher,
    /// Writes consume queues and index.
    pub dispatch: DispatchWriter,
    /// Read side of the consume queues.
    pub queues: QueueTable,
    /// Lock, abort mark and checkpoint.
    pub marks: Marks,
    /// Unmaps and deletes segments.
    pub reaper: Reaper,
    /// Deletes what is too old.
    pub keeper: Keeper,
    /// Refuses writes while the disk is full.
    pub space: SpaceGuard,
    /// Says whether writing has ended for good.
    pub poison: Poison,
    /// The settings, with the sizes that the files have.
    pub config: StoreConfig,
    /// What the open has found and done.
    pub report: RecoveryReport,
    /// Stretches of the log whose records are lost, of what was checked.
    pub damages: Vec<Damage>,
}

/// What an open has found and done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The last user has closed the store.
    pub was_closed: bool,
    /// Offset of the first byte of the log.
    pub log_min: u64,
    /// Offset behind the last record.
    pub log_end: u64,
    /// What stands there.
    pub why: &'static str,
    /// Bytes of the log that hold no record any more, in front of others that do.
    pub damaged_bytes: u64,
    /// Records whose bytes were checked, from `checked_from` to the end.
    pub checked: u64,
    /// Where checking began.
    pub checked_from: u64,
    /// Records offered to the derived files, from `replayed_from` to the end.
    pub replayed: u64,
    /// Where that began.
    pub replayed_from: u64,
    /// Queues that lacked units, so that the whole log was read.
    pub was_rebuilt: bool,
    /// How long the open took.
    pub took_ms: u64,
}

/// Lock, abort mark and checkpoint of an open store.
#[derive(Debug)]
pub struct Marks {
    file: CheckpointFile,
    checkpoint: Checkpoint,
    abort: AbortMark,
    _lock: ProcessLock,
}

/// What has to come together to close a store.
#[derive(Debug)]
pub struct Closing {
    /// The log, which takes nothing more.
    pub log: CommitLog,
    /// Its flusher.
    pub flusher: LogFlusher,
    /// The dispatcher, with nothing left to do.
    pub dispatch: DispatchWriter,
    /// The queues.
    pub queues: QueueTable,
    /// Lock, abort mark and checkpoint.
    pub marks: Marks,
}

/// Opens the store in `config.dir`, or makes a new one there.
pub fn open(config: StoreConfig, clock: Arc<dyn Clock>) -> Result<Opened, StoreError> {
    open_with(config, clock, None)
}

/// The same; `filter_bits` are kept from the first message on that is replayed, if extensions are enabled.
pub fn open_with(
    config: StoreConfig,
    clock: Arc<dyn Clock>,
    filter_bits: Option<Box<dyn FilterBits>>,
) -> Result<Opened, StoreError> {
    let started = clock.nanos();
    config.check()?;
    let Found { paths, config, mut marks, queues, known, end, cut } = look(config)?;
    let segments = Arc::new(Segments::new(cut.kept));
    // After a crash the page cache may hold what the disk does not: the next flush covers it.
    let flushed_to = if known.was_closed { end.at } else { end.from.min(end.at) };
    let positions = Arc::new(Positions::at(end.at, flushed_to));
    let last_store_ms = end.last_store_ms.max(marks.checkpoint.log_time_ms);
    positions.set_store_ms(last_store_ms);
    let reader = LogReader::new(Arc::clone(&segments), Arc::clone(&positions), config.log_segment_bytes);
    let mut dispatch = DispatchWriter::open(&config, queues.clone(), durable(&known, &marks.checkpoint))?;
    if let Some(bits) = filter_bits {
        dispatch.keep_filter_bits(bits);
    }
    let replay = replay(&mut dispatch, (&queues, &reader), (&end, &known), &mut marks)?;
    let is_sure = known.was_closed && known.reached.is_some() && !replay.was_rebuilt;
    settle_offsets(&paths, &queues, reader.min_offset(), is_sure)?;

    let poison = Poison::default();
    let space = SpaceGuard::default();
    dispatch.guard_by(space.clone());
    // A full disk refuses writes, not the start: consumers get what there is.
    let _judged = space.judge(&config, disk_use(&config.dir)?);
    let recipe = Recipe::new(&paths, &config, space.clone());
    let log = CommitLog::new(LogParts {
        writer: cut.writer,
        preparer: Preparer::start(recipe)?,
        segments,
        positions: Arc::clone(&positions),
        poison: poison.clone(),
        space: space.clone(),
        flush: config.flush,
        last_store_ms,
    });
    let took_ms = clock.nanos().saturating_sub(started) / 1_000_000;
    let report = RecoveryReport::new(&known, &end, &replay, reader.min_offset(), took_ms);
    report.tell(&config.dir);
    let reaper = Reaper::start(&paths, reader.min_offset(), config.log_segment_bytes, config.recycled_max)?;
    let keeper = Keeper {
        dir: config.dir.clone(),
        reader: reader.clone(),
        queues: queues.clone(),
        index: dispatch.index().clone(),
        reaper: reaper.clone(),
        space: space.clone(),
        zone: LocalTime::of_machine(),
        needed: Needed::default(),
        expired_to: Arc::default(),
    };
    Ok(Opened {
        log,
        flusher: LogFlusher::new(reader.clone(), positions, poison.clone()),
        reader,
        dispatch,
        queues,
        marks,
        reaper,
        keeper,
        space,
        poison,
        config,
        report,
        damages: end.damages,
    })
}

/// What stands on the disk, with everything behind the end of the log removed.
struct Found {
    paths: Paths,
    config: StoreConfig,
    marks: Marks,
    queues: QueueTable,
    known: Known,
    end: LogEnd,
    cut: Cut,
}

fn look(config: StoreConfig) -> Result<Found, StoreError> {
    let paths = Paths::below(&config.dir);
    paths.create()?;
    let lock = ProcessLock::take(paths.root(), &paths.lock())?;
    let was_closed = !AbortMark::is_set(&paths.abort())?;
    let checkpoint = without_unreadable(paths.root(), || Checkpoint::read(&paths.checkpoint()))?;
    let files = load(&paths.commit_log(), config.log_segment_bytes)?;
    let config = StoreConfig { log_segment_bytes: files.segment_bytes, ..config };
    let abort = AbortMark::set(&paths.abort())?;
    let queues = QueueTable::load(&config)?;
    declare_batch_topics(&paths, &queues);
    let dispatched_to = queues.recover(if was_closed { Trust::Clean } else { Trust::Unclean })?;
    let known = Known {
        was_closed,
        reached: checkpoint.reached,
        dispatched_to,
        safe_time_ms: checkpoint.safe_time_ms(),
    };
    let heads = heads(&files.segments);
    let from = sure_start(&files.segments, scan_start(&heads, &known))?;
    let end = find_end(&files.segments, from, once_on_disk(&heads, &known))?;
    tell_of_loss(&known, &end);
    let cut = cut(&paths, files, &end, known)?;
    // Units of records that are lost are made anew as holes.
    queues.truncate(end.damages.first().map_or(end.at, |damage| damage.from))?;
    let file = CheckpointFile::at(paths.checkpoint());
    let marks = Marks { file, checkpoint, abort, _lock: lock };
    Ok(Found { paths, config, marks, queues, known, end, cut })
}

/// Says what the log had when the checkpoint was saved and has no more.
fn tell_of_loss(known: &Known, end: &LogEnd) {
    let Some(reached) = known.reached.filter(|reached| reached.flushed_to > end.at) else { return };
    let (had, has) = (reached.flushed_to, end.at);
    tracing::error!(had, has, "{} bytes of the log were on the disk once and are gone", had - has);
}

impl RecoveryReport {
    fn new(known: &Known, end: &LogEnd, replay: &Replay, log_min: u64, took_ms: u64) -> RecoveryReport {
        RecoveryReport {
            was_closed: known.was_closed,
            log_min,
            log_end: end.at,
            why: end.why,
            damaged_bytes: end.damages.iter().map(|damage| damage.to - damage.from).sum(),
            checked: end.records,
            checked_from: end.from,
            replayed: replay.records,
            replayed_from: replay.from,
            was_rebuilt: replay.was_rebuilt,
            took_ms,
        }
    }

    fn tell(&self, dir: &Path) {
        let RecoveryReport { was_closed, replayed, replayed_from, log_end, why, took_ms, .. } = *self;
        let dir = dir.display();
        if was_closed && replayed == 0 {
            tracing::info!(%dir, log_end, took_ms, "store opened as it was closed");
            return;
        }
        tracing::info!(
            %dir, was_closed, end = why, took_ms,
            "replayed {replayed} messages from {replayed_from} to {log_end}"
        );
    }
}

impl Marks {
    /// Has the disk take queues and index, and notes how far everything is there. Waits for the disk.
    pub fn save(
        &mut self,
        log: &FlushWatch,
        queues: &QueueTable,
        derived: &DispatchFlusher,
    ) -> Result<DispatchFlushed, StoreError> {
        // Counted before the flush: units that come meanwhile are not promised.
        let (count, units) = totals(queues);
        let reached = derived.flush()?;
        let time_ms = log.flushed_time_ms().max(self.checkpoint.log_time_ms);
        let flushed_to = log.flushed_to();
        self.checkpoint = Checkpoint {
            log_time_ms: time_ms,
            queue_time_ms: time_ms,
            index_time_ms: reached.index_time_ms.min(time_ms),
            confirmed_to: i64::try_from(flushed_to).unwrap_or(i64::MAX),
            reached: Some(Reached {
                dispatched_to: reached.dispatched_to.min(flushed_to),
                flushed_to,
                queues: count,
                units,
            }),
            ..self.checkpoint
        };
        self.file.save(&self.checkpoint)?;
        Ok(reached)
    }

    /// Notes that queues may lose units on purpose until the next save: who is killed meanwhile misses none.
    pub fn expect_loss(&mut self) -> Result<(), StoreError> {
        let unknown = |reached| Reached { queues: 0, units: 0, ..reached };
        self.checkpoint.reached = self.checkpoint.reached.map(unknown);
        self.file.save(&self.checkpoint)
    }

    /// Notes that queues and index are completed from further back than the checkpoint says. A start that is cut off
    /// on its way leaves the units of topics that were deleted and made again, which nothing tells from others: the
    /// next one has to go that way, too. One that cannot be noted, on a disk that is full, is no reason not to start.
    fn note_walk(&mut self, from: u64, to: u64) {
        let is_noted = |reached: &Reached| reached.dispatched_to.min(reached.flushed_to) <= from;
        if from >= to || self.checkpoint.reached.as_ref().is_some_and(is_noted) {
            return;
        }
        let flushed_to = self.saved_to().max(from);
        self.checkpoint.reached = Some(Reached { dispatched_to: from, flushed_to, queues: 0, units: 0 });
        if let Err(error) = self.file.save(&self.checkpoint) {
            tracing::warn!(%error, from, "a start that is cut off now may leave messages of deleted topics");
        }
    }

    /// How far the log was flushed when the checkpoint was saved last; 0 if that is not known.
    pub fn saved_to(&self) -> u64 {
        self.checkpoint.reached.map_or(0, |reached| reached.flushed_to)
    }

    /// What was saved last.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }
}

/// Closes the store: everything is on the disk, the next open replays nothing.
pub fn close(closing: Closing) -> Result<(), StoreError> {
    let Closing { log, mut flusher, dispatch, queues, mut marks } = closing;
    log.close();
    let flushed_to = flusher.flush()?;
    let dispatched_to = marks.save(&flusher.watch(), &queues, dispatch.flusher())?.dispatched_to;
    if dispatched_to < flushed_to {
        tracing::warn!(dispatched_to, flushed_to, "closed before all was dispatched: the next open replays");
        return Ok(());
    }
    marks.abort.clear()
}

/// Says which topics have batch queues, in case their files have to be made anew.
fn declare_batch_topics(paths: &Paths, queues: &QueueTable) {
    match TableFile::<TopicConfigTable>::open(paths.root()) {
        Ok((_, table)) => {
            let is_batch = |config: &TopicConfig| {
                config.attributes.get("queue.type").is_some_and(|kind| kind == "BatchCQ")
            };
            for (topic, _) in table.topic_config_table.iter().filter(|(_, config)| is_batch(config)) {
                queues.declare_batch(topic);
            }
        }
        // Whoever owns the table refuses to go on without it; the log does not depend on it.
        Err(error) => tracing::warn!(%error, "the table of topics cannot be read"),
    }
}

/// Finds where each queue begins and goes on, once its units are complete. A queue may be missing if that is not sure.
fn settle_offsets(paths: &Paths, queues: &QueueTable, log_min: u64, is_sure: bool) -> Result<(), StoreError> {
    if !is_sure {
        floor::keep_offsets(paths, queues)?;
    }
    correct_min(queues, log_min)?;
    go_on_at_the_end(queues);
    Ok(())
}

/// Moves the minimum of every queue behind what the log has lost.
fn correct_min(queues: &QueueTable, log_min: u64) -> Result<(), StoreError> {
    match queues.correct_min(log_min) {
        // Retention looks again; until then what the log has lost is passed over by who reads it.
        Err(error) if error.unreadable().is_some() => {
            tracing::warn!(%error, "the front of a queue cannot be read");
            Ok(())
        }
        corrected => corrected,
    }
}

/// The log gives out the offsets behind what the queues hold.
fn go_on_at_the_end(queues: &QueueTable) {
    for topic in queues.topics() {
        for queue in queues.of_topic(&topic) {
            queue.assign_next_offset(queue.max_offset());
        }
    }
}

/// Number of queues and the sum of the messages that can be read from them.
fn totals(queues: &QueueTable) -> (u64, u64) {
    let mut count = 0;
    let mut units = 0;
    for topic in queues.topics() {
        for queue in queues.of_topic(&topic) {
            // A queue without a message has no file to be missed.
            let (min, max) = (queue.min_offset(), queue.max_offset());
            count += u64::from(max > 0);
            units += u64::try_from(max - min).unwrap_or_default();
        }
    }
    (count, units)
}

/// The log's files, parted at its end.
struct Cut {
    kept: Vec<Arc<crate::segment::Segment>>,
    writer: SegmentWriter,
}

/// Publishes what is in front of the end and removes what is behind it.
fn cut(paths: &Paths, files: LogFiles, end: &LogEnd, known: Known) -> Result<Cut, StoreError> {
    let LogFiles { mut segments, segment_bytes } = files;
    // From the end on: a crash in between leaves no gap.
    while let Some(behind) = segments.pop_if(|last| last.segment().start() > end.at) {
        let path = behind.segment().path();
        tracing::info!(path = %path.display(), "segment behind the end of the log removed");
        remove(path)?;
    }
    let mut kept = Vec::new();
    let mut tail = None;
    for mut writer in segments {
        let segment = Arc::clone(writer.segment());
        if segment.end() <= end.at {
            writer.publish(segment.end());
            kept.push(segment);
        } else {
            writer.publish(end.at);
            kept.push(segment);
            tail = Some(writer);
        }
    }
    if let Some(mut writer) = tail {
        // What we closed ourselves is zero behind the end already.
        if !(known.was_closed && known.reached.is_some()) {
            zero_tail(&mut writer)?;
        }
        return Ok(Cut { kept, writer });
    }
    let writer = SegmentWriter::create(&paths.commit_log(), end.at, segment_bytes, Allocate::Now)?;
    writer.segment().sync()?;
    sync_dir(&paths.commit_log())?;
    kept.push(Arc::clone(writer.segment()));
    Ok(Cut { kept, writer })
}

/// What was offered to the derived files.
struct Replay {
    from: u64,
    records: u64,
    was_rebuilt: bool,
}

fn replay(
    dispatch: &mut DispatchWriter,
    (queues, reader): (&QueueTable, &LogReader),
    (end, known): (&LogEnd, &Known),
    marks: &mut Marks,
) -> Result<Replay, StoreError> {
    let (count, units) = totals(queues);
    let has_lost = !end.damages.is_empty()
        || known.reached.is_some_and(|reached| count < reached.queues || units < reached.units);
    let from = if has_lost { reader.min_offset() } else { end.from };
    let begins = |from| marks.note_walk(from, end.at);
    let rebuilt = dispatch.rebuild(reader, (from, end.at), &end.damages, begins)?;
    let was_rebuilt = has_lost || rebuilt.was_whole;
    if was_rebuilt {
        tracing::warn!(log_min = rebuilt.from, "queues lacked units: the whole log was read");
    }
    Ok(Replay { from: rebuilt.from, records: rebuilt.records, was_rebuilt })
}

/// Which entries of the index are on the disk.
fn durable(known: &Known, checkpoint: &Checkpoint) -> Durable {
    match known.reached {
        _ if known.was_closed => Durable::Everything,
        Some(reached) => Durable::Before(reached.dispatched_to),
        None => Durable::Until(checkpoint.index_time_ms),
    }
}
