//! Topics that are deleted and made again, over and over.
//!
//! Invariants:
//! - a topic counts as gone from the answer to its deletion until it is about to be made again;
//! - what was sent to it is nobody's: only what is left of it has to fit together.

use std::time::Duration;

use tokio::time::sleep;

use super::Load;
use crate::chance::Chance;
use crate::model::Event;
use crate::wire::Wire;

/// Begins the names of these topics.
pub(crate) const GONE: &str = "CrashGone";

impl Load {
    /// Makes topics, sends to them and deletes them.
    pub(super) async fn delete_topics(self, mut chance: Chance) {
        let Some(mut wire) = Wire::connect(self.broker).await else { return };
        loop {
            let topic = format!("{GONE}{}", chance.below(3));
            self.tell(Event::Revived(topic.clone()));
            if self.client.create_topic(&topic, 4).await.is_ok() {
                for _ in 0..chance.below(20) {
                    let queue_id = i32::try_from(chance.below(4)).expect("a few queues");
                    if wire.send_one(&topic, queue_id, self.number()).await.is_none() {
                        return;
                    }
                }
                if self.client.admin().delete_topic(&topic).await.is_ok() {
                    self.tell(Event::Gone(topic));
                }
            }
            sleep(Duration::from_millis(30 + chance.below(200))).await;
        }
    }
}
