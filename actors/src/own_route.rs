//! The way to a broker as a program in its process sees it: routes without a name server.
//!
//! Invariants:
//! - a route says what the directory says at this moment; nothing is kept;
//! - the broker stands in it under the address that stands in its messages, whether a port is open or not.

use std::collections::BTreeMap;

use troupemq_codec::Text;
use troupemq_codec::route::{BrokerData, ClusterInfo, QueueData, TopicRouteData};

use crate::cast::BrokerCast;

/// The route of a topic; none if there is no such topic.
pub fn route(cast: &BrokerCast, topic: &str) -> Option<TopicRouteData> {
    let view = cast.directory.topic(topic)?;
    let config = &view.config;
    let broker_perm = cast.config.load().broker_permission;
    let queues = QueueData {
        broker_name: cast.broker_name.clone(),
        perm: config.perm & broker_perm,
        read_queue_nums: config.read_queue_nums,
        topic_sys_flag: config.topic_sys_flag,
        write_queue_nums: config.write_queue_nums,
    };
    Some(TopicRouteData {
        broker_datas: vec![broker(cast)],
        queue_datas: vec![queues],
        ..TopicRouteData::default()
    })
}

/// All brokers there are: the one.
pub fn cluster(cast: &BrokerCast) -> ClusterInfo {
    let broker = broker(cast);
    let names = BTreeMap::from([(broker.cluster.clone(), vec![cast.broker_name.clone()])]);
    ClusterInfo {
        broker_addr_table: BTreeMap::from([(cast.broker_name.clone(), broker)]),
        cluster_addr_table: names,
    }
}

fn broker(cast: &BrokerCast) -> BrokerData {
    let config = cast.config.load();
    BrokerData {
        broker_addrs: BTreeMap::from([(config.broker_id, Text::from(cast.advertised.to_string()))]),
        broker_name: cast.broker_name.clone(),
        cluster: Text::from(config.broker_cluster_name.as_str()),
        ..BrokerData::default()
    }
}
