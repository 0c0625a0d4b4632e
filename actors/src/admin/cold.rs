//! Reading of what is not in memory: UPDATE_COLD_DATA_FLOW_CTR_CONFIG (2001), REMOVE_COLD_DATA_FLOW_CTR_CONFIG (2002),
//! GET_COLD_DATA_FLOW_CTR_INFO (2003), SET_COMMITLOG_READ_MODE (2004).
//!
//! Invariants:
//! - limits are set all together or not at all.

use troupemq_codec::request::SetCommitlogReadModeHeader;
use troupemq_codec::{Command, ResponseCode, Text};

use super::clients::body;
use crate::cast::BrokerCast;
use crate::groups::table::check_name;
use crate::net::{Answer, Call, Refusal};
use crate::properties_text;

/// The kernel reads ahead. Java: `LibC.MADV_NORMAL`.
const NORMAL: &str = "0";
/// The kernel reads what it is asked for. Java: `LibC.MADV_RANDOM`.
const RANDOM: &str = "1";

/// UPDATE_COLD_DATA_FLOW_CTR_CONFIG.
pub fn limit(cast: &BrokerCast, call: &Call) -> Answer {
    let mut limits = Vec::new();
    for (group, bytes) in properties_text::parse(text(call)?) {
        check_name(&group)?;
        let bytes = bytes.parse::<i64>().ok().filter(|bytes| *bytes >= 0).ok_or_else(|| {
            let remark = format!("the limit of {group} is no number of bytes from 0 on: {bytes}");
            Refusal::new(ResponseCode::SYSTEM_ERROR, remark)
        })?;
        limits.push((Text::from(group), bytes));
    }
    for (group, bytes) in limits {
        cast.cold_flow.limit(group, bytes)?;
    }
    Ok(Command::response(ResponseCode::SUCCESS))
}

/// REMOVE_COLD_DATA_FLOW_CTR_CONFIG: a group without a limit is no error.
pub fn unlimit(cast: &BrokerCast, call: &Call) -> Answer {
    cast.cold_flow.unlimit(text(call)?);
    Ok(Command::response(ResponseCode::SUCCESS))
}

/// GET_COLD_DATA_FLOW_CTR_INFO.
pub fn info(cast: &BrokerCast, _: &Call) -> Answer {
    body(&cast.cold_flow.tell(&cast.config.load(), cast.now_ms()))
}

/// SET_COMMITLOG_READ_MODE: for the segments that there are; one that is made later reads ahead.
pub async fn read_mode(cast: &BrokerCast, call: &Call) -> Answer {
    let header: SetCommitlogReadModeHeader = call.command.header()?;
    let mode = header.read_ahead_mode;
    if mode != NORMAL && mode != RANDOM {
        let remark = format!("set commitlog readahead mode param value error: {mode} is neither 0 nor 1");
        return Err(Refusal::new(ResponseCode::INVALID_PARAMETER, remark));
    }
    let (segments, reads_ahead) = (cast.log.segments().snapshot(), mode == NORMAL);
    let advise = move || segments.iter().try_for_each(|segment| segment.mapping().read_ahead(reads_ahead));
    let advised = actix_rt::task::spawn_blocking(advise).await.map_err(|_| Refusal::gone("the reader"))?;
    advised.map_err(|error| {
        let remark = format!("set commitlog readahead mode failed: {error}");
        Refusal::new(ResponseCode::SYSTEM_ERROR, remark)
    })?;
    let remark = format!("set commitlog readahead mode success, mode: {mode}");
    Ok(Command::response(ResponseCode::SUCCESS).with_remark(remark))
}

fn text(call: &Call) -> Result<&str, Refusal> {
    std::str::from_utf8(&call.command.body)
        .map_err(|_| Refusal::new(ResponseCode::SYSTEM_ERROR, "the limits are no UTF-8"))
}
