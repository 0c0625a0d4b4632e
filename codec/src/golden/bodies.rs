//! Bodies: every golden body is read into its type, and nothing of it is lost.
//!
//! Invariants:
//! - a body of a code without a type of its own is at least read as loose JSON;
//! - lists may come out in another order, because Java writes sets as its hash tables have them.

use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::frames;
use crate::command::Command;
use crate::error::CodecError;
use crate::group::{SubscriptionGroupConfig, SubscriptionGroupTable};
use crate::heartbeat_data::HeartbeatData;
use crate::loose_json::{assert_holds, from_loose, to_fastjson};
use crate::request::*;
use crate::route::{ClusterInfo, TopicRouteData};
use crate::topic::{DataVersion, TopicConfig, TopicConfigTable, TopicQueueMapping};

/// Reads a body into its type and writes it again.
type Reread = fn(&[u8]) -> Result<Vec<u8>, CodecError>;

fn json<T: Serialize + DeserializeOwned>(body: &[u8]) -> Result<Vec<u8>, CodecError> {
    from_loose::<T>(body).map(|value| to_fastjson(&value))
}

fn untyped(body: &[u8]) -> Result<Vec<u8>, CodecError> {
    from_loose::<IgnoredAny>(body).map(|_| body.to_vec())
}

fn registration(body: &[u8]) -> Result<Vec<u8>, CodecError> {
    let read = RegisterBrokerBody::decode(body)?;
    if body.first() == Some(&b'{') {
        return Ok(read.encode());
    }
    assert_eq!(RegisterBrokerBody::decode(&read.encode_compressed()), Ok(read));
    Ok(body.to_vec())
}

fn request_body(code: i32) -> Option<Reread> {
    Some(match code {
        HeartBeat::CODE => json::<HeartbeatData>,
        LockBatchMq::CODE | UnlockBatchMq::CODE => json::<LockBody>,
        CheckClientConfig::CODE => json::<CheckClientBody>,
        RegisterBroker::CODE => registration,
        QueryDataVersion::CODE => json::<DataVersion>,
        RegisterTopicInNamesrv::CODE => json::<TopicRouteData>,
        UpdateAndCreateTopicList::CODE => json::<TopicConfigList>,
        UpdateAndCreateSubscriptiongroup::CODE => json::<SubscriptionGroupConfig>,
        UpdateAndCreateSubscriptiongroupList::CODE => json::<SubscriptionGroupList>,
        QueryAssignment::CODE => json::<AssignmentBody>,
        SetMessageRequestMode::CODE => json::<RequestModeBody>,
        UpdateAndCreateStaticTopic::CODE => json::<TopicQueueMapping>,
        BatchAckMessage::CODE | 3001 | 3002 | 3006 | 3007 => untyped,
        _ => return None,
    })
}

fn reply_body(code: i32) -> Option<Reread> {
    Some(match code {
        GetConsumerListByGroup::CODE => json::<ConsumerList>,
        LockBatchMq::CODE => json::<LockReplyBody>,
        GetRouteinfoByTopic::CODE => json::<TopicRouteData>,
        GetBrokerClusterInfo::CODE => json::<ClusterInfo>,
        QueryDataVersion::CODE => json::<DataVersion>,
        GetBrokerMemberGroup::CODE => json::<BrokerMemberGroupBody>,
        GetAllTopicConfig::CODE => json::<TopicConfigTable>,
        GetTopicConfig::CODE => json::<TopicConfig>,
        GetAllSubscriptiongroupConfig::CODE => json::<SubscriptionGroupTable>,
        QueryAssignment::CODE => json::<AssignmentReplyBody>,
        GetAllTopicListFromNameserver::CODE
        | GetTopicsByCluster::CODE
        | GetSystemTopicListFromBroker::CODE
        | QueryTopicsByConsumer::CODE => json::<TopicList>,
        GetBrokerRuntimeInfo::CODE => json::<KvTable>,
        QueryTopicConsumeByWho::CODE => json::<GroupList>,
        QuerySubscriptionByConsumer::CODE => json::<SubscriptionOfGroup>,
        202 | 203 | 204 | 208 | 222 | 307 | 309 | 315 | 317 | 321 | 328 | 354 => untyped,
        907 | 2003 | 3004 | 3005 | 3009 | 3010 => untyped,
        _ => return None,
    })
}

/// Codes whose bodies are messages or lines of text.
fn has_no_json(code: i32) -> bool {
    let messages = [10, 11, 12, 33, 39, 309, 310, 320, 325, 326, 361, 200_050];
    messages.contains(&code) || [25, 26, 318, 319, 2001, 2002].contains(&code)
}

#[test]
fn every_body_is_read_into_its_type_and_nothing_is_lost() {
    let mut read = 0;
    for golden in frames() {
        let command = Command::decode(golden.cut()).unwrap();
        if command.body.is_empty() {
            continue;
        }
        let (code, reread) = match golden.request_code {
            Some(code) => (code, reply_body(code)),
            None => (command.code, request_body(command.code)),
        };
        let Some(reread) = reread else {
            // The recording began in the middle of a connection for a few answers with messages.
            assert!(has_no_json(code) || command.is_response(), "{} has a body without a type", golden.name);
            continue;
        };
        let again = match reread(&command.body) {
            Ok(again) => again,
            Err(_) if golden.is_bad_on_purpose => continue,
            Err(cause) => panic!("{}: {cause}", golden.name),
        };
        if again != command.body {
            assert_holds(&again, &command.body, &golden.name);
        }
        read += 1;
    }
    assert!(read > 800, "only {read} bodies");
}
