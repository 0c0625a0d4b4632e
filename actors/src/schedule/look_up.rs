//! What the records of delayed messages say of their units.
//!
//! Invariants:
//! - only units that this process has not written are looked up: any of their bytes may be damaged;
//! - a unit whose record is another one keeps its place and delivers nothing; one that is right is due when its
//!   record says, as if its queue had been made again from the log.

use troupemq_codec::message::RecordView;
use troupemq_store::ConsumeQueue;
use troupemq_store::dispatch::SCHEDULE_TOPIC;

use super::levels::Due;
use crate::cast::BrokerCast;
use crate::read_ahead::Records;

/// Puts right what is doubtful in `due`, up to the first that is not due after all: it and what is behind it leave
/// `due`. Answers that one and `next`, as their records have them.
pub(super) async fn compare(cast: &BrokerCast, due: &mut Vec<Due>, next: Vec<Due>) -> Vec<Due> {
    let mut looked_up = put_right(cast, next).await;
    let doubtful: Vec<usize> = (0..due.len()).filter(|at| is_doubtful(cast, &due[*at])).collect();
    let right = put_right(cast, doubtful.iter().map(|at| due[*at]).collect()).await;
    let (levels, now_ms) = (cast.detours.levels(), cast.now_ms());
    for (at, one) in doubtful.into_iter().zip(right) {
        if one.due_ms(levels, now_ms) > now_ms {
            due.truncate(at);
            looked_up.push(one);
            break;
        }
        due[at] = one;
    }
    looked_up
}

fn is_doubtful(cast: &BrokerCast, one: &Due) -> bool {
    let queue = cast.queues.get(SCHEDULE_TOPIC, one.level - 1);
    queue.is_some_and(|queue| queue.is_doubtful(&one.unit))
}

/// The same messages as their records have them.
async fn put_right(cast: &BrokerCast, mut all: Vec<Due>) -> Vec<Due> {
    for of_level in all.chunk_by_mut(|one, next| one.level == next.level) {
        let level = of_level[0].level;
        if let Some(queue) = cast.queues.get(SCHEDULE_TOPIC, level - 1) {
            put_right_level(cast, &queue, of_level).await;
        }
    }
    all
}

async fn put_right_level(cast: &BrokerCast, queue: &ConsumeQueue, all: &mut [Due]) {
    let units: Vec<_> = all.iter().map(|one| one.unit).collect();
    let records = Records::of_queue(cast, queue, &units).await;
    for (one, record) in all.iter_mut().zip(records.iter()) {
        match record.and_then(|bytes| RecordView::parse(bytes).ok()) {
            Some(record) => {
                let delay_ms = cast.detours.levels().delay_ms(one.level);
                one.unit.tags_code = record.store_timestamp_ms().saturating_add(delay_ms);
            }
            None => one.unit = one.unit.without_record(),
        }
    }
}
