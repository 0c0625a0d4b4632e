//! Consumers that call a function for each message (RocketMQ's `DefaultMQPushConsumer` with its listeners).
//!
//! Invariants:
//! - a message is settled by what the function returns; one whose function panics comes again later;
//! - no more functions run at a time than was asked for, and a message that is sent back keeps the place of its
//!   function until the broker has it; in order, no more than one for each queue;
//! - nobody waits for a broker that is silent: what it is to take back holds up no other message but those behind it in
//!   order;
//! - in order, a queue that stands still holds up no other: a message that waits to be given to its function again
//!   takes no place, and what waits behind it is bounded by its lane;
//! - no function is called for a message of a queue that went to another member;
//! - with the handle everything ends, and nothing is sent back because of that: who gets the queue gets the message;
//!   [`Listener::shutdown`] lets what runs come to its end.
//!
//! Contents: `row` has one task call several functions that return at once.

mod row;

use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::sleep;

use super::{ConsumerBuilder, Deliveries, Delivery};
use crate::client::error::ClientError;
use crate::client::message::Received;
use crate::client::queue::Queue;
use row::{Pace, ROW_MAX, Row, Said, Waiting};

/// Pause before a message is given to its function again, when messages are consumed in order.
const SUSPEND: Duration = Duration::from_secs(1);

/// Messages taken from the stream at once.
const TAKEN_MAX: usize = 64;

/// What a function says of its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "broker", derive(actix::dev::MessageResponse))]
pub enum Outcome {
    /// It is done with. RocketMQ: `CONSUME_SUCCESS`, `SUCCESS`.
    Done,
    /// It shall come again: after a time that grows with each try, or, in order, after 1 s and before any other of its
    /// queue. RocketMQ: `RECONSUME_LATER`, `SUSPEND_CURRENT_QUEUE_A_MOMENT`.
    Again,
    /// It shall come again after a delay level of the broker. RocketMQ: `delayLevelWhenNextConsume`.
    AgainAtLevel(u8),
    /// It shall go to the dead letters, the topic `%DLQ%` with the name of the group.
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
    /// Messages that one task gives to it at most: each thread of the runtime gets its share.
    row_max: usize,
    tries_max: i32,
}

/// Messages on their way through functions.
#[derive(Default)]
struct Running {
    tasks: JoinSet<Row>,
    /// What each task has to give to the function, in its order.
    rows: HashMap<Id, Vec<Delivery>>,
    /// Messages in them.
    begun: usize,
    pace: Pace,
    /// Messages that are being sent back.
    returns: JoinSet<Returned>,
    /// Messages that could begin, and wait for a place; in order, one of a queue at most.
    ready: VecDeque<Delivery>,
    /// In order: messages whose function said that they shall come again, until they do.
    pauses: JoinSet<()>,
    suspended: HashMap<Id, Delivery>,
    /// In order: the queues of which a message is ready, at work or suspended, and what waits behind it.
    waiting: HashMap<Queue, VecDeque<Delivery>>,
    /// Nothing is begun any more.
    is_ending: bool,
}

/// A message that was sent back, or could not be.
struct Returned {
    delivery: Delivery,
    told: Result<(), ClientError>,
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
        let threads = Handle::current().metrics().num_workers();
        let calls = Calls {
            function: Arc::new(function),
            in_order: self.settings.in_order,
            at_most: self.concurrency,
            row_max: self.concurrency.div_ceil(threads.max(1)).min(ROW_MAX),
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
    async fn run(self, deliveries: Deliveries, mut stopped: oneshot::Receiver<()>) {
        let mut running = Running::default();
        // Behind `running`, so that it is dropped before: the member then knows that its messages are not to be sent
        // back.
        let mut deliveries = deliveries;
        let mut taken = Vec::new();
        loop {
            self.call_ready(&mut running);
            // In order every queue is read on, so that none waits for another.
            let places =
                if self.in_order { usize::MAX } else { self.at_most.saturating_sub(running.at_work()) };
            tokio::select! {
                biased;
                _ = &mut stopped => break,
                Some(ended) = running.tasks.join_next_with_id() => self.settle(&mut running, ended).await,
                Some(returned) = running.returns.join_next() => self.returned(&mut running, returned),
                Some(over) = running.pauses.join_next_with_id() => running.resume(over),
                count = deliveries.take(&mut taken, places.min(TAKEN_MAX)), if places > 0 => match count {
                    0 => break,
                    _ => taken.drain(..).for_each(|next| self.take(&mut running, next)),
                },
            }
        }
        running.begin_no_more();
        loop {
            tokio::select! {
                Some(ended) = running.tasks.join_next_with_id() => self.settle(&mut running, ended).await,
                Some(returned) = running.returns.join_next() => self.returned(&mut running, returned),
                else => break,
            }
        }
        deliveries.shutdown().await;
    }

    fn take(&self, running: &mut Running, next: Result<Delivery, ClientError>) {
        let delivery = match next {
            Ok(delivery) => delivery.begin(),
            Err(error) => return tracing::warn!(%error, "consumer was refused"),
        };
        if !delivery.is_current() {
            return delivery.forget();
        }
        if self.in_order {
            let queue = delivery.message().queue().clone();
            if let Some(waiting) = running.waiting.get_mut(&queue) {
                return waiting.push_back(delivery);
            }
            running.waiting.insert(queue, VecDeque::new());
        }
        running.ready.push_back(delivery);
    }

    /// Calls as many functions as there are places.
    fn call_ready(&self, running: &mut Running) {
        while let Some(row) = self.next_row(running) {
            let mut messages: Vec<_> = row.iter().map(|delivery| delivery.message().clone()).collect();
            let function = self.function.clone();
            // Called there, so that a panic of it is one of its task.
            let task = match messages.pop() {
                Some(message) if messages.is_empty() => {
                    running.tasks.spawn(async move { row::give_one(&*function, message).await })
                }
                last => running.tasks.spawn(async move {
                    messages.extend(last);
                    let mut messages = Some(messages);
                    poll_fn(|context| {
                        Poll::Ready(row::give(&*function, messages.take().unwrap_or_default(), context))
                    })
                    .await
                }),
            };
            running.begin(task.id(), row);
        }
    }

    /// The next messages that one task is to give to the function, if there is a place for them.
    fn next_row(&self, running: &mut Running) -> Option<Vec<Delivery>> {
        let places = self.at_most.saturating_sub(running.at_work());
        let mut row = Vec::new();
        while row.len() < places.min(self.row_max).min(running.pace.messages()) {
            let Some(delivery) = running.ready.pop_front() else { break };
            if delivery.is_current() {
                row.push(delivery);
            } else {
                let queue = delivery.message().queue().clone();
                delivery.forget();
                running.next_of(&queue);
            }
        }
        (!row.is_empty()).then_some(row)
    }

    /// Does what the functions of a row said.
    async fn settle(&self, running: &mut Running, ended: Result<(Id, Row), JoinError>) {
        let (id, row) = match ended {
            Ok((id, row)) => (id, Some(row)),
            Err(error) => {
                tracing::warn!(%error, "the listener's function panicked, its message comes again");
                (error.id(), None)
            }
        };
        let mut deliveries = running.end(id).into_iter();
        let Some(row) = row else {
            for delivery in deliveries {
                self.settle_one(running, delivery, Outcome::Again).await;
            }
            return;
        };
        running.pace.ended(&row, deliveries.len());
        let begun: Vec<_> = deliveries.by_ref().take(row.said.len()).collect();
        running.put_back(deliveries);
        let mut done = Vec::with_capacity(begun.len());
        for (delivery, said) in begun.into_iter().zip(row.said) {
            match said {
                Said::Outcome(Outcome::Done) if !self.in_order => done.push(delivery),
                Said::Outcome(outcome) => self.settle_one(running, delivery, outcome).await,
                Said::Panicked(words) => {
                    tracing::warn!(words, "the listener's function panicked, its message comes again");
                    self.settle_one(running, delivery, Outcome::Again).await;
                }
                Said::Waits(waiting) => running.go_on(delivery, waiting),
            }
        }
        if let Err(error) = Delivery::ack_all(done).await {
            tracing::warn!(%error, "messages not settled, they come again");
        }
    }

    /// Does what a function said of its message.
    async fn settle_one(&self, running: &mut Running, mut delivery: Delivery, outcome: Outcome) {
        if self.in_order && outcome == Outcome::Again && delivery.is_current() {
            delivery.tries += 1;
            if delivery.tries <= self.tries_max {
                return running.suspend(delivery);
            }
        }
        let queue = delivery.message().queue().clone();
        let level = match outcome {
            Outcome::Done => None,
            Outcome::AgainAtLevel(level) => Some(i32::from(level)),
            Outcome::Again if !self.in_order => Some(0),
            Outcome::Again | Outcome::GiveUp => Some(-1),
        };
        match level {
            // Whoever has the queue now gets the message.
            Some(_) if !delivery.is_current() => delivery.forget(),
            Some(level) => return running.send_back(delivery, level),
            None => {
                if let Err(error) = delivery.ack().await {
                    tracing::warn!(%queue, %error, "message not settled, it comes again");
                }
            }
        }
        if self.in_order {
            running.next_of(&queue);
        }
    }

    /// Goes on behind a message that the broker has taken back, or could not.
    fn returned(&self, running: &mut Running, returned: Result<Returned, JoinError>) {
        let Returned { delivery, told } = match returned {
            Ok(returned) => returned,
            Err(error) => return tracing::error!(%error, "a message was not sent back"),
        };
        let queue = delivery.message().queue().clone();
        match told {
            Ok(()) => {}
            Err(error) if self.in_order && delivery.is_current() => {
                tracing::warn!(%queue, %error, "message not sent back, it comes again before those behind it");
                return running.suspend(delivery);
            }
            Err(error) => {
                tracing::warn!(%queue, %error, "message not sent back, it comes again");
                delivery.keep();
            }
        }
        if self.in_order {
            running.next_of(&queue);
        }
    }
}

impl Running {
    /// Places that are taken.
    fn at_work(&self) -> usize {
        self.begun + self.returns.len()
    }

    /// A task has begun to give messages to their function.
    fn begin(&mut self, task: Id, row: Vec<Delivery>) {
        self.begun += row.len();
        self.rows.insert(task, row);
    }

    /// The messages of a task that ended.
    fn end(&mut self, task: Id) -> Vec<Delivery> {
        let row = self.rows.remove(&task).unwrap_or_default();
        self.begun -= row.len();
        row
    }

    /// What a task did not come to is first in its turn again.
    fn put_back(&mut self, deliveries: impl DoubleEndedIterator<Item = Delivery>) {
        match self.is_ending {
            true => deliveries.for_each(Delivery::forget),
            false => deliveries.rev().for_each(|delivery| self.ready.push_front(delivery)),
        }
    }

    /// A function that waits goes on by itself.
    fn go_on(&mut self, delivery: Delivery, waiting: Waiting) {
        let task = self.tasks.spawn(async move { Row::of_one(waiting.await) });
        self.begin(task.id(), vec![delivery]);
    }

    /// Sends a message back, beside all else.
    fn send_back(&mut self, mut delivery: Delivery, level: i32) {
        self.returns.spawn(async move {
            let told = delivery.try_retry_later(level).await;
            Returned { delivery, told }
        });
    }

    /// In order: the message comes again after a pause, before any other of its queue.
    fn suspend(&mut self, delivery: Delivery) {
        if self.is_ending {
            return delivery.forget();
        }
        let pause = self.pauses.spawn(sleep(SUSPEND));
        self.suspended.insert(pause.id(), delivery);
    }

    /// The pause of a message is over.
    fn resume(&mut self, over: Result<(Id, ()), JoinError>) {
        let id = over.map_or_else(|error| error.id(), |(id, ())| id);
        self.ready.extend(self.suspended.remove(&id));
    }

    /// In order: the next message of a queue whose function has ended.
    fn next_of(&mut self, queue: &Queue) {
        while let Some(next) = self.waiting.get_mut(queue).and_then(VecDeque::pop_front) {
            if next.is_current() {
                return self.ready.push_back(next);
            }
            next.forget();
        }
        self.waiting.remove(queue);
    }

    /// What was not begun, or is to come again, does so with whoever gets its queue.
    fn begin_no_more(&mut self) {
        self.is_ending = true;
        self.pauses.abort_all();
        let waiting = self.waiting.drain().flat_map(|(_, waiting)| waiting);
        let suspended = self.suspended.drain().map(|(_, delivery)| delivery);
        waiting.chain(suspended).chain(self.ready.drain(..)).for_each(Delivery::forget);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake, Waker};

    use bytes::BytesMut;
    use tokio::sync::oneshot::error::TryRecvError;
    use tokio::sync::{Notify, mpsc};
    use tokio::time::advance;
    use troupemq_codec::message::{NewRecord, fill_holes};
    use troupemq_codec::request::DirectResult;

    use super::super::Settle;
    use super::*;

    /// Hears in the moment in which a message is let go of, and looks whether the stream is closed by then.
    struct Watch {
        stream: mpsc::Sender<Result<Delivery, ClientError>>,
        heard: AtomicUsize,
        while_open: AtomicUsize,
    }

    impl Wake for Watch {
        fn wake(self: Arc<Watch>) {
            self.heard.fetch_add(1, Ordering::SeqCst);
            self.while_open.fetch_add(usize::from(!self.stream.is_closed()), Ordering::SeqCst);
        }
    }

    pub(super) fn message(queue_offset: i64) -> Received {
        message_of(0, queue_offset)
    }

    fn message_of(queue_id: i32, queue_offset: i64) -> Received {
        let record = NewRecord { topic: "t", body: b"x", ..NewRecord::PLAIN };
        let mut bytes = BytesMut::new();
        record.encode(&mut bytes).expect("a small record");
        fill_holes(&mut bytes, queue_offset, 0, 1_795_000_000_000);
        let stored = troupemq_codec::Message::decode_all(bytes.freeze()).expect("a whole record").remove(0);
        let queue = Queue { topic: "t".into(), broker_name: "b".into(), queue_id };
        Received::new(stored, Arc::new(queue))
    }

    /// A member whose stream is closed takes what is dropped for messages of the queue's next owner; what is dropped
    /// before, it sends back.
    #[tokio::test]
    async fn a_listener_that_is_dropped_closes_its_stream_before_it_lets_go_of_any_message() {
        for in_order in [false, true] {
            let (stream, queue) = mpsc::channel(8);
            let (_end, ended) = oneshot::channel();
            let (_stop, stopped) = oneshot::channel();
            let mut settled = Vec::new();
            for queue_offset in 0..3 {
                let (settle, result) = oneshot::channel();
                let delivery = Delivery::new(message(queue_offset), Settle::Tool(settle));
                stream.send(Ok(delivery)).await.expect("there is room");
                settled.push(result);
            }
            let (tell, mut begun) = mpsc::unbounded_channel();
            let function = move |_: Received| {
                let told = tell.send(());
                async move {
                    told.expect("the test waits for it");
                    std::future::pending::<Outcome>().await
                }
            };
            let calls =
                Calls { function: Arc::new(function), in_order, at_most: 1, row_max: 1, tries_max: 1 };
            let running = tokio::spawn(calls.run(Deliveries { queue, ended }, stopped));
            begun.recv().await.expect("the first message is at work");
            let (heard, while_open) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let watch = Arc::new(Watch { stream, heard, while_open });
            let waker = Waker::from(watch.clone());
            for result in &mut settled {
                let asked = Pin::new(result).poll(&mut Context::from_waker(&waker));
                assert!(asked.is_pending(), "nothing is let go of yet");
            }
            running.abort();
            running.await.expect_err("it does not end by itself");
            assert_eq!(watch.heard.load(Ordering::SeqCst), 3, "in order: {in_order}");
            assert_eq!(watch.while_open.load(Ordering::SeqCst), 0, "in order: {in_order}");
        }
    }

    /// The clock stands still, so that several messages are given by one task as soon as the first returned.
    #[tokio::test(start_paused = true)]
    async fn a_message_settles_as_its_function_says_whoever_is_in_its_row() {
        let (stream, queue) = mpsc::channel(64);
        let (end, ended) = oneshot::channel();
        let (stop, stopped) = oneshot::channel();
        let mut settled = Vec::new();
        for queue_offset in 0..40 {
            let (settle, result) = oneshot::channel();
            let delivery = Delivery::new(message(queue_offset), Settle::Tool(settle));
            stream.send(Ok(delivery)).await.expect("there is room");
            settled.push(result);
        }
        let last = Arc::new(Notify::new());
        let function = last.clone();
        let function = move |message: Received| {
            let last = function.clone();
            async move {
                match message.queue_offset() {
                    // Waits for one that comes later.
                    10 => last.notified().await,
                    12 => panic!("this one alone"),
                    13 => return Outcome::Again,
                    39 => last.notify_one(),
                    _ => {}
                }
                Outcome::Done
            }
        };
        let calls = Calls {
            function: Arc::new(function),
            in_order: false,
            at_most: 20,
            row_max: ROW_MAX,
            tries_max: 1,
        };
        let running = tokio::spawn(calls.run(Deliveries { queue, ended }, stopped));
        for (queue_offset, result) in settled.into_iter().enumerate() {
            let wanted =
                if [12, 13].contains(&queue_offset) { DirectResult::Later } else { DirectResult::Success };
            assert_eq!(result.await.expect("it is settled"), wanted, "message {queue_offset}");
        }
        drop((stop, stream, end));
        running.await.expect("it ends");
    }

    /// Says so and takes long, if somebody is to hear of it.
    async fn take_long(heard_by: Option<Arc<Notify>>) -> Outcome {
        if let Some(heard) = heard_by {
            heard.notify_one();
            advance(Duration::from_secs(1)).await;
        }
        Outcome::Done
    }

    /// In order, the member waits for what is at work before it gives its leases back.
    #[tokio::test(start_paused = true)]
    async fn what_a_row_did_not_come_to_when_the_listener_ended_is_let_go_of_before_it_leaves() {
        for in_order in [false, true] {
            let (stream, queue) = mpsc::channel(8);
            let (_end, ended) = oneshot::channel();
            let (stop, stopped) = oneshot::channel();
            let (mut settled, mut sent) = (Vec::new(), Vec::new());
            for queue_id in 0..3 {
                let (settle, result) = oneshot::channel();
                sent.push(Ok(Delivery::new(message_of(queue_id, 0), Settle::Tool(settle))));
                settled.push(result);
            }
            let ends = Arc::new(Notify::new());
            let is_slow = ends.clone();
            let function =
                move |message: Received| take_long((message.queue().queue_id == 1).then(|| is_slow.clone()));
            let function = Arc::new(function);
            let calls = Calls { function, in_order, at_most: 8, row_max: ROW_MAX, tries_max: 1 };
            tokio::spawn(calls.run(Deliveries { queue, ended }, stopped));
            tokio::spawn(async move {
                ends.notified().await;
                drop(stop);
            });
            // The first has rows of two tried; the second takes long, and meanwhile the end is asked for.
            stream.send(sent.remove(0)).await.expect("there is room");
            assert_eq!((&mut settled[0]).await, Ok(DirectResult::Success));
            sent.into_iter().for_each(|next| stream.try_send(next).expect("there is room"));
            stream.closed().await;
            assert_eq!(settled[1].try_recv(), Ok(DirectResult::Success), "in order: {in_order}");
            assert_eq!(settled[2].try_recv(), Err(TryRecvError::Closed), "in order: {in_order}");
        }
    }
}
