//! Ends of transactions: those that come together are stored together.
//!
//! Invariants:
//! - one batch is under way, see `together`;
//! - the messages stand in front, the op messages that name all their half messages behind them: what is cut off in
//!   between is stored and not noted, and is noted later, see `unnoted`;
//! - one end that cannot be stored holds up no other.

use std::sync::Arc;

use actix::prelude::SendError;
use actix::{Addr, Message};
use bytes::Bytes;

use super::TransactionChecker;
use super::groups::{Member, Refused};
use super::records::{Commit, CommitView, Goes, Note, notes, op};
use crate::cast::BrokerCast;
use crate::held::Held;
use crate::net::Refusal;
use crate::send::OwnBatch;
use crate::together::WAITING_MAX;

/// More bytes than the record of an op message has beside its body.
const OP_MORE_BYTES: usize = 192;

/// End the transactions of half messages. Sent by END_TRANSACTION; answered when what was decided of all of them is
/// stored, with those that were refused.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct CameTogether {
    /// The ends.
    pub(super) ends: Vec<End>,
    /// Who asks.
    pub(super) reply: Held<Refused>,
    /// Whether the answer is waited for.
    pub(super) is_waited_for: bool,
}

/// The end of one transaction.
#[derive(Debug)]
pub(super) struct End {
    /// The record of the half message.
    pub(super) half: Bytes,
    /// The half message that is named.
    pub(super) queue_offset: i64,
    /// Where its message goes, if it is committed and not rolled back.
    pub(super) goes: Option<Goes>,
}

/// What became of ends that were stored together. Sent by the actor to itself.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Ended {
    /// The ends.
    pub(super) all: Vec<Begun>,
    /// What became of each.
    pub(super) became: Vec<Became>,
}

/// An end that nobody else decides meanwhile.
#[derive(Debug)]
pub(super) struct Begun {
    /// The half message that is open now.
    pub(super) at: i64,
    /// What is to be stored; none if there is nothing to do but to note.
    pub(super) commit: Option<Commit>,
    /// Who asks; nobody, if what was decided is stored since before.
    pub(super) asked_by: Option<Member>,
}

/// What became of an end.
#[derive(Debug, Clone)]
pub(super) enum Became {
    /// It is stored, and the op message at this place names its half message.
    Noted(i64),
    /// Its message is stored, and no op message says so yet.
    Unnoted,
    /// Nothing is stored.
    Refused(Refusal),
}

impl Became {
    /// The op message that names the half message.
    pub(super) fn op_offset(&self) -> Option<i64> {
        match self {
            Became::Noted(op_offset) => Some(*op_offset),
            Became::Unnoted | Became::Refused(_) => None,
        }
    }
}

/// Hands ends to the owner of the half messages; if it takes none, each is told why.
pub(super) fn hand_on(cast: &BrokerCast, ends: Vec<End>, reply: Held<Refused>, is_waited_for: bool) {
    let came = CameTogether { ends, reply, is_waited_for };
    let Err(undelivered) = cast.transactions.try_send(came) else { return };
    let refusal = match &undelivered {
        SendError::Full(_) => too_many(),
        SendError::Closed(_) => Refusal::gone("TransactionChecker"),
    };
    let CameTogether { ends, reply, .. } = undelivered.into_inner();
    reply.answer((0..ends.len()).map(|place| (place, refusal.clone())).collect());
}

/// Stores a batch and tells the owner of the half messages what became of it.
pub(super) async fn store_all(cast: Arc<BrokerCast>, all: Vec<Begun>, checker: Addr<TransactionChecker>) {
    let became = became(&cast, &all).await;
    // An actor that is gone needs no news: whoever waits learns that it has gone.
    let _ = checker.send(Ended { all, became }).await;
}

/// What became of each.
async fn became(cast: &BrokerCast, all: &[Begun]) -> Vec<Became> {
    let together = store_together(cast, all).await;
    let mut became = Vec::with_capacity(all.len());
    for (begun, known) in all.iter().zip(together) {
        // One that cannot be stored ends the batch in front of it; those behind it go by themselves.
        let known = match known {
            Some(known) => Some(known),
            None => store_together(cast, std::slice::from_ref(begun)).await.pop().flatten(),
        };
        became.push(known.unwrap_or_else(|| Became::Refused(Refusal::gone("the decision"))));
    }
    became
}

/// Stores ends as one batch: the messages, then the op messages that name all their half messages. Answers of each
/// what is known: of a single one it always is.
async fn store_together(cast: &BrokerCast, all: &[Begun]) -> Vec<Option<Became>> {
    let gone = || Refusal::gone("the half message");
    let mut views = Vec::with_capacity(all.len());
    for commit in all.iter().filter_map(|begun| begun.commit.as_ref()) {
        let Some(view) = commit.view() else { return refused(all, &gone()) };
        views.push(view);
    }
    let notes = notes(all.iter().map(|begun| begun.at));
    let stored = match batch_of(cast, (all, &views), &notes) {
        Ok(batch) => batch.store().await,
        Err(refusal) => Err(refusal),
    };
    match stored {
        Ok(stored) => {
            let (messages, ops) = stored.split_at(stored.len().min(views.len()));
            known(all, messages.len(), ops.iter().map(|op| op.queue_offset).zip(&notes))
        }
        Err(refusal) => refused(all, &refusal),
    }
}

/// The records of ends, as many as can be stored.
fn batch_of<'a>(
    cast: &'a BrokerCast,
    (all, views): (&[Begun], &'a [CommitView<'a>]),
    notes: &'a [Note],
) -> Result<OwnBatch<'a, 'a>, Refusal> {
    // A message is about as long as its half message.
    let halves = all.iter().filter_map(|begun| begun.commit.as_ref()).map(|commit| commit.half.len());
    let ops = notes.iter().map(|note| note.body.len() + OP_MORE_BYTES);
    let mut batch = OwnBatch::with_room(cast, views.len() + notes.len(), halves.chain(ops).sum());
    let mut topic = "";
    for view in views {
        let message = view.message(topic).ok_or_else(|| Refusal::gone("the half message"))?;
        topic = message.record.topic;
        if !batch.add(&message)? {
            return Ok(batch);
        }
    }
    for note in notes {
        if !batch.add(&op(cast, &note.body))? {
            break;
        }
    }
    Ok(batch)
}

/// What became of ends of which so many messages and these op messages are stored, from the front.
fn known<'a>(
    all: &[Begun],
    mut messages: usize,
    ops: impl Iterator<Item = (i64, &'a Note)>,
) -> Vec<Option<Became>> {
    let mut noted = ops.flat_map(|(op_offset, note)| std::iter::repeat_n(op_offset, note.names));
    let known = all.iter().map(|begun| {
        let is_stored = begun.commit.is_some() && messages > 0;
        messages -= usize::from(is_stored);
        match noted.next() {
            Some(op_offset) => Some(Became::Noted(op_offset)),
            None => is_stored.then_some(Became::Unnoted),
        }
    });
    known.collect()
}

/// What is known of ends that cannot be stored together: why, if it is a single one.
fn refused(all: &[Begun], refusal: &Refusal) -> Vec<Option<Became>> {
    let known = (all.len() == 1).then(|| Became::Refused(refusal.clone()));
    vec![known; all.len()]
}

/// Why a decision is not taken while too many wait.
pub(super) fn too_many() -> Refusal {
    Refusal::busy(format_args!("{WAITING_MAX} ends of transactions wait to be stored"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(at: i64, is_committed: bool) -> Begun {
        let topic_at = (0..0).into();
        let goes = Goes { topic_at, keys_at: [None, None], queue_id: 0, tags_code: 0, detour: None };
        let commit = is_committed.then(|| Commit { half: Bytes::new(), goes });
        Begun { at, commit, asked_by: None }
    }

    fn told(known: &[Option<Became>]) -> Vec<&str> {
        let word = |became: &Option<Became>| match became {
            Some(Became::Noted(7)) => "noted by 7",
            Some(Became::Noted(_)) => "noted",
            Some(Became::Unnoted) => "unnoted",
            Some(Became::Refused(_)) => "refused",
            None => "unknown",
        };
        known.iter().map(word).collect()
    }

    #[test]
    fn of_a_batch_that_is_cut_off_what_is_stored_is_known_and_nothing_else() {
        let all = [begun(1, true), begun(2, false), begun(3, true), begun(4, true)];
        let notes = [Note { body: Vec::new(), names: 3 }, Note { body: Vec::new(), names: 1 }];
        let with = |messages, ops: usize| known(&all, messages, (7..).zip(&notes).take(ops));
        assert_eq!(told(&with(3, 2)), ["noted by 7", "noted by 7", "noted by 7", "noted"]);
        assert_eq!(told(&with(3, 1)), ["noted by 7", "noted by 7", "noted by 7", "unnoted"]);
        assert_eq!(told(&with(3, 0)), ["unnoted", "unknown", "unnoted", "unnoted"]);
        assert_eq!(told(&with(1, 0)), ["unnoted", "unknown", "unknown", "unknown"]);
    }

    #[test]
    fn a_refusal_is_that_of_a_single_end_only() {
        let refusal = Refusal::gone("the log");
        assert_eq!(told(&refused(&[begun(1, true)], &refusal)), ["refused"]);
        assert_eq!(told(&refused(&[begun(1, true), begun(2, true)], &refusal)), ["unknown", "unknown"]);
    }
}
