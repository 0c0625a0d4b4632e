//! The tables of a broker beside its messages: the files of `config`, in Java's layout.
//!
//! Invariants:
//! - each table has one owner, who opens it once and saves it whole;
//! - a save returns when the disk has the table;
//! - integer keys are read with and without quotes, and written without, as Java does;
//! - what this version does not know of an entry is saved again as it was read, as long as the entry lives.
//!
//! | file | type |
//! |---|---|
//! | `topics.json` | `TopicConfigTable` of the codec |
//! | `subscriptionGroup.json` | `SubscriptionGroupTable` of the codec |
//! | `consumerOffset.json` | `ConsumerOffsetTable` of the codec |
//! | `delayOffset.json` | `DelayOffsetTable` of the codec |
//! | `messageRequestMode.json` | `RequestModeTable` of the codec |
//! | `topicQueueMapping.json` | [`TopicQueueMappingTable`] |
//! | `consumerFilter.json` | [`ConsumerFilterTable`] |
//! | `lmqConsumerOffset.json` | [`LightOffsetTable`] |
//! | `consumerOrderInfo.json` | [`ConsumerOrderTable`] |
//! | `timermetrics`, `transactionMetrics` | [`TimerMetricsTable`], [`TransactionMetricsTable`] |

mod consumer_filter;
mod consumer_order;
mod layout;
mod light_offset;
mod metrics;
mod queue_mapping;
mod unknown;

#[cfg(test)]
mod golden_test;

use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use troupemq_codec::group::SubscriptionGroupTable;
use troupemq_codec::loose_json::{from_loose_trusted, to_fastjson, to_standard};
use troupemq_codec::request::{ConsumerOffsetTable, DelayOffsetTable, RequestModeTable};
use troupemq_codec::topic::TopicConfigTable;

use self::unknown::Unknown;
use crate::error::StoreError;
use crate::json_file::JsonFile;
use crate::paths::Paths;

pub use self::consumer_filter::{ConsumerFilter, ConsumerFilterTable, TopicFilters};
pub use self::consumer_order::{ConsumerOrder, ConsumerOrderTable};
pub use self::light_offset::LightOffsetTable;
pub use self::metrics::{Metric, TimerMetricsTable, TransactionMetricsTable};
pub use self::queue_mapping::TopicQueueMappingTable;

/// A value that is kept in a file of its own.
pub trait Table: Serialize + DeserializeOwned + Default {
    /// Name of the file in `config`.
    const FILE: &'static str;
    /// How it is written.
    const FORM: Form = Form::Pretty;
    /// Fields that Java writes and never reads: they follow from the others.
    const DERIVED: &'static [&'static str] = &[];
}

/// How a table is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// One entry a line.
    Pretty,
    /// All on one line, in ASCII.
    Compact,
}

/// The file of a table; clones write the same file.
#[derive(Debug)]
pub struct TableFile<T> {
    file: JsonFile,
    unknown: Arc<Unknown>,
    table: PhantomData<fn(T)>,
}

impl<T> Clone for TableFile<T> {
    fn clone(&self) -> TableFile<T> {
        TableFile { file: self.file.clone(), unknown: Arc::clone(&self.unknown), table: PhantomData }
    }
}

impl<T: Table> TableFile<T> {
    /// Reads the table of the store in `store_dir`; a table that was never saved is the default one.
    ///
    /// Fails if only a damaged generation is left.
    pub fn open(store_dir: &Path) -> Result<(TableFile<T>, T), StoreError> {
        let file = JsonFile::at(Paths::below(store_dir).config().join(T::FILE));
        let both = file
            .load_with(|bytes| Ok((from_loose_trusted::<T>(bytes)?, from_loose_trusted::<Value>(bytes)?)))?;
        let (table, unknown) = match both {
            Some((table, raw)) => {
                let unknown = Unknown::of(&raw, &to_value(&table), T::DERIVED);
                (table, unknown)
            }
            None => (T::default(), Unknown::default()),
        };
        Ok((TableFile { file, unknown: Arc::new(unknown), table: PhantomData }, table))
    }

    /// Whether the newest generation is lost, so that the table may lack what it had: see [`JsonFile::has_lost`].
    pub fn has_lost(&self) -> Result<bool, StoreError> {
        self.file.has_lost()
    }

    /// The bytes of the file for this table: what [`TableFile::write`] takes, on a thread that may wait.
    pub fn encode(&self, table: &T) -> Vec<u8> {
        if self.unknown.is_empty() {
            return form::<T>(table);
        }
        let mut value = to_value(table);
        self.unknown.put_back(&mut value);
        form::<T>(&value)
    }

    /// Makes the bytes of [`TableFile::encode`] the newest generation; returns when the disk has it.
    pub fn write(&self, bytes: &[u8]) -> Result<(), StoreError> {
        self.file.save(bytes)
    }

    /// Makes `table` the newest generation; returns when the disk has it.
    pub fn save(&self, table: &T) -> Result<(), StoreError> {
        self.write(&self.encode(table))
    }
}

/// Writes a table as Java does: one entry a line, tabs, integer keys without quotes.
pub fn to_pretty<T: Serialize>(table: &T) -> Vec<u8> {
    layout::lay_out(&to_fastjson(table))
}

fn form<T: Table>(value: &impl Serialize) -> Vec<u8> {
    match T::FORM {
        Form::Pretty => to_pretty(value),
        Form::Compact => to_standard(value),
    }
}

fn to_value(table: &impl Serialize) -> Value {
    serde_json::to_value(table).expect("tables serialize without errors of their own")
}

impl Table for TopicConfigTable {
    const FILE: &'static str = "topics.json";
}

impl Table for SubscriptionGroupTable {
    const FILE: &'static str = "subscriptionGroup.json";
}

impl Table for ConsumerOffsetTable {
    const FILE: &'static str = "consumerOffset.json";
    const DERIVED: &'static [&'static str] = &["groupTopicMap"];
}

impl Table for DelayOffsetTable {
    const FILE: &'static str = "delayOffset.json";
}

impl Table for RequestModeTable {
    const FILE: &'static str = "messageRequestMode.json";
}
