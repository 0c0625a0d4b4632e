//! `troupemq doctor`: what the machine gives a broker, and what would be better.
//!
//! Invariants:
//! - nothing is changed; every finding names value, advice, why, and the command that changes it;
//! - what cannot be found out is said so, never taken for good;
//! - the exit code is 1 if something is wrong, so that a script can ask.
//!
//! Contents: `machine` reads the values, `advice` judges them and knows no machine.

mod advice;
mod machine;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::settings::Settings;
use super::table::{Form, Row};
use super::{Failure, serve};

/// Check what the operating system gives a broker
#[derive(Debug, Args)]
pub(super) struct Doctor {
    /// A file of settings [default: troupemq.toml of the current folder, if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Folder of the store [default: as configured]
    #[arg(long, value_name = "DIR")]
    store_dir: Option<PathBuf>,
    /// The address clients are told, IP or IP:PORT [default: as configured]
    #[arg(long, value_name = "ADDR")]
    advertise: Option<String>,
    /// Explain the good values too
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    form: Form,
}

/// How good a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// As it should be.
    Good,
    /// It works, but could be better.
    Better,
    /// It will hurt.
    Wrong,
    /// It could not be found out.
    Unknown,
}

/// What was found about one value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    what: &'static str,
    value: String,
    verdict: Verdict,
    advice: String,
    why: &'static str,
    command: String,
}

impl Row for Finding {
    const COLUMNS: &'static [&'static str] = &["what", "value", "verdict"];

    fn cells(&self) -> Vec<String> {
        let verdict = match self.verdict {
            Verdict::Good => "good",
            Verdict::Better => "could be better",
            Verdict::Wrong => "WRONG",
            Verdict::Unknown => "unknown",
        };
        vec![self.what.to_owned(), self.value.clone(), verdict.to_owned()]
    }
}

impl Doctor {
    pub(super) fn run(self) -> Result<(), Failure> {
        let settings = Settings::load(self.config.as_deref())?;
        let dir = self.store_dir.clone().unwrap_or(settings.store.dir.clone());
        let advertised = self.advertise.as_ref().unwrap_or(&settings.ports.advertise);
        let advertised = match advertised.is_empty() {
            true => None,
            false => Some(serve::advertise(advertised)?),
        };
        let port = settings.ports.listen.port();
        let address = advertised.and_then(|(ip, told)| Some(SocketAddr::new(ip?, told.unwrap_or(port))));
        let machine = machine::read(&dir, settings.ports.listen, address);
        let findings = advice::judge(&machine, &settings.store);
        self.form.print(&findings)?;
        let is_explained = |finding: &&Finding| self.all || finding.verdict != Verdict::Good;
        for finding in findings.iter().filter(is_explained) {
            self.form.done(&format!(
                "\n{}: {}\n  {}\n  {}",
                finding.what, finding.advice, finding.why, finding.command
            ))?;
        }
        match findings.iter().filter(|finding| finding.verdict == Verdict::Wrong).count() {
            0 => Ok(()),
            count => Err(Failure::Other(format!("{count} of {} values are wrong", findings.len()))),
        }
    }
}
