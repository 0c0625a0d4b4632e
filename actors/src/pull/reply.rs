//! The answer to a pull.
//!
//! Invariants:
//! - the four offsets stand in every answer that is not a refusal;
//! - the body follows the head as slices of the log.

use std::rc::Rc;

use troupemq_codec::command::Head;
use troupemq_codec::request::PullMessageReplyHeader;
use troupemq_codec::{Command, ResponseCode};
use troupemq_store::Pieces;

use crate::net::wire::Wire;
use crate::pull::Asked;
use crate::pull::check::Refused;
use crate::pull::read::Reading;
use crate::router::Served;

/// The broker a consumer is told to read from when it is far behind. Java: whichBrokerWhenConsumeSlowly.
const SLAVE: i64 = 1;

/// Writes what was found.
pub(crate) fn write(wire: &Rc<Wire>, asked: &Asked<'_>, reading: Reading) {
    if asked.is_oneway {
        return;
    }
    let header = PullMessageReplyHeader {
        suggested_broker_id: suggested(wire, &reading),
        next_offset: reading.next_offset,
        min_offset: reading.min_offset,
        max_offset: reading.max_offset,
        topic_sys_flag: Some(asked.topic.config.topic_sys_flag),
        group_sys_flag: Some(0),
        ..PullMessageReplyHeader::default()
    };
    let code = reading.status.code(asked.queue_offset);
    let status = reading.status.name();
    // Clients look at the code alone; the remark is for who looks why progress is not kept.
    let told = asked.not_kept.map(|why| format!("{status}; {why}"));
    let head = Head::answer(code, asked.opaque, asked.form).with_remark(told.as_deref().unwrap_or(status));
    let body_len = reading.pieces.iter().map(Pieces::len).sum();
    wire.write(|out| {
        header.encode_head(head, body_len, out.tail());
        reading.pieces.into_iter().for_each(|pieces| out.push_pieces(pieces));
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
