//! `HeartbeatScanner`: which clients live, and for which groups they speak
//! (RocketMQ: `ClientHousekeepingService`, `ProducerManager`, `ClientManageProcessor`).
//!
//! Invariants:
//! - every 10 s the connections that were silent for 120 s are closed and leave their groups;
//! - a closed connection leaves its groups at once.
//!
//! Contents: `clients` the table, `answers` the requests of clients.

pub mod answers;
pub mod clients;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Handler, Message, MessageResult};
use troupemq_codec::Text;

use crate::commit_log::MAILBOX;
use crate::config::NodeClock;
use crate::directory::{Directory, GroupView};
use crate::net::LinkId;
use crate::rebalance::MemberLeft;
use clients::{Clients, LeftOut, Producer, SILENCE_MS};

/// How often silent connections are looked for.
const SCAN_EVERY: Duration = Duration::from_secs(10);

// ---- messages

/// A heartbeat came. Sent by its handler; answered with the groups that were too many.
#[derive(Debug, Message)]
#[rtype(result = "LeftOut")]
pub struct ClientBeat {
    /// The connection.
    pub link: LinkId,
    /// The client behind it.
    pub client: Producer,
    /// Groups it produces for.
    pub producer_groups: Vec<Text>,
    /// Groups it consumes for.
    pub consumer_groups: Vec<Text>,
}

/// A client gives up groups. Sent by UNREGISTER_CLIENT.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ClientLeft {
    /// The connection.
    pub link: LinkId,
    /// The producer group it leaves.
    pub producer_group: Option<Text>,
    /// The consumer group it leaves.
    pub consumer_group: Option<Text>,
}

/// A connection is closed. Sent by the session that ended.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct LinkClosed(pub LinkId);

/// The connections of a producer group. Sent by administration.
#[derive(Debug, Message)]
#[rtype(result = "Vec<(LinkId, Producer)>")]
pub struct ProducersOf(pub Text);

/// All producer groups with their connections. Sent by administration.
#[derive(Debug, Message)]
#[rtype(result = "BTreeMap<Text, Vec<(LinkId, Producer)>>")]
pub struct AllProducers;

/// Whom to ask about a transaction of this group, in this order. Sent by the transaction checker.
#[derive(Debug, Message)]
#[rtype(result = "Vec<LinkId>")]
pub struct ProducersInTurn(pub Text);

/// The groups that a connection consumes for. Sent by SEARCH_OFFSET_BY_TIMESTAMP.
#[derive(Debug, Message)]
#[rtype(result = "Vec<Text>")]
pub struct ConsumerGroupsOf(pub LinkId);

/// The newest connection of a client that produces for some group. Sent by replies.
#[derive(Debug, Message)]
#[rtype(result = "Option<LinkId>")]
pub struct LinkOfClient(pub Text);

// ---- actor

/// The clients of one broker.
#[derive(Debug)]
pub struct HeartbeatScanner {
    directory: Arc<Directory>,
    clock: NodeClock,
    clients: Clients,
}

impl HeartbeatScanner {
    /// A scanner that knows no client yet.
    pub fn new(directory: Arc<Directory>, clock: NodeClock) -> HeartbeatScanner {
        HeartbeatScanner { directory, clock, clients: Clients::default() }
    }

    fn scan(&mut self) {
        for link in self.clients.silent(self.clock.0.now_ms()) {
            tracing::info!(
                link = link.0,
                silence_ms = SILENCE_MS,
                "a client was silent too long and is disconnected"
            );
            if let Some(handle) = self.directory.link(link) {
                handle.close();
            }
            self.drop_link(link);
        }
    }

    fn drop_link(&mut self, link: LinkId) {
        for group in self.clients.gone(link) {
            if let Some(view) = self.directory.group(&group) {
                leave(&view, link);
            }
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "at most one for each connection and group, and none may be lost"
)]
fn leave(view: &GroupView, link: LinkId) {
    view.coordinator().do_send(MemberLeft(link));
}

impl Actor for HeartbeatScanner {
    type Context = Context<HeartbeatScanner>;

    fn started(&mut self, context: &mut Self::Context) {
        context.set_mailbox_capacity(MAILBOX);
        context.run_interval(SCAN_EVERY, |scanner, _| scanner.scan());
    }
}

impl Handler<ClientBeat> for HeartbeatScanner {
    type Result = MessageResult<ClientBeat>;

    fn handle(&mut self, beat: ClientBeat, _: &mut Self::Context) -> Self::Result {
        let ClientBeat { link, client, producer_groups, consumer_groups } = &beat;
        MessageResult(self.clients.beat(*link, client, producer_groups, consumer_groups))
    }
}

impl Handler<ClientLeft> for HeartbeatScanner {
    type Result = ();

    fn handle(&mut self, left: ClientLeft, _: &mut Self::Context) {
        if let Some(group) = left.producer_group {
            self.clients.leave_producers(left.link, &group);
        }
        if let Some(group) = left.consumer_group {
            self.clients.leave_consumers(left.link, &group);
        }
    }
}

impl Handler<LinkClosed> for HeartbeatScanner {
    type Result = ();

    fn handle(&mut self, LinkClosed(link): LinkClosed, _: &mut Self::Context) {
        self.drop_link(link);
    }
}

impl Handler<ProducersOf> for HeartbeatScanner {
    type Result = Vec<(LinkId, Producer)>;

    fn handle(&mut self, ProducersOf(group): ProducersOf, _: &mut Self::Context) -> Self::Result {
        self.clients.producers_of(&group).map(|(link, producer)| (link, producer.clone())).collect()
    }
}

impl Handler<AllProducers> for HeartbeatScanner {
    type Result = MessageResult<AllProducers>;

    fn handle(&mut self, _: AllProducers, _: &mut Self::Context) -> Self::Result {
        let groups = self.clients.producer_groups().map(|(group, links)| {
            (group.clone(), links.iter().map(|(link, producer)| (*link, producer.clone())).collect())
        });
        MessageResult(groups.collect())
    }
}

impl Handler<ProducersInTurn> for HeartbeatScanner {
    type Result = Vec<LinkId>;

    fn handle(&mut self, ProducersInTurn(group): ProducersInTurn, _: &mut Self::Context) -> Vec<LinkId> {
        self.clients.producers_in_turn(&group)
    }
}

impl Handler<ConsumerGroupsOf> for HeartbeatScanner {
    type Result = Vec<Text>;

    fn handle(&mut self, ConsumerGroupsOf(link): ConsumerGroupsOf, _: &mut Self::Context) -> Self::Result {
        self.clients.consumer_groups_of(link)
    }
}

impl Handler<LinkOfClient> for HeartbeatScanner {
    type Result = Option<LinkId>;

    fn handle(&mut self, LinkOfClient(client_id): LinkOfClient, _: &mut Self::Context) -> Option<LinkId> {
        self.clients.link_of(&client_id)
    }
}
