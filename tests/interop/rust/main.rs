//! The Rust client against the node that NAMESRV names: scenarios of its own, and tools by which the scenarios of other
//! clients let it take part.
//!
//! Invariants:
//! - every scenario has names and clients of its own, so all run at the same time;
//! - a scenario waits for what must come, at most [`PATIENCE`].
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "what came of each scenario is printed")]

/// Scenarios by name and the behaviour that each pins down.
macro_rules! scenarios {
    ($($name:literal, $holds:literal => $body:ident;)*) => {
        &[$($crate::Scenario { name: $name, holds: $holds, body: |bed| Box::pin($body(bed)) }),*]
    };
}

mod bed;
mod delivery;
mod everyday;
mod signed;
mod tools;

use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use bed::Bed;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How long a scenario waits for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);
/// How long a scenario may take.
const LIMIT: Duration = Duration::from_secs(400);

/// What was wanted and what came instead.
pub(crate) type Fault = Box<dyn std::error::Error + Send + Sync>;

/// What came of a scenario.
pub(crate) type Outcome = Result<(), Fault>;

type Running = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// One thing that the client does and what must come of it.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// The behaviour that it pins down.
    pub(crate) holds: &'static str,
    pub(crate) body: fn(Bed) -> Running,
}

#[tokio::main]
pub(crate) async fn main() -> ExitCode {
    let Ok(name_servers) = std::env::var("NAMESRV") else {
        eprintln!("NAMESRV must hold host:port of the name server");
        return ExitCode::from(2);
    };
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some((word, rest)) = words.split_first()
        && let Some(tool) = tools::named(word)
    {
        return match tool(name_servers, rest.to_vec()).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(fault) => {
                eprintln!("{word}: {fault}");
                ExitCode::FAILURE
            }
        };
    }
    if let Err(fault) = bed::await_broker(&name_servers).await {
        eprintln!("{fault}");
        return ExitCode::from(2);
    }
    if run(&name_servers, &words).await { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the scenarios of these names, all that fit the broker if there are none; says whether every one held.
async fn run(name_servers: &str, names: &[String]) -> bool {
    let mut running = JoinSet::new();
    let all = everyday::SCENARIOS.iter().chain(delivery::SCENARIOS).chain(signed::scenarios());
    for scenario in all.filter(|one| names.is_empty() || names.iter().any(|name| name == one.name)) {
        let bed = Bed::new(name_servers, scenario.name);
        running.spawn(async move {
            let began = Instant::now();
            let outcome = match tokio::spawn(tokio::time::timeout(LIMIT, (scenario.body)(bed))).await {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(_)) => Err(format!("still running after {LIMIT:?}").into()),
                Err(panicked) => Err(panicked.into()),
            };
            (scenario, outcome, began.elapsed().as_secs_f32())
        });
    }
    let (mut passed, mut failed) = (0, 0);
    while let Some(Ok((Scenario { name, holds, .. }, outcome, seconds))) = running.join_next().await {
        match outcome {
            Ok(()) => {
                passed += 1;
                println!("ok    {name:<34} {seconds:5.1} s  {holds}");
            }
            Err(fault) => {
                failed += 1;
                println!("FAIL  {name:<34} {seconds:5.1} s  {holds}\n      {fault}");
            }
        }
    }
    let suite = std::env::var("INTEROP_SUITE").unwrap_or_else(|_| "rust".to_owned());
    println!("suite {suite}: passed {passed}, failed {failed}, skipped 0");
    failed == 0
}
