//! Judges what a machine gives a broker.
//!
//! Invariants:
//! - it decides by values alone, so that every verdict has a test;
//! - the limits follow from what a broker maps, opens and writes, and each finding says how.

use troupemq_store::StoreConfig;

use super::machine::{Dialled, Machine};
use super::{Finding, Verdict};

/// Maps that a store of some terabytes with many queues needs.
const MAPS_WANTED: u64 = 262_144;
/// Files for thousands of connections and queues.
const FILES_WANTED: u64 = 65_536;
/// Files below which connections are refused under everyday load.
const FILES_NEEDED: u64 = 4_096;
/// Swappiness up to which the kernel drops cached files before it swaps a broker out.
const SWAPPINESS_WANTED: u64 = 10;
/// How far the clock may be behind the newest message, in ms.
const CLOCK_BEHIND_MAX_MS: i64 = 1_000;
/// File systems that lie in memory or on another machine.
const UNFIT: [&str; 5] = ["tmpfs", "ramfs", "nfs", "nfs4", "cifs"];
/// File systems that go with a container.
const PASSING: [&str; 2] = ["overlay", "overlayfs"];
/// Sources of time that the kernel reads without leaving the processor.
const FAST_CLOCKS: [&str; 4] = ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"];

/// All findings, in the order in which they are shown.
pub(super) fn judge(machine: &Machine, config: &StoreConfig) -> Vec<Finding> {
    vec![
        maps(machine.map_count_max),
        swappiness(machine),
        overcommit(machine.overcommit),
        open_files(machine.open_files_max),
        folder(machine),
        file_system(machine),
        disk_kind(machine.is_rotational),
        disk_space(machine, config),
        clock_source(machine.clock_source.as_deref()),
        clock(machine.clock_behind_ms),
        address(machine),
    ]
}

/// What is wanted of one value, why, and how to get there.
struct Wanted {
    what: &'static str,
    advice: String,
    why: &'static str,
    command: String,
}

impl Wanted {
    fn found(self, value: impl ToString, verdict: Verdict) -> Finding {
        let Wanted { what, advice, why, command } = self;
        Finding { what, value: value.to_string(), verdict, advice, why, command }
    }

    /// Of a value that could not be read, or with nothing to compare it with.
    fn unknown(self) -> Finding {
        self.found("-", Verdict::Unknown)
    }
}

/// The command that changes a setting of the kernel, now and at the next start.
fn sysctl(setting: &str) -> String {
    format!("sysctl -w {setting}   # and the same line in /etc/sysctl.d/troupemq.conf, to keep it")
}

fn maps(value: Option<u64>) -> Finding {
    let wanted = Wanted {
        what: "vm.max_map_count",
        advice: format!("{MAPS_WANTED} or more"),
        why: "each segment of the log, file of a queue and of the index is a map; with none left a broker cannot go on",
        command: sysctl(&format!("vm.max_map_count={MAPS_WANTED}")),
    };
    match value {
        None => wanted.unknown(),
        Some(maps) if maps >= MAPS_WANTED => wanted.found(maps, Verdict::Good),
        Some(maps) => wanted.found(maps, Verdict::Better),
    }
}

fn swappiness(machine: &Machine) -> Finding {
    let wanted = Wanted {
        what: "vm.swappiness",
        advice: format!("{SWAPPINESS_WANTED} or less, or no swap"),
        why: "a broker that is swapped out answers after seconds, while the kernel keeps files nobody reads",
        command: sysctl(&format!("vm.swappiness={SWAPPINESS_WANTED}")),
    };
    match (machine.swappiness, machine.has_swap) {
        (None, _) => wanted.unknown(),
        (Some(value), Some(false)) => wanted.found(format!("{value}, no swap"), Verdict::Good),
        (Some(value), _) if value <= SWAPPINESS_WANTED => wanted.found(value, Verdict::Good),
        (Some(value), _) => wanted.found(value, Verdict::Better),
    }
}

fn overcommit(value: Option<u64>) -> Finding {
    let wanted = Wanted {
        what: "vm.overcommit_memory",
        advice: "0 or 1".to_owned(),
        why: "with 2 the kernel counts mapped files as memory and refuses maps that cost none",
        command: sysctl("vm.overcommit_memory=1"),
    };
    match value {
        None => wanted.unknown(),
        Some(2) => wanted.found(2, Verdict::Wrong),
        Some(value) => wanted.found(value, Verdict::Good),
    }
}

fn open_files(value: Option<u64>) -> Finding {
    let wanted = Wanted {
        what: "open files (hard limit)",
        advice: format!("{FILES_WANTED} or more"),
        why: "each connection and each file of the store counts; the broker raises the soft limit by itself",
        command: format!("ulimit -Hn {FILES_WANTED}, or LimitNOFILE={FILES_WANTED} in the unit of systemd"),
    };
    match value {
        None => wanted.unknown(),
        Some(u64::MAX) => wanted.found("unlimited", Verdict::Good),
        Some(files) if files >= FILES_WANTED => wanted.found(files, Verdict::Good),
        Some(files) if files >= FILES_NEEDED => wanted.found(files, Verdict::Better),
        Some(files) => wanted.found(files, Verdict::Wrong),
    }
}

fn folder(machine: &Machine) -> Finding {
    let dir = machine.dir.display();
    let wanted = Wanted {
        what: "folder of the store",
        advice: "a folder this user may write to".to_owned(),
        why: "the store is made there",
        command: format!("chown \"$USER\" {dir}, or --store-dir DIR"),
    };
    wanted.found(dir, if machine.is_writable { Verdict::Good } else { Verdict::Wrong })
}

fn file_system(machine: &Machine) -> Finding {
    let wanted = Wanted {
        what: "file system",
        advice: "ext4 or xfs on a local disk, in a container a volume".to_owned(),
        why: "ext4 and xfs keep what was flushed over a power cut; memory does not, a container's own layer goes with \
              it, and maps over a network fail",
        command: "--store-dir DIR on such a disk".to_owned(),
    };
    match machine.file_system.as_deref() {
        None => wanted.unknown(),
        Some(kind) if UNFIT.contains(&kind) => wanted.found(kind, Verdict::Wrong),
        Some(kind) if PASSING.contains(&kind) => wanted.found(kind, Verdict::Better),
        Some(kind) => wanted.found(kind, Verdict::Good),
    }
}

fn disk_kind(is_rotational: Option<bool>) -> Finding {
    let wanted = Wanted {
        what: "disk",
        advice: "a solid-state disk, at least for synchronous flushing".to_owned(),
        why: "synchronous flushing waits for the disk: a disk that turns does about a hundred a second",
        command: "--flush async, or --store-dir DIR on another disk".to_owned(),
    };
    match is_rotational {
        None => wanted.unknown(),
        Some(false) => wanted.found("solid state", Verdict::Good),
        Some(true) => wanted.found("rotational, or a virtual one that does not say", Verdict::Better),
    }
}

fn disk_space(machine: &Machine, config: &StoreConfig) -> Finding {
    // Two segments: the one that is written and the one that is prepared.
    let needed = config.disk_free_floor_bytes.saturating_add(2 * config.log_segment_bytes);
    let wanted = Wanted {
        what: "free disk space",
        advice: format!("{} free, and less than {} % used", gib(needed), config.disk_used_max_percent),
        why: "below the floor, or above the ratio, writes are refused until old segments are deleted",
        command: "fileReservedTime (hours) smaller, or --store-dir DIR on another disk".to_owned(),
    };
    let Some((disk, total_bytes)) = machine.disk else { return wanted.unknown() };
    let is_full =
        disk.used_percent >= config.disk_full_percent || disk.free_bytes < config.disk_free_floor_bytes;
    let is_tight = disk.used_percent >= config.disk_used_max_percent || disk.free_bytes < needed;
    let verdict = match (is_full, is_tight) {
        (true, _) => Verdict::Wrong,
        (false, true) => Verdict::Better,
        (false, false) => Verdict::Good,
    };
    let (free, total) = (gib(disk.free_bytes), gib(total_bytes));
    wanted.found(format!("{free} of {total} ({} % used)", disk.used_percent), verdict)
}

fn gib(bytes: u64) -> String {
    let tenths = (u128::from(bytes) * 10) >> 30;
    format!("{}.{} GiB", tenths / 10, tenths % 10)
}

fn clock_source(value: Option<&str>) -> Finding {
    let wanted = Wanted {
        what: "clock source",
        advice: "tsc, or the clock of the hypervisor".to_owned(),
        why: "a broker asks the time for every batch; a slow source is a system call and a device each time",
        command: "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource".to_owned(),
    };
    match value {
        None => wanted.unknown(),
        Some(source) if FAST_CLOCKS.contains(&source) => wanted.found(source, Verdict::Good),
        Some(source) => wanted.found(source, Verdict::Better),
    }
}

fn clock(behind_ms: Option<i64>) -> Finding {
    let wanted = Wanted {
        what: "clock",
        advice: "a clock that is kept by NTP".to_owned(),
        why: "delays, retention and searches by time go by the clock; it must not go back",
        command: "timedatectl set-ntp true".to_owned(),
    };
    match behind_ms {
        None => wanted.found("no message yet to compare it with", Verdict::Unknown),
        Some(behind) if behind <= CLOCK_BEHIND_MAX_MS => wanted.found("not behind the store", Verdict::Good),
        Some(behind) => wanted.found(format!("{behind} ms behind the newest message"), Verdict::Wrong),
    }
}

fn address(machine: &Machine) -> Finding {
    let wanted = Wanted {
        what: "advertised address",
        advice: "an address of this machine that clients can dial".to_owned(),
        why: "name servers tell it to every client; one that cannot be dialled looks like a broker that is down",
        command: "--advertise IP, or advertise = \"IP\" in [ports]".to_owned(),
    };
    match &machine.address {
        None => wanted.unknown(),
        Some((address, Dialled::Reached)) => wanted.found(address, Verdict::Good),
        Some((address, Dialled::Failed(cause))) => {
            wanted.found(format!("{address}: {cause}"), Verdict::Wrong)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use troupemq_store::retention::DiskUse;

    use super::*;

    /// One of 252 GiB, of which the system has set some apart.
    fn disk(free_gib: u64, used_percent: u8) -> Option<(DiskUse, u64)> {
        Some((DiskUse { free_bytes: free_gib << 30, used_percent }, 252 << 30))
    }

    fn healthy() -> Machine {
        Machine {
            map_count_max: Some(MAPS_WANTED),
            swappiness: Some(60),
            has_swap: Some(false),
            overcommit: Some(0),
            open_files_max: Some(1 << 20),
            dir: PathBuf::from("/data"),
            is_writable: true,
            file_system: Some("ext4".to_owned()),
            is_rotational: Some(false),
            disk: disk(60, 40),
            clock_source: Some("tsc".to_owned()),
            clock_behind_ms: Some(-5),
            address: Some(("10.0.0.1:10911".parse().expect("an address"), Dialled::Reached)),
        }
    }

    fn verdict(machine: &Machine, what: &str) -> Verdict {
        let findings = judge(machine, &StoreConfig::default());
        findings.iter().find(|finding| finding.what == what).expect("it is judged").verdict
    }

    #[test]
    fn a_healthy_machine_has_no_finding() {
        let findings = judge(&healthy(), &StoreConfig::default());
        assert!(findings.iter().all(|finding| finding.verdict == Verdict::Good), "{findings:?}");
    }

    #[test]
    fn each_value_is_judged_by_itself() {
        type Case = (&'static str, Verdict, fn(&mut Machine));
        let cases: [Case; 16] = [
            ("vm.max_map_count", Verdict::Better, |m| m.map_count_max = Some(65_530)),
            ("vm.swappiness", Verdict::Better, |m| m.has_swap = Some(true)),
            ("vm.overcommit_memory", Verdict::Wrong, |m| m.overcommit = Some(2)),
            ("open files (hard limit)", Verdict::Better, |m| m.open_files_max = Some(FILES_NEEDED)),
            ("open files (hard limit)", Verdict::Wrong, |m| m.open_files_max = Some(1024)),
            ("folder of the store", Verdict::Wrong, |m| m.is_writable = false),
            ("file system", Verdict::Wrong, |m| m.file_system = Some("tmpfs".to_owned())),
            ("file system", Verdict::Better, |m| m.file_system = Some("overlay".to_owned())),
            ("disk", Verdict::Better, |m| m.is_rotational = Some(true)),
            ("disk", Verdict::Unknown, |m| m.is_rotational = None),
            ("free disk space", Verdict::Better, |m| m.disk = disk(20, 76)),
            ("free disk space", Verdict::Wrong, |m| m.disk = disk(1, 95)),
            ("clock source", Verdict::Better, |m| m.clock_source = Some("hpet".to_owned())),
            ("clock", Verdict::Wrong, |m| m.clock_behind_ms = Some(60_000)),
            ("clock", Verdict::Unknown, |m| m.clock_behind_ms = None),
            ("advertised address", Verdict::Wrong, |m| {
                m.address = m.address.take().map(|(at, _)| (at, Dialled::Failed("refused".to_owned())));
            }),
        ];
        for (what, expected, spoil) in cases {
            let mut machine = healthy();
            spoil(&mut machine);
            assert_eq!(verdict(&machine, what), expected, "{what}");
        }
    }

    #[test]
    fn every_value_comes_with_advice_why_and_the_command_that_changes_it() {
        let machine = Machine { overcommit: Some(2), is_rotational: Some(true), ..healthy() };
        let unread = Machine { dir: PathBuf::from("/data"), ..Machine::default() };
        for machine in [machine, healthy(), unread] {
            for finding in judge(&machine, &StoreConfig::default()) {
                let Finding { what, value, advice, why, command, .. } = &finding;
                let texts = [what, value.as_str(), advice, why, command];
                assert!(texts.iter().all(|text| !text.is_empty()), "{finding:?}");
            }
        }
    }
}
