//! Behaviour of one queue and of the table, on real files.
//!
//! Invariants:
//! - files are small (60 plain units, 30 batch units), so that everything rolls.

use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::config::StoreConfig;

fn config(dir: &Path) -> StoreConfig {
    StoreConfig { queue_file_bytes: 1200, batch_queue_file_bytes: 1380, ..StoreConfig::in_dir(dir) }
}

fn table(dir: &Path) -> QueueTable {
    QueueTable::load(&config(dir)).unwrap()
}

/// Records of 100 bytes, one after the other.
fn unit(queue_offset: i64) -> Unit {
    let log_offset = queue_offset.cast_unsigned() * 100;
    Unit { queue_offset, log_offset, size: 100, tags_code: -queue_offset, count: 1 }
}

fn fill(queue: &ConsumeQueue, offsets: std::ops::Range<i64>) {
    for offset in offsets {
        assert_eq!(queue.put(&unit(offset), offset * 10).unwrap(), Put::Appended);
    }
}

fn offsets(queue: &ConsumeQueue, from: i64, max: usize) -> Vec<i64> {
    queue.units(from, max).map(|unit| unit.queue_offset).collect()
}

/// The queue as a new start finds it.
fn reopened(dir: &Path, trust: Trust) -> Arc<ConsumeQueue> {
    let table = table(dir);
    table.recover(trust).unwrap();
    table.get("T", 1).unwrap()
}

#[test]
fn a_queue_nobody_wrote_has_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let queue = table(dir.path()).open_or_create("T", 1).unwrap();
    assert_eq!((queue.min_offset(), queue.max_offset(), queue.unit(0)), (0, 0, None));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn units_are_read_across_files_and_end_at_the_maximum() {
    let dir = tempfile::tempdir().unwrap();
    let queue = table(dir.path()).open_or_create("T", 1).unwrap();
    fill(&queue, 0..150);
    assert_eq!(offsets(&queue, 58, 4), [58, 59, 60, 61]);
    assert_eq!(offsets(&queue, 148, 10), [148, 149]);
    assert_eq!(offsets(&queue, 150, 10), Vec::<i64>::new());
    assert_eq!(offsets(&queue, -1, 10), Vec::<i64>::new());
    assert_eq!(queue.unit(119), Some(unit(119)));
    assert_eq!(queue.log_end(), 15_000);
}

#[test]
fn a_known_unit_changes_nothing_and_a_gap_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let queue = table(dir.path()).open_or_create("T", 1).unwrap();
    fill(&queue, 0..3);
    assert_eq!(queue.put(&unit(1), 0).unwrap(), Put::Known);
    assert_eq!(queue.put(&unit(4), 0).unwrap(), Put::Gap { expected: 3 });
    assert_eq!(offsets(&queue, 0, 10), [0, 1, 2]);
}

/// Whatever is there already, in whatever runs they come.
#[test]
fn units_that_are_put_together_are_those_that_are_put_one_by_one() {
    for (before, runs) in [
        (0, vec![0..90_i64, 90..150]),
        (0, vec![0..1, 1..60, 60..61, 61..200]),
        (70, vec![70..75, 72..130, 0..3]),
        (5, vec![3..9, 9..9, 59..61]),
    ] {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let together = table(dir.path()).open_or_create("T", 1).unwrap();
        let singly = table(other.path()).open_or_create("T", 1).unwrap();
        if before == 5 {
            fill(&together, 0..before);
            fill(&singly, 0..before);
        }
        for run in runs {
            let mut told = Put::Appended;
            for put in run.clone().map(|offset| singly.put(&unit(offset), 0).unwrap()) {
                if matches!(put, Put::Gap { .. }) {
                    told = put;
                    break;
                }
            }
            assert_eq!(together.put_all(run.clone().map(unit)).unwrap(), told, "{run:?}");
            let state = |queue: &ConsumeQueue| {
                let bounds = (queue.min_offset(), queue.max_offset(), queue.log_end(), queue.next_offset());
                (bounds, offsets(queue, queue.min_offset(), 1000))
            };
            assert_eq!(state(&together), state(&singly), "{run:?}");
        }
        let last = together.max_offset() - 1;
        assert_eq!(together.unit(last), Some(unit(last)));
    }
}

#[test]
fn a_queue_that_begins_late_has_filler_in_front() {
    let dir = tempfile::tempdir().unwrap();
    let queue = table(dir.path()).open_or_create("T", 1).unwrap();
    fill(&queue, 70..75);
    assert_eq!((queue.min_offset(), queue.max_offset()), (70, 75));
    let bytes = std::fs::read(dir.path().join("consumequeue/T/1/00000000000000001200")).unwrap();
    let blank = [0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0];
    assert!(bytes[..200].chunks(20).all(|unit| unit == blank));
    for trust in [Trust::Clean, Trust::Unclean] {
        let again = reopened(dir.path(), trust);
        again.correct_min(0).unwrap();
        assert_eq!((again.min_offset(), again.max_offset(), again.next_offset()), (70, 75, 75));
        assert_eq!(offsets(&again, 70, 2), [70, 71]);
    }
}

#[test]
fn a_start_finds_the_end_whatever_the_stop() {
    for units in [0, 1, 59, 60, 61, 120, 250] {
        for trust in [Trust::Clean, Trust::Unclean] {
            let dir = tempfile::tempdir().unwrap();
            let before = table(dir.path()).open_or_create("T", 1).unwrap();
            fill(&before, 0..units);
            if units == 0 {
                continue;
            }
            let queue = reopened(dir.path(), trust);
            assert_eq!((queue.min_offset(), queue.max_offset()), (0, units), "{trust:?}");
            assert_eq!(queue.log_end(), unit(units).log_offset);
            fill(&queue, units..units + 100);
            assert_eq!(queue.unit(units + 99), Some(unit(units + 99)));
        }
    }
}

#[test]
fn a_start_maps_nothing() {
    let dir = tempfile::tempdir().unwrap();
    fill(&table(dir.path()).open_or_create("T", 1).unwrap(), 0..100);
    let queue = reopened(dir.path(), Trust::Clean);
    queue.correct_min(0).unwrap();
    assert!(queue.files.list().iter().all(|file| file.mapped().is_none()));
    assert_eq!(queue.unit(99), Some(unit(99)));
}

#[test]
fn old_files_are_unmapped_and_idle_queues_where_very_many_are_mapped() {
    let dir = tempfile::tempdir().unwrap();
    let table = QueueTable::load_with(&config(dir.path()), 1, 256).unwrap();
    let idle = table.open_or_create("T", 1).unwrap();
    let busy = table.open_or_create("T", 2).unwrap();
    let mapped = || (idle.files.mapped(), busy.files.mapped());
    fill(&idle, 0..240);
    fill(&busy, 0..1);
    assert_eq!(mapped(), (4, 1));
    table.flush().unwrap();
    assert_eq!(mapped(), (1, 1));
    fill(&busy, 1..2);
    table.flush().unwrap();
    assert_eq!(mapped(), (0, 1));
    assert_eq!(idle.unit(10), Some(unit(10)));
    fill(&idle, 240..241);
}

#[test]
fn many_queues_are_forced_to_the_disk_by_one_call_whose_refusal_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let table = QueueTable::load_with(&config(dir.path()), 16, 2).unwrap();
    let queues: Vec<_> = (0..3).map(|queue_id| table.open_or_create("T", queue_id).unwrap()).collect();
    queues.iter().for_each(|queue| fill(queue, 0..70));
    let folder = dir.path().join("consumequeue");
    let fault = faults::arm(&folder, Op::Flush, 0, 5);
    let refused = table.flush().unwrap_err().to_string();
    assert!(refused.contains("flush the disk of") && refused.contains("consumequeue"), "{refused}");
    assert!(queues.iter().all(|queue| queue.unflushed() == Some(1400)));
    drop(fault);
    let fault = faults::arm(&folder, Op::Flush, u64::MAX, 5);
    table.flush().unwrap();
    assert_eq!((fault.seen(), queues[2].unflushed()), (1, None));
    // Few are forced one by one.
    fill(&queues[0], 70..71);
    fill(&queues[1], 70..130);
    table.flush().unwrap();
    assert_eq!((fault.seen(), queues[1].unflushed()), (4, None));
}

#[test]
fn a_hole_or_a_step_back_ends_the_queue_after_an_unclean_stop() {
    for damage in [[0; 20], [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]] {
        let dir = tempfile::tempdir().unwrap();
        fill(&table(dir.path()).open_or_create("T", 1).unwrap(), 0..200);
        let path = dir.path().join("consumequeue/T/1/00000000000000001200");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[400..420].copy_from_slice(&damage);
        std::fs::write(&path, bytes).unwrap();
        let queue = reopened(dir.path(), Trust::Unclean);
        assert_eq!((queue.max_offset(), queue.next_offset()), (80, 80));
        assert!(std::fs::read(&path).unwrap()[400..].iter().all(|byte| *byte == 0));
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 2);
        fill(&queue, 80..130);
        assert_eq!(offsets(&queue, 78, 4), [78, 79, 80, 81]);
    }
}

/// A unit of a batch queue tells its offsets itself.
#[test]
fn a_unit_of_other_offsets_than_those_that_follow_ends_a_batch_queue_after_an_unclean_stop() {
    let dir = tempfile::tempdir().unwrap();
    let table = table(dir.path());
    table.declare_batch("T");
    let queue = table.open_or_create("T", 1).unwrap();
    for index in 0..20 {
        let batch = Unit { queue_offset: index * 3, count: 3, ..unit(index) };
        assert_eq!(queue.put(&batch, index).unwrap(), Put::Appended);
    }
    let path = dir.path().join("batchconsumequeue/T/1/00000000000000000000");
    let mut bytes = std::fs::read(&path).unwrap();
    // The lowest byte of the first offset of unit 12.
    bytes[12 * 46 + 35] += 1;
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(reopened(dir.path(), Trust::Unclean).max_offset(), 36);
}

#[test]
fn units_beyond_the_end_of_the_log_are_cut() {
    for log_end in [0, 99, 100, 5999, 6000, 6001, 11_950] {
        let dir = tempfile::tempdir().unwrap();
        fill(&table(dir.path()).open_or_create("T", 1).unwrap(), 0..150);
        let queue = reopened(dir.path(), Trust::Clean);
        queue.truncate(log_end).unwrap();
        let left = (log_end / 100).cast_signed();
        assert_eq!((queue.max_offset(), queue.next_offset()), (left, left));
        let again = if left == 0 { queue } else { reopened(dir.path(), Trust::Clean) };
        assert_eq!(again.max_offset(), left);
        fill(&again, left..160);
        assert_eq!(offsets(&again, 0, 200).len(), 160);
    }
}

#[test]
fn cutting_every_unit_keeps_the_offset() {
    let dir = tempfile::tempdir().unwrap();
    let queue = table(dir.path()).open_or_create("T", 1).unwrap();
    fill(&queue, 125..135);
    queue.truncate(0).unwrap();
    assert_eq!((queue.min_offset(), queue.max_offset()), (125, 125));
    let again = reopened(dir.path(), Trust::Unclean);
    again.correct_min(0).unwrap();
    assert_eq!((again.min_offset(), again.max_offset(), again.next_offset()), (125, 125, 125));
}

#[test]
fn a_last_unit_that_the_log_denies_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let table = table(dir.path());
    fill(&table.open_or_create("T", 1).unwrap(), 0..65);
    table.verify(|queue, unit| queue.queue_id() == 1 && unit.queue_offset < 58).unwrap();
    assert_eq!(table.get("T", 1).unwrap().max_offset(), 58);
}

#[test]
fn files_go_with_the_log_and_the_last_one_stays() {
    let dir = tempfile::tempdir().unwrap();
    let queue = table(dir.path()).open_or_create("T", 1).unwrap();
    fill(&queue, 0..150);
    assert_eq!(queue.expire(5_900).unwrap(), 0);
    assert_eq!(queue.min_offset(), 59);
    assert_eq!(queue.expire(6_000).unwrap(), 1);
    assert_eq!(queue.expire(1_000_000).unwrap(), 1);
    assert_eq!((queue.min_offset(), queue.max_offset()), (150, 150));
    let again = reopened(dir.path(), Trust::Unclean);
    again.correct_min(1_000_000).unwrap();
    assert_eq!((again.min_offset(), again.next_offset()), (150, 150));
}

#[test]
fn an_offset_is_found_by_time_at_both_boundaries() {
    let dir = tempfile::tempdir().unwrap();
    let queue = table(dir.path()).open_or_create("T", 1).unwrap();
    let stored = |unit: &Unit| Ok(Some(unit.queue_offset / 3 * 10));
    let ask = |time, boundary| queue.offset_by_stored_time(time, boundary, stored).unwrap();
    assert_eq!(ask(5, Boundary::Lower), 0);
    fill(&queue, 0..99);
    assert_eq!((ask(-1, Boundary::Lower), ask(-1, Boundary::Upper)), (0, 0));
    assert_eq!((ask(100, Boundary::Lower), ask(100, Boundary::Upper)), (30, 32));
    assert_eq!((ask(101, Boundary::Lower), ask(101, Boundary::Upper)), (33, 32));
    assert_eq!((ask(9999, Boundary::Lower), ask(9999, Boundary::Upper)), (99, 98));
    queue.correct_min(4_000).unwrap();
    assert_eq!((ask(0, Boundary::Lower), ask(0, Boundary::Upper)), (40, 40));
}

#[test]
fn a_batch_queue_finds_the_unit_around_an_offset() {
    let dir = tempfile::tempdir().unwrap();
    let table = table(dir.path());
    table.declare_batch("T");
    let queue = table.open_or_create("T", 1).unwrap();
    let batch = |index: i64| Unit { queue_offset: index * 3, count: 3, ..unit(index) };
    for index in 0..70 {
        assert_eq!(queue.put(&batch(index), index).unwrap(), Put::Appended);
    }
    assert_eq!((queue.min_offset(), queue.max_offset()), (0, 210));
    assert_eq!(queue.unit(95).map(|unit| unit.queue_offset), Some(93));
    assert_eq!(offsets(&queue, 89, 3), [87, 90, 93]);
    assert_eq!(offsets(&queue, 208, 3), [207]);
    for trust in [Trust::Clean, Trust::Unclean] {
        let again = reopened(dir.path(), trust);
        assert_eq!(again.kind(), QueueKind::Batch);
        assert_eq!((again.min_offset(), again.max_offset(), again.log_end()), (0, 210, 7_000));
        again.correct_min(3_100).unwrap();
        assert_eq!((again.min_offset(), offsets(&again, 93, 1)), (93, vec![93]));
    }
    let again = reopened(dir.path(), Trust::Clean);
    again.truncate(3_000).unwrap();
    assert_eq!(again.max_offset(), 90);
}

#[test]
fn the_size_of_the_files_is_the_stores_own() {
    let dir = tempfile::tempdir().unwrap();
    fill(&table(dir.path()).open_or_create("T", 1).unwrap(), 0..70);
    let other = StoreConfig { queue_file_bytes: 6_000_000, ..config(dir.path()) };
    let table = QueueTable::load(&other).unwrap();
    table.recover(Trust::Clean).unwrap();
    fill(&table.get("T", 1).unwrap(), 70..130);
    fill(&table.open_or_create("New", 0).unwrap(), 0..1);
    let new = dir.path().join("consumequeue/New/0/00000000000000000000");
    assert_eq!(std::fs::metadata(new).unwrap().len(), 1200);
}

#[test]
fn a_damaged_queue_is_deleted_and_the_others_stay() {
    let dir = tempfile::tempdir().unwrap();
    let before = table(dir.path());
    fill(&before.open_or_create("T", 1).unwrap(), 0..70);
    fill(&before.open_or_create("T", 2).unwrap(), 0..70);
    std::fs::remove_file(dir.path().join("consumequeue/T/2/00000000000000000000")).unwrap();
    std::fs::write(dir.path().join("consumequeue/T/2/00000000000000002400"), [0; 7]).unwrap();
    std::fs::write(dir.path().join("consumequeue/T/1/00000000000000002400"), []).unwrap();
    std::fs::create_dir_all(dir.path().join("consumequeue/T/lost+found")).unwrap();
    let table = table(dir.path());
    table.recover(Trust::Unclean).unwrap();
    assert!(table.is_damaged());
    assert_eq!(table.of_topic("T").len(), 1);
    assert_eq!(table.get("T", 1).unwrap().max_offset(), 70);
}

#[test]
fn of_too_many_lost_messages_no_holes_are_made_and_the_queue_begins_anew_behind_them() {
    let dir = tempfile::tempdir().unwrap();
    let queue = table(dir.path()).open_or_create("T", 1).unwrap();
    fill(&queue, 0..3);
    queue.bridge(5).unwrap();
    assert!(queue.unit(4).unwrap().is_hole() && queue.unit(2) == Some(unit(2)), "a few are bridged");
    let to = 5 + append::HOLES_MAX + 1;
    queue.bridge(to).unwrap();
    fill(&queue, to..to + 2);
    assert_eq!((queue.min_offset(), queue.max_offset()), (to, to + 2));
    assert_eq!((queue.unit(2), queue.unit(to - 1)), (None, None));
    let again = reopened(dir.path(), Trust::Unclean);
    again.correct_min(0).unwrap();
    assert_eq!((again.min_offset(), again.max_offset()), (to, to + 2));
}

/// A file that cannot be opened at the moment, for lack of descriptors for instance.
#[test]
fn what_cannot_be_read_is_not_taken_for_gone() {
    let dir = tempfile::tempdir().unwrap();
    fill(&table(dir.path()).open_or_create("T", 1).unwrap(), 0..130);
    let queue = reopened(dir.path(), Trust::Clean);
    let first = dir.path().join("consumequeue/T/1/00000000000000000000");
    std::fs::rename(&first, dir.path().join("away")).unwrap();
    let before = (queue.min_offset(), queue.max_offset());
    assert!(queue.correct_min(3_000).is_err());
    assert!(queue.truncate(3_000).is_err());
    assert_eq!((queue.min_offset(), queue.max_offset()), before);
    std::fs::rename(dir.path().join("away"), &first).unwrap();
    queue.correct_min(3_000).unwrap();
    assert_eq!((queue.min_offset(), queue.max_offset()), (30, 130));
}

#[test]
fn lost_messages_of_a_batch_queue_are_bridged_too() {
    let dir = tempfile::tempdir().unwrap();
    let table = table(dir.path());
    table.declare_batch("T");
    let queue = table.open_or_create("T", 1).unwrap();
    fill(&queue, 0..3);
    queue.bridge(50_000).unwrap();
    fill(&queue, 50_000..50_002);
    assert!(queue.unit(3).unwrap().is_hole() && queue.unit(49_999).unwrap().is_hole());
    assert_eq!((queue.unit(2), queue.unit(50_001)), (Some(unit(2)), Some(unit(50_001))));
    assert_eq!((queue.min_offset(), queue.max_offset()), (0, 50_002));
}

#[test]
fn a_removed_topic_leaves_no_file_and_takes_no_unit() {
    let dir = tempfile::tempdir().unwrap();
    let table = table(dir.path());
    let queue = table.open_or_create("T", 1).unwrap();
    fill(&queue, 0..70);
    table.remove("T").unwrap();
    assert!(table.get("T", 1).is_none() && table.topics().is_empty());
    assert_eq!(std::fs::read_dir(dir.path().join("consumequeue")).unwrap().count(), 0);
    assert_eq!(queue.put(&unit(70), 0).unwrap(), Put::Known);
    assert_eq!(queue.unit(69), Some(unit(69)));
    assert_eq!(table.open_or_create("T", 1).unwrap().max_offset(), 0);
}

#[test]
fn a_topic_that_is_no_folder_name_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let table = table(dir.path());
    for topic in ["", ".", "..", "a/b", "../x", "a\0b"] {
        assert!(table.open_or_create(topic, 0).is_err(), "{topic:?}");
    }
    assert!(table.open_or_create("T", -1).is_err());
}

#[test]
fn readers_see_whole_units_while_the_queue_grows_is_flushed_and_expires() {
    let dir = tempfile::tempdir().unwrap();
    let table = table(dir.path());
    let queue = table.open_or_create("T", 1).unwrap();
    let end = 30_000;
    std::thread::scope(|threads| {
        let read = || {
            let mut seen = 0;
            while seen < end {
                let (min, max) = (queue.min_offset(), queue.max_offset());
                assert!(max >= seen && min <= max);
                seen = max;
                for found in queue.units(max - 1, 1).chain(queue.units(max - 100, 50)) {
                    assert_eq!(found, unit(found.queue_offset));
                }
            }
        };
        threads.spawn(read);
        threads.spawn(read);
        threads.spawn(|| {
            while queue.max_offset() < end {
                table.flush().unwrap();
                table.expire(queue.log_end().saturating_sub(100_000)).unwrap();
            }
        });
        fill(&queue, 0..end);
    });
    assert!(queue.min_offset() > 0 || queue.files.list().len() == 500);
}
