//! The answer to a pull.
//!
//! Invariants:
//! - the four offsets stand in every answer that is not a refusal;
//! - the body follows the head as slices of the log.

use std::rc::Rc;

use troupemq_codec::command::Head;
use troupemq_codec::request::PullMessageReplyHeader;
use troupemq_codec::{Command, ResponseCode};

use crate::net::wire::Wire;
use crate::pull::Parcel;
use crate::pull::check::Refused;
use crate::pull::read::Reading;
use crate::router::Served;

/// The broker a consumer is told to read from when it is far behind. Java: whichBrokerWhenConsumeSlowly.
const SLAVE: i64 = 1;

/// Writes what was found.
pub(crate) fn write(wire: &Rc<Wire>, parcel: &Parcel, reading: Reading) {
    if parcel.request.is_oneway() {
        return;
    }
    let header = PullMessageReplyHeader {
        suggested_broker_id: suggested(wire, &reading),
        next_offset: reading.next_offset,
        min_offset: reading.min_offset,
        max_offset: reading.max_offset,
        topic_sys_flag: Some(parcel.topic.config.topic_sys_flag),
        group_sys_flag: Some(0),
        ..PullMessageReplyHeader::default()
    };
    let (code, request) = (reading.status.code(parcel.header.queue_offset), &parcel.request);
    let status = reading.status.name();
    // Clients look at the code alone; the remark is for who looks why progress is not kept.
    let told = parcel.not_kept.as_ref().map(|why| format!("{status}; {why}"));
    let remark = told.as_deref().unwrap_or(status);
    let head = Head::answer(code, request.opaque, request.form).with_remark(remark);
    let body_len = reading.slices.iter().map(bytes::Bytes::len).sum();
    wire.write(|out| {
        header.encode_head(head, body_len, out.tail());
        reading.slices.into_iter().for_each(|slice| out.push(slice));
    });
}

/// Writes why the pull is refused.
pub(crate) fn refuse(wire: &Rc<Wire>, request: &Command, refused: Refused) {
    if request.is_oneway() {
        return;
    }
    let Refused { refusal, forbidden_type } = refused;
    let mut answer = Command::response(refusal.code).with_remark(refusal.remark);
    if refusal.code == ResponseCode::NO_PERMISSION
        && let Some(kind) = forbidden_type
    {
        answer.fields.push(FORBIDDEN_TYPE, kind.to_string());
    }
    wire.write_command(&answer.answering(request));
}

/// The key of `forbidden_type`: the other fields of the header have no meaning in a refusal.
const FORBIDDEN_TYPE: &str = "forbiddenType";

fn suggested(wire: &Wire, reading: &Reading) -> i64 {
    let Served::Broker(cast) = &wire.served else { return 0 };
    if cast.config.load().slave_read_enable && reading.is_far { SLAVE } else { 0 }
}
