//! Whether a store that was killed still holds what was acknowledged.
//!
//! Invariants:
//! - copies are judged, the store itself is only read: the broker is to recover it;
//! - every queue is without a gap, and each unit is what its record says;
//! - derived files are what a rebuild from the log makes, but for topics that were deleted: those it brings back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use troupemq_codec::message::batch;
use troupemq_store::{
    Closing, ConsumeQueue, KeyQuery, Opened, StoreConfig, SystemClock, close, inspect, light, open,
};

use crate::Fault;
use crate::again;
use crate::compare::{same_files, same_units};
use crate::later;
use crate::load::DECIDED;
use crate::load::gone::GONE;
use crate::model::{Model, Place, QueueKey, body, number_of};
use crate::power::Lost;
use crate::shared;
use crate::tables;
use crate::told::{self, Found};

/// What of a store is judged.
const PARTS: [&str; 9] = [
    "commitlog",
    "consumequeue",
    "consumequeue_ext",
    "batchconsumequeue",
    "index",
    "checkpoint",
    "abort",
    "config",
    "timerlog",
];
/// Every so many messages are looked up by their key.
const LOOKED_UP: usize = 23;

/// Looks at a store.
#[derive(Debug)]
pub(crate) struct Judge<'a> {
    pub(crate) store: &'a Path,
    /// Folder for copies.
    pub(crate) scratch: &'a Path,
    /// What a loss of power has taken.
    pub(crate) lost: Option<&'a Lost>,
    /// Whether the queues have an extension.
    pub(crate) extends: bool,
    /// Whether messages are in light queues too.
    pub(crate) is_light: bool,
}

impl Judge<'_> {
    /// Compares the store with the model, and forgets what may be gone. Answers what the next start finds.
    pub(crate) fn judge(&self, model: &mut Model) -> Result<Found, Fault> {
        let (recovered, rebuilt) = (self.copy("recovered")?, self.copy("rebuilt")?);
        let torn = self.lost.map(|lost| lost.torn.clone()).unwrap_or_default();
        tables::judge(self.store, &recovered, model, &torn)?;
        let opened = open(self.settings(&recovered), clock());
        let opened = opened.map_err(Fault::of("the store does not open"))?;
        let found = Found::counted(&rebuilt, &opened.report)?;
        let (log_min, log_end) = (opened.reader.min_offset(), opened.report.log_end);
        if let Some(lost) = self.lost {
            if log_end < lost.durable_to {
                let durable_to = lost.durable_to;
                return Err(Fault(format!("the log ends at {log_end}, {durable_to} was on the disk")));
            }
            model.durable_to = lost.durable_to;
            // What takes a message back may be lost with the rest.
            model.recalled.clear();
            model.keep(log_min..log_end);
            // What is lost in front of others that are kept was not on the disk either.
            for damage in opened.damages.iter().filter(|damage| damage.from >= lost.durable_to) {
                model.lose(damage.from..damage.to);
                model.has_holes = true;
            }
        }
        model.keep(log_min..u64::MAX);
        for (key, places) in &model.queues {
            holds(&opened, key, places.values())?;
        }
        for topic in opened.queues.topics() {
            for queue in opened.queues.of_topic(&topic) {
                match light::is_light(&topic) {
                    true => shared::is_whole(&opened, &queue, model)?,
                    false => is_whole(&opened, &queue, model.has_holes)?,
                }
                goes_on(&queue, model, self.lost.is_some())?;
            }
        }
        let may_miss = (log_min > 0, self.lost.is_some());
        judge_decisions(&opened, model, may_miss)?;
        shared::judge(&opened, model)?;
        again::judge(&opened, model, may_miss)?;
        later::judge(&opened, model, self.lost.is_none())?;
        let Opened { log, flusher, dispatch, queues, marks, .. } = opened;
        close(Closing { log, flusher, dispatch, queues, marks }).map_err(Fault::of("cannot close"))?;
        if told::has_log(&rebuilt) {
            inspect::rebuild(self.settings(&rebuilt), clock()).map_err(Fault::of("cannot rebuild"))?;
            self.same(&recovered, &rebuilt, log_min)?;
        }
        std::fs::remove_dir_all(self.scratch).map_err(Fault::of("cannot remove the copies"))?;
        Ok(found)
    }

    /// Whether the derived files of a store are those of a rebuild.
    fn same(&self, recovered: &Path, rebuilt: &Path, log_min: u64) -> Result<(), Fault> {
        if log_min > 0 || self.lost.is_some() {
            return same_units(recovered, rebuilt, log_min);
        }
        same_files(recovered, rebuilt, &["index"])?;
        // Where units stand in an extension depends on what was lost before, and so does the size of files: that of
        // most is kept, though a loss made them so short.
        match self.extends {
            true => same_units(recovered, rebuilt, log_min),
            false => same_files(recovered, rebuilt, &["batchconsumequeue", "consumequeue"]),
        }
    }

    /// A store that was closed opens without work, and has every progress that was acknowledged.
    pub(crate) fn closed(&self, model: &Model) -> Result<(), Fault> {
        let copy = self.copy("closed")?;
        tables::has_every_commit(&copy, model)?;
        let opened = open(self.settings(&copy), clock()).map_err(Fault::of("it does not open"))?;
        match (opened.report.was_closed, opened.report.replayed) {
            (true, 0) => Ok(()),
            _ => Err(Fault(format!("a store that was closed is recovered: {:?}", opened.report))),
        }
    }

    fn copy(&self, name: &str) -> Result<PathBuf, Fault> {
        let to = self.scratch.join(name);
        for part in PARTS {
            let from = self.store.join(part);
            copy(&from, &to.join(part)).map_err(Fault::of(format!("cannot copy {}", from.display())))?;
        }
        later::copy_wheel(self.store, &to)?;
        Ok(to)
    }

    /// The settings of the killed broker, as far as they bear on its files.
    fn settings(&self, dir: &Path) -> StoreConfig {
        StoreConfig {
            log_segment_bytes: 262_144,
            queue_file_bytes: 12_000,
            queue_extension_file_bytes: 4_096,
            queue_extension_enabled: self.extends,
            batch_queue_file_bytes: 4_600,
            light_queues_enabled: self.is_light,
            multi_dispatch_enabled: self.is_light,
            index_slots_max: 500,
            index_entries_max: 2_000,
            delay_levels: "1s 2s 3s".to_owned(),
            timer_log_file_bytes: 5_216,
            timer_precision_ms: 100,
            disk_free_floor_bytes: 0,
            disk_full_percent: 100,
            ..StoreConfig::in_dir(dir)
        }
    }
}

fn clock() -> Arc<SystemClock> {
    Arc::new(SystemClock::new())
}

/// Copies a file, or a folder with all in it; nothing if it is not there.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    if !from.try_exists()? {
        return Ok(());
    }
    if let Some(above) = to.parent() {
        std::fs::create_dir_all(above)?;
    }
    if !from.is_dir() {
        return std::fs::copy(from, to).map(drop);
    }
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Whether the messages are at their places, with their bodies, and found by their keys.
fn holds<'a>(
    opened: &Opened,
    (topic, queue_id): &QueueKey,
    places: impl Iterator<Item = &'a Place>,
) -> Result<(), Fault> {
    for (count, place) in places.enumerate() {
        let lost = |why: &str| Fault(format!("{topic} {queue_id}: {place:?} was acknowledged, and {why}"));
        let queue = opened.queues.get(topic, *queue_id).ok_or_else(|| lost("its queue is gone"))?;
        let unit = queue.unit(place.queue_offset).ok_or_else(|| lost("it has no unit"))?;
        if unit.log_offset != place.log_offset {
            return Err(lost(&format!("its place is taken by {unit:?}")));
        }
        if (unit.queue_offset, unit.next_offset()) != (place.queue_offset, place.next_offset()) {
            return Err(lost(&format!("{unit:?} counts otherwise")));
        }
        let is_there = opened.reader.record_at(place.log_offset, |record| {
            has_bodies(record.body(), place) && record.topic() == topic && record.body_is_intact()
        });
        match is_there {
            Some(true) => {}
            Some(false) => return Err(lost("its record is another one")),
            None => return Err(lost("it has no record")),
        }
        if count % LOOKED_UP == 0 {
            let key = format!("k{}", place.number);
            let query = KeyQuery { topic, key: &key, max: 64, begin_ms: 0, end_ms: i64::MAX };
            let found = opened.dispatch.index().query(&query).map_err(Fault::of("cannot read the index"))?;
            if !found.contains(&place.log_offset) {
                return Err(lost("its key is not in the index"));
            }
        }
    }
    Ok(())
}

/// Whether a record's body is that of the message, or of the messages of the batch.
fn has_bodies(stored: &[u8], place: &Place) -> bool {
    let Some(count) = place.batch else { return stored == body(place.number) };
    let sent = (place.number..).take(usize::try_from(count).unwrap_or(0)).map(body);
    let items = batch::items(stored).map(|item| item.map(|item| item.body.to_vec()).unwrap_or_default());
    items.eq(sent)
}

/// Whether a queue goes on where it ended when it was last looked at; after a loss of power it may have lost, and a
/// group that was further goes back to its end.
fn goes_on(queue: &ConsumeQueue, model: &mut Model, may_have_lost: bool) -> Result<(), Fault> {
    if queue.topic().starts_with(GONE) {
        return Ok(());
    }
    let now = (queue.min_offset(), queue.max_offset());
    let key = (queue.topic().to_string(), queue.queue_id());
    if let Some(progress) = model.progress.get_mut(&key).filter(|_| may_have_lost) {
        *progress = now.1.min(*progress);
    }
    let before = model.reached.insert(key, now);
    match before {
        Some((min, max)) if !may_have_lost && (now.0 < min || now.1 < max) => Err(Fault(format!(
            "{} {}: it went from {min} to {max} and goes from {} to {} now",
            queue.topic(),
            queue.queue_id(),
            now.0,
            now.1
        ))),
        _ => Ok(()),
    }
}

/// Whether a queue has every unit from its minimum to its end, each of its own record or a hole where one may be.
fn is_whole(opened: &Opened, queue: &ConsumeQueue, may_have_holes: bool) -> Result<(), Fault> {
    let mut expected = queue.min_offset();
    let max = usize::try_from(queue.max_offset() - expected).unwrap_or(0);
    let wrong = |what: String| Fault(format!("{} {}: {what}", queue.topic(), queue.queue_id()));
    for unit in queue.units(expected, max) {
        let extension = queue.extension_unit(unit.queue_offset);
        let is_of_record = opened.reader.record_at(unit.log_offset, |record| {
            // An extension may have lost what it had, and never has anything of another message.
            let has_own = extension.is_none_or(|own| own.store_timestamp_ms == record.store_timestamp_ms());
            record.queue_offset() == unit.queue_offset && record.topic() == queue.topic().as_str() && has_own
        });
        let is_right = is_of_record == Some(true) || may_have_holes && unit.is_hole();
        if unit.queue_offset != expected || !is_right {
            return Err(wrong(format!("at {expected} stands {unit:?}, its record fits: {is_of_record:?}")));
        }
        expected = unit.next_offset();
    }
    match expected == queue.max_offset() {
        true => Ok(()),
        false => Err(wrong(format!("units end at {expected} of {}", queue.max_offset()))),
    }
}

/// Whether what was committed is there, once, and what was rolled back is not. A loss of power may have taken some.
fn judge_decisions(
    opened: &Opened,
    model: &mut Model,
    (has_expired, may_have_lost): (bool, bool),
) -> Result<(), Fault> {
    let there = numbers_in(opened, DECIDED);
    if let Some(number) = model.rolled_back.iter().find(|number| there.contains_key(number)) {
        return Err(Fault(format!("message {number} was not committed and is there")));
    }
    if may_have_lost {
        model.committed.retain(|number| there.contains_key(number));
    } else if let Some((number, times)) = there.iter().find(|(_, times)| **times > 1) {
        return Err(Fault(format!("message {number} was committed once and is there {times} times")));
    }
    match model.committed.iter().find(|number| !there.contains_key(number)) {
        Some(number) if !has_expired => {
            Err(Fault(format!("message {number} was committed and is not there")))
        }
        _ => Ok(()),
    }
}

/// Numbers of the messages in a topic, and how often each is there.
pub(crate) fn numbers_in(opened: &Opened, topic: &str) -> BTreeMap<u64, u32> {
    let mut numbers = BTreeMap::new();
    for queue in opened.queues.of_topic(topic) {
        for unit in queue.units(queue.min_offset(), usize::MAX).filter(|unit| !unit.is_hole()) {
            let number = opened.reader.record_at(unit.log_offset, |record| number_of(record.body()));
            if let Some(number) = number.flatten() {
                *numbers.entry(number).or_default() += 1;
            }
        }
    }
    numbers
}
