//! The command line: what can be asked for, and who does it.
//!
//! Invariants:
//! - each sub-command stands in one file of `cli/`, with its flags beside its code;
//! - `--json` prints one JSON object a line and nothing else on standard output.

mod bench;
mod cluster;
mod completions;
mod config;
mod consume;
mod credentials;
mod dlq;
mod doctor;
mod group;
mod logs;
mod message;
mod offset;
mod output;
mod produce;
mod progress;
mod serve;
mod settings;
mod show;
mod store;
mod table;
mod timer;
mod topic;
mod tx;
mod waiting;
mod when;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Parser, Subcommand};
use troupemq::{Admin, Client, ClientError, Tls};
use troupemq_actors::node::NodeError;
use troupemq_store::StoreError;

/// What the exit code says; see [`Failure::exit_code`].
const EXIT_CODES: &str = "\
Without a command: name server and broker in one process, with their defaults.

Exit codes: 0 done, 1 failed, 2 wrong command line, 3 a server cannot be reached, 4 a server refused, 5 not found.
Of a server or a store: 6 a port cannot be opened, 7 the store is open in another process, 8 a file of it is damaged,
9 a file of it cannot be read or written, 10 its disk is full, 11 it stopped as it could not be trusted any more.";

/// Message broker compatible with Apache RocketMQ.
#[derive(Debug, Parser)]
#[command(name = "troupemq", version, about, after_help = EXIT_CODES)]
struct CommandLine {
    #[command(subcommand)]
    command: Option<Task>,
    #[command(flatten)]
    serve: serve::Both,
    /// What to log: off, error, warn, info, debug, trace, or targets such as troupemq=debug
    #[arg(long, global = true, value_name = "LEVEL", default_value = "info")]
    log: String,
}

#[derive(Debug, Subcommand)]
enum Task {
    #[command(name = "namesrv")]
    NameServer(serve::NameServer),
    Broker(serve::Broker),
    Produce(produce::Produce),
    Consume(consume::Consume),
    #[command(subcommand)]
    Bench(bench::Bench),
    #[command(subcommand)]
    Store(store::Store),
    #[command(subcommand)]
    Topic(topic::Topic),
    #[command(subcommand)]
    Group(group::Group),
    #[command(subcommand)]
    Offset(offset::Offset),
    #[command(subcommand)]
    Message(message::Message),
    #[command(subcommand)]
    Cluster(cluster::Cluster),
    #[command(subcommand)]
    Config(config::Config),
    Doctor(doctor::Doctor),
    Timer(timer::Timer),
    #[command(subcommand)]
    Dlq(dlq::Dlq),
    #[command(subcommand)]
    Tx(tx::Tx),
    Completions(completions::Completions),
}

/// Where the cluster is.
#[derive(Debug, Clone, Args)]
struct Cluster {
    /// Name servers, separated by `;`, or the `http://` address of their list
    #[arg(long, short = 'n', value_name = "ADDRS", default_value = "127.0.0.1:9876")]
    namesrv: String,
    /// Speak TLS, and trust whom `system` trusts, a PEM file's authorities, or (`insecure`) anybody
    #[arg(long, value_name = "system|insecure|FILE")]
    tls: Option<Trust>,
    /// Sign every request with the accessKey and secretKey of this file, such as RocketMQ's tools.yml
    #[arg(long, value_name = "FILE")]
    credentials: Option<PathBuf>,
}

/// What every command that looks something up or changes it is told.
#[derive(Debug, Clone, Args)]
struct Asked {
    #[command(flatten)]
    cluster: Cluster,
    #[command(flatten)]
    form: table::Form,
}

impl Asked {
    async fn client(&self) -> Result<Client, Failure> {
        self.cluster.connect().await
    }

    async fn admin(&self) -> Result<Admin, Failure> {
        Ok(self.client().await?.admin())
    }
}

/// Refuses what destroys or stops something, unless it was confirmed.
fn confirmed(yes: bool, what: &str) -> Result<(), Failure> {
    if yes { Ok(()) } else { Err(Failure::Usage(format!("{what}; say --yes"))) }
}

/// Whose certificates are good.
#[derive(Debug, Clone)]
enum Trust {
    System,
    Anybody,
    File(PathBuf),
}

impl std::str::FromStr for Trust {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Trust, Self::Err> {
        Ok(match text {
            "system" => Trust::System,
            "insecure" => Trust::Anybody,
            file => Trust::File(file.into()),
        })
    }
}

/// Why a command ended without success.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("{line} was not sent: {cause}")]
    Unsent { line: String, cause: ClientError },
    #[error("{what}: {cause}")]
    Io { what: &'static str, cause: std::io::Error },
    #[error(transparent)]
    Settings(#[from] settings::SettingsError),
    #[error(transparent)]
    Credentials(#[from] credentials::CredentialsError),
    #[error(transparent)]
    Node(#[from] Arc<NodeError>),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Other(String),
}

impl Failure {
    /// A code for each class of failure, so that scripts need not read texts.
    fn exit_code(&self) -> u8 {
        match self {
            Failure::Usage(_) => 2,
            Failure::NotFound(_) => 5,
            Failure::Store(cause) => code_of_store(cause),
            Failure::Node(cause) => match &**cause {
                NodeError::Port { .. } => 6,
                NodeError::Store(cause) => code_of_store(cause),
                NodeError::Poisoned { .. } => 11,
                NodeError::Config(_) | NodeError::Thread { .. } | NodeError::Incomplete { .. } => 1,
            },
            Failure::Client(cause) | Failure::Unsent { cause, .. } => match cause {
                ClientError::NoRoute { .. } | ClientError::NoBroker { .. } => 5,
                cause if cause.is_transport() => 3,
                cause if cause.code().is_some() => 4,
                _ => 1,
            },
            _ => 1,
        }
    }
}

/// The exit code of a store that cannot be opened, looked at or closed.
fn code_of_store(cause: &StoreError) -> u8 {
    match cause {
        StoreError::Locked { .. } => 7,
        StoreError::Corrupt { .. } => 8,
        cause if cause.is_out_of_space() => 10,
        StoreError::Io { .. } | StoreError::Read { .. } | StoreError::Reserve { .. } => 9,
        StoreError::Poisoned { .. } => 11,
        _ => 1,
    }
}

impl Cluster {
    async fn connect(&self) -> Result<Client, Failure> {
        let builder = if self.namesrv.starts_with("http://") {
            Client::builder().name_server_list(&self.namesrv)
        } else {
            Client::builder().name_servers(&self.namesrv)
        };
        let builder = match &self.tls {
            None => builder,
            Some(Trust::System) => builder.tls(Tls::new()),
            Some(Trust::Anybody) => builder.tls(Tls::new().insecure()),
            Some(Trust::File(path)) => builder.tls(Tls::new().ca_file(path)),
        };
        let builder = match &self.credentials {
            None => builder,
            Some(file) => credentials::Credentials::read(file)?.sign(builder),
        };
        Ok(builder.connect().await?)
    }
}

/// Does what the command line says.
pub(crate) fn run() -> ExitCode {
    let line = CommandLine::parse();
    let walks_over_a_store = matches!(line.command, Some(Task::Store(_)));
    let bar = walks_over_a_store.then(progress::Percents::on_terminal).flatten();
    if let Err(why) = logs::start(&line.log, bar.as_ref()) {
        return failed(&Failure::Other(why));
    }
    if line.command.is_some() && line.serve != serve::Both::default() {
        let why = "flags of the server stand before a command: they belong behind `broker` or `namesrv`";
        return failed(&Failure::Usage(why.to_owned()));
    }
    let done = match line.command {
        Some(Task::Produce(task)) => on_tokio(task.run()),
        Some(Task::Consume(task)) => on_tokio(task.run()),
        Some(Task::Bench(task)) => on_tokio(task.run()),
        Some(Task::NameServer(task)) => on_tokio(task.run()),
        Some(Task::Broker(task)) => on_tokio(task.run()),
        Some(Task::Store(task)) => task.run(bar.as_ref()),
        Some(Task::Topic(task)) => on_tokio(task.run()),
        Some(Task::Group(task)) => on_tokio(task.run()),
        Some(Task::Offset(task)) => on_tokio(task.run()),
        Some(Task::Message(task)) => on_tokio(task.run()),
        Some(Task::Cluster(task)) => on_tokio(task.run()),
        Some(Task::Config(task)) => task.run(),
        Some(Task::Doctor(task)) => task.run(),
        Some(Task::Timer(task)) => on_tokio(task.run()),
        Some(Task::Dlq(task)) => on_tokio(task.run()),
        Some(Task::Tx(task)) => on_tokio(task.run()),
        Some(Task::Completions(task)) => task.run(),
        None => on_tokio(line.serve.run()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failed(&failure),
    }
}

fn failed(failure: &Failure) -> ExitCode {
    output::complain(format_args!("troupemq: {failure}"));
    failure.exit_code().into()
}

/// Runs a command of the client on a runtime of its own.
fn on_tokio(task: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let io = |cause| Failure::Io { what: "cannot start the runtime", cause };
    runtime.map_err(io)?.block_on(task)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    use super::*;

    const README: &str = include_str!("../README.md");
    const PAGES: [(&str, &str); 6] = [
        ("README.md", README),
        ("client.md", include_str!("../docs/client.md")),
        ("daemon.md", include_str!("../docs/daemon.md")),
        ("embedding.md", include_str!("../docs/embedding.md")),
        ("migration.md", include_str!("../docs/migration.md")),
        ("mqadmin.md", include_str!("../docs/mqadmin.md")),
    ];

    /// The arguments of a command that a page shows; `None` of another program's.
    fn arguments(line: &str) -> Option<&str> {
        let line = line.rsplit(" | ").next().unwrap_or(line);
        let line = line.split(" #").next().unwrap_or(line).split(" > ").next().unwrap_or(line).trim();
        let ours = line.strip_prefix("troupemq").or_else(|| line.strip_prefix("cargo run --release"))?;
        let ours = ours.strip_prefix(" --").filter(|rest| rest.starts_with(' ')).unwrap_or(ours);
        (ours.is_empty() || ours.starts_with(' ')).then(|| ours.trim())
    }

    fn parsed(arguments: &str) -> Result<CommandLine, clap::Error> {
        let mut words = vec![String::from("troupemq")];
        // A text in quotation marks is one argument.
        for (at, part) in arguments.split('"').enumerate() {
            match at % 2 {
                0 => words.extend(part.split_whitespace().map(str::to_owned)),
                _ => words.push(part.to_owned()),
            }
        }
        CommandLine::try_parse_from(words)
    }

    #[test]
    fn each_class_of_failure_has_its_code_and_the_help_names_it() {
        let refused = |errno| std::io::Error::from_raw_os_error(errno);
        let store = |errno| StoreError::Io { op: "write", file: "log".into(), cause: refused(errno) };
        let node = |error| Failure::Node(Arc::new(error));
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
        let (no_space, no_device) = (28, 5);
        let (address_of, after) = (address.to_string(), std::time::Duration::ZERO);
        let late = ClientError::TimedOut { address: address_of, request: "PULL_MESSAGE", after };
        let classes = [
            (Failure::Other(String::new()), 1),
            (Failure::Usage(String::new()), 2),
            (Failure::Client(late), 3),
            (Failure::NotFound(String::new()), 5),
            (node(NodeError::Port { address, cause: refused(98) }), 6),
            (node(NodeError::Store(StoreError::Locked { dir: "s".into(), holder: None })), 7),
            (node(NodeError::Store(StoreError::Corrupt { file: "f".into(), at: 0, why: "" })), 8),
            (Failure::Store(store(no_device)), 9),
            (node(NodeError::Store(store(no_space))), 10),
            (Failure::Store(StoreError::NoRoom { cause: "no space".into() }), 10),
            (node(NodeError::Poisoned { cause: "a flush failed".to_owned() }), 11),
        ];
        for (failure, code) in classes {
            assert_eq!(failure.exit_code(), code, "{failure}");
        }
        for code in 0..=11 {
            let mut told = EXIT_CODES.split([',', ':', '\n']).map(str::trim_start);
            assert!(told.any(|one| one.starts_with(&format!("{code} "))), "{code} is not in the help");
        }
        assert!(README.contains("`troupemq --help` the exit codes"));
    }

    #[test]
    fn every_command_of_a_block_of_a_page_is_one_of_this_program() {
        let mut seen = 0;
        for (page, text) in PAGES {
            let text = text.replace("\\\n", " ");
            let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
            for arguments in blocks.flat_map(str::lines).filter_map(arguments) {
                parsed(arguments).unwrap_or_else(|error| panic!("{page}: troupemq {arguments}: {error}"));
                seen += 1;
            }
        }
        assert!(seen > 20, "{seen}");
    }

    #[test]
    fn every_command_within_a_text_is_one_of_this_program() {
        let mut seen = 0;
        for (page, text) in PAGES {
            let prose: Vec<_> = text.split("```").step_by(2).collect();
            for span in prose.iter().flat_map(|part| part.split('`').skip(1).step_by(2)) {
                // An alternative in a table, an omission, something optional.
                let span = span.replace("\\|", "|").replace('…', "").replace(['[', ']'], "");
                let Some(all) =
                    arguments(&span).filter(|all| !all.starts_with("COMMAND") && !all.starts_with('='))
                else {
                    continue;
                };
                for one in each_alternative(all) {
                    assert!(is_known(&one), "{page}: troupemq {one}");
                    seen += 1;
                }
            }
        }
        assert!(seen > 20, "{seen}");
    }

    /// The commands that `topic|group list|show` stands for.
    fn each_alternative(arguments: &str) -> Vec<String> {
        let mut words = arguments.splitn(3, ' ');
        let (first, second) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let rest = words.next().unwrap_or("").replace("sync|async", "sync");
        let pairs = first.split('|').flat_map(|first| second.split('|').map(move |second| (first, second)));
        pairs.map(|(first, second)| format!("{first} {second} {rest}")).collect()
    }

    /// Whether it is a command, be it one that wants more to be said.
    fn is_known(arguments: &str) -> bool {
        use ErrorKind::{
            DisplayHelpOnMissingArgumentOrSubcommand, MissingRequiredArgument, MissingSubcommand,
        };
        let short = [DisplayHelpOnMissingArgumentOrSubcommand, MissingRequiredArgument, MissingSubcommand];
        match parsed(arguments) {
            Ok(_) => true,
            Err(error) => short.contains(&error.kind()) || !error.use_stderr(),
        }
    }

    #[test]
    fn the_table_of_readme_names_every_command_and_only_flags_it_has() {
        let (_, table) = README.split_once("| command | what it does |").expect("there is a table");
        let rows: Vec<&str> = table.lines().skip(2).take_while(|line| line.starts_with('|')).collect();
        let line = CommandLine::command();
        for command in line.get_subcommands().map(clap::Command::get_name).filter(|name| *name != "help") {
            let is_named = |row: &&str| {
                let span = row.split('`').nth(1).unwrap_or_default().replace("\\|", " ");
                span.split([' ', '|']).any(|word| word == command)
            };
            assert!(rows.iter().any(is_named), "{command} is not in the table");
        }
        for row in rows {
            let named = row.split('`').nth(1).unwrap_or_default().replace("\\|", "|");
            let mut words = named.split_whitespace().skip(1);
            let Some(first) = words.next() else { continue };
            let Some(mut command) = line.find_subcommand(first.split('|').next().unwrap_or(first)) else {
                continue;
            };
            if let Some(below) =
                words.next().and_then(|word| command.find_subcommand(word.split('|').next()?))
            {
                command = below;
            }
            for flag in row.split(['`', ' ', ';', '=']).filter_map(|word| word.strip_prefix("--")) {
                let has = |command: &clap::Command| {
                    command.get_arguments().any(|known| known.get_long() == Some(flag))
                        || command
                            .get_subcommands()
                            .any(|below| below.get_arguments().any(|known| known.get_long() == Some(flag)))
                };
                assert!(has(command), "{row}: {} has no --{flag}", command.get_name());
            }
        }
    }
}
