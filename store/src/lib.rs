//! Floor 1 of TroupeMQ: the files of a broker, mapped and synchronous.
//!
//! Invariants:
//! - the commit log is the truth; every other file is derived from it and can be rebuilt;
//! - no actor, no runtime and no socket is known here;
//! - `unsafe` stands in `mmap.rs` alone.

pub mod clock;
pub mod config;
pub mod consume_queue;
pub mod dispatch;
pub mod error;
pub mod mmap;
pub mod segment;
pub mod segments;

pub use clock::{Clock, ManualClock, SystemClock};
pub use config::{FlushMode, StoreConfig};
pub use consume_queue::{ConsumeQueue, QueueKind, QueueTable, Unit};
pub use dispatch::DispatchWriter;
pub use error::StoreError;
