//! Inner batches: a batch to a batch queue is stored as one record that holds all its messages.
//! Java: `SendMessageProcessor.sendBatchMessage`, with the topic attribute `queue.type=BatchCQ`.
//!
//! Invariants:
//! - the record takes as many offsets as it holds messages, and tells the first of them in `INNER_BASE`;
//! - the messages stay as the client wrote them: consumers take them apart;
//! - nothing in it waits: what asks for a delay or a transaction is refused as a whole.

use bytes::BytesMut;
use troupemq_codec::ResponseCode;
use troupemq_codec::filter::tags::tags_code_of;
use troupemq_codec::message::properties::{
    DELAY, INNER_BASE, INNER_NUM, TAGS, TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS,
    TRANSACTION_PREPARED, put_property,
};
use troupemq_codec::message::{INNER_BATCH_MAX, NewRecord, PropertiesView, batch, sys_flag};
use troupemq_store::commit_log::numbering::text_max_bytes;
use troupemq_store::{AppendBatch, Numbers};

use crate::net::Refusal;
use crate::send::bench::{Piece, Target};
use crate::send::check::{check_sizes, check_zeros, illegal};

/// Adds the batch that `whole` holds as one record.
pub(super) fn encode(into: &mut AppendBatch, target: &Target<'_>, whole: &Piece<'_>) -> Result<(), Refusal> {
    let Target { cast, config, wire, send, place, queue, .. } = *target;
    let properties = PropertiesView(whole.properties);
    check_zeros(properties)?;
    let waits = [DELAY, TRANSACTION_PREPARED, TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS];
    if properties.pick(waits).iter().any(Option::is_some) {
        let remark = "a batch can neither be delayed nor be part of a transaction";
        return Err(Refusal::new(ResponseCode::MESSAGE_ILLEGAL, remark));
    }
    if properties.contains(INNER_NUM) || properties.contains(INNER_BASE) {
        return Err(illegal(config));
    }
    let mut count = 0_usize;
    for item in batch::items(whole.body) {
        item.map_err(|_| illegal(config))?;
        count += 1;
    }
    let Some(advance) = u16::try_from(count).ok().filter(|_| (1..=INNER_BATCH_MAX).contains(&count)) else {
        let remark = format!("a batch of {count} messages: it holds 1 to {INNER_BATCH_MAX}");
        return Err(Refusal::new(ResponseCode::MESSAGE_ILLEGAL, remark));
    };
    let mut number = BytesMut::new();
    put_property(&mut number, INNER_NUM, &count.to_string());
    let record = NewRecord {
        topic: &place.name,
        queue_id: queue.queue_id,
        flag: whole.flag,
        sys_flag: send.sys_flag | sys_flag::INNER_BATCH | sys_flag::NEED_UNWRAP,
        born_timestamp_ms: send.born_timestamp_ms,
        born_host: wire.peer(),
        store_host: cast.advertised,
        reconsume_times: send.reconsume_times.unwrap_or(0),
        prepared_log_offset: 0,
        body: whole.body,
        body_crc: None,
        properties: &[whole.properties, &cast.own_properties, &number],
    };
    let properties_bytes = record.properties_len();
    check_sizes(config, whole.body, properties_bytes + text_max_bytes(1))?;
    let start = into.bytes.len();
    record.encode(&mut into.bytes)?;
    into.push(start, &queue.units, advance, tags_code_of(properties.get(TAGS)));
    into.number_last(Numbers::InnerBase, properties_bytes);
    Ok(())
}
