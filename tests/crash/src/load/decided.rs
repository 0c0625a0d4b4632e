//! Transactions that are decided, or not, one by one and many together.
//!
//! Invariants:
//! - what nobody decides is told of before it is sent;
//! - of an end that nobody waits for nothing is told: what was decided may be stored or not.

use std::time::Duration;

use tokio::time::sleep;

use super::{DECIDED, Load};
use crate::chance::Chance;
use crate::model::Event;
use crate::wire::Wire;

/// Transactions that are ended together, at most.
const TOGETHER_MAX: u64 = 12;

impl Load {
    /// Sends half messages and decides most of them.
    pub(super) async fn decide(self, mut chance: Chance) {
        let Some(mut wire) = Wire::connect(self.broker).await else { return };
        loop {
            let count = if chance.once_in(2) { 1 } else { 2 + chance.below(TOGETHER_MAX - 1) };
            if self.decide_some(&mut wire, count, &mut chance).await.is_none() {
                match Wire::connect(self.broker).await {
                    Some(again) => wire = again,
                    None => return,
                }
            }
            sleep(Duration::from_millis(5 + chance.below(20))).await;
        }
    }

    /// None if something was refused, or the connection has ended.
    async fn decide_some(&self, wire: &mut Wire, count: u64, chance: &mut Chance) -> Option<()> {
        let mut halves = Vec::new();
        for _ in 0..count {
            let number = self.number();
            let is_decided = !chance.once_in(6);
            if !is_decided {
                self.tell(Event::Undecided { number });
            }
            let half = wire.send_half(DECIDED, number).await?;
            if is_decided {
                halves.push((number, half, !chance.once_in(3), !chance.once_in(8)));
            }
        }
        let ends: Vec<_> = halves.iter().map(|(_, half, commits, waits)| (half, *commits, *waits)).collect();
        let acknowledged = wire.end_all(&ends).await?;
        let waited_for = halves.iter().filter(|(.., waits)| *waits).zip(&acknowledged);
        for ((number, _, is_committed, _), _) in waited_for.filter(|(_, is_done)| **is_done) {
            self.tell(Event::Decided { number: *number, is_committed: *is_committed });
        }
        acknowledged.iter().all(|is_done| *is_done).then_some(())
    }
}
