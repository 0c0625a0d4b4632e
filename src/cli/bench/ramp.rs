//! `troupemq bench ramp`: which rate is safe, and what ends it.
//!
//! Invariants:
//! - every step is an open loop at a fixed rate, so that a broker which falls behind shows in the latency;
//! - the first bound that is crossed ends the ramp, and the step before is the highest safe rate;
//! - a broker that goes in the middle of it ends the ramp like a bound: the steps before are told and drawn;
//! - judging knows no machine: it decides by the figures of a step alone.

use std::fmt;
use std::path::PathBuf;

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use tokio::time::Instant;

use super::drive::Shot;
use super::report::Report;
use super::usage::{Reading, Usage};
use super::way::Way;
use super::{Load, chart};
use crate::cli::Failure;
use crate::cli::table::{Form, Row};

/// Steps at most: with the smallest factor the rate grows by a million times over them.
const STEPS_MAX: u32 = 150;
/// Share of the rate below which a step counts as fallen behind, in per cent.
const ANSWERED_MIN_PERCENT: u64 = 95;

/// Raise the rate step by step until a bound is crossed
#[derive(Debug, Args)]
pub(in crate::cli) struct Ramp {
    #[command(flatten)]
    load: Load,
    /// Rate of the first step, in messages a second
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    from: u64,
    /// Each step's rate over that of the one before, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 150, value_parser = growth())]
    growth: u64,
    /// 99 of 100 sends must be answered within this time
    #[arg(long, value_name = "MS", default_value_t = 20)]
    p99_max_ms: u64,
    /// Highest share of the processors, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 90)]
    processor_max: u8,
    /// Highest share of the memory, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 90)]
    memory_max: u8,
    /// Highest share of the time that processors wait for disks, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 40)]
    disk_wait_max: u8,
    /// Highest share of what a network interface can carry in one direction, in per cent, where the kernel knows that
    #[arg(long, value_name = "PERCENT", default_value_t = 90)]
    network_max: u8,
    /// Draw the curves into this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// What a step asked for and what came of it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Step {
    /// Messages a second that were due.
    pub(super) rate: u64,
    /// Messages a second that were stored.
    pub(super) stored: u64,
    /// Requests that were refused.
    pub(super) refused: u64,
    /// Requests that were never answered.
    pub(super) unanswered: u64,
    /// In milliseconds.
    pub(super) p50_ms: f64,
    /// In milliseconds.
    pub(super) p99_ms: f64,
    /// In milliseconds.
    pub(super) max_ms: f64,
    /// What the machine did meanwhile.
    #[serde(flatten)]
    pub(super) usage: Usage,
}

/// Why a ramp ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum End {
    Silence,
    Refusals,
    Behind,
    Latency,
    Processors,
    Memory,
    DiskWait,
    Network,
}

/// What a ramp found.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Verdict {
    /// The highest rate with every bound kept, in messages a second; 0 if there is none.
    safe_rate: u64,
    /// What ends it; nothing if the ramp ended first.
    end: Option<End>,
}

impl Row for Step {
    const COLUMNS: &'static [&'static str] = &[
        "rate/s",
        "stored/s",
        "p50 ms",
        "p99 ms",
        "max ms",
        "cpu %",
        "mem %",
        "disk wait %",
        "disk MB/s",
        "net MB/s",
        "net %",
    ];

    fn cells(&self) -> Vec<String> {
        let usage = &self.usage;
        let mut cells = vec![self.rate.to_string(), self.stored.to_string()];
        cells.extend([self.p50_ms, self.p99_ms, self.max_ms].map(|ms| format!("{ms:.2}")));
        cells.extend(
            [usage.processor_percent, usage.memory_percent, usage.disk_wait_percent]
                .map(|share| format!("{share:.0}")),
        );
        cells.extend(
            [usage.disk_bytes_per_second, usage.network_bytes_per_second]
                .map(|rate| format!("{:.1}", rate / 1e6)),
        );
        cells.push(usage.network_percent.map_or_else(|| "-".to_owned(), |share| format!("{share:.0}")));
        cells
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            End::Silence => "requests stay without an answer",
            End::Refusals => "the broker refuses messages",
            End::Behind => "less is stored than is due",
            End::Latency => "the latency",
            End::Processors => "the processors",
            End::Memory => "the memory",
            End::DiskWait => "the disk",
            End::Network => "the network",
        })
    }
}

impl Ramp {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let client = self.load.cluster.connect().await?;
        let targets = self.load.targets(&client).await?;
        let (mut steps, mut end, mut safe_rate) = (Vec::new(), None, 0);
        let mut rate = self.from;
        let bar = self.bar();
        for _ in 0..STEPS_MAX {
            bar.set_message(format!("{rate} messages/s"));
            bar.tick();
            let (before, started) = (Reading::take(), Instant::now());
            let measured = self
                .load
                .measure(Shot::Send(Way::default()), (&client, &targets), rate, &ProgressBar::hidden())
                .await;
            let (plan, outcome) = match measured {
                Ok(measured) => measured,
                Err(error) if steps.is_empty() => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, rate, "the load broke off");
                    end = Some(End::Silence);
                    break;
                }
            };
            let usage = Reading::take().since(&before, started.elapsed().as_secs_f64());
            let step = step(rate, outcome.unanswered, &Report::new(&self.load, &plan, &outcome), usage);
            end = self.end(&step);
            steps.push(step);
            if end.is_some() {
                break;
            }
            safe_rate = rate;
            rate = rate.saturating_mul(self.growth).div_ceil(100);
        }
        bar.finish_and_clear();
        let verdict = Verdict { safe_rate, end };
        self.tell(&steps, &verdict)
    }

    fn tell(&self, steps: &[Step], verdict: &Verdict) -> Result<(), Failure> {
        let form = Form::json_if(self.load.json);
        form.print(steps)?;
        form.print_all(std::slice::from_ref(verdict), |_| said(verdict))?;
        let Some(file) = &self.html else { return Ok(()) };
        let io = |cause| Failure::Io { what: "cannot write the report", cause };
        std::fs::write(file, chart::page(steps, &said(verdict), &self.load.said())).map_err(io)?;
        form.done(&format!("the curves are in {}", file.display()))
    }

    /// The first bound that a step crosses.
    fn end(&self, step: &Step) -> Option<End> {
        let limit_ms = std::time::Duration::from_millis(self.p99_max_ms).as_secs_f64() * 1e3;
        let crossed = [
            (step.unanswered > 0, End::Silence),
            (step.refused > 0, End::Refusals),
            (step.usage.memory_percent > self.memory_max.into(), End::Memory),
            (step.usage.disk_wait_percent > self.disk_wait_max.into(), End::DiskWait),
            (step.usage.network_percent.is_some_and(|share| share > self.network_max.into()), End::Network),
            (step.usage.processor_percent > self.processor_max.into(), End::Processors),
            (step.p99_ms > limit_ms, End::Latency),
            (step.stored.saturating_mul(100) < step.rate.saturating_mul(ANSWERED_MIN_PERCENT), End::Behind),
        ];
        crossed.into_iter().find(|(is_crossed, _)| *is_crossed).map(|(_, end)| end)
    }

    fn bar(&self) -> ProgressBar {
        let bar = ProgressBar::new_spinner();
        if self.load.json {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        bar.with_style(
            ProgressStyle::with_template("{spinner} {elapsed} {msg}")
                .expect("the template is fixed and right"),
        )
    }
}

/// Smaller growth would take hours, larger would step over what is looked for.
fn growth() -> clap::builder::RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(110..=1000)
}

fn step(rate: u64, unanswered: u64, report: &Report, usage: Usage) -> Step {
    Step {
        rate,
        unanswered,
        stored: report.messages_per_second,
        refused: report.refused,
        p50_ms: report.p50_us / 1e3,
        p99_ms: report.p99_us / 1e3,
        max_ms: report.max_us / 1e3,
        usage,
    }
}

fn said(verdict: &Verdict) -> String {
    match (verdict.safe_rate, verdict.end) {
        (0, Some(end)) => format!("no rate is safe; what ends the first step: {end}"),
        (rate, Some(end)) => format!("{rate} messages/s are safe; what ends it above that: {end}"),
        (rate, None) => format!("{rate} messages/s are safe; no bound was reached"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        ramp: Ramp,
    }

    fn kept() -> Step {
        let usage = Usage { processor_percent: 50.0, memory_percent: 20.0, ..Usage::default() };
        Step {
            rate: 1000,
            stored: 1000,
            refused: 0,
            unanswered: 0,
            p50_ms: 0.1,
            p99_ms: 1.0,
            max_ms: 3.0,
            usage,
        }
    }

    #[test]
    fn each_bound_ends_the_ramp_by_its_own_name() {
        let ramp = Line::parse_from(["ramp"]).ramp;
        assert_eq!(ramp.end(&kept()), None);
        assert_eq!(ramp.end(&Step { refused: 1, ..kept() }), Some(End::Refusals));
        assert_eq!(ramp.end(&Step { unanswered: 1, ..kept() }), Some(End::Silence));
        assert_eq!(ramp.end(&Step { stored: 949, ..kept() }), Some(End::Behind));
        assert_eq!(ramp.end(&Step { stored: 950, ..kept() }), None);
        assert_eq!(ramp.end(&Step { p99_ms: 20.1, ..kept() }), Some(End::Latency));
        let busy = |usage| ramp.end(&Step { usage, ..kept() });
        assert_eq!(busy(Usage { processor_percent: 91.0, ..Usage::default() }), Some(End::Processors));
        assert_eq!(busy(Usage { memory_percent: 91.0, ..Usage::default() }), Some(End::Memory));
        assert_eq!(busy(Usage { disk_wait_percent: 41.0, ..Usage::default() }), Some(End::DiskWait));
        assert_eq!(busy(Usage { network_percent: Some(91.0), ..Usage::default() }), Some(End::Network));
        assert_eq!(busy(Usage { network_percent: Some(90.0), ..Usage::default() }), None);
    }

    #[test]
    fn the_verdict_names_the_rate_and_what_ends_it() {
        let verdict = |safe_rate, end| said(&Verdict { safe_rate, end });
        let above = "1500 messages/s are safe; what ends it above that: the latency";
        assert_eq!(verdict(1500, Some(End::Latency)), above);
        assert_eq!(verdict(0, Some(End::Memory)), "no rate is safe; what ends the first step: the memory");
        assert_eq!(verdict(9, None), "9 messages/s are safe; no bound was reached");
    }
}
