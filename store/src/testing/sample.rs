//! Messages and chance for tests.
//!
//! Invariants:
//! - the same seed gives the same numbers on every machine.

use std::sync::Arc;

use troupemq_codec::message::NewRecord;

use crate::commit_log::batch::AppendBatch;
use crate::consume_queue::ConsumeQueue;

/// A message whose body can be told from its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Queue of the message.
    pub queue_id: i32,
    /// Value of every byte of the body.
    pub fill: u8,
    /// Bytes of the body.
    pub body_bytes: usize,
}

impl Sample {
    /// Topic of samples that name no other.
    pub const TOPIC: &str = "Sample";

    /// Encodes the message at the end of `batch`.
    ///
    /// # Panics
    /// If it is too long to be encoded.
    pub fn push(&self, batch: &mut AppendBatch, queue: &Arc<ConsumeQueue>) {
        self.push_to(Sample::TOPIC, batch, queue);
    }

    /// The same for a queue of another topic.
    ///
    /// # Panics
    /// If it is too long to be encoded.
    pub(super) fn push_to(&self, topic: &str, batch: &mut AppendBatch, queue: &Arc<ConsumeQueue>) {
        let body = vec![self.fill; self.body_bytes];
        let record = NewRecord {
            queue_id: self.queue_id,
            topic,
            body: &body,
            properties: &[b"TAGS\x01TagA\x02KEYS\x01KeyA KeyB\x02"],
            ..NewRecord::PLAIN
        };
        let start = batch.bytes.len();
        record.encode(&mut batch.bytes).expect("a sample is short");
        batch.push(start, queue, 1, 2_598_919);
    }
}

/// Pseudo-random numbers (xorshift64*).
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A sequence of its own for each seed.
    pub fn seeded(seed: u64) -> Random {
        Random { state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1 }
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `limit`.
    ///
    /// # Panics
    /// If `limit` is zero.
    pub fn below(&mut self, limit: usize) -> usize {
        let high = self.bits() >> 32;
        usize::try_from(high).expect("32 bits fit") % limit
    }

    /// A byte.
    pub fn byte(&mut self) -> u8 {
        self.bits().to_be_bytes()[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_sequence() {
        let numbers = |seed| {
            let mut random = Random::seeded(seed);
            [random.below(1_000), random.below(1_000), random.below(1_000)]
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
    }
}
