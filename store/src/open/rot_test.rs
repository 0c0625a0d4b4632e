//! Logs that are damaged in the middle, and checkpoints that are not of their log.
//!
//! Invariants:
//! - damage costs the messages that were hit, and no other;
//! - what goes on is stored behind the last record, never behind a hole.

use std::os::unix::fs::FileExt;
use std::path::Path;

use tempfile::TempDir;

use super::crash_test::{Kept, assert_recovers, config, copy, fill, killed, open_one};
use super::*;
use crate::index::KeyQuery;
use crate::inspect::{StoreView, rebuild};
use crate::testing::{Random, Sample, close_well};

/// A store closed in good order, of many segments.
fn closed(seed: u64, count: usize) -> (TempDir, Vec<Kept>, Random) {
    let (dir, kept, random) = killed(seed, count);
    close_well(open_one(config(&dir)));
    (dir, kept, random)
}

/// Changes a byte of the body of the message.
fn rot(dir: &Path, one: &Kept) {
    let path = dir.join("commitlog").join(format!("{:020}", one.log_offset / 65_536 * 65_536));
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[one.fill ^ 1], one.log_offset % 65_536 + 90).unwrap();
}

/// All messages but the lost ones are at their offsets.
fn assert_lacks(opened: &Opened, kept: &[Kept], lost: &[usize]) {
    for (number, one) in kept.iter().enumerate() {
        let queue = opened.queues.get(Sample::TOPIC, one.queue_id).unwrap();
        let unit = queue.unit(one.queue_offset).unwrap_or_else(|| panic!("{one:?} has no unit"));
        assert_eq!(unit.is_hole(), lost.contains(&number), "{number} {one:?} {unit:?}");
        if !lost.contains(&number) {
            assert_eq!(unit.log_offset, one.log_offset);
        }
    }
}

/// Two of the early messages; their bodies are long enough to be hit, and neither is the first of its queue.
fn victims(kept: &[Kept]) -> Vec<usize> {
    let is_hit = |number: &usize| *number > 20 && kept[*number].body_bytes > 100;
    (0..kept.len()).filter(is_hit).step_by(9).take(2).collect()
}

#[test]
fn a_rotten_record_costs_itself_alone_whoever_reads_the_whole_log() {
    for name in ["a rebuild", "killed without a checkpoint", "killed with Java's half of a checkpoint"] {
        let (dir, kept, mut random) = closed(810, 400);
        let lost = victims(&kept);
        lost.iter().for_each(|number| rot(dir.path(), &kept[*number]));
        let checkpoint = dir.path().join("checkpoint");
        let is_rebuilt = name == "a rebuild";
        if is_rebuilt {
            let report = rebuild(config(&dir), Arc::new(crate::SystemClock::new())).unwrap();
            assert!(report.damaged_bytes > 0, "{name}");
        } else if name == "killed without a checkpoint" {
            std::fs::remove_file(checkpoint).unwrap();
        } else {
            std::fs::OpenOptions::new().write(true).open(checkpoint).unwrap().set_len(2048).unwrap();
        }
        if !is_rebuilt {
            std::fs::write(dir.path().join("abort"), "1").unwrap();
        }
        let mut opened = open_one(config(&dir));
        assert_eq!(opened.damages.len(), if is_rebuilt { 0 } else { lost.len() }, "{name}");
        assert_lacks(&opened, &kept, &lost);
        // All samples have the same keys.
        let query =
            KeyQuery { topic: Sample::TOPIC, key: "KeyA", begin_ms: 0, end_ms: i64::MAX, max: kept.len() };
        let indexed = opened.dispatch.index().query(&query).unwrap();
        let lost_at = |at: &u64| lost.iter().any(|number| kept[*number].log_offset == *at);
        assert!(indexed.len() == kept.len() - lost.len() && !indexed.iter().any(lost_at), "{name}");
        let mut all = kept;
        all.extend(fill(&mut opened, &mut random, 50));
        close_well(opened);
        assert_lacks(&open_one(config(&dir)), &all, &lost);
    }
}

/// Nobody has noted how far the log was on the disk when Java closed the store, but all of it was.
#[test]
fn a_rotten_record_of_the_last_segment_costs_itself_alone_where_java_has_closed_the_store() {
    let (dir, kept, mut random) = closed(811, 400);
    let checkpoint = std::fs::OpenOptions::new().write(true).open(dir.path().join("checkpoint")).unwrap();
    checkpoint.set_len(2048).unwrap();
    let segment = kept.last().unwrap().log_offset / 65_536;
    let is_hit = |one: &Kept| one.log_offset / 65_536 == segment && one.body_bytes > 100;
    let lost = [kept.iter().position(is_hit).unwrap()];
    assert!(lost[0] + 1 < kept.len(), "a record follows");
    rot(dir.path(), &kept[lost[0]]);
    let mut opened = open_one(config(&dir));
    assert!(opened.report.was_closed);
    assert_lacks(&opened, &kept, &lost);
    let mut all = kept;
    all.extend(fill(&mut opened, &mut random, 50));
    close_well(opened);
    assert_lacks(&open_one(config(&dir)), &all, &lost);
}

/// What was passed over at one start stays lost at the next, which scans behind it alone and reads it again for the
/// queues.
#[test]
fn a_later_read_of_the_whole_log_makes_nothing_of_what_is_damaged() {
    let (dir, kept, mut random) = closed(815, 300);
    let lost = victims(&kept);
    lost.iter().for_each(|number| rot(dir.path(), &kept[*number]));
    rebuild(config(&dir), Arc::new(crate::SystemClock::new())).unwrap();
    let mut opened = open_one(config(&dir));
    let mut all = kept;
    all.extend(fill(&mut opened, &mut random, 10));
    drop(opened);
    std::fs::remove_dir_all(dir.path().join("consumequeue")).unwrap();
    let opened = open_one(config(&dir));
    assert!(opened.report.was_rebuilt && opened.damages.is_empty());
    assert_lacks(&opened, &all, &lost);
}

#[test]
fn a_check_tells_where_messages_are_lost_and_that_later_ones_stay() {
    let (dir, kept, _) = closed(820, 400);
    let lost = victims(&kept);
    lost.iter().for_each(|number| rot(dir.path(), &kept[*number]));
    let mut findings = Vec::new();
    let view = StoreView::open(dir.path()).unwrap().with_settings(&config(&dir));
    let summary = view.check(&mut |finding| findings.push(finding)).unwrap();
    assert_eq!(summary.records, (kept.len() - lost.len()) as u64);
    let told: Vec<u64> =
        findings.iter().filter(|one| one.what.contains("hold no record")).map(|one| one.at).collect();
    let wanted: Vec<u64> = lost.iter().map(|number| kept[*number].log_offset % 65_536).collect();
    assert_eq!(told, wanted, "{findings:?}");
    assert!(!findings.iter().any(|finding| finding.what.contains("is deleted")), "{findings:?}");
}

#[test]
fn a_checkpoint_of_another_store_costs_a_longer_scan_and_no_message() {
    let (other, ..) = closed(830, 150);
    for seed in [831, 832] {
        for is_closed in [true, false] {
            let (dir, kept, mut random) = if is_closed { closed(seed, 300) } else { killed(seed, 300) };
            std::fs::remove_file(dir.path().join("checkpoint")).unwrap();
            copy(&other.path().join("checkpoint"), &dir.path().join("checkpoint"));
            let mut opened = open_one(config(&dir));
            assert_lacks(&opened, &kept, &[]);
            let mut all = kept;
            all.extend(fill(&mut opened, &mut random, 20));
            drop(opened);
            assert_recovers(&dir, &all, &mut random);
        }
    }
}

/// As a copy of a running broker's folder may be: the log was copied first, the rest later.
#[test]
fn a_log_older_than_its_checkpoint_goes_on_behind_its_last_record() {
    let (dir, kept, mut random) = killed(840, 100);
    let old = TempDir::new().unwrap();
    copy(&dir.path().join("commitlog"), &old.path().join("commitlog"));
    let mut opened = open_one(config(&dir));
    fill(&mut opened, &mut random, 100);
    close_well(opened);
    std::fs::remove_dir_all(dir.path().join("commitlog")).unwrap();
    copy(&old.path().join("commitlog"), &dir.path().join("commitlog"));
    let end = kept.last().unwrap();
    let opened = open_one(config(&dir));
    let last = opened.reader.record_at(end.log_offset, |record| record.total_size() as u64).unwrap();
    assert_eq!(opened.report.log_end, end.log_offset + last);
    drop(opened);
    assert_recovers(&dir, &kept, &mut random);
}
