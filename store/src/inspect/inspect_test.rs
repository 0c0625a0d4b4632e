//! What is told of whole and of damaged stores.
//!
//! Invariants:
//! - a store that Java or we closed has no finding;
//! - every damage is told with its file.

use std::os::unix::fs::FileExt;

use super::*;
use crate::SystemClock;
use crate::testing::{GOLDEN_SETS, GoldenStore};

fn check(dir: &Path) -> (Summary, Vec<Finding>) {
    let mut findings = Vec::new();
    let summary = StoreView::open(dir).unwrap().check(&mut |finding| findings.push(finding)).unwrap();
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

#[test]
fn damage_of_the_log_itself_is_told() {
    let golden = GoldenStore::unpack("plain-clean");
    let segment = golden.dir().join("commitlog/00000000000000131072");
    overwrite(&segment, 120, b"flipped");
    let (summary, findings) = check(&golden.dir());
    assert!(summary.log_end < golden.found().commit_log_max_offset);
    let about = |name: &str| findings.iter().filter(|one| one.file.ends_with(name)).count();
    assert_eq!((about("00000000000000131072"), about("00000000000000196608")), (1, 1));
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
    assert!(error.to_string().contains("cannot find a log in"), "{error}");
    assert_eq!(std::fs::read_dir(empty.path()).unwrap().count(), 0);
}
