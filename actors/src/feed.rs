//! `Feed`: the units of a queue for the actor that owns what they speak of, in their order, with no wait for the disk.
//!
//! Invariants:
//! - what is in memory is read at once, through the file and never through the map: an error of the disk ends no
//!   process;
//! - what is not is read by a thread that may wait, one read of a queue at a time; the actor goes on with others
//!   meanwhile, and is told when it is there;
//! - a disk that fails is asked again after a pause that grows from a second to a minute; its cause is told once, and
//!   again when it reads again;
//! - a unit is read once, however often it is looked at.

use std::collections::VecDeque;
use std::sync::Arc;

use actix::fut::{ActorFutureExt, wrap_future};
use actix::{Actor, AsyncContext, Context};
use troupemq_store::{Cold, ConsumeQueue, Unit};

use crate::delayed::pause_ms;

/// Units that a thread reads at a time: of some pages of the disk.
const READ_MAX: usize = 1024;

/// The units that an actor has of a queue, and what it does not have.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    queue: Option<Arc<ConsumeQueue>>,
    known: VecDeque<Unit>,
    /// The message from which on nothing is known.
    next: i64,
    /// Whether the next unit is wanted, and not in memory.
    lacks: bool,
    is_reading: bool,
    failed: Option<Failed>,
}

/// A read that failed, and is tried again.
#[derive(Debug)]
struct Failed {
    tries: u32,
    again_ms: i64,
}

/// What a thread is to read.
#[derive(Debug)]
struct Job {
    queue: Arc<ConsumeQueue>,
    from: i64,
}

/// What it has read, or why it could not.
type Read = Result<Vec<Unit>, String>;

impl Feed {
    /// The units of `queue` from the message `from` on that are at hand, at most `max`.
    pub(crate) fn look(
        &mut self,
        queue: &Arc<ConsumeQueue>,
        from: i64,
        max: usize,
    ) -> impl Iterator<Item = Unit> + use<'_> {
        self.turn_to(queue, from);
        self.lacks = false;
        let wanted = max.saturating_sub(self.known.len());
        if wanted > 0 && self.next < queue.max_offset() {
            match queue.read_now(self.next, wanted) {
                Ok(units) => self.found(units),
                Err(Cold) => self.lacks = self.known.is_empty(),
            }
        }
        self.known.iter().take(max).copied()
    }

    /// Whether the last look found nothing because of the disk.
    pub(crate) fn lacks(&self) -> bool {
        self.lacks
    }

    /// Whether the disk could not read the next unit when it was asked last.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Whether a look would find nothing now, as a thread reads, or the disk is asked again later.
    pub(crate) fn waits(&self, now_ms: i64) -> bool {
        self.lacks && (self.is_reading || self.failed.as_ref().is_some_and(|failed| now_ms < failed.again_ms))
    }

    /// What a thread is to read now, if there is something.
    fn begin(&mut self, now_ms: i64) -> Option<Job> {
        if !self.lacks || self.waits(now_ms) {
            return None;
        }
        self.is_reading = true;
        Some(Job { queue: self.queue.clone()?, from: self.next })
    }

    /// A thread has read.
    fn ended(&mut self, job: &Job, read: Read, now_ms: i64) {
        self.is_reading = false;
        let (topic, queue_id, queue_offset) = (job.queue.topic(), job.queue.queue_id(), job.from);
        let is_of = |queue: &Arc<ConsumeQueue>| Arc::ptr_eq(queue, &job.queue);
        if !self.queue.as_ref().is_some_and(is_of) || self.next != job.from {
            // Retention has taken them, or it is another queue by now: the next look asks for what is there.
            return;
        }
        let error = match read {
            Ok(units) if units.is_empty() => "its file is gone".to_owned(),
            Ok(units) => {
                self.lacks = false;
                return self.found(units);
            }
            Err(error) => error,
        };
        let tries = self.failed.as_ref().map_or(0, |failed| failed.tries).saturating_add(1);
        let pause_ms = pause_ms(tries);
        self.failed = Some(Failed { tries, again_ms: now_ms.saturating_add(pause_ms) });
        if tries == 1 {
            tracing::error!(
                error, %topic, queue_id, queue_offset, pause_ms,
                "what waits in a queue waits until the disk can read its units"
            );
        }
    }

    /// Forgets what is not of this queue, or in front of a message.
    fn turn_to(&mut self, queue: &Arc<ConsumeQueue>, from: i64) {
        if !self.queue.as_ref().is_some_and(|known| Arc::ptr_eq(known, queue)) {
            *self = Feed { queue: Some(queue.clone()), is_reading: self.is_reading, ..Feed::default() };
        }
        while self.known.front().is_some_and(|first| first.queue_offset < from) {
            self.known.pop_front();
        }
        if self.known.front().map_or(self.next, |first| first.queue_offset) != from {
            self.known.clear();
            self.next = from;
        }
    }

    fn found(&mut self, units: Vec<Unit>) {
        if let (false, Some(queue), Some(_)) = (units.is_empty(), &self.queue, self.failed.take()) {
            let (topic, queue_id, queue_offset) = (queue.topic(), queue.queue_id(), self.next);
            tracing::info!(%topic, queue_id, queue_offset, "the disk reads the units of a queue again");
        }
        self.next = units.last().map_or(self.next, Unit::next_offset);
        self.known.extend(units);
    }
}

impl Job {
    /// Reads; waits for the disk.
    fn run(&self) -> Read {
        self.queue.read(self.from, READ_MAX).map_err(|error| error.to_string())
    }
}

/// An actor that is fed.
pub(crate) trait Fed: Actor<Context = Context<Self>> {
    /// Its feed of a queue, by the number of the queue.
    fn feed(&mut self, queue_id: i32) -> &mut Feed;

    /// Epoch milliseconds.
    fn now_ms(&self) -> i64;

    /// A thread has read what it lacked, or could not.
    fn fed(&mut self, context: &mut Context<Self>);

    /// Has a thread read what a feed lacks.
    fn fetch(&mut self, queue_id: i32, context: &mut Context<Self>) {
        let now_ms = self.now_ms();
        let Some(job) = self.feed(queue_id).begin(now_ms) else { return };
        let (queue, from) = (job.queue.clone(), job.from);
        let read = actix_rt::task::spawn_blocking(move || job.run());
        let told = wrap_future::<_, Self>(read).map(move |read, actor, context: &mut Context<Self>| {
            let now_ms = actor.now_ms();
            let read = read.unwrap_or_else(|lost| Err(lost.to_string()));
            actor.feed(queue_id).ended(&Job { queue, from }, read, now_ms);
            actor.fed(context);
        });
        context.spawn(told);
    }
}
