//! Reading a queue of any topic from an offset to its end: what `dlq` and `tx` look through.
//!
//! Invariants:
//! - what comes while a queue is read is left for the next time: the end is asked for once;
//! - messages are handed on as they come, so that memory holds one answer of the broker and no more.

use troupemq::{Client, ClientError, PullRequest, PullStatus, Queue, Text};
use troupemq_codec::message::Message;

use super::Failure;

/// The group in whose name tools read; every broker has it.
pub(super) const TOOLS: &str = "TOOLS_CONSUMER";

/// The queues of a topic, with the address of the master of each; none if the topic is nowhere.
pub(super) async fn queues(client: &Client, topic: &str) -> Result<Vec<(Queue, Text)>, Failure> {
    let route = match client.admin().route(topic).await {
        Ok(route) => route,
        Err(ClientError::NoRoute { .. }) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut queues = Vec::new();
    for data in &route.queue_datas {
        let broker = route.broker_datas.iter().find(|broker| broker.broker_name == data.broker_name);
        let Some(master) = broker.and_then(|broker| broker.broker_addrs.get(&0)) else { continue };
        for queue_id in 0..data.read_queue_nums {
            let queue = Queue { topic: topic.into(), broker_name: data.broker_name.clone(), queue_id };
            queues.push((queue, master.clone()));
        }
    }
    queues.sort();
    Ok(queues)
}

/// Hands every message of a queue from an offset on to `take`, until that wants no more; gives the end of the queue.
pub(super) async fn read(
    client: &Client,
    queue: &Queue,
    from: i64,
    mut take: impl FnMut(Message) -> bool,
) -> Result<i64, Failure> {
    let end = client.max_offset(queue).await?;
    let mut next = from;
    while next < end {
        let pulled = client.pull(queue, &PullRequest::from(TOOLS, next)).await?;
        for message in pulled.messages {
            if message.queue_offset >= end || !take(message) {
                return Ok(end);
            }
        }
        // A queue that was cut off at its begin goes on behind the cut; one that gives nothing has ended.
        if pulled.next_offset <= next || pulled.status == PullStatus::NothingNew {
            break;
        }
        next = pulled.next_offset;
    }
    Ok(end)
}
