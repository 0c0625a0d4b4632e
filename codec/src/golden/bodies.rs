//! Bodies: every golden body is read into its type, and nothing of it is lost.
//!
//! Invariants:
//! - every code with a JSON body has a type for it;
//! - lists may come out in another order, because Java writes sets as its hash tables have them.

use serde::Serialize;
use serde::de::DeserializeOwned;

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
        BatchAckMessage::CODE => json::<BatchAckBody>,
        AuthCreateUser::CODE | AuthUpdateUser::CODE => json::<UserInfo>,
        AuthCreateAcl::CODE | AuthUpdateAcl::CODE => json::<AclInfo>,
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
        _ => return admin_reply_body(code),
    })
}

fn admin_reply_body(code: i32) -> Option<Reread> {
    Some(match code {
        GetTopicStatsInfo::CODE => json::<TopicStats>,
        GetConsumerConnectionList::CODE => json::<ConsumerConnection>,
        GetProducerConnectionList::CODE => json::<ProducerConnection>,
        GetConsumeStats::CODE => json::<ConsumeStats>,
        InvokeBrokerToResetOffset::CODE => json::<ResetOffsetBody>,
        GetConsumerRunningInfo::CODE => json::<ConsumerRunningInfo>,
        ConsumeMessageDirectly::CODE => json::<ConsumeDirectlyResult>,
        ViewBrokerStatsData::CODE => json::<BrokerStats>,
        GetBrokerConsumeStats::CODE => json::<ConsumeStatsList>,
        QueryConsumeQueue::CODE => json::<ConsumeQueueUnits>,
        GetAllProducerInfo::CODE => json::<ProducerTable>,
        CheckRocksdbCqWriteProgress::CODE => json::<WriteProgress>,
        GetBrokerHaStatus::CODE => json::<HaStatus>,
        GetColdDataFlowCtrInfo::CODE => json::<ColdDataFlow>,
        AuthGetUser::CODE => json::<UserInfo>,
        AuthListUser::CODE => json::<Vec<UserInfo>>,
        AuthGetAcl::CODE => json::<AclInfo>,
        AuthListAcl::CODE => json::<Vec<AclInfo>>,
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
