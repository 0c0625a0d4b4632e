//! What slaves copy, and what tools ask about replication: GET_ALL_CONSUMER_OFFSET (43), GET_ALL_DELAY_OFFSET (45),
//! GET_ALL_MESSAGE_REQUEST_MODE (402), GET_BROKER_HA_STATUS (907), RESET_MASTER_FLUSH_OFFSET (908),
//! GET_BROKER_EPOCH_CACHE (1007). Topics and groups, which slaves copy too, are in `topic` and `groups`.
//!
//! Invariants:
//! - a table is told whole, as its owner has it at that moment.

use troupemq_codec::request::{HaStatus, ResetMasterFlushOffsetHeader};
use troupemq_codec::{Command, ResponseCode};

use super::clients::body;
use crate::assignment::AllModes;
use crate::cast::BrokerCast;
use crate::net::{Answer, Call, Refusal};
use crate::offsets::AllOffsets;
use crate::schedule::AllPlaces;

/// GET_ALL_CONSUMER_OFFSET.
pub async fn consumer_offsets(cast: &BrokerCast, _: &Call) -> Answer {
    let moment = cast.offsets.send(AllOffsets).await?;
    let laid_out = actix_rt::task::spawn_blocking(move || body(&moment.table())).await;
    laid_out.unwrap_or_else(|_| Err(Refusal::gone("the table of offsets")))
}

/// GET_ALL_DELAY_OFFSET.
pub async fn delay_offsets(cast: &BrokerCast, _: &Call) -> Answer {
    body(&cast.schedule.send(AllPlaces).await?)
}

/// GET_ALL_MESSAGE_REQUEST_MODE.
pub async fn request_modes(cast: &BrokerCast, _: &Call) -> Answer {
    body(&cast.assignments.send(AllModes).await?)
}

/// GET_BROKER_HA_STATUS: no slave follows this broker.
pub fn ha_status(cast: &BrokerCast, _: &Call) -> Answer {
    body(&HaStatus {
        master: cast.config.load().broker_id == 0,
        master_commit_log_max_offset: i64::try_from(cast.log.wrote_to()).unwrap_or(i64::MAX),
        ..HaStatus::default()
    })
}

/// RESET_MASTER_FLUSH_OFFSET: it means something to slaves alone; a master says yes, as in Java.
pub fn reset_master_flush_offset(cast: &BrokerCast, call: &Call) -> Answer {
    let header: ResetMasterFlushOffsetHeader = call.command.header()?;
    let broker_id = cast.config.load().broker_id;
    if broker_id != 0 {
        let offset = header.master_flush_offset;
        let remark = format!("offset {offset} has no use: broker {broker_id} follows no master");
        return Err(Refusal::new(ResponseCode::SYSTEM_ERROR, remark));
    }
    Ok(Command::response(ResponseCode::SUCCESS))
}

/// GET_BROKER_EPOCH_CACHE: epochs are counted by controllers, of which there is none.
pub fn epochs(_: &BrokerCast, _: &Call) -> Answer {
    Err(Refusal::new(ResponseCode::SYSTEM_ERROR, "this request only for controllerMode "))
}
