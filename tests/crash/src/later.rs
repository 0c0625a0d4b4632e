//! Whether messages that name the time of their delivery come, once and not too early.
//!
//! Invariants:
//! - one that was acknowledged is delivered, or waits in the wheel once that has entered what its topic has: nowhere
//!   else is it safe;
//! - none is delivered twice, nor before its time, nor when it was taken back in time; nor is one of a level twice.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use troupemq_store::Opened;
use troupemq_store::dispatch::SCHEDULE_TOPIC;

use crate::Fault;
use crate::load::LATER;
use crate::model::{Model, number_of};
use crate::verdict::numbers_in;
use crate::wheel;

/// Copies the wheel, which is large and nearly empty.
pub(crate) fn copy_wheel(from: &Path, to: &Path) -> Result<(), Fault> {
    let wheel = from.join("timerwheel");
    if !wheel.is_file() {
        return Ok(());
    }
    let copied = Command::new("cp").arg("--sparse=always").arg(&wheel).arg(to.join("timerwheel")).status();
    match copied.map_err(Fault::of("cannot run cp"))?.success() {
        true => Ok(()),
        false => Err(Fault(format!("cannot copy {}", wheel.display()))),
    }
}

/// Judges the timers of a store; `counts` says whether a second delivery is a fault.
pub(crate) fn judge(opened: &Opened, model: &Model, counts: bool) -> Result<(), Fault> {
    let delivered = delivered(opened, model, counts)?;
    let waiting = wheel::slots(opened)?;
    let is_safe =
        |number: &u64, log_offset: u64| delivered.contains(number) || waiting.contains_key(&log_offset);
    let of_levels = numbers_in(opened, SCHEDULE_TOPIC);
    let is_gone = |number: &&u64| !delivered.contains(number) && !of_levels.contains_key(number);
    if let Some(number) = model.waiting.keys().find(is_gone) {
        return Err(Fault(format!("message {number} was to come after a level, and waits nowhere")));
    }
    match model.timers.iter().find(|(number, timer)| !is_safe(number, timer.log_offset)) {
        Some((number, timer)) => Err(Fault(format!(
            "message {number}, {timer:?}, was acknowledged, was not delivered and waits nowhere"
        ))),
        None => wheel::judge(opened, &waiting),
    }
}

/// Numbers of the messages that came.
fn delivered(opened: &Opened, model: &Model, counts: bool) -> Result<BTreeSet<u64>, Fault> {
    let mut times: BTreeMap<u64, u32> = BTreeMap::new();
    for queue in opened.queues.of_topic(LATER) {
        for unit in queue.units(queue.min_offset(), usize::MAX).filter(|unit| !unit.is_hole()) {
            let seen = opened.reader.record_at(unit.log_offset, |record| {
                number_of(record.body()).map(|number| (number, record.store_timestamp_ms()))
            });
            let Some((number, stored_ms)) = seen.flatten() else { continue };
            *times.entry(number).or_default() += 1;
            match model.timers.get(&number) {
                Some(timer) if stored_ms < timer.due_ms => {
                    return Err(Fault(format!("message {number} came at {stored_ms}, before {timer:?}")));
                }
                timer if counts && times[&number] > 1 => {
                    return Err(Fault(format!("message {number}, {timer:?}, came twice")));
                }
                _ if counts && model.recalled.contains(&number) => {
                    return Err(Fault(format!("message {number} was taken back and came at {stored_ms}")));
                }
                _ => {}
            }
        }
    }
    Ok(times.into_keys().collect())
}
