//! How busy the machine is: processors, memory, disks, network, as the kernel counts them.
//!
//! Invariants:
//! - two readings make a usage; counters that go back or are missing count as nothing used;
//! - parsing is apart from reading, so that it has tests.

use std::collections::BTreeMap;
use std::fs;

use serde::Serialize;

/// Bytes of a sector in `/proc/diskstats`.
const SECTOR_BYTES: u64 = 512;

/// Counters of the kernel at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Reading {
    /// Clock ticks of all processors, and those of them in which nothing ran.
    ticks: (u64, u64),
    /// Ticks in which nothing ran because a disk was waited for.
    waiting_ticks: u64,
    /// Bytes of memory, and those that are available.
    memory: (u64, u64),
    /// Bytes written to disks.
    disk_bytes: u64,
    /// Bytes that went over the network, the loopback's included.
    network_bytes: u64,
    /// The interfaces whose speed is known.
    interfaces: BTreeMap<String, Interface>,
}

/// A network interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Interface {
    received_bytes: u64,
    sent_bytes: u64,
    /// In each direction.
    megabits_per_second: u64,
}

/// What was used between two readings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Usage {
    /// Share of the processors, in per cent.
    pub(super) processor_percent: f64,
    /// Share of the time in which processors waited for disks, in per cent.
    pub(super) disk_wait_percent: f64,
    /// Share of the memory that is not available, in per cent.
    pub(super) memory_percent: f64,
    /// Written to disks, in bytes a second.
    pub(super) disk_bytes_per_second: f64,
    /// Over the network, in bytes a second.
    pub(super) network_bytes_per_second: f64,
    /// The busier direction's share of the busiest interface, in per cent; nothing where no speed is known.
    pub(super) network_percent: Option<f64>,
}

impl Reading {
    /// Reads the counters.
    pub(super) fn take() -> Reading {
        fn text(file: impl AsRef<std::path::Path>) -> String {
            fs::read_to_string(file).unwrap_or_default()
        }
        let (ticks, waiting_ticks) = processors(&text("/proc/stat"));
        let devices = text("/proc/net/dev");
        let speed = |name: &str| {
            // The kernel says -1, or refuses, where there is no speed, as of a loopback.
            let megabits = text(format!("/sys/class/net/{name}/speed")).trim().parse::<u64>().ok();
            megabits.filter(|megabits| *megabits > 0)
        };
        Reading {
            ticks,
            waiting_ticks,
            memory: memory(&text("/proc/meminfo")),
            disk_bytes: disks(&text("/proc/diskstats")),
            network_bytes: network(&devices).map(|(_, received, sent)| received + sent).sum(),
            interfaces: network(&devices)
                .filter_map(|(name, received_bytes, sent_bytes)| {
                    let megabits_per_second = speed(name)?;
                    let interface = Interface { received_bytes, sent_bytes, megabits_per_second };
                    Some((name.to_owned(), interface))
                })
                .collect(),
        }
    }

    /// What was used since an earlier reading, `seconds` ago.
    pub(super) fn since(&self, earlier: &Reading, seconds: f64) -> Usage {
        let all = part(self.ticks.0, earlier.ticks.0);
        let share = |ticks: f64| if all > 0.0 { 100.0 * ticks / all } else { 0.0 };
        let idle = part(self.ticks.1, earlier.ticks.1);
        let (memory, available) = self.memory;
        let shares = self.interfaces.iter().filter_map(|(name, now)| {
            let before = earlier.interfaces.get(name)?;
            let received = part(now.received_bytes, before.received_bytes);
            let sent = part(now.sent_bytes, before.sent_bytes);
            let bytes_max = float(now.megabits_per_second) * 1e6 / 8.0 * seconds;
            Some(100.0 * received.max(sent) / bytes_max)
        });
        Usage {
            processor_percent: share((all - idle).max(0.0)),
            disk_wait_percent: share(part(self.waiting_ticks, earlier.waiting_ticks)),
            memory_percent: 100.0 * part(memory, available) / (float(memory)).max(1.0),
            disk_bytes_per_second: part(self.disk_bytes, earlier.disk_bytes) / seconds,
            network_bytes_per_second: part(self.network_bytes, earlier.network_bytes) / seconds,
            network_percent: shares.reduce(f64::max),
        }
    }
}

fn part(now: u64, before: u64) -> f64 {
    float(now.saturating_sub(before))
}

#[expect(clippy::cast_precision_loss, reason = "shares and rates are shown with a few digits")]
fn float(count: u64) -> f64 {
    count as f64
}

/// Ticks in all and idle ones, and those that waited for a disk, of the first line of `/proc/stat`.
fn processors(text: &str) -> ((u64, u64), u64) {
    let line = text.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    // The two last are parts of the two first.
    let all = ticks.iter().take(8).sum();
    let (idle, waiting) = (ticks.get(3).copied().unwrap_or(0), ticks.get(4).copied().unwrap_or(0));
    ((all, idle + waiting), waiting)
}

/// Bytes of memory, and those that are available.
fn memory(text: &str) -> (u64, u64) {
    let line = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
    };
    (line("MemTotal:"), line("MemAvailable:"))
}

/// Bytes written to whole disks; partitions would count twice.
fn disks(text: &str) -> u64 {
    let is_partition = |name: &str, before: &str| !before.is_empty() && name.starts_with(before);
    let (mut sum, mut disk) = (0, "");
    for line in text.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        let (Some(name), Some(sectors)) = (words.get(2), words.get(9)) else { continue };
        let is_no_disk = name.starts_with("loop") || name.starts_with("ram") || name.starts_with("dm-");
        if is_no_disk || is_partition(name, disk) {
            continue;
        }
        disk = name;
        sum += sectors.parse::<u64>().unwrap_or(0) * SECTOR_BYTES;
    }
    sum
}

/// Each interface with the bytes received and sent.
fn network(text: &str) -> impl Iterator<Item = (&str, u64, u64)> {
    text.lines().filter_map(|line| {
        let (name, counters) = line.split_once(':')?;
        let words: Vec<u64> = counters.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        Some((name.trim(), *words.first()?, *words.get(8)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_understood() {
        assert_eq!(processors("cpu  10 0 20 60 10 0 0 0 5 0\ncpu0 1 2\n"), ((100, 70), 10));
        assert_eq!(memory("MemTotal: 4 kB\nMemFree: 1 kB\nMemAvailable: 2 kB\n"), (4096, 2048));
        let disk = "254 0 vda 1 2 3 4 5 6 100 8\n254 1 vda1 1 2 3 4 5 6 90 8\n7 0 loop0 1 2 3 4 5 6 7 8\n";
        assert_eq!(disks(disk), 51_200);
        let net =
            "Inter-| Receive\n face |bytes\n  lo: 100 1 0 0 0 0 0 0 200 1 0\neth0: 5 1 0 0 0 0 0 0 6 1\n";
        assert_eq!(network(net).collect::<Vec<_>>(), [("lo", 100, 200), ("eth0", 5, 6)]);
    }

    #[test]
    fn two_readings_make_shares_and_rates() {
        let earlier = Reading { ticks: (100, 50), memory: (100, 60), ..Reading::default() };
        let later = Reading {
            ticks: (300, 100),
            waiting_ticks: 20,
            memory: (100, 40),
            disk_bytes: 1000,
            network_bytes: 4000,
            ..Reading::default()
        };
        let usage = later.since(&earlier, 2.0);
        assert_eq!(
            (usage.processor_percent, usage.disk_wait_percent, usage.memory_percent),
            (75.0, 10.0, 60.0)
        );
        assert_eq!((usage.disk_bytes_per_second, usage.network_bytes_per_second), (500.0, 2000.0));
    }
    #[test]
    fn the_busiest_interface_in_its_busier_direction_is_what_counts() {
        let reading = |received_bytes, sent_bytes| {
            let of = |megabits_per_second| Interface { received_bytes, sent_bytes, megabits_per_second };
            let interfaces = BTreeMap::from([("eth0".to_owned(), of(8)), ("eth1".to_owned(), of(80))]);
            Reading { interfaces, ..Reading::default() }
        };
        let usage = reading(1_000_000, 500_000).since(&reading(0, 0), 2.0);
        assert_eq!(usage.network_percent, Some(50.0));
        let unknown = Reading::default().since(&Reading::default(), 1.0);
        assert_eq!(unknown.network_percent, None, "a loopback has no speed");
    }
}
