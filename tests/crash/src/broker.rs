//! The broker's process.
//!
//! Invariants:
//! - it dies of `SIGKILL` or ends in order, anything else is a fault: an abort, a panic, an exit by itself, unless the
//!   system refused it something: then it may end with a code that says so, and names the cause;
//! - its log goes to a file beside the store, all starts one after the other.

use std::fs::{File, OpenOptions};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::Fault;
use crate::moment::{Moment, Refusal};

/// Longest time from a start to the first line, and from a signal to the end.
const PATIENCE: Duration = Duration::from_secs(60);

/// What it logs: also how far the log is on the disk.
const LOG: &str = "info,troupemq_store::commit_log::flusher=trace";

/// How brokers of one life are started.
#[derive(Debug)]
pub(crate) struct Recipe {
    pub(crate) program: PathBuf,
    pub(crate) store: PathBuf,
    pub(crate) settings: PathBuf,
    pub(crate) log: PathBuf,
    pub(crate) flush: &'static str,
}

/// What happens to a broker besides being killed from outside.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Harm {
    /// Nothing.
    None,
    /// It dies at a chosen operation.
    Dies(Moment),
    /// The system refuses it something.
    Refused(Refusal),
}

/// How a broker came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It was killed from outside.
    Killed,
    /// It died at its moment.
    Struck,
    /// It gave up because the system refused it something.
    GaveUp,
}

/// A running broker with its name server.
#[derive(Debug)]
pub(crate) struct Broker {
    process: Child,
    pub(crate) name_server: SocketAddr,
    pub(crate) address: SocketAddr,
}

impl Recipe {
    /// Starts a broker to which `harm` is done: how it ended if it did before it served.
    pub(crate) async fn start(&self, harm: &Harm) -> Result<Result<Broker, Ended>, Fault> {
        let log = OpenOptions::new().create(true).append(true).open(&self.log);
        let log = log.map_err(Fault::of("cannot open the log"))?;
        let mut process = self.command(log, harm).spawn().map_err(Fault::of("cannot start the broker"))?;
        let stdout = process.stdout.take().expect("stdout is piped");
        let mut lines = BufReader::new(stdout).lines();
        let first = timeout(PATIENCE, lines.next_line()).await;
        let greeting = match first {
            Err(_) => return Err(Fault(format!("the broker does not serve after {PATIENCE:?}"))),
            Ok(line) => line.map_err(Fault::of("cannot read the greeting"))?,
        };
        let Some(greeting) = greeting else {
            let status = process.wait().await.map_err(Fault::of("cannot wait for the broker"))?;
            let ended =
                harm.end(&status).ok_or_else(|| Fault(format!("the broker does not start: {status}")));
            return Ok(Err(ended?));
        };
        let after = |words: &str| -> Option<SocketAddr> {
            let (_, rest) = greeting.split_once(words)?;
            rest.split([',', ';', ' ']).next()?.parse().ok()
        };
        match (after("name server on "), after("broker b on ")) {
            (Some(name_server), Some(address)) => Ok(Ok(Broker { process, name_server, address })),
            _ => Err(Fault(format!("a greeting without addresses: {greeting}"))),
        }
    }

    fn command(&self, log: File, harm: &Harm) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(["--listen", "127.0.0.1:0", "--namesrv-listen", "127.0.0.1:0", "--broker-name", "b"])
            .args(["--log", LOG, "--flush", self.flush])
            .arg("--store-dir")
            .arg(&self.store)
            .arg("--config")
            .arg(&self.settings)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true);
        match harm {
            Harm::None => {}
            Harm::Dies(moment) => drop(command.env("TROUPEMQ_CRASH_AT", moment.to_string())),
            Harm::Refused(refusal) => drop(command.env("TROUPEMQ_REFUSE_AT", refusal.to_string())),
        }
        command
    }
}

impl Harm {
    /// The end that this harm explains.
    fn end(&self, status: &ExitStatus) -> Option<Ended> {
        match self {
            Harm::Dies(_) if status.signal() == Some(9) => Some(Ended::Struck),
            Harm::Refused(_) if status.code().is_some_and(|code| (1..100).contains(&code)) => {
                Some(Ended::GaveUp)
            }
            _ => None,
        }
    }
}

impl Broker {
    /// Lets it run for a while, then kills it, unless it has ended by then.
    pub(crate) async fn kill_after(&mut self, time: Duration, harm: &Harm) -> Result<Ended, Fault> {
        let (status, by_itself) = match timeout(time, self.process.wait()).await {
            Ok(status) => (status, true),
            Err(_) => {
                self.process.start_kill().map_err(Fault::of("cannot kill the broker"))?;
                (self.process.wait().await, false)
            }
        };
        let status = status.map_err(Fault::of("cannot wait for the broker"))?;
        match (status.signal(), by_itself) {
            (Some(9), false) => Ok(Ended::Killed),
            _ => harm.end(&status).ok_or_else(|| Fault(format!("the broker ended by itself: {status}"))),
        }
    }

    /// Ends it as an operator does.
    pub(crate) async fn stop(&mut self) -> Result<(), Fault> {
        let id = self.process.id().ok_or_else(|| Fault("the broker has ended by itself".to_owned()))?;
        let told = Command::new("kill").args(["-TERM", &id.to_string()]).status().await;
        told.map_err(Fault::of("cannot signal the broker"))?;
        let ended = timeout(PATIENCE, self.process.wait()).await;
        let status: ExitStatus = match ended {
            Ok(status) => status.map_err(Fault::of("cannot wait for the broker"))?,
            Err(_) => return Err(Fault(format!("the broker does not stop within {PATIENCE:?}"))),
        };
        if status.success() { Ok(()) } else { Err(Fault(format!("the broker stopped with {status}"))) }
    }
}

/// The last lines of a log.
pub(crate) fn last_lines(log: &Path, count: usize) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
