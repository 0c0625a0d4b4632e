//! Clients that are connected and say nothing.
//!
//! Invariants:
//! - where the system does not allow this process so many open files, fewer connections are made, and it is said.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::daemon::{Daemon, done, run, store};

const CONNECTIONS: usize = 10_000;
/// What one of them may cost the broker; measured are some 4 KiB.
const EACH_MAX_BYTES: usize = 10 << 10;
/// Files that this process has open besides.
const OTHER_FILES: usize = 500;

fn connections() -> usize {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("up to the hard limit");
    let files = limit.maximum.map_or(usize::MAX, |max| usize::try_from(max).unwrap_or(usize::MAX));
    let count = CONNECTIONS.min(files.saturating_sub(OTHER_FILES));
    if count < CONNECTIONS {
        eprintln!("{count} connections instead of {CONNECTIONS}: this process may open {files} files");
    }
    count
}

#[test]
fn ten_thousand_idle_connections_cost_little_and_hold_nobody_up() {
    let (_folder, store) = store();
    let daemon = Daemon::start(&store);
    let flag = daemon.flag();
    done(&format!("produce {flag} -t before x"));
    let (count, before) = (connections(), daemon.own_bytes());
    let broker = daemon.broker.expect("it is a broker");
    let mut idle: Vec<_> = (0..count).map(|_| TcpStream::connect(broker).expect("it listens")).collect();
    // Connections are taken in one after the other: whoever is served now came behind all of them.
    done(&format!("produce {flag} -t behind y"));
    let got = run(&format!("consume {flag} -t behind --from first --count 1 --idle 60"), "");
    assert_eq!(got.stdout, "y\n", "{}", got.stderr);
    let cost = daemon.own_bytes().saturating_sub(before);
    assert!(cost < count * EACH_MAX_BYTES, "{count} connections cost {cost} bytes");
    for connection in &mut idle {
        connection.set_nonblocking(true).expect("a socket can be asked without waiting");
        let read = connection.read(&mut [0]);
        assert_eq!(read.expect_err("nobody wrote").kind(), ErrorKind::WouldBlock);
    }
}
