//! Collects traces and sends them, many in one message.
//!
//! Invariants:
//! - no more than [`WAITING_MAX`] traces wait; one that finds no room is dropped, and how many were is logged;
//! - a trace leaves within [`LINGER`] of the first it waits with; with the last handle the rest leaves and the task
//!   ends, and the end of the client waits for that.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};
use troupemq_codec::Text;
use troupemq_codec::message::properties::KEYS;

use super::{TRACE_TOPIC, Trace};
use crate::client::Client;
use crate::client::error::ClientError;
use crate::client::message::Message;
use crate::client::producer::Producer;

/// Traces that wait.
const WAITING_MAX: usize = 2048;
/// Traces of one message.
const BATCH_MAX: usize = 100;
/// How long a trace waits for others.
const LINGER: Duration = Duration::from_millis(200);
/// Bytes of records from which on a message takes no more.
const BODY_FROM_BYTES: usize = 100_000;
/// Bytes of keys from which on a message takes no more: all properties together may have 32 KiB.
const KEYS_FROM_BYTES: usize = 12_000;
/// Begins the names of the groups that send traces.
const GROUP_PREFIX: &str = "_INNER_TRACE_PRODUCER-";

/// What the task gets.
#[derive(Debug)]
pub(crate) enum Item {
    /// A trace to send.
    Trace(Box<Trace>),
    /// Somebody wants to know when everything before has been sent.
    Flush(oneshot::Sender<()>),
}

/// A handle to the collector of a producer or a consumer; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Tracer {
    items: mpsc::Sender<Item>,
    dropped: Arc<AtomicU64>,
}

impl Tracer {
    /// Starts the collector of a group; `side` tells producers from consumers, as Java names them.
    pub(crate) fn start(client: &Client, group: &str, side: &str) -> Result<Tracer, ClientError> {
        let producer = client.producer(&format!("{GROUP_PREFIX}{group}-{side}")).begin()?;
        let (items, inbox) = mpsc::channel(WAITING_MAX);
        let tracer = Tracer { items, dropped: Arc::default() };
        let (running, ended) = watch::channel(());
        client.hub.add_collector(Collector { items: tracer.items.downgrade(), ended });
        let group = Text::from(group);
        tokio::spawn(async move {
            collect(producer, group, inbox).await;
            drop(running);
        });
        Ok(tracer)
    }

    /// Takes a trace; never waits.
    pub(crate) fn take(&self, trace: Trace) {
        if self.items.try_send(Item::Trace(Box::new(trace))).is_err() {
            let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            if dropped.is_power_of_two() {
                tracing::warn!(dropped, "traces dropped: they come faster than they can be sent");
            }
        }
    }
}

/// A collector, as the end of its client sees it.
#[derive(Debug, Clone)]
pub(crate) struct Collector {
    items: mpsc::WeakSender<Item>,
    /// Closed when the task has ended.
    ended: watch::Receiver<()>,
}

impl Collector {
    /// Whether its task runs.
    pub(crate) fn is_running(&self) -> bool {
        self.ended.has_changed().is_ok()
    }

    /// Returns when it has sent what it has.
    pub(crate) async fn flush(mut self) {
        if let Some(items) = self.items.upgrade() {
            let (done, flushed) = oneshot::channel();
            let is_asked = items.send(Item::Flush(done)).await.is_ok();
            drop(items);
            if is_asked && flushed.await.is_ok() {
                return;
            }
        }
        // Its last handle is gone: it sends the rest and ends.
        while self.ended.changed().await.is_ok() {}
    }
}

/// The task: takes traces until the last handle is gone.
async fn collect(producer: Producer, group: Text, mut inbox: mpsc::Receiver<Item>) {
    let mut batch = Batch::default();
    while let Some(first) = inbox.recv().await {
        let mut next = Some(first);
        let until = Instant::now() + LINGER;
        let mut waiters = Vec::new();
        while let Some(item) = next {
            match item {
                Item::Trace(trace) => batch.add(&group, &trace),
                Item::Flush(waiter) => {
                    waiters.push(waiter);
                    break;
                }
            }
            if batch.is_full() {
                break;
            }
            next = timeout_at(until, inbox.recv()).await.unwrap_or(None);
        }
        if let Some(message) = batch.take()
            && let Err(error) = producer.send(message).await
        {
            tracing::warn!(%group, %error, "traces not sent");
        }
        for waiter in waiters {
            // Who asked may have gone.
            let _ = waiter.send(());
        }
    }
}

/// The records of one message.
#[derive(Debug, Default)]
struct Batch {
    count: usize,
    body: String,
    keys: BTreeSet<String>,
    keys_bytes: usize,
}

impl Batch {
    fn add(&mut self, group: &str, trace: &Trace) {
        trace.encode(group, &mut self.body);
        self.count += 1;
        for key in trace.found_by() {
            // What does not fit is not found by this key, but still by the others.
            if self.keys_bytes + key.len() < 2 * KEYS_FROM_BYTES && self.keys.insert(key.to_owned()) {
                self.keys_bytes += key.len() + 1;
            }
        }
    }

    fn is_full(&self) -> bool {
        self.count >= BATCH_MAX || self.body.len() >= BODY_FROM_BYTES || self.keys_bytes >= KEYS_FROM_BYTES
    }

    /// The message, if there are records.
    fn take(&mut self) -> Option<Message> {
        let batch = std::mem::take(self);
        if batch.count == 0 {
            return None;
        }
        let keys = Vec::from_iter(batch.keys).join(" ");
        Some(Message::new(TRACE_TOPIC, batch.body).with_property(KEYS, &keys))
    }
}
