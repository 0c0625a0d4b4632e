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

fn good(what: &'static str, value: impl ToString, why: &'static str) -> Finding {
    let (advice, command) = (String::new(), String::new());
    Finding { what, value: value.to_string(), verdict: Verdict::Good, advice, why, command }
}

fn unknown(what: &'static str, why: &'static str) -> Finding {
    Finding {
        value: "-".to_owned(),
        verdict: Verdict::Unknown,
        advice: "it could not be read".to_owned(),
        ..good(what, "", why)
    }
}

fn maps(value: Option<u64>) -> Finding {
    let (what, why) = (
        "vm.max_map_count",
        "each segment of the log, file of a queue and of the index is a map; with none left a broker cannot go on",
    );
    match value {
        None => unknown(what, why),
        Some(maps) if maps >= MAPS_WANTED => good(what, maps, why),
        Some(maps) => Finding {
            verdict: Verdict::Better,
            advice: format!("{MAPS_WANTED} or more"),
            command: format!("sysctl -w vm.max_map_count={MAPS_WANTED}"),
            ..good(what, maps, why)
        },
    }
}

fn swappiness(machine: &Machine) -> Finding {
    let (what, why) = (
        "vm.swappiness",
        "a broker that is swapped out answers after seconds, while the kernel keeps files nobody reads",
    );
    match (machine.swappiness, machine.has_swap) {
        (None, _) => unknown(what, why),
        (Some(value), Some(false)) => good(what, format!("{value}, no swap"), why),
        (Some(value), _) if value <= SWAPPINESS_WANTED => good(what, value, why),
        (Some(value), _) => Finding {
            verdict: Verdict::Better,
            advice: format!("{SWAPPINESS_WANTED} or less"),
            command: format!("sysctl -w vm.swappiness={SWAPPINESS_WANTED}"),
            ..good(what, value, why)
        },
    }
}

fn overcommit(value: Option<u64>) -> Finding {
    let (what, why) = (
        "vm.overcommit_memory",
        "with 2 the kernel counts mapped files as memory and refuses maps that cost none",
    );
    match value {
        None => unknown(what, why),
        Some(2) => Finding {
            verdict: Verdict::Wrong,
            advice: "0 or 1".to_owned(),
            command: "sysctl -w vm.overcommit_memory=1".to_owned(),
            ..good(what, 2, why)
        },
        Some(value) => good(what, value, why),
    }
}

fn open_files(value: Option<u64>) -> Finding {
    let (what, why) = (
        "open files (hard limit)",
        "each connection and each file of the store counts; the broker raises the soft limit by itself",
    );
    let Some(files) = value else { return unknown(what, why) };
    let shown = if files == u64::MAX { "unlimited".to_owned() } else { files.to_string() };
    if files >= FILES_WANTED {
        return good(what, shown, why);
    }
    Finding {
        verdict: if files < FILES_NEEDED { Verdict::Wrong } else { Verdict::Better },
        advice: format!("{FILES_WANTED} or more"),
        command: format!("ulimit -Hn {FILES_WANTED}, or LimitNOFILE={FILES_WANTED} in the unit of systemd"),
        ..good(what, shown, why)
    }
}

fn folder(machine: &Machine) -> Finding {
    let (what, why) = ("folder of the store", "the store is made there");
    let shown = machine.dir.display().to_string();
    if machine.is_writable {
        return good(what, shown, why);
    }
    Finding {
        verdict: Verdict::Wrong,
        advice: "a folder this user may write to".to_owned(),
        command: format!("chown \"$USER\" {shown}, or --store-dir DIR"),
        ..good(what, shown, why)
    }
}

fn file_system(machine: &Machine) -> Finding {
    let (what, why) = (
        "file system",
        "ext4 and xfs keep what was flushed over a power cut; memory does not, and maps over a network fail",
    );
    match machine.file_system.as_deref() {
        None => unknown(what, why),
        Some(kind) if UNFIT.contains(&kind) => Finding {
            verdict: Verdict::Wrong,
            advice: "ext4 or xfs on a local disk".to_owned(),
            command: "--store-dir DIR on such a disk".to_owned(),
            ..good(what, kind, why)
        },
        Some(kind) => good(what, kind, why),
    }
}

fn disk_kind(is_rotational: Option<bool>) -> Finding {
    let (what, why) =
        ("disk", "synchronous flushing waits for the disk: a disk that turns does about a hundred a second");
    match is_rotational {
        None => unknown(what, why),
        Some(false) => good(what, "solid state", why),
        Some(true) => Finding {
            verdict: Verdict::Better,
            advice: "a solid-state disk, at least for synchronous flushing".to_owned(),
            command: "--flush async, or --store-dir DIR on another disk".to_owned(),
            ..good(what, "rotational", why)
        },
    }
}

fn disk_space(machine: &Machine, config: &StoreConfig) -> Finding {
    let (what, why) = (
        "free disk space",
        "below the floor, or above the ratio, writes are refused until old segments are deleted",
    );
    let Some((total, free)) = machine.disk_bytes else { return unknown(what, why) };
    let used_percent = total.saturating_sub(free).saturating_mul(100) / total.max(1);
    let shown = format!("{} of {} ({used_percent} % used)", gib(free), gib(total));
    // Two segments: the one that is written and the one that is prepared.
    let needed = config.disk_free_floor_bytes.saturating_add(2 * config.log_segment_bytes);
    let is_full = used_percent >= config.disk_full_percent.into() || free < config.disk_free_floor_bytes;
    let is_tight = used_percent >= config.disk_used_max_percent.into() || free < needed;
    if !is_tight && !is_full {
        return good(what, shown, why);
    }
    Finding {
        verdict: if is_full { Verdict::Wrong } else { Verdict::Better },
        advice: format!("{} free, and less than {} % used", gib(needed), config.disk_used_max_percent),
        command: "fileReservedTime (hours) smaller, or --store-dir DIR on another disk".to_owned(),
        ..good(what, shown, why)
    }
}

fn gib(bytes: u64) -> String {
    let tenths = (u128::from(bytes) * 10) >> 30;
    format!("{}.{} GiB", tenths / 10, tenths % 10)
}

fn clock_source(value: Option<&str>) -> Finding {
    let (what, why) = (
        "clock source",
        "a broker asks the time for every batch; a slow source is a system call and a device each time",
    );
    match value {
        None => unknown(what, why),
        Some(source) if FAST_CLOCKS.contains(&source) => good(what, source, why),
        Some(source) => Finding {
            verdict: Verdict::Better,
            advice: "tsc, or the clock of the hypervisor".to_owned(),
            command: "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource".to_owned(),
            ..good(what, source, why)
        },
    }
}

fn clock(behind_ms: Option<i64>) -> Finding {
    let (what, why) =
        ("clock", "delays, retention and searches by time go by the clock; it must not go back");
    match behind_ms {
        None => unknown(what, why),
        Some(behind) if behind <= CLOCK_BEHIND_MAX_MS => good(what, "not behind the store", why),
        Some(behind) => Finding {
            verdict: Verdict::Wrong,
            advice: "a clock that is kept by NTP".to_owned(),
            command: "timedatectl set-ntp true".to_owned(),
            ..good(what, format!("{behind} ms behind the newest message"), why)
        },
    }
}

fn address(machine: &Machine) -> Finding {
    let (what, why) = (
        "advertised address",
        "name servers tell it to every client; one that cannot be dialled looks like a broker that is down",
    );
    match &machine.address {
        None => unknown(what, why),
        Some((address, Dialled::Reached)) => good(what, address, why),
        Some((address, Dialled::Failed(cause))) => Finding {
            verdict: Verdict::Wrong,
            advice: "an address of this machine that clients can dial".to_owned(),
            command: "--advertise IP, or advertise = \"IP\" in [ports]".to_owned(),
            ..good(what, format!("{address}: {cause}"), why)
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

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
            disk_bytes: Some((100 << 30, 60 << 30)),
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
        let cases: [Case; 15] = [
            ("vm.max_map_count", Verdict::Better, |m| m.map_count_max = Some(65_530)),
            ("vm.swappiness", Verdict::Better, |m| m.has_swap = Some(true)),
            ("vm.overcommit_memory", Verdict::Wrong, |m| m.overcommit = Some(2)),
            ("open files (hard limit)", Verdict::Better, |m| m.open_files_max = Some(FILES_NEEDED)),
            ("open files (hard limit)", Verdict::Wrong, |m| m.open_files_max = Some(1024)),
            ("folder of the store", Verdict::Wrong, |m| m.is_writable = false),
            ("file system", Verdict::Wrong, |m| m.file_system = Some("tmpfs".to_owned())),
            ("disk", Verdict::Better, |m| m.is_rotational = Some(true)),
            ("disk", Verdict::Unknown, |m| m.is_rotational = None),
            ("free disk space", Verdict::Better, |m| m.disk_bytes = Some((100 << 30, 20 << 30))),
            ("free disk space", Verdict::Wrong, |m| m.disk_bytes = Some((100 << 30, 5 << 30))),
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
    fn what_is_not_good_says_what_would_be_and_how_to_get_there() {
        let machine = Machine { overcommit: Some(2), is_rotational: Some(true), ..healthy() };
        for finding in judge(&machine, &StoreConfig::default()) {
            if finding.verdict != Verdict::Good {
                assert!(!finding.advice.is_empty() && !finding.command.is_empty(), "{finding:?}");
            }
        }
    }
}
