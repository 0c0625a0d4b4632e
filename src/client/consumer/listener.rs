//! Consumers that call a function for each message (RocketMQ's `DefaultMQPushConsumer` with its listeners).
//!
//! Invariants:
//! - a message is settled by what the function returns; one whose function panics comes again later;
//! - no more functions run at a time than was asked for; in order, no more than one for each queue;
//! - no function is called for a message of a queue that went to another member;
//! - with the handle everything ends; [`Listener::shutdown`] lets what runs come to its end.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::sleep;

use super::{ConsumerBuilder, Deliveries, Delivery};
use crate::client::error::ClientError;
use crate::client::message::Received;
use crate::client::queue::Queue;

/// Pause before a message is given to its function again, when messages are consumed in order.
const SUSPEND: Duration = Duration::from_secs(1);

/// What a function says of its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "broker", derive(actix::dev::MessageResponse))]
pub enum Outcome {
    /// It is done with.
    Done,
    /// It shall come again: after a time that grows with each try, or, in order, before any other of its queue.
    Again,
    /// It shall come again after a delay level of the broker.
    AgainAtLevel(u8),
    /// It shall go to the dead letters.
    GiveUp,
}

/// A consumer that runs. Dropping it ends the consumer; what was running comes again.
#[derive(Debug)]
pub struct Listener {
    stop: Option<oneshot::Sender<()>>,
    ended: Option<oneshot::Receiver<()>>,
    task: AbortHandle,
}

/// How functions are called.
struct Calls<F> {
    function: Arc<F>,
    in_order: bool,
    at_most: usize,
    tries_max: i32,
}

/// Messages on their way through functions.
struct Running {
    tasks: JoinSet<Outcome>,
    deliveries: HashMap<Id, Delivery>,
    /// In order: the queues with a function at work, and what waits behind it.
    waiting: HashMap<Queue, VecDeque<Delivery>>,
    waiting_count: usize,
}

impl ConsumerBuilder {
    /// Joins the group and calls a function for each message, several at a time; see
    /// [`ConsumerBuilder::concurrency`]. It must be called within a Tokio runtime.
    ///
    /// # Errors
    /// As [`ConsumerBuilder::stream`].
    pub async fn listen<F, Fut>(self, function: F) -> Result<Listener, ClientError>
    where
        F: Fn(Received) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome> + Send + 'static,
    {
        let calls = Calls {
            function: Arc::new(function),
            in_order: self.settings.in_order,
            at_most: self.concurrency,
            tries_max: self.tries_max,
        };
        let deliveries = self.stream().await?;
        let (stop, stopped) = oneshot::channel();
        let (tell, ended) = oneshot::channel();
        let task = tokio::spawn(async move {
            calls.run(deliveries, stopped).await;
            // Nobody waits if the handle was dropped.
            let _ = tell.send(());
        });
        Ok(Listener { stop: Some(stop), ended: Some(ended), task: task.abort_handle() })
    }
}

impl Listener {
    /// Takes no further message, lets the functions that run come to their end, commits and leaves the group.
    pub async fn shutdown(mut self) {
        self.stop.take();
        if let Some(ended) = self.ended.take() {
            // An error says that it has ended already.
            let _ = ended.await;
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<F, Fut> Calls<F>
where
    F: Fn(Received) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Outcome> + Send + 'static,
{
    async fn run(self, mut deliveries: Deliveries, mut stopped: oneshot::Receiver<()>) {
        let mut running = Running::new();
        loop {
            tokio::select! {
                biased;
                _ = &mut stopped => break,
                Some(ended) = running.tasks.join_next_with_id() => self.settle(&mut running, ended).await,
                next = deliveries.next(), if running.len() < self.at_most => match next {
                    None => break,
                    Some(Ok(delivery)) => self.begin(&mut running, delivery),
                    Some(Err(error)) => tracing::warn!(%error, "consumer was refused"),
                },
            }
        }
        running.forget_waiting();
        while let Some(ended) = running.tasks.join_next_with_id().await {
            running.forget_waiting();
            self.settle(&mut running, ended).await;
        }
        deliveries.shutdown().await;
    }

    fn begin(&self, running: &mut Running, delivery: Delivery) {
        if !delivery.is_current() {
            return delivery.forget();
        }
        if self.in_order {
            let queue = delivery.message().queue().clone();
            if let Some(waiting) = running.waiting.get_mut(&queue) {
                waiting.push_back(delivery);
                running.waiting_count += 1;
                return;
            }
            running.waiting.insert(queue, VecDeque::new());
        }
        self.call(running, delivery, Duration::ZERO);
    }

    fn call(&self, running: &mut Running, delivery: Delivery, pause: Duration) {
        let (function, message, lane) = (self.function.clone(), delivery.message().clone(), delivery.lane());
        let task = running.tasks.spawn(async move {
            if !pause.is_zero() {
                sleep(pause).await;
                if lane.is_some_and(|lane| !lane.is_current()) {
                    return Outcome::Again;
                }
            }
            function(message).await
        });
        running.deliveries.insert(task.id(), delivery);
    }

    /// Does what a function said.
    async fn settle(&self, running: &mut Running, ended: Result<(Id, Outcome), JoinError>) {
        let (id, outcome) = match ended {
            Ok(said) => said,
            Err(error) => {
                tracing::warn!(%error, "the listener's function panicked, its message comes again");
                (error.id(), Outcome::Again)
            }
        };
        let Some(mut delivery) = running.deliveries.remove(&id) else { return };
        if self.in_order && outcome == Outcome::Again && delivery.is_current() {
            delivery.tries += 1;
            if delivery.tries <= self.tries_max {
                return self.call(running, delivery, SUSPEND);
            }
        }
        let queue = delivery.message().queue().clone();
        let level = match outcome {
            Outcome::Done => None,
            Outcome::AgainAtLevel(level) => Some(i32::from(level)),
            Outcome::Again if !self.in_order => Some(0),
            Outcome::Again | Outcome::GiveUp => Some(-1),
        };
        let settled = match level {
            None => delivery.ack().await,
            // Whoever has the queue now gets the message.
            Some(_) if !delivery.is_current() => {
                delivery.forget();
                Ok(())
            }
            Some(level) if self.in_order => {
                let sent_back = delivery.try_retry_later(level).await;
                if sent_back.is_err() && delivery.is_current() {
                    tracing::warn!(%queue, "message not sent back, it comes again before those behind it");
                    return self.call(running, delivery, SUSPEND);
                }
                delivery.forget();
                sent_back
            }
            Some(level) => delivery.retry_later(level).await,
        };
        if let Err(error) = settled {
            tracing::warn!(%queue, %error, "message not settled, it comes again");
        }
        if self.in_order {
            self.next_of(running, &queue);
        }
    }

    /// In order: the next message of a queue whose function has ended.
    fn next_of(&self, running: &mut Running, queue: &Queue) {
        while let Some(next) = running.waiting.get_mut(queue).and_then(VecDeque::pop_front) {
            running.waiting_count -= 1;
            if next.is_current() {
                return self.call(running, next, Duration::ZERO);
            }
            next.forget();
        }
        running.waiting.remove(queue);
    }
}

impl Running {
    fn new() -> Running {
        let (tasks, deliveries, waiting) = (JoinSet::new(), HashMap::new(), HashMap::new());
        Running { tasks, deliveries, waiting, waiting_count: 0 }
    }

    fn len(&self) -> usize {
        // What waits behind others of its queue takes no place of those that could run, up to a bound.
        self.deliveries.len() + self.waiting_count / 64
    }

    /// What was not begun comes again to whoever gets its queue.
    fn forget_waiting(&mut self) {
        for waiting in self.waiting.values_mut() {
            waiting.drain(..).for_each(Delivery::forget);
        }
        self.waiting_count = 0;
    }
}
