//! Finding the timers after a start.
//!
//! Invariants:
//! - a unit whose message the log has not, or of which a kill has left a part, and everything behind it, is cut: the
//!   topic enters it again;
//! - a log of which a file is missing, short or foreign is dropped with its wheel: units that went round again
//!   stand anywhere in it, so all timers are entered again from the topic. Whether its first files are missing or were
//!   deleted as done, wheel and units need not tell, which may be lost too: who deletes notes it first;
//! - a file that cannot be read is put aside and counts as missing; a message that cannot be read proves nothing
//!   against its unit;
//! - what is made anew of wheel and log is noted on the disk before anything is entered into it: what the check point
//!   knew of the log before counts for nothing then, also if power is lost in front of the next one;
//! - every slot that a unit near the end of the log belongs to is linked anew;
//! - nothing that is due is lost, however long the stop was;
//! - what went round again from a slot that is not noted as delivered is known.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use troupemq_codec::timer_record::{TimerCheckpoint, TimerUnit, UNIT_BYTES};

use super::checkpoint::Ours;
use super::log::TimerLog;
use super::messages::Messages;
use super::recent::Recent;
use super::wheel::Wheel;
use super::{TIMER_TOPIC, TimerFlusher, TimerPaths, TimerStore, Told, checkpoint};
use crate::config::StoreConfig;
use crate::consume_queue::QueueTable;
use crate::error::StoreError;
use crate::paths::without_unreadable;
use crate::reader::LogReader;

/// Milliseconds of an hour.
const HOUR_MS: i64 = 3_600_000;
/// The longest a unit can be ahead of when it was written.
const WINDOW_MAX_MS: i64 = 7 * 86_400_000;
/// Bytes in front of the flushed position that are looked at as well (Java: one default segment).
const LOOK_BACK_BYTES: u64 = 104_857_600;
const FRONT_IS_MISSING: &str = "its first files are missing";

impl TimerStore {
    /// Opens the timers of a store whose log and queues are open.
    pub fn open(
        config: &StoreConfig,
        queues: &QueueTable,
        reader: &LogReader,
        now_ms: i64,
    ) -> Result<TimerStore, StoreError> {
        TimerStore::open_looking_back(config, (queues, reader), now_ms, LOOK_BACK_BYTES)
    }

    /// The same with so many bytes in front of the flushed position looked at.
    pub(super) fn open_looking_back(
        config: &StoreConfig,
        (queues, reader): (&QueueTable, &LogReader),
        now_ms: i64,
        look_back_bytes: u64,
    ) -> Result<TimerStore, StoreError> {
        let mut attempts = 0;
        without_unreadable(&config.dir, || {
            attempts += 1;
            // A wheel that an attempt has made anew knows nothing yet.
            TimerStore::open_once(config, (queues, reader), (now_ms, look_back_bytes), attempts == 1)
        })
    }

    fn open_once(
        config: &StoreConfig,
        (queues, reader): (&QueueTable, &LogReader),
        (now_ms, look_back_bytes): (i64, u64),
        trusts_wheel: bool,
    ) -> Result<TimerStore, StoreError> {
        let paths = TimerPaths::below(&config.dir);
        let (mut known, ours) = checkpoint::read(&paths.checkpoint)?;
        let (noted_start, noted_entered) = ours.map_or((0, 0), |ours| (ours.log_start, ours.entered_before));
        let entered_before = known.queue_offset.max(noted_entered);
        let precision_ms = i64::from(config.timer_precision_ms);
        let is_same = |ours: Ours| ours.precision_ms == precision_ms && !ours.wheel_is_new;
        let is_believed = trusts_wheel && Wheel::is_there(&paths.wheel) && ours.is_none_or(is_same);
        let flushed_to = known.flushed_to.max(0).cast_unsigned();
        let looked_from = flushed_to.saturating_sub(look_back_bytes);
        let open_log =
            || open_log(&paths.log, config.timer_log_file_bytes, reader, (looked_from, flushed_to));
        let (mut log, mut behind) = open_log()?;
        if !is_believed && flushed_to > 0 {
            checkpoint::note_new_wheel(&paths.checkpoint, precision_ms)?;
        }
        let (mut wheel, mut is_new) = Wheel::open(&paths.wheel, precision_ms, is_believed)?;
        let read_to_ms = read_to_ms(&known, &log, (now_ms, precision_ms))?;
        let may_start = ours.map_or(flushed_to, |ours| ours.log_start.min(flushed_to));
        let front = damage_of_front((&log, may_start), (&wheel, is_new), &paths.wheel, read_to_ms)?;
        let damage = front.map_or_else(|| damage_of_files(&log, reader, flushed_to), |why| Ok(Some(why)))?;
        if let Some(why) = damage {
            tracing::warn!(dir = %paths.log.display(), why, "the timer log is made anew from its topic");
            log.remove()?;
            known = TimerCheckpoint { last_read_ms: read_to_ms, flushed_to: 0, queue_offset: 0, ..known };
            checkpoint::note_new_log(&paths.checkpoint, &known, (precision_ms, entered_before))?;
            (log, behind) = open_log()?;
            (wheel, is_new) = Wheel::open(&paths.wheel, precision_ms, false)?;
        }
        if noted_start != log.start() {
            checkpoint::note_log_start(&paths.checkpoint, log.start())?;
        }
        let (kept_ms, window_ms) = spans_ms(config);
        let queue_offset = queue_offset(queues, reader, &log, (behind, &known))?;
        let mut store = TimerStore {
            flusher: TimerFlusher {
                segments: Arc::clone(log.segments()),
                wheel: wheel.clone(),
                paths: Arc::new(paths),
                flushed_to: Arc::new(AtomicU64::new(0)),
                precision_ms,
            },
            wheel,
            recent: Recent::default(),
            precision_ms,
            window_ms,
            kept_ms,
            pending: 0,
            behind: BTreeSet::new(),
            behind_to_ms: i64::MIN,
            reached: TimerCheckpoint { last_read_ms: read_to_ms, ..known },
            told: Arc::new(Told::new(read_to_ms, queue_offset)),
            entered_before,
            delivered_before_ms: read_to_ms,
            entered_since: entered_since(&log, read_to_ms, precision_ms)?,
            log,
        };
        store.entered(queue_offset);
        // Java forces its wheel not when it stops: the units near the end are linked again whatever the stop was.
        let from = if is_new { store.log.start_of(read_to_ms - WINDOW_MAX_MS)? } else { looked_from };
        store.link_again(from)?;
        store.pending = store.count()?;
        Ok(store)
    }

    /// Links the slots of all units from position `from` on, and of those slots that point beyond the log.
    fn link_again(&mut self, from: u64) -> Result<(), StoreError> {
        let (end, read_to_ms) = (self.log.end().cast_signed(), self.read_to_ms());
        let mut from = from;
        let mut broken = Vec::new();
        self.wheel.each(&self.flusher.paths.wheel, read_to_ms, |time_ms, slot| {
            if slot.last >= end || slot.first >= end || slot.first > slot.last {
                from = from.min(u64::try_from(slot.first).unwrap_or(0));
                broken.push(time_ms);
            }
        })?;
        let path = &self.flusher.paths.wheel;
        for time_ms in broken {
            self.wheel.reserve(path, time_ms)?;
            self.wheel.clear(time_ms);
        }
        let (mut touched, mut refused) = (BTreeSet::new(), None);
        self.log.each_from(from, |position, unit| {
            let time_ms = self.floor(unit.due_ms());
            if time_ms >= read_to_ms && refused.is_none() {
                refused = self.link(time_ms, position.cast_signed()).err();
                touched.insert(time_ms);
            }
        })?;
        if let Some(refused) = refused {
            return Err(refused);
        }
        for time_ms in touched {
            let mut count = 0;
            self.slot(time_ms)?.each(|unit| count += if unit.is_delete() { -1 } else { 1 })?;
            if let Some(slot) = self.wheel.get(time_ms)? {
                self.wheel.put(time_ms, slot.first, slot.last, count);
            }
        }
        Ok(())
    }

    /// Makes the unit at a position the newest of its slot.
    fn link(&self, time_ms: i64, position: i64) -> Result<(), StoreError> {
        self.wheel.reserve(&self.flusher.paths.wheel, time_ms)?;
        let first = self.wheel.get(time_ms)?.map_or(position, |slot| slot.first.min(position));
        self.wheel.put(time_ms, first, position, 0);
        Ok(())
    }

    /// Sums the slots that are not delivered.
    fn count(&self) -> Result<i64, StoreError> {
        let mut pending = 0;
        self.wheel.each(&self.flusher.paths.wheel, self.read_to_ms(), |_, slot| {
            pending += i64::from(slot.count);
        })?;
        Ok(pending)
    }
}

/// The slot time before which everything was delivered, epoch ms.
fn read_to_ms(
    known: &TimerCheckpoint,
    log: &TimerLog,
    (now_ms, precision_ms): (i64, i64),
) -> Result<i64, StoreError> {
    let read_to_ms = match known.last_read_ms {
        // Nothing can have been due before the first timer was entered.
        0 => log.first()?.map_or(now_ms, |first| first.written_ms.min(now_ms)),
        last_read_ms => last_read_ms,
    };
    Ok(read_to_ms - read_to_ms.rem_euclid(precision_ms))
}

/// Opens the timer log; answers also the offset in the topic behind the messages of the units that were not flushed.
fn open_log(
    dir: &Path,
    file_bytes: u64,
    reader: &LogReader,
    (from, flushed_to): (u64, u64),
) -> Result<(TimerLog, i64), StoreError> {
    let mut messages = Messages::of(reader);
    let mut looked_to = 0;
    let keep = |position, unit: &TimerUnit| {
        let is_kept = messages.keep(unit, position < flushed_to);
        looked_to = if is_kept { position + UNIT_BYTES as u64 } else { looked_to };
        is_kept
    };
    let log = TimerLog::open(dir.to_owned(), file_bytes, from, keep)?;
    // A file that has lost its end goes with all its units: their messages are to be entered again.
    let behind = if looked_to > log.end() { 0 } else { messages.next_queue_offset };
    Ok((log, behind))
}

/// How long a message surely lies in the log, and the time ahead up to which timers go to their own slot, both in ms.
fn spans_ms(config: &StoreConfig) -> (i64, i64) {
    let kept_ms = i64::from(config.reserved_hours) * HOUR_MS / 3 * 2;
    let precision_ms = i64::from(config.timer_precision_ms);
    (kept_ms, (i64::from(config.timer_roll_window_slots) * precision_ms).min(kept_ms))
}

/// The last slot of each message that was entered from `since_ms` on, by log offset.
fn entered_since(log: &TimerLog, since_ms: i64, precision_ms: i64) -> Result<HashMap<u64, i64>, StoreError> {
    let mut entered = HashMap::new();
    log.each_from(log.start_of(since_ms)?, |_, unit| {
        if unit.written_ms >= since_ms {
            let slot_ms = unit.due_ms() - unit.due_ms().rem_euclid(precision_ms);
            let known = entered.entry(unit.log_offset.cast_unsigned()).or_insert(slot_ms);
            *known = slot_ms.max(*known);
        }
    })?;
    Ok(entered)
}

/// Whether the log begins behind the place at which it may, or slots that are not delivered begin in front of it; of a
/// new wheel, whether such units follow others there.
fn damage_of_front(
    (log, may_start): (&TimerLog, u64),
    (wheel, is_new): (&Wheel, bool),
    path: &Path,
    read_to_ms: i64,
) -> Result<Option<&'static str>, StoreError> {
    let (missing, mut is_missing) = (0..log.start().cast_signed(), log.start() > may_start);
    if is_missing {
        return Ok(Some(FRONT_IS_MISSING));
    }
    if is_new {
        log.each_from(log.start_of(read_to_ms - WINDOW_MAX_MS)?, |_, unit| {
            is_missing |= unit.due_ms() >= read_to_ms && missing.contains(&unit.previous);
        })?;
    } else {
        wheel.each(path, read_to_ms, |_, slot| is_missing |= missing.contains(&slot.first))?;
    }
    Ok(is_missing.then_some(FRONT_IS_MISSING))
}

/// Whether the log ends in front of what was flushed, or a file begins with a unit that its message knows nothing of.
fn damage_of_files(
    log: &TimerLog,
    reader: &LogReader,
    flushed_to: u64,
) -> Result<Option<&'static str>, StoreError> {
    if log.end() < flushed_to {
        return Ok(Some("its last files are missing"));
    }
    let is_foreign = log.first_of_each()?.iter().any(|unit| !Messages::of(reader).keep(unit, false));
    Ok(is_foreign.then_some("a file is of another store"))
}

/// Offset of the next message to enter: behind the last one that has a unit, and behind what the check point knows
/// to be entered, unless the log has lost what the check point knows. `behind` is the same of those units that were not
/// flushed.
fn queue_offset(
    queues: &QueueTable,
    reader: &LogReader,
    log: &TimerLog,
    (behind, known): (i64, &TimerCheckpoint),
) -> Result<i64, StoreError> {
    // The last unit may be one that went round again, of an older message.
    let last = log.last()?.map(|last| {
        let next = reader.fetch_record(last.log_offset.cast_unsigned(), |record| record.queue_offset() + 1);
        next.unwrap_or_else(|error| {
            tracing::error!(%error, "the message of a timer cannot be read");
            None
        })
    });
    let mut offset = last.flatten().unwrap_or(0).max(behind);
    if log.end() >= known.flushed_to.cast_unsigned() {
        offset = offset.max(known.queue_offset);
    }
    Ok(match queues.get(TIMER_TOPIC, 0) {
        Some(queue) => offset.clamp(queue.min_offset(), queue.max_offset()),
        None => 0,
    })
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::super::timer_test::{Bench, NOW_MS};
    use super::super::{NewTimer, Placed};
    use super::*;
    use crate::{ManualClock, open};

    /// Found by a loss of power before the first check point.
    #[test]
    fn a_file_that_has_lost_its_end_before_a_check_point_was_noted_costs_no_timer() {
        let mut bench = Bench::new();
        for _ in 0..60 {
            let timer = bench.message(NOW_MS + 5_000, false);
            bench.timers.put(&timer, NOW_MS).unwrap();
        }
        let path = bench.dir.path().join("timerlog").join("00000000000000000000");
        // Fifty units, and less behind them than the blank that closes a file.
        let half = (50 * UNIT_BYTES + 8) as u64;
        OpenOptions::new().write(true).open(path).unwrap().set_len(half).unwrap();
        std::fs::remove_file(bench.dir.path().join("timerwheel")).unwrap();
        let bench = bench.reopen(NOW_MS);
        assert_eq!((bench.timers.next_queue_offset(), bench.timers.pending()), (0, 0));
    }

    /// By reading: units that went round filled the new log up to where the old one was flushed.
    #[test]
    fn a_log_made_anew_counts_nothing_as_entered_that_only_the_one_before_had() {
        let mut bench = Bench::new();
        (0..80).for_each(|_| _ = bench.put(NOW_MS + 5_000, NOW_MS));
        let timers: Vec<_> = (0..5).map(|_| bench.message(NOW_MS + 5_000, false)).collect();
        timers.iter().for_each(|timer| _ = bench.timers.put(timer, NOW_MS).unwrap());
        bench.timers.entered(85);
        bench.flush();
        let flushed_to = bench.timers.checkpoint().flushed_to;
        std::fs::remove_file(bench.dir.path().join("timerlog").join("00000000000000000000")).unwrap();
        let mut bench = bench.reopen(NOW_MS);
        assert_eq!(bench.timers.next_queue_offset(), 0);
        let first = NewTimer { queue_offset: 0, log_offset: 0, ..timers[0] };
        while bench.timers.checkpoint().flushed_to < flushed_to {
            bench.timers.put(&first, NOW_MS).unwrap();
        }
        bench.timers.entered(1);
        let bench = bench.reopen(NOW_MS);
        assert_eq!(bench.timers.next_queue_offset(), 1);
    }

    /// What was delivered before is not known by the new log, and not by the check point noted for it.
    #[test]
    fn what_was_delivered_before_a_log_was_made_anew_is_known_whatever_was_flushed_since() {
        let read_to_ms = NOW_MS + 200_000;
        for flushes in [false, true] {
            let mut bench = Bench::new();
            let timers: Vec<_> = (0..3).map(|_| bench.message(NOW_MS + 1_000, false)).collect();
            timers.iter().for_each(|timer| _ = bench.timers.put(timer, NOW_MS).unwrap());
            bench.timers.entered(3);
            bench.take(read_to_ms);
            bench.flush();
            std::fs::remove_dir_all(bench.dir.path().join("timerlog")).unwrap();
            let mut bench = bench.reopen(read_to_ms);
            assert_eq!(bench.timers.put(&timers[0], read_to_ms).unwrap(), Placed::Done);
            bench.timers.entered(1);
            if flushes {
                bench.flush();
            }
            let mut bench = bench.reopen(read_to_ms);
            assert_eq!(bench.timers.next_queue_offset(), i64::from(flushes));
            assert_eq!(bench.timers.put(&timers[2], read_to_ms).unwrap(), Placed::Done);
        }
    }

    /// Found by a loss of power that let the first file grow and took the second one: it seemed to reach behind what
    /// was flushed.
    #[test]
    fn a_file_that_has_grown_does_not_hide_that_the_next_one_is_missing() {
        let mut bench = Bench::new();
        (0..90).for_each(|_| _ = bench.put(NOW_MS + 5_000, NOW_MS));
        bench.timers.entered(90);
        bench.flush();
        let file = |name: &str| bench.dir.path().join("timerlog").join(name);
        std::fs::remove_file(file("00000000000000004096")).unwrap();
        let first = OpenOptions::new().write(true).open(file("00000000000000000000")).unwrap();
        first.set_len(4096 + 1000).unwrap();
        assert_eq!(bench.reopen(NOW_MS).timers.next_queue_offset(), 0);
    }

    /// Reopens a store with so many bytes in front of the flushed position looked at.
    fn reopen_looking_back(bench: Bench, look_back_bytes: u64) -> Bench {
        let Bench { dir, store, timers } = bench;
        let config = store.config.clone();
        drop((store, timers));
        let store = open(config.clone(), Arc::new(ManualClock::at(NOW_MS))).unwrap();
        let of_store = (&store.queues, &store.reader);
        let timers = TimerStore::open_looking_back(&config, of_store, NOW_MS, look_back_bytes).unwrap();
        Bench { dir, store, timers }
    }

    /// Found by a loss of power that took the end of a file in front of the last one.
    #[test]
    fn what_files_have_lost_that_were_flushed_is_entered_again() {
        let mut bench = Bench::new();
        (0..300).for_each(|_| _ = bench.put(NOW_MS + 5_000, NOW_MS));
        bench.timers.entered(300);
        bench.flush();
        let first = bench.dir.path().join("timerlog").join("00000000000000000000");
        let file = OpenOptions::new().write(true).open(&first).unwrap();
        file.set_len(988).unwrap();
        file.set_len(4096).unwrap();
        assert_eq!(bench.reopen(NOW_MS).timers.next_queue_offset(), 0);
    }

    /// By reading: power was lost before a wheel made anew was on the disk, which knew its length only.
    #[test]
    fn a_wheel_made_anew_of_which_the_disk_has_only_a_part_is_made_anew_again() {
        let mut bench = Bench::new();
        let put: Vec<_> = (0..200).map(|_| bench.put(NOW_MS + 5_000 + HOUR_MS, NOW_MS).0).collect();
        bench.put(NOW_MS + 5_000, NOW_MS);
        (0..160).for_each(|_| _ = bench.put(NOW_MS + 9_000, NOW_MS));
        bench.flush();
        std::fs::remove_file(bench.dir.path().join("timerwheel")).unwrap();
        let bench = bench.reopen(NOW_MS);
        assert_eq!(bench.timers.pending(), 361);
        empty_wheel(bench.dir.path());
        // What is looked at is entered into any wheel anew: less than all must be.
        let bench = reopen_looking_back(bench, 4096);
        assert_eq!(bench.timers.pending(), 361);
        // Once it is on the disk it is believed.
        bench.flush();
        let mut bench = bench.reopen(NOW_MS);
        assert!(!checkpoint::read(&bench.timers.flusher.paths.checkpoint).unwrap().1.unwrap().wheel_is_new);
        let taken = bench.take(NOW_MS + 2 * HOUR_MS);
        assert_eq!(taken.len(), 361);
        let last = taken[161..].iter().map(|(_, log_offset)| *log_offset).collect::<Vec<_>>();
        assert_eq!(last, put);
    }

    /// A log of two files: all but the last few units are in the first one, which `take` has to go.
    fn without_first_file(take: impl FnOnce(&mut Bench), lose: impl FnOnce(&Path)) -> Bench {
        let mut bench = Bench::new();
        (0..90).for_each(|_| _ = bench.put(NOW_MS + 5_000, NOW_MS));
        (0..3).for_each(|_| _ = bench.put(NOW_MS + 9_000, NOW_MS));
        take(&mut bench);
        let path = bench.dir.path().to_owned();
        drop(std::fs::remove_file(path.join("timerlog").join("00000000000000000000")));
        lose(&path);
        bench.reopen(NOW_MS)
    }

    /// The units that are left follow none of the lost file, and a wheel of which nothing is left is as long as ever.
    fn empty_wheel(store: &Path) {
        let wheel = OpenOptions::new().write(true).open(store.join("timerwheel")).unwrap();
        let len = wheel.metadata().unwrap().len();
        wheel.set_len(0).and_then(|()| wheel.set_len(len)).unwrap();
    }

    /// Found by a loss of power after a log was made anew.
    #[test]
    fn a_first_file_that_is_lost_with_the_wheel_costs_no_timer() {
        let is_new = |store: &Path| std::fs::remove_file(store.join("timerwheel")).unwrap();
        for lose in [empty_wheel as fn(&Path), is_new] {
            for take in [(|_| ()) as fn(&mut Bench), |bench| bench.flush()] {
                let bench = without_first_file(take, lose);
                assert_eq!((bench.timers.next_queue_offset(), bench.timers.pending()), (0, 0));
            }
        }
    }

    #[test]
    fn a_first_file_that_is_lost_after_others_were_deleted_costs_no_timer() {
        let file = |bench: &Bench, start: u64| bench.dir.path().join("timerlog").join(format!("{start:020}"));
        let mut bench = Bench::new();
        (0..80).for_each(|_| _ = bench.put(NOW_MS + 1_000, NOW_MS));
        bench.take(NOW_MS + 2_000);
        (0..80).for_each(|_| _ = bench.put(NOW_MS + 90_000, NOW_MS + 2_000));
        bench.flush();
        assert_eq!(bench.timers.flusher().expire(&bench.timers.checkpoint()).unwrap(), 1);
        let bench = bench.reopen(NOW_MS + 2_000);
        assert_eq!((bench.timers.next_queue_offset(), bench.timers.pending()), (160, 80), "all are known");
        std::fs::remove_file(file(&bench, 4096)).unwrap();
        empty_wheel(bench.dir.path());
        let bench = bench.reopen(NOW_MS + 2_000);
        assert_eq!((bench.timers.next_queue_offset(), bench.timers.pending()), (0, 0));
        // The new log begins at its start, and may lose that too.
        let mut bench = bench;
        (0..90).for_each(|_| _ = bench.put(NOW_MS + 90_000, NOW_MS + 2_000));
        bench.flush();
        std::fs::remove_file(file(&bench, 0)).unwrap();
        empty_wheel(bench.dir.path());
        let bench = bench.reopen(NOW_MS + 2_000);
        assert_eq!((bench.timers.next_queue_offset(), bench.timers.pending()), (0, 0));
    }
}
