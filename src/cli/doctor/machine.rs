//! What there is to know of a machine, read from the kernel's own files.
//!
//! Invariants:
//! - a value that cannot be read is `None`; nothing is guessed;
//! - nothing is written but an empty file in the store's folder, to see whether the folder can be written to.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use troupemq_store::retention::{DiskUse, disk_total_bytes, disk_use};

use crate::cli::when;

/// How long a dialled address may take to answer.
const DIAL: Duration = Duration::from_secs(2);

/// What a machine gives.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Machine {
    /// `vm.max_map_count`: maps a process may have.
    pub(super) map_count_max: Option<u64>,
    /// `vm.swappiness`, 0 … 200.
    pub(super) swappiness: Option<u64>,
    /// Whether there is any swap space.
    pub(super) has_swap: Option<bool>,
    /// `vm.overcommit_memory`: 0 guess, 1 always, 2 never.
    pub(super) overcommit: Option<u64>,
    /// Files a process may open.
    pub(super) open_files_max: Option<u64>,
    /// Where the store is or would be: the nearest folder that exists.
    pub(super) dir: PathBuf,
    /// Whether that folder can be written to.
    pub(super) is_writable: bool,
    /// Its file system.
    pub(super) file_system: Option<String>,
    /// Whether its disk turns.
    pub(super) is_rotational: Option<bool>,
    /// How full the disk is, as the broker itself judges it, and its size in bytes.
    pub(super) disk: Option<(DiskUse, u64)>,
    /// Where the kernel takes the time from.
    pub(super) clock_source: Option<String>,
    /// How far the newest message of the store lies in the future, in ms.
    pub(super) clock_behind_ms: Option<i64>,
    /// The address clients are told, and how dialling it went.
    pub(super) address: Option<(SocketAddr, Dialled)>,
}

/// How dialling the advertised address went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Dialled {
    /// Somebody answered, or this process did for the broker.
    Reached,
    /// Nobody did.
    Failed(String),
}

/// Reads everything.
pub(super) fn read(dir: &Path, listen: SocketAddr, told: Option<SocketAddr>) -> Machine {
    let existing = nearest_folder(dir);
    let own = || own_address().map(|ip| SocketAddr::new(ip, listen.port()));
    Machine {
        map_count_max: number("/proc/sys/vm/max_map_count"),
        swappiness: number("/proc/sys/vm/swappiness"),
        has_swap: memory("SwapTotal:").map(|bytes| bytes > 0),
        overcommit: number("/proc/sys/vm/overcommit_memory"),
        open_files_max: getrlimit(Resource::Nofile).maximum.or(Some(u64::MAX)),
        is_writable: tempfile_in(&existing),
        file_system: file_system(&existing),
        is_rotational: is_rotational(&existing),
        disk: disk_use(&existing).and_then(|used| Ok((used, disk_total_bytes(&existing)?))).ok(),
        clock_source: text("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        clock_behind_ms: newest_message_ms(dir).map(|newest_ms| newest_ms - when::now_ms()),
        address: told.or_else(own).map(|address| (address, dial(address, listen))),
        dir: existing,
    }
}

fn text(file: &str) -> Option<String> {
    fs::read_to_string(file).ok().map(|text| text.trim().to_owned())
}

fn number(file: &str) -> Option<u64> {
    text(file)?.parse().ok()
}

/// A line of `/proc/meminfo`, in bytes.
fn memory(name: &str) -> Option<u64> {
    let all = text("/proc/meminfo")?;
    let line = all.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}

fn nearest_folder(dir: &Path) -> PathBuf {
    let absolute = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    absolute.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/")).to_owned()
}

/// Whether a file can be made in a folder; it is gone afterwards.
fn tempfile_in(folder: &Path) -> bool {
    let file = folder.join(format!(".troupemq-doctor-{}", std::process::id()));
    let made = fs::write(&file, []).is_ok();
    // If it could be made it can be removed; what remains would be empty.
    let _ = fs::remove_file(&file);
    made
}

/// The kind of the file system that the longest mount point above a folder has.
fn file_system(folder: &Path) -> Option<String> {
    let mounts = text("/proc/self/mounts")?;
    let mut best: Option<(usize, String)> = None;
    for line in mounts.lines() {
        let mut words = line.split(' ').skip(1);
        let (Some(point), Some(kind)) = (words.next(), words.next()) else { continue };
        let depth = Path::new(point).components().count();
        if folder.starts_with(point) && best.as_ref().is_none_or(|(deepest, _)| depth >= *deepest) {
            best = Some((depth, kind.to_owned()));
        }
    }
    best.map(|(_, kind)| kind)
}

fn is_rotational(folder: &Path) -> Option<bool> {
    let device = fs::metadata(folder).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let block = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    // A partition has no queue of its own: its disk, one folder up, has.
    let own = fs::canonicalize(&block).ok()?;
    let queues = [own.join("queue/rotational"), own.join("../queue/rotational")];
    let flag = queues.iter().find_map(|file| fs::read_to_string(file).ok())?;
    Some(flag.trim() == "1")
}

/// When the last message of a store was stored, as its checkpoint begins with; `None` without one.
fn newest_message_ms(dir: &Path) -> Option<i64> {
    let checkpoint = fs::read(dir.join("checkpoint")).ok()?;
    let bytes: [u8; 8] = checkpoint.get(..8)?.try_into().ok()?;
    Some(i64::from_be_bytes(bytes)).filter(|ms| *ms > 0)
}

/// The address by which this machine reaches others; no packet is sent to find it out.
fn own_address() -> Option<std::net::IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Dials the address clients are told. If no broker runs, this process listens in its place meanwhile.
fn dial(address: SocketAddr, listen: SocketAddr) -> Dialled {
    let stand_in = TcpListener::bind(listen);
    match TcpStream::connect_timeout(&address, DIAL) {
        Ok(_) => Dialled::Reached,
        Err(error) if stand_in.is_ok() && address.port() != listen.port() => {
            // A port that is forwarded leads here only once the broker listens.
            Dialled::Failed(format!("{error}; it is told with another port than {listen} has"))
        }
        Err(error) => Dialled::Failed(error.to_string()),
    }
}
