//! The name server: who asks where a topic is gets the answer here (Java: `NamesrvController`).
//!
//! Invariants:
//! - name servers know nothing of each other; brokers register with every one;
//! - all but the key-value configuration lives in memory only;
//! - what a broker registered is gone as soon as its connection closes, or after its silence.
//!
//! Contents: `routes` the tables, `liveness` which broker lives, `kv` the configuration by key, `settings` the
//! name server's own; `registry` is the actor of the tables; `register`, `lookup`, `change` answer requests.
//! Deliberately absent: NOTIFY_MIN_BROKER_ID_CHANGE is never sent; brokers that act as masters ask each second.

mod change;
pub mod kv;
pub mod liveness;
mod lookup;
mod register;
pub mod registry;
pub mod routes;
mod settings;

#[cfg(test)]
mod bad_input_test;
#[cfg(test)]
mod golden_test;
#[cfg(test)]
mod silence_test;
#[cfg(test)]
mod statement_test;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use actix::Actor;
use arc_swap::ArcSwap;
use troupemq_codec::Request;
use troupemq_codec::request::*;
use troupemq_store::StoreError;

use crate::cast::NameServerCast;
use crate::config::NodeClock;
use crate::name_server::kv::KvConfig;
use crate::name_server::registry::{LinkClosed, Routes};
use crate::net::{Answer, Call, Link, Refusal};
use crate::settings::{Configured, Settings};

pub use settings::NameServerConfig;

impl NameServerCast {
    /// Starts the actors of a name server on this arbiter.
    ///
    /// # Errors
    /// The file of keys and values exists, but neither it nor the generation before it can be read.
    pub fn start(config: NameServerConfig, clock: NodeClock) -> Result<NameServerCast, StoreError> {
        let started_ms = clock.0.now_ms();
        let file = |path: &str| Some(PathBuf::from(path)).filter(|path| !path.as_os_str().is_empty());
        let (configured, config) = Configured::open(config.clone(), file(&config.config_store_path))?;
        let config = Arc::new(ArcSwap::from_pointee(config));
        let both = (config.clone(), Arc::default());
        let settings = Settings::new(configured, BTreeMap::new(), both, clock.clone()).start();
        let kv = KvConfig::open(file(&config.load().kv_config_path))?.launch();
        let routes = Routes::new(config.clone(), clock.clone()).launch();
        Ok(NameServerCast { config, clock, started_ms, routes, kv, settings })
    }

    /// What the handlers go by just now.
    pub fn config(&self) -> Arc<NameServerConfig> {
        self.config.load_full()
    }
}

/// Answers a request to a name server.
pub async fn answer(cast: &NameServerCast, call: &Call) -> Answer {
    match call.command.code {
        RegisterBroker::CODE => register::register_broker(cast, call).await,
        UnregisterBroker::CODE => register::unregister_broker(cast, call).await,
        BrokerHeartbeat::CODE => register::broker_heartbeat(cast, call).await,
        QueryDataVersion::CODE => register::query_data_version(cast, call).await,
        RegisterTopicInNamesrv::CODE => register::register_topic(cast, call).await,
        GetRouteinfoByTopic::CODE => lookup::route(cast, call).await,
        GetBrokerClusterInfo::CODE => lookup::cluster_info(cast, call).await,
        GetBrokerMemberGroup::CODE => lookup::members(cast, call).await,
        GetAllTopicListFromNameserver::CODE
        | GetSystemTopicListFromNs::CODE
        | GetUnitTopicList::CODE
        | GetHasUnitSubTopicList::CODE
        | GetHasUnitSubUnunitTopicList::CODE => lookup::topics(cast, call).await,
        GetTopicsByCluster::CODE => lookup::topics_of_cluster(cast, call).await,
        WipeWritePermOfBroker::CODE => change::wipe_write_perm(cast, call).await,
        AddWritePermOfBroker::CODE => change::add_write_perm(cast, call).await,
        DeleteTopicInNamesrv::CODE => change::delete_topic(cast, call).await,
        PutKvConfig::CODE => kv::put(cast, call).await,
        GetKvConfig::CODE => kv::get(cast, call).await,
        DeleteKvConfig::CODE => kv::delete(cast, call).await,
        GetKvlistByNamespace::CODE => kv::list(cast, call).await,
        UpdateNamesrvConfig::CODE => settings::update(cast, call).await,
        GetNamesrvConfig::CODE => settings::tell(cast),
        code => Err(Refusal::unsupported(code)),
    }
}

/// A connection to the name server is gone: so are the brokers that registered by it.
pub fn closed(cast: &NameServerCast, link: &Arc<Link>) {
    // The mailbox is never full for this: it takes one message a connection, whatever its bound.
    #[expect(
        clippy::disallowed_methods,
        reason = "one message for each end of a connection, and none may be lost"
    )]
    cast.routes.do_send(LinkClosed(link.id()));
}
