//! Whether messages that a group failed with come again, or are among its dead letters.
//!
//! Invariants:
//! - one that was sent back waits in its level or has come again, and comes once;
//! - one that was given up is a dead letter.

use crate::Fault;
use crate::load::again::{DEAD, RETRY};
use crate::model::Model;
use crate::verdict::numbers_in;
use troupemq_store::Opened;
use troupemq_store::dispatch::SCHEDULE_TOPIC;

/// Judges them. What has expired may be gone; a loss of power may have taken some.
pub(crate) fn judge(
    opened: &Opened,
    model: &mut Model,
    (has_expired, may_have_lost): (bool, bool),
) -> Result<(), Fault> {
    let (waits, came, dead) =
        (numbers_in(opened, SCHEDULE_TOPIC), numbers_in(opened, RETRY), numbers_in(opened, DEAD));
    if may_have_lost {
        model.retries.retain(|number| waits.contains_key(number) || came.contains_key(number));
        model.dead.retain(|number| dead.contains_key(number));
        return Ok(());
    }
    let twice = came.iter().chain(&dead).find(|(_, times)| **times > 1);
    if let Some((number, times)) = twice {
        return Err(Fault(format!("message {number} was sent back once and is there {times} times")));
    }
    if has_expired {
        return Ok(());
    }
    if let Some(number) = model.dead.iter().find(|number| !dead.contains_key(number)) {
        return Err(Fault(format!("message {number} was given up and is no dead letter")));
    }
    let is_there = |number: &u64| waits.contains_key(number) || came.contains_key(number);
    match model.retries.iter().find(|number| !is_there(number)) {
        Some(number) => Err(Fault(format!("message {number} was sent back, and does not wait"))),
        None => Ok(()),
    }
}
