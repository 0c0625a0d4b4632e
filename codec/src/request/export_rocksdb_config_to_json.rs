//! EXPORT_ROCKSDB_CONFIG_TO_JSON (355): writes Java's settings database out as JSON.
//!
//! Invariants:
//! - settings are JSON here.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which settings.
    pub struct ExportRocksdbConfigToJsonHeader {
        config_type: Option<Text> = "configType",
    }
}

/// EXPORT_ROCKSDB_CONFIG_TO_JSON.
pub struct ExportRocksdbConfigToJson;

impl Request for ExportRocksdbConfigToJson {
    const CODE: i32 = 355;
    const NAME: &'static str = "EXPORT_ROCKSDB_CONFIG_TO_JSON";
    const TO: Direction = Direction::ClientToBroker;
    type Header = ExportRocksdbConfigToJsonHeader;
    type Reply = NoHeader;
}
