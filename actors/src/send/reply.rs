//! The answers to sends.
//!
//! Invariants:
//! - every answer carries the region and whether to trace; one that stored carries the whole header, because
//!   clients read it without asking whether it is there;
//! - the message id is the address of the record: who asks this broker for it gets the message.

use bytes::BytesMut;
use troupemq_codec::command::Head;
use troupemq_codec::request::{SendReply, StoredAt, StoredUsually};
use troupemq_codec::{HeaderForm, ResponseCode};
use troupemq_store::AppendBatch;

use crate::cast::BrokerCast;
use crate::commit_log::Outcome;
use crate::net::Refusal;
use crate::send::bench::{Slot, UniqKey};

/// Writes the answer to one send of a batch that is done.
pub(super) fn done(
    cast: &BrokerCast,
    out: &mut BytesMut,
    slot: &Slot,
    batch: &AppendBatch,
    outcome: &Outcome,
) {
    let to = (slot.opaque, slot.form);
    let code = match outcome {
        Outcome::Stored => ResponseCode::SUCCESS,
        Outcome::NotFlushedInTime => ResponseCode::FLUSH_DISK_TIMEOUT,
        Outcome::StoredInPart(stored, _) if slot.records.end <= *stored => ResponseCode::SUCCESS,
        Outcome::StoredInPart(_, refusal) | Outcome::Refused(refusal) => {
            return refused(cast, out, to, refusal);
        }
    };
    let records = &batch.records[slot.records.clone()];
    let first = records.first().expect("a send that was taken in has a record");
    let is_usual = code == ResponseCode::SUCCESS && slot.form == HeaderForm::Json && slot.recall.is_none();
    if let (true, [one], UniqKey::Stored(range)) = (is_usual, records, &slot.uniq_key) {
        let message_id = cast.message_ids.of(one.log_offset);
        let stored = StoredUsually {
            message_id: message_id.as_bytes(),
            queue_id: slot.queue_id,
            queue_offset: one.queue_offset,
            unique_id: &batch.bytes_of(one)[range.clone()],
        };
        if cast.stored_replies.encode(slot.opaque, &stored, out) {
            return;
        }
    }
    let (transaction_id, batch_unique_id) = match &slot.uniq_key {
        UniqKey::Stored(range) => {
            let key = &batch.bytes_of(first)[range.clone()];
            (Some(std::str::from_utf8(key).expect("the key was text when its record was encoded")), None)
        }
        UniqKey::Inner(key) => (Some(&**key), Some(&**key)),
        UniqKey::Own(key) => (Some(&**key), None),
        UniqKey::None => (None, None),
    };
    let stored = |message_id: &str, out: &mut BytesMut| {
        let stored = StoredAt {
            message_id,
            queue_id: slot.queue_id,
            queue_offset: first.queue_offset,
            transaction_id,
            batch_unique_id,
            recall_handle: slot.recall.as_deref(),
        };
        let head = Head::answer(code, slot.opaque, slot.form);
        let (region, trace_on) = (&cast.region, cast.trace_on);
        SendReply { head, region, trace_on, stored: Some(stored) }.encode(out);
    };
    if let [one] = records {
        return stored(cast.message_ids.of(one.log_offset).as_str(), out);
    }
    let ids: Vec<_> = records.iter().map(|record| cast.message_ids.of(record.log_offset)).collect();
    let ids: Vec<_> = ids.iter().map(|id| id.as_str()).collect();
    stored(&ids.join(","), out);
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
