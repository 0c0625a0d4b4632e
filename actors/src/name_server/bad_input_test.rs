//! Every request a name server serves, with one thing wrong.
//!
//! Invariants:
//! - the requests and their faults come from the table of requests.

use troupemq_codec::request::*;
use troupemq_codec::{Command, Request, ResponseCode};

use crate::config::{NameServerPart, NodeConfig};
use crate::node::{Node, NodeHandle};
use crate::testing::bad_input::{Bad, Fault, bad_bodies, bad_headers};
use crate::testing::{Client, request};

/// Requests that live by their body.
const WITH_BODY: [&str; 4] =
    [QueryDataVersion::NAME, RegisterBroker::NAME, RegisterTopicInNamesrv::NAME, UpdateNamesrvConfig::NAME];

fn to_name_server(info: &RequestInfo) -> bool {
    info.to == Direction::ToNameServer
}

fn start() -> (NodeHandle, Client) {
    let part = NameServerPart { listen: ([127, 0, 0, 1], 0).into(), ..NameServerPart::default() };
    let node = Node::start(NodeConfig { name_server: Some(part), ..NodeConfig::empty() }).unwrap();
    let client = Client::connect(node.name_server_address().unwrap());
    (node, client)
}

fn ask(client: &mut Client, bad: &Bad) -> (ResponseCode, String) {
    let answer = client.call(bad.command.clone());
    (answer.response_code(), answer.remark.as_deref().unwrap_or_default().to_owned())
}

fn holds(client: &mut Client) -> Vec<Command> {
    let asked = [
        request::<GetAllTopicListFromNameserver>(&Default::default()),
        request::<GetBrokerClusterInfo>(&Default::default()),
        request::<GetNamesrvConfig>(&Default::default()),
    ];
    let told = asked.into_iter().map(|asked| client.call(asked));
    told.map(|mut answer| {
        answer.opaque = 0;
        answer
    })
    .collect()
}

#[test]
fn a_field_that_is_missing_or_no_number_is_refused_by_name() {
    let (node, mut client) = start();
    let before = holds(&mut client);
    let mut refused = 0;
    for bad in bad_headers(to_name_server) {
        if !matches!(bad.fault, Fault::Missing | Fault::NotANumber | Fault::OutOfRange) {
            continue;
        }
        let (code, remark) = ask(&mut client, &bad);
        assert_eq!(code, ResponseCode::SYSTEM_ERROR, "{bad:?}: {remark}");
        assert!(remark.contains(bad.key), "{bad:?}: {remark}");
        refused += 1;
    }
    assert!(refused > 25, "{refused} refusals");
    assert_eq!(holds(&mut client), before);
    node.stop_and_wait().unwrap();
}

#[test]
fn a_body_that_is_none_is_refused_and_registers_nothing() {
    let (node, mut client) = start();
    let before = holds(&mut client);
    for bad in bad_bodies(|info| WITH_BODY.contains(&info.name)) {
        let (code, remark) = ask(&mut client, &bad);
        let wholly_other = bad.command.body.starts_with(b"{\"topic\"");
        assert!(wholly_other || code != ResponseCode::SUCCESS, "{} took {:?}", bad.name, bad.command.body);
        assert!(code == ResponseCode::SUCCESS || !remark.is_empty(), "{bad:?}: {code:?} without a reason");
    }
    assert_eq!(holds(&mut client), before);
    node.stop_and_wait().unwrap();
}

#[test]
fn whatever_is_wrong_every_request_is_answered() {
    let (node, mut client) = start();
    for bad in bad_headers(to_name_server).iter().chain(&bad_bodies(to_name_server)) {
        ask(&mut client, bad);
        let mut bare = bad.clone();
        bare.command.fields = Default::default();
        ask(&mut client, &bare);
    }
    let told = client.call(request::<GetBrokerClusterInfo>(&Default::default()));
    assert_eq!(told.code, 0);
    node.stop_and_wait().unwrap();
}
