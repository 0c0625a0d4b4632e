//! GET_BROKER_HA_STATUS (907): how far the slaves are.
//!
//! Invariants:
//! - the body of the answer is a [`HaStatus`].

use serde::{Deserialize, Serialize};

use crate::header::NoHeader;
use crate::request::{Direction, Request};
use crate::text::Text;

/// GET_BROKER_HA_STATUS.
pub struct GetBrokerHaStatus;

impl Request for GetBrokerHaStatus {
    const CODE: i32 = 907;
    const NAME: &'static str = "GET_BROKER_HA_STATUS";
    const TO: Direction = Direction::ClientToBroker;
    type Header = NoHeader;
    type Reply = NoHeader;
}

/// How replication goes (`HARuntimeInfo`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HaStatus {
    /// Of a slave.
    pub ha_client_runtime_info: HaClientStatus,
    /// Of a master: its slaves.
    pub ha_connection_info: Vec<HaConnectionStatus>,
    /// Slaves that keep up.
    pub in_sync_slave_nums: i32,
    /// Whether this is a master.
    pub master: bool,
    /// End of the master's log.
    pub master_commit_log_max_offset: i64,
}

/// The connection of a slave to its master; times in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HaClientStatus {
    /// The master.
    pub master_addr: Option<Text>,
    /// When something came last.
    pub last_read_timestamp: i64,
    /// When a report went out last.
    pub last_write_timestamp: i64,
    /// What the master has on disk.
    pub master_flush_offset: i64,
    /// End of the slave's log.
    pub max_offset: i64,
    /// Bytes a second.
    pub transferred_byte_in_second: i64,
}

/// A slave as its master sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HaConnectionStatus {
    /// `ip:port`.
    pub addr: Text,
    /// How far it is behind: bytes.
    pub diff: i64,
    /// Whether it keeps up.
    pub in_sync: bool,
    /// What it has reported.
    pub slave_ack_offset: i64,
    /// Where the transfer stands.
    pub transfer_from_where: i64,
    /// Bytes a second.
    pub transferred_byte_in_second: i64,
}
