//! Every request there is: code, name, direction, header, reply.
//!
//! Invariants:
//! - a request stands in one file of `request/`; its number and its keys are written there and nowhere else;
//! - no code stands twice in [`REQUESTS`], and every request is in it.

mod ack_message;
mod add_write_perm_of_broker;
mod auth_create_acl;
mod auth_create_user;
mod auth_delete_acl;
mod auth_delete_user;
mod auth_get_acl;
mod auth_get_user;
mod auth_list_acl;
mod auth_list_user;
mod auth_update_acl;
mod auth_update_user;
mod batch_ack_message;
mod broker_heartbeat;
mod change_message_invisibletime;
mod check_client_config;
mod check_rocksdb_cq_write_progress;
mod check_transaction_state;
mod clean_expired_consumequeue;
mod clean_unused_topic;
mod clone_group_offset;
mod consume_message_directly;
mod consumer_send_msg_back;
mod delete_expired_commitlog;
mod delete_kv_config;
mod delete_subscriptiongroup;
mod delete_topic_in_broker;
mod delete_topic_in_namesrv;
mod end_transaction;
mod exchange_broker_ha_info;
mod export_rocksdb_config_to_json;
mod get_all_consumer_offset;
mod get_all_delay_offset;
mod get_all_message_request_mode;
mod get_all_producer_info;
mod get_all_subscriptiongroup_config;
mod get_all_topic_config;
mod get_all_topic_list_from_nameserver;
mod get_broker_cluster_info;
mod get_broker_config;
mod get_broker_consume_stats;
mod get_broker_epoch_cache;
mod get_broker_ha_status;
mod get_broker_member_group;
mod get_broker_runtime_info;
mod get_cold_data_flow_ctr_info;
mod get_consume_stats;
mod get_consumer_connection_list;
mod get_consumer_list_by_group;
mod get_consumer_running_info;
mod get_consumer_status_from_client;
mod get_earliest_msg_storetime;
mod get_has_unit_sub_topic_list;
mod get_has_unit_sub_ununit_topic_list;
mod get_kv_config;
mod get_kvlist_by_namespace;
mod get_max_offset;
mod get_min_offset;
mod get_namesrv_config;
mod get_producer_connection_list;
mod get_routeinfo_by_topic;
mod get_subscriptiongroup_config;
mod get_system_topic_list_from_broker;
mod get_system_topic_list_from_ns;
mod get_timer_check_point;
mod get_timer_metrics;
mod get_topic_config;
mod get_topic_stats_info;
mod get_topics_by_cluster;
mod get_unit_topic_list;
mod heart_beat;
mod invoke_broker_to_get_consumer_status;
mod invoke_broker_to_reset_offset;
mod lock_batch_mq;
mod notification;
mod notify_consumer_ids_changed;
mod notify_min_broker_id_change;
mod peek_message;
mod polling_info;
mod pop_message;
mod pop_rollback;
mod pull_message;
mod push_reply_message_to_client;
mod put_kv_config;
mod query_assignment;
mod query_consume_queue;
mod query_consume_time_span;
mod query_consumer_offset;
mod query_correction_offset;
mod query_data_version;
mod query_message;
mod query_subscription_by_consumer;
mod query_topic_consume_by_who;
mod query_topics_by_consumer;
mod recall_message;
mod register_broker;
mod register_topic_in_namesrv;
mod remove_cold_data_flow_ctr_config;
mod reset_consumer_client_offset;
mod reset_master_flush_offset;
mod resume_check_half_message;
mod search_offset_by_timestamp;
mod send_message;
mod set_commitlog_read_mode;
mod set_message_request_mode;
mod unlock_batch_mq;
mod unregister_broker;
mod unregister_client;
mod update_and_create_static_topic;
mod update_and_create_subscriptiongroup;
mod update_and_create_subscriptiongroup_list;
mod update_and_create_topic;
mod update_and_create_topic_list;
mod update_and_get_group_forbidden;
mod update_broker_config;
mod update_cold_data_flow_ctr_config;
mod update_consumer_offset;
mod update_namesrv_config;
mod view_broker_stats_data;
mod view_message_by_id;
mod wipe_write_perm_of_broker;

pub use ack_message::*;
pub use add_write_perm_of_broker::*;
pub use auth_create_acl::*;
pub use auth_create_user::*;
pub use auth_delete_acl::*;
pub use auth_delete_user::*;
pub use auth_get_acl::*;
pub use auth_get_user::*;
pub use auth_list_acl::*;
pub use auth_list_user::*;
pub use auth_update_acl::*;
pub use auth_update_user::*;
pub use batch_ack_message::*;
pub use broker_heartbeat::*;
pub use change_message_invisibletime::*;
pub use check_client_config::*;
pub use check_rocksdb_cq_write_progress::*;
pub use check_transaction_state::*;
pub use clean_expired_consumequeue::*;
pub use clean_unused_topic::*;
pub use clone_group_offset::*;
pub use consume_message_directly::*;
pub use consumer_send_msg_back::*;
pub use delete_expired_commitlog::*;
pub use delete_kv_config::*;
pub use delete_subscriptiongroup::*;
pub use delete_topic_in_broker::*;
pub use delete_topic_in_namesrv::*;
pub use end_transaction::*;
pub use exchange_broker_ha_info::*;
pub use export_rocksdb_config_to_json::*;
pub use get_all_consumer_offset::*;
pub use get_all_delay_offset::*;
pub use get_all_message_request_mode::*;
pub use get_all_producer_info::*;
pub use get_all_subscriptiongroup_config::*;
pub use get_all_topic_config::*;
pub use get_all_topic_list_from_nameserver::*;
pub use get_broker_cluster_info::*;
pub use get_broker_config::*;
pub use get_broker_consume_stats::*;
pub use get_broker_epoch_cache::*;
pub use get_broker_ha_status::*;
pub use get_broker_member_group::*;
pub use get_broker_runtime_info::*;
pub use get_cold_data_flow_ctr_info::*;
pub use get_consume_stats::*;
pub use get_consumer_connection_list::*;
pub use get_consumer_list_by_group::*;
pub use get_consumer_running_info::*;
pub use get_consumer_status_from_client::*;
pub use get_earliest_msg_storetime::*;
pub use get_has_unit_sub_topic_list::*;
pub use get_has_unit_sub_ununit_topic_list::*;
pub use get_kv_config::*;
pub use get_kvlist_by_namespace::*;
pub use get_max_offset::*;
pub use get_min_offset::*;
pub use get_namesrv_config::*;
pub use get_producer_connection_list::*;
pub use get_routeinfo_by_topic::*;
pub use get_subscriptiongroup_config::*;
pub use get_system_topic_list_from_broker::*;
pub use get_system_topic_list_from_ns::*;
pub use get_timer_check_point::*;
pub use get_timer_metrics::*;
pub use get_topic_config::*;
pub use get_topic_stats_info::*;
pub use get_topics_by_cluster::*;
pub use get_unit_topic_list::*;
pub use heart_beat::*;
pub use invoke_broker_to_get_consumer_status::*;
pub use invoke_broker_to_reset_offset::*;
pub use lock_batch_mq::*;
pub use notification::*;
pub use notify_consumer_ids_changed::*;
pub use notify_min_broker_id_change::*;
pub use peek_message::*;
pub use polling_info::*;
pub use pop_message::*;
pub use pop_rollback::*;
pub use pull_message::*;
pub use push_reply_message_to_client::*;
pub use put_kv_config::*;
pub use query_assignment::*;
pub use query_consume_queue::*;
pub use query_consume_time_span::*;
pub use query_consumer_offset::*;
pub use query_correction_offset::*;
pub use query_data_version::*;
pub use query_message::*;
pub use query_subscription_by_consumer::*;
pub use query_topic_consume_by_who::*;
pub use query_topics_by_consumer::*;
pub use recall_message::*;
pub use register_broker::*;
pub use register_topic_in_namesrv::*;
pub use remove_cold_data_flow_ctr_config::*;
pub use reset_consumer_client_offset::*;
pub use reset_master_flush_offset::*;
pub use resume_check_half_message::*;
pub use search_offset_by_timestamp::*;
pub use send_message::*;
pub use set_commitlog_read_mode::*;
pub use set_message_request_mode::*;
pub use unlock_batch_mq::*;
pub use unregister_broker::*;
pub use unregister_client::*;
pub use update_and_create_static_topic::*;
pub use update_and_create_subscriptiongroup::*;
pub use update_and_create_subscriptiongroup_list::*;
pub use update_and_create_topic::*;
pub use update_and_create_topic_list::*;
pub use update_and_get_group_forbidden::*;
pub use update_broker_config::*;
pub use update_cold_data_flow_ctr_config::*;
pub use update_consumer_offset::*;
pub use update_namesrv_config::*;
pub use view_broker_stats_data::*;
pub use view_message_by_id::*;
pub use wipe_write_perm_of_broker::*;

use crate::error::CodecError;
use crate::fields::Fields;
use crate::header::Header;

/// Who sends a request to whom. Tools count as clients, a slave as a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// A client or tool asks a broker.
    ClientToBroker,
    /// A client, tool or broker asks a name server.
    ToNameServer,
    /// A broker asks a client over the connection the client opened.
    BrokerToClient,
    /// A tool asks a broker, which asks a client with the same code.
    ThroughBroker,
    /// A name server tells a broker.
    NameServerToBroker,
    /// A slave asks its master, or a broker another.
    BrokerToBroker,
}

/// A request: what is known about it at compile time.
pub trait Request {
    /// The request code.
    const CODE: i32;
    /// The name in RocketMQ's spelling.
    const NAME: &'static str;
    /// Who sends it to whom.
    const TO: Direction;
    /// The header of the request.
    type Header: Header;
    /// The header of a successful answer.
    type Reply: Header;
}

/// What the table tells about a request.
#[derive(Debug, Clone, Copy)]
pub struct RequestInfo {
    /// The request code.
    pub code: i32,
    /// The name in RocketMQ's spelling.
    pub name: &'static str,
    /// Who sends it to whom.
    pub to: Direction,
    /// Keys of the request's header.
    pub keys: &'static [&'static str],
    /// Keys of the header of a successful answer.
    pub reply_keys: &'static [&'static str],
    /// Reads the header of a request and writes it again, which keeps what is known of it.
    pub reread: fn(&Fields) -> Result<Fields, CodecError>,
    /// The same for the header of a successful answer.
    pub reread_reply: fn(&Fields) -> Result<Fields, CodecError>,
}

const fn info<R: Request>() -> RequestInfo {
    RequestInfo {
        code: R::CODE,
        name: R::NAME,
        to: R::TO,
        keys: R::Header::KEYS,
        reply_keys: R::Reply::KEYS,
        reread: reread::<R::Header>,
        reread_reply: reread::<R::Reply>,
    }
}

fn reread<H: Header>(fields: &Fields) -> Result<Fields, CodecError> {
    let mut again = Fields::new();
    H::read(fields)?.write(&mut again);
    Ok(again)
}

/// Every request.
pub const REQUESTS: &[RequestInfo] = &[
    info::<SendMessage>(),
    info::<PullMessage>(),
    info::<QueryMessage>(),
    info::<QueryConsumerOffset>(),
    info::<UpdateConsumerOffset>(),
    info::<UpdateAndCreateTopic>(),
    info::<UpdateAndCreateTopicList>(),
    info::<GetAllTopicConfig>(),
    info::<UpdateBrokerConfig>(),
    info::<GetBrokerConfig>(),
    info::<GetBrokerRuntimeInfo>(),
    info::<SearchOffsetByTimestamp>(),
    info::<GetMaxOffset>(),
    info::<GetMinOffset>(),
    info::<GetEarliestMsgStoretime>(),
    info::<ViewMessageById>(),
    info::<HeartBeat>(),
    info::<UnregisterClient>(),
    info::<ConsumerSendMsgBack>(),
    info::<EndTransaction>(),
    info::<GetConsumerListByGroup>(),
    info::<CheckTransactionState>(),
    info::<NotifyConsumerIdsChanged>(),
    info::<LockBatchMq>(),
    info::<UnlockBatchMq>(),
    info::<GetAllConsumerOffset>(),
    info::<GetAllDelayOffset>(),
    info::<CheckClientConfig>(),
    info::<GetTimerCheckPoint>(),
    info::<GetTimerMetrics>(),
    info::<PutKvConfig>(),
    info::<GetKvConfig>(),
    info::<DeleteKvConfig>(),
    info::<RegisterBroker>(),
    info::<UnregisterBroker>(),
    info::<GetRouteinfoByTopic>(),
    info::<GetBrokerClusterInfo>(),
    info::<UpdateAndCreateSubscriptiongroup>(),
    info::<GetAllSubscriptiongroupConfig>(),
    info::<GetTopicStatsInfo>(),
    info::<GetConsumerConnectionList>(),
    info::<GetProducerConnectionList>(),
    info::<WipeWritePermOfBroker>(),
    info::<GetAllTopicListFromNameserver>(),
    info::<DeleteSubscriptiongroup>(),
    info::<GetConsumeStats>(),
    info::<DeleteTopicInBroker>(),
    info::<DeleteTopicInNamesrv>(),
    info::<RegisterTopicInNamesrv>(),
    info::<GetKvlistByNamespace>(),
    info::<ResetConsumerClientOffset>(),
    info::<GetConsumerStatusFromClient>(),
    info::<InvokeBrokerToResetOffset>(),
    info::<InvokeBrokerToGetConsumerStatus>(),
    info::<GetTopicsByCluster>(),
    info::<UpdateAndCreateSubscriptiongroupList>(),
    info::<QueryTopicConsumeByWho>(),
    info::<QueryConsumeTimeSpan>(),
    info::<GetSystemTopicListFromNs>(),
    info::<GetSystemTopicListFromBroker>(),
    info::<CleanExpiredConsumequeue>(),
    info::<GetConsumerRunningInfo>(),
    info::<QueryCorrectionOffset>(),
    info::<ConsumeMessageDirectly>(),
    info::<SendMessageV2>(),
    info::<GetUnitTopicList>(),
    info::<GetHasUnitSubTopicList>(),
    info::<GetHasUnitSubUnunitTopicList>(),
    info::<CloneGroupOffset>(),
    info::<ViewBrokerStatsData>(),
    info::<CleanUnusedTopic>(),
    info::<GetBrokerConsumeStats>(),
    info::<UpdateNamesrvConfig>(),
    info::<GetNamesrvConfig>(),
    info::<SendBatchMessage>(),
    info::<QueryConsumeQueue>(),
    info::<QueryDataVersion>(),
    info::<ResumeCheckHalfMessage>(),
    info::<SendReplyMessage>(),
    info::<SendReplyMessageV2>(),
    info::<PushReplyMessageToClient>(),
    info::<AddWritePermOfBroker>(),
    info::<GetAllProducerInfo>(),
    info::<DeleteExpiredCommitlog>(),
    info::<QueryTopicsByConsumer>(),
    info::<QuerySubscriptionByConsumer>(),
    info::<GetTopicConfig>(),
    info::<GetSubscriptiongroupConfig>(),
    info::<UpdateAndGetGroupForbidden>(),
    info::<CheckRocksdbCqWriteProgress>(),
    info::<ExportRocksdbConfigToJson>(),
    info::<LitePullMessage>(),
    info::<RecallMessage>(),
    info::<QueryAssignment>(),
    info::<SetMessageRequestMode>(),
    info::<GetAllMessageRequestMode>(),
    info::<UpdateAndCreateStaticTopic>(),
    info::<GetBrokerMemberGroup>(),
    info::<BrokerHeartbeat>(),
    info::<NotifyMinBrokerIdChange>(),
    info::<ExchangeBrokerHaInfo>(),
    info::<GetBrokerHaStatus>(),
    info::<ResetMasterFlushOffset>(),
    info::<GetBrokerEpochCache>(),
    info::<UpdateColdDataFlowCtrConfig>(),
    info::<RemoveColdDataFlowCtrConfig>(),
    info::<GetColdDataFlowCtrInfo>(),
    info::<SetCommitlogReadMode>(),
    info::<AuthCreateUser>(),
    info::<AuthUpdateUser>(),
    info::<AuthDeleteUser>(),
    info::<AuthGetUser>(),
    info::<AuthListUser>(),
    info::<AuthCreateAcl>(),
    info::<AuthUpdateAcl>(),
    info::<AuthDeleteAcl>(),
    info::<AuthGetAcl>(),
    info::<AuthListAcl>(),
    info::<PopMessage>(),
    info::<AckMessage>(),
    info::<PeekMessage>(),
    info::<ChangeMessageInvisibletime>(),
    info::<Notification>(),
    info::<PollingInfo>(),
    info::<PopRollback>(),
    info::<BatchAckMessage>(),
];

/// Looks a code up.
pub fn request_info(code: i32) -> Option<&'static RequestInfo> {
    REQUESTS.iter().find(|request| request.code == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_code_and_no_name_stands_twice() {
        for (position, request) in REQUESTS.iter().enumerate() {
            let same = |other: &RequestInfo| other.code == request.code || other.name == request.name;
            assert_eq!(REQUESTS.iter().position(same), Some(position), "{}", request.name);
        }
    }

    #[test]
    fn every_file_is_in_the_table() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/request");
        let mut missing = Vec::new();
        for file in std::fs::read_dir(folder).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            for line in
                text.lines().filter_map(|line| line.trim().strip_prefix("const NAME: &'static str = \""))
            {
                let name = line.trim_end_matches("\";");
                if !REQUESTS.iter().any(|request| request.name == name) {
                    missing.push(name.to_owned());
                }
            }
        }
        assert_eq!(missing, Vec::<String>::new());
    }

    #[test]
    fn no_key_stands_twice_in_a_header() {
        for request in REQUESTS {
            for keys in [request.keys, request.reply_keys] {
                for (position, key) in keys.iter().enumerate() {
                    let first = keys.iter().position(|other| other == key);
                    assert_eq!(first, Some(position), "{}: {key}", request.name);
                }
            }
        }
    }
}
