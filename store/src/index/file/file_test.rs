//! Entries and chains of one index file, and what a cut leaves of them.
//!
//! Invariants:
//! - each test has a file of its own.

use super::*;

const GEOMETRY: Geometry = Geometry { slots: 7, entries: 40 };

fn file(dir: &Path) -> IndexFile {
    IndexFile::create(dir.join("20261129155417312"), GEOMETRY, &IndexHeader::after(None)).unwrap()
}

fn found(file: &IndexFile, hash: u32, begin_ms: i64, end_ms: i64) -> Vec<u64> {
    let mut found = Vec::new();
    file.find(hash, (begin_ms, end_ms), &mut 1000, |log_offset| {
        found.push(log_offset);
        true
    })
    .unwrap();
    found
}

#[test]
fn entries_are_found_newest_first_and_only_under_their_hash() {
    let dir = tempfile::tempdir().unwrap();
    let file = file(dir.path());
    for number in 0..30 {
        file.put(number % 10, u64::from(number) * 100, 5_000 + i64::from(number) * 500).unwrap();
    }
    assert_eq!(found(&file, 3, 0, i64::MAX), [2300, 1300, 300]);
    assert_eq!(found(&file, 10, 0, i64::MAX), [] as [u64; 0]);
    assert_eq!(file.header().slots_used, 7);
    assert_eq!(file.header().next_entry, 31);
}

#[test]
fn a_cut_leaves_nothing_behind_the_entries_it_keeps() {
    let dir = tempfile::tempdir().unwrap();
    let file = file(dir.path());
    for number in 0..30 {
        // The one of hash and place 0 is in the midst of what is cut off.
        let log_offset = if number == 20 { 0 } else { u64::from(number) * 100 };
        file.put(number % 10, log_offset, 5_000).unwrap();
        if number == 27 {
            file.write_header();
        }
    }
    // The head in the file does not know of the last two.
    let again = IndexFile::open(file.path().to_path_buf(), GEOMETRY).unwrap();
    assert_eq!(again.entries(), 29);
    again.cut(10).unwrap();
    assert_eq!(again.entries(), 10);
    assert!((10..40).all(|number| again.entry(number) == Entry::default()));
    assert_eq!(found(&again, 8, 0, i64::MAX), [800]);
}

#[test]
fn a_time_is_known_to_the_second_and_never_too_narrowly() {
    let dir = tempfile::tempdir().unwrap();
    let file = file(dir.path());
    for (log_offset, time_ms) in [(100, 5_000), (200, 6_999), (300, 8_500)] {
        file.put(1, log_offset, time_ms).unwrap();
    }
    assert_eq!(found(&file, 1, 6_999, 6_999), [200]);
    assert_eq!(found(&file, 1, 0, 5_000), [100]);
    assert_eq!(found(&file, 1, 8_000, 9_000), [300]);
    assert_eq!(found(&file, 1, 9_000, 9_999), [] as [u64; 0]);
}

#[test]
fn a_cut_file_has_sound_chains_whatever_the_slots_said() {
    let dir = tempfile::tempdir().unwrap();
    let file = file(dir.path());
    for number in 0..30 {
        file.put(number % 10, u64::from(number / 2) * 100, 5_000 + i64::from(number) * 500).unwrap();
    }
    file.slot(3).store(39_u32.to_be(), Ordering::Relaxed);
    let keep = file.count_while(|entry, time_ms| entry.log_offset < 1000 && time_ms < 11_000).unwrap();
    assert_eq!(keep, 12);
    file.cut(keep).unwrap();
    // Both entries of the last record are gone.
    assert_eq!((file.header().next_entry, file.end_log_offset()), (11, 400));
    assert_eq!(found(&file, 3, 0, i64::MAX), [100]);
    let again = IndexFile::open(file.path().to_path_buf(), GEOMETRY).unwrap();
    assert_eq!(again.header(), file.header());
    again.put(3, 500, 20_000).unwrap();
    assert_eq!(found(&again, 3, 0, i64::MAX), [500, 100]);
}

#[test]
fn a_chain_that_points_forward_ends_the_walk() {
    let dir = tempfile::tempdir().unwrap();
    let file = file(dir.path());
    file.put(1, 100, 5_000).unwrap();
    file.put(1, 200, 5_000).unwrap();
    file.write_entry(1, &Entry { hash: 1, log_offset: 100, seconds: 0, older: 2 });
    assert_eq!(found(&file, 1, 0, i64::MAX), [200, 100]);
}

#[test]
fn seconds_are_clamped() {
    assert_eq!(seconds_between(0, 5_000), 0);
    assert_eq!(seconds_between(5_000, 4_000), 0);
    assert_eq!(seconds_between(5_000, 7_999), 2);
    assert_eq!(seconds_between(1, i64::MAX), i32::MAX.cast_unsigned());
}
