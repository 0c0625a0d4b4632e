//! `troupemq cluster`: the brokers, what they do and how they are set.
//!
//! Invariants:
//! - a broker is named by its address or its name; of a name the master is meant;
//! - a broker that the name servers know and that does not answer is shown as such, not left out;
//! - no broker is closed to producers without `--yes`.

use clap::{Args, Subcommand};
use serde::Serialize;
use troupemq::{Admin, BrokerPlace, Text};

use super::settings::nearest;
use super::table::Row;
use super::{Asked, Failure, confirmed};

/// Show brokers, their state and their settings
#[derive(Debug, Subcommand)]
pub(super) enum Cluster {
    /// List brokers with their rates
    List(List),
    /// Show what a broker says of its state
    Status(One),
    /// Show the settings of a running broker, or change one
    Config(Config),
    /// Keep producers away from a broker: its topics can only be read, until it registers a change of them
    DenyWrites(Deny),
    /// Let producers use a broker again: all its topics can be read and written
    AllowWrites(One),
}

/// All brokers.
#[derive(Debug, Args)]
pub(super) struct List {
    #[command(flatten)]
    asked: Asked,
}

/// One broker.
#[derive(Debug, Args)]
pub(super) struct One {
    #[command(flatten)]
    asked: Asked,
    /// Name or address of the broker
    broker: String,
}

/// Which broker is closed to producers.
#[derive(Debug, Args)]
pub(super) struct Deny {
    #[command(flatten)]
    one: One,
    /// Without it nothing is changed
    #[arg(long)]
    yes: bool,
}

/// Settings of one broker.
#[derive(Debug, Args)]
pub(super) struct Config {
    #[command(flatten)]
    one: One,
    /// A key to show, or KEY=VALUE to change it
    setting: Option<String>,
}

#[derive(Debug, Serialize)]
struct Broker {
    cluster: Text,
    broker: Text,
    id: i64,
    address: Text,
    version: String,
    #[serde(rename = "putTps")]
    put_tps: String,
    #[serde(rename = "getTps")]
    get_tps: String,
}

impl Row for Broker {
    const COLUMNS: &'static [&'static str] =
        &["cluster", "broker", "id", "address", "version", "sends/s", "reads/s"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.cluster.to_string(),
            self.broker.to_string(),
            self.id.to_string(),
            self.address.to_string(),
            self.version.clone(),
            self.put_tps.clone(),
            self.get_tps.clone(),
        ]
    }
}

/// How many topics of a broker a name server has changed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Changed {
    name_server: String,
    topics: i32,
    perm: &'static str,
}

impl Row for Changed {
    const COLUMNS: &'static [&'static str] = &["name server", "topics", "perm"];

    fn cells(&self) -> Vec<String> {
        vec![self.name_server.clone(), self.topics.to_string(), self.perm.to_owned()]
    }
}

/// A key with its value.
#[derive(Debug, Serialize)]
struct Pair {
    key: String,
    value: String,
}

impl Row for Pair {
    const COLUMNS: &'static [&'static str] = &["key", "value"];

    fn cells(&self) -> Vec<String> {
        vec![self.key.clone(), self.value.clone()]
    }
}

impl Cluster {
    pub(super) async fn run(self) -> Result<(), Failure> {
        match self {
            Cluster::List(list) => list.run().await,
            Cluster::Status(one) => one.status().await,
            Cluster::Config(config) => config.run().await,
            Cluster::DenyWrites(deny) => deny.run().await,
            Cluster::AllowWrites(one) => one.change_writes(true).await,
        }
    }
}

impl List {
    async fn run(self) -> Result<(), Failure> {
        let admin = self.asked.admin().await?;
        let mut rows = Vec::new();
        for place in admin.brokers().await? {
            rows.push(broker(&admin, place).await?);
        }
        self.asked.form.print(&rows)
    }
}

async fn broker(admin: &Admin, place: BrokerPlace) -> Result<Broker, Failure> {
    let mut table = match admin.runtime(&place.address).await {
        Ok(table) => table,
        Err(error) if error.is_transport() => [("brokerVersionDesc".into(), "unreachable".into())].into(),
        Err(error) => return Err(error.into()),
    };
    // The first of the three numbers is the rate of the last ten seconds.
    let rate = |text: Option<Text>| match text
        .as_deref()
        .and_then(|text| text.split(' ').next()?.parse::<f64>().ok())
    {
        Some(rate) => format!("{rate:.1}"),
        None => "-".to_owned(),
    };
    Ok(Broker {
        cluster: place.cluster,
        broker: place.name,
        id: place.id,
        address: place.address,
        version: table.remove("brokerVersionDesc").map_or_else(|| "-".to_owned(), |text| text.to_string()),
        put_tps: rate(table.remove("putTps")),
        get_tps: rate(table.remove("getTransferredTps")),
    })
}

impl One {
    async fn place(&self, admin: &Admin) -> Result<BrokerPlace, Failure> {
        let is_meant = |place: &BrokerPlace| {
            place.address.as_str() == self.broker || (place.id == 0 && place.name.as_str() == self.broker)
        };
        let unknown = || Failure::NotFound(format!("the name servers know no broker {}", self.broker));
        admin.brokers().await?.into_iter().find(is_meant).ok_or_else(unknown)
    }

    async fn status(self) -> Result<(), Failure> {
        let admin = self.asked.admin().await?;
        let table = admin.runtime(&self.place(&admin).await?.address).await?;
        let pair = |(key, value): (Text, Text)| Pair { key: key.to_string(), value: value.to_string() };
        self.asked.form.print(&table.into_iter().map(pair).collect::<Vec<_>>())
    }
}

impl One {
    /// Whether producers may use the broker.
    async fn change_writes(self, may_write: bool) -> Result<(), Failure> {
        let admin = self.asked.admin().await?;
        let changed = admin.change_write_perm(&self.place(&admin).await?.name, may_write).await?;
        let perm = if may_write { "rw" } else { "r" };
        let rows = changed.into_iter().map(|(name_server, topics)| Changed { name_server, topics, perm });
        self.asked.form.print(&rows.collect::<Vec<_>>())
    }
}

impl Deny {
    async fn run(self) -> Result<(), Failure> {
        confirmed(self.yes, &format!("producers would be kept away from broker {}", self.one.broker))?;
        self.one.change_writes(false).await
    }
}

impl Config {
    /// Refuses a key that the broker does not have: brokers say of such a change that it is done.
    fn known(&self, settings: &str, key: &str) -> Result<(), Failure> {
        let names = settings.lines().filter_map(|line| line.split_once('='));
        let names: Vec<String> = names.map(|(name, _)| name.trim().to_owned()).collect();
        if names.iter().any(|name| name == key) {
            return Ok(());
        }
        let (broker, nearest) = (&self.one.broker, nearest(key, names.iter()));
        Err(Failure::NotFound(format!("broker {broker} has no setting {key}, the nearest is {nearest}")))
    }

    async fn run(self) -> Result<(), Failure> {
        let admin = self.one.asked.admin().await?;
        let address = self.one.place(&admin).await?.address;
        let wanted = self.setting.as_deref();
        if let Some((key, value)) = wanted.and_then(|setting| setting.split_once('=')) {
            self.known(&admin.settings(&address).await?, key.trim())?;
            admin.change_setting(&address, key.trim(), value.trim()).await?;
            return self.one.asked.form.done(&format!("{} = {}", key.trim(), value.trim()));
        }
        let text = admin.settings(&address).await?;
        let pairs = text
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(key, value)| Pair { key: key.trim().to_owned(), value: value.trim().to_owned() });
        let rows: Vec<_> = pairs.filter(|pair| wanted.is_none_or(|key| pair.key == key)).collect();
        if rows.is_empty() {
            let key = wanted.unwrap_or("any key");
            return Err(Failure::NotFound(format!("broker {} has no setting {key}", self.one.broker)));
        }
        self.one.asked.form.print(&rows)
    }
}
