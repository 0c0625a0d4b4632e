//! Timers on real files: placed, taken, lost and found again; and the files that Java wrote.
//!
//! Invariants:
//! - the log of the store holds one real record for each timer, so that recovery can ask for it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use troupemq_codec::message::NewRecord;
use troupemq_codec::timer_record::UNIT_BYTES;

use super::*;
use crate::faults::{Op, arm};
use crate::testing::GoldenStore;
use crate::{AppendBatch, ManualClock, Opened, StoreConfig, open};

pub(super) const NOW_MS: i64 = 1_795_968_000_000;
const HOUR_MS: i64 = 3_600_000;

pub(super) struct Bench {
    pub(super) dir: tempfile::TempDir,
    pub(super) store: Opened,
    pub(super) timers: TimerStore,
}

fn config(dir: &Path) -> StoreConfig {
    StoreConfig {
        log_segment_bytes: 65_536,
        queue_file_bytes: 1200,
        timer_log_file_bytes: 4096,
        ..StoreConfig::in_dir(dir)
    }
}

fn open_timers(config: &StoreConfig, now_ms: i64) -> (Opened, TimerStore) {
    let store = open(config.clone(), Arc::new(ManualClock::at(now_ms))).unwrap();
    let timers = TimerStore::open(config, &store.queues, &store.reader, now_ms).unwrap();
    (store, timers)
}

impl Bench {
    pub(super) fn new() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let (store, timers) = open_timers(&config(dir.path()), NOW_MS);
        Bench { dir, store, timers }
    }

    /// As a kill leaves it: nothing was closed.
    pub(super) fn reopen(self, now_ms: i64) -> Bench {
        self.reopen_with(now_ms, |config| config)
    }

    fn reopen_with(self, now_ms: i64, change: impl FnOnce(StoreConfig) -> StoreConfig) -> Bench {
        let Bench { dir, store, timers } = self;
        drop((store, timers));
        let (store, timers) = open_timers(&change(config(dir.path())), now_ms);
        Bench { dir, store, timers }
    }

    /// Stores a message in the timer topic and answers what the timer needs of it.
    pub(super) fn message(&mut self, due_ms: i64, is_delete: bool) -> NewTimer {
        self.message_at(NOW_MS, due_ms, is_delete)
    }

    fn message_at(&mut self, stored_ms: i64, due_ms: i64, is_delete: bool) -> NewTimer {
        let queue = self.store.queues.open_or_create(TIMER_TOPIC, 0).unwrap();
        let record = NewRecord { topic: TIMER_TOPIC, body: b"body", properties: &[], ..NewRecord::PLAIN };
        let mut batch = AppendBatch::default();
        record.encode(&mut batch.bytes).unwrap();
        batch.push(0, &queue, 1, 0);
        let appended = self.store.log.append(&mut batch, stored_ms).unwrap();
        self.store.dispatch.dispatch(&batch, &appended).unwrap();
        let record = &batch.records[0];
        let (log_offset, queue_offset) = (record.log_offset, record.queue_offset);
        NewTimer { queue_offset, log_offset, size: record.len, stored_ms, due_ms, is_delete, topic_hash: 7 }
    }

    pub(super) fn put(&mut self, due_ms: i64, now_ms: i64) -> (u64, Placed) {
        let timer = self.message(due_ms, false);
        let placed = self.timers.put(&timer, now_ms).unwrap();
        self.timers.entered(timer.queue_offset + 1);
        (timer.log_offset, placed)
    }

    pub(super) fn flush(&self) {
        self.timers.flusher().flush(&self.timers.checkpoint()).unwrap();
    }

    /// Takes everything that is due, with its slot times.
    pub(super) fn take(&mut self, now_ms: i64) -> Vec<(i64, u64)> {
        let mut taken = Vec::new();
        while let Some(slot_ms) = self.timers.next_due(now_ms).unwrap() {
            let units = self.timers.units(slot_ms).unwrap();
            taken.extend(units.iter().map(|unit| (slot_ms, unit.log_offset.cast_unsigned())));
            self.timers.delivered(slot_ms);
        }
        taken
    }
}

/// The slot that a timer has gone to for good.
fn slot_of(placed: Placed) -> Option<i64> {
    let Placed::Slot { slot_ms, is_roll: false, .. } = placed else { return None };
    Some(slot_ms)
}

fn is_roll(placed: Placed) -> bool {
    matches!(placed, Placed::Slot { is_roll: true, .. })
}

#[test]
fn a_refusal_at_any_step_of_a_flush_or_a_roll_loses_no_timer() {
    for (op, place) in [
        (Op::Create, "timerlog"),
        (Op::Allocate, "timerlog"),
        (Op::Flush, "timerlog"),
        (Op::Flush, "timerwheel"),
        (Op::Create, "config/timercheck"),
        (Op::Write, "config/timercheck"),
        (Op::Flush, "config/timercheck"),
    ] {
        let mut bench = Bench::new();
        bench.put(NOW_MS + 2_000, NOW_MS);
        let fault = arm(&bench.dir.path().join(place), op, 0, 28);
        let mut put = 1;
        // Two files of the timer log have room for fewer.
        for _ in 0..170 {
            let timer = bench.message(NOW_MS + 2_000, false);
            if bench.timers.put(&timer, NOW_MS).is_err() {
                break;
            }
            bench.timers.entered(timer.queue_offset + 1);
            put += 1;
        }
        assert!(
            bench.timers.flusher().flush(&bench.timers.checkpoint()).is_err() || put < 171,
            "{op:?} {place}"
        );
        assert!(fault.has_struck(), "{op:?} {place}");
        drop(fault);
        bench.put(NOW_MS + 2_000, NOW_MS);
        bench.timers.flusher().flush(&bench.timers.checkpoint()).unwrap();
        let mut bench = bench.reopen(NOW_MS);
        assert_eq!(bench.take(NOW_MS + 4_000).len(), put + 1, "{op:?} {place}");
    }
}

/// Two files of the timer log and a bit; between two writes of units stands one of a blank.
#[test]
fn of_timers_that_are_entered_together_those_behind_a_refusal_are_not_entered_and_can_be() {
    for (nth, written) in [(0, 0), (1, 78), (2, 78), (3, 156), (4, 156)] {
        let mut bench = Bench::new();
        let due_ms = |number: i64| NOW_MS + 2_000 + number % 3 * 1_000;
        let timers: Vec<NewTimer> = (0..170).map(|number| bench.message(due_ms(number), false)).collect();
        let fault = arm(&bench.dir.path().join("timerlog"), Op::Write, nth, 28);
        let (placed, outcome) = bench.timers.put_all(timers.iter().copied(), NOW_MS);
        assert!(outcome.is_err_and(|error| error.is_out_of_space()));
        assert_eq!((placed.len(), bench.timers.pending()), (written, written as i64), "{nth}");
        let units = (2..5).map(|s| bench.timers.units(NOW_MS + s * 1_000).unwrap().len());
        assert_eq!(units.sum::<usize>(), written);
        drop(fault);
        let (placed, outcome) = bench.timers.put_all(timers[written..].iter().copied(), NOW_MS);
        outcome.unwrap();
        assert_eq!(slot_of(placed[0]), Some(due_ms(written as i64)));
        bench.timers.entered(170);
        let mut wanted: Vec<_> = timers.iter().map(|timer| (timer.due_ms, timer.log_offset)).collect();
        wanted.sort_unstable();
        let mut bench = bench.reopen(NOW_MS);
        assert_eq!(bench.take(NOW_MS + 6_000), wanted, "{nth}");
    }
}

#[test]
fn a_timer_is_taken_in_its_slot_and_never_early() {
    let mut bench = Bench::new();
    let (late, placed) = bench.put(NOW_MS + 5_000, NOW_MS);
    let (soon, _) = bench.put(NOW_MS + 3_000, NOW_MS);
    let (second, _) = bench.put(NOW_MS + 3_000, NOW_MS);
    assert_eq!(slot_of(placed), Some(NOW_MS + 5_000));
    let (past, placed) = bench.put(NOW_MS - 1, NOW_MS);
    assert_eq!(slot_of(placed), Some(NOW_MS), "the first slot that is not delivered");
    assert_eq!((bench.timers.pending(), bench.timers.view().count_at(NOW_MS + 3_000)), (4, 2));
    assert_eq!(bench.take(NOW_MS + 3_999), [(NOW_MS, past)]);
    assert_eq!(bench.take(NOW_MS + 4_000), [(NOW_MS + 3_000, soon), (NOW_MS + 3_000, second)]);
    assert_eq!(bench.take(NOW_MS + 60_000), [(NOW_MS + 5_000, late)]);
    assert_eq!((bench.timers.pending(), bench.timers.read_to_ms()), (0, NOW_MS + 60_000));
    assert_eq!(slot_of(bench.put(NOW_MS + 59_000, NOW_MS).1), Some(NOW_MS + 60_000));
}

#[test]
fn a_cancellation_stands_among_the_units_of_its_slot() {
    let mut bench = Bench::new();
    bench.put(NOW_MS + 3_000, NOW_MS);
    let cancel = bench.message(NOW_MS + 3_000, true);
    bench.timers.put(&cancel, NOW_MS).unwrap();
    assert_eq!(bench.timers.pending(), 0);
    let units = bench.timers.units(NOW_MS + 3_000).unwrap();
    assert_eq!(units.iter().map(TimerUnit::is_delete).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn far_timers_go_round_without_meeting_in_one_slot() {
    let mut bench = Bench::new();
    let mut slots = BTreeSet::new();
    for second in 0..100 {
        let due_ms = NOW_MS + 40 * 24 * HOUR_MS + second * 1_000;
        assert!(is_roll(bench.put(due_ms, NOW_MS).1));
    }
    while let Some(slot_ms) = bench.timers.next_due(NOW_MS + 48 * HOUR_MS).unwrap() {
        let units = bench.timers.units(slot_ms).unwrap();
        assert!(units.iter().all(TimerUnit::is_roll));
        assert!((24 * HOUR_MS..48 * HOUR_MS).contains(&(slot_ms - NOW_MS)), "{slot_ms}");
        slots.insert(slot_ms);
        bench.timers.delivered(slot_ms);
    }
    assert_eq!(slots.len(), 100);
}

#[test]
fn everything_is_there_after_a_kill_whatever_was_flushed() {
    for flushed in [None, Some(30), Some(149)] {
        let mut bench = Bench::new();
        let mut wanted = Vec::new();
        for number in 0..150_i64 {
            let due_ms = NOW_MS + 10_000 + number % 7 * 1_000;
            wanted.push((due_ms, bench.put(due_ms, NOW_MS).0));
            if flushed == Some(number) {
                bench.flush();
            }
        }
        wanted.sort_unstable();
        let mut bench = bench.reopen(NOW_MS + 1_000);
        assert_eq!((bench.timers.pending(), bench.timers.next_queue_offset()), (150, 150));
        assert_eq!(bench.take(NOW_MS + HOUR_MS), wanted, "{flushed:?}");
    }
}

#[test]
fn a_wheel_or_log_that_is_gone_is_made_again() {
    for file in ["timerwheel", "timerlog", "config/timercheck"] {
        let mut bench = Bench::new();
        let done = bench.put(NOW_MS + 1_000, NOW_MS).0;
        let waiting = bench.put(NOW_MS + 600_000, NOW_MS).0;
        assert_eq!(bench.take(NOW_MS + 120_000), [(NOW_MS + 1_000, done)]);
        bench.flush();
        let path = bench.dir.path().join(file);
        if path.is_dir() {
            std::fs::remove_dir_all(path).unwrap()
        } else {
            std::fs::remove_file(path).unwrap()
        }
        let mut bench = bench.reopen(NOW_MS + 120_000);
        // What the files have lost is entered again from the topic, and what was delivered is known.
        let mut placed = Vec::new();
        for queue_offset in bench.timers.next_queue_offset()..2 {
            let unit = bench.store.queues.get(TIMER_TOPIC, 0).unwrap().unit(queue_offset).unwrap();
            let due_ms = if unit.log_offset == done { NOW_MS + 1_000 } else { NOW_MS + 600_000 };
            let timer = NewTimer {
                queue_offset,
                log_offset: unit.log_offset,
                size: unit.size,
                stored_ms: NOW_MS,
                due_ms,
                is_delete: false,
                topic_hash: 7,
            };
            placed.push(bench.timers.put(&timer, NOW_MS + 120_000).unwrap());
        }
        if file == "timerlog" {
            assert_eq!((placed[0], slot_of(placed[1])), (Placed::Done, Some(NOW_MS + 600_000)));
        }
        let mut taken = bench.take(NOW_MS + HOUR_MS);
        if file == "config/timercheck" {
            // Nobody but the log of the store knows then what was delivered.
            assert_eq!(taken.remove(0), (NOW_MS + 1_000, done));
        }
        assert_eq!(taken, [(NOW_MS + 600_000, waiting)], "{file}");
    }
}

/// Found by a loss of power: it was due before the check point, and stood in the slot behind it.
#[test]
fn a_timer_that_was_entered_behind_its_time_is_not_lost_with_the_timer_log() {
    let mut bench = Bench::new();
    let read_to_ms = NOW_MS + 200_000;
    let done = bench.message(NOW_MS + 1_000, false);
    bench.timers.put(&done, NOW_MS).unwrap();
    assert_eq!(bench.take(read_to_ms), [(NOW_MS + 1_000, done.log_offset)]);
    let late = bench.message_at(read_to_ms - 10, read_to_ms - 1_000, false);
    assert_eq!(slot_of(bench.timers.put(&late, read_to_ms).unwrap()), Some(read_to_ms));
    bench.timers.entered(late.queue_offset + 1);
    bench.flush();
    std::fs::remove_dir_all(bench.dir.path().join("timerlog")).unwrap();
    let mut bench = bench.reopen(read_to_ms + 500);
    assert_eq!(bench.timers.next_queue_offset(), 0);
    let placed = [done, late].map(|timer| bench.timers.put(&timer, read_to_ms + 500).unwrap());
    assert_eq!((placed[0], slot_of(placed[1])), (Placed::Done, Some(read_to_ms)));
    assert_eq!(bench.take(read_to_ms + 2_000), [(read_to_ms, late.log_offset)]);
}

/// Fifty units, and less behind them than the blank that closes a file.
const HALF_BYTES: u64 = 50 * 52 + 8;

fn set_len(path: &Path, bytes: u64) {
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

/// Found by a kill in the midst of a write: what was left of the unit came into a slot and hid the timers there.
/// One that has gone round stands far behind the messages of its time: whatever file is damaged, all are entered again.
#[test]
fn a_file_of_the_timer_log_that_is_gone_short_or_of_another_store_costs_no_timer() {
    for has_wheel in [true, false] {
        let gone = [(0, "gone"), (1, "gone"), (2, "gone")];
        let cut = [(0, "short"), (2, "short"), (0, "half"), (2, "half"), (0, "alone")];
        for (damaged, how) in gone.into_iter().chain(cut).chain([(1, "foreign")]) {
            let mut bench = Bench::new();
            let config = StoreConfig { timer_roll_window_slots: 60, ..config(bench.dir.path()) };
            bench.timers =
                TimerStore::open(&config, &bench.store.queues, &bench.store.reader, NOW_MS).unwrap();
            let mut wanted: BTreeMap<u64, i64> = BTreeMap::new();
            let mut timers = Vec::new();
            for number in 0..190 {
                let due_ms = NOW_MS + 2_000 + number % 50 * 1_000;
                let timer = bench.message(due_ms, false);
                bench.timers.put(&timer, NOW_MS).unwrap();
                bench.timers.entered(timer.queue_offset + 1);
                wanted.insert(timer.log_offset, due_ms);
                timers.push(timer);
            }
            // The first goes round again, and stands in the last file too.
            let rolled = NewTimer { due_ms: NOW_MS + 70_000, ..timers[0] };
            bench.timers.put(&rolled, NOW_MS + 30_000).unwrap();
            bench.flush();
            let mut files = crate::segments::list_files(&bench.dir.path().join("timerlog")).unwrap();
            assert_eq!(files.len(), 3, "{}", bench.timers.checkpoint().flushed_to);
            let path = files.swap_remove(damaged).path;
            match how {
                "gone" => std::fs::remove_file(&path).unwrap(),
                "half" => set_len(&path, HALF_BYTES),
                "alone" => {
                    files.iter().for_each(|file| std::fs::remove_file(&file.path).unwrap());
                    set_len(&path, HALF_BYTES);
                }
                "short" => set_len(&path, 2048),
                _ => {
                    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
                    let mut first = [0; UNIT_BYTES];
                    file.read_exact_at(&mut first, 0).unwrap();
                    let unit = TimerUnit::decode(&first).unwrap();
                    let foreign = TimerUnit { log_offset: unit.log_offset + 1, ..unit };
                    file.write_all_at(&foreign.encode(), 0).unwrap();
                }
            }
            if !has_wheel {
                std::fs::remove_file(bench.dir.path().join("timerwheel")).unwrap();
            }
            let mut bench = bench.reopen(NOW_MS + 1_000);
            // As the owner does: what is not entered is, from the topic.
            for timer in &timers[usize::try_from(bench.timers.next_queue_offset()).unwrap()..] {
                bench.timers.put(timer, NOW_MS + 1_000).unwrap();
            }
            let taken = bench.take(NOW_MS + 80_000);
            let found: BTreeSet<u64> = taken.iter().map(|(_, log_offset)| *log_offset).collect();
            assert_eq!(found, wanted.keys().copied().collect(), "file {damaged} {how}, wheel: {has_wheel}");
            let early = taken.iter().find(|(slot_ms, log_offset)| *slot_ms < wanted[log_offset]);
            assert_eq!(early, None, "file {damaged} {how}, wheel: {has_wheel}");
        }
    }
}

#[test]
fn part_of_a_unit_at_the_end_is_cut_and_hides_no_other_timer() {
    // From here on all of the unit is there but the hash of its topic.
    const SIZE_ENDS: usize = 40;
    for kept in 1..UNIT_BYTES {
        let mut bench = Bench::new();
        let slot_ms = NOW_MS + 2_000;
        let mut put: Vec<_> = (0..3).map(|_| (slot_ms, bench.put(slot_ms, NOW_MS).0)).collect();
        let path = bench.dir.path().join("timerlog").join("00000000000000000000");
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(&vec![0; UNIT_BYTES - kept], (2 * UNIT_BYTES + kept) as u64).unwrap();
        let mut bench = bench.reopen(NOW_MS);
        let expected = if kept < SIZE_ENDS { 2 } else { 3 };
        put.truncate(expected);
        assert_eq!(bench.timers.next_queue_offset(), expected as i64, "{kept} bytes are left");
        let mut taken = bench.take(slot_ms + 1_000);
        taken.sort_unstable();
        assert_eq!(taken, put, "{kept} bytes are left");
    }
}

#[test]
fn a_unit_whose_message_the_log_has_lost_is_cut() {
    let mut bench = Bench::new();
    let kept = bench.put(NOW_MS + 5_000, NOW_MS).0;
    let lost = bench.message(NOW_MS + 5_000, false);
    let lost = NewTimer { log_offset: lost.log_offset + 1_000_000, ..lost };
    bench.timers.put(&lost, NOW_MS).unwrap();
    let mut bench = bench.reopen(NOW_MS);
    assert_eq!(bench.timers.next_queue_offset(), 1);
    assert_eq!((bench.timers.pending(), bench.take(NOW_MS + HOUR_MS)), (1, vec![(NOW_MS + 5_000, kept)]));
}

#[test]
fn nothing_is_lost_in_a_long_stop_or_by_another_precision() {
    for (hours, precision_ms) in [(1, 1_000), (24 * 13, 1_000), (24 * 100, 1_000), (1, 100), (1, 10)] {
        let mut bench = Bench::new();
        let wanted: Vec<_> = (1..=20).map(|second| bench.put(NOW_MS + second * 1_000, NOW_MS).0).collect();
        bench.flush();
        let now_ms = NOW_MS + hours * HOUR_MS;
        let mut bench =
            bench.reopen_with(now_ms, |config| StoreConfig { timer_precision_ms: precision_ms, ..config });
        let taken: Vec<_> = bench.take(now_ms).into_iter().map(|(_, log_offset)| log_offset).collect();
        assert_eq!(taken, wanted, "{hours} h, {precision_ms} ms");
    }
}

#[test]
fn two_times_that_share_a_slot_both_keep_their_timers() {
    let mut bench = Bench::new();
    let old = bench.put(NOW_MS + 1_000, NOW_MS).0;
    // Two weeks later the wheel comes round to the same slot while the old timer still waits.
    let later_ms = NOW_MS + 14 * 24 * HOUR_MS;
    let (new, placed) = bench.put(later_ms + 1_000, later_ms);
    assert!(is_roll(placed));
    let units = |bench: &Bench, slot_ms: i64| {
        bench
            .timers
            .units(slot_ms)
            .unwrap()
            .iter()
            .map(|unit| unit.log_offset.cast_unsigned())
            .collect::<Vec<_>>()
    };
    assert_eq!(units(&bench, NOW_MS + 1_000), [old]);
    assert_eq!(units(&bench, later_ms + 2_000), [new]);
}

#[test]
fn files_of_the_timer_log_go_when_all_their_timers_are_delivered() {
    let mut bench = Bench::new();
    let far = bench.put(NOW_MS + 3_600_000, NOW_MS).0;
    (0..78).for_each(|_| _ = bench.put(NOW_MS + 1_000, NOW_MS));
    bench.take(NOW_MS + 2_000);
    let expire = |bench: &Bench| bench.timers.flusher().expire(&bench.timers.checkpoint()).unwrap();
    assert_eq!(expire(&bench), 0, "one of the first file waits");
    assert_eq!(bench.take(NOW_MS + 3_601_000), [(NOW_MS + 3_600_000, far)]);
    assert_eq!(expire(&bench), 1);
    assert_eq!(std::fs::read_dir(bench.dir.path().join("timerlog")).unwrap().count(), 1, "never the last");
}

#[test]
fn a_wheel_that_is_kept_in_memory_is_read_and_where_it_cannot_be_that_is_an_error() {
    let mut bench = Bench::new();
    bench.put(NOW_MS + 1_000, NOW_MS);
    let wheel = bench.dir.path().join("timerwheel");
    for (fails_from, is_kept) in [(u64::MAX, true), (0, false)] {
        let fault = arm(&wheel, Op::Read, fails_from, 5);
        assert_eq!(bench.timers.flusher().keep_in_memory().is_ok(), is_kept);
        assert!(fault.seen() > 0);
    }
}

#[test]
fn a_timer_that_was_due_while_no_check_point_was_written_is_not_lost() {
    let mut bench = Bench::new();
    let due = bench.put(NOW_MS + 1_000, NOW_MS).0;
    let mut bench = bench.reopen(NOW_MS + HOUR_MS);
    assert_eq!(bench.take(NOW_MS + HOUR_MS), [(NOW_MS + 1_000, due)]);
}

#[test]
fn what_the_check_point_does_not_count_as_delivered_is_found_again() {
    let mut bench = Bench::new();
    let due = bench.put(NOW_MS + 1_000, NOW_MS).0;
    bench.flush();
    let before = bench.timers.checkpoint();
    bench.take(NOW_MS + 2_000);
    bench.timers.flusher().flush(&before).unwrap();
    let mut bench = bench.reopen(NOW_MS + 2_000);
    assert_eq!(bench.take(NOW_MS + 2_000), [(NOW_MS + 1_000, due)]);
}

#[test]
fn a_message_goes_round_again_before_the_log_may_lose_it() {
    let bench = Bench::new();
    let mut bench = bench.reopen_with(NOW_MS, |config| StoreConfig { reserved_hours: 3, ..config });
    let (_, placed) = bench.put(NOW_MS + 5 * HOUR_MS, NOW_MS);
    let Placed::Slot { slot_ms, is_roll: true, .. } = placed else { panic!("{placed:?}") };
    assert!(slot_ms - NOW_MS <= 2 * HOUR_MS && bench.timers.kept_ms() == 2 * HOUR_MS);
}

#[test]
fn a_unit_that_went_round_again_does_not_hide_what_was_entered_before_it() {
    let mut bench = Bench::new();
    let old = bench.message(NOW_MS + 9_000, false);
    bench.timers.put(&old, NOW_MS).unwrap();
    bench.timers.entered(1);
    bench.put(NOW_MS + 9_000, NOW_MS);
    bench.timers.put(&old, NOW_MS).unwrap();
    let bench = bench.reopen(NOW_MS);
    assert_eq!(bench.timers.next_queue_offset(), 2);
}

#[test]
fn what_went_round_before_a_kill_is_known_by_its_later_slot() {
    let due_ms = NOW_MS + 200 * HOUR_MS;
    let mut bench = Bench::new();
    let timer = bench.message(due_ms, false);
    let Placed::Slot { slot_ms: first_ms, is_roll: true, .. } = bench.timers.put(&timer, NOW_MS).unwrap()
    else {
        panic!("it goes round");
    };
    bench.timers.next_due(first_ms + 1_000).unwrap();
    bench.flush();
    assert_eq!(bench.timers.read_to_ms(), first_ms, "the slot is due");
    let Placed::Slot { slot_ms: second_ms, .. } = bench.timers.put(&timer, first_ms).unwrap() else {
        panic!("it goes round again");
    };
    // Two days later it would go elsewhere.
    let mut bench = bench.reopen(second_ms);
    let next = bench.timers.next_due(first_ms + 1_000).unwrap();
    assert_eq!(next, Some(first_ms), "the slot is not noted as passed");
    assert!(bench.timers.went_round(timer.log_offset, first_ms));
    assert!(!bench.timers.went_round(timer.log_offset, second_ms));
    assert!(!bench.timers.went_round(timer.log_offset + 1, first_ms));
    bench.timers.forget_rounds();
    assert!(!bench.timers.went_round(timer.log_offset, first_ms));
}

#[test]
fn a_look_from_outside_shows_what_waits() {
    let mut bench = Bench::new();
    bench.put(NOW_MS + 5_000, NOW_MS);
    bench.put(NOW_MS + 5_000, NOW_MS);
    bench.put(NOW_MS + 60_000, NOW_MS);
    bench.flush();
    let peek = TimerPeek::read(bench.dir.path()).unwrap().expect("a wheel");
    assert_eq!(peek.slots, BTreeMap::from([(NOW_MS + 5_000, 2), (NOW_MS + 60_000, 1)]));
    assert_eq!((peek.checkpoint.queue_offset, peek.precision_ms), (3, 1_000));
    assert_eq!(TimerPeek::read(&bench.dir.path().join("elsewhere")).unwrap(), None);
}

/// Writes only pages that are not zero: the others stay holes, as in Java's own file.
fn write_sparse(path: &Path, bytes: &[u8]) {
    let file = std::fs::File::create(path).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    for (index, page) in bytes.chunks(4096).enumerate() {
        if page != [0; 4096].get(..page.len()).unwrap() {
            FileExt::write_all_at(&file, page, index as u64 * 4096).unwrap();
        }
    }
}

#[test]
fn what_java_left_waiting_waits_here() {
    for set in ["delivery-clean", "pop", "recall"] {
        // Unpacking a wheel takes its time in a build for tests: one is enough.
        for keeps_wheel in [set == "delivery-clean", false] {
            let golden = GoldenStore::unpack(set);
            if keeps_wheel {
                let packed = std::fs::File::open(golden.dir().join("timerwheel.gz")).unwrap();
                let mut wheel = vec![0; 38_707_200];
                flate2::read::GzDecoder::new(packed).read_exact(&mut wheel).unwrap();
                write_sparse(&golden.dir().join("timerwheel"), &wheel);
            }
            let config = StoreConfig::in_dir(golden.dir());
            let (store, timers) = open_timers(&config, 1_795_969_000_000);
            let read_to_ms = timers.read_to_ms();
            let mut wanted: BTreeMap<u64, i64> = BTreeMap::new();
            for message in golden.messages().iter().filter(|message| message.topic == TIMER_TOPIC) {
                let due = message.properties["TIMER_OUT_MS"].as_str().unwrap().parse::<i64>().unwrap();
                if due >= read_to_ms {
                    wanted.insert(message.log_offset, due);
                }
            }
            let mut found = BTreeMap::new();
            let mut slots = Vec::new();
            let path = golden.dir().join("timerwheel");
            timers.wheel.each(&path, read_to_ms, |time_ms, slot| slots.push((time_ms, slot.count))).unwrap();
            for (time_ms, count) in slots {
                let units = timers.units(time_ms).unwrap();
                let changes = units.iter().map(|unit| if unit.is_delete() { -1 } else { 1 });
                assert_eq!(changes.sum::<i32>(), count, "{set} {time_ms}");
                for unit in units {
                    let due_ms = wanted.get(&unit.log_offset.cast_unsigned()).copied();
                    assert!(unit.is_roll() || due_ms == Some(time_ms), "{set}: {due_ms:?} in {time_ms}");
                    found.insert(unit.log_offset.cast_unsigned(), due_ms.unwrap());
                }
            }
            assert_eq!(found, wanted, "{set}");
            assert!(!found.is_empty() || set == "recall", "{set}");
            let queue = store.queues.get(TIMER_TOPIC, 0).unwrap();
            assert_eq!(timers.next_queue_offset(), queue.max_offset(), "{set}");
        }
    }
}
