//! A message as JSON: what `--json` prints for each, whichever command found it.
//!
//! Invariants:
//! - a body that is text is told as text, any other as hexadecimal digits; exactly one of the two is there.

use std::collections::BTreeMap;

use serde::Serialize;
use troupemq::Received;

/// A message as JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Shown {
    pub(super) topic: String,
    pub(super) tag: Option<String>,
    pub(super) keys: Vec<String>,
    pub(super) message_id: String,
    pub(super) broker_name: String,
    pub(super) queue_id: i32,
    pub(super) queue_offset: i64,
    pub(super) log_offset: i64,
    pub(super) born_timestamp: i64,
    pub(super) store_timestamp: i64,
    pub(super) reconsume_times: i32,
    pub(super) properties: BTreeMap<String, String>,
    /// The body, if it is text.
    pub(super) body: Option<String>,
    /// The body, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) body_hex: Option<String>,
}

impl Shown {
    /// What there is to say of a message.
    pub(super) fn of(message: &Received) -> Shown {
        let body = std::str::from_utf8(message.body()).ok();
        let hex = || message.body().iter().map(|byte| format!("{byte:02x}")).collect();
        let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Shown {
            topic: message.topic().to_owned(),
            tag: message.tag().map(str::to_owned),
            keys: message.keys().map(str::to_owned).collect(),
            message_id: message.message_id(),
            broker_name: message.queue().broker_name.to_string(),
            queue_id: message.queue().queue_id,
            queue_offset: message.queue_offset(),
            log_offset: message.log_offset(),
            born_timestamp: message.born_timestamp_ms(),
            store_timestamp: message.store_timestamp_ms(),
            reconsume_times: message.reconsume_times(),
            properties: message.properties().map(own).collect(),
            body: body.map(str::to_owned),
            body_hex: body.is_none().then(hex),
        }
    }
}
