//! Tests of the owner of the topics.
//!
//! Invariants:
//! - each test has its own folder and actix system.

use std::path::Path;

use troupemq_codec::topic::TopicConfig;
use troupemq_store::{ManualClock, StoreConfig};

use super::*;

/// The owner of the topics in a folder, with its directory.
fn topics_in(dir: &Path) -> (Addr<Topics>, Arc<Directory>) {
    topics_with(dir, &Arc::new(ArcSwap::from_pointee(BrokerConfig::default())))
}

fn topics_with(dir: &Path, config: &Arc<ArcSwap<BrokerConfig>>) -> (Addr<Topics>, Arc<Directory>) {
    let store = StoreConfig::in_dir(dir);
    let (file, saved) = TableFile::open(dir).unwrap();
    let directory = Arc::new(Directory::new());
    let parts = TopicParts {
        directory: directory.clone(),
        queues: QueueTable::load(&store).unwrap(),
        clock: NodeClock(Arc::new(ManualClock::at(1000))),
        file: Some(file),
        config: config.clone(),
    };
    (Topics::new(parts, saved).launch(), directory)
}

fn saved_in(dir: &Path) -> TopicConfigTable {
    let (_, saved): (TableFile<TopicConfigTable>, TopicConfigTable) = TableFile::open(dir).unwrap();
    saved
}

fn ensure(topic: &str) -> EnsureTopic {
    EnsureTopic { topic: Text::from(topic), template: Text::from("TBW102"), queue_nums: 4 }
}

fn change(topic: &str, queues: i32) -> TopicChange {
    let config = TopicConfig {
        topic_name: Text::from(topic),
        read_queue_nums: queues,
        write_queue_nums: queues,
        ..TopicConfig::default()
    };
    TopicChange { config, attributes: Text::default() }
}

#[test]
fn a_topic_made_on_demand_is_on_disk_and_published_when_that_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    actix_rt::System::new().block_on(async {
        let (topics, directory) = topics_in(dir.path());
        assert!(directory.topic("TBW102").is_some(), "built-in topics are published from the start");
        let view = topics.send(ensure("T")).await.unwrap().unwrap();
        assert_eq!((view.queue_count(), view.config.perm), (4, 6));
        assert_eq!(directory.topic("T").unwrap().config, view.config);
        assert_eq!(saved_in(dir.path()).topic_config_table["T"], view.config);
    });
    let system = actix_rt::System::new();
    let (_, directory) = system.block_on(async { topics_in(dir.path()) });
    assert_eq!(directory.topic("T").unwrap().queue_count(), 4, "it is there again after a restart");
}

#[test]
fn many_who_want_one_topic_make_it_once() {
    let dir = tempfile::tempdir().unwrap();
    actix_rt::System::new().block_on(async {
        let (topics, _) = topics_in(dir.path());
        let wanted: Vec<_> = (0..50).map(|_| topics.send(ensure("T"))).collect();
        for answer in wanted {
            assert_eq!(answer.await.unwrap().unwrap().name, "T");
        }
        let snapshot = topics.send(AllTopics).await.unwrap();
        assert_eq!(snapshot.table().data_version.counter, 1);
    });
}

#[test]
fn a_topic_is_changed_and_deleted_with_its_queues() {
    let dir = tempfile::tempdir().unwrap();
    actix_rt::System::new().block_on(async {
        let (topics, directory) = topics_in(dir.path());
        topics.send(ChangeTopics(vec![change("T", 2), change("U", 2)])).await.unwrap().unwrap();
        assert_eq!(directory.topic("T").unwrap().queue_count(), 2);
        topics.send(ChangeTopics(vec![change("T", 5)])).await.unwrap().unwrap();
        assert_eq!(directory.topic("T").unwrap().queue_count(), 5);
        let delete = DeleteTopic { topic: Text::from("T"), with: vec![Text::from("U")] };
        topics.send(delete).await.unwrap().unwrap();
        assert!(directory.topic("T").is_none() && directory.topic("U").is_none());
        assert!(!saved_in(dir.path()).topic_config_table.contains_key("T"));
        let nothing = DeleteTopic { topic: Text::from("T"), with: Vec::new() };
        topics.send(nothing).await.unwrap().unwrap();
    });
}

#[test]
fn of_a_list_all_topics_are_made_or_none() {
    let dir = tempfile::tempdir().unwrap();
    actix_rt::System::new().block_on(async {
        let (topics, directory) = topics_in(dir.path());
        for bad in [change("TBW102", 1), change("T", 3)] {
            let list = ChangeTopics(vec![change("T", 2), bad]);
            assert!(topics.send(list).await.unwrap().is_err());
            assert!(directory.topic("T").is_none());
        }
        assert_eq!(topics.send(AllTopics).await.unwrap().table().data_version.counter, 0);
    });
}

#[test]
fn a_topic_that_cannot_be_saved_is_not_published() {
    let dir = tempfile::tempdir().unwrap();
    actix_rt::System::new().block_on(async {
        let (topics, directory) = topics_in(dir.path());
        let config = dir.path().join("config");
        if config.try_exists().unwrap() {
            std::fs::remove_dir_all(&config).unwrap();
        }
        std::fs::write(&config, "in the way").unwrap();
        let refusal = topics.send(ensure("T")).await.unwrap().unwrap_err();
        assert_eq!(refusal.code, ResponseCode::SYSTEM_ERROR);
        assert!(directory.topic("T").is_none());
        std::fs::remove_file(&config).unwrap();
        assert!(topics.send(ensure("T")).await.unwrap().is_ok(), "the next one tries again");
        assert!(saved_in(dir.path()).topic_config_table.contains_key("T"));
    });
}

/// Keeps what it is told.
struct Listens(Vec<Vec<Text>>);

impl Actor for Listens {
    type Context = Context<Listens>;
}

impl Handler<TopicsChanged> for Listens {
    type Result = ();

    fn handle(&mut self, TopicsChanged { topics, .. }: TopicsChanged, _: &mut Context<Listens>) {
        self.0.push(topics);
    }
}

#[derive(Message)]
#[rtype(result = "Vec<Vec<Text>>")]
struct Heard;

impl Handler<Heard> for Listens {
    type Result = Vec<Vec<Text>>;

    fn handle(&mut self, _: Heard, _: &mut Context<Listens>) -> Vec<Vec<Text>> {
        self.0.clone()
    }
}

#[test]
fn changes_are_told_once_and_only_if_there_are_any() {
    let dir = tempfile::tempdir().unwrap();
    actix_rt::System::new().block_on(async {
        let (topics, _) = topics_in(dir.path());
        let listens = Listens(Vec::new()).start();
        topics.send(TellChanges(listens.clone().recipient())).await.unwrap();
        topics.send(ensure("T")).await.unwrap().unwrap();
        topics.send(ensure("T")).await.unwrap().unwrap();
        topics.send(MarkOrdered(vec![Text::from("Nobody")])).await.unwrap();
        topics.send(ChangeTopics(vec![change("U", 2)])).await.unwrap().unwrap();
        topics.send(ChangeTopics(vec![change("U", 2)])).await.unwrap().unwrap();
        let heard = listens.send(Heard).await.unwrap();
        assert_eq!(heard, [[Text::from("T")], [Text::from("U")]]);
    });
}

#[test]
fn automatic_topics_can_be_turned_off_while_the_broker_runs() {
    let dir = tempfile::tempdir().unwrap();
    actix_rt::System::new().block_on(async {
        let config = Arc::new(ArcSwap::from_pointee(BrokerConfig::default()));
        let (topics, _) = topics_with(dir.path(), &config);
        topics.send(ensure("T")).await.unwrap().unwrap();
        let off = BrokerConfig { auto_create_topic_enable: false, ..BrokerConfig::default() };
        config.store(Arc::new(off));
        let refusal = topics.send(ensure("U")).await.unwrap().unwrap_err();
        assert_eq!(refusal.code, ResponseCode::TOPIC_NOT_EXIST);
        assert!(topics.send(ensure("%RETRY%g")).await.unwrap().is_ok(), "groups need no template");
    });
}
