//! Timers of which the disk cannot read a part, at a start and while they run.
//!
//! Invariants:
//! - whatever was refused, every timer comes once the disk reads again.

use std::collections::BTreeSet;

use super::timer_test::{Bench, NOW_MS};
use crate::StoreError;
use crate::faults::{Op, arm, arm_once};

/// Refuses the first, second, … such operation of a start; answers how many there were.
fn refuse_each(place: &str, op: Op, errno: i32) -> u64 {
    let mut nth = 0;
    loop {
        let mut bench = Bench::new();
        let timers: Vec<_> =
            (0..190).map(|number| bench.message(NOW_MS + 2_000 + number % 50 * 1_000, false)).collect();
        for timer in &timers {
            bench.timers.put(timer, NOW_MS).unwrap();
            bench.timers.entered(timer.queue_offset + 1);
        }
        bench.flush();
        let fault = arm_once(&bench.dir.path().join(place), op, nth, errno);
        let mut bench = bench.reopen(NOW_MS + 1_000);
        let has_struck = fault.has_struck();
        drop(fault);
        assert_eq!(bench.dir.path().join("unreadable").is_dir(), has_struck, "{place} {op:?} {nth}");
        // As the owner does: what is not entered is, from the topic.
        for timer in &timers[usize::try_from(bench.timers.next_queue_offset()).unwrap()..] {
            bench.timers.put(timer, NOW_MS + 1_000).unwrap();
        }
        let taken: BTreeSet<u64> =
            bench.take(NOW_MS + 80_000).into_iter().map(|(_, log_offset)| log_offset).collect();
        let wanted = timers.iter().map(|timer| timer.log_offset).collect();
        assert_eq!(taken, wanted, "{place} {op:?} {nth}");
        if !has_struck {
            return nth;
        }
        // Of many, some.
        nth += 1 + nth / 4;
    }
}

#[test]
fn a_file_that_cannot_be_read_costs_no_timer() {
    assert_eq!(refuse_each("timerlog/00000000000000000000", Op::Open, 13), 1);
    assert_eq!(refuse_each("timerlog/00000000000000004096", Op::Open, 5), 1);
    assert!(refuse_each("timerwheel", Op::Open, 13) > 1);
    assert!(refuse_each("timerwheel", Op::Read, 5) > 1);
    assert!(refuse_each("timerlog/00000000000000000000", Op::Read, 5) > 1);
    assert!(refuse_each("timerlog/00000000000000004096", Op::Read, 5) > 1);
    assert_eq!(refuse_each("config/timercheck", Op::Read, 5), 1);
}

#[test]
fn what_the_disk_cannot_read_of_wheel_or_log_is_an_error_with_its_place_and_comes_when_it_can() {
    let mut bench = Bench::new();
    let put: Vec<_> = (0..3).map(|_| bench.put(NOW_MS + 2_000, NOW_MS).0).collect();
    let late = bench.message(NOW_MS + 3_000, false);
    for (place, at) in [("timerwheel", "at byte "), ("timerlog", ", at byte 104")] {
        let path = bench.dir.path().join(place);
        let refused = arm(&path, Op::Read, 0, 5);
        let is_named = |error: StoreError| {
            let told = error.to_string();
            assert!(told.contains(&format!("cannot read {}", path.display())) && told.contains(at), "{told}");
        };
        if place == "timerwheel" {
            is_named(bench.timers.next_due(NOW_MS + 9_000).unwrap_err());
            is_named(bench.timers.put(&late, NOW_MS).unwrap_err());
        } else {
            is_named(bench.timers.units(NOW_MS + 2_000).unwrap_err());
            assert!(bench.timers.view().oldest().is_err());
            assert!(
                bench.timers.flusher().expire(&bench.timers.checkpoint()).is_ok(),
                "one file is not looked at"
            );
        }
        drop(refused);
    }
    let taken: Vec<_> = bench.take(NOW_MS + 9_000).into_iter().map(|(_, log_offset)| log_offset).collect();
    assert_eq!(taken, put);
}
