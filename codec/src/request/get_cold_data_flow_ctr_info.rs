//! GET_COLD_DATA_FLOW_CTR_INFO (2003): these limits and what is read.
//!
//! Invariants:
//! - the body of the answer is JSON.

use crate::header::NoHeader;
use crate::request::{Direction, Request};

/// GET_COLD_DATA_FLOW_CTR_INFO.
pub struct GetColdDataFlowCtrInfo;

impl Request for GetColdDataFlowCtrInfo {
    const CODE: i32 = 2003;
    const NAME: &'static str = "GET_COLD_DATA_FLOW_CTR_INFO";
    const TO: Direction = Direction::ClientToBroker;
    type Header = NoHeader;
    type Reply = NoHeader;
}
