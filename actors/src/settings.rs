//! `Settings`: settings that change while the node runs, and the file that keeps the changes. Java: `Configuration`.
//!
//! Invariants:
//! - a change is whole or not at all; it is published at once, and on disk before it is answered;
//! - a changed setting stays changed over restarts for as long as it is configured as it was then: who configures
//!   it otherwise has the last word;
//! - a key that may not change, or a value out of its bounds, is named in the refusal.
//!
//! Contents: `kept` what a file of changes says, `promises` what is refused everywhere.

pub mod kept;
pub mod promises;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use actix::{Actor, Context, Handler, Message, ResponseFuture};
use arc_swap::ArcSwap;
use serde::Serialize;
use serde::de::DeserializeOwned;
use troupemq_codec::ResponseCode;
use troupemq_codec::topic::DataVersion;
use troupemq_store::json_file::JsonFile;
use troupemq_store::tables::to_pretty;
use troupemq_store::{StoreConfig, StoreError};

use crate::config::NodeClock;
use crate::held::{Held, hold};
use crate::net::Refusal;
use crate::properties_text::{self, Merged};
use crate::saving::{Saved, Saves, Saving};
use kept::Kept;

/// Changes that may wait.
const MAILBOX: usize = 1024;
/// File of the settings of a store that were changed at run time, beside the tables.
pub(crate) const STORE_FILE: &str = "storeSettings.json";

/// Settings some of which may change.
pub trait Behaviour:
    Serialize + DeserializeOwned + Clone + std::fmt::Debug + Send + Sync + Unpin + 'static
{
    /// Whether a key may change while the node runs.
    fn may_change(key: &str) -> bool;

    /// Refuses what is out of bounds, and says which bounds.
    fn check(&self) -> Result<(), String>;
}

// ---- messages

/// Change these settings. Sent by UPDATE_BROKER_CONFIG and UPDATE_NAMESRV_CONFIG; answered when it is on disk.
#[derive(Debug, Message)]
#[rtype(result = "Result<(), Refusal>")]
pub struct ChangeSettings(pub BTreeMap<String, String>);

/// Whether these settings could change so. Sent before a change that concerns the settings of several parts.
#[derive(Debug, Message)]
#[rtype(result = "Result<(), Refusal>")]
pub struct CheckChange(pub BTreeMap<String, String>);

/// Sizes of files that must be the same for all files of their kind, so that Java opens the store.
const ONE_SIZE: [&str; 5] = [
    "mappedFileSizeCommitLog",
    "mappedFileSizeConsumeQueue",
    "mapperFileSizeBatchConsumeQueue",
    "mappedFileSizeConsumeQueueExt",
    "mappedFileSizeTimerLog",
];

// ---- actor

/// What was configured, and where changes to it are kept.
#[derive(Debug)]
pub struct Configured<T> {
    settings: T,
    file: Option<JsonFile>,
}

/// Owner of the settings of a broker or a name server.
#[derive(Debug)]
pub struct Settings<T: Behaviour> {
    configured: Configured<T>,
    /// Settings of other parts, which do not change while the node runs.
    others: BTreeMap<String, String>,
    published: Arc<ArcSwap<T>>,
    version: Arc<ArcSwap<DataVersion>>,
    saving: Saving<Held<Saved>>,
    clock: NodeClock,
}

impl<T: Behaviour> Configured<T> {
    /// Reads the changes that were kept; gives the settings with those that still count. Without a file a change
    /// lasts until the node stops.
    ///
    /// # Errors
    /// The file exists, but neither it nor the generation before it can be read.
    pub fn open(settings: T, file: Option<PathBuf>) -> Result<(Configured<T>, T), StoreError> {
        let file = file.map(JsonFile::at);
        let kept: Kept = match &file {
            Some(file) => file.load()?.unwrap_or_default(),
            None => Kept::default(),
        };
        let changed = kept.applied_to(&settings);
        Ok((Configured { settings, file }, changed))
    }
}

/// The settings of a store with those that were changed while its broker ran: for who looks at one that does not run.
///
/// # Errors
/// The file of the changes exists, but neither it nor the generation before it can be read.
pub fn with_changes(configured: StoreConfig) -> Result<StoreConfig, StoreError> {
    let file = configured.dir.join("config").join(STORE_FILE);
    Configured::open(configured, Some(file)).map(|(_, changed)| changed)
}

impl<T: Behaviour> Settings<T> {
    /// The owner of `published`, which other parts read; `others` are keys that nobody may change.
    pub fn new(
        configured: Configured<T>,
        others: BTreeMap<String, String>,
        (published, version): (Arc<ArcSwap<T>>, Arc<ArcSwap<DataVersion>>),
        clock: NodeClock,
    ) -> Settings<T> {
        Settings { configured, others, published, version, saving: Saving::default(), clock }
    }
}

impl<T: Behaviour> Saves for Settings<T> {
    fn saving(&mut self) -> &mut Saving<Held<Saved>> {
        &mut self.saving
    }

    fn writer(&self) -> impl FnOnce() -> Result<(), StoreError> + Send + use<T> {
        let kept = Kept::between(&self.configured.settings, &self.published.load());
        let file = self.configured.file.clone();
        move || match file {
            Some(file) => file.save(&to_pretty(&kept)),
            None => Ok(()),
        }
    }
}

impl<T: Behaviour> Actor for Settings<T> {
    type Context = Context<Settings<T>>;

    fn started(&mut self, context: &mut Self::Context) {
        context.set_mailbox_capacity(MAILBOX);
    }
}

impl<T: Behaviour> Handler<ChangeSettings> for Settings<T> {
    type Result = ResponseFuture<Result<(), Refusal>>;

    fn handle(&mut self, ChangeSettings(pairs): ChangeSettings, context: &mut Self::Context) -> Self::Result {
        let (held, waiting) = hold();
        match changed(&**self.published.load(), &pairs, &self.others) {
            Ok(settings) => {
                self.published.store(Arc::new(settings));
                self.version.store(Arc::new(self.version.load().next(self.clock.0.now_ms())));
                self.saving.changed_for(held);
                self.save(context);
            }
            Err(refusal) => held.answer(Err(refusal)),
        }
        Box::pin(async move { waiting.await.unwrap_or_else(|_| Err(Refusal::gone("Settings"))) })
    }
}

impl<T: Behaviour> Handler<CheckChange> for Settings<T> {
    type Result = Result<(), Refusal>;

    fn handle(&mut self, CheckChange(pairs): CheckChange, _: &mut Self::Context) -> Self::Result {
        changed(&**self.published.load(), &pairs, &self.others).map(|_fits| ())
    }
}

// ---- state

/// Why a setting stays as it is while the broker runs.
pub fn cannot_change(key: &str) -> String {
    match ONE_SIZE.contains(&key) {
        // Java finds the file of a position by a division.
        true => format!(
            "{key} cannot change: RocketMQ finds a position by dividing by this size, so all files of a store must \
             have one"
        ),
        false => format!(
            "{key} cannot change while the broker runs: set it in the configuration file, it counts from the next start"
        ),
    }
}

/// The settings after a change.
fn changed<T: Behaviour>(
    before: &T,
    pairs: &BTreeMap<String, String>,
    others: &BTreeMap<String, String>,
) -> Result<T, Refusal> {
    let illegal = |remark: String| Refusal::new(ResponseCode::SYSTEM_ERROR, remark);
    let own = properties_text::parse(&properties_text::write(before));
    for (key, value) in pairs {
        if let Some(why) = promises::broken(key, value) {
            return Err(illegal(format!("{key} = {value} cannot be kept: {why}")));
        }
        let now = own.get(key).or_else(|| others.get(key));
        if now.is_some_and(|now| now != value) && !T::may_change(key) {
            return Err(illegal(cannot_change(key)));
        }
    }
    let merged = properties_text::merge(before, pairs).map_err(|error| illegal(error.to_string()))?;
    let Merged { config, unknown } = merged;
    config.check().map_err(illegal)?;
    for key in unknown.iter().filter(|key| !others.contains_key(*key)) {
        tracing::warn!(key, "a setting that is unknown here was to be changed");
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::BrokerConfig;

    fn change(text: &str) -> Result<BrokerConfig, Refusal> {
        let others = BTreeMap::from([("mappedFileSizeCommitLog".to_owned(), "1024".to_owned())]);
        changed(&BrokerConfig::default(), &properties_text::parse(text), &others)
    }

    #[test]
    fn a_change_is_whole_or_not_at_all_and_says_why_not() {
        assert_eq!(change("brokerPermission=4\nmaxMessageSize=2048").unwrap().max_message_size, 2048);
        assert_eq!(change("brokerName=BROKER\nmappedFileSizeCommitLog=1024").map(|_| ()), {
            let why = "brokerName cannot change while the broker runs: set it in the configuration file, it \
                       counts from the next start";
            Err(Refusal::new(ResponseCode::SYSTEM_ERROR, why))
        });
        let refused = |text: &str| change(text).unwrap_err().remark;
        let one_size = refused("mappedFileSizeCommitLog=2048");
        assert!(one_size.starts_with("mappedFileSizeCommitLog cannot change: RocketMQ finds"), "{one_size}");
        assert_eq!(refused("brokerPermission=9"), "brokerPermission = 9 is out of bounds: 0..=7");
        assert_eq!(refused("maxMessageSize=much"), "maxMessageSize = much is no number");
        assert_eq!(
            refused("maxMessageSize=7000000000"),
            "maxMessageSize = 7000000000 cannot be: invalid value: integer `7000000000`, expected i32"
        );
        let promise = refused("authenticationEnabled=true");
        assert!(promise.starts_with("authenticationEnabled = true cannot be kept: there is no"), "{promise}");
        assert!(change("authenticationEnabled=false").is_ok());
        assert!(change("somethingOfJava=1").is_ok());
    }
}
