//! CHECK_CLIENT_CONFIG (46): does a subscription compile?
//!
//! Invariants:
//! - Java clients ask only for subscriptions that are not plain tags;
//! - the body is a [`CheckClientBody`].

use serde::{Deserialize, Serialize};

use crate::header::NoHeader;
use crate::heartbeat_data::SubscriptionData;
use crate::request::{Direction, Request};
use crate::text::Text;

/// CHECK_CLIENT_CONFIG.
pub struct CheckClientConfig;

impl Request for CheckClientConfig {
    const CODE: i32 = 46;
    const NAME: &'static str = "CHECK_CLIENT_CONFIG";
    const TO: Direction = Direction::ClientToBroker;
    type Header = NoHeader;
    type Reply = NoHeader;
}

/// A subscription to check (`CheckClientRequestBody`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CheckClientBody {
    /// Who asks.
    pub client_id: Text,
    /// For which group.
    pub group: Text,
    /// Namespace of the client, mostly empty.
    pub namespace: Option<Text>,
    /// What is to be checked.
    pub subscription_data: SubscriptionData,
}
