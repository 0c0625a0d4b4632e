//! Messages that are in light queues beside that of their topic.
//!
//! Invariants:
//! - the names of a message are told of before it is sent: it may be there without an answer;
//! - some name a queue twice: they are in it twice.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::sleep;
use troupemq::Message;
use troupemq_codec::message::Message as Stored;
use troupemq_codec::message::properties::{INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET};
use troupemq_store::{Clock, SystemClock};

use super::{Load, TOPICS};
use crate::chance::Chance;
use crate::model::Event;
use crate::wire::Wire;

/// The group that reads light queues, which is light itself.
pub(crate) const LIGHT_GROUP: &str = "%LMQ%crash-readers";
/// Light queues.
const QUEUES: u64 = 6;

/// The name of a light queue.
fn name(queue: u64) -> String {
    format!("%LMQ%crash{queue}")
}

/// Some names, as a message gives them.
fn some(chance: &mut Chance) -> Vec<String> {
    let count = 1 + chance.below(3);
    (0..count).map(|_| name(chance.below(QUEUES))).collect()
}

impl Load {
    /// The message with the names of light queues.
    pub(super) fn name_light(&self, number: u64, message: Message, chance: &mut Chance) -> Message {
        let queues = some(chance);
        let named = message.with_property(INNER_MULTI_DISPATCH, &queues.join(","));
        self.tell(Event::Named { number, queues });
        named
    }

    /// Sends messages that name light queues.
    pub(super) async fn send_light(self, mut chance: Chance) {
        let Some(mut wire) = Wire::connect(self.broker).await else { return };
        loop {
            let (number, queues) = (self.number(), some(&mut chance));
            let properties = format!("{INNER_MULTI_DISPATCH}\u{1}{}\u{2}", queues.join(","));
            self.tell(Event::Named { number, queues });
            let topic = *chance.one_of(&TOPICS);
            let queue_id = i32::try_from(chance.below(4)).expect("a few queues");
            match wire.send_with(topic, queue_id, number, &properties).await {
                Some(place) => self.tell(Event::Stored(topic.to_owned(), place)),
                None => match Wire::connect(self.broker).await {
                    Some(again) => wire = again,
                    None => return,
                },
            }
            sleep(Duration::from_millis(1 + chance.below(6))).await;
        }
    }

    /// Reads the light queues from where their group stands, and commits.
    pub(super) async fn read_light(self) {
        let Some(mut wire) = Wire::connect(self.broker).await else { return };
        let mut next = BTreeMap::new();
        loop {
            for queue in (0..QUEUES).map(name) {
                if self.read_one(&mut wire, &queue, &mut next).await.is_none() {
                    match Wire::connect(self.broker).await {
                        Some(again) => wire = again,
                        None => return,
                    }
                }
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn read_one(&self, wire: &mut Wire, queue: &str, next: &mut BTreeMap<String, i64>) -> Option<()> {
        let from = match next.get(queue) {
            Some(from) => *from,
            None => wire.committed(LIGHT_GROUP, queue).await?.unwrap_or(0),
        };
        let (messages, to) = wire.pull(LIGHT_GROUP, queue, from).await?;
        let mut expected = from;
        for message in &messages {
            let at = offset_in(message, queue, expected);
            // What was deleted while it was read is passed over.
            if !self.has_holes && at.is_none_or(|at| at > expected && self.ages.is_none()) {
                let what = format!("a pull of {queue} from {from} gave at {expected}: {message:?}");
                self.tell(Event::Wrong(what));
            }
            expected = at.unwrap_or(expected) + 1;
        }
        wire.commit(LIGHT_GROUP, queue, to).await?;
        let (key, at_ms) = ((queue.to_owned(), 0), SystemClock::new().now_ms());
        self.tell(Event::Committed { queue: key, queue_offset: to, at_ms });
        next.insert(queue.to_owned(), to);
        Some(())
    }
}

/// Where a message says that it is in a light queue, from an offset on.
fn offset_in(message: &Stored, queue: &str, from: i64) -> Option<i64> {
    let list = |name: &str| message.properties.get(name).unwrap_or_default().split(',');
    let places = list(INNER_MULTI_DISPATCH).zip(list(INNER_MULTI_QUEUE_OFFSET));
    let offsets = places.filter(|(name, _)| *name == queue).filter_map(|(_, at)| at.parse().ok());
    offsets.filter(|at| *at >= from).min()
}
