//! Keys that are indexed, found, dropped and made again.
//!
//! Invariants:
//! - each test has an index of its own; files hold some thirty records.

use super::super::{Found, KeyQuery, QUERY_LOOKS_MAX, key_hash, key_hashes, topic_seed};
use super::*;

fn config(dir: &Path) -> StoreConfig {
    StoreConfig { index_slots_max: 50, index_entries_max: 100, ..StoreConfig::in_dir(dir) }
}

fn open(dir: &Path, durable: Durable) -> IndexWriter {
    IndexWriter::open(&config(dir), durable).unwrap()
}

/// Record number `number`: 100 bytes, half a second after the one before, keys `u<number>`, `a`, `b<0…6>`.
fn put(index: &mut IndexWriter, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let unique_key = format!("u{number}");
        let keys = format!(" a  b{} ", number % 7);
        let hashes = key_hashes(topic_seed("T"), Some(unique_key.as_bytes()), Some(keys.as_bytes()));
        index.gather(hashes, (number * 100, time_of(number))).unwrap();
    }
    index.put_gathered().unwrap();
    index.write_header();
}

fn time_of(number: u64) -> i64 {
    1_795_967_657_312 + number.cast_signed() * 500
}

fn ask(index: &IndexWriter, key: &str, max: usize) -> Vec<u64> {
    let query = KeyQuery { topic: "T", key, max, begin_ms: 0, end_ms: i64::MAX };
    index.reader().query(&query).unwrap().iter().map(|log_offset| log_offset / 100).collect()
}

#[test]
fn every_key_is_found_across_files_oldest_first() {
    let dir = tempfile::tempdir().unwrap();
    let mut index = open(dir.path(), Durable::Everything);
    assert_eq!(ask(&index, "a", 9), [0_u64; 0]);
    put(&mut index, 0..150);
    assert_eq!(index.reader().files.load().len(), 5);
    for number in 0..150 {
        assert_eq!(ask(&index, &format!("u{number}"), 9), [number]);
    }
    assert_eq!(ask(&index, "a", 3), [147, 148, 149]);
    assert_eq!(ask(&index, "b3", 1000), (3..150).step_by(7).collect::<Vec<_>>());
    assert_eq!(ask(&index, "", 9), [0_u64; 0]);
    let again = open(dir.path(), Durable::Everything);
    assert_eq!(ask(&again, "b3", 1000), ask(&index, "b3", 1000));
    assert_eq!(again.known_to(), Some(14_900));
}

#[test]
fn a_file_that_a_crash_left_without_an_entry_is_made_again_under_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let mut index = open(dir.path(), Durable::Everything);
    put(&mut index, 0..2);
    let path = index.current.as_ref().unwrap().path().to_path_buf();
    let full = fs::metadata(&path).unwrap().len();
    for len in [0, full] {
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(0).unwrap();
        file.set_len(len).unwrap();
        for durable in [Durable::Everything, Durable::Before(10_000), Durable::Until(0)] {
            let mut index = open(dir.path(), durable);
            assert_eq!(index.known_to(), None);
            put(&mut index, 0..2);
            assert_eq!(index.current.as_ref().unwrap().path(), path);
            assert_eq!(fs::read_dir(dir.path().join(FOLDER)).unwrap().count(), 1);
            fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
        }
    }
}

#[test]
fn a_kill_between_entries_and_head_breaks_no_chain() {
    let dir = tempfile::tempdir().unwrap();
    let mut index = open(dir.path(), Durable::Everything);
    put(&mut index, 0..10);
    let current = Arc::clone(index.current.as_ref().unwrap());
    // The batch that was under way had got this far: slots are moved, the head does not know.
    for number in 10..12 {
        current.put(key_hash(topic_seed("T"), b"a"), number * 100, time_of(number)).unwrap();
    }
    drop((index, current));
    let mut index = open(dir.path(), Durable::Before(1_000));
    put(&mut index, 5..20);
    assert_eq!(ask(&index, "a", 99), (0..20).collect::<Vec<_>>());
}

#[test]
fn a_query_keeps_to_its_time_and_to_right_records() {
    let dir = tempfile::tempdir().unwrap();
    let mut index = open(dir.path(), Durable::Everything);
    put(&mut index, 0..150);
    let query = KeyQuery { topic: "T", key: "a", max: 4, begin_ms: time_of(20), end_ms: time_of(80) };
    let found = index.reader().query_where(&query, |log_offset| log_offset % 2_000 == 0).unwrap();
    assert_eq!(found, Found { log_offsets: vec![2_000, 4_000, 6_000, 8_000], is_cut: false });
}

/// Who chooses keys with the same hash makes a query for another one look at all of them.
#[test]
fn a_query_looks_at_a_bounded_number_of_foreign_records_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig { index_slots_max: 50_000, index_entries_max: 50_000, ..config(dir.path()) };
    let mut index = IndexWriter::open(&config, Durable::Everything).unwrap();
    put(&mut index, 0..u64::from(QUERY_LOOKS_MAX) + 10);
    let looked = std::cell::Cell::new(0);
    let look = |right: u32| {
        looked.set(0);
        let query = KeyQuery { topic: "T", key: "a", max: 4, begin_ms: 0, end_ms: i64::MAX };
        let found = index.reader().query_where(&query, |log_offset| {
            looked.set(looked.get() + 1);
            log_offset == u64::from(right) * 100
        });
        found.unwrap()
    };
    let found = |log_offsets| Found { log_offsets, is_cut: true };
    assert_eq!((look(10), looked.get()), (found(vec![1_000]), QUERY_LOOKS_MAX));
    assert_eq!((look(9), looked.get()), (found(vec![]), QUERY_LOOKS_MAX));
}

#[test]
fn a_known_record_adds_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut index = open(dir.path(), Durable::Everything);
    put(&mut index, 0..50);
    put(&mut index, 20..60);
    assert_eq!(index.reader().last_entry(), Some((time_of(59), 5_900)));
    let entries: u32 = index.reader().files.load().iter().map(|file| file.header().next_entry - 1).sum();
    assert_eq!(entries, 60 * 3);
}

#[test]
fn after_an_unclean_stop_only_durable_entries_stay_and_the_rest_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    put(&mut open(dir.path(), Durable::Everything), 0..150);
    // The last record's keys may be incomplete, so it goes too.
    let index = open(dir.path(), Durable::Before(12_000));
    assert_eq!((index.known_to(), ask(&index, "a", 1)), (Some(11_800), vec![118]));
    let mut index = open(dir.path(), Durable::Until(time_of(100)));
    let known = index.known_to().unwrap() / 100;
    assert!((95..100).contains(&known), "{known}");
    assert_eq!(ask(&index, "a", 1), [known]);
    put(&mut index, 0..150);
    for number in 0..150 {
        assert_eq!(ask(&index, &format!("u{number}"), 9), [number]);
    }
    let name = |dir: &Path| fs::read_dir(dir.join(FOLDER)).unwrap().map(|e| e.unwrap().file_name()).min();
    let first = name(dir.path());
    let mut nothing = open(dir.path(), Durable::Until(0));
    assert_eq!((ask(&nothing, "a", 9), nothing.known_to()), (vec![], None));
    assert_eq!(fs::read_dir(dir.path().join(FOLDER)).unwrap().count(), 0);
    put(&mut nothing, 0..2);
    assert_eq!(ask(&nothing, "a", 9), [0, 1]);
    assert_eq!(name(dir.path()), first, "a file that is made again has the name it had");
}

/// A file holds 101 entries, a record has three: every second border of files is within a record.
#[test]
fn a_record_whose_keys_two_files_share_has_all_of_them_whatever_was_dropped() {
    for at in 28..72 {
        for dropped in ["by time", "by offset", "behind the log"] {
            let dir = tempfile::tempdir().unwrap();
            let config = StoreConfig { index_entries_max: 102, ..config(dir.path()) };
            let open = |durable| IndexWriter::open(&config, durable).unwrap();
            put(&mut open(Durable::Everything), 0..80);
            let mut index = match dropped {
                "by time" => open(Durable::Until(time_of(at))),
                "by offset" => open(Durable::Before(at * 100)),
                _ => open(Durable::Everything),
            };
            if dropped == "behind the log" {
                index.truncate(at * 100).unwrap();
            }
            put(&mut index, 0..80);
            for key in 0..7 {
                let all: Vec<_> = (key..80).step_by(7).collect();
                assert_eq!(ask(&index, &format!("b{key}"), 1000), all, "{at} {dropped}");
            }
            assert_eq!(ask(&index, "a", 1000), (0..80).collect::<Vec<_>>(), "{at} {dropped}");
        }
    }
}

/// A start removed what was no file of the index, and was cut off before it looked at the one in front.
#[test]
fn a_record_whose_keys_two_files_share_has_all_of_them_when_the_second_is_gone_since_an_earlier_start() {
    for kept in 1..3 {
        let dir = tempfile::tempdir().unwrap();
        let config = StoreConfig { index_entries_max: 102, ..config(dir.path()) };
        let open = |durable| IndexWriter::open(&config, durable).unwrap();
        put(&mut open(Durable::Everything), 0..80);
        for gone in list(&dir.path().join(FOLDER)).unwrap().split_off(kept) {
            fs::remove_file(gone).unwrap();
        }
        let mut index = open(Durable::Before(8_000));
        put(&mut index, 0..80);
        assert_eq!(ask(&index, "a", 1000), (0..80).collect::<Vec<_>>(), "{kept}");
        for number in 0..80 {
            assert!(ask(&index, &format!("b{}", number % 7), 1000).contains(&number), "{kept}: {number}");
        }
    }
}

#[test]
fn entries_beyond_the_end_of_the_log_are_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let mut index = open(dir.path(), Durable::Everything);
    put(&mut index, 0..150);
    index.truncate(14_901).unwrap();
    assert_eq!(index.known_to(), Some(14_900));
    index.truncate(5_000).unwrap();
    assert_eq!(index.known_to(), Some(4_800));
    put(&mut index, 49..51);
    assert_eq!(ask(&index, "a", 3), [48, 49, 50]);
    index.truncate(0).unwrap();
    assert_eq!((index.known_to(), ask(&index, "a", 3)), (None, vec![]));
}

#[test]
fn old_files_go_with_the_log_and_the_last_stays() {
    let dir = tempfile::tempdir().unwrap();
    let mut index = open(dir.path(), Durable::Everything);
    put(&mut index, 0..150);
    assert_eq!(index.reader().expire(3_200).unwrap(), 0);
    assert_eq!(index.reader().expire(3_201).unwrap(), 1);
    assert_eq!(index.reader().expire(u64::MAX).unwrap(), 3);
    assert_eq!(fs::read_dir(dir.path().join(FOLDER)).unwrap().count(), 1);
    assert_eq!(ask(&index, "u149", 1), [149]);
}

#[test]
fn what_no_index_can_have_left_is_removed_and_no_obstacle() {
    let dir = tempfile::tempdir().unwrap();
    let alien = dir.path().join(FOLDER).join("29991231235959999");
    fs::create_dir(dir.path().join(FOLDER)).unwrap();
    for len in [1, 39, 77, 2_500] {
        fs::write(&alien, vec![1; len]).unwrap();
        let mut index = open(dir.path(), Durable::Everything);
        assert!(index.is_behind() && !alien.try_exists().unwrap(), "{len}");
        put(&mut index, 0..2);
        assert_eq!(ask(&index, "a", 9), [0, 1]);
        index.truncate(0).unwrap();
    }
}

#[test]
fn full_files_of_another_geometry_are_read_and_new_ones_follow_the_settings() {
    let dir = tempfile::tempdir().unwrap();
    put(&mut open(dir.path(), Durable::Everything), 0..70);
    let other = StoreConfig { index_slots_max: 7, index_entries_max: 40, ..config(dir.path()) };
    let mut index = IndexWriter::open(&other, Durable::Everything).unwrap();
    // Two files are full and tell what the third is.
    assert_eq!((index.known_to(), index.is_behind()), (Some(6_900), false));
    put(&mut index, 60..90);
    assert_eq!(ask(&index, "a", 99), (0..90).collect::<Vec<_>>());
    assert_eq!(ask(&index, "u3", 9), [3]);
}

/// What is damaged in front of all others takes them with it, and what they told has to be read again.
#[test]
fn an_index_whose_first_entry_is_damaged_says_not_that_all_is_indexed() {
    let dir = tempfile::tempdir().unwrap();
    let mut index = open(dir.path(), Durable::Everything);
    put(&mut index, 0..10);
    let path = index.current.as_ref().unwrap().path().to_path_buf();
    drop(index);
    let complete_to = |durable_to: u64| open(dir.path(), Durable::Before(durable_to)).complete_to();
    assert_eq!(complete_to(10_000), 10_000, "nothing had to be cut");
    // Behind head and slots stand the unused entry and the first one, whose log offset is behind its hash.
    let disk = fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&disk, &[0x7f], 40 + 50 * 4 + 20 + 4).unwrap();
    // Its end tells that it is to be looked at.
    assert_eq!(complete_to(900), 0);
}
