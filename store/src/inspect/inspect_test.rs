//! What is told of whole and of damaged stores.
//!
//! Invariants:
//! - a store that Java or we closed has no finding;
//! - every damage is told with its file.

use std::os::unix::fs::FileExt;

use super::*;
use crate::SystemClock;
use crate::testing::{GOLDEN_SETS, GoldenStore, Sample, close_well, small_files};

fn check(dir: &Path) -> (Summary, Vec<Finding>) {
    // The settings the sets of Java were written with.
    let config = StoreConfig { index_slots_max: 500, index_entries_max: 1_200, ..StoreConfig::in_dir(dir) };
    let mut findings = Vec::new();
    let summary = StoreView::open(dir)
        .unwrap()
        .with_settings(&config)
        .check(&mut |finding| findings.push(finding))
        .unwrap();
    (summary, findings)
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::new())
}

fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    std::fs::OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
}

#[test]
fn a_closed_store_has_no_finding() {
    for set in GOLDEN_SETS {
        let golden = GoldenStore::unpack(set);
        let (summary, findings) = check(&golden.dir());
        let found = golden.found();
        assert_eq!(summary.log_end, found.commit_log_max_offset, "{set}");
        assert_eq!(
            summary.records,
            found.segments.iter().map(|segment| segment.records).sum::<u64>(),
            "{set}"
        );
        if summary.was_closed {
            assert_eq!(findings, vec![], "{set}");
        } else {
            assert!(findings[0].what.contains("has not closed"), "{set}");
        }
    }
}

#[test]
fn damage_is_told_with_its_file_and_healed_by_a_rebuild() {
    let golden = GoldenStore::unpack("plain-clean");
    let queue = golden.dir().join("consumequeue/GoldPlainA/1");
    overwrite(&queue.join("00000000000000000000"), 40, &[0xFF; 3]);
    std::fs::remove_dir_all(golden.dir().join("consumequeue/gold-plain_B/0")).unwrap();
    let (_, findings) = check(&golden.dir());
    let told: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(told.iter().any(|told| told.contains("GoldPlainA/1 at byte 40: message 2 at")), "{told:?}");
    assert!(told.iter().any(|told| told.contains("gold-plain_B/0 at byte 0: message 0 at")), "{told:?}");
    assert!(told.iter().any(|told| told.contains("messages in all have no or a wrong unit")), "{told:?}");

    let report = rebuild(StoreConfig::in_dir(golden.dir()), clock()).unwrap();
    assert_eq!(report.replayed_from, 0);
    assert_eq!(check(&golden.dir()).1, vec![]);
}

/// A store of ours with several files of queues and index, closed.
fn many_files(dir: &Path) -> StoreConfig {
    let config = StoreConfig { index_slots_max: 25, index_entries_max: 100, ..small_files(dir) };
    let mut opened = open(config.clone(), clock()).unwrap();
    for number in 0..400_u16 {
        let sample = Sample { queue_id: i32::from(number % 2), fill: 1, body_bytes: 10 };
        sample.store(&mut opened, Sample::TOPIC, 1_000);
    }
    close_well(opened);
    config
}

fn files_of(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// What the next start does not notice, since it reads no whole files.
#[test]
fn damage_within_an_old_file_of_queue_or_index_is_told_and_mended_by_a_rebuild() {
    let dir = tempfile::tempdir().unwrap();
    let config = many_files(dir.path());
    assert_eq!(check(dir.path()).1, vec![]);
    let queue = files_of(&dir.path().join("consumequeue").join(Sample::TOPIC).join("0"));
    let index = files_of(&dir.path().join("index"));
    assert!(queue.len() > 3 && index.len() > 3, "{queue:?} {index:?}");
    overwrite(&queue[1], 200, &[0; 20]);
    overwrite(&index[1], 40 + 100 + 20 * 7, &[9; 20]);
    overwrite(&index[2], 40, &[0; 100]);
    let told: Vec<String> = check(dir.path()).1.iter().map(ToString::to_string).collect();
    let about = |name: &Path, what: &str| {
        let name = name.display().to_string();
        told.iter().any(|told| told.contains(&name) && told.contains(what) && told.contains("until you act"))
    };
    assert!(about(queue[1].parent().unwrap(), "has no unit"), "{told:?}");
    assert!(about(&index[1], "are missing"), "{told:?}");
    assert!(about(&index[2], "chains do not begin"), "{told:?}");
    rebuild(config, clock()).unwrap();
    assert_eq!(check(dir.path()).1, vec![]);
}

/// What a crash, a full disk or a hand does to old files, the start sees and makes good.
#[test]
fn an_old_file_of_the_index_that_is_gone_short_long_or_from_another_time_is_made_again() {
    type Damage = fn(&Path, &[PathBuf]);
    let damages: [(&str, Damage); 7] = [
        ("gone", |file, _| std::fs::remove_file(file).unwrap()),
        ("empty", |file, _| std::fs::write(file, b"").unwrap()),
        ("short", |file, _| std::fs::OpenOptions::new().write(true).open(file).unwrap().set_len(90).unwrap()),
        ("long", |file, _| {
            std::fs::OpenOptions::new().write(true).open(file).unwrap().set_len(9_000).unwrap()
        }),
        ("without a head", |file, _| overwrite(file, 0, &[0; 40])),
        ("half full", |file, _| overwrite(file, 36, &50_u32.to_be_bytes())),
        ("another", |file, all| assert!(std::fs::copy(all.last().unwrap(), file).is_ok())),
    ];
    for which in [0, 1] {
        for (name, damage) in damages {
            let dir = tempfile::tempdir().unwrap();
            let config = many_files(dir.path());
            let index = files_of(&dir.path().join("index"));
            damage(&index[which], &index);
            let opened = open(config, clock()).unwrap();
            assert!(opened.report.was_closed && opened.report.replayed > 0, "{name} {which}");
            close_well(opened);
            assert_eq!(check(dir.path()).1, vec![], "{name} {which}");
            assert_eq!(files_of(&dir.path().join("index")), index, "{name} {which}");
        }
    }
}

#[test]
fn an_old_file_of_a_queue_that_lost_an_end_or_comes_from_elsewhere_is_made_again_after_a_clean_stop() {
    for damage in ["front", "end", "other"] {
        let dir = tempfile::tempdir().unwrap();
        let config = many_files(dir.path());
        let queue = files_of(&dir.path().join("consumequeue").join(Sample::TOPIC).join("0"));
        match damage {
            "front" => overwrite(&queue[1], 0, &[0; 20]),
            "end" => overwrite(&queue[0], 1_180, &[0; 20]),
            _ => assert!(std::fs::copy(&queue[2], &queue[0]).is_ok()),
        }
        let opened = open(config, clock()).unwrap();
        assert!(opened.report.was_closed && opened.report.was_rebuilt, "{damage}");
        close_well(opened);
        assert_eq!(check(dir.path()).1, vec![], "{damage}");
    }
}

#[test]
fn damage_of_the_log_itself_is_told() {
    let golden = GoldenStore::unpack("plain-clean");
    let segment = golden.dir().join("commitlog/00000000000000131072");
    overwrite(&segment, 120, b"flipped");
    let (summary, findings) = check(&golden.dir());
    assert_eq!(summary.log_end, golden.found().commit_log_max_offset, "what follows stays");
    let about = |name: &str| findings.iter().filter(|one| one.file.ends_with(name)).count();
    assert_eq!((about("00000000000000131072"), about("00000000000000196608")), (1, 0));
}

#[test]
fn every_plain_queue_is_rebuilt_as_java_had_it() {
    for set in ["plain-killed", "delivery-clean", "pop", "ipv6", "recall"] {
        let golden = GoldenStore::unpack(set);
        let settings = &golden.manifest()["settings"];
        let delay_levels = settings["messageDelayLevel"].as_str().unwrap().to_owned();
        rebuild(StoreConfig { delay_levels, ..StoreConfig::in_dir(golden.dir()) }, clock()).unwrap();
        let view = StoreView::open(&golden.dir()).unwrap();
        for message in golden.messages() {
            let mut found = None;
            let at = message.queue_offset.cast_unsigned() * 20;
            view.units(&message.topic, message.queue_id, |unit| {
                found = Some(*unit).filter(|unit| unit.at == at);
                unit.at < at
            })
            .unwrap();
            let unit = StoredUnit {
                at,
                log_offset: message.log_offset,
                size: message.size,
                tags_code: message.tags_code,
            };
            assert_eq!(found, Some(unit), "{set} {} {}", message.topic, message.queue_offset);
        }
    }
}

/// Where the units of a queue point, as a dump shows them.
fn dump(dir: &Path, topic: &str, queue_id: i32) -> Vec<(u64, u64, u32)> {
    let mut units = Vec::new();
    let view = StoreView::open(dir).unwrap();
    let told = view.units(topic, queue_id, |unit| {
        units.push((unit.at, unit.log_offset, unit.size));
        true
    });
    told.map(|()| units).unwrap()
}

#[test]
fn queues_of_inner_batches_are_checked_dumped_and_rebuilt_as_java_had_them() {
    let golden = GoldenStore::unpack("batch-cq");
    let dir = golden.dir();
    let topics = std::fs::read_dir(dir.join("batchconsumequeue")).unwrap();
    let topic = topics.flatten().next().unwrap().file_name().into_string().unwrap();
    let folder = dir.join("batchconsumequeue").join(&topic);
    let ids = std::fs::read_dir(&folder).unwrap().flatten().map(|id| id.file_name().into_string().unwrap());
    let queues: Vec<i32> = ids.map(|id| id.parse().unwrap()).collect();
    let before: Vec<_> = queues.iter().map(|id| dump(&dir, &topic, *id)).collect();
    let at = before.iter().position(|units| units.len() > 1).expect("a queue of several batches");
    assert_eq!(check(&dir).1, vec![]);

    let (_, log_offset, size) = before[at][0];
    let file = folder.join(queues[at].to_string()).join("00000000000000000000");
    overwrite(&file, 0, &(log_offset + 1).to_be_bytes());
    let (_, findings) = check(&dir);
    let wanted = format!("has a unit that points to {size} bytes at {}", log_offset + 1);
    assert!(findings.iter().any(|one| one.what.contains(&wanted)), "{findings:?}");

    rebuild(StoreConfig::in_dir(&dir), clock()).unwrap();
    assert_eq!(check(&dir).1, vec![]);
    let after: Vec<_> = queues.iter().map(|id| dump(&dir, &topic, *id)).collect();
    assert_eq!(after, before);
}

#[test]
fn a_store_in_use_and_a_folder_without_one_are_refused() {
    let golden = GoldenStore::unpack("recall");
    let opened = open(StoreConfig::in_dir(golden.dir()), clock()).unwrap();
    assert!(matches!(StoreView::open(&golden.dir()), Err(StoreError::Locked { .. })));
    drop(opened);
    let empty = tempfile::tempdir().unwrap();
    let error = StoreView::open(empty.path()).unwrap_err();
    let said = error.to_string();
    assert!(said.contains("cannot find a log in") && said.contains("No such file or directory"), "{said}");
    assert_eq!(std::fs::read_dir(empty.path()).unwrap().count(), 0);
}
