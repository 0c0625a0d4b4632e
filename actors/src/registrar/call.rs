//! How the registrar speaks to a name server: connecting, registering, taking the registration back.
//!
//! Invariants:
//! - a table that would not fit a frame is sent compressed; small ones go as every name server reads them;
//! - a broker that may not be written to or read registers no topic that may.

#[cfg(test)]
mod call_test;

use std::sync::Arc;
use std::time::Duration;

use actix::{Addr, Recipient, ResponseFuture};
use bytes::Bytes;
use troupemq_codec::loose_json::from_loose;
use troupemq_codec::message::record::body_crc;
use troupemq_codec::request::{
    KvTable, RegisterBroker, RegisterBrokerBody, RegisterBrokerHeader, UnregisterBroker,
    UnregisterBrokerHeader,
};
use troupemq_codec::topic::TopicConfigTable;
use troupemq_codec::{Command, ResponseCode, Text};

use super::course::Step;
use super::{Identity, LinkLost, RegistrarParts};
use crate::net::dialer::{DialError, dial};
use crate::net::sessions::Sessions;
use crate::net::{Call, CallError, Link, Refusal};
use crate::router::{Answering, Responder, Served};
use crate::topics::table::TopicSnapshot;
use crate::topics::{AllTopics, TheseTopics, Topics};

/// How long connecting may take.
const DIALLING: Duration = Duration::from_secs(3);
/// How long a name server may think about a registration.
const REGISTERING: Duration = Duration::from_secs(10);
/// How long a name server may think when the broker stops.
const LEAVING: Duration = Duration::from_secs(3);
/// From this many bytes on a body is sent compressed.
const COMPRESSED_FROM_BYTES: usize = 4 << 20;

/// Speaks to name servers.
#[derive(Debug)]
pub(super) struct Caller {
    parts: RegistrarParts,
}

/// What a name server told in return.
#[derive(Debug)]
pub(super) struct Told {
    /// The connection by which it knows us now.
    pub(super) link: Arc<Link>,
    /// Topics that it says are ordered.
    pub(super) ordered: Vec<Text>,
}

/// Why a step did not succeed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The name has no address.
    #[error("cannot resolve the address: {cause}")]
    Unresolved {
        /// What the system said.
        cause: std::io::Error,
    },
    /// No connection.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// No answer.
    #[error(transparent)]
    Call(#[from] CallError),
    /// It does not want the registration.
    #[error("refused with {code}: {remark}")]
    Refused {
        /// Its code.
        code: ResponseCode,
        /// Its text.
        remark: Text,
    },
    /// The node stops.
    #[error("the node stops")]
    Stopping,
}

impl Caller {
    pub(super) fn new(parts: RegistrarParts) -> Caller {
        Caller { parts }
    }

    pub(super) fn topics(&self) -> &Addr<Topics> {
        &self.parts.topics
    }

    /// Does a step; `lost` is told when a connection made for it ends.
    pub(super) fn tell(
        &self,
        step: Step,
        to: String,
        link: Option<Arc<Link>>,
        lost: Recipient<LinkLost>,
    ) -> impl Future<Output = Result<Told, Failure>> + use<> {
        let (topics, sessions) = (self.parts.topics.clone(), self.parts.sessions.clone());
        let (identity, perm) = (self.parts.identity.clone(), self.parts.config.load().broker_permission);
        async move {
            let link = match link {
                Some(link) => link,
                None => connect(&to, &sessions, lost).await?,
            };
            let snapshot = match step {
                Step::RegisterAll => topics.send(AllTopics).await,
                Step::RegisterSome(names) => topics.send(TheseTopics(names)).await,
            };
            let snapshot = snapshot.map_err(|_| Failure::Stopping)?;
            let Some(request) = registration(identity, snapshot, perm).await? else {
                return Ok(Told { link, ordered: Vec::new() });
            };
            let ordered = ordered_in(&link.ask(request, REGISTERING).await?)?;
            Ok(Told { link, ordered })
        }
    }

    /// Takes the registration back over these connections, all at the same time.
    pub(super) fn leave(&self, links: Vec<Arc<Link>>) -> ResponseFuture<()> {
        let identity = &self.parts.identity;
        let header = UnregisterBrokerHeader {
            broker_name: identity.broker.clone(),
            broker_address: identity.address.clone(),
            cluster_name: identity.cluster.clone(),
            broker_id: identity.id,
        };
        Box::pin(async move {
            let calls: Vec<_> = links
                .into_iter()
                .map(|link| {
                    let header = header.clone();
                    let call =
                        async move { link.call::<UnregisterBroker>(&header, Bytes::new(), LEAVING).await };
                    actix_rt::spawn(call)
                })
                .collect();
            for call in calls {
                if let Ok(Err(error)) = call.await {
                    tracing::debug!(%error, "a name server was not told of the stop");
                }
            }
        })
    }
}

/// Connects to the first address of a name that answers.
async fn connect(
    to: &str,
    sessions: &Addr<Sessions>,
    lost: Recipient<LinkLost>,
) -> Result<Arc<Link>, Failure> {
    let addresses = tokio::net::lookup_host(to).await.map_err(|cause| Failure::Unresolved { cause })?;
    let nothing = std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address");
    let mut failure = Failure::Unresolved { cause: nothing };
    for address in addresses {
        let served = Served::Other(Arc::new(ToRegistrar(lost.clone())));
        match dial(sessions, address, served, DIALLING).await {
            Ok(link) => return Ok(link),
            Err(error) => failure = error.into(),
        }
    }
    Err(failure)
}

/// The request of a step; nothing if no topic of it is left.
async fn registration(
    identity: Identity,
    snapshot: TopicSnapshot,
    perm: i32,
) -> Result<Option<Command>, Failure> {
    // Many topics take a while to write.
    let build = move || {
        let table = snapshot.registered(perm);
        (!table.topic_config_table.is_empty()).then(|| request(identity, table))
    };
    actix_rt::task::spawn_blocking(build).await.map_err(|_| Failure::Stopping)
}

fn request(identity: Identity, table: TopicConfigTable) -> Command {
    let body = RegisterBrokerBody { topic_config_serialize_wrapper: table, ..RegisterBrokerBody::default() };
    let plain = body.encode();
    let is_compressed = plain.len() >= COMPRESSED_FROM_BYTES;
    let body = if is_compressed { body.encode_compressed() } else { plain };
    let header = RegisterBrokerHeader {
        broker_name: identity.broker,
        broker_address: identity.address,
        cluster_name: identity.cluster,
        ha_address: identity.ha_address,
        broker_id: identity.id,
        acting_master: Some(false),
        compressed: Some(is_compressed),
        body_crc: i32::try_from(body_crc(&body)).ok(),
        ..RegisterBrokerHeader::default()
    };
    Command::request::<RegisterBroker>(&header).with_body(Bytes::from(body))
}

/// The ordered topics in an answer.
fn ordered_in(answer: &Command) -> Result<Vec<Text>, Failure> {
    let code = answer.response_code();
    if code != ResponseCode::SUCCESS {
        let remark = answer.remark.clone().unwrap_or_default();
        return Err(Failure::Refused { code, remark: Text::from(remark.as_str()) });
    }
    if answer.body.is_empty() {
        return Ok(Vec::new());
    }
    let table = from_loose::<KvTable>(&answer.body).unwrap_or_default();
    Ok(table.table.into_keys().collect())
}

/// What a name server is talking to on a connection that the registrar made.
#[derive(Debug)]
struct ToRegistrar(Recipient<LinkLost>);

impl Responder for ToRegistrar {
    fn respond(&self, call: Call) -> Answering {
        Box::pin(std::future::ready(Err(Refusal::unsupported(call.command.code))))
    }

    fn closed(&self, link: &Arc<Link>) {
        // A registrar that is gone needs no notice; one that is flooded finds the link closed when it uses it.
        let _ = self.0.try_send(LinkLost(link.id()));
    }
}
