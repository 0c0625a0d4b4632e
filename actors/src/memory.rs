//! How much memory the process may use: that of the machine, or less if a control group of it says so.
//!
//! Invariants:
//! - the smallest limit counts: of the machine, of the process' own group and of each group around that;
//! - what cannot be read is no limit: a machine without control groups has its memory.
//!
//! | control groups | file | no limit |
//! |---|---|---|
//! | v2 | `<root>/<group>/memory.max` | `max` |
//! | v1 | `<root>/memory/<group>/memory.limit_in_bytes` | some 2^63 |
//!
//! In a container the root may be the group itself, while its name is the one that the host gave: then only the files
//! at the root exist.

use std::path::{Component, Path, PathBuf};

/// Where control groups are.
const ROOT: &str = "/sys/fs/cgroup";
/// Tells in which of them the process is.
const OWN: &str = "/proc/self/cgroup";
/// Taken for the memory of a machine that does not tell it.
const UNKNOWN_BYTES: u64 = 24 << 30;

/// Bytes of memory that the process may use.
pub(crate) fn memory_bytes() -> u64 {
    let own = std::fs::read_to_string(OWN).unwrap_or_default();
    smallest(of_machine(), limits(Path::new(ROOT), &own))
}

fn of_machine() -> u64 {
    let info = rustix::system::sysinfo();
    let total = info.totalram.saturating_mul(u64::from(info.mem_unit.max(1)));
    if total == 0 { UNKNOWN_BYTES } else { total }
}

fn smallest(machine: u64, limits: impl Iterator<Item = u64>) -> u64 {
    limits.fold(machine, u64::min)
}

/// The limits of the groups that `own` names, and of those around them.
fn limits(root: &Path, own: &str) -> impl Iterator<Item = u64> {
    own.lines().filter_map(|line| place(root, line)).flat_map(|(root, group, file)| {
        let around: Vec<PathBuf> = group.ancestors().map(|group| root.join(group).join(file)).collect();
        around.into_iter().filter_map(|file| limit(&file))
    })
}

/// Where the limits are of a group as `/proc/self/cgroup` names it: `0::/group`, or `4:cpu,memory:/group` in v1.
fn place(root: &Path, line: &str) -> Option<(PathBuf, PathBuf, &'static str)> {
    let mut parts = line.splitn(3, ':');
    let (number, controllers, group) = (parts.next()?, parts.next()?, parts.next()?);
    // A group outside of the container's own is named with `..`: nothing there can be read.
    let named = |part: &Component<'_>| matches!(part, Component::Normal(_));
    let group = Path::new(group).components().filter(named).collect();
    if controllers.split(',').any(|controller| controller == "memory") {
        return Some((root.join("memory"), group, "memory.limit_in_bytes"));
    }
    (number == "0" && controllers.is_empty()).then(|| (root.to_path_buf(), group, "memory.max"))
}

/// What a file says; nothing where it says `max`.
fn limit(file: &Path) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok().filter(|limit| *limit > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: u64 = 64 << 30;

    /// What a process may use whose control groups have these files, and who is in these groups.
    fn allowed(files: &[(&str, &str)], own: &str) -> u64 {
        let root = tempfile::tempdir().unwrap();
        for (file, limit) in files {
            let file = root.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, limit).unwrap();
        }
        smallest(MACHINE, limits(root.path(), own))
    }

    #[test]
    fn the_smallest_limit_of_the_own_group_and_those_around_it_counts() {
        let files = [
            ("memory.max", "max\n"),
            ("pods/memory.max", "2147483648\n"),
            ("pods/broker/memory.max", "max\n"),
            ("pods/other/memory.max", "1048576\n"),
        ];
        assert_eq!(allowed(&files, "0::/pods/broker\n"), 2 << 30);
        assert_eq!(allowed(&[("a/memory.max", "1073741824")], "0::/a"), 1 << 30);
        assert_eq!(allowed(&files, "0::/\n"), MACHINE);
    }

    #[test]
    fn within_a_container_the_root_is_the_group_whatever_its_name_is() {
        let files = [("memory.max", "536870912\n")];
        for own in ["0::/\n", "0::/docker/0123\n", "0::/../../system.slice\n"] {
            assert_eq!(allowed(&files, own), 512 << 20, "{own}");
        }
    }

    #[test]
    fn control_groups_of_the_first_version_count_too() {
        let files = [
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/docker/memory.limit_in_bytes", "805306368\n"),
            ("cpu/docker/memory.limit_in_bytes", "1\n"),
        ];
        let own = "12:cpuset:/\n4:cpu,memory:/docker\n3:cpu:/docker\n0::/init.scope\n";
        assert_eq!(allowed(&files, own), 768 << 20);
        assert_eq!(allowed(&files, "4:memory:/\n"), MACHINE);
    }

    #[test]
    fn what_cannot_be_read_is_no_limit_and_none_is_more_than_the_machine() {
        assert_eq!(allowed(&[], "0::/a\n"), MACHINE);
        for limit in ["", "0", "many", "-1", "99999999999999999999999"] {
            assert_eq!(allowed(&[("memory.max", limit)], "0::/\n"), MACHINE, "{limit}");
        }
        assert_eq!(allowed(&[("memory.max", "1099511627776")], "0::/\n"), MACHINE);
        assert_eq!(allowed(&[("memory.max", "1")], "no line of such a file\n"), MACHINE);
        let here = memory_bytes();
        assert!(here > 0 && here <= of_machine());
    }
}
