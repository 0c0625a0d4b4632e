//! The broker's process.
//!
//! Invariants:
//! - it dies of `SIGKILL` or ends in order, anything else is a fault: an abort, a panic, an exit by itself;
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
use crate::moment::Moment;

/// Longest time from a start to the first line, and from a signal to the end.
const PATIENCE: Duration = Duration::from_secs(60);

/// How brokers of one life are started.
#[derive(Debug)]
pub(crate) struct Recipe {
    pub(crate) program: PathBuf,
    pub(crate) store: PathBuf,
    pub(crate) settings: PathBuf,
    pub(crate) log: PathBuf,
    pub(crate) flush: &'static str,
}

/// A running broker with its name server.
#[derive(Debug)]
pub(crate) struct Broker {
    process: Child,
    pub(crate) name_server: SocketAddr,
    pub(crate) address: SocketAddr,
}

impl Recipe {
    /// Starts a broker, which dies at `moment` if one is given: none if it did before it served.
    pub(crate) async fn start(&self, moment: Option<&Moment>) -> Result<Option<Broker>, Fault> {
        let log = OpenOptions::new().create(true).append(true).open(&self.log);
        let log = log.map_err(Fault::of("cannot open the log"))?;
        let mut process = self.command(log, moment).spawn().map_err(Fault::of("cannot start the broker"))?;
        let stdout = process.stdout.take().expect("stdout is piped");
        let mut lines = BufReader::new(stdout).lines();
        let first = timeout(PATIENCE, lines.next_line()).await;
        let greeting = match first {
            Err(_) => return Err(Fault(format!("the broker does not serve after {PATIENCE:?}"))),
            Ok(line) => line.map_err(Fault::of("cannot read the greeting"))?,
        };
        let Some(greeting) = greeting else {
            let status = process.wait().await.map_err(Fault::of("cannot wait for the broker"))?;
            return match moment {
                Some(_) if status.signal() == Some(9) => Ok(None),
                _ => Err(Fault(format!("the broker does not start: {status}"))),
            };
        };
        let after = |words: &str| -> Option<SocketAddr> {
            let (_, rest) = greeting.split_once(words)?;
            rest.split([',', ';', ' ']).next()?.parse().ok()
        };
        match (after("name server on "), after("broker b on ")) {
            (Some(name_server), Some(address)) => Ok(Some(Broker { process, name_server, address })),
            _ => Err(Fault(format!("a greeting without addresses: {greeting}"))),
        }
    }

    fn command(&self, log: File, moment: Option<&Moment>) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(["--listen", "127.0.0.1:0", "--namesrv-listen", "127.0.0.1:0", "--broker-name", "b"])
            .args(["--log", "info", "--flush", self.flush])
            .arg("--store-dir")
            .arg(&self.store)
            .arg("--config")
            .arg(&self.settings)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true);
        if let Some(moment) = moment {
            command.env("TROUPEMQ_CRASH_AT", moment.to_string());
        }
        command
    }
}

impl Broker {
    /// Lets it run for a while, then kills it. Tells whether it had died by itself, as it was told.
    pub(crate) async fn kill_after(
        &mut self,
        time: Duration,
        moment: Option<&Moment>,
    ) -> Result<bool, Fault> {
        let (status, by_itself) = match timeout(time, self.process.wait()).await {
            Ok(status) => (status, true),
            Err(_) => {
                self.process.start_kill().map_err(Fault::of("cannot kill the broker"))?;
                (self.process.wait().await, false)
            }
        };
        let status = status.map_err(Fault::of("cannot wait for the broker"))?;
        match (status.signal(), by_itself, moment) {
            (Some(9), true, Some(_)) => Ok(true),
            (Some(9), false, _) => Ok(false),
            _ => Err(Fault(format!("the broker ended by itself: {status}"))),
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
