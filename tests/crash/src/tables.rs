//! Whether the tables know what they must.
//!
//! Invariants:
//! - every topic that was made is there, and no progress that was once on the disk goes back;
//! - of two generations of the offsets, the younger was taken when the older was on the disk already: it has every
//!   commit that was acknowledged before;
//! - after an orderly stop every commit is there.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::UNIX_EPOCH;

use troupemq_codec::request::ConsumerOffsetTable;
use troupemq_codec::topic::TopicConfigTable;
use troupemq_store::tables::TableFile;

use crate::Fault;
use crate::load::GROUP;
use crate::model::{Model, QueueKey};

/// Judges the tables in the copy of a store that was killed, and takes in what they say.
pub(crate) fn judge(store: &Path, copy: &Path, model: &mut Model) -> Result<(), Fault> {
    let (_, topics) = TableFile::<TopicConfigTable>::open(copy).map_err(Fault::of("the topics"))?;
    for topic in &model.topics {
        if !topics.topic_config_table.iter().any(|(name, _)| name.as_str() == topic) {
            return Err(Fault(format!("topic {topic} was made and is forgotten")));
        }
    }
    let saved = saved(copy)?;
    for (queue, before) in &model.progress {
        if saved.get(queue).is_none_or(|now| now < before) {
            return Err(Fault(format!("{queue:?}: {before} was saved, {:?} is", saved.get(queue))));
        }
    }
    has_commits(&saved, model, older_since(store))?;
    model.progress = saved;
    // What was not saved is forgotten with the broker.
    model.commits.clear();
    Ok(())
}

/// Whether a store that was closed has all that was acknowledged.
pub(crate) fn has_every_commit(store: &Path, model: &Model) -> Result<(), Fault> {
    has_commits(&saved(store)?, model, i64::MAX)
}

/// Whether every commit that was acknowledged before `until_ms` is in the table.
fn has_commits(saved: &BTreeMap<QueueKey, i64>, model: &Model, until_ms: i64) -> Result<(), Fault> {
    for (queue, commits) in &model.commits {
        let told = commits.iter().filter(|(at_ms, _)| *at_ms < until_ms);
        let Some((at_ms, wanted)) = told.max_by_key(|(_, offset)| *offset) else { continue };
        if saved.get(queue).is_none_or(|now| now < wanted) {
            let now = saved.get(queue);
            let what = format!("{wanted} was committed at {at_ms}, before a save at {until_ms} ended");
            return Err(Fault(format!("{queue:?}: {what}, and the save after it has {now:?}")));
        }
    }
    Ok(())
}

/// The progress of the group, as it is on the disk.
fn saved(store: &Path) -> Result<BTreeMap<QueueKey, i64>, Fault> {
    let (_, table) = TableFile::<ConsumerOffsetTable>::open(store).map_err(Fault::of("the offsets"))?;
    let mut saved = BTreeMap::new();
    for (key, offsets) in &table.offset_table {
        let Some(topic) = key.strip_suffix(GROUP).and_then(|topic| topic.strip_suffix('@')) else { continue };
        saved.extend(offsets.iter().map(|(queue_id, offset)| ((topic.to_owned(), *queue_id), *offset)));
    }
    Ok(saved)
}

/// When the older generation of the offsets was written (epoch ms), if there is a younger one; else long ago.
fn older_since(store: &Path) -> i64 {
    let file = |name| store.join("config").join(name);
    let older = std::fs::metadata(file("consumerOffset.json.bak")).and_then(|older| older.modified());
    let since = older.ok().and_then(|older| older.duration_since(UNIX_EPOCH).ok());
    match since.filter(|_| file("consumerOffset.json").is_file()) {
        Some(since) => i64::try_from(since.as_millis()).unwrap_or(0),
        None => i64::MIN,
    }
}
