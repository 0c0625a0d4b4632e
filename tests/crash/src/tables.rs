//! Whether the tables know what they must.
//!
//! Invariants:
//! - every topic and every group that was made is there, none that was deleted, and no progress that was once on the
//!   disk goes back;
//! - of two generations of the offsets, the younger was taken when the older was on the disk already: it has every
//!   commit that was acknowledged before;
//! - of a table that is torn the generation before is taken, neither an older one nor none;
//! - after an orderly stop every commit is there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::UNIX_EPOCH;

use troupemq_codec::Text;
use troupemq_codec::group::SubscriptionGroupTable;
use troupemq_codec::loose_json::from_loose_trusted;
use troupemq_codec::request::ConsumerOffsetTable;
use troupemq_codec::topic::TopicConfigTable;
use troupemq_store::tables::{LightOffsetTable, Table, TableFile};

use crate::Fault;
use crate::load::GROUP;
use crate::load::light::LIGHT_GROUP;
use crate::model::{Model, QueueKey};

/// The tables of offsets: both are written with each save where there are light queues.
const OFFSETS: [&str; 2] = ["consumerOffset.json", "lmqConsumerOffset.json"];

/// Judges the tables in the copy of a store that was killed, and takes in what they say. Of the `torn` ones the
/// generation before is left.
pub(crate) fn judge(
    store: &Path,
    copy: &Path,
    model: &mut Model,
    torn: &BTreeSet<String>,
) -> Result<(), Fault> {
    let before = before(copy, torn).map_err(Fault::of("cannot read the generations before"))?;
    let (_, topics) = TableFile::<TopicConfigTable>::open(copy).map_err(Fault::of("the topics"))?;
    let knows = |topic: &String| topics.topic_config_table.iter().any(|(name, _)| name.as_str() == topic);
    if let Some(text) = before.get("topics.json") {
        model.topics.retain(|topic| text.contains(&format!("\"{topic}\"")));
        // An older table knows topics that were deleted since.
        model.gone.clear();
    }
    if let Some(topic) = model.gone.iter().find(|topic| knows(topic)) {
        return Err(Fault(format!("topic {topic} was deleted and is there")));
    }
    if let Some(topic) = model.topics.iter().find(|topic| !knows(topic)) {
        return Err(Fault(format!("topic {topic} was made and is forgotten")));
    }
    judge_groups(copy, model, before.get("subscriptionGroup.json"))?;
    let texts = OFFSETS.map(|table| before.get(table).map(String::as_str));
    let known = match texts {
        [None, None] => None,
        texts => Some(progress_of(copy, texts)?),
    };
    let saved = saved(copy)?;
    if let Some(known) = known {
        if saved != known {
            let what = format!("the table of offsets is torn, the one before has {known:?}");
            return Err(Fault(format!("{what}, and the start takes {saved:?}")));
        }
    } else {
        for (queue, before) in &model.progress {
            if saved.get(queue).is_none_or(|now| now < before) {
                return Err(Fault(format!("{queue:?}: {before} was saved, {:?} is", saved.get(queue))));
            }
        }
        has_commits(&saved, model, older_since(store))?;
    }
    model.progress = saved;
    // What was not saved is forgotten with the broker.
    model.commits.clear();
    Ok(())
}

/// The generations that are left of torn tables, by name. Read before the tables are opened, which puts things right.
fn before(copy: &Path, torn: &BTreeSet<String>) -> std::io::Result<BTreeMap<String, String>> {
    let read = |name: &String| {
        let bytes = std::fs::read(copy.join("config").join(format!("{name}.bak")))?;
        Ok((name.clone(), String::from_utf8_lossy(&bytes).into_owned()))
    };
    torn.iter().map(read).collect()
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

/// Whether every group that was made is there. Of a torn table the one `before` counts.
fn judge_groups(copy: &Path, model: &mut Model, before: Option<&String>) -> Result<(), Fault> {
    let (_, groups) = TableFile::<SubscriptionGroupTable>::open(copy).map_err(Fault::of("the groups"))?;
    if let Some(text) = before {
        model.groups.retain(|group| text.contains(&format!("\"{group}\"")));
    }
    for group in &model.groups {
        let config = groups.subscription_group_table.get(group.as_str());
        if config.is_none_or(|config| config.retry_max_times != 7) {
            return Err(Fault(format!("group {group} was made and is {config:?}")));
        }
    }
    Ok(())
}

/// The progress of the groups, as it is on the disk.
fn saved(store: &Path) -> Result<BTreeMap<QueueKey, i64>, Fault> {
    progress_of(store, [None, None])
}

/// The progress of the groups as the tables of a store say, or the text that is given in place of one.
fn progress_of(store: &Path, [plain, light]: [Option<&str>; 2]) -> Result<BTreeMap<QueueKey, i64>, Fault> {
    let plain: ConsumerOffsetTable = table(store, plain)?;
    let mut light: LightOffsetTable = table(store, light)?;
    let of_light = |key: &Text| key.strip_suffix(LIGHT_GROUP)?.strip_suffix('@').map(str::to_owned);
    let own = light.lmq_offset_table.iter().filter_map(|(key, offset)| Some(((of_light(key)?, 0), *offset)));
    let own: Vec<_> = own.collect();
    let mut saved = progress(&light.newer_of(plain));
    saved.extend(own);
    Ok(saved)
}

/// A table of a store, or what the text says.
fn table<T: Table>(store: &Path, text: Option<&str>) -> Result<T, Fault> {
    match text {
        Some(text) => from_loose_trusted(text.as_bytes()).map_err(Fault::of("the offsets of before")),
        None => TableFile::open(store).map(|(_, table)| table).map_err(Fault::of("the offsets")),
    }
}

fn progress(table: &ConsumerOffsetTable) -> BTreeMap<QueueKey, i64> {
    let mut saved = BTreeMap::new();
    for (key, offsets) in &table.offset_table {
        let Some(topic) = key.strip_suffix(GROUP).and_then(|topic| topic.strip_suffix('@')) else { continue };
        saved.extend(offsets.iter().map(|(queue_id, offset)| ((topic.to_owned(), *queue_id), *offset)));
    }
    saved
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
