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
const PATIENCE: Duration = Duration::from_secs(240);

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

/// What happens to a broker besides being killed from outside in the midst of its work.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Harm {
    /// Nothing.
    None,
    /// It dies at a chosen operation.
    Dies(Moment),
    /// The system refuses it something.
    Refused(Refusal),
    /// It cannot read files that a start can do without, and dies while it makes them anew, or later.
    Unread(Refusal, Moment),
    /// It is killed from outside so long after it was started, whether it serves or not.
    Early(Duration),
    /// It is told to stop in the midst of its work, and dies at a chosen operation of the stop, or not at all.
    Stops(Moment),
    /// It is told to stop, and killed from outside so long after.
    StopsAndKilled(Duration),
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
    /// It stopped in order, as it was told.
    Stopped,
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
        let patience = if let Harm::Early(time) = harm { *time } else { PATIENCE };
        let first = timeout(patience, lines.next_line()).await;
        let greeting = match first {
            Err(_) if matches!(harm, Harm::Early(_)) => {
                process.start_kill().map_err(Fault::of("cannot kill the broker"))?;
                let status = process.wait().await.map_err(Fault::of("cannot wait for the broker"))?;
                return match status.signal() {
                    Some(9) => Ok(Err(Ended::Killed)),
                    _ => Err(Fault(format!("the broker does not start: {status}"))),
                };
            }
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
        if let Some(moment) = harm.moment() {
            command.env("TROUPEMQ_CRASH_AT", moment.to_string());
        }
        if let Harm::Refused(refusal) | Harm::Unread(refusal, _) = harm {
            command.env("TROUPEMQ_REFUSE_AT", refusal.to_string());
        }
        command
    }
}

impl Harm {
    /// The operation at which the broker is to die.
    pub(crate) fn moment(&self) -> Option<&Moment> {
        match self {
            Harm::Dies(moment) | Harm::Unread(_, moment) | Harm::Stops(moment) => Some(moment),
            _ => None,
        }
    }

    /// Whether the system refuses something.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self, Harm::Refused(_) | Harm::Unread(..))
    }

    /// The end that this harm explains.
    fn end(&self, status: &ExitStatus) -> Option<Ended> {
        if self.moment().is_some() && status.signal() == Some(9) {
            return Some(Ended::Struck);
        }
        match status.code() {
            Some(0) if matches!(self, Harm::Stops(_) | Harm::StopsAndKilled(_)) => Some(Ended::Stopped),
            Some(1..100) if self.is_refused() => Some(Ended::GaveUp),
            _ => None,
        }
    }
}

impl Broker {
    /// Lets it run for a while, then kills it, unless it has ended by then.
    pub(crate) async fn kill_after(&mut self, time: Duration, harm: &Harm) -> Result<Ended, Fault> {
        let (status, by_itself) = match timeout(time, self.process.wait()).await {
            Ok(status) => (status, true),
            Err(_) => match harm {
                Harm::Stops(_) => (self.stopped().await?, true),
                Harm::StopsAndKilled(time) => {
                    self.tell_to_stop().await?;
                    match timeout(*time, self.process.wait()).await {
                        Ok(status) => (status, true),
                        Err(_) => (self.killed().await?, false),
                    }
                }
                _ => (self.killed().await?, false),
            },
        };
        let status = status.map_err(Fault::of("cannot wait for the broker"))?;
        match (status.signal(), by_itself) {
            (Some(9), false) => Ok(Ended::Killed),
            _ => harm.end(&status).ok_or_else(|| Fault(format!("the broker ended by itself: {status}"))),
        }
    }

    /// Ends it as an operator does.
    pub(crate) async fn stop(&mut self) -> Result<(), Fault> {
        let status = self.stopped().await?.map_err(Fault::of("cannot wait for the broker"))?;
        if status.success() { Ok(()) } else { Err(Fault(format!("the broker stopped with {status}"))) }
    }

    async fn stopped(&mut self) -> Result<std::io::Result<ExitStatus>, Fault> {
        self.tell_to_stop().await?;
        let ended = timeout(PATIENCE, self.process.wait()).await;
        ended.map_err(|_| Fault(format!("the broker does not stop within {PATIENCE:?}")))
    }

    async fn tell_to_stop(&self) -> Result<(), Fault> {
        let id = self.process.id().ok_or_else(|| Fault("the broker has ended by itself".to_owned()))?;
        let told = Command::new("kill").args(["-TERM", &id.to_string()]).status().await;
        told.map(drop).map_err(Fault::of("cannot signal the broker"))
    }

    async fn killed(&mut self) -> Result<std::io::Result<ExitStatus>, Fault> {
        self.process.start_kill().map_err(Fault::of("cannot kill the broker"))?;
        Ok(self.process.wait().await)
    }
}

/// The last lines of a log.
pub(crate) fn last_lines(log: &Path, count: usize) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
