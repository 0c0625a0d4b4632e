//! The commands of `docs/daemon.md` do what it says, as they stand there.
//!
//! Invariants:
//! - a command is only told where its cluster, its store and the settings of it are; what else it says is the guide's.

use std::fmt::Write;

use crate::daemon::{Daemon, cells, done, run, store};

const DAEMON: &str = include_str!("../../docs/daemon.md");

/// How often a name server is asked for what it should know soon; each time is a process of its own.
const ASKED_MAX: u32 = 1_000;

/// The commands of a section, without their remarks.
fn commands(section: &str) -> Vec<String> {
    let heading = format!("\n## {section}\n");
    let (_, rest) = DAEMON.split_once(&heading).expect("the guide has the section");
    let text = rest.split("\n## ").next().unwrap_or(rest).replace("\\\n", " ");
    let shown = text.split("```").skip(1).step_by(2).flat_map(str::lines);
    let lines = shown.map(|line| line.split(" #").next().unwrap_or(line).trim());
    lines.filter_map(|line| line.strip_prefix("troupemq ")).map(str::to_owned).collect()
}

#[test]
fn what_is_done_every_day_works_as_the_guide_says() {
    let (_folder, store) = store();
    let daemon = Daemon::start(&store);
    let flag = daemon.flag();
    let commands = commands("Every day");
    assert!(commands.len() >= 8, "they are found in the guide: {commands:?}");
    for command in &commands {
        let told = done(&format!("{} {flag}", command.replace("BROKER", "b")));
        assert!(!told.is_empty(), "{command} says nothing");
        if command.starts_with("topic create") {
            // What the commands behind it look at.
            done(&format!("produce {flag} -t orders --key 42 hello"));
            let got = done(&format!("consume {flag} -t orders --group orders-reader --from first --count 1"));
            assert_eq!(got, "hello\n");
        }
    }
}

#[test]
fn settings_are_shown_kept_and_checked_as_the_guide_says() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let shown = commands("One machine");
    assert_eq!(shown, ["doctor", "config show > troupemq.toml", "config check troupemq.toml"]);
    for command in &shown {
        let mut shell = std::process::Command::new("sh");
        shell.current_dir(folder.path()).args(["-c", &format!("\"$TROUPEMQ\" {command}")]);
        let ended = shell.env("TROUPEMQ", env!("CARGO_BIN_EXE_troupemq")).output().expect("there is a shell");
        // What the doctor thinks of this machine is no fault of the guide.
        let is_good = ended.status.success() || command == "doctor" && ended.status.code() == Some(1);
        assert!(is_good, "{command}: {}", String::from_utf8_lossy(&ended.stderr));
    }
    let file = folder.path().join("troupemq.toml").display().to_string();
    assert_eq!(done(&format!("config check {file}")), format!("{file}: 0 settings, all good\n"));
}

/// The brokers that a name server knows, when it knows any: a broker on a busy machine may say that it serves before.
fn known_at(flag: &str) -> String {
    let mut asked = (0..ASKED_MAX).map(|_| run(&format!("cluster list {flag}"), ""));
    asked.find(|ended| ended.code == Some(0)).expect("the broker registers").stdout
}

#[test]
fn name_servers_and_brokers_start_on_several_machines_as_the_guide_says() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let below = |command: &str| command.replace("/data", &folder.path().display().to_string());
    let shown = commands("Several machines");
    let [names, broker] = &shown[..] else { panic!("{shown:?}") };
    let names = names.replace("0.0.0.0:9876", "127.0.0.1:0");
    let names: Vec<_> = ["/data/one", "/data/two"]
        .map(|dir| Daemon::spawn(&below(&names.replace("/data/names", dir))))
        .into();
    let list: Vec<_> = names.iter().map(|one| one.name_server.expect("it is one").to_string()).collect();
    let broker = below(broker).replace("\"10.0.0.1:9876;10.0.0.2:9876\"", &list.join(";"));
    let broker = broker.replace("10.0.0.3", "127.0.0.1");
    let _broker = Daemon::spawn(&format!("{broker} --listen 127.0.0.1:0"));
    for names in &list {
        let known = known_at(&format!("-n {names}"));
        let known = cells(&known);
        assert_eq!((known.len(), known[0][1]), (1, "a"), "every broker registers with all");
        assert!(known[0][3].starts_with("127.0.0.1:"), "{known:?}");
    }
}

#[test]
fn a_broker_goes_on_with_the_settings_and_the_store_of_a_java_broker_as_the_guide_says() {
    let guide = include_str!("../../docs/migration.md");
    for command in
        ["troupemq broker --config broker.conf --namesrv ADDRS", "troupemq config check broker.conf"]
    {
        assert!(guide.contains(command), "{command} is in the guide");
    }
    let (folder, store) = store();
    let names = Daemon::spawn("namesrv --listen 127.0.0.1:0");
    let file = folder.path().join("broker.conf");
    let settings = format!(
        "brokerClusterName=DefaultCluster\nbrokerName=a\nbrokerId=0\nbrokerRole=ASYNC_MASTER\nlistenPort=0\n\
         brokerIP1=127.0.0.1\nstorePathRootDir={0}\nstorePathCommitLog={0}/commitlog\nflushDiskType=ASYNC_FLUSH\n\
         deleteWhen=04\nfileReservedTime=48\nsendMessageThreadPoolNums=16\n",
        store.display()
    );
    std::fs::write(&file, settings).expect("writable");
    let file = file.display();
    assert_eq!(done(&format!("--log=error config check {file}")), format!("{file}: 12 settings, all good\n"));
    let flag = names.flag();
    let addresses = flag.split_whitespace().last().expect("an address");
    let _broker = Daemon::spawn(&format!("broker --config {file} --namesrv {addresses}"));
    assert_eq!(cells(&known_at(&flag))[0][..3], ["DefaultCluster", "a", "0"]);
    done(&format!("produce {flag} -t t hello"));
    assert!(store.join("commitlog").is_dir(), "the store is where the file says");
}

#[test]
fn a_store_that_rests_is_looked_at_as_the_guide_says() {
    let (folder, store) = store();
    let mut daemon = Daemon::start(&store);
    done(&format!("produce {} -t orders --count 3 hello", daemon.flag()));
    assert!(daemon.terminate().success());
    let settings = folder.path().join("broker.conf");
    let lines = std::fs::read_to_string(store.with_extension("conf")).expect("the broker has settings");
    let lines = format!("storePathRootDir={}\n{lines}", store.display());
    std::fs::write(&settings, lines).expect("the folder of the test is writable");
    let config = format!("--config {}", settings.display());
    let mut told = String::new();
    for command in commands("After a crash") {
        let command = command.replace("/data/a", &store.display().to_string());
        let command = match command.split_once("--config broker.conf") {
            Some((before, after)) => format!("{before}{config}{after}"),
            None => format!("{command} {config}"),
        };
        let ended = run(&command, "");
        assert_eq!(ended.code, Some(0), "{command}: {}", ended.stderr);
        write!(told, "{command}: {}", ended.stdout).expect("a text grows");
    }
    for words in [
        "store check",
        "3 records in",
        "store dump",
        "orders",
        "store rebuild",
        "3 records read, the log ends at",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
}

#[test]
fn a_ramp_ends_at_the_first_bound_and_draws_its_curves() {
    let (folder, store) = store();
    let daemon = Daemon::start(&store);
    let page = folder.path().join("ramp.html");
    // No answer comes within 0 ms, so the first step is the last.
    let bounds = "--from 100 --seconds 1 --warmup 0 --connections 1 --size 100 --p99-max-ms 0";
    let html = page.display();
    let told = done(&format!("bench ramp {} {bounds} --html {html} --json", daemon.flag()));
    let last = told.lines().last().expect("it says something");
    let verdict: serde_json::Value = serde_json::from_str(last).expect("the verdict is JSON");
    assert_eq!(verdict["safeRate"], 0, "{told}");
    assert!(verdict["end"].is_string(), "{told}");
    assert_eq!(told.lines().count(), 2, "one step and the verdict: {told}");
    let drawn = std::fs::read_to_string(page).expect("the page is written");
    assert!(drawn.contains("<svg"), "{drawn}");
}
