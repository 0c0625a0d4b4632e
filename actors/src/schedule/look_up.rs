//! What the records of delayed messages say of their units.
//!
//! Invariants:
//! - only units that this process has not written are looked up: any of their bytes may be damaged;
//! - a unit whose record is another one keeps its place and delivers nothing; one that is right is due when its
//!   record says, as if its queue had been made again from the log. Of a level that the setting has no more nothing
//!   but the unit says how long it was.

use troupemq_codec::message::RecordView;
use troupemq_store::ConsumeQueue;
use troupemq_store::dispatch::SCHEDULE_TOPIC;

use super::levels::Due;
use crate::cast::BrokerCast;
use crate::read_ahead::Records;

/// Longer than this nothing waits in a level that the setting has no more: 40 days, as long as a timer may.
const DELAY_MAX_MS: i64 = 40 * 86_400_000;

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
    for (at, (one, record)) in all.iter_mut().zip(records.iter()).enumerate() {
        if records.is_unreadable(at) {
            // Nobody knows: its unit is believed, and its record looked at again when it leaves.
            continue;
        }
        match record.and_then(|bytes| RecordView::parse(bytes).ok()) {
            Some(record) => {
                let delay_ms = cast.detours.levels().of(one.level);
                one.unit.tags_code = due_ms(record.store_timestamp_ms(), delay_ms, one.unit.tags_code);
            }
            None => one.unit = one.unit.without_record(),
        }
    }
}

/// When a message is due that was stored at this time, with the delay of its level, if there is one, or else as its
/// unit tells it, if that can be.
fn due_ms(stored_ms: i64, delay_ms: Option<i64>, told_ms: i64) -> i64 {
    let latest_ms = stored_ms.saturating_add(DELAY_MAX_MS);
    delay_ms.map_or(told_ms.clamp(stored_ms, latest_ms), |delay_ms| stored_ms.saturating_add(delay_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_tells_when_it_is_due_and_a_unit_only_where_nothing_else_does() {
        assert_eq!(due_ms(1000, Some(500), 9_000), 1500);
        assert_eq!(due_ms(1000, None, 9_000), 9_000);
        assert_eq!(due_ms(1000, None, -7), 1000, "no message is due before it was stored");
        assert_eq!(due_ms(1000, None, i64::MAX), 1000 + DELAY_MAX_MS, "nor never");
    }
}
