//! What one scenario stands on: names of its own and clients that are separate processes to the broker.
//!
//! Invariants:
//! - each member of a group is a client of its own.
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a program beside the node: what functions got is kept behind a lock, times are the machine's"
)]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;
use troupemq::{Client, ConsumerBuilder, Listener, Message, Outcome as Settled, Producer, Received};

use crate::{Fault, Outcome, PATIENCE};

static NUMBERS: AtomicUsize = AtomicUsize::new(0);

/// The ground of one scenario.
#[derive(Clone)]
pub(crate) struct Bed {
    name_servers: String,
    scenario: &'static str,
}

impl Bed {
    pub(crate) fn new(name_servers: &str, scenario: &'static str) -> Bed {
        Bed { name_servers: name_servers.to_owned(), scenario }
    }

    /// A name that nothing else has, in this run or another.
    pub(crate) fn name(&self, kind: &str) -> String {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        format!("rs_{}_{}_{}_{kind}{number}", self.scenario, std::process::id(), now_ms() % 1_000_000)
    }

    /// A client that signs its requests if the run has a user, see [`user`].
    pub(crate) async fn client(&self) -> Result<Client, Fault> {
        self.client_of(user()).await
    }

    /// A client that signs its requests as somebody of the scenario's choice, or as nobody.
    pub(crate) async fn client_of(&self, user: Option<(String, String)>) -> Result<Client, Fault> {
        let instance = self.name("client");
        let asked = Client::builder().name_servers(&self.name_servers).instance(&instance);
        let asked = match user {
            Some((user, secret)) => asked.credentials(&user, &secret),
            None => asked,
        };
        Ok(asked.request_timeout(Duration::from_secs(60)).connect().await?)
    }

    pub(crate) async fn topic(&self, queues: i32) -> Result<String, Fault> {
        let topic = self.name("t");
        self.client().await?.create_topic(&topic, queues).await?;
        Ok(topic)
    }

    pub(crate) async fn producer(&self) -> Result<Producer, Fault> {
        let producer = self.client().await?.producer(&self.name("pg"));
        Ok(producer.send_timeout(Duration::from_secs(60)).start().await?)
    }

    /// A member of a group that begins with the first message.
    pub(crate) async fn member(&self, group: &str, topic: &str) -> Result<ConsumerBuilder, Fault> {
        Ok(self.client().await?.consumer(group).subscribe(topic, "*").from_first())
    }

    /// A member that puts what it gets into a box.
    pub(crate) async fn pushing(&self, group: &str, topic: &str, into: &Inbox) -> Result<Listener, Fault> {
        into.listen(self.member(group, topic).await?).await
    }
}

/// The user of INTEROP_USER and the secret of INTEROP_SECRET, for brokers that want requests signed.
pub(crate) fn user() -> Option<(String, String)> {
    Some((std::env::var("INTEROP_USER").ok()?, std::env::var("INTEROP_SECRET").ok()?))
}

/// Returns when a broker has registered.
pub(crate) async fn await_broker(name_servers: &str) -> Outcome {
    let until = Instant::now() + PATIENCE;
    let client = Client::builder().name_servers(name_servers).connect().await?;
    while client.admin().brokers().await?.is_empty() {
        if Instant::now() > until {
            return Err(format!("no broker has registered at {name_servers} within {PATIENCE:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

pub(crate) fn text(message: &Received) -> String {
    String::from_utf8_lossy(message.body()).into_owned()
}

/// Keeps what a listener was given, in the order of arrival.
#[derive(Clone, Default)]
pub(crate) struct Inbox(Arc<Mutex<Vec<Received>>>);

impl Inbox {
    pub(crate) async fn listen(&self, consumer: ConsumerBuilder) -> Result<Listener, Fault> {
        self.settle(consumer, |_| Settled::Done).await
    }

    /// Listens and settles each message as it is told.
    pub(crate) async fn settle(
        &self,
        consumer: ConsumerBuilder,
        settled: impl Fn(&Received) -> Settled + Send + Sync + 'static,
    ) -> Result<Listener, Fault> {
        let inbox = self.clone();
        let listener = consumer.listen(move |message: Received| {
            let settled = settled(&message);
            inbox.add(message);
            async move { settled }
        });
        Ok(listener.await?)
    }

    fn add(&self, message: Received) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(message);
    }

    pub(crate) fn all(&self) -> Vec<Received> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.all().len()
    }

    pub(crate) fn texts(&self) -> Vec<String> {
        self.all().iter().map(text).collect()
    }

    /// Waits for exactly these texts, each once.
    pub(crate) async fn await_exactly(&self, wanted: &BTreeSet<String>) -> Outcome {
        let came = || wanted.is_subset(&self.texts().into_iter().collect());
        if within("", came).await.is_err() {
            let came: BTreeSet<String> = self.texts().into_iter().collect();
            let missing: Vec<&String> = wanted.difference(&came).take(10).collect();
            return Err(format!("{} of {} came, missing: {missing:?}", came.len(), wanted.len()).into());
        }
        let mut sorted = self.texts();
        sorted.sort();
        equal(&wanted.iter().cloned().collect::<Vec<_>>(), &sorted, "what came")
    }
}

/// Waits until something holds.
pub(crate) async fn within(what: &str, holds: impl Fn() -> bool) -> Outcome {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        if Instant::now() > until {
            return Err(format!("not within {PATIENCE:?}: {what}").into());
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    Ok(())
}

pub(crate) fn equal<T: PartialEq + std::fmt::Debug>(expected: &T, actual: &T, what: &str) -> Outcome {
    if expected == actual {
        return Ok(());
    }
    Err(format!("{what}: expected {expected:?}, got {actual:?}").into())
}

pub(crate) fn check(holds: bool, what: impl Into<String>) -> Outcome {
    if holds { Ok(()) } else { Err(what.into().into()) }
}

/// Sends `prefix-0` … and gives the texts.
pub(crate) async fn send(
    producer: &Producer,
    topic: &str,
    prefix: &str,
    count: usize,
) -> Result<BTreeSet<String>, Fault> {
    let mut texts = BTreeSet::new();
    for n in 0..count {
        let text = format!("{prefix}-{n}");
        producer.send(Message::new(topic, text.clone()).tag("T").key(&text)).await?;
        texts.insert(text);
    }
    Ok(texts)
}
