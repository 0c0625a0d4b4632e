//! What a crash may leave behind, and what the next open makes of it.
//!
//! Invariants:
//! - each test damages files of its own store and compares with what was appended;
//! - random tests print their seed when they fail.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use tempfile::TempDir;

use super::*;
use crate::commit_log::batch::AppendBatch;
use crate::config::FlushMode;
use crate::faults::{self, Op};
use crate::index::KeyQuery;
use crate::testing::{Random, Sample, close_well, small_files};

/// One appended message, as the model keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) log_offset: u64,
    pub(super) queue_id: i32,
    pub(super) queue_offset: i64,
    pub(super) fill: u8,
    pub(super) body_bytes: usize,
}

pub(super) fn config(dir: &TempDir) -> StoreConfig {
    StoreConfig { recycled_max: 1, ..small_files(dir.path()) }
}

pub(super) fn open_one(config: StoreConfig) -> Opened {
    open(config, Arc::new(crate::SystemClock::new())).unwrap()
}

/// Appends `count` messages of random length to three queues, in batches.
pub(super) fn fill(opened: &mut Opened, random: &mut Random, count: usize) -> Vec<Kept> {
    let mut kept = Vec::new();
    let mut batch = AppendBatch::default();
    while kept.len() < count {
        batch.clear();
        let mut sizes = Vec::new();
        for _ in 0..random.below(8) + 1 {
            let queue_id = i32::try_from(random.below(3)).unwrap();
            let sample = Sample { queue_id, fill: random.byte(), body_bytes: random.below(3_000) };
            let queue = opened.queues.open_or_create(Sample::TOPIC, queue_id).unwrap();
            sample.push(&mut batch, &queue);
            sizes.push(sample);
        }
        let appended = opened.log.append(&mut batch, 1_000_000).unwrap();
        assert!(appended.refused.is_none());
        opened.dispatch.dispatch(&batch, &appended).unwrap();
        kept.extend(batch.records.iter().zip(sizes).map(|(record, sample)| Kept {
            log_offset: record.log_offset,
            queue_id: sample.queue_id,
            queue_offset: record.queue_offset,
            fill: sample.fill,
            body_bytes: sample.body_bytes,
        }));
    }
    kept
}

/// The store holds exactly these messages.
pub(super) fn assert_holds(opened: &Opened, kept: &[Kept]) {
    for queue_id in 0..3 {
        let count = kept.iter().filter(|one| one.queue_id == queue_id).count();
        let max = opened.queues.get(Sample::TOPIC, queue_id).map_or(0, |queue| queue.max_offset());
        assert_eq!(max, i64::try_from(count).unwrap(), "end of queue {queue_id}");
    }
    for one in kept {
        let queue = opened.queues.get(Sample::TOPIC, one.queue_id).unwrap();
        let unit = queue.unit(one.queue_offset).unwrap_or_else(|| panic!("{one:?} has no unit"));
        assert_eq!(unit.log_offset, one.log_offset);
        let body = opened.reader.record_at(one.log_offset, |record| record.body().to_vec()).unwrap();
        assert_eq!(body, vec![one.fill; one.body_bytes]);
    }
}

/// Opens again, compares, goes on and opens once more.
pub(super) fn assert_recovers(dir: &TempDir, kept: &[Kept], random: &mut Random) {
    let mut opened = open_one(config(dir));
    assert_holds(&opened, kept);
    let mut all = kept.to_vec();
    all.extend(fill(&mut opened, random, 20));
    close_well(opened);
    let opened = open_one(config(dir));
    assert!(opened.report.was_closed && opened.report.replayed == 0);
    assert_holds(&opened, &all);
}

/// A store that was killed after `count` messages, with a checkpoint in the middle.
pub(super) fn killed(seed: u64, count: usize) -> (TempDir, Vec<Kept>, Random) {
    eprintln!("seed {seed}");
    let dir = TempDir::new().unwrap();
    let mut random = Random::seeded(seed);
    let mut opened = open_one(config(&dir));
    let mut kept = fill(&mut opened, &mut random, count / 2);
    opened.flusher.flush().unwrap();
    opened.marks.save(&opened.flusher.watch(), &opened.queues, opened.dispatch.flusher()).unwrap();
    kept.extend(fill(&mut opened, &mut random, count / 2));
    (dir, kept, random)
}

pub(super) fn copy(from: &Path, to: &Path) {
    assert!(std::process::Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap().success());
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(files_below(&path)) } else { files.push(path) }
    }
    files.sort();
    files
}

#[test]
fn a_kill_loses_nothing() {
    for seed in 0..4 {
        let (dir, kept, mut random) = killed(seed, 300);
        assert_recovers(&dir, &kept, &mut random);
    }
}

#[test]
fn a_torn_tail_is_cut_at_the_last_whole_record() {
    for seed in 100..112 {
        let (dir, mut kept, mut random) = killed(seed, 100);
        let last = kept.last().unwrap().log_offset;
        let first = kept[kept.len() - 10].log_offset;
        let at = first + random.below(usize::try_from(last - first).unwrap()) as u64;
        let file = dir.path().join("commitlog").join(format!("{:020}", at / 65_536 * 65_536));
        let garbage: Vec<u8> = (0..random.below(2_000) + 100).map(|_| random.byte()).collect();
        let end = (at % 65_536 + garbage.len() as u64).min(65_536);
        let len = usize::try_from(end - at % 65_536).unwrap();
        std::fs::OpenOptions::new()
            .write(true)
            .open(file)
            .unwrap()
            .write_all_at(&garbage[..len], at % 65_536)
            .unwrap();
        let opened = open_one(config(&dir));
        let cut = opened.report.log_end;
        drop(opened);
        // Damage of property bytes alone is not noticed, as in Java: the format has no CRC there.
        let whole = kept.iter().filter(|one| one.log_offset < cut).count();
        let hit = kept.iter().rposition(|one| one.log_offset <= at).unwrap();
        assert!(whole == hit || whole == hit + 1 || whole == hit + 2, "seed {seed}: {whole} of {hit}");
        kept.truncate(whole);
        assert_recovers(&dir, &kept, &mut random);
    }
}

#[test]
fn derived_files_are_never_a_reason_not_to_open() {
    for seed in 200..220 {
        let (dir, kept, mut random) = killed(seed, 200);
        // Without the mark of a crash the files are believed; with it they are looked at.
        let is_derived =
            |path: &PathBuf| !path.ends_with("abort") && !path.to_string_lossy().contains("commitlog");
        let files: Vec<PathBuf> = files_below(dir.path()).into_iter().filter(is_derived).collect();
        let done: Vec<_> = files.iter().map(|path| (path, damage(path, &mut random))).collect();
        eprintln!("seed {seed}: {done:?}");
        assert_recovers(&dir, &kept, &mut random);
    }
}

/// Damages one file in one of the ways disks, crashes and people know, or leaves it.
fn damage(path: &Path, random: &mut Random) -> usize {
    let len = std::fs::metadata(path).unwrap().len();
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    let kind = random.below(6);
    match kind {
        0 => std::fs::remove_file(path).unwrap(),
        1 => file.set_len(0).unwrap(),
        2 => file.set_len(len / 2).unwrap(),
        3 => file.set_len(len + 1_000).unwrap(),
        4 => {
            let at = len / 2;
            file.set_len(at).unwrap();
            file.set_len(len).unwrap();
        }
        _ => {}
    }
    kind
}

#[test]
fn an_older_checkpoint_or_older_queues_only_cost_a_longer_replay() {
    let (dir, kept, mut random) = killed(300, 100);
    let old = TempDir::new().unwrap();
    for name in ["checkpoint", "consumequeue", "index"] {
        copy(&dir.path().join(name), &old.path().join(name));
    }
    let mut opened = open_one(config(&dir));
    let mut all = kept;
    all.extend(fill(&mut opened, &mut random, 100));
    opened.flusher.flush().unwrap();
    opened.marks.save(&opened.flusher.watch(), &opened.queues, opened.dispatch.flusher()).unwrap();
    drop(opened);
    for name in ["consumequeue", "index"] {
        std::fs::remove_dir_all(dir.path().join(name)).unwrap();
        copy(&old.path().join(name), &dir.path().join(name));
    }
    assert_holds(&open_one(config(&dir)), &all);
    copy(&old.path().join("checkpoint"), &dir.path().join("checkpoint"));
    assert_recovers(&dir, &all, &mut random);
}

#[test]
fn what_a_recycled_segment_held_before_never_counts() {
    for (seed, flush) in [(400, FlushMode::Async), (401, FlushMode::Sync)] {
        let (dir, mut kept, mut random) = killed(seed, 200);
        let settings = || StoreConfig { flush, ..config(&dir) };
        // A full old segment comes back as the next one, and as the one after.
        std::fs::create_dir(dir.path().join("recycled")).unwrap();
        for name in ["a", "b", "c"] {
            let old = dir.path().join("commitlog").join(format!("{:020}", 0));
            std::fs::copy(old, dir.path().join("recycled").join(name)).unwrap();
        }
        let mut opened = open_one(settings());
        let before = opened.reader.segments().snapshot().len();
        while opened.reader.segments().snapshot().len() < before + 3 {
            kept.extend(fill(&mut opened, &mut random, 10));
        }
        drop(opened);
        let opened = open_one(settings());
        assert_holds(&opened, &kept);
        drop(opened);
        assert_recovers(&dir, &kept, &mut random);
    }
}

#[test]
fn a_missing_segment_is_refused_by_name() {
    let (dir, _, _) = killed(500, 300);
    std::fs::remove_file(dir.path().join("commitlog").join(format!("{:020}", 65_536))).unwrap();
    let error = open(config(&dir), Arc::new(crate::SystemClock::new())).unwrap_err();
    assert!(error.to_string().contains("00000000000000131072 is damaged"), "{error}");
}

#[test]
fn a_lost_log_takes_its_queues_with_it() {
    let (dir, _, mut random) = killed(600, 100);
    std::fs::remove_dir_all(dir.path().join("commitlog")).unwrap();
    assert_recovers(&dir, &[], &mut random);
}

/// A disk that lost its power: of what was not forced to it, each page may be there or not.
#[test]
fn a_loss_of_power_costs_nothing_that_was_flushed() {
    for seed in 700..720 {
        let (dir, mut kept, mut random) = killed(seed, 100);
        let mut opened = open_one(config(&dir));
        kept.extend(fill(&mut opened, &mut random, 60));
        let flushed_to = opened.flusher.flush().unwrap();
        let derived = TempDir::new().unwrap();
        if random.below(2) == 0 {
            opened.marks.save(&opened.flusher.watch(), &opened.queues, opened.dispatch.flusher()).unwrap();
        }
        for name in ["checkpoint", "consumequeue", "index"] {
            copy(&dir.path().join(name), &derived.path().join(name));
        }
        kept.extend(fill(&mut opened, &mut random, 60));
        let end = opened.reader.wrote_to();
        drop(opened);
        lose_pages(&dir, flushed_to, end, &mut random);
        for name in ["consumequeue", "index"].into_iter().filter(|_| seed % 3 == 0) {
            std::fs::remove_dir_all(dir.path().join(name)).unwrap();
            copy(&derived.path().join(name), &dir.path().join(name));
        }
        let opened = open_one(config(&dir));
        let cut = opened.report.log_end;
        assert!(cut >= flushed_to, "seed {seed}");
        drop(opened);
        kept.retain(|one| one.log_offset < cut);
        assert_recovers(&dir, &kept, &mut random);
    }
}

/// The page cache has it after a kill; that does not mean that the disk has.
#[test]
fn what_a_start_finds_behind_the_checkpoint_counts_as_flushed_once_it_was_flushed_again() {
    let (dir, kept, _) = killed(41, 60);
    let mut opened = open_one(config(&dir));
    assert_holds(&opened, &kept);
    let (saved_to, end) = (opened.marks.saved_to(), opened.reader.wrote_to());
    assert!(saved_to < end);
    assert_eq!(opened.flusher.flushed_to(), saved_to);
    let refused = faults::arm(&dir.path().join("commitlog"), Op::Flush, 0, 5);
    assert!(opened.flusher.flush().is_err() && refused.has_struck(), "the disk is asked");
    assert_eq!(opened.flusher.flushed_to(), saved_to);
}

/// A page of units that was not forced to the disk is zero after a loss of power, the page behind it is there.
#[test]
fn a_hole_among_the_units_behind_the_checkpoint_is_filled_from_the_log() {
    let dir = TempDir::new().unwrap();
    let config = StoreConfig { queue_file_bytes: 40_000, log_segment_bytes: 1 << 20, ..config(&dir) };
    let mut opened = open_one(config.clone());
    let store = |opened: &mut Opened, fill| {
        Sample { queue_id: 0, fill, body_bytes: 50 }.store(opened, Sample::TOPIC, 1);
    };
    store(&mut opened, 0);
    opened.flusher.flush().unwrap();
    opened.marks.save(&opened.flusher.watch(), &opened.queues, opened.dispatch.flusher()).unwrap();
    (1..1_000_u16).for_each(|at| store(&mut opened, at.to_be_bytes()[1]));
    drop(opened);
    let file = dir.path().join("consumequeue").join(Sample::TOPIC).join("0").join(format!("{:020}", 0));
    let file = std::fs::OpenOptions::new().write(true).open(file).unwrap();
    file.write_all_at(&[0; 4_096], 4_096).unwrap();
    let opened = open_one(config);
    let queue = opened.queues.get(Sample::TOPIC, 0).unwrap();
    assert_eq!((queue.max_offset(), queue.units(0, 1_000).count()), (1_000, 1_000));
    for at in 0..1_000_u16 {
        let unit = queue.unit(at.into()).unwrap();
        let fill = opened.reader.record_at(unit.log_offset, |record| record.body()[0]);
        assert_eq!(fill, Some(at.to_be_bytes()[1]), "{at}");
    }
}

/// What stood behind a torn record fits behind the one that takes its place, and must not come back.
#[test]
fn a_record_behind_a_torn_one_never_comes_back_once_another_took_its_place() {
    let dir = TempDir::new().unwrap();
    let mut opened = open_one(config(&dir));
    let store = |opened: &mut Opened, fill| {
        Sample { queue_id: 0, fill, body_bytes: 500 }.store(opened, Sample::TOPIC, 1);
    };
    store(&mut opened, 1);
    opened.flusher.flush().unwrap();
    opened.marks.save(&opened.flusher.watch(), &opened.queues, opened.dispatch.flusher()).unwrap();
    let torn = opened.reader.wrote_to();
    (2..=4).for_each(|fill| store(&mut opened, fill));
    drop(opened);
    let file = dir.path().join("commitlog").join(format!("{:020}", 0));
    let file = std::fs::OpenOptions::new().write(true).open(file).unwrap();
    file.write_all_at(b"torn", torn + 200).unwrap();
    let mut opened = open_one(config(&dir));
    assert_eq!(opened.reader.wrote_to(), torn);
    store(&mut opened, 9);
    drop(opened);
    let opened = open_one(config(&dir));
    let queue = opened.queues.get(Sample::TOPIC, 0).unwrap();
    let fills = queue.units(0, 10).map(|unit| {
        opened.reader.record_at(unit.log_offset, |record| record.body()[0]).expect("its record is there")
    });
    assert_eq!(fills.collect::<Vec<_>>(), [1, 9]);
}

/// The header of the index reached the disk before a loss of power, its last entries did not.
#[test]
fn entries_of_the_index_behind_the_checkpoint_are_made_again() {
    let dir = TempDir::new().unwrap();
    let mut opened = open_one(config(&dir));
    let mut random = Random::seeded(43);
    let mut count = fill(&mut opened, &mut random, 1).len();
    opened.flusher.flush().unwrap();
    opened.marks.save(&opened.flusher.watch(), &opened.queues, opened.dispatch.flusher()).unwrap();
    count += fill(&mut opened, &mut random, 100).len();
    drop(opened);
    let path = files_below(&dir.path().join("index")).remove(0);
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    // Behind the header and the slots two entries for each message, as each has two keys.
    let from = 40 + 4 * 500 + 20 * 40;
    let zeros = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap() - from];
    file.write_all_at(&zeros, from as u64).unwrap();
    let opened = open_one(config(&dir));
    let query = KeyQuery { topic: Sample::TOPIC, key: "KeyB", begin_ms: 0, end_ms: i64::MAX, max: 1_000 };
    assert_eq!(opened.dispatch.index().query(&query).unwrap().len(), count);
}

/// Whoever looks at the checkpoint takes what it says for what the disk has.
#[test]
fn a_checkpoint_never_says_that_more_is_dispatched_than_is_flushed() {
    let dir = TempDir::new().unwrap();
    let mut opened = open_one(config(&dir));
    fill(&mut opened, &mut Random::seeded(44), 20);
    let flushed_to = opened.flusher.flush().unwrap();
    fill(&mut opened, &mut Random::seeded(45), 20);
    opened.marks.save(&opened.flusher.watch(), &opened.queues, opened.dispatch.flusher()).unwrap();
    let reached = Checkpoint::read(&dir.path().join("checkpoint")).unwrap().reached.unwrap();
    assert_eq!((reached.flushed_to, reached.dispatched_to), (flushed_to, flushed_to));
}

#[test]
fn a_store_that_was_closed_before_all_was_dispatched_is_read_again() {
    let dir = TempDir::new().unwrap();
    let mut opened = open_one(config(&dir));
    let mut kept = fill(&mut opened, &mut Random::seeded(46), 20);
    let (queue_id, fill, body_bytes) = (0, 7, 10);
    let queue = opened.queues.open_or_create(Sample::TOPIC, queue_id).unwrap();
    let mut batch = AppendBatch::default();
    Sample { queue_id, fill, body_bytes }.push(&mut batch, &queue);
    opened.log.append(&mut batch, 1_000_000).unwrap();
    let (log_offset, queue_offset) = (batch.records[0].log_offset, batch.records[0].queue_offset);
    kept.push(Kept { log_offset, queue_id, queue_offset, fill, body_bytes });
    close_well(opened);
    let opened = open_one(config(&dir));
    assert!(!opened.report.was_closed);
    assert_holds(&opened, &kept);
}

/// Zeroes pages of the log behind `from`, each with a chance of a half.
fn lose_pages(dir: &TempDir, from: u64, to: u64, random: &mut Random) {
    for page in (from.next_multiple_of(4_096)..to).step_by(4_096) {
        if random.below(2) == 0 {
            let path = dir.path().join("commitlog").join(format!("{:020}", page / 65_536 * 65_536));
            let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
            file.write_all_at(&[0; 4_096], page % 65_536).unwrap();
        }
    }
}

/// What a start that was cut off has brought back counts like what the checkpoint promises.
#[test]
fn a_start_that_is_cut_off_leaves_no_messages_of_a_topic_that_was_deleted_and_made_again() {
    let dir = TempDir::new().unwrap();
    let mut opened = open_one(config(&dir));
    let store = |opened: &mut Opened, topic: &str, count| {
        let sample = Sample { queue_id: 0, fill: 1, body_bytes: 1_000 };
        (0..count).for_each(|_| sample.store(opened, topic, 1));
    };
    store(&mut opened, "Lost", 1);
    store(&mut opened, "Gone", 2);
    store(&mut opened, "Kept", 100);
    opened.queues.remove("Gone").unwrap();
    store(&mut opened, "Kept", 100);
    let again_at = opened.reader.wrote_to();
    store(&mut opened, "Gone", 1);
    opened.flusher.flush().unwrap();
    opened.marks.save(&opened.flusher.watch(), &opened.queues, opened.dispatch.flusher()).unwrap();
    drop(opened);
    std::fs::remove_dir_all(dir.path().join("consumequeue/Lost")).unwrap();
    let second = dir.path().join("commitlog").join(format!("{:020}", 65_536));
    let broken = faults::arm(&second, Op::Read, 0, 5);
    let why = open(config(&dir), Arc::new(crate::SystemClock::new())).unwrap_err().to_string();
    assert!(why.contains(&second.display().to_string()), "it ends on its way: {why}");
    drop(broken);
    let opened = open_one(config(&dir));
    assert_eq!(opened.report.replayed_from, 0, "the whole way once more");
    let gone = opened.queues.get("Gone", 0).unwrap();
    assert_eq!((gone.min_offset(), gone.max_offset()), (0, 1));
    assert_eq!(gone.unit(0).map(|unit| unit.log_offset), Some(again_at));
    assert_eq!(opened.queues.get("Lost", 0).map(|lost| lost.max_offset()), Some(1));
    close_well(opened);
    let opened = open_one(config(&dir));
    assert!(opened.report.was_closed && opened.report.replayed == 0);
}
