//! Stores that Java's broker left: its groups go on where they were, and what they failed with goes on to its end.
//!
//! Invariants:
//! - nothing here waits for real time to pass but for the wake of an actor.

use std::collections::BTreeMap;
use std::path::Path;

use troupemq_codec::Text;
use troupemq_codec::message::Message;
use troupemq_codec::request::{
    ConsumerOffsetTable, ConsumerSendMsgBack, ConsumerSendMsgBackHeader, PullMessage, PullMessageHeader,
    QueryConsumerOffset, QueryConsumerOffsetHeader, UpdateConsumerOffset, UpdateConsumerOffsetHeader,
};
use troupemq_store::tables::TableFile;
use troupemq_store::testing::GoldenStore;

use super::transaction_test::take_over;
use crate::node::NodeHandle;
use crate::testing::{Client, pull_header, request, stored, wait_for};

/// Offsets by topic and group, and by queue.
type Offsets = BTreeMap<Text, BTreeMap<i32, i64>>;

/// What stands in the table of a store.
fn offsets(dir: &Path) -> Offsets {
    let table = TableFile::<ConsumerOffsetTable>::open(dir).expect("a whole table").1.offset_table;
    table.into_iter().map(|(key, queues)| (key, queues.into_iter().collect())).collect()
}

/// The topic and the group of a key; none for those of broadcast groups and of the broker itself.
fn of_client(key: &str) -> Option<(&str, &str)> {
    key.split_once('@').filter(|(_, group)| group.starts_with("cg_") && !group.contains('@'))
}

fn committed(client: &mut Client, (topic, group): (&str, &str), queue_id: i32) -> Option<i64> {
    let header = QueryConsumerOffsetHeader {
        group: Text::from(group),
        topic: Text::from(topic),
        queue_id,
        zero_if_not_found: Some(false),
    };
    let answer = client.call(request::<QueryConsumerOffset>(&header));
    answer.fields.get("offset").map(|offset| offset.parse().expect("a number"))
}

/// Everything that a group gets from `from` on.
fn pulled(client: &mut Client, (topic, group): (&str, &str), queue_id: i32, from: i64) -> Vec<Message> {
    let (mut found, mut offset) = (Vec::new(), from);
    loop {
        let header =
            PullMessageHeader { group: Text::from(group), ..pull_header(topic, queue_id, offset, "*") };
        let answer = client.call(request::<PullMessage>(&header));
        let messages = Message::decode_all(answer.body).unwrap_or_default();
        let Some(last) = messages.last() else { return found };
        offset = last.queue_offset + 1;
        found.extend(messages);
    }
}

fn commit(client: &mut Client, (topic, group): (&str, &str), queue_id: i32, queue_offset: i64) {
    let (group, topic) = (Text::from(group), Text::from(topic));
    let header = UpdateConsumerOffsetHeader { group, topic, queue_id, queue_offset };
    assert_eq!(client.call(request::<UpdateConsumerOffset>(&header)).code, 0);
}

/// The end of a queue that Java made.
fn end_of(node: &NodeHandle, topic: &str, queue_id: i32) -> i64 {
    node.broker().expect("a broker").queues.get(topic, queue_id).expect("Java's queue").max_offset()
}

#[test]
fn groups_of_a_store_of_java_go_on_where_they_were() {
    for (set, groups) in [("delivery-clean", 6), ("batch-cq", 3)] {
        let golden = GoldenStore::unpack(set);
        let java = offsets(&golden.dir());
        let (node, _clock) = take_over(&golden);
        let mut client = Client::of(&node);
        let mut ours = java.clone();
        let of_clients = || java.iter().filter_map(|(key, queues)| Some((key, of_client(key)?, queues)));
        assert_eq!(of_clients().count(), groups, "{set}");
        for (key, of, queues) in of_clients() {
            for (&queue_id, &offset) in queues {
                assert_eq!(committed(&mut client, of, queue_id), Some(offset), "{key} {queue_id}");
                let end = end_of(&node, of.0, queue_id);
                stored(&client.produce(of.0, queue_id, key.as_bytes(), ""));
                let messages = pulled(&mut client, of, queue_id, offset);
                let found: Vec<i64> = messages.iter().map(|message| message.queue_offset).collect();
                assert_eq!(found, (offset..=end).collect::<Vec<_>>(), "{key} {queue_id}");
                assert_eq!(messages.last().map(|message| &message.body[..]), Some(key.as_bytes()));
                commit(&mut client, of, queue_id, end + 1);
                *ours.entry(key.clone()).or_default().entry(queue_id).or_default() = end + 1;
            }
        }
        node.stop_and_wait().expect("a clean stop");
        let of_system = |key: &Text| key.ends_with("@CID_RMQ_SYS_TRANS");
        let (mut kept, mut wanted) = (offsets(&golden.dir()), ours.clone());
        kept.retain(|key, _| !of_system(key));
        wanted.retain(|key, _| !of_system(key));
        assert_eq!(kept, wanted, "{set}: those of broadcast groups are as they were");
        let (node, _clock) = take_over(&golden);
        let mut client = Client::of(&node);
        for (key, queues) in ours.iter().filter(|(key, _)| of_client(key).is_some()) {
            let of = of_client(key).expect("a group of clients");
            for (&queue_id, &offset) in queues {
                assert_eq!(committed(&mut client, of, queue_id), Some(offset), "{key} {queue_id} later");
            }
        }
        node.stop_and_wait().expect("a clean stop");
    }
}

/// A message that its group failed with at Java's broker, and that waits there for its second try.
#[test]
fn what_a_group_of_java_failed_with_goes_on_to_its_dead_letters() {
    const RETRY: &str = "%RETRY%cg_retry";
    let golden = GoldenStore::unpack("delivery-clean");
    let (node, clock) = take_over(&golden);
    let next = end_of(&node, RETRY, 0);
    let dead = end_of(&node, "%DLQ%cg_retry", 0);
    clock.advance_to(1_795_968_769_964);
    let mut client = Client::of(&node);
    // Others of the group come after it.
    let find = |client: &mut Client, topic: &str, from: i64| {
        let mut offsets = from..;
        loop {
            let message = wait_for(client, topic, 0, offsets.next().expect("there is a next"));
            if message.properties.get("UNIQ_KEY") == Some("7F000001461B4E0E2F2A93A734DA0005") {
                return message;
            }
        }
    };
    let mut message = find(&mut client, RETRY, next);
    let (first, body) = (message.clone(), message.body.clone());
    assert_eq!(first.queue_offset, next);
    assert_eq!(first.reconsume_times, 1);
    for times in 2..=4 {
        let header = ConsumerSendMsgBackHeader {
            log_offset: message.log_offset,
            group: Text::from("cg_retry"),
            delay_level: 1,
            reconsume_max: Some(3),
            ..ConsumerSendMsgBackHeader::default()
        };
        let mut back = request::<ConsumerSendMsgBack>(&header);
        back.version = 475;
        assert_eq!(client.call(back).code, 0);
        clock.advance_ms(1000);
        let (topic, from) =
            if times <= 3 { (RETRY, message.queue_offset + 1) } else { ("%DLQ%cg_retry", dead) };
        message = find(&mut client, topic, from);
        assert_eq!(message.reconsume_times, times);
        assert_eq!((&message.body, message.flag), (&body, first.flag), "try {times}");
        for (name, value) in [
            ("UNIQ_KEY", first.properties.get("UNIQ_KEY")),
            ("ORIGIN_MESSAGE_ID", Some("7F00000100002A9F00000000000004DC")),
            ("RETRY_TOPIC", Some("GoldNormal")),
            ("KEYS", first.properties.get("KEYS")),
            ("TAGS", first.properties.get("TAGS")),
        ] {
            assert_eq!(message.properties.get(name), value, "{name} of try {times}");
        }
    }
    node.stop_and_wait().expect("a clean stop");
}
