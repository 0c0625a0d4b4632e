//! One store from its first start to its orderly end, with many kills between.
//!
//! Invariants:
//! - after each kill the store is judged before the next start;
//! - at the end the broker stops in order, and the next open has nothing to do.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, sleep};
use troupemq::{Client, PullRequest, Queue};

use crate::Fault;
use crate::broker::{Broker, Recipe, last_lines};
use crate::chance::Chance;
use crate::load::{GROUP, LATER, Load};
use crate::model::{Event, Model, number_of};
use crate::moment::{Moment, PLACES, Place};
use crate::power;
use crate::verdict::{self, Judge};

/// Small files, so that a second of load rolls and recycles them.
const SETTINGS: &str = "\
mappedFileSizeCommitLog=262144
mappedFileSizeConsumeQueue=12000
mapperFileSizeBatchConsumeQueue=4600
maxHashSlotNum=500
maxIndexNum=2000
flushIntervalCommitLog=50
flushCommitLogBytes=65536
messageDelayLevel=1s 2s 3s
mappedFileSizeTimerLog=5216
timerPrecisionMs=100
recycledSegmentsMax=2
diskFreeFloorBytes=0
diskSpaceWarningLevelRatio=100
diskSpaceCleanForciblyRatio=99
diskMaxUsedSpaceRatio=95
";
/// How long what waits may take to come once nothing kills the broker any more.
const SETTLING: Duration = Duration::from_secs(20);

/// What a life is like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    flush: &'static str,
    /// Old messages are deleted, and their segments used again.
    ages: bool,
    /// After each kill the machine loses what was not on the disk, and derived files are damaged.
    loses_power: bool,
}

impl Kind {
    /// The kind of the life with this number.
    pub(crate) fn of(number: usize) -> Kind {
        const fn kind(flush: &'static str, ages: bool, loses_power: bool) -> Kind {
            Kind { flush, ages, loses_power }
        }
        const KINDS: [Kind; 6] = [
            kind("async", true, false),
            kind("sync", false, false),
            kind("async", false, false),
            kind("sync", true, false),
            kind("async", false, true),
            kind("sync", false, true),
        ];
        KINDS[number % KINDS.len()]
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
}

impl Life {
    /// Kills of one life.
    pub(crate) const KILLS: u32 = 20;

    pub(crate) fn begin(program: &Path, dir: &Path, kind: Kind, chance: Chance) -> Result<Life, Fault> {
        std::fs::create_dir_all(dir).map_err(Fault::of(format!("cannot make {}", dir.display())))?;
        let settings = dir.join("settings");
        std::fs::write(&settings, SETTINGS).map_err(Fault::of("cannot write the settings"))?;
        let recipe = Recipe {
            program: program.to_path_buf(),
            store: dir.join("store"),
            settings,
            log: dir.join("log"),
            flush: kind.flush,
        };
        let (dir, numbers) = (dir.to_path_buf(), Arc::new(AtomicU64::new(1)));
        Ok(Life { recipe, dir, kind, chance, model: Model::default(), numbers })
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
        let moment = (!self.chance.once_in(3)).then(|| Moment::by(&mut self.chance));
        let struck = match self.recipe.start(moment.as_ref()).await? {
            None => true,
            Some(mut broker) => self.work_and_die(&mut broker, moment.as_ref()).await?,
        };
        tally.note(moment.as_ref(), struck);
        self.judge(self.kind.loses_power)
    }

    /// Puts the broker under load until it is dead; tells whether it died at its moment.
    async fn work_and_die(&mut self, broker: &mut Broker, moment: Option<&Moment>) -> Result<bool, Fault> {
        // Tables of offsets are saved every five seconds.
        let time_ms = match self.chance.once_in(10) {
            true => 5_100 + self.chance.below(1_000),
            false => 60 + self.chance.below(900),
        };
        let time = Duration::from_millis(time_ms);
        let begun = Instant::now();
        let Ok(client) = connect(broker).await else { return broker.kill_after(time, moment).await };
        let progress = self.ask_progress(&client).await;
        let (events, mut told) = unbounded_channel();
        let load = Load {
            client,
            broker: broker.address,
            numbers: Arc::clone(&self.numbers),
            events,
            ages: self.kind.ages.then(|| self.recipe.store.join("commitlog")),
            is_full: !self.kind.loses_power,
        };
        let mut tasks = load.start(&mut self.chance);
        drop(load);
        let struck = broker.kill_after(time.saturating_sub(begun.elapsed()), moment).await?;
        tasks.shutdown().await;
        self.listen(&mut told)?;
        progress.map(|()| struck)
    }

    /// Takes in what the clients told.
    fn listen(&mut self, told: &mut UnboundedReceiver<Event>) -> Result<(), Fault> {
        while let Ok(event) = told.try_recv() {
            self.model.take(event)?;
        }
        Ok(())
    }

    /// Whether the broker knows the progress that was on the disk when it was killed.
    async fn ask_progress(&self, client: &Client) -> Result<(), Fault> {
        for ((topic, queue_id), saved) in &self.model.progress {
            let queue = Queue { topic: topic.as_str().into(), broker_name: "b".into(), queue_id: *queue_id };
            // A broker that dies meanwhile has said nothing.
            if let Ok(committed) = client.committed(GROUP, &queue).await
                && committed.is_none_or(|committed| committed < *saved)
            {
                return Err(Fault(format!("{queue}: {committed:?} is committed, {saved} was saved")));
            }
        }
        Ok(())
    }

    /// Has the power taken away where the kind is so, and judges what is left.
    fn judge(&mut self, loses_power: bool) -> Result<(), Fault> {
        let store = &self.recipe.store;
        let lost = match loses_power {
            true => Some(power::lose(store, &self.model, self.kind.flush == "sync", &mut self.chance)?),
            false => None,
        };
        if lost.is_none() {
            verdict::progress_is_logged(&self.recipe.log)?;
        }
        let judge = Judge { store, scratch: &self.dir.join("judged"), lost: lost.as_ref() };
        judge.judge(&mut self.model)
    }

    /// Starts once more, waits for all that waits, stops in order and looks at what is left.
    async fn settle(&mut self) -> Result<(), Fault> {
        let Some(mut broker) = self.recipe.start(None).await? else {
            return Err(Fault("the broker died without being told".to_owned()));
        };
        let client = connect(&broker).await?;
        if !self.kind.ages && !self.kind.loses_power {
            self.await_waiting(&client).await?;
        }
        drop(client);
        broker.stop().await?;
        let judge = Judge { store: &self.recipe.store, scratch: &self.dir.join("judged"), lost: None };
        judge.closed()?;
        judge.judge(&mut self.model)
    }

    /// Waits until every message that was to come later has come.
    async fn await_waiting(&self, client: &Client) -> Result<(), Fault> {
        let mut missing: BTreeSet<u64> =
            self.model.waiting.keys().chain(self.model.timers.keys()).copied().collect();
        let mut next: BTreeMap<Queue, i64> = BTreeMap::new();
        let deadline = Instant::now() + SETTLING;
        while !missing.is_empty() {
            if Instant::now() > deadline {
                let (count, first) = (missing.len(), missing.first());
                return Err(Fault(format!(
                    "{count} messages that waited never came, the first is {first:?}"
                )));
            }
            for queue in client.queues(LATER).await.map_err(Fault::of("no route"))? {
                let from = next.entry(queue.clone()).or_default();
                let wanted = PullRequest::from("crash-settling", *from);
                let pulled = client.pull(&queue, &wanted).await.map_err(Fault::of("cannot pull"))?;
                *from = pulled.next_offset;
                for number in pulled.messages.iter().filter_map(|message| number_of(&message.body)) {
                    missing.remove(&number);
                }
            }
            sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}

async fn connect(broker: &Broker) -> Result<Client, Fault> {
    let client = Client::builder().name_servers(&broker.name_server.to_string());
    let client = client.request_timeout(Duration::from_secs(2)).connect().await;
    client.map_err(Fault::of("cannot connect"))
}

/// What was done to the broker.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    from_outside: u32,
    struck: BTreeMap<Place, u32>,
    armed: BTreeMap<Place, u32>,
    messages: usize,
}

impl Tally {
    pub(crate) fn kills(&self) -> u32 {
        self.from_outside + self.struck.values().sum::<u32>()
    }

    fn note(&mut self, moment: Option<&Moment>, struck: bool) {
        if let Some(moment) = moment {
            *self.armed.entry(moment.place).or_default() += 1;
            if struck {
                *self.struck.entry(moment.place).or_default() += 1;
                return;
            }
        }
        self.from_outside += 1;
    }

    /// A run whose points are hardly ever met shows nothing.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        let (armed, struck): (u32, u32) = (self.armed.values().sum(), self.struck.values().sum());
        if struck * 4 < armed {
            return Err(Fault(format!(
                "of {armed} crash points {struck} were met: has the broker the feature crash-points?"
            )));
        }
        Ok(())
    }

    pub(crate) fn print(&self) {
        println!(
            "{} kills: {} from outside, {} at chosen operations; {} acknowledged messages at the ends",
            self.kills(),
            self.from_outside,
            self.struck.values().sum::<u32>(),
            self.messages
        );
        for place in PLACES {
            let of = |map: &BTreeMap<Place, u32>| map.get(place).copied().unwrap_or(0);
            println!("  {:>3} of {:>3}  {:8} {}", of(&self.struck), of(&self.armed), place.op, place.path);
        }
    }
}
