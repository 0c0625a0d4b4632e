//! `timermetrics` and `transactionMetrics`: messages that wait, by their real topic (RocketMQ: `TimerMetrics`,
//! `TransactionMetrics`).
//!
//! Invariants:
//! - both files hold one line in ASCII and have no ending in their names.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use troupemq_codec::Text;
use troupemq_codec::topic::DataVersion;

use super::{Form, Table};

/// Timer messages that wait.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TimerMetricsTable {
    /// Of the whole table.
    pub data_version: DataVersion,
    /// By topic.
    pub timing_count: BTreeMap<Text, Metric>,
}

impl Table for TimerMetricsTable {
    const FILE: &'static str = "timermetrics";
    const FORM: Form = Form::Compact;
}

/// Half messages that wait.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TransactionMetricsTable {
    /// Of the whole table.
    pub data_version: DataVersion,
    /// By topic.
    pub transaction_count: BTreeMap<Text, Metric>,
}

impl Table for TransactionMetricsTable {
    const FILE: &'static str = "transactionMetrics";
    const FORM: Form = Form::Compact;
}

/// One count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metric {
    /// Messages that wait.
    pub count: i64,
    /// When it changed last, epoch ms.
    pub time_stamp: i64,
}
