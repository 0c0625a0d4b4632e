//! Whether messages are in the light queues that they name.
//!
//! Invariants:
//! - a record that tells a place in a light queue is there, and nowhere else;
//! - it tells a place for each name it was sent with, in their order.

use troupemq_codec::message::RecordView;
use troupemq_store::{ConsumeQueue, Opened, light};

use crate::Fault;
use crate::model::{Model, number_of};

/// Judges the places that the messages of all plain topics tell.
pub(crate) fn judge(opened: &Opened, model: &Model) -> Result<(), Fault> {
    if !opened.config.dispatches_to_light_queues() {
        return Ok(());
    }
    let topics = opened.queues.topics();
    for topic in topics.iter().filter(|topic| !light::is_light(topic)) {
        for queue in opened.queues.of_topic(topic) {
            for unit in queue.units(queue.min_offset(), usize::MAX).filter(|unit| !unit.is_hole()) {
                let judged =
                    opened.reader.record_at(unit.log_offset, |record| is_in_all(opened, model, record));
                judged.unwrap_or(Ok(()))?;
            }
        }
    }
    Ok(())
}

/// Whether a record is in the light queues that it was sent with, at the offsets that it tells.
fn is_in_all(opened: &Opened, model: &Model, record: &RecordView<'_>) -> Result<(), Fault> {
    let places: Vec<(&str, i64)> = light::places(record).collect();
    let log_offset = record.log_offset().cast_unsigned();
    let named = number_of(record.body()).and_then(|number| model.names.get(&number));
    if let Some(named) = named.filter(|_| light::is_source(record.topic()))
        && !places.iter().map(|(name, _)| *name).eq(named.iter().map(String::as_str))
    {
        return Err(Fault(format!("what lies at {log_offset} names {named:?} and is in {places:?}")));
    }
    for (name, queue_offset) in places {
        let Some(queue) = opened.queues.get(name, light::QUEUE_ID) else {
            return Err(Fault(format!("what lies at {log_offset} is in {name}, which is gone")));
        };
        if queue_offset < queue.min_offset() {
            continue;
        }
        let unit = queue.unit(queue_offset);
        if unit.as_ref().is_none_or(|unit| unit.log_offset != log_offset) {
            return Err(Fault(format!(
                "what lies at {log_offset} is at {queue_offset} of {name}, and there stands {unit:?}"
            )));
        }
    }
    Ok(())
}

/// Whether a light queue has every unit from its minimum to its end, each of a record that tells that place, or a hole
/// where one may be.
pub(crate) fn is_whole(opened: &Opened, queue: &ConsumeQueue, model: &Model) -> Result<(), Fault> {
    let (name, mut expected) = (queue.topic().as_str(), queue.min_offset());
    let max = usize::try_from(queue.max_offset() - expected).unwrap_or(0);
    for unit in queue.units(expected, max) {
        let tells = |record: &RecordView<'_>| {
            light::places(record).any(|(place, at)| place == name && at == unit.queue_offset)
        };
        let is_of_record = opened.reader.record_at(unit.log_offset, tells);
        let is_right = is_of_record == Some(true) || model.has_holes && unit.is_hole();
        if unit.queue_offset != expected || !is_right {
            return Err(Fault(format!(
                "{name}: at {expected} stands {unit:?}, its record tells that place: {is_of_record:?}"
            )));
        }
        expected = unit.next_offset();
    }
    match expected == queue.max_offset() {
        true => Ok(()),
        false => Err(Fault(format!("{name}: units end at {expected} of {}", queue.max_offset()))),
    }
}
