//! Topics and groups whose table lost its newest generation are there after the start.
//!
//! Invariants:
//! - what is damaged is a file of a node that has stopped;
//! - the clock is turned by hand.

use std::path::Path;
use std::sync::Arc;

use troupemq_codec::Text;
use troupemq_codec::group::SubscriptionGroupTable;
use troupemq_codec::request::{DeleteTopicInBroker, DeleteTopicInBrokerHeader, TRANSACTION_COMMIT};
use troupemq_codec::topic::{TopicConfig, TopicConfigTable};
use troupemq_store::ManualClock;
use troupemq_store::inspect::StoreView;
use troupemq_store::tables::{Table, TableFile};

use super::batch_test;
use super::delivery_test::{NOW_MS, count, join, start};
use super::transaction_test::{end, half};
use crate::node::NodeHandle;
use crate::testing::{Client, commit_request, request, start_broker_at, stored, topic_request, wait_for};

/// The ways in which a table loses its newest generation.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Loss {
    Torn,
    Empty,
    /// An earlier start put it aside and was killed.
    PutAside,
    /// Nothing is left.
    Gone,
}

const LOSSES: [Loss; 4] = [Loss::Torn, Loss::Empty, Loss::PutAside, Loss::Gone];

/// Takes the newest generation of a table away, and has `older` be the one before it.
fn lose<T: Table>(dir: &Path, loss: Loss, older: &T) {
    let file = |ending: &str| dir.join("config").join(format!("{}{ending}", T::FILE));
    let bytes = std::fs::read(file("")).expect("it was saved");
    let _none = std::fs::remove_file(file(".bak"));
    let older = TableFile::<T>::open(dir).expect("it is whole").0.encode(older);
    match loss {
        Loss::Gone => return std::fs::remove_file(file("")).unwrap(),
        Loss::Torn => std::fs::write(file(""), &bytes[..bytes.len() / 2]).unwrap(),
        Loss::Empty => std::fs::write(file(""), b"").unwrap(),
        Loss::PutAside => std::fs::rename(file(""), file(".damaged")).unwrap(),
    }
    std::fs::write(file(".bak"), older).unwrap();
}

fn topics(dir: &Path) -> TopicConfigTable {
    TableFile::open(dir).expect("the table can be read").1
}

fn topic(dir: &Path, name: &str) -> TopicConfig {
    topics(dir).topic_config_table.get(name).expect(name).clone()
}

fn stop(node: NodeHandle) {
    node.stop_and_wait().expect("a clean stop");
}

/// A node with messages in a plain topic, in a batch topic, and such that wait for others.
fn fill(dir: &Path, clock: &Arc<ManualClock>) -> (i64, i64) {
    let node = start(dir, clock);
    let mut client = Client::of(&node);
    assert_eq!(client.call(topic_request("Plain", 8, 6, None)).code, 0);
    assert_eq!(client.call(topic_request("Grown", 6, 6, None)).code, 0);
    for queue_id in [1, 5] {
        stored(&client.produce("Plain", queue_id, b"plain", ""));
        stored(&client.produce("Grown", queue_id, b"grown", ""));
    }
    batch_test::make_topic(&mut client);
    assert_eq!(client.produce(batch_test::TOPIC, 0, &[0], "").code, 0);
    assert_eq!(batch_test::send(&mut client, &[1, 2, 3]).code, 0);
    for (name, properties) in [("OfLevel", "DELAY\u{1}3\u{2}"), ("OfTime", "TIMER_DELAY_SEC\u{1}20\u{2}")] {
        assert_eq!(client.call(topic_request(name, 4, 6, None)).code, 0);
        stored(&client.produce(name, 2, b"late", properties));
    }
    assert_eq!(client.call(topic_request("Paid", 4, 6, None)).code, 0);
    let place = half(&mut client, "U0", "");
    assert_eq!(client.call(topic_request("Empty", 4, 6, None)).code, 0);
    stop(node);
    place
}

#[test]
fn topics_that_a_table_has_lost_are_made_anew_with_their_queues_and_what_waits_for_them_comes() {
    for loss in LOSSES {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(NOW_MS));
        let place = fill(dir.path(), &clock);
        let mut older = topics(dir.path());
        older.topic_config_table.retain(|name, _| name.as_str() == "Grown");
        older.topic_config_table.get_mut("Grown").unwrap().read_queue_nums = 2;
        older.topic_config_table.get_mut("Grown").unwrap().write_queue_nums = 2;
        lose(dir.path(), loss, &older);
        // Queues that have to be made anew tell no kind.
        if loss == Loss::Torn {
            std::fs::remove_dir_all(dir.path().join("batchconsumequeue")).unwrap();
        }
        for _ in 0..2 {
            let node = start(dir.path(), &clock);
            let mut client = Client::of(&node);
            assert_eq!([1, 5].map(|queue| count(&mut client, "Plain", queue)), [1, 1], "{loss:?}");
            assert_eq!([1, 5].map(|queue| count(&mut client, "Grown", queue)), [1, 1], "{loss:?}");
            assert_eq!(batch_test::pull(&mut client, 0, 32, "*").1.len(), 4, "{loss:?}");
            stop(node);
            let plain = topic(dir.path(), "Plain");
            assert_eq!((plain.read_queue_nums, plain.write_queue_nums, plain.perm), (6, 6, 6), "{loss:?}");
            let grown = topic(dir.path(), "Grown");
            let wrote = if loss == Loss::Gone { 6 } else { 2 };
            assert_eq!((grown.read_queue_nums, grown.write_queue_nums), (6, wrote), "{loss:?}");
            let kind = topic(dir.path(), batch_test::TOPIC).attributes.get("queue.type").cloned();
            assert_eq!(kind, Some(Text::from("BatchCQ")), "{loss:?}");
            assert!(
                !topics(dir.path()).topic_config_table.contains_key("Empty"),
                "the store shows nothing of it"
            );
        }
        let node = start(dir.path(), &clock);
        let mut client = Client::of(&node);
        clock.advance_ms(21_000);
        for name in ["OfLevel", "OfTime"] {
            assert_eq!(&wait_for(&mut client, name, 2, 0).body[..], b"late", "{loss:?}");
        }
        assert_eq!(end(&mut client, place, TRANSACTION_COMMIT).code, 0, "{loss:?}");
        assert_eq!(&wait_for(&mut client, "Paid", 1, 0).body[..], b"U0", "{loss:?}");
        stop(node);
    }
}

#[test]
fn a_topic_that_was_deleted_stays_deleted_where_its_table_is_whole() {
    for is_cut_off in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(NOW_MS));
        fill(dir.path(), &clock);
        let node = start(dir.path(), &clock);
        let header = DeleteTopicInBrokerHeader { topic: Text::from("Plain") };
        assert_eq!(Client::of(&node).call(request::<DeleteTopicInBroker>(&header)).code, 0);
        stop(node);
        // Its queues come back with the rest, as the log has its messages still.
        std::fs::remove_dir_all(dir.path().join("consumequeue")).unwrap();
        if is_cut_off {
            // A kill between the renames of a save.
            let file = dir.path().join("config/topics.json");
            std::fs::rename(&file, file.with_extension("json.bak")).unwrap();
        }
        stop(start(dir.path(), &clock));
        assert!(!topics(dir.path()).topic_config_table.contains_key("Plain"), "{is_cut_off}");
    }
}

#[test]
fn groups_that_a_table_has_lost_are_made_anew_if_they_have_read_something() {
    for loss in LOSSES {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(NOW_MS));
        let node = start(dir.path(), &clock);
        let mut client = Client::of(&node);
        stored(&client.produce("T", 0, b"one", ""));
        let member = join(&node, "readers");
        assert_eq!(client.call(commit_request("readers", "T", 0, 1)).code, 0);
        drop(member);
        stop(node);
        lose(dir.path(), loss, &SubscriptionGroupTable::default());
        let node = start_broker_at(&clock, dir.path(), |part| {
            part.config.auto_create_subscription_group = false;
        });
        assert_eq!(Client::of(&node).call(commit_request("readers", "T", 0, 1)).code, 0, "{loss:?}");
        stop(node);
    }
}

#[test]
fn a_check_of_a_store_tells_which_topics_its_table_has_lost() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    fill(dir.path(), &clock);
    let told = || {
        let mut told = Vec::new();
        StoreView::open(dir.path()).unwrap().check(&mut |finding| told.push(finding)).unwrap();
        told
    };
    assert_eq!(told(), []);
    let mut older = topics(dir.path());
    older.topic_config_table.remove("Plain");
    lose(dir.path(), Loss::Torn, &older);
    let found = told();
    let about = |what: &str| found.iter().any(|finding| finding.heals && finding.what.contains(what));
    assert!(about("the next start takes the one before it"), "{found:?}");
    assert!(about("topic Plain has 6 queues") && !about("topic Grown"), "{found:?}");
    stop(start(dir.path(), &clock));
    assert_eq!(told(), []);
}
