//! Tests of the owner of the topics.
//!
//! Invariants:
//! - each test has its own folder and actix system.

use std::path::Path;

use actix::Handler;
use troupemq_codec::ResponseCode;
use troupemq_codec::topic::TopicConfig;
use troupemq_store::{ManualClock, StoreConfig};

use super::*;
use crate::topic::TellSums;
use crate::topic::counters::{Key, Pair};
use crate::topic::statistics::Of;

/// The owner of the topics in a folder, with its directory.
fn topics_in(dir: &Path) -> (Addr<Topics>, Arc<Directory>) {
    topics_with(dir, &Arc::new(ArcSwap::from_pointee(BrokerConfig::default())))
}

fn topics_with(dir: &Path, config: &Arc<ArcSwap<BrokerConfig>>) -> (Addr<Topics>, Arc<Directory>) {
    topics_at(dir, config, Arc::new(ManualClock::at(1000)))
}

fn topics_at(
    dir: &Path,
    config: &Arc<ArcSwap<BrokerConfig>>,
    clock: Arc<ManualClock>,
) -> (Addr<Topics>, Arc<Directory>) {
    let store = StoreConfig::in_dir(dir);
    let (file, saved) = TableFile::open(dir).unwrap();
    let directory = Arc::new(Directory::new());
    let queues = QueueTable::load(&store).unwrap();
    let parts = TopicParts {
        directory: directory.clone(),
        queues: queues.clone(),
        retention: Retention::of_queues(queues),
        clock: NodeClock(clock),
        file: Some(file),
        config: config.clone(),
        poison: Poison::new(),
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

#[derive(Message)]
#[rtype(result = "Vec<Text>")]
struct InUse;

impl Handler<InUse> for Topics {
    type Result = Vec<Text>;

    fn handle(&mut self, _: InUse, _: &mut Context<Topics>) -> Vec<Text> {
        self.active.keys().cloned().collect()
    }
}

#[test]
fn a_topic_is_in_use_from_its_first_change_until_nothing_of_it_is_used() {
    let dir = tempfile::tempdir().unwrap();
    actix_rt::System::new().block_on(async {
        let clock = Arc::new(ManualClock::at(1000));
        let config = Arc::new(ArcSwap::from_pointee(BrokerConfig::default()));
        let (topics, directory) = topics_at(dir.path(), &config, clock.clone());
        assert!(topics.send(InUse).await.unwrap().is_empty(), "what was there before is not in use");
        topics.send(ChangeTopics(vec![change("T", 2)])).await.unwrap().unwrap();
        topics.send(Rests(Text::from("T"))).await.unwrap();
        assert_eq!(topics.send(InUse).await.unwrap(), ["T"], "it was used just now");
        clock.advance_ms(60_000);
        topics.send(Rests(Text::from("T"))).await.unwrap();
        assert!(topics.send(InUse).await.unwrap().is_empty());
        assert_eq!(directory.topic("T").unwrap().queue_count(), 2, "what is published stays");

        topics.send(ChangeTopics(vec![change("T", 5)])).await.unwrap().unwrap();
        assert_eq!(directory.topic("T").unwrap().queue_count(), 5);
        topics.send(DeleteTopic { topic: Text::from("T"), with: Vec::new() }).await.unwrap().unwrap();
        topics.send(Rests(Text::from("T"))).await.unwrap();
        assert!(topics.send(InUse).await.unwrap().is_empty(), "a topic that is gone rests at once");
    });
}

#[test]
fn ten_thousand_topics_that_nobody_uses_have_no_actor() {
    let dir = tempfile::tempdir().unwrap();
    let topics = (0..10_000).map(|number| {
        let config = change(&format!("T{number}"), 4).config;
        (config.topic_name.clone(), config)
    });
    let saved = TopicConfigTable { topic_config_table: topics.collect(), ..TopicConfigTable::default() };
    let (file, _): (_, TopicConfigTable) = TableFile::open(dir.path()).unwrap();
    file.save(&saved).unwrap();
    actix_rt::System::new().block_on(async {
        let (topics, directory) = topics_in(dir.path());
        assert_eq!(directory.topic("T9999").unwrap().queue_count(), 4);
        assert!(topics.send(InUse).await.unwrap().is_empty());
        topics.send(ChangeTopics(vec![change("T7", 5)])).await.unwrap().unwrap();
        assert_eq!(topics.send(InUse).await.unwrap(), ["T7"]);
        assert_eq!(saved_in(dir.path()).topic_config_table.len(), directory.topics().len());
    });
}

#[test]
fn a_topic_that_counts_is_in_use_until_its_sums_are_zero() {
    let dir = tempfile::tempdir().unwrap();
    actix_rt::System::new().block_on(async {
        let clock = Arc::new(ManualClock::at(1000));
        let config = Arc::new(ArcSwap::from_pointee(BrokerConfig::default()));
        let (topics, directory) = topics_at(dir.path(), &config, clock.clone());
        let sums = || TellSums { topic: Text::from("TBW102"), key: Key::default(), of: Of::Messages };
        assert_eq!(topics.send(sums()).await.unwrap(), None);
        let counters = directory.topic("TBW102").unwrap().counters.clone();
        counters.put(0, &Pair::of(3, 30, 1, 0));
        assert!(topics.send(sums()).await.unwrap().is_some(), "known, though nobody takes samples");
        assert!(counters.claim());
        topics.send(Attend(Text::from("TBW102"))).await.unwrap();
        assert_eq!(topics.send(InUse).await.unwrap(), ["TBW102"]);
        assert!(!counters.claim(), "it takes samples");
        counters.put(0, &Pair::of(1, 10, 1, 0));
        clock.advance_ms(60_000);
        topics.send(Rests(Text::from("TBW102"))).await.unwrap();
        assert_eq!(topics.send(InUse).await.unwrap(), ["TBW102"], "the last message is not in a sample yet");
        assert!(!counters.claim(), "it takes samples still");
    });
}

#[test]
fn a_topic_that_is_refused_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    actix_rt::System::new().block_on(async {
        let (topics, directory) = topics_in(dir.path());
        for name in ["T", "U"] {
            assert!(topics.send(ChangeTopics(vec![change(name, -1)])).await.unwrap().is_err());
        }
        assert!(topics.send(InUse).await.unwrap().is_empty());
        assert!(directory.topic("T").is_none());
    });
}

#[test]
fn changes_of_one_topic_build_on_each_other_however_close_they_come() {
    let dir = tempfile::tempdir().unwrap();
    actix_rt::System::new().block_on(async {
        let (topics, directory) = topics_in(dir.path());
        let with = |attributes: &str| TopicChange { attributes: Text::from(attributes), ..change("T", 2) };
        let first = topics.send(ChangeTopics(vec![with("+message.type=FIFO")]));
        let second = topics.send(ChangeTopics(vec![with("+reserve.time=72")]));
        let ordered = topics.send(MarkOrdered(vec![Text::from("T")]));
        let third = topics.send(ChangeTopics(vec![with("")]));
        first.await.unwrap().unwrap();
        second.await.unwrap().unwrap();
        ordered.await.unwrap();
        third.await.unwrap().unwrap();
        let view = directory.topic("T").unwrap();
        assert_eq!(view.config.attributes.len(), 2, "{:?}", view.config);
        assert!(!view.config.order, "the last change says so");
        assert_eq!(saved_in(dir.path()).topic_config_table["T"], view.config);
        assert_eq!(topics.send(AllTopics).await.unwrap().table().data_version.counter, 4);
    });
}

#[test]
fn a_topic_deleted_and_made_again_at_once_has_no_old_queues() {
    let dir = tempfile::tempdir().unwrap();
    actix_rt::System::new().block_on(async {
        let (topics, directory) = topics_in(dir.path());
        let queues = QueueTable::load(&StoreConfig::in_dir(dir.path())).unwrap();
        let old = topics.send(ensure("T")).await.unwrap().unwrap();
        let old = directory.queue(&old, 0, &queues).unwrap().unwrap();
        let gone = topics.send(DeleteTopic { topic: Text::from("T"), with: Vec::new() });
        let again = topics.send(ChangeTopics(vec![change("T", 1)]));
        gone.await.unwrap().unwrap();
        again.await.unwrap().unwrap();
        let view = directory.topic("T").unwrap();
        assert_eq!(view.queue_count(), 1);
        assert!(!directory.is_current(&old));
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
