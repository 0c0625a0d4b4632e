//! Kills a broker over and over under load, and sees whether it keeps its word.
//!
//! Invariants:
//! - the broker is a real process, killed as the system kills: with `SIGKILL`, from outside or at a chosen
//!   operation of its store;
//! - chance comes from one seed, which is printed: what depends on the broker's own timing may still differ;
//! - the judge knows what was acknowledged, and nothing else is asked of the broker: a message that was under way
//!   may be there or not.
//!
//! | file | what |
//! |---|---|
//! | `life.rs` | one store from its first start to its orderly end, with many kills between |
//! | `broker.rs` | the process |
//! | `moment.rs` | the operations at which it can die, or the system refuse |
//! | `tally.rs` | what was done |
//! | `load.rs` and below it, `wire.rs` | what clients do meanwhile |
//! | `model.rs` | what was acknowledged |
//! | `shared.rs`, `again.rs` | whether messages are in their light queues, and those that were sent back come again |
//! | `later.rs`, `wheel.rs` | whether what waits for its time is there, and the wheel what a rebuild makes |
//! | `told.rs` | whether a start tells what it found |
//! | `verdict.rs`, `compare.rs` | whether it is still there, and whether derived files are what a rebuild makes |
//! | `tables.rs` | whether the tables know what they must |
//! | `power.rs` | what a loss of power takes |
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a program that prints its findings")]

mod again;
mod broker;
mod chance;
mod compare;
mod later;
mod life;
mod load;
mod model;
mod moment;
mod power;
mod shared;
mod tables;
mod tally;
mod told;
mod verdict;
mod wheel;
mod wire;

use std::path::PathBuf;
use std::process::ExitCode;

use troupemq_store::{Clock, SystemClock};

use crate::chance::Chance;
use crate::life::{Kind, Life};
use crate::tally::Tally;

/// Something the broker must not do, in words.
#[derive(Debug)]
pub(crate) struct Fault(pub(crate) String);

impl Fault {
    /// What could not be done, and why.
    pub(crate) fn of<E: std::fmt::Display>(what: impl Into<String>) -> impl FnOnce(E) -> Fault {
        let what = what.into();
        move |why| Fault(format!("{what}: {why}"))
    }
}

/// What the run is to be.
#[derive(Debug)]
struct Settings {
    seed: u64,
    kills: u32,
    /// Number of the first life, which tells its kind.
    life: usize,
    broker: PathBuf,
    dir: PathBuf,
}

impl Settings {
    fn from_arguments() -> Result<Settings, String> {
        let mut settings = Settings {
            seed: SystemClock::new().now_ms().unsigned_abs(),
            kills: 300,
            life: 0,
            broker: PathBuf::new(),
            dir: std::env::temp_dir().join(format!("troupemq-crash.{}", std::process::id())),
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
            let number = || value.parse::<u64>().map_err(|why| format!("{name} {value}: {why}"));
            match name.as_str() {
                "--seed" => settings.seed = number()?,
                "--kills" => settings.kills = u32::try_from(number()?).map_err(|why| why.to_string())?,
                "--life" => settings.life = usize::try_from(number()?).map_err(|why| why.to_string())?,
                "--broker" => settings.broker = value.into(),
                "--dir" => settings.dir = value.into(),
                _ => {
                    return Err(format!("unknown argument {name}: --seed, --kills, --life, --broker, --dir"));
                }
            }
        }
        match settings.broker.as_os_str().is_empty() {
            true => Err("--broker PATH is needed; tests/crash/run gives it".to_owned()),
            false => Ok(settings),
        }
    }
}

fn main() -> ExitCode {
    let settings = match Settings::from_arguments() {
        Ok(settings) => settings,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    println!("seed {}, {} kills, stores below {}", settings.seed, settings.kills, settings.dir.display());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let mut tally = Tally::default();
    let outcome = runtime
        .map_err(Fault::of("cannot start a runtime"))
        .and_then(|runtime| runtime.block_on(run(&settings, &mut tally)));
    tally.print();
    match outcome {
        Ok(()) => {
            println!("the broker kept its word");
            ExitCode::SUCCESS
        }
        Err(Fault(what)) => {
            println!(
                "FAULT (seed {}): {what}\nthe store is left in {}",
                settings.seed,
                settings.dir.display()
            );
            ExitCode::FAILURE
        }
    }
}

async fn run(settings: &Settings, tally: &mut Tally) -> Result<(), Fault> {
    let mut chance = Chance::seeded(settings.seed);
    let mut number = settings.life;
    // A short run has lives of all kinds too.
    let kinds = u32::try_from(Kind::COUNT).expect("a few kinds");
    let each = settings.kills.div_ceil(kinds).min(Life::KILLS);
    while tally.kills() < settings.kills {
        let dir = settings.dir.join(format!("life{number}"));
        let kind = Kind::of(number);
        let left = settings.kills - tally.kills();
        let mut life = Life::begin(&settings.broker, &dir, kind, chance.fork())?;
        life.live(left.min(each), tally).await?;
        std::fs::remove_dir_all(&dir).map_err(Fault::of(format!("cannot remove {}", dir.display())))?;
        number += 1;
    }
    std::fs::remove_dir_all(&settings.dir).map_err(Fault::of("cannot remove the folder of the run"))
}
