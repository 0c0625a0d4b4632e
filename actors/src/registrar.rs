//! `Registrar`: tells every name server what this broker is and which topics it has (Java: `BrokerOuterAPI`).
//!
//! Invariants:
//! - name servers are independent: what one does not answer delays none of the others;
//! - everything is registered at the start, in each period, on each new connection and after each failure; a
//!   change of topics alone is sent at once;
//! - a broker that stops takes its registration back before it closes its connections.
//!
//! Contents: `course` decides what is next for a name server, `call` does it, `waiters` are told of changes that
//! the name servers know.

mod call;
mod course;
mod waiters;

#[cfg(test)]
mod registrar_test;

use std::sync::Arc;
use std::time::Duration;

use actix::fut::{ActorFutureExt, wrap_future};
use actix::{Actor, Addr, AsyncContext, Context, Handler, Message, ResponseFuture, SpawnHandle};
use arc_swap::ArcSwap;
use troupemq_codec::Text;

use self::call::{Caller, Failure, Told};
use self::course::Course;
use self::waiters::Waiters;
use crate::commit_log::MAILBOX;
use crate::config::{BrokerConfig, NodeClock};
use crate::held::hold;
use crate::net::sessions::Sessions;
use crate::net::{Link, LinkId};
use crate::topics::{MarkOrdered, Topics, TopicsChanged};

/// The shortest pause between two looks at what is due.
const STEP_MS: i64 = 1;

// ---- messages

/// Sent when the broker's own permission or role changed: register everything at once.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct RegisterAll;

/// Sent by the node when it begins to stop: take the registration back everywhere. Answered when that is done or
/// the name servers had their time.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct Leave;

/// A connection to a name server is gone. Sent by its session.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct LinkLost(pub LinkId);

/// How the name servers know this broker. Sent by tools and the console.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "Vec<Standing>")]
pub struct Standings;

/// Answered when every name server was told of the broker or could not be. Sent by those who wait for a start.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct Settled;

/// The connections to name servers that are there. Sent by those who ask one for a route.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "Vec<Arc<Link>>")]
pub struct Connections;

/// What a name server knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Its address as configured.
    pub address: String,
    /// Whether everything sent to it was accepted, over a connection that still is.
    pub is_registered: bool,
    /// Why the last step failed, if it did.
    pub failure: Option<String>,
}

// ---- actor

/// How the broker calls itself.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The cluster.
    pub cluster: Text,
    /// The broker name.
    pub broker: Text,
    /// Its id, 0 for a master.
    pub id: i64,
    /// Where clients find it, `host:port`.
    pub address: Text,
    /// Where its slaves connect, `host:port`.
    pub ha_address: Text,
}

/// What the registrar is made of.
#[derive(Debug)]
pub struct RegistrarParts {
    /// How the broker calls itself.
    pub identity: Identity,
    /// Addresses of the name servers, `host:port`.
    pub name_servers: Vec<String>,
    /// The owner of the topics.
    pub topics: Addr<Topics>,
    /// Where connections are taken in.
    pub sessions: Addr<Sessions>,
    /// Permission and period.
    pub config: Arc<ArcSwap<BrokerConfig>>,
    /// Where the time comes from.
    pub clock: NodeClock,
}

/// Registers the broker.
#[derive(Debug)]
pub struct Registrar {
    caller: Caller,
    clock: NodeClock,
    servers: Vec<NameServer>,
    waiters: Waiters,
    alarm: Option<SpawnHandle>,
    leaves: bool,
}

#[derive(Debug)]
struct NameServer {
    address: String,
    course: Course,
    link: Option<Arc<Link>>,
    failure: Option<String>,
}

/// The addresses in Java's list, separated by `;` (or `,`).
pub fn addresses(list: &str) -> Vec<String> {
    list.split([';', ',']).map(str::trim).filter(|piece| !piece.is_empty()).map(str::to_owned).collect()
}

impl Registrar {
    /// A registrar that has not spoken to anyone yet.
    pub fn new(parts: RegistrarParts) -> Registrar {
        let period_ms = parts.config.load().register_period_ms();
        let server = |address: &String| NameServer {
            address: address.clone(),
            course: Course::new(period_ms),
            link: None,
            failure: None,
        };
        Registrar {
            servers: parts.name_servers.iter().map(server).collect(),
            clock: parts.clock.clone(),
            caller: Caller::new(parts),
            waiters: Waiters::default(),
            alarm: None,
            leaves: false,
        }
    }

    /// Starts the actor on this arbiter.
    pub fn launch(self) -> Addr<Registrar> {
        self.start()
    }

    fn now_ms(&self) -> i64 {
        self.clock.0.now_ms()
    }

    /// Begins everything that is due, and wakes again for what is not.
    fn turn(&mut self, context: &mut Context<Registrar>) {
        if self.leaves {
            return;
        }
        let now_ms = self.now_ms();
        for at in 0..self.servers.len() {
            let server = &mut self.servers[at];
            let Some(step) = server.course.next(now_ms) else { continue };
            let link = server.link.clone().filter(|link| !link.is_closed());
            let lost = context.address().recipient();
            let told = self.caller.tell(step, server.address.clone(), link, lost);
            let told = wrap_future::<_, Registrar>(told)
                .map(move |told, registrar, context| registrar.told(at, told, context));
            context.spawn(told);
        }
        self.arm(now_ms, context);
    }

    fn arm(&mut self, now_ms: i64, context: &mut Context<Registrar>) {
        if let Some(alarm) = self.alarm.take() {
            context.cancel_future(alarm);
        }
        let wake_ms = self.servers.iter().map(|server| server.course.wake_ms()).min().unwrap_or(i64::MAX);
        if wake_ms < i64::MAX {
            let pause_ms = wake_ms.saturating_sub(now_ms).max(STEP_MS);
            let pause = Duration::from_millis(u64::try_from(pause_ms).unwrap_or(0));
            self.alarm = Some(context.run_later(pause, Registrar::turn));
        }
    }

    /// A step is over, well or not.
    fn told(&mut self, at: usize, told: Result<Told, Failure>, context: &mut Context<Registrar>) {
        let now_ms = self.now_ms();
        let server = &mut self.servers[at];
        match told {
            Ok(Told { link, ordered }) => {
                if server.failure.take().is_some() || server.link.is_none() {
                    tracing::info!(name_server = %server.address, "registered");
                }
                let id = link.id();
                server.course.done(id);
                if link.is_closed() {
                    server.course.lost(id);
                } else {
                    server.link = Some(link);
                }
                self.waiters.done(at);
                if !ordered.is_empty() {
                    // The next registration tells it again.
                    let _ = self.caller.topics().try_send(MarkOrdered(ordered));
                }
            }
            Err(failure) => {
                let pause_ms = server.course.failed(now_ms);
                let failure = failure.to_string();
                if server.failure.as_ref() != Some(&failure) {
                    tracing::warn!(name_server = %server.address, failure, pause_ms, "not registered");
                }
                server.failure = Some(failure);
                if let Some(link) = server.link.take() {
                    link.close();
                }
                self.waiters.failed(at);
            }
        }
        self.turn(context);
    }
}

impl Actor for Registrar {
    type Context = Context<Registrar>;

    fn started(&mut self, context: &mut Context<Registrar>) {
        context.set_mailbox_capacity(MAILBOX);
        self.turn(context);
    }
}

impl Handler<TopicsChanged> for Registrar {
    type Result = ();

    fn handle(&mut self, changed: TopicsChanged, context: &mut Context<Registrar>) {
        let steps = self.servers.iter().map(|server| server.course.steps_to_tell()).collect();
        self.servers.iter_mut().for_each(|server| server.course.changed(&changed.topics));
        self.turn(context);
        self.waiters.add(steps, changed.told);
    }
}

impl Handler<RegisterAll> for Registrar {
    type Result = ();

    fn handle(&mut self, _: RegisterAll, context: &mut Context<Registrar>) {
        self.servers.iter_mut().for_each(|server| server.course.all_changed());
        self.turn(context);
    }
}

impl Handler<LinkLost> for Registrar {
    type Result = ();

    fn handle(&mut self, LinkLost(link): LinkLost, context: &mut Context<Registrar>) {
        for (at, server) in self.servers.iter_mut().enumerate() {
            if server.course.lost(link) {
                if !self.leaves {
                    tracing::warn!(name_server = %server.address, "connection lost");
                }
                server.link = None;
                self.waiters.failed(at);
            }
        }
        self.turn(context);
    }
}

impl Handler<Leave> for Registrar {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _: Leave, _: &mut Context<Registrar>) -> Self::Result {
        self.leaves = true;
        let links = self.servers.iter_mut().filter_map(|server| server.link.take());
        self.caller.leave(links.collect())
    }
}

impl Handler<Standings> for Registrar {
    type Result = Vec<Standing>;

    fn handle(&mut self, _: Standings, _: &mut Context<Registrar>) -> Self::Result {
        let standing = |server: &NameServer| Standing {
            address: server.address.clone(),
            is_registered: server.link.is_some(),
            failure: server.failure.clone(),
        };
        self.servers.iter().map(standing).collect()
    }
}

impl Handler<Settled> for Registrar {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _: Settled, _: &mut Context<Registrar>) -> Self::Result {
        let (held, settled) = hold();
        let step = |server: &NameServer| u8::from(server.link.is_none() && server.failure.is_none());
        self.waiters.add(self.servers.iter().map(step).collect(), held);
        Box::pin(async { settled.await.unwrap_or_default() })
    }
}

impl Handler<Connections> for Registrar {
    type Result = Vec<Arc<Link>>;

    fn handle(&mut self, _: Connections, _: &mut Context<Registrar>) -> Self::Result {
        let links = self.servers.iter().filter_map(|server| server.link.clone());
        links.filter(|link| !link.is_closed()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_are_listed_as_in_java() {
        assert_eq!(addresses("a:1;b:2, [::1]:3 ;;"), ["a:1", "b:2", "[::1]:3"]);
        assert_eq!(addresses(" "), [] as [String; 0]);
    }
}
