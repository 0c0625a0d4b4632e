//! `KvConfig`: the key-value configuration of a name server (Java: `KVConfigManager`), the only state it keeps on
//! disk; PUT_KV_CONFIG (100), GET_KV_CONFIG (101), DELETE_KV_CONFIG (102), GET_KVLIST_BY_NAMESPACE (219).
//!
//! Invariants:
//! - a change is on disk before it is answered;
//! - the file is Java's `kvConfig.json`.

pub mod table;

use std::collections::BTreeMap;
use std::path::PathBuf;

use actix::{Actor, Addr, Context, Handler, Message, MessageResult, ResponseFuture};
use bytes::Bytes;
use troupemq_codec::loose_json::to_fastjson;
use troupemq_codec::request::{
    DeleteKvConfigHeader, GetKvConfigHeader, GetKvConfigReplyHeader, GetKvlistByNamespaceHeader, KvTable,
    PutKvConfigHeader,
};
use troupemq_codec::{Command, ResponseCode, Text};
use troupemq_store::StoreError;
use troupemq_store::json_file::JsonFile;
use troupemq_store::tables::to_pretty;

use self::table::{ENTRIES_MAX, Namespaces};
use crate::cast::NameServerCast;
use crate::held::{Held, hold};
use crate::net::{Answer, Call, Refusal};
use crate::saving::{Saved, Saves, Saving};

/// Requests that wait at most.
const MAILBOX: usize = 1024;

/// The namespace that holds the number of queues of ordered topics, `broker:queues;broker:queues`.
pub const ORDER_TOPICS: &str = "ORDER_TOPIC_CONFIG";

// ---- messages

/// PUT_KV_CONFIG, DELETE_KV_CONFIG. Answered when the change is on disk.
#[derive(Debug, Message)]
#[rtype(result = "Result<(), Refusal>")]
pub struct ChangeKey {
    /// Where the key stands.
    pub namespace: Text,
    /// The key.
    pub key: Text,
    /// The value; none deletes the key.
    pub value: Option<Text>,
}

/// GET_KV_CONFIG, and the order of a topic in its route.
#[derive(Debug, Message)]
#[rtype(result = "Option<Text>")]
pub struct Lookup {
    /// Where the key stands.
    pub namespace: Text,
    /// The key.
    pub key: Text,
}

/// GET_KVLIST_BY_NAMESPACE, and the ordered topics in the answer to a registration.
#[derive(Debug, Message)]
#[rtype(result = "Option<BTreeMap<Text, Text>>")]
pub struct Namespace(pub Text);

// ---- actor

/// Owner of keys and values.
#[derive(Debug)]
pub struct KvConfig {
    table: Namespaces,
    file: Option<PathBuf>,
    saving: Saving<Held<Saved>>,
}

impl KvConfig {
    /// Reads the file; without one everything is lost at the end.
    ///
    /// # Errors
    /// The file exists, but neither it nor the generation before it can be read.
    pub fn open(file: Option<PathBuf>) -> Result<KvConfig, StoreError> {
        let table = match &file {
            Some(path) => JsonFile::at(path.clone()).load()?.unwrap_or_default(),
            None => Namespaces::default(),
        };
        Ok(KvConfig { table, file, saving: Saving::default() })
    }

    /// Starts the actor on this arbiter.
    pub fn launch(self) -> Addr<KvConfig> {
        self.start()
    }
}

impl Saves for KvConfig {
    fn saving(&mut self) -> &mut Saving<Held<Saved>> {
        &mut self.saving
    }

    fn writer(&self) -> impl FnOnce() -> Result<(), StoreError> + Send + use<> {
        let (table, file) = (self.table.clone(), self.file.clone());
        move || match file {
            Some(path) => JsonFile::at(path).save(&to_pretty(&table)),
            None => Ok(()),
        }
    }
}

impl Actor for KvConfig {
    type Context = Context<KvConfig>;

    fn started(&mut self, context: &mut Context<KvConfig>) {
        context.set_mailbox_capacity(MAILBOX);
    }
}

impl Handler<ChangeKey> for KvConfig {
    type Result = ResponseFuture<Result<(), Refusal>>;

    fn handle(&mut self, change: ChangeKey, context: &mut Context<KvConfig>) -> Self::Result {
        let ChangeKey { namespace, key, value } = &change;
        let done = match value {
            Some(value) => self.table.put((namespace, key), value, ENTRIES_MAX),
            None => {
                self.table.delete(namespace, key);
                Ok(())
            }
        };
        let (held, waiting) = hold();
        match done {
            Ok(()) => {
                self.saving.changed_for(held);
                self.save(context);
            }
            Err(entries) => held.answer(Err(full((namespace, key), entries))),
        }
        Box::pin(async move {
            waiting.await.unwrap_or_else(|_| Err(Refusal::gone("the key-value configuration")))
        })
    }
}

fn full((namespace, key): (&str, &str), entries: usize) -> Refusal {
    let remark = format!(
        "key {key} of namespace {namespace} is not put: there are {entries} keys and namespaces, limit {ENTRIES_MAX}"
    );
    Refusal::new(ResponseCode::SYSTEM_ERROR, remark)
}

impl Handler<Lookup> for KvConfig {
    type Result = MessageResult<Lookup>;

    fn handle(&mut self, wanted: Lookup, _: &mut Context<KvConfig>) -> Self::Result {
        MessageResult(self.table.get(&wanted.namespace, &wanted.key).cloned())
    }
}

impl Handler<Namespace> for KvConfig {
    type Result = MessageResult<Namespace>;

    fn handle(&mut self, Namespace(namespace): Namespace, _: &mut Context<KvConfig>) -> Self::Result {
        MessageResult(self.table.namespace(&namespace).cloned())
    }
}

// ---- requests

/// PUT_KV_CONFIG.
pub(super) async fn put(cast: &NameServerCast, call: &Call) -> Answer {
    let PutKvConfigHeader { namespace, key, value } = call.command.header()?;
    cast.kv.send(ChangeKey { namespace, key, value: Some(value) }).await??;
    Ok(Command::response(ResponseCode::SUCCESS))
}

/// DELETE_KV_CONFIG: a success whether there was such a key or not.
pub(super) async fn delete(cast: &NameServerCast, call: &Call) -> Answer {
    let DeleteKvConfigHeader { namespace, key } = call.command.header()?;
    cast.kv.send(ChangeKey { namespace, key, value: None }).await??;
    Ok(Command::response(ResponseCode::SUCCESS))
}

/// GET_KV_CONFIG.
pub(super) async fn get(cast: &NameServerCast, call: &Call) -> Answer {
    let GetKvConfigHeader { namespace, key } = call.command.header()?;
    let value = cast.kv.send(Lookup { namespace: namespace.clone(), key: key.clone() }).await?;
    if value.is_none() {
        let remark = format!("No config item, Namespace: {namespace} Key: {key}");
        return Err(Refusal::new(ResponseCode::QUERY_NOT_FOUND, remark));
    }
    Ok(Command::response(ResponseCode::SUCCESS).with_header(&GetKvConfigReplyHeader { value }))
}

/// GET_KVLIST_BY_NAMESPACE.
pub(super) async fn list(cast: &NameServerCast, call: &Call) -> Answer {
    let GetKvlistByNamespaceHeader { namespace } = call.command.header()?;
    let Some(table) = cast.kv.send(Namespace(namespace.clone())).await? else {
        let remark = format!("No config item, Namespace: {namespace}");
        return Err(Refusal::new(ResponseCode::QUERY_NOT_FOUND, remark));
    };
    let body = to_fastjson(&KvTable { table });
    Ok(Command::response(ResponseCode::SUCCESS).with_body(Bytes::from(body)))
}
