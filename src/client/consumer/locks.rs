//! Leases on queues: who consumes in order holds a queue alone.
//!
//! Invariants:
//! - a queue is consumed only while its lease is younger than [`LEASE`]; brokers keep it twice as long;
//! - all brokers are asked at the same time: one that is silent holds up no lease of another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use troupemq_codec::Text;
use troupemq_codec::loose_json::{from_loose, to_fastjson};
use troupemq_codec::request::{LockBatchMq, LockBody, LockReplyBody, UnlockBatchMq};
use troupemq_codec::topic::MessageQueue;
use troupemq_codec::{NoHeader, Request};

use crate::client::Client;
use crate::client::error::ClientError;
use crate::client::link::Link;
use crate::client::queue::Queue;

/// How long a lease that was not renewed counts.
pub(crate) const LEASE: Duration = Duration::from_secs(30);
/// How often leases are renewed: one that could not be has two more tries.
pub(crate) const RENEW: Duration = Duration::from_secs(10);

/// Locks queues, or renews their leases; gives those that are held now. What a broker that cannot be asked says is
/// not known: its queues are in neither set.
pub(crate) async fn lock(
    client: &Client,
    group: &Text,
    queues: &[Queue],
) -> (BTreeSet<Queue>, BTreeSet<Queue>) {
    let (mut held, mut refused) = (BTreeSet::new(), BTreeSet::new());
    let mut asked = JoinSet::new();
    for queues in by_broker(queues).into_values() {
        let (client, group) = (client.clone(), group.clone());
        asked.spawn(async move {
            let told = ask(&client, &group, &queues).await;
            (queues, told)
        });
    }
    while let Some(told) = asked.join_next().await {
        match told {
            Ok((queues, Ok(locked))) => {
                let (ours, others): (Vec<_>, Vec<_>) =
                    queues.into_iter().partition(|queue| locked.contains(&queue.into()));
                held.extend(ours);
                refused.extend(others);
            }
            Ok((_, Err(error))) => tracing::debug!(%group, %error, "queues not locked"),
            Err(error) => tracing::error!(%group, %error, "a question was cut off"),
        }
    }
    (held, refused)
}

/// Gives leases back, so that the next owner need not wait for their end.
pub(crate) async fn unlock(client: &Client, group: &Text, queues: &[Queue]) {
    let mut told = JoinSet::new();
    for queues in by_broker(queues).into_values() {
        let (client, group) = (client.clone(), group.clone());
        told.spawn(async move {
            let (link, body) = prepared(&client, &group, &queues).await?;
            link.tell::<UnlockBatchMq>(&NoHeader, body.into(), client.hub.within).await
        });
    }
    while let Some(told) = told.join_next().await {
        match told {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%group, %error, "queues not unlocked"),
            Err(error) => tracing::error!(%group, %error, "a farewell was cut off"),
        }
    }
}

async fn ask(client: &Client, group: &Text, queues: &[Queue]) -> Result<Vec<MessageQueue>, ClientError> {
    let (link, body) = prepared(client, group, queues).await?;
    let (_, body) = link.ask::<LockBatchMq>(&NoHeader, body.into(), client.hub.within).await?;
    let reply: LockReplyBody = from_loose(&body).map_err(|cause| link.malformed::<LockBatchMq>(cause))?;
    Ok(reply.locked)
}

async fn prepared(
    client: &Client,
    group: &Text,
    queues: &[Queue],
) -> Result<(Arc<Link>, Vec<u8>), ClientError> {
    let none = || ClientError::NoQueue { topic: LockBatchMq::NAME.to_owned(), wanted: "reachable" };
    let first = queues.first().ok_or_else(none)?;
    let link = client.hub.master_of(&first.topic, &first.broker_name).await?;
    let body = LockBody {
        client_id: client.hub.identity.client_id().clone(),
        consumer_group: group.clone(),
        queues: queues.iter().map(MessageQueue::from).collect(),
        only_this_broker: false,
    };
    Ok((link, to_fastjson(&body)))
}

fn by_broker(queues: &[Queue]) -> BTreeMap<Text, Vec<Queue>> {
    let mut brokers: BTreeMap<Text, Vec<Queue>> = BTreeMap::new();
    for queue in queues {
        brokers.entry(queue.broker_name.clone()).or_default().push(queue.clone());
    }
    brokers
}
