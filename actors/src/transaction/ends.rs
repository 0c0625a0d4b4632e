//! Ends of transactions: those that come together are stored together.
//!
//! Invariants:
//! - one batch is under way; what comes meanwhile is the next one;
//! - the message and the note that its half is done stand side by side in it: what a full log has cut off is not done;
//! - one end that cannot be stored holds up no other.

use std::sync::Arc;

use actix::{Addr, Message};
use bytes::Bytes;
use troupemq_codec::{ResponseCode, Text};

use super::TransactionChecker;
use super::records::{HalfView, op};
use crate::cast::BrokerCast;
use crate::detour::Detour;
use crate::held::Held;
use crate::net::Refusal;
use crate::send::{Own, store};

/// Ends that are stored together, and their bytes; one at least.
const TOGETHER_MAX: usize = 256;
const TOGETHER_BYTES: usize = 1 << 20;
/// Ends that wait; one more is refused.
const WAITING_MAX: usize = 65_536;

/// End the transaction of a half message. Sent by END_TRANSACTION; answered when what was decided is stored.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct End {
    /// The record of the half message.
    pub half: Bytes,
    /// The half message that is named.
    pub queue_offset: i64,
    /// Its unique id.
    pub uniq_key: Text,
    /// Whether it is committed, or rolled back.
    pub is_committed: bool,
    /// Who asks.
    pub reply: Held<Result<(), Refusal>>,
}

/// What became of ends that were stored together. Sent by the actor to itself.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Ended(pub(super) Vec<(Begun, Result<i64, Refusal>)>);

/// An end that nobody else decides meanwhile.
#[derive(Debug)]
pub(super) struct Begun {
    /// The half message that is open now.
    pub(super) at: i64,
    pub(super) half: Bytes,
    pub(super) is_committed: bool,
    pub(super) reply: Held<Result<(), Refusal>>,
}

/// Ends that wait for the batch under way. Plain state.
#[derive(Debug, Default)]
pub(super) struct Ends {
    waiting: Vec<Begun>,
    is_storing: bool,
}

impl Ends {
    /// Takes an end in; tells whether it is the first, so that somebody has to see to it. Gives it back if there are
    /// too many.
    pub(super) fn add(&mut self, begun: Begun) -> Result<bool, Begun> {
        if self.waiting.len() >= WAITING_MAX {
            return Err(begun);
        }
        self.waiting.push(begun);
        Ok(self.waiting.len() == 1 && !self.is_storing)
    }

    /// The next batch, in the order in which its ends came; none while one is under way.
    pub(super) fn begin(&mut self) -> Option<Vec<Begun>> {
        if self.is_storing || self.waiting.is_empty() {
            return None;
        }
        let mut bytes = 0;
        let fits = |begun: &&Begun| {
            bytes += begun.half.len();
            bytes <= TOGETHER_BYTES
        };
        let count = self.waiting.iter().take(TOGETHER_MAX).take_while(fits).count().max(1);
        self.is_storing = true;
        Some(self.waiting.drain(..count).collect())
    }

    /// The batch is stored, or refused.
    pub(super) fn ended(&mut self) {
        self.is_storing = false;
    }
}

/// Stores a batch and tells the owner of the half messages what became of it.
pub(super) async fn store_all(cast: Arc<BrokerCast>, all: Vec<Begun>, checker: Addr<TransactionChecker>) {
    let outcomes = outcomes(&cast, &all).await;
    // An actor that is gone needs no news: whoever waits learns that it has gone.
    let _ = checker.send(Ended(all.into_iter().zip(outcomes).collect())).await;
}

/// The place of the op message of each, or why there is none.
async fn outcomes(cast: &BrokerCast, all: &[Begun]) -> Vec<Result<i64, Refusal>> {
    let mut outcomes = store_together(cast, all).await;
    for at in 0..all.len() {
        // One that cannot be stored ends the batch in front of it; those behind it go by themselves.
        if outcomes.get(at).is_none() {
            let alone = store_together(cast, &all[at..=at]).await.pop();
            outcomes.push(alone.unwrap_or_else(|| Err(Refusal::gone("the decision"))));
        }
    }
    outcomes
}

/// Stores ends as one batch. Answers of as many as there is something to tell: of all, if it is one.
async fn store_together(cast: &BrokerCast, all: &[Begun]) -> Vec<Result<i64, Refusal>> {
    let views: Vec<HalfView<'_>> = all.iter().map_while(|begun| HalfView::parse(&begun.half)).collect();
    let detours: Result<Vec<Option<Detour>>, Refusal> = views.iter().map(|half| half.detour(cast)).collect();
    let detours = match detours {
        Ok(detours) => detours,
        Err(refusal) if all.len() == 1 => return vec![Err(refusal)],
        Err(_) => return Vec::new(),
    };
    let bodies: Vec<String> = all.iter().map(|begun| format!("{},", begun.at)).collect();
    let pieces: Vec<[&[u8]; 2]> = views
        .iter()
        .zip(&detours)
        .map(|(half, detour)| {
            let more = detour.as_ref().map_or(&[][..], |detour| &detour.properties[..]);
            [half.record.properties().as_bytes(), more]
        })
        .collect();
    let mut own: Vec<Own<'_>> = Vec::with_capacity(2 * all.len());
    for (at, begun) in all.iter().enumerate().take(views.len()) {
        if begun.is_committed {
            own.push(views[at].committed(detours[at].as_ref(), &pieces[at]));
        }
        own.push(op(cast, &bodies[at]));
    }
    let stored = match store(cast, &own).await {
        Ok(stored) => stored,
        Err(refusal) if all.len() == 1 => return vec![Err(refusal)],
        Err(_) => return Vec::new(),
    };
    let mut places = stored.iter();
    let mut outcomes = Vec::with_capacity(all.len());
    for begun in all.iter().take(views.len()) {
        let message = if begun.is_committed { places.next() } else { None };
        match places.next() {
            Some(op) => outcomes.push(Ok(op.queue_offset)),
            // If the log was full between the two, the message is stored and its half is asked for again.
            None if message.is_some() => outcomes.push(Err(not_noted())),
            None => break,
        }
    }
    outcomes
}

/// Why a decision is not taken while too many wait.
pub(super) fn too_many() -> Refusal {
    let remark = format!(
        "[OVERLOAD]system busy, start flow control for a while: {WAITING_MAX} ends of transactions wait to be stored"
    );
    Refusal::new(ResponseCode::SYSTEM_BUSY, remark)
}

fn not_noted() -> Refusal {
    Refusal::new(ResponseCode::SYSTEM_ERROR, "the decision could not be noted")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::held::hold;

    fn end(at: i64, bytes: usize) -> Begun {
        Begun { at, half: Bytes::from(vec![0; bytes]), is_committed: true, reply: hold().0 }
    }

    fn taken(ends: &mut Ends) -> Option<Vec<i64>> {
        ends.begin().map(|batch| batch.iter().map(|begun| begun.at).collect())
    }

    #[test]
    fn ends_that_come_while_a_batch_is_stored_are_the_next_batch() {
        let mut ends = Ends::default();
        assert_eq!(taken(&mut ends), None);
        let is_first = [1, 2].map(|at| ends.add(end(at, 10)).expect("there is room"));
        assert_eq!(is_first, [true, false]);
        assert_eq!(taken(&mut ends), Some(vec![1, 2]));
        assert!(!ends.add(end(3, 10)).expect("there is room"), "a batch is under way");
        assert_eq!(taken(&mut ends), None);
        ends.ended();
        assert_eq!(taken(&mut ends), Some(vec![3]));
    }

    #[test]
    fn a_batch_of_ends_has_a_limit_of_number_and_bytes_but_for_a_single_one() {
        let mut ends = Ends::default();
        for at in 0..300 {
            ends.add(end(at, 100)).expect("there is room");
        }
        assert_eq!(taken(&mut ends).map(|batch| batch.len()), Some(TOGETHER_MAX));
        ends.ended();
        assert_eq!(taken(&mut ends).map(|batch| batch.len()), Some(44));
        ends.ended();
        for bytes in [TOGETHER_BYTES + 1, 10, TOGETHER_BYTES - 10, 1] {
            ends.add(end(0, bytes)).expect("there is room");
        }
        let sizes: Vec<_> = std::iter::from_fn(|| {
            ends.ended();
            taken(&mut ends).map(|batch| batch.len())
        })
        .collect();
        assert_eq!(sizes, [1, 2, 1]);
    }

    #[test]
    fn too_many_ends_are_given_back() {
        let mut ends = Ends::default();
        for at in 0..WAITING_MAX {
            ends.add(end(at as i64, 0)).expect("there is room");
        }
        assert_eq!(ends.add(end(-1, 0)).expect_err("no room is left").at, -1);
    }
}
