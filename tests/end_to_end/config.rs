//! Settings: shown, checked, explained, and read again while the daemon runs.
//!
//! Invariants:
//! - what `config show` prints is a file that the daemon takes.

use rustix::process::Signal;

use crate::daemon::{Daemon, run, store};

/// How often a daemon is asked for what it should know soon; each time is a process of its own.
const ASKED_MAX: u32 = 1_000;

#[test]
fn the_file_that_is_shown_is_a_file_that_is_taken() {
    let (folder, store) = store();
    let shown = run("config show", "");
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    let file = folder.path().join("troupemq.toml");
    let text = shown.stdout.replace("# maxMessageSize = 4194304", "maxMessageSize = 5000");
    std::fs::write(&file, text).expect("the folder of the test is writable");
    let checked = run(&format!("config check {}", file.display()), "");
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    let explained = run(&format!("config explain maxMessageSize --config {}", file.display()), "").stdout;
    assert!(explained.contains("maxMessageSize = 5000   # from"), "{explained}");
    assert!(explained.contains("Largest body of a message, in bytes."), "{explained}");
    let json = run(&format!("config show --json --config {}", file.display()), "").stdout;
    let lines =
        json.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("a line is JSON"));
    let changed: Vec<_> = lines.filter(|setting| setting["key"] == "maxMessageSize").collect();
    assert_eq!(changed.len(), 1, "it stands in one table: {changed:?}");
    for setting in changed {
        assert_eq!(setting["value"], 5000, "{setting}");
        let origin = setting["origin"].as_str().expect("a place");
        assert!(origin.contains("troupemq.toml:"), "{origin}");
    }
    let ports = "--listen 127.0.0.1:0 --namesrv-listen 127.0.0.1:0 --broker-name b";
    let daemon =
        Daemon::spawn(&format!("{ports} --store-dir {} --config {}", store.display(), file.display()));
    let told = run(&format!("cluster config {} b maxMessageSize --json", daemon.flag()), "");
    assert_eq!(told.stdout, "{\"key\":\"maxMessageSize\",\"value\":\"5000\"}\n");
}

#[test]
fn flags_come_over_the_environment_and_that_over_the_file() {
    let (folder, store) = store();
    let file = folder.path().join("broker.conf");
    std::fs::write(&file, "brokerName=of-the-file\nmaxMessageSize=5000\nfileReservedTime=7\n")
        .expect("the folder is writable");
    let ports = "--listen 127.0.0.1:0 --namesrv-listen 127.0.0.1:0 --broker-name b";
    let flags = format!("{ports} --store-dir {} --config {}", store.display(), file.display());
    let variables = [
        ("TROUPEMQ_BROKER_NAME", "of-the-environment"),
        ("TROUPEMQ_MAX_MESSAGE_SIZE", "6000"),
        // What Kubernetes says of a service with this name is no setting.
        ("TROUPEMQ_SERVICE_HOST", "10.0.0.1"),
        ("TROUPEMQ_PORT", "tcp://10.0.0.1:10911"),
    ];
    let daemon = Daemon::spawn_among(&flags, &variables);
    assert!(daemon.greeting[0].contains("broker b on"), "{:?}", daemon.greeting);
    let value = |key: &str| run(&format!("cluster config {} b {key} --json", daemon.flag()), "").stdout;
    assert!(value("maxMessageSize").contains("\"6000\""), "{}", value("maxMessageSize"));
    assert!(value("fileReservedTime").contains("\"7\""), "{}", value("fileReservedTime"));
}

#[test]
fn a_wrong_file_is_refused_with_its_place_and_an_unknown_key_with_the_nearest() {
    let (folder, _) = store();
    let file = folder.path().join("broker.conf");
    std::fs::write(&file, "brokerName=b\nfileReservedTime=soon\n").expect("the folder is writable");
    let checked = run(&format!("config check {}", file.display()), "");
    assert_eq!(checked.code, Some(1));
    assert!(checked.stderr.contains("broker.conf:2: fileReservedTime = \"soon\""), "{}", checked.stderr);
    std::fs::write(&file, "fileReservedTime=0\n").expect("the folder is writable");
    let checked = run(&format!("config check {}", file.display()), "");
    assert_eq!(checked.code, Some(1));
    assert!(checked.stderr.contains("fileReservedTime"), "{}", checked.stderr);
    for (wrong, why) in [
        ("maxMessageSize=7000000000", "broker.conf:1: maxMessageSize = \"7000000000\" cannot be"),
        ("messageDelayLevel=1s 5x", "messageDelayLevel: \"1s 5x\" is no list of delays"),
        ("brokerName=", "brokerName = \"\" is out of bounds"),
    ] {
        std::fs::write(&file, format!("{wrong}\n")).expect("the folder is writable");
        let checked = run(&format!("config check {}", file.display()), "");
        assert!(checked.code == Some(1) && checked.stderr.contains(why), "{wrong}: {checked:?}");
    }
    let unknown = run("config explain maxMesageSize", "");
    assert_eq!(unknown.code, Some(5));
    assert!(unknown.stderr.contains("the nearest is \"maxMessageSize\""), "{}", unknown.stderr);
}

#[test]
fn settings_of_rocketmq_are_explained_by_what_becomes_of_them() {
    let explained = run("config explain listenPort", "");
    assert!(explained.stdout.starts_with("[ports] listen = \"0.0.0.0:10911\""), "{explained:?}");
    for (key, what) in [
        ("aclEnable", "aclEnable = true is refused, there is no access control here"),
        ("storePathCommitLog", "in commitlog of the folder of storePathRootDir"),
        ("sendMessageThreadPoolNums", "it is accepted, logged, and does nothing here"),
    ] {
        let explained = run(&format!("config explain {key}"), "");
        assert_eq!((explained.code, &*explained.stdout), (Some(5), ""), "{key}");
        assert!(explained.stderr.contains(what), "{}", explained.stderr);
    }
}

#[test]
fn a_hang_up_takes_over_what_may_change() {
    let (folder, store) = store();
    let file = folder.path().join("broker.conf");
    std::fs::write(&file, "maxMessageSize=5000\n").expect("the folder is writable");
    let ports = "--listen 127.0.0.1:0 --namesrv-listen 127.0.0.1:0 --broker-name b";
    let mut daemon =
        Daemon::spawn(&format!("{ports} --store-dir {} --config {}", store.display(), file.display()));
    let size = || run(&format!("cluster config {} b maxMessageSize --json", daemon.flag()), "").stdout;
    assert!(size().contains("\"5000\""));
    // A wrong file changes nothing, and the daemon goes on.
    for wrong in ["maxMessageSize=1\n", "maxMessageSize=7000000000\n", "defaultMessageRequestMode=PUSH\n"] {
        std::fs::write(&file, wrong).expect("the folder is writable");
        daemon.send(Signal::HUP);
        assert!(size().contains("\"5000\""), "{wrong}");
    }
    std::fs::write(&file, "maxMessageSize=6000\nbrokerName=other\n").expect("the folder is writable");
    daemon.send(Signal::HUP);
    let taken = (0..ASKED_MAX).any(|_| size().contains("\"6000\""));
    assert!(taken, "the daemon did not read its file again");
    assert!(daemon.terminate().success());
}
