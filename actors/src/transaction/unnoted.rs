//! What the log tells of transactions whose message is stored, or which are given up, and whose half message no op
//! message names: a kill, or a full disk, has cut the op message off. Of copies they tell it themselves.
//!
//! Invariants:
//! - an op message is stored in one batch, behind the messages of the half messages that it names, and a kill ends the
//!   log: what a kill has cut off is missing behind the last op message and near the end of the log;
//! - a message that is found is not stored again: its half message waits for its op message only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use troupemq_codec::Text;
use troupemq_codec::message::{RecordView, sys_flag};
use troupemq_store::dispatch::SCHEDULE_TOPIC;
use troupemq_store::timer::TIMER_TOPIC;
use troupemq_store::{ConsumeQueue, StoreError, Unit};

use super::records::{GIVEN_UP_TOPIC, HalfView, OP_TOPIC, instead_of};
use crate::cast::BrokerCast;
use crate::detour::HALF_TOPIC;
use crate::query::fetch_record;
use crate::read_ahead::record_of;

/// Bytes at the end of the log that are looked at: some batches of ends. A longer one is a single message.
const NEAR_BYTES: u64 = 8 << 20;

/// The queues that half messages are for.
#[derive(Debug, Default)]
pub(super) struct Targets(BTreeMap<String, BTreeSet<i32>>);

impl Targets {
    /// Takes in where a half message is for.
    pub(super) fn add(&mut self, half: &HalfView<'_>) {
        match self.0.get_mut(half.topic) {
            Some(queues) => _ = queues.insert(half.queue_id),
            None => _ = self.0.insert(half.topic.to_owned(), BTreeSet::from([half.queue_id])),
        }
    }

    /// Them, and those by which messages make a detour.
    fn queues(&self, cast: &BrokerCast) -> Vec<Arc<ConsumeQueue>> {
        let own =
            self.0.iter().flat_map(|(topic, queues)| queues.iter().map(move |id| (topic.as_str(), *id)));
        let levels = (0..cast.detours.levels().max()).map(|queue_id| (SCHEDULE_TOPIC, queue_id));
        let all = own.chain(levels).chain([(TIMER_TOPIC, 0), (GIVEN_UP_TOPIC, 0)]);
        all.filter_map(|(topic, queue_id)| cast.queues.get(topic, queue_id)).collect()
    }
}

/// The half messages whose messages stand behind the last op message, by place and unique id, and those that were given
/// up there, by place alone. Waits for the disk.
///
/// # Errors
/// If it cannot read the end of the log or of a queue: what is missed would be delivered twice.
pub(super) fn at_the_end(
    cast: &BrokerCast,
    targets: &Targets,
) -> Result<Vec<(i64, Option<Text>)>, StoreError> {
    if targets.0.is_empty() {
        return Ok(Vec::new());
    }
    let last_op = cast.queues.get(OP_TOPIC, 0).map(|ops| last_unit(&ops)).transpose()?;
    let behind = last_op.flatten().map_or(0, |op| op.log_offset);
    let near = cast.log.wrote_to().saturating_sub(NEAR_BYTES);
    let mut found = Vec::new();
    for queue in targets.queues(cast) {
        let mut next = last_unit(&queue)?;
        while let Some(unit) = next.filter(|unit| unit.log_offset > behind) {
            found.extend(half_of(cast, &queue, &unit)?);
            // The last unit may be that of one long message.
            let before = queue.read_unit(unit.queue_offset - 1)?;
            next = before.filter(|before| before.log_offset >= near);
        }
    }
    Ok(found)
}

fn last_unit(queue: &ConsumeQueue) -> Result<Option<Unit>, StoreError> {
    Ok(queue.read_unit(queue.max_offset() - 1)?.filter(|unit| !unit.is_hole()))
}

/// The half message of a unit's message, if it was part of a transaction.
fn half_of(
    cast: &BrokerCast,
    queue: &ConsumeQueue,
    unit: &Unit,
) -> Result<Option<(i64, Option<Text>)>, StoreError> {
    let bytes = record_of(&cast.log, queue, unit)?;
    let record = bytes.as_ref().and_then(|bytes| RecordView::parse(bytes).ok());
    if queue.topic() == GIVEN_UP_TOPIC {
        return Ok(record.and_then(|record| Some((instead_of(&record)?, None))));
    }
    let is_commit =
        |record: &RecordView<'_>| sys_flag::transaction(record.sys_flag()) == sys_flag::TRANSACTION_COMMIT;
    let half_at =
        record.filter(is_commit).and_then(|record| u64::try_from(record.prepared_log_offset()).ok());
    let half = half_at.map(|at| fetch_record(&cast.log, at)).transpose()?.flatten();
    let half = half.as_ref().and_then(|half| HalfView::parse(half));
    let half = half.filter(|half| half.record.topic() == HALF_TOPIC);
    Ok(half.map(|half| (half.record.queue_offset(), Some(Text::from(half.uniq_key)))))
}
