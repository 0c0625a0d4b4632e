//! The answers to sends.
//!
//! Invariants:
//! - every answer carries the region and whether to trace; one that stored carries the whole header, because
//!   clients read it without asking whether it is there;
//! - the message id is the address of the record: who asks this broker for it gets the message.

use bytes::BytesMut;
use troupemq_codec::command::Head;
use troupemq_codec::message::receipt_handle::{HandleLetters, RecallHandles};
use troupemq_codec::request::{SendReply, StoredAt, StoredUsually};
use troupemq_codec::sent::Stored;
use troupemq_codec::{HeaderForm, ResponseCode, Sent};
use troupemq_store::{AppendBatch, PendingRecord};

use crate::cast::BrokerCast;
use crate::commit_log::Outcome;
use crate::net::Refusal;
use crate::send::bench::{Placed, UniqKey};

/// Most bytes of the id of a record, and a comma.
const ID_BYTES: usize = 57;
/// What every send of a batch has.
const TAKEN_IN: &str = "a send that was taken in has a record";

/// How safely a send of a batch that is done is stored, or why it is not.
fn code<'a>(place: &Placed, outcome: &'a Outcome) -> Result<ResponseCode, &'a Refusal> {
    match outcome {
        Outcome::Stored => Ok(ResponseCode::SUCCESS),
        Outcome::NotFlushedInTime => Ok(ResponseCode::FLUSH_DISK_TIMEOUT),
        Outcome::StoredInPart(stored, _) if place.records.end <= *stored => Ok(ResponseCode::SUCCESS),
        Outcome::StoredInPart(_, refusal) | Outcome::Refused(refusal) => Err(refusal),
    }
}

/// Gives the ids of its records to `tell`, as a text.
fn with_ids<T>(cast: &BrokerCast, records: &[PendingRecord], tell: impl FnOnce(&str) -> T) -> T {
    if let [one] = records {
        return tell(cast.message_ids.of(one.log_offset).as_str());
    }
    let mut ids = Vec::with_capacity(records.len() * ID_BYTES);
    for record in records {
        if !ids.is_empty() {
            ids.push(b',');
        }
        ids.extend_from_slice(cast.message_ids.of(record.log_offset).as_bytes());
    }
    tell(str::from_utf8(&ids).expect("ids are hexadecimal digits"))
}

/// A batch that is done.
#[derive(Clone, Copy)]
pub(super) struct Finished<'a> {
    pub(super) batch: &'a AppendBatch,
    pub(super) outcome: &'a Outcome,
    /// The handles of its timers.
    pub(super) handles: &'a RecallHandles,
}

impl<'a> Finished<'a> {
    /// The handle of a send, if it has one.
    fn handle_of(&self, place: &Placed) -> Option<HandleLetters<'a>> {
        place.recall.clone().map(|at| self.handles.get(at))
    }
}

/// The answer to one send of a batch that is done, for somebody in this process.
pub(super) fn sent(cast: &BrokerCast, place: Placed, finished: Finished<'_>) -> Sent {
    let Finished { batch, outcome, .. } = finished;
    let handle = finished.handle_of(&place).map(text_of);
    let code = match code(&place, outcome) {
        Ok(code) => code,
        Err(why) => return refusal(why),
    };
    let records = &batch.records[place.records];
    let first = records.first().expect(TAKEN_IN);
    Sent::Stored(
        code,
        Stored {
            message_id: with_ids(cast, records, str::to_owned),
            queue_id: place.queue_id,
            queue_offset: first.queue_offset,
            recall_handle: handle.map(str::to_owned),
            region: cast.trace_on.then(|| cast.region.clone()),
        },
    )
}

/// Why a send is refused, for somebody in this process.
pub(super) fn refusal(refusal: &Refusal) -> Sent {
    Sent::Refused { code: refusal.code, remark: refusal.remark.clone() }
}

/// Writes the answer to one send of a batch that is done.
pub(super) fn done(
    cast: &BrokerCast,
    out: &mut BytesMut,
    to: (i32, HeaderForm),
    place: &Placed,
    finished: Finished<'_>,
) {
    let Finished { batch, outcome, .. } = finished;
    let handle = finished.handle_of(place);
    let code = match code(place, outcome) {
        Ok(code) => code,
        Err(why) => return refused(cast, out, to, why),
    };
    let records = &batch.records[place.records.clone()];
    let first = records.first().expect(TAKEN_IN);
    let (opaque, form) = to;
    let is_usual = code == ResponseCode::SUCCESS && form == HeaderForm::Json;
    if let (true, [one], UniqKey::Stored(range)) = (is_usual, records, &place.uniq_key) {
        let message_id = cast.message_ids.of(one.log_offset);
        let stored = StoredUsually {
            message_id: message_id.as_bytes(),
            queue_id: place.queue_id,
            queue_offset: one.queue_offset,
            unique_id: &batch.bytes_of(one)[range.clone()],
            recall_handle: handle,
        };
        if cast.stored_replies.encode(opaque, &stored, out) {
            return;
        }
    }
    let (transaction_id, batch_unique_id) = match &place.uniq_key {
        UniqKey::Stored(range) => {
            let key = &batch.bytes_of(first)[range.clone()];
            (Some(std::str::from_utf8(key).expect("the key was text when its record was encoded")), None)
        }
        UniqKey::Inner(key) => (Some(&**key), Some(&**key)),
        UniqKey::Own(key) => (Some(&**key), None),
        UniqKey::None => (None, None),
    };
    with_ids(cast, records, |message_id| {
        let stored = StoredAt {
            message_id,
            queue_id: place.queue_id,
            queue_offset: first.queue_offset,
            transaction_id,
            batch_unique_id,
            recall_handle: handle.map(text_of),
        };
        let head = Head::answer(code, opaque, form);
        let (region, trace_on) = (&cast.region, cast.trace_on);
        SendReply { head, region, trace_on, stored: Some(stored) }.encode(out);
    });
}

/// A handle as text.
fn text_of(handle: HandleLetters<'_>) -> &str {
    std::str::from_utf8(handle.as_bytes()).expect("handles are written in ASCII")
}

/// Writes why a send is refused.
pub(super) fn refused(
    cast: &BrokerCast,
    out: &mut BytesMut,
    (opaque, form): (i32, HeaderForm),
    refusal: &Refusal,
) {
    let head = Head::answer(refusal.code, opaque, form).with_remark(&refusal.remark);
    SendReply { head, region: &cast.region, trace_on: cast.trace_on, stored: None }.encode(out);
}
