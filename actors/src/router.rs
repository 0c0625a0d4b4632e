//! The router: which function answers which request code.
//!
//! Invariants:
//! - a request code is matched in one place, here, by the constant of its request type;
//! - an unknown code is answered `REQUEST_CODE_NOT_SUPPORTED`, never dropped;
//! - sends and pulls do not pass here: the session serves them itself.
//!
//! To add a request: its arm here, its handler in the file of its subject.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use troupemq_codec::Request;
use troupemq_codec::request::{
    CheckClientConfig, CheckRocksdbCqWriteProgress, CleanExpiredConsumequeue, CleanUnusedTopic,
    CloneGroupOffset, ConsumeMessageDirectly, ConsumerSendMsgBack, DeleteExpiredCommitlog,
    DeleteSubscriptiongroup, DeleteTopicInBroker, EndTransaction, GetAllConsumerOffset, GetAllDelayOffset,
    GetAllMessageRequestMode, GetAllProducerInfo, GetAllSubscriptiongroupConfig, GetAllTopicConfig,
    GetBrokerConfig, GetBrokerConsumeStats, GetBrokerEpochCache, GetBrokerHaStatus, GetBrokerRuntimeInfo,
    GetColdDataFlowCtrInfo, GetConsumeStats, GetConsumerConnectionList, GetConsumerListByGroup,
    GetConsumerRunningInfo, GetEarliestMsgStoretime, GetMaxOffset, GetMinOffset, GetProducerConnectionList,
    GetSubscriptiongroupConfig, GetSystemTopicListFromBroker, GetTimerCheckPoint, GetTimerMetrics,
    GetTopicConfig, GetTopicStatsInfo, HeartBeat, InvokeBrokerToGetConsumerStatus, InvokeBrokerToResetOffset,
    LockBatchMq, QueryConsumeQueue, QueryConsumeTimeSpan, QueryConsumerOffset, QueryCorrectionOffset,
    QueryMessage, QuerySubscriptionByConsumer, QueryTopicConsumeByWho, QueryTopicsByConsumer, RecallMessage,
    RemoveColdDataFlowCtrConfig, ResetMasterFlushOffset, SearchOffsetByTimestamp, SendReplyMessage,
    SendReplyMessageV2, SetCommitlogReadMode, UnlockBatchMq, UnregisterClient,
    UpdateAndCreateSubscriptiongroup, UpdateAndCreateSubscriptiongroupList, UpdateAndCreateTopic,
    UpdateAndCreateTopicList, UpdateAndGetGroupForbidden, UpdateBrokerConfig, UpdateColdDataFlowCtrConfig,
    UpdateConsumerOffset, ViewBrokerStatsData, ViewMessageById,
};
use troupemq_codec::request::{QueryAssignment, ResumeCheckHalfMessage, SetMessageRequestMode};

use crate::admin::{
    absent, clients, cold, files, forward, groups, progress, reset, runtime, settings, slaves, statistics,
    topic, topic_stats,
};
use crate::cast::{BrokerCast, NameServerCast};
use crate::net::{Answer, Call, Link};
use crate::{
    assignment, heartbeat, name_server, offsets, query, rebalance, reply, retry, timer, transaction,
};

/// A future of an answer that lives on one arbiter.
pub type Answering = Pin<Box<dyn Future<Output = Answer>>>;

/// What a peer that connects is talking to.
#[derive(Debug, Clone)]
pub enum Served {
    /// A broker.
    Broker(Arc<BrokerCast>),
    /// A name server.
    NameServer(Arc<NameServerCast>),
    /// Something of its own: a client that is called by brokers, a test.
    Other(Arc<dyn Responder>),
}

/// Answers the requests of a peer when neither broker nor name server does.
pub trait Responder: std::fmt::Debug + Send + Sync {
    /// Answers one request. The answer to a one-way request is dropped.
    fn respond(&self, call: Call) -> Answering;

    /// A connection of this responder is gone.
    fn closed(&self, _link: &Arc<Link>) {}
}

impl Served {
    /// Answers a request that is neither a send nor a pull.
    pub fn answer(&self, call: Call) -> Answering {
        match self {
            Served::Broker(cast) => {
                let cast = cast.clone();
                Box::pin(async move { broker(&cast, &call).await })
            }
            Served::NameServer(cast) => {
                let cast = cast.clone();
                Box::pin(async move { name_server::answer(&cast, &call).await })
            }
            Served::Other(responder) => responder.respond(call),
        }
    }

    /// Whether the session finishes this request before it looks at the next of the same connection: a pull
    /// that follows a heart-beat must find the group registered.
    pub fn is_in_order(&self, code: i32) -> bool {
        matches!(self, Served::Broker(_)) && matches!(code, HeartBeat::CODE | UnregisterClient::CODE)
    }

    /// A connection is gone.
    pub fn closed(&self, link: &Arc<Link>) {
        match self {
            Served::Broker(cast) => broker_closed(cast, link),
            Served::NameServer(cast) => name_server::closed(cast, link),
            Served::Other(responder) => responder.closed(link),
        }
    }
}

async fn broker(cast: &BrokerCast, call: &Call) -> Answer {
    match call.command.code {
        SendReplyMessage::CODE | SendReplyMessageV2::CODE => reply::send_reply(cast, call).await,
        HeartBeat::CODE => heartbeat::answers::heart_beat(cast, call).await,
        UnregisterClient::CODE => heartbeat::answers::unregister_client(cast, call).await,
        CheckClientConfig::CODE => heartbeat::answers::check_client_config(cast, call),
        GetConsumerListByGroup::CODE => rebalance::answers::consumer_list(cast, call).await,
        QueryConsumerOffset::CODE => offsets::answers::query(cast, call).await,
        UpdateConsumerOffset::CODE => offsets::answers::update(cast, call).await,
        SearchOffsetByTimestamp::CODE => offsets::answers::search_by_time(cast, call).await,
        GetMaxOffset::CODE => offsets::answers::max(cast, call),
        GetMinOffset::CODE => offsets::answers::min(cast, call),
        GetEarliestMsgStoretime::CODE => offsets::answers::earliest_store_time(cast, call).await,
        QueryMessage::CODE => query::query_message(cast, call).await,
        ViewMessageById::CODE => query::view_message_by_id(cast, call).await,
        UpdateAndCreateTopic::CODE => topic::update_topic(cast, call).await,
        UpdateAndCreateTopicList::CODE => topic::update_topics(cast, call).await,
        GetAllTopicConfig::CODE => topic::all_topics(cast, call).await,
        DeleteTopicInBroker::CODE => topic::delete_topic(cast, call).await,
        GetSystemTopicListFromBroker::CODE => topic::system_topics(cast, call).await,
        GetTopicConfig::CODE => topic::topic_config(cast, call).await,
        GetTopicStatsInfo::CODE => topic_stats::topic_stats(cast, call).await,
        GetConsumerConnectionList::CODE => clients::consumer_connections(cast, call).await,
        GetProducerConnectionList::CODE => clients::producer_connections(cast, call).await,
        GetAllProducerInfo::CODE => clients::all_producers(cast, call).await,
        QueryTopicConsumeByWho::CODE => clients::groups_of_topic(cast, call).await,
        QueryTopicsByConsumer::CODE => clients::topics_of_group(cast, call).await,
        QuerySubscriptionByConsumer::CODE => clients::subscription(cast, call).await,
        UpdateAndCreateSubscriptiongroup::CODE => groups::update_group(cast, call).await,
        UpdateAndCreateSubscriptiongroupList::CODE => groups::update_groups(cast, call).await,
        GetAllSubscriptiongroupConfig::CODE => groups::all_groups(cast, call).await,
        DeleteSubscriptiongroup::CODE => groups::delete_group(cast, call).await,
        GetSubscriptiongroupConfig::CODE => groups::group_config(cast, call).await,
        GetConsumeStats::CODE => progress::consume_stats(cast, call).await,
        GetBrokerConsumeStats::CODE => progress::broker_consume_stats(cast, call).await,
        QueryConsumeTimeSpan::CODE => progress::time_span(cast, call).await,
        GetTimerCheckPoint::CODE | GetTimerMetrics::CODE | RecallMessage::CODE => {
            timer::answers::answer(cast, call).await
        }
        GetBrokerConfig::CODE => settings::broker_config(cast, call).await,
        UpdateBrokerConfig::CODE => settings::update_broker_config(cast, call).await,
        InvokeBrokerToResetOffset::CODE => reset::reset_offset(cast, call).await,
        CloneGroupOffset::CODE => reset::clone_offset(cast, call).await,
        GetConsumerRunningInfo::CODE => forward::running_info(cast, call).await,
        ConsumeMessageDirectly::CODE => forward::consume_directly(cast, call).await,
        InvokeBrokerToGetConsumerStatus::CODE => forward::consumer_status(cast, call).await,
        QueryConsumeQueue::CODE => files::consume_queue(cast, call).await,
        CleanExpiredConsumequeue::CODE => files::clean_queues(cast, call).await,
        CleanUnusedTopic::CODE => files::clean_topics(cast, call).await,
        DeleteExpiredCommitlog::CODE => files::clean_log(cast, call),
        CheckRocksdbCqWriteProgress::CODE => files::rocksdb_progress(cast, call),
        GetBrokerRuntimeInfo::CODE => runtime::runtime_info(cast, call).await,
        ViewBrokerStatsData::CODE => statistics::stats_data(cast, call).await,
        GetAllConsumerOffset::CODE => slaves::consumer_offsets(cast, call).await,
        GetAllDelayOffset::CODE => slaves::delay_offsets(cast, call).await,
        GetAllMessageRequestMode::CODE => slaves::request_modes(cast, call).await,
        GetBrokerHaStatus::CODE => slaves::ha_status(cast, call),
        ResetMasterFlushOffset::CODE => slaves::reset_master_flush_offset(cast, call),
        GetBrokerEpochCache::CODE => slaves::epochs(cast, call),
        UpdateColdDataFlowCtrConfig::CODE => cold::limit(cast, call),
        RemoveColdDataFlowCtrConfig::CODE => cold::unlimit(cast, call),
        GetColdDataFlowCtrInfo::CODE => cold::info(cast, call),
        SetCommitlogReadMode::CODE => cold::read_mode(cast, call).await,
        UpdateAndGetGroupForbidden::CODE => groups::forbid(cast, call).await,
        QueryCorrectionOffset::CODE => progress::correction(cast, call).await,
        _ => delivery(cast, call).await,
    }
}

/// Requests about how messages are delivered: transactions, failures, who reads which queue.
async fn delivery(cast: &BrokerCast, call: &Call) -> Answer {
    match call.command.code {
        EndTransaction::CODE => transaction::answers::end_transaction(cast, call).await,
        ResumeCheckHalfMessage::CODE => transaction::answers::resume_check(cast, call).await,
        ConsumerSendMsgBack::CODE => retry::answers::send_back(cast, call).await,
        LockBatchMq::CODE => rebalance::answers::lock_batch(cast, call).await,
        UnlockBatchMq::CODE => rebalance::answers::unlock_batch(cast, call).await,
        QueryAssignment::CODE => assignment::answers::query_assignment(cast, call).await,
        SetMessageRequestMode::CODE => assignment::answers::set_mode(cast, call).await,
        code => Err(absent::refuse(code)),
    }
}

/// Tells who keeps something for a connection of the broker that it is gone.
#[expect(clippy::disallowed_methods, reason = "one for each connection, and none may be lost")]
fn broker_closed(cast: &BrokerCast, link: &Arc<Link>) {
    cast.heartbeats.do_send(heartbeat::LinkClosed(link.id()));
}
