//! Floor 1 of TroupeMQ: the files of a broker, mapped and synchronous.
//!
//! Invariants:
//! - the commit log is the truth; every other file is derived from it and can be rebuilt;
//! - no actor, no runtime and no socket is known here;
//! - `unsafe` stands in `mmap.rs` alone.

pub mod abort_mark;
mod blocks;
pub mod checkpoint;
pub mod clock;
pub mod commit_log;
pub mod config;
pub mod consume_queue;
pub mod dispatch;
pub mod error;
pub mod faults;
pub mod index;
pub mod inspect;
pub mod json_file;
pub mod light;
pub mod local_time;
pub mod mmap;
mod no_wait;
pub mod open;
pub mod paths;
pub mod pieces;
pub mod poison;
mod preparer;
pub mod process_lock;
mod progress;
pub mod reader;
pub mod reaper;
pub mod retention;
mod seen;
pub mod segment;
pub mod segments;
pub mod tables;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod timer;

pub use clock::{Clock, ManualClock, SystemClock};
pub use commit_log::batch::{AppendBatch, PendingRecord};
pub use commit_log::flusher::LogFlusher;
pub use commit_log::numbering::{LightPlace, Numbered, Numbers};
pub use commit_log::{Appended, CommitLog};
pub use config::{FlushMode, StoreConfig};
pub use consume_queue::{ConsumeQueue, QueueKind, QueueTable, Unit};
pub use dispatch::DispatchWriter;
pub use error::StoreError;
pub use index::{IndexReader, KeyQuery};
pub use no_wait::Cold;
pub use open::{Closing, Marks, Opened, RecoveryReport, close, open, open_with};
pub use pieces::Pieces;
pub use reader::LogReader;
