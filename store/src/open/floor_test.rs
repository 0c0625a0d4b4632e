//! Queues that have lost their files when the log had lost their messages: their offsets never go back.
//!
//! Invariants:
//! - each case damages a store of its own, and is opened again before and after the first message that follows.

use tempfile::TempDir;
use troupemq_codec::Text;
use troupemq_codec::request::ConsumerOffsetTable;

use super::crash_test::{config, open_one};
use super::*;
use crate::commit_log::batch::AppendBatch;
use crate::faults::{Op, arm_once};
use crate::testing::Sample;

/// Messages of the queue: its second file begins with offset 60.
const SENT: i64 = 100;
const COMMITTED: i64 = 90;

fn close_one(opened: Opened) {
    let Opened { log, flusher, dispatch, queues, marks, .. } = opened;
    close(Closing { log, flusher, dispatch, queues, marks }).unwrap();
}

fn send(opened: &mut Opened, queue_id: i32, body_bytes: usize) -> (i64, u64) {
    let queue = opened.queues.open_or_create(Sample::TOPIC, queue_id).unwrap();
    let mut batch = AppendBatch::default();
    Sample { queue_id, fill: 7, body_bytes }.push(&mut batch, &queue);
    let appended = opened.log.append(&mut batch, 1_000).unwrap();
    opened.dispatch.dispatch(&batch, &appended).unwrap();
    (batch.records[0].queue_offset, batch.records[0].log_offset)
}

fn save_tables(dir: &TempDir, commits: bool) {
    let (file, mut topics) = TableFile::<TopicConfigTable>::open(dir.path()).unwrap();
    let topic =
        TopicConfig { topic_name: Text::from(Sample::TOPIC), write_queue_nums: 2, ..TopicConfig::default() };
    topics.topic_config_table.insert(topic.topic_name.clone(), topic);
    file.save(&topics).unwrap();
    let (file, mut offsets) = TableFile::<ConsumerOffsetTable>::open(dir.path()).unwrap();
    let mut commit = |topic: &str, queue_id, offset| {
        offsets
            .offset_table
            .entry(Text::from(format!("{topic}@g").as_str()))
            .or_default()
            .insert(queue_id, offset);
    };
    commit("gone", 0, 7);
    if commits {
        commit(Sample::TOPIC, 0, COMMITTED);
        // A queue that has its units knows better, and there is no such queue.
        commit(Sample::TOPIC, 1, 5_000);
        commit(Sample::TOPIC, 2, 5);
    }
    file.save(&offsets).unwrap();
}

/// A closed store whose log has lost all messages of queue 0.
fn expired(commits: bool) -> TempDir {
    let dir = TempDir::new().unwrap();
    let mut opened = open_one(config(&dir));
    let last = (0..SENT).map(|_| send(&mut opened, 0, 100).1).last().unwrap();
    while send(&mut opened, 1, 2_000).1 < last + 2 * 65_536 {}
    close_one(opened);
    for start in (0..=last / 65_536).map(|segment| segment * 65_536) {
        std::fs::remove_file(dir.path().join("commitlog").join(format!("{start:020}"))).unwrap();
    }
    save_tables(&dir, commits);
    let opened = open_one(config(&dir));
    let queue = opened.queues.get(Sample::TOPIC, 0).unwrap();
    assert_eq!((queue.min_offset(), queue.max_offset()), (SENT, SENT));
    close_one(opened);
    dir
}

#[test]
fn a_queue_that_lost_everything_goes_on_behind_what_was_committed() {
    for damage in ["gone", "short", "unreadable"] {
        for (commits, is_closed) in [(true, true), (true, false), (false, true), (false, false)] {
            let dir = expired(commits);
            let queue = dir.path().join("consumequeue").join(Sample::TOPIC).join("0");
            let file = queue.join(format!("{:020}", 1_200));
            let fault = match damage {
                "gone" => {
                    std::fs::remove_dir_all(&queue).unwrap();
                    None
                }
                "short" => {
                    std::fs::OpenOptions::new().write(true).open(file).unwrap().set_len(500).unwrap();
                    None
                }
                _ => Some(arm_once(&file, Op::Read, 0, 5)),
            };
            if !is_closed {
                std::fs::write(dir.path().join("abort"), "1").unwrap();
            }
            let wanted = match damage {
                _ if commits => COMMITTED,
                "gone" => 0,
                _ => 60,
            };
            let told = format!("{damage}, commits: {commits}, closed: {is_closed}");
            let opened = open_one(config(&dir));
            drop(fault);
            assert!(opened.queues.get("gone", 0).is_none() && opened.queues.get(Sample::TOPIC, 2).is_none());
            assert!(opened.queues.get(Sample::TOPIC, 1).unwrap().max_offset() < 1_000, "{told}");
            close_one(opened);
            // Nobody has sent anything meanwhile: the next starts know it as well.
            let mut opened = open_one(config(&dir));
            assert_eq!(send(&mut opened, 0, 100).0, wanted, "{told}");
            drop(opened);
            let opened = open_one(config(&dir));
            let queue = opened.queues.get(Sample::TOPIC, 0).unwrap();
            assert_eq!((queue.min_offset(), queue.max_offset()), (wanted, wanted + 1), "{told}");
            assert!(queue.unit(wanted).is_some_and(|unit| !unit.is_hole()), "{told}");
        }
    }
}

#[test]
fn an_offset_that_nobody_can_have_sent_says_nothing_of_a_queue_that_lost_everything() {
    let dir = expired(false);
    let (file, mut offsets) = TableFile::<ConsumerOffsetTable>::open(dir.path()).unwrap();
    let of_group = offsets.offset_table.entry(Text::from(format!("{}@g", Sample::TOPIC))).or_default();
    of_group.insert(0, i64::MAX);
    file.save(&offsets).unwrap();
    std::fs::remove_dir_all(dir.path().join("consumequeue").join(Sample::TOPIC).join("0")).unwrap();
    let mut opened = open_one(config(&dir));
    assert_eq!(send(&mut opened, 0, 100).0, 0);
}

#[test]
fn a_queue_that_lost_everything_goes_on_behind_what_was_committed_where_its_topic_is_lost_too() {
    let dir = expired(true);
    std::fs::remove_dir_all(dir.path().join("consumequeue").join(Sample::TOPIC).join("0")).unwrap();
    let topics = dir.path().join("config/topics.json");
    std::fs::write(topics.with_extension("json.bak"), b"{}").unwrap();
    std::fs::write(topics, b"{\"topicConfigTable\":{").unwrap();
    std::fs::write(dir.path().join("abort"), "1").unwrap();
    let mut opened = open_one(config(&dir));
    assert_eq!(send(&mut opened, 0, 100).0, COMMITTED);
}
