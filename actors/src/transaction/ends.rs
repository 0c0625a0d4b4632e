//! Ends of transactions: those that come together are stored together.
//!
//! Invariants:
//! - one batch is under way, see `together`;
//! - the message and the note that its half is done stand side by side in it: what a full log has cut off is not done;
//! - one end that cannot be stored holds up no other.

use std::sync::Arc;

use actix::prelude::SendError;
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
use crate::together::WAITING_MAX;

/// End the transactions of half messages. Sent by END_TRANSACTION; each is answered when what was decided is stored.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct CameTogether(pub Vec<End>);

/// The end of one transaction.
#[derive(Debug)]
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

/// Hands ends to the owner of the half messages; if it takes none, each is told why.
pub(super) fn hand_on(cast: &BrokerCast, ends: Vec<End>) {
    let Err(undelivered) = cast.transactions.try_send(CameTogether(ends)) else { return };
    let refusal = match &undelivered {
        SendError::Full(_) => too_many(),
        SendError::Closed(_) => Refusal::gone("TransactionChecker"),
    };
    for end in undelivered.into_inner().0 {
        end.reply.answer(Err(refusal.clone()));
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
            // The half message says already where it goes.
            let more = detour.as_ref().map_or(&[][..], Detour::note);
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
    Refusal::busy(format_args!("{WAITING_MAX} ends of transactions wait to be stored"))
}

fn not_noted() -> Refusal {
    Refusal::new(ResponseCode::SYSTEM_ERROR, "the decision could not be noted")
}
