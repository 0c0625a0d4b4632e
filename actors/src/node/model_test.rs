//! Random histories against a plain model: messages, failures, retries, dead letters, transactions, with orderly
//! restarts and crashes in between. The clock is turned by hand.
//!
//! Invariants:
//! - every message ends delivered, dead, rolled back or pending, and is seen as often as the model says;
//! - only a crash may bring a retry twice: the places of the delay levels are saved once a second, and what was
//!   delivered since then is delivered again;
//! - a failure prints its seed and the step.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;
use troupemq_codec::Text;
use troupemq_codec::message::{Message, OffsetId};
use troupemq_codec::request::*;
use troupemq_store::ManualClock;

use super::delivery_test::{NOW_MS, start, stored};
use crate::node::NodeHandle;
use crate::testing::{Client, request, send_request};

const RETRY: &str = "%RETRY%Group";
const DEAD: &str = "%DLQ%Group";
/// How often a message may be consumed again.
const RETRIES_MAX: i32 = 3;
/// The first delay levels, in ms.
const LEVELS: [i64; 7] = [0, 1000, 5000, 10_000, 30_000, 60_000, 120_000];

/// What has become of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Half of a transaction that nobody decided, with its place.
    Open((i64, i64)),
    RolledBack,
    /// In its topic, not consumed yet.
    Visible,
    /// Failed so often, due again at this time.
    Waits {
        due_ms: i64,
        times: i32,
    },
    /// In the retry topic, not consumed yet.
    Again {
        times: i32,
    },
    Delivered,
    Dead,
}

struct History {
    seed: u64,
    dice: u64,
    clock: Arc<ManualClock>,
    dir: TempDir,
    node: NodeHandle,
    client: Client,
    fates: BTreeMap<u32, Fate>,
    /// How many of the topic, of the retry topic and of the dead letters were consumed.
    read: [i64; 3],
    /// Retries that came since the last orderly stop: a crash may bring them again.
    came: BTreeSet<(u32, i32)>,
    may_come_again: BTreeSet<(u32, i32)>,
    dead: BTreeSet<u32>,
}

impl History {
    fn new(seed: u64) -> History {
        let clock = Arc::new(ManualClock::at(NOW_MS));
        let dir = tempfile::tempdir().unwrap();
        let node = start(dir.path(), &clock);
        let client = Client::of(&node);
        History {
            seed,
            dice: seed,
            clock,
            dir,
            node,
            client,
            fates: BTreeMap::new(),
            read: [0; 3],
            came: BTreeSet::new(),
            may_come_again: BTreeSet::new(),
            dead: BTreeSet::new(),
        }
    }

    fn roll(&mut self, sides: u32) -> u32 {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(self.dice >> 33).unwrap() % sides
    }

    fn now_ms(&self) -> i64 {
        self.node.broker().unwrap().now_ms()
    }

    fn step(&mut self) {
        match self.roll(12) {
            0..=2 => self.send(),
            3 => self.half(),
            4 | 5 => self.decide(),
            6..=8 => self.consume(),
            9 => {
                let ms = self.roll(40_000);
                self.clock.advance_ms(ms);
            }
            10 if self.roll(3) == 0 => self.restart(),
            11 if self.roll(3) == 0 => self.crash(),
            _ => self.consume(),
        }
    }

    fn next_id(&self) -> u32 {
        u32::try_from(self.fates.len()).unwrap()
    }

    fn send(&mut self) {
        let id = self.next_id();
        stored(&self.client.produce(
            "Work",
            0,
            id.to_string().as_bytes(),
            &format!("UNIQ_KEY\u{1}U{id}\u{2}"),
        ));
        self.fates.insert(id, Fate::Visible);
    }

    fn half(&mut self) {
        let id = self.next_id();
        let properties = format!("TRAN_MSG\u{1}true\u{2}PGROUP\u{1}Payers\u{2}UNIQ_KEY\u{1}U{id}\u{2}");
        let mut send = send_request("Work", 0, id.to_string().as_bytes(), &properties);
        send.fields.set("f", "4");
        let header = stored(&self.client.call(send));
        let place: OffsetId = header.message_id.parse().expect("an offset id");
        self.fates.insert(id, Fate::Open((header.queue_offset, place.log_offset)));
    }

    /// Answers for a half message, also for one that was answered before.
    fn decide(&mut self) {
        let count = self.next_id();
        if count == 0 {
            return;
        }
        let (id, is_commit) = (self.roll(count), self.roll(2) == 0);
        let Fate::Open(place) = self.fates[&id] else { return };
        let header = EndTransactionHeader {
            producer_group: Text::from("Payers"),
            queue_offset: place.0,
            log_offset: place.1,
            outcome: if is_commit { TRANSACTION_COMMIT } else { TRANSACTION_ROLLBACK },
            ..EndTransactionHeader::default()
        };
        let end = request::<EndTransaction>(&header);
        assert_eq!(self.client.call(end.clone()).code, 0, "seed {}, {id}", self.seed);
        self.fates.insert(id, if is_commit { Fate::Visible } else { Fate::RolledBack });
        if self.roll(3) == 0 {
            self.crash();
        }
        let late = EndTransactionHeader { outcome: TRANSACTION_COMMIT, ..header };
        assert_ne!(self.client.call(request::<EndTransaction>(&late)).code, 0, "seed {}, {id}", self.seed);
    }

    fn pull(&mut self, of: usize) -> Vec<Message> {
        let topic = ["Work", RETRY, DEAD][of];
        let answer = self.client.pull(topic, 0, self.read[of], "*");
        let messages =
            if answer.code == 0 { Message::decode_all(answer.body).expect("records") } else { Vec::new() };
        self.read[of] += i64::try_from(messages.len()).unwrap();
        messages
    }

    /// Reads what there is; each message is done with or fails.
    fn consume(&mut self) {
        for message in self.pull(0) {
            let id = self.id_of(&message, 0);
            assert_eq!(self.fates[&id], Fate::Visible, "seed {}, {id}", self.seed);
            self.finish_or_fail(id, &message);
        }
        self.wait_for_retries();
        self.read_dead();
    }

    /// Waits until every retry that is due has come, and consumes them.
    fn wait_for_retries(&mut self) {
        loop {
            for message in self.pull(1) {
                let id = self.id_of(&message, message.reconsume_times);
                let (times, fate) = (message.reconsume_times, self.fates[&id]);
                let now_ms = self.now_ms();
                let is_due =
                    matches!(fate, Fate::Waits { due_ms, times: due } if due == times && due_ms <= now_ms);
                if !is_due {
                    let again = self.may_come_again.remove(&(id, times));
                    assert!(again, "seed {}: {id} came for the {times}. time, but is {fate:?}", self.seed);
                    continue;
                }
                self.came.insert((id, times));
                self.fates.insert(id, Fate::Again { times });
                self.finish_or_fail(id, &message);
            }
            let now_ms = self.now_ms();
            let is_due = |fate: &Fate| matches!(fate, Fate::Waits { due_ms, .. } if *due_ms <= now_ms);
            if !self.fates.values().any(is_due) {
                return;
            }
            std::thread::yield_now();
        }
    }

    fn read_dead(&mut self) {
        loop {
            let messages = self.pull(2);
            if messages.is_empty() {
                break;
            }
            for message in messages {
                let id = self.id_of(&message, message.reconsume_times);
                assert_eq!(self.fates[&id], Fate::Dead, "seed {}, {id}", self.seed);
                assert!(self.dead.insert(id), "seed {}: {id} is dead twice", self.seed);
            }
        }
        let dead = self.fates.values().filter(|fate| **fate == Fate::Dead).count();
        assert_eq!(self.dead.len(), dead, "seed {}", self.seed);
    }

    fn id_of(&self, message: &Message, times: i32) -> u32 {
        let id: u32 = std::str::from_utf8(&message.body).unwrap().parse().expect("a body of ours");
        assert_eq!(message.properties.get("UNIQ_KEY"), Some(format!("U{id}").as_str()), "seed {}", self.seed);
        assert_eq!(message.reconsume_times, times, "seed {}, {id}", self.seed);
        id
    }

    fn finish_or_fail(&mut self, id: u32, message: &Message) {
        if self.roll(2) == 0 {
            self.fates.insert(id, Fate::Delivered);
            return;
        }
        let level = [0, 0, 0, 1, 2, -1][self.roll(6) as usize];
        let header = ConsumerSendMsgBackHeader {
            log_offset: message.log_offset,
            group: Text::from("Group"),
            delay_level: level,
            reconsume_max: Some(RETRIES_MAX),
            ..ConsumerSendMsgBackHeader::default()
        };
        let mut back = request::<ConsumerSendMsgBack>(&header);
        back.version = 475;
        let due = self.now_ms();
        assert_eq!(self.client.call(back).code, 0, "seed {}, {id}", self.seed);
        let times = message.reconsume_times;
        let used = if level == 0 { 3 + times } else { level };
        self.fates.insert(
            id,
            match usize::try_from(used) {
                Ok(used) if times < RETRIES_MAX => {
                    Fate::Waits { due_ms: due + LEVELS[used], times: times + 1 }
                }
                _ => Fate::Dead,
            },
        );
    }

    fn restart(&mut self) {
        self.node.stop_and_wait().expect("a clean stop");
        self.came.clear();
        self.may_come_again.clear();
        self.node = start(self.dir.path(), &self.clock);
        self.client = Client::of(&self.node);
    }

    /// Goes on with a copy of the files as they are at this moment.
    fn crash(&mut self) {
        let survived = tempfile::tempdir().unwrap();
        copy(self.dir.path(), survived.path());
        self.node.stop_and_wait().expect("a clean stop of what was left behind");
        self.may_come_again.extend(self.came.iter().copied());
        self.dir = survived;
        self.node = start(self.dir.path(), &self.clock);
        self.client = Client::of(&self.node);
    }

    /// Lets every retry come and checks that nothing else happens.
    fn end(&mut self) {
        while self
            .fates
            .values()
            .any(|fate| matches!(fate, Fate::Visible | Fate::Waits { .. } | Fate::Again { .. }))
        {
            self.consume();
            self.clock.advance_ms(7_200_000);
        }
        self.restart();
        self.consume();
        let ended =
            |fate: &Fate| matches!(fate, Fate::Delivered | Fate::Dead | Fate::RolledBack | Fate::Open(_));
        assert!(self.fates.values().all(ended), "seed {}: {:?}", self.seed, self.fates);
        self.node.stop_and_wait().expect("a clean stop");
    }
}

/// Copies a folder as it is; what is renamed meanwhile is left out.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else if let Err(error) = std::fs::copy(entry.path(), target) {
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
        }
    }
}

#[test]
fn every_message_ends_delivered_dead_rolled_back_or_pending() {
    for seed in [3, 11, 271, 828, 1828, 45_904] {
        let mut history = History::new(seed);
        for _ in 0..60 {
            history.step();
        }
        history.end();
    }
}
