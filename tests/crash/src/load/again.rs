//! Messages that a group fails with: they are sent back, to come again after a level or as dead letters.
//!
//! Invariants:
//! - a message is sent back once: it comes again once.

use std::time::Duration;

use tokio::time::sleep;

use super::Load;
use crate::chance::Chance;
use crate::model::Event;
use crate::wire::Wire;

/// Topic of the messages.
const FAILED: &str = "CrashFailed";
/// The group that fails.
const GROUP: &str = "crash-failing";
/// Where they come again.
pub(crate) const RETRY: &str = "%RETRY%crash-failing";
/// Where they go that are given up.
pub(crate) const DEAD: &str = "%DLQ%crash-failing";

impl Load {
    /// Sends messages and sends them back.
    pub(super) async fn send_back(self, mut chance: Chance) {
        let Some(mut wire) = Wire::connect(self.broker).await else { return };
        loop {
            let number = self.number();
            if self.fail_once(&mut wire, number, &mut chance).await.is_none() {
                match Wire::connect(self.broker).await {
                    Some(again) => wire = again,
                    None => return,
                }
            }
            sleep(Duration::from_millis(5 + chance.below(20))).await;
        }
    }

    async fn fail_once(&self, wire: &mut Wire, number: u64, chance: &mut Chance) -> Option<()> {
        let place = wire.send_one(FAILED, 0, number).await?;
        self.tell(Event::Stored(FAILED.to_owned(), place));
        let is_dead = chance.once_in(3);
        let level = i32::try_from(1 + chance.below(3)).expect("there are three levels");
        wire.send_back(GROUP, place.log_offset, if is_dead { -1 } else { level }).await?;
        self.tell(Event::SentBack { number, is_dead });
        Some(())
    }
}
