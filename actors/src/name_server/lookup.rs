//! What clients, tools and brokers ask a name server: GET_ROUTEINFO_BY_TOPIC (105), GET_BROKER_CLUSTER_INFO
//! (106), GET_BROKER_MEMBER_GROUP (901), and the lists of topics (206, 224, 304, 311, 312, 313).
//!
//! Invariants:
//! - a client older than 4.9.4 gets the JSON of its time, with bare integer keys, unless it asks for the other;
//! - the text of the refusal of an unknown topic is matched by clients.

use bytes::Bytes;
use troupemq_codec::loose_json::{to_fastjson, to_standard};
use troupemq_codec::request::{
    BrokerMemberGroup, BrokerMemberGroupBody, GetAllTopicListFromNameserver, GetBrokerMemberGroupHeader,
    GetHasUnitSubTopicList, GetRouteinfoByTopicHeader, GetSystemTopicListFromNs, GetTopicsByClusterHeader,
    GetUnitTopicList, TopicList,
};
use troupemq_codec::route::{QueueData, TopicRouteData};
use troupemq_codec::version::READS_STANDARD_JSON;
use troupemq_codec::{Command, Request, ResponseCode, Text};

use super::kv::{Lookup, ORDER_TOPICS};
use super::registry::{Clusters, ListTopics, Members, RouteOf};
use super::routes::{Route, UnitTopics};
use crate::cast::NameServerCast;
use crate::net::{Answer, Call, Refusal};

/// GET_ROUTEINFO_BY_TOPIC.
pub(super) async fn route(cast: &NameServerCast, call: &Call) -> Answer {
    let header: GetRouteinfoByTopicHeader = call.command.header()?;
    let config = cast.config();
    let up_ms = cast.clock.0.now_ms().saturating_sub(cast.started_ms);
    if config.need_wait_for_service && up_ms < config.wait_seconds_for_service.saturating_mul(1000) {
        return Err(Refusal::new(ResponseCode::SYSTEM_ERROR, "name server not ready"));
    }
    let found = cast.routes.send(RouteOf(header.topic.clone())).await?;
    let Some(mut route) = found else { return Err(unknown_topic(&header.topic)) };
    if let (Some(true), Some(zone)) = (header.zone_mode, &header.zone_name) {
        route.keep_zone(zone);
    }
    let mut data = route_data(&route);
    if config.order_message_enable {
        data.order_topic_conf = cast.kv.send(Lookup::ordered(&header.topic)).await?;
    }
    let is_standard =
        header.accepts_standard_json_only == Some(true) || call.command.version >= READS_STANDARD_JSON;
    let body = if is_standard { to_standard(&data) } else { to_fastjson(&data) };
    Ok(Command::response(ResponseCode::SUCCESS).with_body(Bytes::from(body)))
}

/// GET_BROKER_CLUSTER_INFO.
pub(super) async fn cluster_info(cast: &NameServerCast, _: &Call) -> Answer {
    let clusters = cast.routes.send(Clusters).await?;
    Ok(Command::response(ResponseCode::SUCCESS).with_body(Bytes::from(to_fastjson(&clusters))))
}

/// GET_BROKER_MEMBER_GROUP: an unknown name has no members.
pub(super) async fn members(cast: &NameServerCast, call: &Call) -> Answer {
    let header: GetBrokerMemberGroupHeader = call.command.header()?;
    let (cluster, broker_name) = (header.cluster_name, header.broker_name);
    let asked = Members { cluster: cluster.clone(), broker: broker_name.clone() };
    let broker_addrs = cast.routes.send(asked).await?;
    let group = BrokerMemberGroup { broker_addrs, broker_name, cluster };
    let body = to_fastjson(&BrokerMemberGroupBody { broker_member_group: group });
    Ok(Command::response(ResponseCode::SUCCESS).with_body(Bytes::from(body)))
}

/// The lists of topics that need no header.
pub(super) async fn topics(cast: &NameServerCast, call: &Call) -> Answer {
    let config = cast.config();
    let (wanted, is_enabled) = match call.command.code {
        GetAllTopicListFromNameserver::CODE => (ListTopics::All, config.enable_all_topic_list),
        GetSystemTopicListFromNs::CODE => (ListTopics::System, true),
        GetUnitTopicList::CODE => (ListTopics::Unit(UnitTopics::OfUnit), config.enable_topic_list),
        GetHasUnitSubTopicList::CODE => (ListTopics::Unit(UnitTopics::Subscribed), config.enable_topic_list),
        _ => (ListTopics::Unit(UnitTopics::SubscribedOfNoUnit), config.enable_topic_list),
    };
    list(cast, wanted, is_enabled).await
}

/// GET_TOPICS_BY_CLUSTER.
pub(super) async fn topics_of_cluster(cast: &NameServerCast, call: &Call) -> Answer {
    let header: GetTopicsByClusterHeader = call.command.header()?;
    list(cast, ListTopics::OfCluster(header.cluster), cast.config().enable_topic_list).await
}

async fn list(cast: &NameServerCast, wanted: ListTopics, is_enabled: bool) -> Answer {
    if !is_enabled {
        return Err(Refusal::new(ResponseCode::SYSTEM_ERROR, "disable"));
    }
    let list: TopicList = cast.routes.send(wanted).await?;
    Ok(Command::response(ResponseCode::SUCCESS).with_body(Bytes::from(to_fastjson(&list))))
}

/// The route as it goes over the wire.
fn route_data(route: &Route) -> TopicRouteData {
    let queues = route.queues.iter().map(|(broker, queues)| QueueData {
        broker_name: broker.clone(),
        perm: queues.perm,
        read_queue_nums: queues.read_queues,
        topic_sys_flag: queues.sys_flag,
        write_queue_nums: queues.write_queues,
    });
    TopicRouteData {
        broker_datas: route.brokers.iter().map(|(name, entry)| entry.data(name)).collect(),
        queue_datas: queues.collect(),
        ..TopicRouteData::default()
    }
}

fn unknown_topic(topic: &str) -> Refusal {
    let remark = format!(
        "No topic route info in name server for the topic: {topic}\nSee \
         https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
    );
    Refusal::new(ResponseCode::TOPIC_NOT_EXIST, remark)
}

impl Lookup {
    /// The queues of an ordered topic.
    fn ordered(topic: &Text) -> Lookup {
        Lookup { namespace: Text::from_static(ORDER_TOPICS), key: topic.clone() }
    }
}
