//! Questions of tools that go through the broker to a client.
//!
//! Invariants:
//! - both ends are plain sockets: what the client is asked and what the tool hears is what went over the wire.

use bytes::{Bytes, BytesMut};
use troupemq_codec::heartbeat_data::{ConsumerData, HeartbeatData};
use troupemq_codec::loose_json::{from_loose, to_fastjson};
use troupemq_codec::message::RecordView;
use troupemq_codec::request::*;
use troupemq_codec::topic::MessageQueue;
use troupemq_codec::version::OUR_VERSION;
use troupemq_codec::{Command, Request, ResponseCode, Text};

use crate::node::NodeHandle;
use crate::testing::{Client, request, start_broker};

const CLIENT_ID: &str = "127.0.0.1@worker";

/// A member of the group `workers`.
fn online(node: &NodeHandle, version: i32) -> Client {
    let mut client = Client::of(node);
    let group = ConsumerData { group_name: Text::from("workers"), ..ConsumerData::default() };
    let data = HeartbeatData {
        client_id: Text::from(CLIENT_ID),
        consumer_data_set: vec![group],
        ..HeartbeatData::default()
    };
    let mut beat = request::<HeartBeat>(&Default::default()).with_body(Bytes::from(to_fastjson(&data)));
    beat.version = version;
    let opaque = client.send(beat);
    while client.receive().unwrap().opaque != opaque {}
    client
}

/// Waits for a question and answers it.
fn answer(client: &mut Client, code: i32, with: &Command) -> Command {
    loop {
        let asked = client.receive().unwrap();
        if asked.code == code {
            let mut out = BytesMut::new();
            with.clone().answering(&asked).encode(&mut out);
            client.write(&out);
            return asked;
        }
    }
}

fn running_info(client_id: &str) -> Command {
    request::<GetConsumerRunningInfo>(&GetConsumerRunningInfoHeader {
        group: Text::from("workers"),
        client_id: Text::from(client_id),
        with_stacks: Some(false),
    })
}

#[test]
fn what_a_client_says_of_itself_goes_back_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = online(&node, OUR_VERSION);
    let mut tool = Client::of(&node);
    tool.send(running_info(CLIENT_ID));
    let told = Command::response(ResponseCode::SUCCESS).with_remark("well").with_body(Bytes::from("{}"));
    let asked = answer(&mut client, GetConsumerRunningInfo::CODE, &told);
    assert_eq!(
        (asked.fields.get("clientId"), asked.fields.get("jstackEnable")),
        (Some(CLIENT_ID), Some("false"))
    );
    let heard = tool.receive().unwrap();
    assert_eq!((heard.code, heard.remark.as_deref(), &heard.body[..]), (0, Some("well"), &b"{}"[..]));
    node.stop_and_wait().unwrap();
}

#[test]
fn a_client_that_is_not_there_or_too_old_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let _client = online(&node, 10);
    let mut tool = Client::of(&node);
    let heard = tool.call(running_info("127.0.0.1@nobody"));
    assert_eq!(heard.code, 1);
    assert_eq!(heard.remark.as_deref(), Some("The Consumer <workers> <127.0.0.1@nobody> not online"));
    let heard = tool.call(running_info(CLIENT_ID));
    assert_eq!(heard.code, 1);
    assert!(heard.remark.unwrap().contains("too low to finish"));
    node.stop_and_wait().unwrap();
}

#[test]
fn a_message_to_be_consumed_directly_is_sent_along() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = online(&node, OUR_VERSION);
    let mut tool = Client::of(&node);
    let sent: SendMessageReplyHeader = tool.produce("orders", 0, b"one", "").header().unwrap();
    let header = ConsumeMessageDirectlyHeader {
        group: Text::from("workers"),
        client_id: Some(Text::from(CLIENT_ID)),
        message_id: Some(sent.message_id.clone()),
        topic: Some(Text::from("orders")),
        ..ConsumeMessageDirectlyHeader::default()
    };
    tool.send(request::<ConsumeMessageDirectly>(&header));
    let asked = answer(
        &mut client,
        ConsumeMessageDirectly::CODE,
        &Command::response(ResponseCode::SUCCESS).with_body(Bytes::from("{\"consumeResult\":\"CR_LATER\"}")),
    );
    assert_eq!(RecordView::parse(&asked.body).unwrap().body(), b"one");
    assert_eq!(asked.fields.get("brokerName"), Some("broker-a"));
    let result: ConsumeDirectlyResult = from_loose(&tool.receive().unwrap().body).unwrap();
    assert_eq!(result.consume_result, DirectResult::Later);
    let unknown = ConsumeMessageDirectlyHeader { message_id: Some(Text::from("zz")), ..header };
    let heard = tool.call(request::<ConsumeMessageDirectly>(&unknown));
    assert_eq!((heard.code, heard.remark.as_deref()), (1, Some("no message has the id zz")));
    node.stop_and_wait().unwrap();
}

#[test]
fn the_offsets_of_all_clients_are_gathered() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = online(&node, OUR_VERSION);
    let mut tool = Client::of(&node);
    let header = InvokeBrokerToGetConsumerStatusHeader {
        topic: Text::from("orders"),
        group: Text::from("workers"),
        client_address: None,
    };
    tool.send(request::<InvokeBrokerToGetConsumerStatus>(&header));
    let queue =
        MessageQueue { broker_name: Text::from("broker-a"), queue_id: 2, topic: Text::from("orders") };
    let mut status = ConsumerStatus::default();
    status.message_queue_table.insert(queue.clone(), 17);
    let told = Command::response(ResponseCode::SUCCESS).with_body(Bytes::from(to_fastjson(&status)));
    answer(&mut client, GetConsumerStatusFromClient::CODE, &told);
    let heard: ConsumerStatus = from_loose(&tool.receive().unwrap().body).unwrap();
    assert_eq!(heard.consumer_table[CLIENT_ID][&queue], 17);
    node.stop_and_wait().unwrap();
}
