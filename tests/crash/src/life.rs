//! One store from its first start to its orderly end, with many kills between.
//!
//! Invariants:
//! - after each kill the store is judged before the next start;
//! - at the end the broker stops in order, and the next open has nothing to do.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, sleep};
use troupemq::{Client, PullRequest, Queue};
use troupemq_store::light;

use crate::Fault;
use crate::broker::{Broker, Ended, Harm, Recipe, last_lines};
use crate::chance::Chance;
use crate::load::again::RETRY;
use crate::load::light::LIGHT_GROUP;
use crate::load::{GROUP, LATER, Load};
use crate::model::{Event, Model, number_of};
use crate::moment::{Moment, Phase, Refusal};
use crate::power::{self, Lost};
use crate::tally::Tally;
use crate::told::{self, Found};
use crate::verdict::Judge;
use crate::wire::Wire;

/// Small files, so that a second of load rolls and recycles them.
const SETTINGS: &str = "\
mappedFileSizeCommitLog=262144
mappedFileSizeConsumeQueue=12000
mapperFileSizeBatchConsumeQueue=4600
mappedFileSizeConsumeQueueExt=4096
maxHashSlotNum=500
maxIndexNum=2000
flushIntervalCommitLog=50
flushCommitLogBytes=65536
messageDelayLevel=1s 2s 3s
mappedFileSizeTimerLog=5216
timerPrecisionMs=100
recallMessageEnable=true
transactionTimeOut=300
transactionCheckInterval=200
transactionCheckMax=3
recycledSegmentsMax=2
diskFreeFloorBytes=0
diskSpaceWarningLevelRatio=100
diskSpaceCleanForciblyRatio=99
diskMaxUsedSpaceRatio=95
";
/// How long what waits may take to come once nothing kills the broker any more.
const SETTLING: Duration = Duration::from_secs(120);

/// How long clients wait for an answer of a broker that may be dying.
const ANSWERED: Duration = Duration::from_secs(2);

/// What a life is like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    flush: &'static str,
    /// Old messages are deleted, and their segments used again.
    ages: bool,
    /// After each kill the machine loses what was not on the disk, and derived files are damaged, those of the queues'
    /// extensions too.
    loses_power: bool,
    /// Messages are in light queues too.
    is_light: bool,
}

impl Kind {
    /// How many there are.
    pub(crate) const COUNT: usize = 6;

    /// The kind of the life with this number.
    pub(crate) fn of(number: usize) -> Kind {
        const fn kind(flush: &'static str, ages: bool, loses_power: bool, is_light: bool) -> Kind {
            Kind { flush, ages, loses_power, is_light }
        }
        const KINDS: [Kind; Kind::COUNT] = [
            kind("async", true, false, false),
            kind("sync", false, false, true),
            kind("async", false, true, true),
            kind("sync", true, false, true),
            kind("async", false, false, false),
            kind("sync", false, true, false),
        ];
        KINDS[number % KINDS.len()]
    }

    /// The judge of a store of this kind, which has a folder for copies.
    fn judge<'a>(&self, (store, scratch): (&'a Path, &'a Path), lost: Option<&'a Lost>) -> Judge<'a> {
        Judge { store, scratch, lost, extends: self.loses_power, is_light: self.is_light }
    }
}

/// One store and what is known of it.
#[derive(Debug)]
pub(crate) struct Life {
    recipe: Recipe,
    dir: PathBuf,
    kind: Kind,
    chance: Chance,
    model: Model,
    numbers: Arc<AtomicU64>,
    /// What the next start finds.
    found: Found,
    /// The last start was killed before it served: another one may be.
    died_young: bool,
}

impl Life {
    /// Kills of one life, at most.
    pub(crate) const KILLS: u32 = 20;

    pub(crate) fn begin(program: &Path, dir: &Path, kind: Kind, chance: Chance) -> Result<Life, Fault> {
        std::fs::create_dir_all(dir).map_err(Fault::of(format!("cannot make {}", dir.display())))?;
        let settings = dir.join("settings");
        let Kind { loses_power, is_light, .. } = kind;
        let text = format!(
            "{SETTINGS}enableConsumeQueueExt={loses_power}\nenableLmq={is_light}\nenableMultiDispatch={is_light}\n"
        );
        std::fs::write(&settings, text).map_err(Fault::of("cannot write the settings"))?;
        let recipe = Recipe {
            program: program.to_path_buf(),
            store: dir.join("store"),
            settings,
            log: dir.join("log"),
            flush: kind.flush,
        };
        let (dir, numbers) = (dir.to_path_buf(), Arc::new(AtomicU64::new(1)));
        let (model, found) = (Model::default(), Found::NOTHING);
        Ok(Life { recipe, dir, kind, chance, model, numbers, found, died_young: false })
    }

    /// Lives through `kills`, then ends in order.
    pub(crate) async fn live(&mut self, kills: u32, tally: &mut Tally) -> Result<(), Fault> {
        for number in 0..kills {
            let done = self.round(tally).await;
            done.map_err(|fault| self.told(&fault, &format!("kill {number}")))?;
        }
        tally.messages += self.model.len();
        let settled = self.settle().await;
        settled.map_err(|fault| self.told(&fault, "the end"))
    }

    /// A fault with where it happened and what the broker said last.
    fn told(&self, Fault(what): &Fault, moment: &str) -> Fault {
        let log = last_lines(&self.recipe.log, 15);
        Fault(format!("{:?}, {moment}: {what}\n--- the broker's log\n{log}\n---", self.kind))
    }

    async fn round(&mut self, tally: &mut Tally) -> Result<(), Fault> {
        let harm = self.harm(tally);
        let begun = told::begin(&self.recipe.log);
        let (ended, served) = match self.recipe.start(&harm).await? {
            Err(ended) => (ended, false),
            Ok(mut broker) => (self.work_and_die(&mut broker, &harm).await?, true),
        };
        told::judge(&self.recipe.log, begun, &self.found, served)?;
        if ended == Ended::GaveUp {
            told::cause_is_named(&self.recipe.log, begun)?;
        }
        self.died_young = !served;
        tally.note(&harm, ended, served)?;
        self.judge(begun, ended == Ended::Stopped)
    }

    /// What is done to the next broker. One start that dies is often followed by others.
    fn harm(&mut self, tally: &Tally) -> Harm {
        let chance = &mut self.chance;
        let phase = if self.kind.loses_power { Phase::Mend } else { Phase::Start };
        if self.died_young && chance.once_in(2) {
            return Harm::Dies(Moment::of(phase, chance));
        }
        match chance.below(24) {
            0..6 => Harm::None,
            6 => Harm::Refused(Refusal::by(chance)),
            7..9 => Harm::Unread(Refusal::of_reading(chance), Moment::of(Phase::Mend, chance)),
            9..13 => Harm::Dies(Moment::of(phase, chance)),
            13 => Harm::Early(Duration::from_millis(20 + chance.below(400))),
            14 => Harm::Stops(Moment::of(Phase::Stop, chance)),
            15 => Harm::StopsAndKilled(Duration::from_millis(chance.below(60))),
            _ => Harm::Dies(tally.places.next(self.kind.ages, chance)),
        }
    }

    /// Puts the broker under load until it is dead; tells how it died.
    async fn work_and_die(&mut self, broker: &mut Broker, harm: &Harm) -> Result<Ended, Fault> {
        // Tables of offsets are saved every five seconds.
        let time_ms = match self.chance.once_in(10) {
            true => 5_100 + self.chance.below(1_000),
            false => 60 + self.chance.below(900),
        };
        let time = match harm {
            Harm::Dies(moment) => moment.patience().unwrap_or(Duration::from_millis(time_ms)),
            _ => Duration::from_millis(time_ms),
        };
        let begun = Instant::now();
        let Ok(client) = connect(broker, ANSWERED).await else { return broker.kill_after(time, harm).await };
        let known = self.ask_all(&client, broker.address).await;
        let (events, mut told) = unbounded_channel();
        let load = Load {
            client,
            broker: broker.address,
            numbers: Arc::clone(&self.numbers),
            events,
            ages: self.kind.ages.then(|| self.recipe.store.join("commitlog")),
            has_holes: self.kind.loses_power,
            is_light: self.kind.is_light,
        };
        let mut tasks = load.start(&mut self.chance);
        drop(load);
        let ended = broker.kill_after(time.saturating_sub(begun.elapsed()), harm).await?;
        tasks.shutdown().await;
        self.listen(&mut told)?;
        known.map(|()| ended)
    }

    /// Whether the broker knows what it must. One that dies meanwhile has said nothing.
    async fn ask_all(&self, client: &Client, broker: SocketAddr) -> Result<(), Fault> {
        let Some(mut wire) = Wire::connect(broker).await else { return Ok(()) };
        self.ask_progress(client, &mut wire).await?;
        self.ask_topics(&mut wire).await
    }

    /// Whether the broker has the topics of all messages that were acknowledged, with their queues.
    async fn ask_topics(&self, wire: &mut Wire) -> Result<(), Fault> {
        let mut queues: BTreeMap<&str, i32> = BTreeMap::new();
        for ((topic, queue_id), _) in self.model.queues.iter().filter(|(_, places)| !places.is_empty()) {
            let count = queues.entry(topic.as_str()).or_default();
            *count = (*count).max(queue_id + 1);
        }
        for (topic, wanted) in queues {
            let Some(known) = wire.topic(topic).await else { return Ok(()) };
            if known.as_ref().is_none_or(|config| config.read_queue_nums < wanted) {
                return Err(Fault(format!("{topic} has messages in {wanted} queues, and is {known:?}")));
            }
        }
        Ok(())
    }

    /// Takes in what the clients told.
    fn listen(&mut self, told: &mut UnboundedReceiver<Event>) -> Result<(), Fault> {
        while let Ok(event) = told.try_recv() {
            self.model.take(event)?;
        }
        Ok(())
    }

    /// Whether the broker knows the progress that was on the disk when it was killed.
    async fn ask_progress(&self, client: &Client, wire: &mut Wire) -> Result<(), Fault> {
        for ((topic, queue_id), saved) in &self.model.progress {
            let queue = Queue { topic: topic.as_str().into(), broker_name: "b".into(), queue_id: *queue_id };
            // Name servers know no light queue.
            let committed = match light::is_light(topic) {
                true => wire.committed(LIGHT_GROUP, topic).await,
                false => client.committed(GROUP, &queue).await.ok(),
            };
            // A broker that dies meanwhile has said nothing.
            if let Some(committed) = committed
                && committed.is_none_or(|committed| committed < *saved)
            {
                return Err(Fault(format!("{queue}: {committed:?} is committed, {saved} was saved")));
            }
        }
        Ok(())
    }

    /// Has the power taken away where the kind is so, and judges what a start left whose lines begin at `begun`.
    fn judge(&mut self, begun: usize, was_stopped: bool) -> Result<(), Fault> {
        let store = &self.recipe.store;
        let flushed_to = told::flushed_to(&self.recipe.log, begun)?;
        let flush = (flushed_to, self.kind.flush == "sync");
        let lost = match self.kind.loses_power && !was_stopped {
            true => Some(power::lose(store, &self.model, flush, &mut self.chance)?),
            false => None,
        };
        let scratch = self.dir.join("judged");
        let judge = self.kind.judge((store, &scratch), lost.as_ref());
        if was_stopped {
            judge.closed(&self.model)?;
        }
        self.found = judge.judge(&mut self.model)?;
        Ok(())
    }

    /// Starts once more, waits for all that waits, stops in order and looks at what is left.
    async fn settle(&mut self) -> Result<(), Fault> {
        let begun = told::begin(&self.recipe.log);
        let Ok(mut broker) = self.recipe.start(&Harm::None).await? else {
            return Err(Fault("the broker died without being told".to_owned()));
        };
        let client = connect(&broker, SETTLING).await?;
        self.commit_all(&client).await?;
        if !self.kind.ages {
            self.await_waiting(&client).await?;
        }
        drop(client);
        broker.stop().await?;
        told::judge(&self.recipe.log, begun, &self.found, true)?;
        let scratch = self.dir.join("judged");
        let judge = self.kind.judge((&self.recipe.store, &scratch), None);
        judge.closed(&self.model)?;
        judge.judge(&mut self.model).map(drop)
    }

    /// Commits the ends of the queues that have a progress: an orderly stop keeps what was acknowledged.
    async fn commit_all(&mut self, client: &Client) -> Result<(), Fault> {
        for ((topic, queue_id), (_, end)) in &self.model.reached {
            let key = (topic.clone(), *queue_id);
            if !self.model.progress.contains_key(&key) || light::is_light(topic) {
                continue;
            }
            let queue = Queue { topic: topic.as_str().into(), broker_name: "b".into(), queue_id: *queue_id };
            client.commit(GROUP, &queue, *end).await.map_err(Fault::of(format!("cannot commit {queue}")))?;
            self.model.commits.insert(key, vec![(0, *end)]);
        }
        Ok(())
    }

    /// Waits until every message that was to come later has come.
    async fn await_waiting(&self, client: &Client) -> Result<(), Fault> {
        let waiting = self.model.waiting.keys().chain(self.model.timers.keys());
        let mut missing: BTreeSet<u64> = waiting.chain(&self.model.retries).copied().collect();
        let mut next: BTreeMap<Queue, i64> = BTreeMap::new();
        let deadline = Instant::now() + SETTLING;
        while !missing.is_empty() {
            if Instant::now() > deadline {
                let (count, first) = (missing.len(), missing.first());
                return Err(Fault(format!(
                    "{count} messages that waited never came, the first is {first:?}"
                )));
            }
            for topic in [LATER, RETRY] {
                // A topic of which nothing came yet may have no route.
                for queue in client.queues(topic).await.unwrap_or_default() {
                    let from = next.entry(queue.clone()).or_default();
                    let wanted = PullRequest::from("crash-settling", *from);
                    let pulled = client.pull(&queue, &wanted).await.map_err(Fault::of("cannot pull"))?;
                    *from = pulled.next_offset;
                    for number in pulled.messages.iter().filter_map(|message| number_of(&message.body)) {
                        missing.remove(&number);
                    }
                }
            }
            sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}

async fn connect(broker: &Broker, answered: Duration) -> Result<Client, Fault> {
    let client = Client::builder().name_servers(&broker.name_server.to_string());
    let client = client.request_timeout(answered).connect().await;
    client.map_err(Fault::of("cannot connect"))
}
