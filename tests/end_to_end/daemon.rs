//! Starts the program and talks to it.
//!
//! Invariants:
//! - a daemon that a test forgets is killed when its handle goes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Limit of every wait of a test.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Waits until something holds.
pub(crate) async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let holds = async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, holds).await.unwrap_or_else(|_| panic!("not within {LIMIT:?}: {what}"));
}

/// A running name server with a broker, or one of them.
pub(crate) struct Daemon {
    process: Child,
    /// What it printed when it was ready.
    pub(crate) greeting: Vec<String>,
    pub(crate) name_server: Option<SocketAddr>,
    pub(crate) broker: Option<SocketAddr>,
}

/// An address at which nobody listens, and where nobody else can as long as it is kept.
pub(crate) fn silent_address() -> (tokio::net::TcpSocket, SocketAddr) {
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind(([127, 0, 0, 1], 0).into()).expect("a free port");
    let address = socket.local_addr().expect("it is bound");
    (socket, address)
}

/// What a command printed and how it ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) code: Option<i32>,
}

/// The program with arguments separated by blanks.
fn program(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_troupemq"));
    command.args(arguments.split_whitespace());
    command
}

/// Runs the program to its end.
pub(crate) fn run(arguments: &str, input: &str) -> Ended {
    let mut command = program(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let input = input.to_owned();
    let writer = std::thread::spawn(move || {
        // A program that does not read its input closes it.
        let _ = stdin.write_all(input.as_bytes());
    });
    let output = child.wait_with_output().expect("the program ends");
    writer.join().expect("the writer ends");
    Ended {
        stdout: String::from_utf8(output.stdout).expect("the program prints text"),
        stderr: String::from_utf8(output.stderr).expect("the program prints text"),
        code: output.status.code(),
    }
}

/// Runs the program to its end with a file as its input.
pub(crate) fn run_with_file(arguments: &str, input: &Path) -> Ended {
    let file = std::fs::File::open(input).expect("the file is there");
    let output = program(arguments).stdin(file).output().expect("the program ends");
    Ended {
        stdout: String::from_utf8(output.stdout).expect("the program prints text"),
        stderr: String::from_utf8(output.stderr).expect("the program prints text"),
        code: output.status.code(),
    }
}

/// Runs a command that must succeed; its output.
pub(crate) fn done(arguments: &str) -> String {
    let Ended { stdout, stderr, code } = run(arguments, "");
    assert_eq!(code, Some(0), "{arguments}: {stderr}");
    stdout
}

/// The exit code and complaint of a command.
pub(crate) fn failed(arguments: &str) -> (Option<i32>, String) {
    let ended = run(arguments, "");
    (ended.code, ended.stderr)
}

/// Cells of a table without its heading.
pub(crate) fn cells(table: &str) -> Vec<Vec<&str>> {
    table.lines().skip(1).map(|line| line.split_whitespace().collect()).collect()
}

impl Daemon {
    /// Name server and broker over a store, on free ports.
    pub(crate) fn start(store: &Path) -> Daemon {
        Daemon::start_with(store, "")
    }

    /// The same with further flags; some settings are small so that a test leaves little behind.
    pub(crate) fn start_with(store: &Path, flags: &str) -> Daemon {
        let settings = store.with_extension("conf");
        std::fs::write(&settings, "mappedFileSizeCommitLog=1048576\nmaxHashSlotNum=1000\nmaxIndexNum=4000\n")
            .expect("the folder of the test is writable");
        let (store, settings) = (store.display(), settings.display());
        let ports = "--listen 127.0.0.1:0 --namesrv-listen 127.0.0.1:0";
        Daemon::spawn(&format!("{ports} --broker-name b --store-dir {store} --config {settings} {flags}"))
    }

    /// The same on the ports of one that ended, so that its clients find it again.
    pub(crate) fn start_again(&self, store: &Path) -> Daemon {
        let (broker, name_server) =
            (self.broker.expect("it was a broker"), self.name_server.expect("it had one"));
        let settings = store.with_extension("conf");
        let (store, settings) = (store.display(), settings.display());
        let ports = format!("--listen {broker} --namesrv-listen {name_server}");
        Daemon::spawn(&format!("{ports} --broker-name b --store-dir {store} --config {settings}"))
    }

    /// Starts the program and waits for its three lines.
    pub(crate) fn spawn(arguments: &str) -> Daemon {
        Daemon::spawn_among(arguments, &[])
    }

    /// The same, with variables of the environment.
    pub(crate) fn spawn_among(arguments: &str, variables: &[(&str, &str)]) -> Daemon {
        let mut command = program(arguments);
        command.envs(variables.iter().copied());
        let mut process =
            command.arg("--log=warn").stdout(Stdio::piped()).spawn().expect("the program starts");
        let stdout = process.stdout.take().expect("stdout is piped");
        let greeting: Vec<_> =
            BufReader::new(stdout).lines().take(3).map(|line| line.expect("a line is text")).collect();
        assert_eq!(greeting.len(), 3, "it did not start: {greeting:?}");
        let after = |words: &str| {
            let (_, rest) = greeting[0].split_once(words)?;
            rest.split([',', ';', ' ']).next()?.parse().ok()
        };
        let (name_server, broker) = (after("name server on "), after("broker b on "));
        Daemon { process, greeting, name_server, broker }
    }

    /// The flag by which commands find the name server.
    pub(crate) fn flag(&self) -> String {
        format!("-n {}", self.name_server.expect("it has a name server"))
    }

    /// Ends it as an operator does, and waits.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::TERM)
    }

    /// Ends it as Ctrl-C does, and waits.
    pub(crate) fn interrupt(&mut self) -> ExitStatus {
        self.signal(Signal::INT)
    }

    /// Ends it without a warning, and waits.
    pub(crate) fn kill(&mut self) -> ExitStatus {
        self.signal(Signal::KILL)
    }

    /// Sends a signal that does not end it.
    pub(crate) fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("the process is there");
    }

    /// Memory of the process alone, in bytes: what it has of its files is the system's, which lends it as it likes.
    pub(crate) fn own_bytes(&self) -> usize {
        let path = format!("/proc/{}/status", self.process.id());
        let status = std::fs::read_to_string(path).expect("the process is there");
        let line =
            status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a process has memory");
        let kib = line.trim().trim_end_matches(" kB").parse::<usize>();
        kib.expect("a number") * 1024
    }

    fn signal(&mut self, signal: Signal) -> ExitStatus {
        self.send(signal);
        self.process.wait().expect("the process can be waited for")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A folder for one test, and in it the place of a store.
pub(crate) fn store() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("the system has a temporary folder");
    let store = folder.path().join("data");
    (folder, store)
}

/// The beginning of a process that should fail to start, run to its end.
pub(crate) fn refused(arguments: &str) -> Ended {
    let mut command = program(arguments);
    let mut process =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let mut stdout = String::new();
    process.stdout.take().expect("piped").read_to_string(&mut stdout).expect("text");
    let mut stderr = String::new();
    process.stderr.take().expect("piped").read_to_string(&mut stderr).expect("text");
    let code = process.wait().expect("the process ends").code();
    Ended { stdout, stderr, code }
}

/// Runs the program to its end where nobody reads its output, nor what it has to say of a failure; answers its code.
pub(crate) fn unheard(arguments: &str) -> Option<i32> {
    let closed = || std::io::pipe().expect("the system has pipes").1;
    let mut command = program(arguments);
    let mut process =
        command.stdout(closed()).stderr(closed()).stdin(Stdio::null()).spawn().expect("the program starts");
    process.wait().expect("the process ends").code()
}
