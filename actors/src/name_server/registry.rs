//! `Routes`: the actor that owns the route tables of a name server.
//!
//! Invariants:
//! - a registration by a connection that is closed does not count: nobody would ever take it back;
//! - silent brokers are looked for at the pace of the configuration, and their connections are closed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Addr, AsyncContext, Context, Handler, Message, MessageResult};
use arc_swap::ArcSwap;
use troupemq_codec::Text;
use troupemq_codec::request::TopicList;
use troupemq_codec::route::{BrokerData, ClusterInfo};
use troupemq_codec::topic::DataVersion;

use super::NameServerConfig;
use super::liveness::BrokerAddress;
use super::routes::{BrokerEntry, Registered, Registration, Route, RouteTables, TopicQueues, UnitTopics};
use crate::config::NodeClock;
use crate::net::{Link, LinkId};

/// Requests that wait at most; a sender waits for room beyond that.
const MAILBOX: usize = 4096;

// ---- messages

/// REGISTER_BROKER: a broker registers by this connection.
#[derive(Debug, Message)]
#[rtype(result = "Registered")]
pub struct Register {
    /// What it tells.
    pub registration: Registration,
    /// By which connection.
    pub link: Arc<Link>,
}

/// UNREGISTER_BROKER: a broker stops in order.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Unregister {
    /// Where it listened.
    pub broker: BrokerAddress,
    /// Its name.
    pub name: Text,
    /// Its id.
    pub id: i64,
    /// By which connection it says so.
    pub link: LinkId,
}

/// A connection is closed. Sent by the session that ends.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct LinkClosed(pub LinkId);

/// QUERY_DATA_VERSION, BROKER_HEARTBEAT: a broker lives. Answered with the version of its topics known here.
#[derive(Debug, Message)]
#[rtype(result = "Option<DataVersion>")]
pub struct Heard(pub BrokerAddress);

/// REGISTER_TOPIC_IN_NAMESRV: queues of one topic on known brokers. Answered whether all were known.
#[derive(Debug, Message)]
#[rtype(result = "bool")]
pub struct EnterTopic {
    /// The topic.
    pub topic: Text,
    /// Queues by broker name.
    pub queues: Vec<(Text, TopicQueues)>,
}

/// DELETE_TOPIC_IN_NAMESRV.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct DeleteTopic {
    /// The topic.
    pub topic: Text,
    /// The cluster whose brokers it is taken from; all, if none is named.
    pub cluster: Option<Text>,
}

/// WIPE_WRITE_PERM_OF_BROKER, ADD_WRITE_PERM_OF_BROKER. Answered with the number of its topics.
#[derive(Debug, Message)]
#[rtype(result = "usize")]
pub struct ChangeWritePerm {
    /// The broker name.
    pub broker: Text,
    /// Whether it may be written to.
    pub may_write: bool,
}

/// GET_ROUTEINFO_BY_TOPIC.
#[derive(Debug, Message)]
#[rtype(result = "Option<Route>")]
pub struct RouteOf(pub Text);

/// GET_BROKER_CLUSTER_INFO.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "ClusterInfo")]
pub struct Clusters;

/// GET_BROKER_MEMBER_GROUP. Answered with the addresses by id; empty if the name is unknown.
#[derive(Debug, Message)]
#[rtype(result = "BTreeMap<i64, Text>")]
pub struct Members {
    /// The cluster.
    pub cluster: Text,
    /// The broker name.
    pub broker: Text,
}

/// The requests for lists of topics.
#[derive(Debug, Clone, Message)]
#[rtype(result = "TopicList")]
pub enum ListTopics {
    /// All there are.
    All,
    /// Those of a cluster.
    OfCluster(Text),
    /// Those that clusters and brokers make for themselves.
    System,
    /// Those with certain bits.
    Unit(UnitTopics),
}

// ---- actor

/// Owner of the route tables.
#[derive(Debug)]
pub struct Routes {
    tables: RouteTables,
    /// Connections by which brokers registered.
    links: HashMap<LinkId, Arc<Link>>,
    config: Arc<ArcSwap<NameServerConfig>>,
    clock: NodeClock,
}

impl Routes {
    /// Empty tables.
    pub fn new(config: Arc<ArcSwap<NameServerConfig>>, clock: NodeClock) -> Routes {
        Routes { tables: RouteTables::default(), links: HashMap::new(), config, clock }
    }

    /// Starts the actor on this arbiter.
    pub fn launch(self) -> Addr<Routes> {
        self.start()
    }

    fn now_ms(&self) -> i64 {
        self.clock.0.now_ms()
    }

    fn arm(&self, context: &mut Context<Routes>) {
        let pause = Duration::from_millis(self.config.load().scan_not_active_broker_interval);
        context.run_later(pause, |routes, context| {
            routes.expire();
            routes.arm(context);
        });
    }

    fn expire(&mut self) {
        for (broker, link) in self.tables.expire(self.now_ms()) {
            tracing::warn!(cluster = %broker.cluster, address = %broker.address, "broker was silent for too long");
            if let Some(link) = self.links.remove(&link) {
                link.close();
            }
        }
    }
}

impl Actor for Routes {
    type Context = Context<Routes>;

    fn started(&mut self, context: &mut Context<Routes>) {
        context.set_mailbox_capacity(MAILBOX);
        self.arm(context);
    }
}

impl Handler<Register> for Routes {
    type Result = MessageResult<Register>;

    fn handle(&mut self, Register { registration, link }: Register, _: &mut Context<Routes>) -> Self::Result {
        let now_ms = self.now_ms();
        if link.is_closed() {
            return MessageResult(Registered::Outdated);
        }
        let id = link.id();
        let registered = self.tables.register(registration, id, now_ms);
        if matches!(registered, Registered::Accepted { .. }) {
            self.links.insert(id, link);
        }
        MessageResult(registered)
    }
}

impl Handler<Unregister> for Routes {
    type Result = ();

    fn handle(&mut self, gone: Unregister, _: &mut Context<Routes>) {
        if !self.tables.unregister(&gone.broker, &gone.name, gone.id, gone.link) {
            tracing::debug!(broker = %gone.name, id = gone.id, "unregistration of what is not registered so");
        }
    }
}

impl Handler<LinkClosed> for Routes {
    type Result = ();

    fn handle(&mut self, LinkClosed(link): LinkClosed, _: &mut Context<Routes>) {
        self.links.remove(&link);
        for broker in self.tables.link_closed(link) {
            tracing::info!(cluster = %broker.cluster, address = %broker.address, "broker closed its connection");
        }
    }
}

impl Handler<Heard> for Routes {
    type Result = MessageResult<Heard>;

    fn handle(&mut self, Heard(broker): Heard, _: &mut Context<Routes>) -> Self::Result {
        self.tables.heard(&broker, self.now_ms());
        MessageResult(self.tables.version(&broker))
    }
}

impl Handler<EnterTopic> for Routes {
    type Result = bool;

    fn handle(&mut self, EnterTopic { topic, queues }: EnterTopic, _: &mut Context<Routes>) -> bool {
        self.tables.enter_topic(&topic, &queues)
    }
}

impl Handler<DeleteTopic> for Routes {
    type Result = ();

    fn handle(&mut self, DeleteTopic { topic, cluster }: DeleteTopic, _: &mut Context<Routes>) {
        self.tables.delete_topic(&topic, cluster.as_deref());
    }
}

impl Handler<ChangeWritePerm> for Routes {
    type Result = MessageResult<ChangeWritePerm>;

    fn handle(&mut self, change: ChangeWritePerm, _: &mut Context<Routes>) -> Self::Result {
        MessageResult(match change.may_write {
            true => self.tables.add_write_perm(&change.broker),
            false => self.tables.wipe_write_perm(&change.broker),
        })
    }
}

impl Handler<RouteOf> for Routes {
    type Result = MessageResult<RouteOf>;

    fn handle(&mut self, RouteOf(topic): RouteOf, _: &mut Context<Routes>) -> Self::Result {
        MessageResult(self.tables.route(&topic, self.config.load().support_acting_master))
    }
}

impl Handler<Clusters> for Routes {
    type Result = MessageResult<Clusters>;

    fn handle(&mut self, _: Clusters, _: &mut Context<Routes>) -> Self::Result {
        let brokers = self.tables.brokers().iter();
        let clusters = self.tables.clusters();
        MessageResult(ClusterInfo {
            broker_addr_table: brokers.map(|(name, entry)| (name.clone(), entry.data(name))).collect(),
            cluster_addr_table: clusters
                .map(|(name, brokers)| (name.clone(), brokers.cloned().collect()))
                .collect(),
        })
    }
}

impl Handler<Members> for Routes {
    type Result = MessageResult<Members>;

    fn handle(&mut self, Members { cluster, broker }: Members, _: &mut Context<Routes>) -> Self::Result {
        let entry = self.tables.members(&cluster, &broker);
        MessageResult(entry.map(|entry| entry.addresses.clone()).unwrap_or_default())
    }
}

impl Handler<ListTopics> for Routes {
    type Result = MessageResult<ListTopics>;

    fn handle(&mut self, wanted: ListTopics, _: &mut Context<Routes>) -> Self::Result {
        let (topic_list, broker_addr) = match wanted {
            ListTopics::All => (self.tables.topics(), None),
            ListTopics::OfCluster(cluster) => (self.tables.topics_of_cluster(&cluster), None),
            ListTopics::System => self.tables.system_topics(),
            ListTopics::Unit(wanted) => (self.tables.unit_topics(wanted), None),
        };
        MessageResult(TopicList { broker_addr, topic_list })
    }
}

impl BrokerEntry {
    /// The entry as it goes over the wire.
    pub(super) fn data(&self, name: &Text) -> BrokerData {
        BrokerData {
            broker_addrs: self.addresses.clone(),
            broker_name: name.clone(),
            cluster: self.cluster.clone(),
            enable_acting_master: self.acting_master,
            zone_name: self.zone.clone(),
        }
    }
}
