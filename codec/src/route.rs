//! Routes: which brokers have which queues of a topic, and which brokers there are.
//!
//! Invariants:
//! - keys of addresses are broker ids, 0 is the master;
//! - routes go out in standard JSON, which every client reads; old Java name servers write integer keys bare.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::text::Text;
use crate::topic::TopicQueueMapping;

/// Where a topic is (`TopicRouteData`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicRouteData {
    /// The brokers with their addresses.
    pub broker_datas: Vec<BrokerData>,
    /// No longer used by anyone, but always there.
    pub filter_server_table: BTreeMap<Text, Vec<Text>>,
    /// `broker:queues`, joined by `;`, for topics whose order is configured.
    pub order_topic_conf: Option<Text>,
    /// How many queues each broker has.
    pub queue_datas: Vec<QueueData>,
    /// Static topics.
    pub topic_queue_mapping_by_broker: Option<BTreeMap<Text, TopicQueueMapping>>,
}

/// Queues of a topic on one broker name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueData {
    /// The broker name.
    pub broker_name: Text,
    /// The `PERM_…` bits of the topic there.
    pub perm: i32,
    /// Queues that are read.
    pub read_queue_nums: i32,
    /// Bits of the topic.
    pub topic_sys_flag: i32,
    /// Queues that are written.
    pub write_queue_nums: i32,
}

/// Addresses of one broker name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BrokerData {
    /// `ip:port` by broker id.
    pub broker_addrs: BTreeMap<i64, Text>,
    /// The broker name.
    pub broker_name: Text,
    /// Its cluster.
    pub cluster: Text,
    /// Whether a slave may act as master.
    pub enable_acting_master: bool,
    /// Its zone, if it has one.
    pub zone_name: Option<Text>,
}

/// All brokers (`ClusterInfo`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterInfo {
    /// By broker name.
    pub broker_addr_table: BTreeMap<Text, BrokerData>,
    /// Broker names by cluster.
    pub cluster_addr_table: BTreeMap<Text, Vec<Text>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loose_json::{from_loose, to_fastjson, to_standard};

    fn route() -> TopicRouteData {
        let broker = BrokerData {
            broker_addrs: BTreeMap::from([(0, Text::from("10.0.0.1:10911")), (1, Text::from("[::1]:10911"))]),
            broker_name: Text::from("broker-a"),
            cluster: Text::from("DefaultCluster"),
            ..BrokerData::default()
        };
        TopicRouteData { broker_datas: vec![broker], ..TopicRouteData::default() }
    }

    #[test]
    fn the_standard_form_is_the_one_go_parses_by_hand() {
        let wanted = concat!(
            r#"{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","1":"[::1]:10911"},"#,
            r#""brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false}],"#,
            r#""filterServerTable":{},"queueDatas":[]}"#
        );
        assert_eq!(String::from_utf8(to_standard(&route())).unwrap(), wanted);
    }

    #[test]
    fn both_forms_read_back() {
        for text in [to_standard(&route()), to_fastjson(&route())] {
            assert_eq!(from_loose::<TopicRouteData>(&text), Ok(route()));
        }
    }
}
