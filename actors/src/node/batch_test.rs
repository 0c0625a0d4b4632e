//! Batches over a socket: those that are taken apart, and those that stay one record.
//!
//! Invariants:
//! - every test has its own node, folder and ports.

use bytes::{Bytes, BytesMut};
use troupemq_codec::message::batch::BatchItem;
use troupemq_codec::message::{Message, PropertiesView, RecordView, properties, sys_flag};
use troupemq_codec::request::{
    ConsumerSendMsgBack, ConsumerSendMsgBackHeader, GetMaxOffset, GetMaxOffsetHeader, GetMinOffset,
    GetMinOffsetHeader, PullMessage, PullMessageHeader, PullMessageReplyHeader, SendBatchMessage,
    SendMessageV2Header, UpdateAndCreateTopic, UpdateAndCreateTopicHeader,
};
use troupemq_codec::{Command, ResponseCode, Text};
use troupemq_store::testing::GoldenStore;

use super::delivery_test::join;
use crate::testing::{
    Client, held_pull_header, pull_header, request, send_request, start_broker, start_broker_as,
};
use crate::topic::counters::Key;

pub(super) const TOPIC: &str = "Batches";

/// Makes a topic with two batch queues.
pub(super) fn make_topic(client: &mut Client) {
    let header = UpdateAndCreateTopicHeader {
        topic: Text::from(TOPIC),
        default_topic: Text::from("TBW102"),
        read_queue_nums: 2,
        write_queue_nums: 2,
        perm: 6,
        topic_filter_type: Text::from("SINGLE_TAG"),
        topic_sys_flag: Some(0),
        order: Some(false),
        attributes: Some(Text::from("+queue.type=BatchCQ")),
        force: None,
    };
    let made = client.call(request::<UpdateAndCreateTopic>(&header));
    assert_eq!(made.code, 0, "{:?}", made.remark);
}

/// A batch of messages with these bodies, each with a tag and a unique key of its own.
fn batch(topic: &str, properties: &str, bodies: &[u8]) -> Command {
    let mut body = BytesMut::new();
    for one in bodies {
        let properties = format!("UNIQ_KEY\u{1}item{one}\u{2}TAGS\u{1}T{}\u{2}", one % 2);
        let item = BatchItem { flag: 0, body: &[*one], properties: PropertiesView(properties.as_bytes()) };
        item.encode(&mut body).unwrap();
    }
    let header = SendMessageV2Header {
        producer_group: Text::from_static("producers"),
        topic: Text::from(topic),
        default_topic: Text::from_static("TBW102"),
        default_topic_queues: 4,
        queue_id: 0,
        born_timestamp_ms: 1_795_000_000_000,
        properties: Some(Text::from(properties)),
        is_batch: Some(true),
        ..SendMessageV2Header::default()
    };
    Command::request::<SendBatchMessage>(&header).with_body(body.freeze())
}

pub(super) fn send(client: &mut Client, bodies: &[u8]) -> Command {
    client.call(batch(TOPIC, "UNIQ_KEY\u{1}whole\u{2}WAIT\u{1}true\u{2}", bodies))
}

fn field<'a>(answer: &'a Command, key: &str) -> Option<&'a str> {
    answer.fields.get(key)
}

pub(super) fn pull(
    client: &mut Client,
    offset: i64,
    messages_max: i32,
    tags: &str,
) -> (Command, Vec<(i64, u8)>) {
    let header = PullMessageHeader { messages_max, ..pull_header(TOPIC, 0, offset, tags) };
    let answer = client.call(request::<PullMessage>(&header));
    let messages = Message::decode_all(answer.body.clone()).unwrap();
    let found = messages.iter().map(|message| (message.queue_offset, message.body[0])).collect();
    (answer, found)
}

fn end(client: &mut Client, is_max: bool) -> String {
    let (topic, queue_id) = (Text::from(TOPIC), 0);
    let answer = match is_max {
        true => {
            let header = GetMaxOffsetHeader { topic, queue_id, ..GetMaxOffsetHeader::default() };
            client.call(request::<GetMaxOffset>(&header))
        }
        false => client.call(request::<GetMinOffset>(&GetMinOffsetHeader { topic, queue_id })),
    };
    field(&answer, "offset").unwrap().to_owned()
}

// 3.2 #19: stored as one record with sysflag INNER_BATCH|NEED_UNWRAP and INNER_NUM, a unit covering N offsets;
// queueOffset returned is the base; the next batch starts at base+N. #21: the minimum of a never-written BatchCQ
// queue is -1, the maximum 0.
#[test]
fn a_batch_to_a_batch_queue_is_one_record_that_takes_an_offset_for_each_message() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    make_topic(&mut client);
    assert_eq!([end(&mut client, false), end(&mut client, true)], ["-1", "0"]);
    let first = send(&mut client, &[1, 2, 3]);
    assert_eq!((first.code, field(&first, "queueOffset")), (0, Some("0")));
    assert_eq!([field(&first, "batchUniqId"), field(&first, "transactionId")], [Some("whole"); 2]);
    assert!(!field(&first, "msgId").unwrap().contains(','), "one id for the record");
    let second = send(&mut client, &[4, 5]);
    assert_eq!(field(&second, "queueOffset"), Some("3"));
    let single = client.produce(TOPIC, 0, &[6], "TAGS\u{1}T0\u{2}");
    assert_eq!(field(&single, "queueOffset"), Some("5"));
    assert_eq!([end(&mut client, false), end(&mut client, true)], ["0", "6"]);
    let (answer, found) = pull(&mut client, 4, 32, "*");
    assert_eq!(found, [(3, 4), (4, 5), (5, 6)], "the whole unit that holds offset 4");
    let record = RecordView::parse(&answer.body).unwrap();
    assert_eq!(record.sys_flag() & 0xC0, sys_flag::INNER_BATCH | sys_flag::NEED_UNWRAP);
    let stored = record.properties();
    assert_eq!(stored.pick([properties::INNER_NUM, properties::INNER_BASE]), [Some("2"), Some("3")]);
    node.stop_and_wait().expect("a clean stop");

    std::fs::remove_dir_all(dir.path().join("batchconsumequeue")).unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    assert_eq!(pull(&mut client, 0, 32, "*").1.len(), 6, "the queue is made again from the log");
    assert_eq!(field(&send(&mut client, &[7]), "queueOffset"), Some("6"));
}

// 3.2 #20: pull from offset 5 of a 10x10 inner-batch queue with maxNums 100 -> 100 messages starting at 0, min 0,
// max 100.
#[test]
fn a_pull_takes_whole_batches_up_to_what_it_wishes_for() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker_as(dir.path(), |part| part.config.max_transfer_count_on_message_in_memory = 1024);
    let mut client = Client::of(&node);
    make_topic(&mut client);
    (0..10).for_each(|_| assert_eq!(send(&mut client, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]).code, 0));
    let (answer, found) = pull(&mut client, 5, 100, "*");
    assert_eq!((found.len(), found[0].0), (100, 0));
    let header: PullMessageReplyHeader = answer.header().unwrap();
    assert_eq!((header.min_offset, header.max_offset, header.next_offset), (0, 100, 100));
    assert_eq!(pull(&mut client, 0, 25, "*").1.len(), 20, "a third batch would be more than was wished for");
    assert_eq!(pull(&mut client, 95, 3, "*").1.len(), 10, "the first is taken, however large");
}

#[test]
fn a_batch_is_handed_to_who_selects_by_tags_because_only_he_sees_them() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let (mut producer, mut consumer) = (Client::of(&node), Client::of(&node));
    make_topic(&mut producer);
    consumer.send(request::<PullMessage>(&held_pull_header(TOPIC, 0, 0, "T1")));
    // Requests of a connection are served in their order: once this is answered the pull is held.
    assert_eq!(consumer.pull("Nowhere", 0, 0, "*").response_code(), ResponseCode::TOPIC_NOT_EXIST);
    send(&mut producer, &[1, 2, 3]);
    let woken = consumer.receive().expect("the pull is woken");
    assert_eq!(Message::decode_all(woken.body).unwrap().len(), 3);
    assert_eq!(producer.produce(TOPIC, 0, &[4], "TAGS\u{1}T0\u{2}").code, 0);
    assert_eq!(pull(&mut producer, 3, 32, "T1").0.code, 20, "a single message tells its tag");
}

#[test]
fn a_batch_that_cannot_be_one_record_is_refused_and_one_that_failed_is_not_sent_back_whole() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    make_topic(&mut client);
    let torn = batch(TOPIC, "UNIQ_KEY\u{1}whole\u{2}", &[1]).with_body(Bytes::from_static(&[0, 0, 0, 9, 1]));
    for (refused, why) in [
        (batch(TOPIC, "UNIQ_KEY\u{1}w\u{2}DELAY\u{1}3\u{2}", &[1]), "neither be delayed nor"),
        (batch(TOPIC, "UNIQ_KEY\u{1}w\u{2}INNER_NUM\u{1}3\u{2}", &[1]), "message is illegal"),
        (torn, "message is illegal"),
    ] {
        let refused = client.call(refused);
        assert_eq!(refused.response_code(), ResponseCode::MESSAGE_ILLEGAL);
        assert!(refused.remark.clone().unwrap().contains(why), "{:?}", refused.remark);
    }
    let sent = send(&mut client, &[1, 2]);
    let id = field(&sent, "msgId").unwrap();
    let header = ConsumerSendMsgBackHeader {
        log_offset: i64::from_str_radix(&id[16..], 16).unwrap(),
        group: Text::from("readers"),
        delay_level: 0,
        ..ConsumerSendMsgBackHeader::default()
    };
    let refused = client.call(request::<ConsumerSendMsgBack>(&header));
    assert_eq!(refused.response_code(), ResponseCode::SYSTEM_ERROR);
    assert!(refused.remark.unwrap().contains("is not sent back as a whole"));
}

// 3.2 #17: 320 with N messages on a simple topic -> N consecutive queue offsets, msgId = comma list of N offset ids;
// #22: all members have the same born and store time.
#[test]
fn a_batch_to_a_plain_queue_is_taken_apart() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    let sent = client.call(batch("Plain", "UNIQ_KEY\u{1}whole\u{2}", &[1, 2, 3]));
    assert_eq!(field(&sent, "msgId").unwrap().split(',').count(), 3);
    assert_eq!((field(&sent, "queueOffset"), field(&sent, "batchUniqId")), (Some("0"), None));
    let messages = Message::decode_all(client.pull("Plain", 0, 0, "*").body).unwrap();
    assert_eq!(messages.iter().map(|message| message.queue_offset).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(messages[0].store_timestamp_ms, messages[2].store_timestamp_ms);
    assert_eq!(messages[1].message_id(), "item2");
}

#[test]
fn a_message_of_a_batch_is_stored_as_it_is_alone_whatever_stands_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    let ids =
        ["UNIQ_KEY\u{1}a1", "UNIQ_KEY\u{1}a2", "UNIQ_KEY\u{1}a3\u{2}", "UNIQ_KEY\u{1}b4\u{2}TAGS\u{1}T\u{2}"];
    let texts =
        ids.into_iter().chain(["UNIQ_KEY\u{1}a5\u{2}", "UNIQ_KEY\u{1}longer6\u{2}", "UNIQ_KEY\u{1}ä7\u{2}"]);
    let messages: Vec<_> = (1..).zip(texts).collect();
    let mut body = BytesMut::new();
    for (flag, text) in &messages {
        let of = vec![b'x'; usize::try_from(*flag).unwrap()];
        BatchItem { flag: *flag, body: &of, properties: PropertiesView(text.as_bytes()) }
            .encode(&mut body)
            .unwrap();
        let mut alone = send_request("Alone", 0, &of, text);
        alone.fields.set("h", flag.to_string());
        assert_eq!(client.call(alone).code, 0);
    }
    let together = client.call(batch("Together", "", b"").with_body(body.clone().freeze()));
    assert_eq!(together.code, 0, "{:?}", together.remark);
    let [alone, stored] =
        ["Alone", "Together"].map(|topic| Message::decode_all(client.pull(topic, 0, 0, "*").body).unwrap());
    assert_eq!((alone.len(), stored.len()), (messages.len(), messages.len()));
    for (alone, stored) in alone.iter().zip(&stored) {
        assert_eq!((&alone.body, alone.flag), (&stored.body, stored.flag));
        assert_eq!(alone.properties.encoded(), stored.properties.encoded());
        assert_eq!((alone.born_host, alone.queue_offset), (stored.born_host, stored.queue_offset));
    }
    let empty = BatchItem { flag: 0, body: b"", properties: PropertiesView(ids[0].as_bytes()) };
    empty.encode(&mut body).unwrap();
    let refused = client.call(batch("Together", "", b"").with_body(body.freeze()));
    assert_eq!(refused.response_code(), ResponseCode::MESSAGE_ILLEGAL);
    let messages = Message::decode_all(client.pull("Together", 0, 0, "*").body).unwrap();
    assert_eq!(messages.len(), stored.len(), "of a batch that is refused nothing is stored");
}

#[test]
fn the_batch_queues_of_a_store_of_java_are_read_and_gone_on_with() {
    let golden = GoldenStore::unpack("batch-cq");
    let node = start_broker(&golden.dir());
    let mut client = Client::of(&node);
    let mut per_queue = [0, 0];
    for (queue_id, count) in (0..).zip(&mut per_queue) {
        let mut offset = 0;
        loop {
            let answer = client.pull("GoldBatchCQ", queue_id, offset, "*");
            let header: PullMessageReplyHeader = answer.header().unwrap();
            let messages = Message::decode_all(answer.body).unwrap();
            if messages.is_empty() {
                assert_eq!(header.max_offset, *count);
                break;
            }
            assert_eq!(messages[0].queue_offset, *count);
            *count += i64::try_from(messages.len()).unwrap();
            offset = header.next_offset;
        }
    }
    let units = golden.messages().into_iter().filter(|message| message.topic == "GoldBatchCQ");
    let wanted: i64 = units.map(|unit| i64::from(unit.batch_num.unwrap_or(1))).sum();
    assert_eq!(per_queue.iter().sum::<i64>(), wanted);
    let sent = client.call(batch("GoldBatchCQ", "UNIQ_KEY\u{1}whole\u{2}", &[1, 2]));
    assert_eq!(field(&sent, "queueOffset"), Some(per_queue[0].to_string().as_str()));
}

/// 3.2 #18.
#[test]
fn what_no_batch_may_be_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let _member = join(&node, "g");
    let mut client = Client::of(&node);
    make_topic(&mut client);
    let refused = client.call(batch("%RETRY%g", "UNIQ_KEY\u{1}whole\u{2}", &[1]));
    let remark = refused.remark.clone().unwrap_or_default();
    assert_eq!(refused.response_code(), ResponseCode::MESSAGE_ILLEGAL, "{remark}");
    assert_eq!(remark.as_str(), "batch request does not support retry group");
    let delayed = client.call(batch(TOPIC, "UNIQ_KEY\u{1}whole\u{2}DELAY\u{1}2\u{2}", &[1]));
    assert_eq!(delayed.response_code(), ResponseCode::MESSAGE_ILLEGAL);
    assert_eq!(end(&mut client, true), "0", "nothing is stored");
}

#[test]
fn a_batch_in_one_record_counts_as_many_messages_as_it_holds() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    make_topic(&mut client);
    assert_eq!(send(&mut client, &[1, 2, 3]).code, 0);
    assert_eq!(send(&mut client, &[4, 5]).code, 0);
    let broker = node.broker().expect("the node has a broker");
    let counted = broker.directory.topic(TOPIC).unwrap().counters.read();
    let puts = counted.pair(&Key::default()).unwrap();
    assert_eq!((puts.messages, puts.calls, broker.stats.read().puts), (5, 2, 5));
}

/// A record with them is taken for one that lost a sector when the store is recovered: it would end the log there.
#[test]
fn properties_with_too_many_zeros_are_refused_in_a_send_a_batch_and_an_inner_batch() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    make_topic(&mut client);
    for (zeros, code) in [(511, ResponseCode::SUCCESS), (512, ResponseCode::MESSAGE_ILLEGAL)] {
        let properties = format!("UNIQ_KEY\u{1}whole\u{2}mine\u{1}{}\u{2}", "\0".repeat(zeros));
        let mut item = BytesMut::new();
        BatchItem { flag: 0, body: b"x", properties: PropertiesView(properties.as_bytes()) }
            .encode(&mut item)
            .unwrap();
        let sends = [
            ("alone", send_request("Plain", 0, b"x", &properties)),
            ("in a batch", batch("Plain", "", b"x").with_body(item.freeze())),
            ("as an inner batch", batch(TOPIC, &properties, b"x")),
        ];
        for (how, send) in sends {
            let answer = client.call(send);
            assert_eq!(answer.response_code(), code, "{how}: {:?}", answer.remark);
            let told = answer.remark.unwrap_or_default();
            assert_eq!(told.contains("\"mine\" has 512 zero bytes"), code != ResponseCode::SUCCESS, "{told}");
        }
    }
}
