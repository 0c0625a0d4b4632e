//! Random histories of timers against a plain model: sends, recalls, time that passes, kills, restarts.
//!
//! Invariants:
//! - the seed of a history that fails is in its message; `MODEL_SEEDS=100..200` runs others.

use std::collections::BTreeMap;
use std::sync::Arc;

use tempfile::TempDir;
use troupemq_codec::Text;
use troupemq_codec::message::Message;
use troupemq_store::ManualClock;
use troupemq_store::testing::Random;

use super::delivery_test::NOW_MS;
use super::timer_test::{copy, recall, start, wait_for_count};
use crate::node::NodeHandle;
use crate::testing::{Client, seeds, stored};

const STEPS: usize = 120;
const KINDS: [&str; 4] = ["TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "DELAY"];

/// What the model knows of a message.
struct Sent {
    due_ms: i64,
    handle: Option<Text>,
    is_recalled: bool,
}

struct History {
    random: Random,
    clock: Arc<ManualClock>,
    dir: TempDir,
    node: NodeHandle,
    client: Client,
    sent: BTreeMap<String, Sent>,
    now_ms: i64,
}

impl History {
    fn new(seed: u64) -> History {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(NOW_MS));
        let node = start(dir.path(), &clock);
        let client = Client::of(&node);
        let (random, sent) = (Random::seeded(seed), BTreeMap::new());
        History { random, clock, dir, node, client, sent, now_ms: NOW_MS }
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..=9 => self.send(),
            10..=12 => self.recall(),
            13..=17 => {
                let ms = 1 + self.random.below(1_500);
                self.advance(ms as i64);
            }
            18 => self.restart(),
            _ => self.kill(),
        }
    }

    fn send(&mut self) {
        let id = format!("{:04}", self.sent.len());
        let kind = KINDS[self.random.below(4)];
        let (value, delay_ms) = match kind {
            "TIMER_DELIVER_MS" => {
                let delay_ms = self.random.below(8_000) as i64;
                (self.now_ms + delay_ms, delay_ms)
            }
            "TIMER_DELAY_MS" => {
                let delay_ms = self.random.below(8_000) as i64;
                (delay_ms, delay_ms)
            }
            "TIMER_DELAY_SEC" => {
                let seconds = self.random.below(8) as i64;
                (seconds, seconds * 1000)
            }
            _ => [(1, 1_000), (2, 5_000)][self.random.below(2)],
        };
        let properties = format!("{kind}\u{1}{value}\u{2}UNIQ_KEY\u{1}{id}\u{2}");
        let handle = stored(&self.client.produce("Model", 0, id.as_bytes(), &properties)).recall_handle;
        self.sent.insert(id, Sent { due_ms: self.now_ms + delay_ms, handle, is_recalled: false });
    }

    fn recall(&mut self) {
        let skip = self.random.below(1 + self.sent.len());
        let Some((id, sent)) = self.sent.iter_mut().nth(skip) else { return };
        let Some(handle) = &sent.handle else { return };
        let answer = recall(&mut self.client, "Model", handle);
        if answer.code == 0 {
            assert!(sent.due_ms > self.now_ms, "{id} was recalled after it was due");
            sent.is_recalled = true;
        }
    }

    fn advance(&mut self, ms: i64) {
        self.now_ms += ms;
        self.clock.advance_to(self.now_ms);
    }

    fn restart(&mut self) {
        self.node.stop_and_wait().expect("a clean stop");
        self.node = start(self.dir.path(), &self.clock);
        self.client = Client::of(&self.node);
    }

    fn kill(&mut self) {
        let killed = tempfile::tempdir().unwrap();
        copy(self.dir.path(), killed.path());
        self.node.stop_and_wait().expect("a clean stop");
        self.dir = killed;
        self.node = start(self.dir.path(), &self.clock);
        self.client = Client::of(&self.node);
    }

    /// Everything that was not recalled comes once, and none before its time.
    fn end(mut self, seed: u64) {
        self.advance(20_000);
        let wanted = self.sent.values().filter(|sent| !sent.is_recalled).count();
        wait_for_count(&mut self.client, "Model", wanted as i64);
        self.restart();
        let mut found: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        let mut offset = 0;
        loop {
            let answer = self.client.pull("Model", 0, offset, "*");
            let messages = Message::decode_all(answer.body).unwrap_or_default();
            let Some(last) = messages.last() else { break };
            offset = last.queue_offset + 1;
            for message in messages {
                let id = String::from_utf8(message.body.to_vec()).unwrap();
                found.entry(id).or_default().push(message.store_timestamp_ms);
            }
        }
        for (id, sent) in &self.sent {
            let came = found.remove(id).unwrap_or_default();
            let wanted = usize::from(!sent.is_recalled);
            assert_eq!(came.len(), wanted, "seed {seed}: {id} came {came:?}, due {}", sent.due_ms);
            assert!(came.iter().all(|came_ms| *came_ms >= sent.due_ms), "seed {seed}: {id} came early");
        }
        self.node.stop_and_wait().expect("a clean stop");
    }
}

#[test]
fn every_message_comes_once_and_not_early_or_was_recalled_whatever_happens() {
    for seed in seeds(&[1, 2, 3, 4]) {
        let mut history = History::new(seed);
        (0..STEPS).for_each(|_| history.step());
        history.end(seed);
    }
}
