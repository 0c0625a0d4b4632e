//! `Queue`: the pulls on hold at one queue of one topic. Java: `PullRequestHoldService`.
//!
//! Invariants:
//! - it is started by its topic for the first pull that must wait, and ends some time after the last has gone, or
//!   when its topic says so;
//! - it lives on the arbiter of the session whose pull came first: most queues have one reader, and for that one
//!   a hold and a wake cost no hop but the one from the dispatcher, wherever the queue lived. By a hash of its
//!   name it would stand beside its reader by chance only, on arbiter 0 every hold would be a hop too (25–35 µs
//!   to a thread that sleeps) and all filters would run beside the log;
//! - who waits registers first and looks at the queue again after that; the dispatcher publishes first and
//!   looks for waiters after that: so no arrival is missed;
//! - a pull that cannot be held any more goes back to its session, whatever becomes of the actor;
//! - a pull has its places in the rooms of its connection and of the node from before it is sent here until its hold
//!   ends, in whatever way; one whose connection is closed has them for `LOOK_EVERY` at most.
//!
//! Contents: `parked` is the state; `room` counts the holds of a connection and of the node; `readers` is what pulls
//! note that need not wait.

pub mod parked;
pub mod readers;
pub mod room;

use std::sync::Arc;
use std::time::Duration;

use actix::dev::MessageResponse;
use actix::{Actor, ActorContext, Addr, ArbiterHandle, AsyncContext, Context, Handler, Message, SpawnHandle};
use troupemq_codec::filter::MessageFilter;

use crate::commit_log::MAILBOX;
use crate::config::NodeClock;
use crate::directory::QueueView;
use crate::net::ToSession;
use crate::pull::read::told_tags;
use crate::pull::{Parcel, Wakened};
use crate::queue::parked::{Admitted, Candidate, Parked};
use crate::queue::room::Place;

/// How long a queue that nobody waits for keeps its actor.
const PASSIVE_AFTER: Duration = Duration::from_secs(60);
/// How often pulls on hold are looked at whether their connection still is.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// The shortest time a deadline is waited for.
const STEP: Duration = Duration::from_millis(1);
/// Units looked at for one who wants to wait; with more than that to look at it is served at once.
const MISSED_MAX: usize = 800;

// ---- messages

/// Sent by a session: hold this pull until something it wants arrives or its time is over. It comes back to
/// the session as `ToSession::Resume`.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Park {
    /// The first offset it has not seen.
    pub from: i64,
    /// When it wants an answer at the latest, in monotonic nanoseconds.
    pub deadline: u64,
    /// What wakes it.
    pub filter: Arc<MessageFilter>,
    /// The pull.
    pub parcel: OnHold,
}

/// Sent by the dispatcher when units were published in a queue that is waited for.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct Arrived;

/// Sent by its topic: the queue may not be read any more. The pulls on hold go back to their sessions, which find
/// out why.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct EndQueue;

/// Asked by programs that embed the broker: how the queue is.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "QueueReading")]
pub struct TellQueue;

/// The answer to `TellQueue`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, MessageResponse)]
pub struct QueueReading {
    /// First offset that is kept.
    pub min_offset: i64,
    /// The offset that the next message will get.
    pub max_offset: i64,
    /// Pulls that wait for a message.
    pub held: usize,
}

/// A pull on hold; it returns to its session even when it is merely dropped.
#[derive(Debug)]
pub struct OnHold(Option<(Box<Parcel>, [Place; 2])>);

impl OnHold {
    /// Holds a pull, which has its places in the rooms of its connection and of the node.
    pub fn new(parcel: Box<Parcel>, places: [Place; 2]) -> OnHold {
        OnHold(Some((parcel, places)))
    }

    /// Whether nobody waits for its answer any more.
    fn is_orphaned(&self) -> bool {
        self.0.as_ref().is_none_or(|(parcel, _)| parcel.link.is_closed())
    }

    /// Sends the pull back to its session.
    pub fn wake(mut self, why: Wakened) {
        self.give_back(why);
    }

    fn give_back(&mut self, why: Wakened) {
        if let Some((mut parcel, places)) = self.0.take() {
            drop(places);
            parcel.wakened = Some(why);
            let link = parcel.link.clone();
            // A session that is gone needs no answer.
            let _ = link.hand(ToSession::Resume(parcel));
        }
    }
}

impl Drop for OnHold {
    fn drop(&mut self) {
        self.give_back(Wakened::Dropped);
    }
}

// ---- actor

/// The hold of one queue.
#[derive(Debug)]
pub struct Queue {
    view: Arc<QueueView>,
    parked: Parked<OnHold>,
    clock: NodeClock,
    alarm: Option<(u64, SpawnHandle)>,
}

impl Queue {
    /// Starts the actor of a queue for at most `held_max` pulls, and names it in the view.
    pub fn launch(
        view: Arc<QueueView>,
        clock: NodeClock,
        held_max: usize,
        at: &ArbiterHandle,
    ) -> Addr<Queue> {
        let queue = view.clone();
        let started = Queue::start_in_arbiter(at, move |_| {
            let parked = Parked::new(held_max, queue.units.max_offset());
            Queue { view: queue, parked, clock, alarm: None }
        });
        view.activate(started.clone());
        started
    }

    /// Nobody finds the queue any more.
    fn leave(&self, context: &mut Context<Queue>) {
        self.view.passivate();
        context.stop();
    }

    /// Wakes whom the units published since the last look match.
    fn look(&mut self) {
        let (from, to) = (self.parked.seen_to(), self.view.units.max_offset());
        if to > from {
            let count = usize::try_from(to - from).unwrap_or(usize::MAX);
            let units = self.view.units.units(from, count);
            let woken = self.parked.arrived(to, units.map(|unit| told_tags(&self.view.units, &unit)));
            woken.into_iter().for_each(|parcel| parcel.wake(Wakened::Arrival));
        }
    }

    fn ring(&mut self, context: &mut Context<Queue>) {
        self.alarm = None;
        let due = self.parked.due(self.clock.0.nanos());
        due.into_iter().for_each(|parcel| parcel.wake(Wakened::Deadline));
        self.settle(context);
    }

    /// Every 10 s: lets go whose connection is closed.
    fn forget_orphans(&mut self, context: &mut Context<Queue>) {
        drop(self.parked.take_out(OnHold::is_orphaned));
        self.settle(context);
    }

    /// After each change: is anybody waiting, and until when?
    fn settle(&mut self, context: &mut Context<Queue>) {
        if self.parked.is_empty() {
            self.view.mark_waited_for(false);
        }
        let Some(deadline) = self.parked.next_deadline() else { return };
        match self.alarm {
            Some((set_for, _)) if set_for <= deadline => return,
            Some((_, alarm)) => {
                context.cancel_future(alarm);
            }
            None => {}
        }
        let wait = Duration::from_nanos(deadline.saturating_sub(self.clock.0.nanos())).max(STEP);
        self.alarm = Some((deadline, context.run_later(wait, Queue::ring)));
    }
}

impl Actor for Queue {
    type Context = Context<Queue>;

    fn started(&mut self, context: &mut Context<Queue>) {
        context.set_mailbox_capacity(MAILBOX);
        context.run_interval(LOOK_EVERY, Queue::forget_orphans);
        context.run_interval(PASSIVE_AFTER, |queue, context| {
            if queue.parked.is_empty() {
                queue.leave(context);
            }
        });
    }
}

impl Handler<Park> for Queue {
    type Result = ();

    fn handle(&mut self, park: Park, context: &mut Context<Queue>) {
        self.view.mark_waited_for(true);
        self.look();
        let Park { from, deadline, filter, parcel } = park;
        let queue = &self.view.units;
        let missed = queue.units(from, MISSED_MAX).map(|unit| told_tags(queue, &unit));
        let candidate = Candidate { from, deadline, filter, parcel };
        match self.parked.admit(candidate, self.clock.0.nanos(), missed) {
            Admitted::Waits => {}
            Admitted::Now(parcel) => parcel.wake(Wakened::Arrival),
            Admitted::Full(parcel) => parcel.wake(Wakened::Full),
        }
        self.settle(context);
    }
}

impl Handler<Arrived> for Queue {
    type Result = ();

    fn handle(&mut self, _: Arrived, context: &mut Context<Queue>) {
        self.look();
        self.settle(context);
    }
}

impl Handler<EndQueue> for Queue {
    type Result = ();

    fn handle(&mut self, _: EndQueue, context: &mut Context<Queue>) {
        self.leave(context);
        self.view.mark_waited_for(false);
        self.parked.drain().into_iter().for_each(|parcel| parcel.wake(Wakened::Withdrawn));
    }
}

impl Handler<TellQueue> for Queue {
    type Result = QueueReading;

    fn handle(&mut self, _: TellQueue, _: &mut Context<Queue>) -> QueueReading {
        let units = &self.view.units;
        let (min_offset, max_offset) = (units.min_offset(), units.max_offset());
        QueueReading { min_offset, max_offset, held: self.parked.len() }
    }
}
