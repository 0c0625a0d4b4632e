//! `troupemq bench`: load for any RocketMQ-compatible broker, ours or another.
//!
//! Invariants:
//! - with a rate the load is an open loop: a message has a due time, and its latency counts from there, so that
//!   waiting for a slow broker shows;
//! - what happens during the warm-up is not counted.
//!
//! Contents: `drive` is one connection, `alarm` wakes it, `way` what messages go through, `latency` the histogram,
//! `report` what is printed; `ramp` raises the rate, `usage` is how busy the machine is, `chart` draws.

mod alarm;
mod chart;
mod drive;
mod latency;
mod ramp;
mod report;
mod usage;
mod way;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum, value_parser};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval};
use troupemq::Client;
use troupemq_codec::HeaderForm;

use super::output::Output;
use super::{Cluster, Failure};
use drive::{Driver, Outcome, Plan, Shot};
use report::Report;
use way::Way;

/// Longest measurement and warm-up, a year.
const SECONDS_MAX: u64 = 31_536_000;

/// Measure a broker
#[derive(Debug, Subcommand)]
pub(super) enum Bench {
    /// Send messages as fast as they are taken, or at a rate
    Send(Send),
    /// Pull messages of a topic over and over
    Pull(Pull),
    /// Raise the rate of sends until the first bound is crossed, and say which rate is safe
    Ramp(ramp::Ramp),
}

/// How the load looks.
#[derive(Debug, Args)]
pub(super) struct Load {
    #[command(flatten)]
    cluster: Cluster,
    /// Topic; it is made if it does not exist
    #[arg(long, short, default_value = "troupemq-bench")]
    topic: String,
    /// Queues of the topic, if it has to be made
    #[arg(long, value_name = "N", default_value_t = 4)]
    queues: i32,
    /// Connections
    #[arg(long, short, value_name = "N", default_value_t = 4)]
    connections: usize,
    /// Requests in flight on each connection
    #[arg(long, short, value_name = "N", default_value_t = 64)]
    depth: usize,
    /// Bytes of a body
    #[arg(long, short, value_name = "BYTES", default_value_t = 1024)]
    size: usize,
    /// How long to measure
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = value_parser!(u64).range(..=SECONDS_MAX))]
    seconds: u64,
    /// How long to run before measuring
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = value_parser!(u64).range(..=SECONDS_MAX))]
    warmup: u64,
    /// Form of the request headers
    #[arg(long, value_enum, default_value_t = Form::Json)]
    header: Form,
    /// Print the result as a JSON object
    #[arg(long)]
    json: bool,
    /// Look for answers without ever sleeping, so that it is not the waking of this program that is measured
    #[arg(long)]
    poll: bool,
    /// Threads of the load
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
}

/// A load that stays as it is.
#[derive(Debug, Args)]
pub(super) struct Steady {
    #[command(flatten)]
    load: Load,
    /// Requests a second over all connections; 0 is as fast as they are answered
    #[arg(long, short, value_name = "N", default_value_t = 0)]
    rate: u64,
}

/// A load of sends.
#[derive(Debug, Args)]
pub(super) struct Send {
    #[command(flatten)]
    steady: Steady,
    #[command(flatten)]
    way: Way,
}

/// A load of pulls.
#[derive(Debug, Args)]
pub(super) struct Pull {
    #[command(flatten)]
    steady: Steady,
    /// Messages asked for in one pull
    #[arg(long, value_name = "N", default_value_t = 32)]
    messages: i32,
    /// Stay at the end of the queues and pull what comes, instead of what is there over and over
    #[arg(long)]
    follow: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Form {
    Json,
    Binary,
}

impl Bench {
    pub(super) async fn run(self) -> Result<(), Failure> {
        match self {
            Bench::Send(Send { steady, way }) => steady.run(Shot::Send(way)).await,
            Bench::Pull(Pull { steady, messages, follow }) => {
                steady.run(Shot::Pull { messages_max: messages, follows: follow }).await
            }
            Bench::Ramp(ramp) => ramp.run().await,
        }
    }
}

impl Steady {
    async fn run(self, shot: Shot) -> Result<(), Failure> {
        let load = &self.load;
        let client = load.cluster.connect().await?;
        let targets = load.targets(&client).await?;
        let bar = load.bar();
        let (plan, outcome) = load.measure(shot, (&client, &targets), self.rate, &bar).await?;
        bar.finish_and_clear();
        if outcome.unanswered > 0 {
            return Err(Failure::Other(format!("{} requests were never answered", outcome.unanswered)));
        }
        let report = Report::new(load, &plan, &outcome);
        let mut output = Output::new();
        if load.json {
            output.json(&report)?
        } else {
            output.line(report.to_string().as_bytes())?
        }
        output.flush()
    }
}

impl Load {
    /// Runs the load once, at a rate of requests a second; 0 is as fast as they are answered.
    async fn measure(
        &self,
        shot: Shot,
        (client, targets): (&Client, &[drive::Target]),
        rate: u64,
        bar: &ProgressBar,
    ) -> Result<(Arc<Plan>, Outcome), Failure> {
        let plan = Arc::new(self.plan(shot, rate));
        let mut threads = JoinSet::new();
        for first in 0..self.threads.clamp(1, self.connections.max(1)) {
            let numbers = (first..self.connections.max(1)).step_by(self.threads.max(1));
            let drivers = numbers.map(|number| (number, targets[number % targets.len()].clone()));
            let (drivers, client, plan) = (drivers.collect(), client.clone(), plan.clone());
            threads.spawn_blocking(move || drive(drivers, &client, &plan));
        }
        let mut outcome = Outcome::default();
        let mut ticks = interval(Duration::from_millis(200));
        loop {
            tokio::select! {
                done = threads.join_next() => match done {
                    None => return Ok((plan, outcome)),
                    Some(done) => {
                        let broken = |cause| Failure::Other(format!("a thread of the load broke off: {cause}"));
                        outcome.add(done.map_err(broken)??);
                    }
                },
                _ = ticks.tick() => self.show(bar, &plan),
            }
        }
    }
}

/// Drives some connections on the present thread: one that is woken by its own sockets alone costs least.
fn drive(
    connections: Vec<(usize, drive::Target)>,
    client: &Client,
    plan: &Arc<Plan>,
) -> Result<Outcome, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let io = |cause| Failure::Io { what: "cannot start the runtime", cause };
    runtime.map_err(io)?.block_on(async {
        let mut drivers = JoinSet::new();
        if plan.polls {
            tokio::spawn(async {
                loop {
                    tokio::task::yield_now().await;
                }
            });
        }
        for (number, target) in connections {
            drivers.spawn(Driver::connect(plan.clone(), client.clone(), (target, number)).await?.run());
        }
        let mut outcome = Outcome::default();
        while let Some(done) = drivers.join_next().await {
            let done = done.map_err(|cause| Failure::Other(format!("a connection broke off: {cause}")))?;
            outcome.add(done?);
        }
        Ok(outcome)
    })
}

impl Load {
    /// The brokers of the topic with their queues; the topic is made if it has none.
    async fn targets(&self, client: &Client) -> Result<Vec<drive::Target>, Failure> {
        let queues = match client.queues(&self.topic).await {
            Ok(queues) => queues,
            Err(troupemq::ClientError::NoRoute { .. }) => {
                client.create_topic(&self.topic, self.queues).await?;
                client.queues(&self.topic).await?
            }
            Err(error) => return Err(error.into()),
        };
        drive::targets(client, queues).await
    }

    fn plan(&self, shot: Shot, rate: u64) -> Plan {
        let begin = Instant::now();
        Plan {
            shot,
            topic: self.topic.as_str().into(),
            body: vec![b'x'; self.size].into(),
            depth: self.depth.max(1),
            form: match self.header {
                Form::Json => HeaderForm::Json,
                Form::Binary => HeaderForm::Binary,
            },
            pace: self.pace(rate),
            polls: self.poll,
            begin,
            count_from: begin + Duration::from_secs(self.warmup),
            end: begin + Duration::from_secs(self.warmup + self.seconds.max(1)),
            answered: Default::default(),
        }
    }

    /// Time between two requests of one connection.
    fn pace(&self, rate: u64) -> Option<Duration> {
        let connections = u64::try_from(self.connections.max(1)).expect("a count of connections fits");
        (rate > 0).then(|| Duration::from_nanos(1_000_000_000 * connections / rate))
    }

    /// What the load looks like, for people.
    fn said(&self) -> String {
        let (connections, depth, size, seconds) = (self.connections, self.depth, self.size, self.seconds);
        format!(
            "{connections} connections with up to {depth} requests in flight each, bodies of {size} bytes, \
             {seconds} s for each step"
        )
    }

    fn bar(&self) -> ProgressBar {
        let bar = ProgressBar::new((self.warmup + self.seconds.max(1)) * 1000);
        if self.json {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        let style = ProgressStyle::with_template("{bar:40} {msg}").expect("the template is fixed and right");
        bar.with_style(style)
    }

    fn show(&self, bar: &ProgressBar, plan: &Plan) {
        let ran = plan.begin.elapsed();
        let answered = plan.answered.load(Ordering::Relaxed);
        let rate = u128::from(answered) * 1000 / ran.as_millis().max(1);
        bar.set_position(u64::try_from(ran.as_millis()).unwrap_or(u64::MAX));
        bar.set_message(format!("{answered} requests, {rate}/s"));
    }
}
