//! `troupemq tx`: transactions that nobody decided.
//!
//! Invariants:
//! - what is open is found as the broker finds it: half messages behind the progress that no op message names;
//! - of a transaction that was checked the newest half message is shown, for that one is the open one;
//! - `drop` rolls back, `resume` lets the producer be asked again; both name one transaction by its id.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use clap::{Args, Subcommand};
use serde::Serialize;
use troupemq::{Client, Queue, Text};
use troupemq_codec::message::properties::{PRODUCER_GROUP, REAL_TOPIC, TRANSACTION_CHECK_TIMES};
use troupemq_codec::message::{Message, OffsetId};
use troupemq_codec::request::{
    EndTransaction, EndTransactionHeader, ResumeCheckHalfMessage, ResumeCheckHalfMessageHeader,
    TRANSACTION_ROLLBACK,
};

use super::table::{Row, cut};
use super::waiting::{queues, read};
use super::{Asked, Failure, when};

const HALVES: &str = "RMQ_SYS_TRANS_HALF_TOPIC";
const OPS: &str = "RMQ_SYS_TRANS_OP_HALF_TOPIC";
const GIVEN_UP: &str = "TRANS_CHECK_MAX_TIME_TOPIC";
/// The group whose offsets are the broker's progress.
const PROGRESS: &str = "CID_RMQ_SYS_TRANS";

/// Look at, resume and drop transactions that nobody decided
#[derive(Debug, Subcommand)]
pub(super) enum Tx {
    /// List transactions that are open or were given up
    List(List),
    /// Let the producer be asked again, as if it had never been
    Resume(One),
    /// Roll an open transaction back
    Drop(One),
}

/// What to list.
#[derive(Debug, Args)]
pub(super) struct List {
    #[command(flatten)]
    asked: Asked,
    /// Only those of this producer group
    #[arg(long)]
    group: Option<String>,
    /// At most this many of each broker, the oldest first
    #[arg(long, value_name = "N", default_value_t = 100)]
    max: usize,
}

/// Which transaction.
#[derive(Debug, Args)]
pub(super) struct One {
    #[command(flatten)]
    asked: Asked,
    /// Its id, as `tx list` shows it
    id: String,
}

/// A transaction without a decision.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Undecided {
    transaction_id: String,
    state: &'static str,
    group: String,
    topic: String,
    broker_name: Text,
    born: i64,
    checks: i32,
    keys: Vec<String>,
    /// Id of the place of its half message.
    offset_id: String,
    #[serde(skip)]
    place: (i64, i64),
    #[serde(skip)]
    master: Text,
}

impl Undecided {
    fn of(message: &Message, state: &'static str, (broker_name, master): (&Text, &Text)) -> Undecided {
        let property = |name: &str| message.properties.get(name).unwrap_or_default().to_owned();
        let place = OffsetId { host: message.store_host, log_offset: message.log_offset };
        Undecided {
            transaction_id: message.message_id(),
            state,
            group: property(PRODUCER_GROUP),
            topic: property(REAL_TOPIC),
            broker_name: broker_name.clone(),
            born: message.born_timestamp_ms,
            checks: property(TRANSACTION_CHECK_TIMES).parse().unwrap_or(0),
            keys: message.keys().map(str::to_owned).collect(),
            offset_id: place.to_string(),
            place: (message.queue_offset, message.log_offset),
            master: master.clone(),
        }
    }
}

impl Row for Undecided {
    const COLUMNS: &'static [&'static str] =
        &["id", "state", "group", "topic", "broker", "born", "checks", "keys"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.transaction_id.clone(),
            self.state.to_owned(),
            self.group.clone(),
            self.topic.clone(),
            self.broker_name.to_string(),
            when::shown(self.born),
            self.checks.to_string(),
            cut(&self.keys.join(" ")),
        ]
    }
}

impl Tx {
    pub(super) async fn run(self) -> Result<(), Failure> {
        match self {
            Tx::List(list) => list.run().await,
            Tx::Resume(one) => one.resume().await,
            Tx::Drop(one) => one.drop().await,
        }
    }
}

/// The open transactions of one broker, by the places of their half messages.
async fn open(
    client: &Client,
    (halves, master): &(Queue, Text),
) -> Result<BTreeMap<i64, Undecided>, Failure> {
    let ops = Queue { topic: OPS.into(), ..halves.clone() };
    // The progress of the op messages first: the broker moves it last, so that what is behind it is behind that of the
    // half messages too, however they move meanwhile.
    let mut begins = [0; 2];
    for (begin, queue) in begins.iter_mut().zip([&ops, halves]) {
        let saved = client.committed(PROGRESS, queue).await?.unwrap_or(0);
        *begin = saved.max(client.min_offset(queue).await?);
    }
    let mut done = BTreeSet::new();
    read(client, &ops, begins[0], |op| {
        let text = String::from_utf8_lossy(&op.body).into_owned();
        done.extend(text.split(',').filter_map(|number| number.trim().parse::<i64>().ok()));
        true
    })
    .await?;
    let (mut found, mut newest) = (BTreeMap::new(), BTreeMap::new());
    read(client, halves, begins[1], |half| {
        if !done.contains(&half.queue_offset) {
            let one = Undecided::of(&half, "open", (&halves.broker_name, master));
            if let Some(older) = newest.insert(one.transaction_id.clone(), half.queue_offset) {
                found.remove(&older);
            }
            found.insert(half.queue_offset, one);
        }
        true
    })
    .await?;
    Ok(found)
}

/// The transactions of one broker that were given up, oldest first.
async fn given_up(client: &Client, (queue, master): &(Queue, Text)) -> Result<Vec<Undecided>, Failure> {
    let mut found = Vec::new();
    let begin = client.min_offset(queue).await?;
    read(client, queue, begin, |message| {
        found.push(Undecided::of(&message, "given up", (&queue.broker_name, master)));
        true
    })
    .await?;
    Ok(found)
}

impl List {
    async fn run(self) -> Result<(), Failure> {
        let client = self.asked.client().await?;
        let is_wanted = |one: &Undecided| self.group.as_ref().is_none_or(|group| *group == one.group);
        let mut rows = Vec::new();
        for halves in queues(&client, HALVES).await? {
            let found = open(&client, &halves).await?;
            rows.extend(found.into_values().filter(is_wanted).take(self.max));
        }
        for queue in queues(&client, GIVEN_UP).await? {
            let found = given_up(&client, &queue).await?;
            rows.extend(found.into_iter().filter(is_wanted).take(self.max));
        }
        self.asked.form.print(&rows)
    }
}

impl One {
    async fn open(&self, client: &Client) -> Result<Option<Undecided>, Failure> {
        for halves in queues(client, HALVES).await? {
            let found = open(client, &halves).await?;
            if let Some(one) = found.into_values().find(|one| one.transaction_id == self.id) {
                return Ok(Some(one));
            }
        }
        Ok(None)
    }

    fn unknown(&self, what: &str) -> Failure {
        Failure::NotFound(format!("no transaction with id {} {what}", self.id))
    }

    async fn resume(self) -> Result<(), Failure> {
        let client = self.asked.client().await?;
        let mut found = self.open(&client).await?;
        for queue in queues(&client, GIVEN_UP).await? {
            let all = given_up(&client, &queue).await?;
            found = found.or_else(|| all.into_iter().rfind(|one| one.transaction_id == self.id));
        }
        let one = found.ok_or_else(|| self.unknown("is open or was given up"))?;
        let header = ResumeCheckHalfMessageHeader {
            topic: Some(one.topic.as_str().into()),
            message_id: Some(one.offset_id.as_str().into()),
        };
        client.admin().ask::<ResumeCheckHalfMessage>(&one.master, &header, Bytes::new()).await?;
        self.asked.form.done(&format!("a producer of {} will be asked about {} again", one.group, self.id))
    }

    async fn drop(self) -> Result<(), Failure> {
        let client = self.asked.client().await?;
        let one = self.open(&client).await?.ok_or_else(|| self.unknown("is open"))?;
        let header = EndTransactionHeader {
            topic: Some(HALVES.into()),
            producer_group: one.group.as_str().into(),
            queue_offset: one.place.0,
            log_offset: one.place.1,
            outcome: TRANSACTION_ROLLBACK,
            // As an answer to a check it is taken at any age.
            from_check: Some(true),
            message_id: self.id.as_str().into(),
            transaction_id: Some(self.id.as_str().into()),
        };
        client.admin().ask::<EndTransaction>(&one.master, &header, Bytes::new()).await?;
        self.asked.form.done(&format!("transaction {} is rolled back", self.id))
    }
}
