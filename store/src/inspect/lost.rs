//! What a table has lost with its newest generation and the store still shows.
//!
//! Invariants:
//! - a topic that is not in a whole table was deleted: nothing is told of it;
//! - topics of the broker itself are made at each start, light queues have no topic.

use std::collections::BTreeMap;
use std::path::Path;

use troupemq_codec::loose_json::from_loose_trusted;
use troupemq_codec::topic::TopicConfigTable;

use super::tables::StoredTable;
use super::{Finding, finding, list_names};
use crate::dispatch::SCHEDULE_TOPIC;
use crate::error::StoreError;
use crate::json_file::JsonFile;
use crate::light;
use crate::paths::{Paths, UNREADABLE};
use crate::tables::Table;

/// Fronts of the names of topics of the broker itself.
const SYSTEM: [&str; 4] = ["rmq_sys_", "RMQ_SYS_", "TRANS_CHECK_MAX_TIME_TOPIC", SCHEDULE_TOPIC];

/// Tells of tables that cannot be read, and of the topics that the next start makes anew.
pub(super) fn check(
    paths: &Paths,
    tables: &[StoredTable],
    tell: &mut dyn FnMut(Finding),
) -> Result<(), StoreError> {
    for (at, table) in tables.iter().enumerate() {
        let Err(why) = &table.content else { continue };
        let older = tables.get(at + 1).filter(|older| is_older(&older.file, &table.file));
        let what = match older {
            Some(_) => format!("the table cannot be read ({why}), the next start takes the one before it"),
            None => format!("the table cannot be read ({why}), and there is no other"),
        };
        let heals = older.is_some_and(|older| older.content.is_ok());
        tell(finding(&paths.root().join(&table.file), 0, &what, heals));
    }
    let file = paths.config().join(TopicConfigTable::FILE);
    let is_damaged = tables.iter().any(|table| file.ends_with(&table.file) && table.content.is_err());
    // One that was put aside by a start that saved none since has an older one beside it.
    let has_older = tables.iter().any(|table| is_older(&table.file, &file));
    let was_put_aside = has_older && JsonFile::at(file.clone()).has_lost()?;
    if !is_damaged && !was_put_aside {
        return Ok(());
    }
    let topics = known(&file, tables);
    for (topic, queues) in shown(paths)? {
        if topics.topic_config_table.get(topic.as_str()).is_some_and(|known| known.read_queue_nums >= queues)
        {
            continue;
        }
        let what = format!(
            "topic {topic} has {queues} queues and the table does not know them: the next start makes it anew, \
             with other settings if it had any"
        );
        tell(finding(&file, 0, &what, true));
    }
    Ok(())
}

fn is_older(older: &Path, newer: &Path) -> bool {
    older.file_stem() == newer.file_name()
}

/// The table of topics that the next start takes.
fn known(file: &Path, tables: &[StoredTable]) -> TopicConfigTable {
    let is_of = |table: &&StoredTable| file.ends_with(&table.file) || is_older(&table.file, file);
    let content = tables.iter().filter(is_of).find_map(|table| table.content.as_ref().ok());
    let parsed = content.map(|content| from_loose_trusted(content.to_string().as_bytes()));
    parsed.and_then(Result::ok).unwrap_or_default()
}

/// The topics that have queues, and how many at least.
fn shown(paths: &Paths) -> Result<BTreeMap<String, i32>, StoreError> {
    let mut shown = BTreeMap::new();
    for root in [paths.consume_queue(), paths.batch_consume_queue()] {
        for topic in list_names(&root)? {
            let is_own = SYSTEM.iter().any(|front| topic.starts_with(front));
            if is_own || light::is_light(&topic) || topic.ends_with(UNREADABLE) {
                continue;
            }
            let ids = list_names(&root.join(&topic))?;
            let last = ids.iter().filter_map(|id| id.parse::<i32>().ok()).max();
            if let Some(last) = last {
                let queues: &mut i32 = shown.entry(topic).or_default();
                *queues = (*queues).max(last.saturating_add(1));
            }
        }
    }
    Ok(shown)
}
