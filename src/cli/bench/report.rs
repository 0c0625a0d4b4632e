//! The result of a load, for people and for programs.
//!
//! Invariants:
//! - times are microseconds in JSON, and shown in the unit that fits for people.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::Load;
use super::drive::{Outcome, Plan, Shot};

/// What was measured, over all connections.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// `send`, `send by level`, `send of timers`, `transactions` or `pull`.
    load: &'static str,
    connections: usize,
    depth: usize,
    size_bytes: usize,
    seconds: u64,
    /// Requests answered.
    requests: u64,
    /// Messages stored or received.
    messages: u64,
    pub(super) messages_per_second: u64,
    body_bytes_per_second: u64,
    pub(super) refused: u64,
    first_refusal: Option<String>,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    p999_us: f64,
    pub(super) max_us: f64,
}

impl Report {
    pub(super) fn new(load: &Load, plan: &Plan, outcome: &Outcome) -> Report {
        let seconds = (plan.end - plan.count_from).as_secs().max(1);
        let latencies = &outcome.latencies;
        let micros = |latency: Duration| latency.as_secs_f64() * 1e6;
        Report {
            load: match plan.shot {
                Shot::Send(way) => way.name(),
                Shot::Pull { .. } => "pull",
            },
            connections: load.connections,
            depth: load.depth,
            size_bytes: load.size,
            seconds,
            requests: latencies.count(),
            messages: outcome.messages,
            messages_per_second: outcome.messages / seconds,
            body_bytes_per_second: outcome.body_bytes / seconds,
            refused: outcome.refused,
            first_refusal: outcome.first_refusal.clone(),
            p50_us: micros(latencies.at(500)),
            p99_us: micros(latencies.at(990)),
            p999_us: micros(latencies.at(999)),
            max_us: micros(latencies.max()),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { load, connections, depth, seconds, messages, messages_per_second, .. } = self;
        writeln!(
            f,
            "{load}: {messages} messages in {seconds} s, {connections} connections, {depth} in flight each"
        )?;
        let mebibytes = self.body_bytes_per_second >> 20;
        writeln!(f, "rate     {messages_per_second} messages/s, {mebibytes} MiB/s of bodies")?;
        let time = |micros: f64| format!("{:?}", Duration::from_secs_f64(micros / 1e6));
        let [p50, p99, p999, max] = [self.p50_us, self.p99_us, self.p999_us, self.max_us].map(time);
        write!(f, "latency  p50 {p50}  p99 {p99}  p99.9 {p999}  max {max}")?;
        if self.requests == 0 {
            write!(
                f,
                "\nnothing was answered within these {seconds} s: measure longer, or ask for less at a time"
            )?;
        }
        if let Some(why) = &self.first_refusal {
            write!(f, "\nrefused  {}, the first: {why}", self.refused)?;
        }
        Ok(())
    }
}
