//! REMOVE_COLD_DATA_FLOW_CTR_CONFIG (2002): removes such a limit.
//!
//! Invariants:
//! - the body is the name of the group.

use crate::header::NoHeader;
use crate::request::{Direction, Request};

/// REMOVE_COLD_DATA_FLOW_CTR_CONFIG.
pub struct RemoveColdDataFlowCtrConfig;

impl Request for RemoveColdDataFlowCtrConfig {
    const CODE: i32 = 2002;
    const NAME: &'static str = "REMOVE_COLD_DATA_FLOW_CTR_CONFIG";
    const TO: Direction = Direction::ClientToBroker;
    type Header = NoHeader;
    type Reply = NoHeader;
}
