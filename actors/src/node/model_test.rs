//! Random histories against a plain model: messages, failures, retries, dead letters, transactions and their checks,
//! with orderly restarts and crashes in between. The clock is turned by hand.
//!
//! Invariants:
//! - every message ends delivered, dead, rolled back, given up or pending, and is seen as often as the model says:
//!   a crash brings nothing twice;
//! - rounds of checks pass only where the history lets them: all other steps together take less than the time
//!   between two of them;
//! - a failure prints its seed; `MODEL_SEEDS=100..200` runs others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;
use troupemq_codec::Text;
use troupemq_codec::message::{Message, OffsetId};
use troupemq_codec::request::*;
use troupemq_store::ManualClock;

use super::delivery_test::NOW_MS;
use super::transaction_test::{Question, beat, produce_for, start_as};
use crate::node::NodeHandle;
use crate::testing::{Client, request, seeds, send_request, stored, until};

const RETRY: &str = "%RETRY%Group";
const DEAD: &str = "%DLQ%Group";
const GIVEN_UP: &str = "TRANS_CHECK_MAX_TIME_TOPIC";
/// Time between two rounds of checks, ms: 60 other steps take 40 s each at the most.
const ROUND_MS: i64 = 2_500_000;
/// How often a producer is asked about a transaction.
const CHECKS_MAX: i32 = 3;
/// How often a message may be consumed again.
const RETRIES_MAX: i32 = 3;
/// The first delay levels, in ms.
const LEVELS: [i64; 7] = [0, 1000, 5000, 10_000, 30_000, 60_000, 120_000];

/// What has become of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fate {
    /// Half of a transaction that nobody decided, with its place and those of its copies.
    Open(Vec<(i64, i64)>),
    RolledBack,
    /// Asked about too often.
    GivenUp,
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
    /// How many of the topic, of the retry topic, of the dead letters and of the given-up halves were consumed.
    read: [i64; 4],
    dead: BTreeSet<u32>,
    /// When the last round of checks passed, or the node was started.
    round_ms: i64,
}

impl History {
    fn new(seed: u64) -> History {
        let clock = Arc::new(ManualClock::at(NOW_MS));
        let dir = tempfile::tempdir().unwrap();
        let node = start(dir.path(), &clock);
        let client = Client::of(&node);
        History {
            round_ms: NOW_MS,
            seed,
            dice: seed,
            clock,
            dir,
            node,
            client,
            fates: BTreeMap::new(),
            read: [0; 4],
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
        match self.roll(13) {
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
            12 => self.check(),
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
        let place = self.half_of("Payers", &id.to_string());
        self.fates.insert(id, Fate::Open(vec![place]));
    }

    fn half_of(&mut self, group: &str, body: &str) -> (i64, i64) {
        let properties = format!("TRAN_MSG\u{1}true\u{2}PGROUP\u{1}{group}\u{2}UNIQ_KEY\u{1}U{body}\u{2}");
        let mut send = send_request("Work", 0, body.as_bytes(), &properties);
        send.fields.set("f", "4");
        let header = stored(&self.client.call(send));
        let place: OffsetId = header.message_id.parse().expect("an offset id");
        (header.queue_offset, place.log_offset)
    }

    /// Answers for a half message, also for one that was answered before.
    fn decide(&mut self) {
        let count = self.next_id();
        if count == 0 {
            return;
        }
        let (id, is_commit) = (self.roll(count), self.roll(2) == 0);
        let Fate::Open(places) = self.fates[&id].clone() else { return };
        // The first half, or any copy of it.
        let mut place = || places[self.roll(u32::try_from(places.len()).unwrap()) as usize];
        let (first, late) = (place(), place());
        assert_eq!(self.end_transaction("Payers", first, is_commit), 0, "seed {}, {id}", self.seed);
        self.fates.insert(id, if is_commit { Fate::Visible } else { Fate::RolledBack });
        if self.roll(3) == 0 {
            self.crash();
        }
        assert_ne!(self.end_transaction("Payers", late, true), 0, "seed {}, {id}", self.seed);
    }

    fn end_transaction(&mut self, group: &str, place: (i64, i64), is_commit: bool) -> i32 {
        let header = EndTransactionHeader {
            producer_group: Text::from(group),
            queue_offset: place.0,
            log_offset: place.1,
            outcome: if is_commit { TRANSACTION_COMMIT } else { TRANSACTION_ROLLBACK },
            ..EndTransactionHeader::default()
        };
        self.client.call(request::<EndTransaction>(&header)).code
    }

    /// Lets a round of checks pass: what is open is asked about once, and given up in the end.
    fn check(&mut self) {
        // The oldest comes first in a round: when this one is asked about, all others were.
        let last = self.half_of("Last", "last");
        let mut producers = [produce_for(&self.node, "Payers"), produce_for(&self.node, "Last")];
        let until_ms = self.round_ms + ROUND_MS;
        while self.now_ms() < until_ms {
            // No longer than a connection may be silent.
            self.clock.advance_to((self.now_ms() + 100_000).min(until_ms));
            if self.now_ms() < until_ms {
                ["Payers", "Last"].iter().zip(&mut producers).for_each(|(group, producer)| {
                    assert_eq!(producer.call(beat(group)).code, 0);
                });
            }
        }
        self.round_ms = until_ms;
        let [mut payers, mut other] = producers;
        let due = self
            .fates
            .values()
            .filter(|fate| matches!(fate, Fate::Open(at) if checks(at) == CHECKS_MAX))
            .count();
        let asked = Question::wait(&mut other);
        assert_eq!(asked.times(), Some("1"), "seed {}", self.seed);
        assert_eq!(self.end_transaction("Last", last, false), 0, "seed {}", self.seed);
        self.answer_questions(&mut payers);
        assert_eq!(self.read_given_up(), due, "seed {}: {:?}", self.seed, self.fates);
        for (group, producer) in [("Payers", &mut payers), ("Last", &mut other)] {
            leave(producer, group);
        }
    }

    /// One question about each transaction that may still be asked about; some are answered.
    fn answer_questions(&mut self, payers: &mut Client) {
        let asked = |fate: &&Fate| matches!(fate, Fate::Open(places) if checks(places) < CHECKS_MAX);
        for _ in 0..self.fates.values().filter(asked).count() {
            let question = Question::wait(payers);
            let id = self.id_of(&question.message, 0);
            let Some(Fate::Open(places)) = self.fates.get_mut(&id) else {
                panic!("seed {}: {id} is asked about and decided", self.seed);
            };
            places.push(question.at());
            assert_eq!(
                question.times(),
                Some(checks(places).to_string().as_str()),
                "seed {}, {id}",
                self.seed
            );
            let is_commit = self.roll(2) == 0;
            if self.roll(3) == 0 {
                assert_eq!(self.end_transaction("Payers", question.at(), is_commit), 0, "seed {}", self.seed);
                self.fates.insert(id, if is_commit { Fate::Visible } else { Fate::RolledBack });
            }
        }
    }

    /// What was given up was asked about as often as it may be, and comes once. Tells how many came.
    fn read_given_up(&mut self) -> usize {
        let messages = self.pull(3);
        let count = messages.len();
        for message in messages {
            let id = self.id_of(&message, 0);
            let is_due = matches!(&self.fates[&id], Fate::Open(places) if checks(places) == CHECKS_MAX);
            assert!(is_due, "seed {}: {id} was given up, but is {:?}", self.seed, self.fates[&id]);
            self.fates.insert(id, Fate::GivenUp);
        }
        count
    }

    fn pull(&mut self, of: usize) -> Vec<Message> {
        let topic = ["Work", RETRY, DEAD, GIVEN_UP][of];
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
        until(&format!("seed {}: every retry that is due comes", self.seed), || {
            self.take_retries();
            let now_ms = self.now_ms();
            let is_due = |fate: &Fate| matches!(fate, Fate::Waits { due_ms, .. } if *due_ms <= now_ms);
            !self.fates.values().any(is_due)
        });
    }

    fn take_retries(&mut self) {
        for message in self.pull(1) {
            let id = self.id_of(&message, message.reconsume_times);
            let (times, fate) = (message.reconsume_times, &self.fates[&id]);
            let now_ms = self.now_ms();
            let is_due =
                matches!(fate, Fate::Waits { due_ms, times: due } if *due == times && *due_ms <= now_ms);
            assert!(is_due, "seed {}: {id} came for the {times}. time, but is {fate:?}", self.seed);
            self.fates.insert(id, Fate::Again { times });
            self.finish_or_fail(id, &message);
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
        self.go_on();
    }

    fn go_on(&mut self) {
        self.node = start(self.dir.path(), &self.clock);
        self.client = Client::of(&self.node);
        self.round_ms = self.now_ms();
    }

    /// Goes on with a copy of the files as they are at this moment.
    fn crash(&mut self) {
        let survived = tempfile::tempdir().unwrap();
        copy(self.dir.path(), survived.path());
        self.node.stop_and_wait().expect("a clean stop of what was left behind");
        self.dir = survived;
        self.go_on();
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
        self.read_given_up();
        let ended = |fate: &Fate| {
            matches!(fate, Fate::Delivered | Fate::Dead | Fate::RolledBack | Fate::GivenUp | Fate::Open(_))
        };
        assert!(self.fates.values().all(ended), "seed {}: {:?}", self.seed, self.fates);
        self.node.stop_and_wait().expect("a clean stop");
    }
}

/// How often a transaction was asked about that left these places.
fn checks(places: &[(i64, i64)]) -> i32 {
    i32::try_from(places.len() - 1).unwrap()
}

/// From now on nobody is there to be asked, whenever the connection is closed.
fn leave(producer: &mut Client, group: &str) {
    let header = UnregisterClientHeader {
        client_id: Text::from("client-1"),
        producer_group: Some(Text::from(group)),
        consumer_group: None,
    };
    assert_eq!(producer.call(request::<UnregisterClient>(&header)).code, 0);
}

fn start(dir: &Path, clock: &Arc<ManualClock>) -> NodeHandle {
    start_as(dir, clock, |config| {
        config.transaction_check_interval = ROUND_MS;
        config.transaction_check_max = CHECKS_MAX;
    })
}

/// Copies a folder as it is; what is renamed meanwhile is left out. The log comes last: it holds whatever the others
/// speak of.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    let mut entries: Vec<_> = std::fs::read_dir(from).unwrap().map(Result::unwrap).collect();
    entries.sort_by_key(|entry| (entry.file_name() == "commitlog", entry.file_name()));
    for entry in entries {
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
    for seed in seeds(&[3, 11, 271, 828, 1828, 45_904]) {
        let mut history = History::new(seed);
        for _ in 0..60 {
            history.step();
        }
        history.end();
    }
}
