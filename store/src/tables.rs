//! The tables of a broker beside its messages: `config/*.json`, in Java's layout.
//!
//! Invariants:
//! - a save returns when the disk has the table;
//! - both integer keys with and without quotes are read; Java's own form, without, is written.

mod layout;

use serde::Serialize;
use troupemq_codec::loose_json::to_fastjson;

/// Writes a table as Java does: one entry a line, tabs, integer keys without quotes.
pub fn to_pretty<T: Serialize>(table: &T) -> Vec<u8> {
    layout::lay_out(&to_fastjson(table))
}
