//! UPDATE_COLD_DATA_FLOW_CTR_CONFIG (2001): limits how much old data groups may read.
//!
//! Invariants:
//! - the body is lines of `group=bytes`.

use crate::header::NoHeader;
use crate::request::{Direction, Request};

/// UPDATE_COLD_DATA_FLOW_CTR_CONFIG.
pub struct UpdateColdDataFlowCtrConfig;

impl Request for UpdateColdDataFlowCtrConfig {
    const CODE: i32 = 2001;
    const NAME: &'static str = "UPDATE_COLD_DATA_FLOW_CTR_CONFIG";
    const TO: Direction = Direction::ClientToBroker;
    type Header = NoHeader;
    type Reply = NoHeader;
}
