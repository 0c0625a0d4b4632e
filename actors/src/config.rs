//! What a node is made of: one typed struct per part, in Java's key names where Java has the key.
//!
//! Invariants:
//! - a field is declared once, with its unit, default and bounds; `check` refuses what is out of bounds and
//!   names the key;
//! - `bind` (where a port is opened) and `advertise` (what others are told) are separate settings.

#[cfg(test)]
mod config_test;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use troupemq_codec::request::RequestMode;
use troupemq_codec::topic::{PERM_READ, PERM_WRITE};
use troupemq_store::{Clock, StoreConfig, SystemClock};

use crate::name_server::NameServerConfig;
use crate::settings::Behaviour;

/// Name of the region of a broker that is given none.
pub(crate) const DEFAULT_REGION: &str = "DefaultRegion";

/// Everything a node needs to start. Each part may be absent.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// The broker of this node, if it has one.
    pub broker: Option<BrokerPart>,
    /// The name server of this node, if it has one.
    pub name_server: Option<NameServerPart>,
    /// Sessions and threads.
    pub net: NetConfig,
    /// Where the time comes from.
    pub clock: NodeClock,
}

/// The clock of a node; tests give it their own.
#[derive(Clone)]
pub struct NodeClock(pub Arc<dyn Clock>);

/// The broker's share of a node.
#[derive(Debug, Clone)]
pub struct BrokerPart {
    /// The address the broker's port is opened on. Default: 0.0.0.0:10911. Port 0 takes any free port.
    pub listen: SocketAddr,
    /// Whether no port is opened at all: only programs of this process reach the broker. Default: false.
    pub is_private: bool,
    /// The host others are told, when it is not the one of `listen`. Java's brokerIP1.
    pub advertise: Option<IpAddr>,
    /// The port others are told, when it is not the one opened.
    pub advertise_port: Option<u16>,
    /// Behaviour.
    pub config: BrokerConfig,
    /// The store.
    pub store: StoreConfig,
}

/// The name server's share of a node.
#[derive(Debug, Clone)]
pub struct NameServerPart {
    /// The address its port is opened on. Default: 0.0.0.0:9876. Port 0 takes any free port.
    pub listen: SocketAddr,
    /// Behaviour.
    pub config: NameServerConfig,
}

/// Connections, threads and their bounds.
#[cfg_attr(feature = "describe", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetConfig {
    /// Threads that carry sessions, arbiter 0 included. Default: the processors but one, which the kernel's and the
    /// disk's work takes, at most 8. Bounds: 1..=64.
    pub session_arbiters: usize,
    /// Bytes of requests that may be in flight in the whole node. Default: 64 MiB. Bounds: 1 MiB..=16 GiB.
    pub in_flight_max_bytes: usize,
    /// Bytes of answers that may wait for one slow reader before its requests are no longer read.
    /// Default: 8 MiB. Bounds: 64 KiB..=1 GiB.
    pub outbound_max_bytes: usize,
    /// A connection without a read and a write for this long is closed. Default: 120 000 ms. Bounds: 10.. .
    pub idle_ms: u64,
    /// A reader that takes nothing for this long, while something waits for it, is closed.
    /// Default: 30 000 ms. Bounds: 10.. .
    pub stall_ms: u64,
    /// Requests, pulls on hold not counted, that one connection may have in work besides its sends.
    /// Default: 1024. Bounds: 1..=65 536.
    pub calls_max: usize,
    /// How long an arbiter whose only busy peer sends request after request looks for the next one before it
    /// sleeps, in microseconds; 0 is not at all. Default: 50. Bounds: 0..=1000.
    pub busy_poll_us: u64,
}

/// Behaviour of a broker. Java: `BrokerConfig` and the parts of `MessageStoreConfig` a client can see.
#[cfg_attr(feature = "describe", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BrokerConfig {
    /// Name of the cluster. Default: DefaultCluster.
    pub broker_cluster_name: String,
    /// Name of the broker, the same for a master and its slaves. Default: the host's name.
    pub broker_name: String,
    /// 0 is the master, others are slaves. Default: 0. Bounds: 0.. .
    pub broker_id: i64,
    /// Name servers, separated by `;`. Default: none.
    pub namesrv_addr: String,
    /// What clients may do with the broker: 2 is write, 4 is read, 6 is both. Default: 6. Bounds: 0..=7.
    pub broker_permission: i32,
    /// Whether a send to an unknown topic makes it. Default: true.
    pub auto_create_topic_enable: bool,
    /// Whether an unknown consumer group is made on first use. Default: true.
    pub auto_create_subscription_group: bool,
    /// Most queues of a topic made on demand. Default: 8. Bounds: 1..=1024.
    pub default_topic_queue_nums: i32,
    /// How often everything is registered with the name servers, in ms. Default: 30 000. Bounds: 10.. .
    pub register_name_server_period: u64,
    /// Queues of the topic that keeps the check points of pop. Default: 8. Bounds: 1..=1024.
    pub revive_queue_num: i32,
    /// Whether topics of the type MIXED may be made. Default: false.
    pub enable_mixed_message_type: bool,
    /// Largest body of a message, in bytes. Default: 4 MiB. Bounds: 1 KiB..=16 MiB.
    pub max_message_size: i32,
    /// Whether a pull that finds nothing may be held. Default: true.
    pub long_polling_enable: bool,
    /// How long a pull that finds nothing is held when `longPollingEnable` is off, in ms. Default: 1000.
    /// Bounds: 1..=60 000.
    pub short_polling_time_mills: i64,
    /// Whether LITE_PULL_MESSAGE is served. Default: true.
    pub lite_pull_message_enable: bool,
    /// Whether consumers are sent to a slave when they are far behind. Default: false.
    pub slave_read_enable: bool,
    /// Whether producers are told to trace. Default: true.
    pub trace_on: bool,
    /// Name of the region in answers and stored messages. Default: DefaultRegion.
    pub region_id: String,
    /// Messages in one answer to a pull when they are in memory. Default: 32. Bounds: 1..=4096.
    pub max_transfer_count_on_message_in_memory: usize,
    /// Bytes of messages in one answer to a pull when they are in memory. Default: 256 KiB. Bounds: 1 KiB..=16 MiB.
    pub max_transfer_bytes_on_message_in_memory: usize,
    /// Messages in one answer to a pull when they are on disk only. Default: 8. Bounds: 1..=4096.
    pub max_transfer_count_on_message_in_disk: usize,
    /// Bytes of messages in one answer to a pull when they are on disk only. Default: 64 KiB. Bounds: 1 KiB..=16 MiB.
    pub max_transfer_bytes_on_message_in_disk: usize,
    /// Bytes of consume queue that one pull scans. Default: 16 000. Bounds: 20..=2 000 000.
    pub max_filter_message_size: usize,
    /// Share of memory, in per cent, beyond which a backlog counts as on disk. Default: 40. Bounds: 1..=90.
    pub access_message_in_memory_max_ratio: u64,
    /// Whether groups that read much from the disk are slowed down. Default: false.
    pub cold_data_flow_control_enable: bool,
    /// Bytes that a group may read from the disk in 5 s where `coldDataFlowControlEnable` is on. Default: 3 MiB.
    /// Bounds: 0.. .
    pub cg_cold_read_threshold: i64,
    /// Bytes that all groups together may read from the disk in 5 s where `coldDataFlowControlEnable` is on.
    /// Default: 100 MiB. Bounds: 0.. .
    pub global_cold_read_threshold: i64,
    /// Whether SQL92 filters are served. Default: true, unlike Java's.
    pub enable_property_filter: bool,
    /// Whether each stored message is asked which SQL92 filters it matches, so that pulls need not look at it;
    /// the answer is kept where `enableConsumeQueueExt` is on too. Default: false.
    pub enable_calc_filter_bit_map: bool,
    /// Groups that filter one topic, as the bits for them are laid out. Default: 32. Bounds: 1..=100 000.
    pub expect_consumer_num_use_filter: u32,
    /// How often the bits of SQL92 filters may say "perhaps" for "no", in per cent. Default: 20. Bounds: 1..=99.
    pub max_error_rate_of_bloom_filter: u32,
    /// How long the filter of a group that is gone is kept, in ms. Default: 24 hours. Bounds: 0.. .
    pub filter_data_clean_time_span: i64,
    /// Whether the broker itself resets offsets. If not, it tells the clients that are online. Default: true.
    pub use_server_side_reset_offset: bool,
    /// Whether transactional messages are refused. Default: false.
    pub reject_transaction_message: bool,
    /// Age from which a half message is asked about, in ms. Default: 6000. Bounds: 1.. .
    pub transaction_time_out: i64,
    /// Times a half message is asked about before it is given up. Default: 15. Bounds: 1..=1000.
    pub transaction_check_max: i32,
    /// Time between two rounds of questions about half messages, in ms. Default: 30 000. Bounds: 1.. .
    pub transaction_check_interval: i64,
    /// Transactions that may be open; further half messages are refused. Default: 16 777 216.
    /// Bounds: 1..=268 435 456.
    pub open_transactions_max: usize,
    /// Queues of which committed offsets are kept; commits for further ones are refused, as the memory of a broker is
    /// not without end. Default: 4 000 000. Bounds: 1..=268 435 456.
    pub consumer_offsets_max: usize,
    /// How a group reads a topic when nobody said how: PULL or POP. Default: PULL.
    #[cfg_attr(feature = "describe", schemars(with = "String"))]
    pub default_message_request_mode: RequestMode,
    /// Members behind one that pops whose queues it shares, when nobody said how many; 0 or less: all.
    /// Default: -1. Bounds: -1..=65 536.
    pub default_pop_share_queue_num: i32,
    /// Whether QUERY_ASSIGNMENT divides queues; if not, every client is given all. Default: true.
    pub server_load_balancer_enable: bool,
    /// How old a route may be by which queues are divided, in ms. Default: 30 000. Bounds: 10.. .
    pub load_balance_poll_name_server_interval: i64,
    /// Most messages of one answer to a query by key. Default: 64. Bounds: 1..=4096.
    pub max_msgs_num_batch: i32,
    /// Most messages of one answer to a query by unique key. Default: 32. Bounds: 1..=4096.
    pub default_query_max_num: i32,
    /// How long a send waits for the disk in sync mode, in ms. Default: 5000. Bounds: 1..=600 000.
    pub sync_flush_timeout: u64,
    /// Whether replies are also kept in their topic. Default: true.
    pub store_reply_message_enable: bool,
    /// Sends are refused before this time, in epoch ms. Default: 0.
    pub start_accept_send_request_time_stamp: i64,
    /// Whether messages may name the time of their delivery. Default: true.
    pub timer_wheel_enable: bool,
    /// How far ahead the time of a delivery may be, in s. Default: 259 200 (3 days).
    /// Bounds: 1..=3 456 000 (40 days).
    pub timer_max_delay_sec: i64,
    /// Messages due in one slot of the timer wheel from which some are refused; from twice as many on, all.
    /// Default: 2 147 483 647. Bounds: 1..=2 147 483 647.
    pub timer_congest_num_each_slot: i64,
    /// Whether no message is entered into the timer wheel: what comes meanwhile waits in its topic until this is off
    /// again, a recall takes nothing back, and what was entered before comes at its time. Default: false.
    pub timer_stop_enqueue: bool,
    /// Whether nothing leaves the timer wheel: what is due comes when this is off again. Default: false.
    pub timer_stop_dequeue: bool,
    /// Whether RECALL_MESSAGE is served. Default: false.
    pub recall_message_enable: bool,
    /// Whether RECALL_MESSAGE is served while the broker may not be written to. Default: true.
    pub allow_recall_when_broker_not_writeable: bool,
    /// Pulls held by one queue. Default: 65 536. Bounds: 1..=1 000 000.
    pub held_pulls_max: usize,
    /// Pulls held for one connection, at whatever queues. Default: 65 536. Bounds: 1..=1 000 000.
    pub held_pulls_connection_max: usize,
    /// Pulls held by all queues, of some KiB each. Default: 1 048 576. Bounds: 1..=16 777 216.
    pub held_pulls_node_max: usize,
}

/// Keys of a broker that may change while it runs.
pub const RELOADABLE: &[&str] = &[
    "brokerPermission",
    "autoCreateTopicEnable",
    "defaultTopicQueueNums",
    "enableMixedMessageType",
    "maxMessageSize",
    "longPollingEnable",
    "shortPollingTimeMills",
    "litePullMessageEnable",
    "slaveReadEnable",
    "maxTransferCountOnMessageInMemory",
    "maxTransferBytesOnMessageInMemory",
    "maxTransferCountOnMessageInDisk",
    "maxTransferBytesOnMessageInDisk",
    "maxFilterMessageSize",
    "accessMessageInMemoryMaxRatio",
    "coldDataFlowControlEnable",
    "cgColdReadThreshold",
    "globalColdReadThreshold",
    "enablePropertyFilter",
    "useServerSideResetOffset",
    "rejectTransactionMessage",
    "defaultMessageRequestMode",
    "defaultPopShareQueueNum",
    "serverLoadBalancerEnable",
    "loadBalancePollNameServerInterval",
    "openTransactionsMax",
    "transactionTimeOut",
    "transactionCheckMax",
    "transactionCheckInterval",
    "maxMsgsNumBatch",
    "defaultQueryMaxNum",
    "startAcceptSendRequestTimeStamp",
    "storeReplyMessageEnable",
    "timerWheelEnable",
    "timerMaxDelaySec",
    "timerCongestNumEachSlot",
    "timerStopEnqueue",
    "timerStopDequeue",
    "recallMessageEnable",
    "allowRecallWhenBrokerNotWriteable",
];

/// A value out of its bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} = {value} is out of bounds: {bounds}")]
pub struct ConfigError {
    /// Java's name of the key.
    pub key: &'static str,
    /// What was given.
    pub value: String,
    /// What would be right.
    pub bounds: &'static str,
}

/// Port of a name server.
pub const NAME_SERVER_PORT: u16 = 9876;
/// Port of a broker.
pub const BROKER_PORT: u16 = 10911;

impl NodeConfig {
    /// A node with no part yet.
    pub fn empty() -> NodeConfig {
        NodeConfig { broker: None, name_server: None, net: NetConfig::default(), clock: NodeClock::system() }
    }

    /// Refuses what is out of bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.net.check()?;
        if let Some(part) = &self.broker {
            part.config.check()?;
        }
        if let Some(part) = &self.name_server {
            part.config.check()?;
        }
        Ok(())
    }
}

impl NodeClock {
    /// The machine's clock.
    pub fn system() -> NodeClock {
        NodeClock(Arc::new(SystemClock::default()))
    }
}

impl std::fmt::Debug for NodeClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NodeClock({} ms)", self.0.now_ms())
    }
}

impl BrokerPart {
    /// A broker on its usual port over a store in `store.dir`.
    pub fn new(store: StoreConfig) -> BrokerPart {
        BrokerPart {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), BROKER_PORT),
            is_private: false,
            advertise: None,
            advertise_port: None,
            config: BrokerConfig::default(),
            store,
        }
    }
}

impl Default for NameServerPart {
    fn default() -> NameServerPart {
        NameServerPart {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), NAME_SERVER_PORT),
            config: NameServerConfig::default(),
        }
    }
}

impl NetConfig {
    /// The idle time as a duration.
    pub fn idle(&self) -> Duration {
        Duration::from_millis(self.idle_ms)
    }

    /// The stall time as a duration.
    pub fn stall(&self) -> Duration {
        Duration::from_millis(self.stall_ms)
    }

    /// Refuses what is out of bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        within("sessionArbiters", self.session_arbiters, 1, 64, "1..=64")?;
        within("inFlightMaxBytes", self.in_flight_max_bytes, 1 << 20, 16 << 30, "1 MiB..=16 GiB")?;
        within("outboundMaxBytes", self.outbound_max_bytes, 64 << 10, 1 << 30, "64 KiB..=1 GiB")?;
        within("idleMs", self.idle_ms, 10, u64::MAX, "10..")?;
        within("stallMs", self.stall_ms, 10, u64::MAX, "10..")?;
        within("callsMax", self.calls_max, 1, 65_536, "1..=65536")?;
        within("busyPollUs", self.busy_poll_us, 0, 1000, "0..=1000")
    }
}

impl Default for NetConfig {
    fn default() -> NetConfig {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        NetConfig {
            session_arbiters: processors.saturating_sub(1).clamp(1, 8),
            in_flight_max_bytes: 64 << 20,
            outbound_max_bytes: 8 << 20,
            idle_ms: 120_000,
            stall_ms: 30_000,
            calls_max: 1024,
            busy_poll_us: 50,
        }
    }
}

impl Behaviour for BrokerConfig {
    fn may_change(key: &str) -> bool {
        RELOADABLE.contains(&key)
    }

    fn check(&self) -> Result<(), String> {
        BrokerConfig::check(self).map_err(|error| error.to_string())
    }
}

impl Behaviour for StoreConfig {
    fn may_change(key: &str) -> bool {
        troupemq_store::config::RELOADABLE.contains(&key)
    }

    fn check(&self) -> Result<(), String> {
        StoreConfig::check(self).map_err(|error| error.to_string())
    }
}

impl BrokerConfig {
    /// Refuses what is out of bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.check_name()?;
        within("brokerId", self.broker_id, 0, i64::MAX, "0..")?;
        within("brokerPermission", self.broker_permission, 0, 7, "0..=7")?;
        within("defaultTopicQueueNums", self.default_topic_queue_nums, 1, 1024, "1..=1024")?;
        within("registerNameServerPeriod", self.register_name_server_period, 10, u64::MAX, "10..")?;
        within("reviveQueueNum", self.revive_queue_num, 1, 1024, "1..=1024")?;
        within("maxMessageSize", self.max_message_size, 1 << 10, 16 << 20, "1 KiB..=16 MiB")?;
        within("shortPollingTimeMills", self.short_polling_time_mills, 1, 60_000, "1..=60000")?;
        let count = "1..=4096";
        within(
            "maxTransferCountOnMessageInMemory",
            self.max_transfer_count_on_message_in_memory,
            1,
            4096,
            count,
        )?;
        within(
            "maxTransferCountOnMessageInDisk",
            self.max_transfer_count_on_message_in_disk,
            1,
            4096,
            count,
        )?;
        let bytes = "1 KiB..=16 MiB";
        let (low, high) = (1 << 10, 16 << 20);
        within(
            "maxTransferBytesOnMessageInMemory",
            self.max_transfer_bytes_on_message_in_memory,
            low,
            high,
            bytes,
        )?;
        within(
            "maxTransferBytesOnMessageInDisk",
            self.max_transfer_bytes_on_message_in_disk,
            low,
            high,
            bytes,
        )?;
        within("maxFilterMessageSize", self.max_filter_message_size, 20, 2_000_000, "20..=2000000")?;
        within("accessMessageInMemoryMaxRatio", self.access_message_in_memory_max_ratio, 1, 90, "1..=90")?;
        within("cgColdReadThreshold", self.cg_cold_read_threshold, 0, i64::MAX, "0..")?;
        within("globalColdReadThreshold", self.global_cold_read_threshold, 0, i64::MAX, "0..")?;
        within("maxMsgsNumBatch", self.max_msgs_num_batch, 1, 4096, count)?;
        within("defaultQueryMaxNum", self.default_query_max_num, 1, 4096, count)?;
        within("syncFlushTimeout", self.sync_flush_timeout, 1, 600_000, "1..=600000")?;
        within("transactionTimeOut", self.transaction_time_out, 1, i64::MAX, "1..")?;
        within("transactionCheckMax", self.transaction_check_max, 1, 1000, "1..=1000")?;
        within("transactionCheckInterval", self.transaction_check_interval, 1, i64::MAX, "1..")?;
        let interval = self.load_balance_poll_name_server_interval;
        within("loadBalancePollNameServerInterval", interval, 10, i64::MAX, "10..")?;
        within("defaultPopShareQueueNum", self.default_pop_share_queue_num, -1, 65_536, "-1..=65536")?;
        within("openTransactionsMax", self.open_transactions_max, 1, 1 << 28, "1..=268435456")?;
        within("consumerOffsetsMax", self.consumer_offsets_max, 1, 1 << 28, "1..=268435456")?;
        within("timerMaxDelaySec", self.timer_max_delay_sec, 1, 3_456_000, "1..=3456000 (40 days)")?;
        let slot_max = i64::from(i32::MAX);
        within("timerCongestNumEachSlot", self.timer_congest_num_each_slot, 1, slot_max, "1..=2147483647")?;
        within("heldPullsMax", self.held_pulls_max, 1, 1_000_000, "1..=1000000")?;
        let of_connection = self.held_pulls_connection_max;
        within("heldPullsConnectionMax", of_connection, 1, 1_000_000, "1..=1000000")?;
        within("heldPullsNodeMax", self.held_pulls_node_max, 1, 1 << 24, "1..=16777216")?;
        self.check_filters()
    }

    fn check_name(&self) -> Result<(), ConfigError> {
        match self.broker_name.trim() {
            "" => {
                let value = format!("{:?}", self.broker_name);
                Err(ConfigError { key: "brokerName", value, bounds: "at least one letter" })
            }
            _ => Ok(()),
        }
    }

    fn check_filters(&self) -> Result<(), ConfigError> {
        let groups = self.expect_consumer_num_use_filter;
        within("expectConsumerNumUseFilter", groups, 1, 100_000, "1..=100000")?;
        within("maxErrorRateOfBloomFilter", self.max_error_rate_of_bloom_filter, 1, 99, "1..=99")?;
        within("filterDataCleanTimeSpan", self.filter_data_clean_time_span, 0, i64::MAX, "0..")
    }

    /// How often everything is registered with the name servers, in ms.
    pub fn register_period_ms(&self) -> i64 {
        i64::try_from(self.register_name_server_period).unwrap_or(i64::MAX)
    }

    /// Whether the broker may be written to.
    pub fn is_writable(&self) -> bool {
        self.broker_permission & PERM_WRITE != 0
    }

    /// Whether the broker may be read from.
    pub fn is_readable(&self) -> bool {
        self.broker_permission & PERM_READ != 0
    }
}

impl Default for BrokerConfig {
    fn default() -> BrokerConfig {
        BrokerConfig {
            broker_cluster_name: "DefaultCluster".to_owned(),
            broker_name: host_name(),
            broker_id: 0,
            namesrv_addr: String::new(),
            broker_permission: 6,
            auto_create_topic_enable: true,
            auto_create_subscription_group: true,
            default_topic_queue_nums: 8,
            register_name_server_period: 30_000,
            revive_queue_num: 8,
            enable_mixed_message_type: false,
            max_message_size: 4 << 20,
            long_polling_enable: true,
            short_polling_time_mills: 1000,
            lite_pull_message_enable: true,
            slave_read_enable: false,
            trace_on: true,
            region_id: DEFAULT_REGION.to_owned(),
            max_transfer_count_on_message_in_memory: 32,
            max_transfer_bytes_on_message_in_memory: 256 << 10,
            max_transfer_count_on_message_in_disk: 8,
            max_transfer_bytes_on_message_in_disk: 64 << 10,
            max_filter_message_size: 16_000,
            access_message_in_memory_max_ratio: 40,
            cold_data_flow_control_enable: false,
            cg_cold_read_threshold: 3 << 20,
            global_cold_read_threshold: 100 << 20,
            enable_property_filter: true,
            enable_calc_filter_bit_map: false,
            expect_consumer_num_use_filter: 32,
            max_error_rate_of_bloom_filter: 20,
            filter_data_clean_time_span: 24 * 3_600_000,
            use_server_side_reset_offset: true,
            reject_transaction_message: false,
            transaction_time_out: 6000,
            transaction_check_max: 15,
            transaction_check_interval: 30_000,
            default_message_request_mode: RequestMode::Pull,
            default_pop_share_queue_num: -1,
            server_load_balancer_enable: true,
            load_balance_poll_name_server_interval: 30_000,
            open_transactions_max: 16 << 20,
            consumer_offsets_max: 4_000_000,
            max_msgs_num_batch: 64,
            default_query_max_num: 32,
            sync_flush_timeout: 5000,
            store_reply_message_enable: true,
            start_accept_send_request_time_stamp: 0,
            timer_wheel_enable: true,
            timer_max_delay_sec: 259_200,
            timer_congest_num_each_slot: i64::from(i32::MAX),
            timer_stop_enqueue: false,
            timer_stop_dequeue: false,
            recall_message_enable: false,
            allow_recall_when_broker_not_writeable: true,
            held_pulls_max: 65_536,
            held_pulls_connection_max: 65_536,
            held_pulls_node_max: 1 << 20,
        }
    }
}

/// Refuses a value out of its bounds.
pub(crate) fn within<T: PartialOrd + std::fmt::Display>(
    key: &'static str,
    value: T,
    low: T,
    high: T,
    bounds: &'static str,
) -> Result<(), ConfigError> {
    if value < low || value > high {
        return Err(ConfigError { key, value: value.to_string(), bounds });
    }
    Ok(())
}

fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "DEFAULT_BROKER".to_owned() } else { name }
}
