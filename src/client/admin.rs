//! Administering a cluster, as `mqadmin` does: topics, groups, offsets, messages, settings.
//!
//! Invariants:
//! - what belongs to a topic or group is asked of, and changed on, every master of the cluster: a change that one of
//!   them refuses is an error that names it;
//! - a broker that cannot be reached fails the whole operation, so that no answer is silently a part of the truth.
//!
//! Deliberately absent: orders that the protocol knows but no method here; [`Admin::ask`] sends any of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use troupemq_codec::group::{SubscriptionGroupConfig, SubscriptionGroupTable};
use troupemq_codec::loose_json::{from_loose, from_loose_trusted, to_standard};
use troupemq_codec::message::{Message as StoredMessage, OffsetId};
use troupemq_codec::request::*;
use troupemq_codec::route::{ClusterInfo, TopicRouteData};
use troupemq_codec::topic::{MessageQueue, TopicConfig, TopicFilterType};
use troupemq_codec::{NoHeader, Request, ResponseCode, Text};

use super::Client;
use super::error::ClientError;
use super::legal;
use super::message::Received;
use super::queue::Queue;

/// Template that RocketMQ's own tools name when they make a topic.
const TEMPLATE_TOPIC: &str = "TBW102";

/// A handle for administration; see [`Client::admin`].
#[derive(Debug, Clone)]
pub struct Admin {
    client: Client,
}

/// A broker as the name servers know it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BrokerPlace {
    /// The cluster.
    pub cluster: Text,
    /// The name that a master shares with its slaves.
    pub name: Text,
    /// 0 for the master.
    pub id: i64,
    /// `ip:port`.
    pub address: Text,
}

/// Where a group is to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetTo {
    /// At the first message stored at this time or later: epoch ms.
    Time(i64),
    /// At an offset of one queue.
    Offset {
        /// The queue, on every broker that has it.
        queue_id: i32,
        /// In messages.
        queue_offset: i64,
    },
    /// Behind the last message.
    Latest,
    /// At the oldest message there is.
    Earliest,
}

impl Client {
    /// A handle to administer the cluster.
    pub fn admin(&self) -> Admin {
        Admin { client: self.clone() }
    }
}

impl Admin {
    // ---- servers

    /// Sends any request to any server and reads the header of its answer.
    ///
    /// # Errors
    /// Every code but success, and whatever goes wrong on the way.
    pub async fn ask<R: Request>(
        &self,
        address: &str,
        header: &R::Header,
        body: Bytes,
    ) -> Result<(R::Reply, Bytes), ClientError> {
        let hub = &self.client.hub;
        hub.peers.link(address).await?.ask::<R>(header, body, hub.within).await
    }

    /// Asks a server for something whose body is JSON.
    async fn read<R: Request, T: DeserializeOwned>(
        &self,
        address: &str,
        header: &R::Header,
    ) -> Result<T, ClientError> {
        let (_, body) = self.ask::<R>(address, header, Bytes::new()).await?;
        from_loose(&body).map_err(|cause| malformed::<R>(address, cause))
    }

    /// Asks the name servers, one after the other until one answers, for something whose body is JSON.
    async fn read_names<R: Request, T: DeserializeOwned>(
        &self,
        header: &R::Header,
    ) -> Result<T, ClientError> {
        let hub = &self.client.hub;
        let (_, body) = hub.routes.ask_name_servers::<R>(&hub.peers, header).await?;
        from_loose(&body).map_err(|cause| malformed::<R>("name server", cause))
    }

    /// Every broker of every cluster, sorted by cluster, name and id.
    ///
    /// # Errors
    /// No name server answers.
    pub async fn brokers(&self) -> Result<Vec<BrokerPlace>, ClientError> {
        let info: ClusterInfo = self.read_names::<GetBrokerClusterInfo, _>(&NoHeader).await?;
        let mut places = Vec::new();
        for broker in info.broker_addr_table.values() {
            places.extend(broker.broker_addrs.iter().map(|(id, address)| BrokerPlace {
                cluster: broker.cluster.clone(),
                name: broker.broker_name.clone(),
                id: *id,
                address: address.clone(),
            }));
        }
        places.sort();
        Ok(places)
    }

    /// The addresses of the masters.
    async fn masters(&self) -> Result<Vec<Text>, ClientError> {
        self.client.hub.masters().await
    }

    /// What a broker says of its own state, as texts by key (`mqadmin brokerStatus`).
    ///
    /// # Errors
    /// The broker cannot be reached or refuses.
    pub async fn runtime(&self, address: &str) -> Result<BTreeMap<Text, Text>, ClientError> {
        let table: KvTable = self.read::<GetBrokerRuntimeInfo, _>(address, &NoHeader).await?;
        Ok(table.table)
    }

    /// The settings of a broker, `key=value` a line (`mqadmin getBrokerConfig`).
    ///
    /// # Errors
    /// The broker cannot be reached or refuses.
    pub async fn settings(&self, address: &str) -> Result<String, ClientError> {
        let (_, body) = self.ask::<GetBrokerConfig>(address, &NoHeader, Bytes::new()).await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// Changes one setting of a running broker (`mqadmin updateBrokerConfig`).
    ///
    /// # Errors
    /// The broker refuses: the key cannot change while it runs, or the value is out of its bounds.
    pub async fn change_setting(&self, address: &str, key: &str, value: &str) -> Result<(), ClientError> {
        let body = Bytes::from(format!("{key}={value}\n"));
        self.ask::<UpdateBrokerConfig>(address, &NoHeader, body).await.map(drop)
    }

    /// Whether producers may use a broker: at every name server all topics that it has get the permission to read and
    /// write, or lose the one to write. It lasts until the broker registers a change of its topics. Tells how many
    /// topics it were, by the address of the name server (`mqadmin addWritePerm`, `wipeWritePerm`).
    ///
    /// # Errors
    /// A name server cannot be reached or refuses; those before it have done it.
    pub async fn change_write_perm(
        &self,
        broker_name: &str,
        may_write: bool,
    ) -> Result<BTreeMap<String, i32>, ClientError> {
        let mut changed = BTreeMap::new();
        let nothing = Bytes::new;
        for address in self.client.hub.routes.name_servers().iter() {
            let topics = if may_write {
                let header = AddWritePermOfBrokerHeader { broker_name: broker_name.into() };
                self.ask::<AddWritePermOfBroker>(address, &header, nothing()).await?.0.topics_changed
            } else {
                let header = WipeWritePermOfBrokerHeader { broker_name: broker_name.into() };
                self.ask::<WipeWritePermOfBroker>(address, &header, nothing()).await?.0.topics_changed
            };
            changed.insert(address.clone(), topics);
        }
        Ok(changed)
    }

    /// The timers that wait at a broker.
    ///
    /// # Errors
    /// The broker cannot be reached or refuses.
    pub async fn timers(&self, address: &str) -> Result<TimerMetrics, ClientError> {
        let (_, body) = self.ask::<GetTimerMetrics>(address, &NoHeader, Bytes::new()).await?;
        // It is as long as there are minutes with timers, not as a peer likes.
        from_loose_trusted(&body).map_err(|cause| malformed::<GetTimerMetrics>(address, cause))
    }

    // ---- topics

    /// The names of all topics, those of the system and of retries included, sorted (`mqadmin topicList`).
    ///
    /// # Errors
    /// No name server answers.
    pub async fn topics(&self) -> Result<Vec<Text>, ClientError> {
        let mut list: TopicList = self.read_names::<GetAllTopicListFromNameserver, _>(&NoHeader).await?;
        list.topic_list.sort();
        Ok(list.topic_list)
    }

    /// Which brokers have a topic, with how many queues (`mqadmin topicRoute`).
    ///
    /// # Errors
    /// [`ClientError::NoRoute`] if no name server knows the topic.
    pub async fn route(&self, topic: &str) -> Result<TopicRouteData, ClientError> {
        let hub = &self.client.hub;
        Ok(hub.routes.renew(&hub.peers, topic).await?.data.clone())
    }

    /// Name and address of the masters that have a topic.
    async fn masters_of(&self, topic: &str) -> Result<BTreeMap<Text, Text>, ClientError> {
        let route = self.route(topic).await?;
        let masters = route.broker_datas.into_iter().filter_map(|mut broker| {
            let address = broker.broker_addrs.remove(&0)?;
            Some((broker.broker_name, address))
        });
        Ok(masters.collect())
    }

    /// A topic's configuration, by the name of the broker that has it.
    ///
    /// # Errors
    /// [`ClientError::NoRoute`] if no name server knows the topic.
    pub async fn topic_configs(&self, topic: &str) -> Result<BTreeMap<Text, TopicConfig>, ClientError> {
        let mut configs = BTreeMap::new();
        let header = GetTopicConfigHeader { topic: topic.into(), is_logical: None };
        for (name, address) in self.masters_of(topic).await? {
            let config = self.read::<GetTopicConfig, _>(&address, &header).await?;
            configs.insert(name, config);
        }
        Ok(configs)
    }

    /// First and next offset of every queue of a topic (`mqadmin topicStatus`).
    ///
    /// # Errors
    /// [`ClientError::NoRoute`] if no name server knows the topic.
    pub async fn topic_offsets(
        &self,
        topic: &str,
    ) -> Result<BTreeMap<MessageQueue, TopicOffset>, ClientError> {
        let mut all = BTreeMap::new();
        let header = GetTopicStatsInfoHeader { topic: topic.into() };
        for (_, address) in self.masters_of(topic).await? {
            let stats: TopicStats = self.read::<GetTopicStatsInfo, _>(&address, &header).await?;
            all.extend(stats.offset_table);
        }
        Ok(all)
    }

    /// Makes a topic on every master, or changes it there. Attributes are changes with a sign:
    /// `+message.type` with a value, `-message.type` without.
    ///
    /// # Errors
    /// [`ClientError::IllegalName`] at once, or what the first broker that refuses says.
    pub async fn save_topic(&self, topic: &TopicConfig) -> Result<(), ClientError> {
        legal::topic(&topic.topic_name)?;
        let sign = |(name, value): (&Text, &Text)| match name.starts_with('-') {
            true => name.to_string(),
            false => format!("{name}={value}"),
        };
        let attributes: Vec<String> = topic.attributes.iter().map(sign).collect();
        let header = UpdateAndCreateTopicHeader {
            topic: topic.topic_name.clone(),
            default_topic: TEMPLATE_TOPIC.into(),
            read_queue_nums: topic.read_queue_nums,
            write_queue_nums: topic.write_queue_nums,
            perm: topic.perm,
            topic_filter_type: match topic.topic_filter_type {
                TopicFilterType::SingleTag => "SINGLE_TAG".into(),
                TopicFilterType::MultiTag => "MULTI_TAG".into(),
            },
            topic_sys_flag: Some(topic.topic_sys_flag),
            order: Some(topic.order),
            attributes: (!attributes.is_empty()).then(|| attributes.join(",").into()),
            force: None,
        };
        for address in self.masters().await? {
            self.ask::<UpdateAndCreateTopic>(&address, &header, Bytes::new()).await?;
        }
        Ok(())
    }

    /// Deletes a topic with its messages on every master, and its routes.
    ///
    /// # Errors
    /// What the first server that refuses says.
    pub async fn delete_topic(&self, topic: &str) -> Result<(), ClientError> {
        let header = DeleteTopicInBrokerHeader { topic: topic.into() };
        for address in self.masters().await? {
            self.ask::<DeleteTopicInBroker>(&address, &header, Bytes::new()).await?;
        }
        let header = DeleteTopicInNamesrvHeader { topic: topic.into(), cluster_name: None };
        for address in self.client.hub.routes.name_servers().iter() {
            self.ask::<DeleteTopicInNamesrv>(address, &header, Bytes::new()).await?;
        }
        Ok(())
    }

    /// The groups that read a topic, or have read it.
    ///
    /// # Errors
    /// [`ClientError::NoRoute`] if no name server knows the topic.
    pub async fn readers(&self, topic: &str) -> Result<BTreeSet<Text>, ClientError> {
        let mut groups = BTreeSet::new();
        let header = QueryTopicConsumeByWhoHeader { topic: topic.into() };
        for (_, address) in self.masters_of(topic).await? {
            let list: GroupList = self.read::<QueryTopicConsumeByWho, _>(&address, &header).await?;
            groups.extend(list.group_list);
        }
        Ok(groups)
    }

    // ---- consumer groups

    /// Every consumer group, by name; of one that several brokers have, what the first says.
    ///
    /// # Errors
    /// A broker cannot be reached or refuses.
    pub async fn groups(&self) -> Result<BTreeMap<Text, SubscriptionGroupConfig>, ClientError> {
        let mut groups = BTreeMap::new();
        for address in self.masters().await? {
            let header = GetAllSubscriptiongroupConfigHeader::default();
            let table: SubscriptionGroupTable =
                self.read::<GetAllSubscriptiongroupConfig, _>(&address, &header).await?;
            for (name, config) in table.subscription_group_table {
                groups.entry(name).or_insert(config);
            }
        }
        Ok(groups)
    }

    /// Makes a group on every master, or changes it there (`mqadmin updateSubGroup`).
    ///
    /// # Errors
    /// [`ClientError::IllegalName`] at once, or what the first broker that refuses says.
    pub async fn save_group(&self, group: &SubscriptionGroupConfig) -> Result<(), ClientError> {
        legal::group(&group.group_name)?;
        let body = Bytes::from(to_standard(group));
        for address in self.masters().await? {
            self.ask::<UpdateAndCreateSubscriptiongroup>(&address, &NoHeader, body.clone()).await?;
        }
        Ok(())
    }

    /// Deletes a group with its offsets on every master.
    ///
    /// # Errors
    /// What the first broker that refuses says.
    pub async fn delete_group(&self, group: &str) -> Result<(), ClientError> {
        let header = DeleteSubscriptiongroupHeader { group: group.into(), clean_offset: Some(true) };
        for address in self.masters().await? {
            self.ask::<DeleteSubscriptiongroup>(&address, &header, Bytes::new()).await?;
        }
        Ok(())
    }

    /// Who is online in a group; nobody if no broker knows a member (`mqadmin consumerConnection`).
    ///
    /// # Errors
    /// A broker cannot be reached, or refuses for another reason than that nobody is online.
    pub async fn members(&self, group: &str) -> Result<Option<ConsumerConnection>, ClientError> {
        let header = GetConsumerConnectionListHeader { group: group.into() };
        let mut all: Option<ConsumerConnection> = None;
        for address in self.masters().await? {
            let known =
                match self.read::<GetConsumerConnectionList, ConsumerConnection>(&address, &header).await {
                    Ok(known) => known,
                    Err(error) if error.code() == Some(ResponseCode::CONSUMER_NOT_ONLINE) => continue,
                    Err(error) => return Err(error),
                };
            match &mut all {
                None => all = Some(known),
                Some(all) => join(all, known),
            }
        }
        Ok(all)
    }

    /// How far a group has come in every queue that it reads, of one topic if it is given (`mqadmin consumerProgress`).
    ///
    /// # Errors
    /// A broker cannot be reached or refuses.
    pub async fn progress(&self, group: &str, topic: Option<&str>) -> Result<ConsumeStats, ClientError> {
        let header =
            GetConsumeStatsHeader { group: group.into(), topic: topic.map(Text::from), topics: None };
        let mut all = ConsumeStats::default();
        for address in self.masters().await? {
            let stats: ConsumeStats = self.read::<GetConsumeStats, _>(&address, &header).await?;
            all.consume_tps += stats.consume_tps;
            all.offset_table.extend(stats.offset_table);
        }
        Ok(all)
    }

    // ---- offsets

    /// Sets where a group goes on in a topic, online or not; tells the new offset of each queue
    /// (`mqadmin resetOffsetByTime`).
    ///
    /// # Errors
    /// [`ClientError::NoRoute`] without the topic, or what the first broker that refuses says.
    pub async fn reset_offsets(
        &self,
        group: &str,
        topic: &str,
        to: ResetTo,
    ) -> Result<BTreeMap<MessageQueue, i64>, ClientError> {
        let (queue_id, queue_offset, timestamp_ms) = match to {
            ResetTo::Time(epoch_ms) => (None, None, epoch_ms),
            ResetTo::Latest => (None, None, -1),
            ResetTo::Earliest => (None, None, 0),
            ResetTo::Offset { queue_id, queue_offset } => (Some(queue_id), Some(queue_offset), -1),
        };
        let header = InvokeBrokerToResetOffsetHeader {
            topic: topic.into(),
            group: group.into(),
            queue_id,
            queue_offset,
            timestamp_ms,
            is_force: true,
        };
        let mut all = BTreeMap::new();
        for (_, address) in self.masters_of(topic).await? {
            let body: ResetOffsetBody = self.read::<InvokeBrokerToResetOffset, _>(&address, &header).await?;
            all.extend(body.offset_table);
        }
        Ok(all)
    }

    /// Copies the offsets of a group to another, of all topics if none is given (`mqadmin cloneGroupOffset`).
    ///
    /// # Errors
    /// What the first broker that refuses says.
    pub async fn clone_offsets(&self, from: &str, to: &str, topic: Option<&str>) -> Result<(), ClientError> {
        let header = CloneGroupOffsetHeader {
            source_group: from.into(),
            target_group: to.into(),
            topic: topic.map(Text::from),
            // Also topics that nobody of the group subscribes to just now.
            offline: Some(true),
        };
        for address in self.masters().await? {
            self.ask::<CloneGroupOffset>(&address, &header, Bytes::new()).await?;
        }
        Ok(())
    }

    // ---- messages

    /// The message with an id: the offset id that names its place, or the id its producer gave it (`mqadmin
    /// queryMsgById`, `queryMsgByUniqueKey`).
    ///
    /// # Errors
    /// [`ClientError::NoRoute`] without the topic; a broker cannot be reached.
    pub async fn message(&self, topic: &str, id: &str) -> Result<Option<Received>, ClientError> {
        if let Some(found) = self.at_offset_id(topic, id).await? {
            return Ok(Some(found));
        }
        let header = QueryMessageHeader {
            topic: topic.into(),
            key: id.into(),
            messages_max: 1,
            begin_timestamp_ms: 0,
            end_timestamp_ms: i64::MAX,
            is_unique_key: Some(true),
        };
        let found = self.search(&header, |_, _| {}).await?;
        Ok(found.into_iter().next())
    }

    /// Messages of a topic with a key, stored between two times in epoch ms, at most `max` of each broker; oldest
    /// first.
    ///
    /// # Errors
    /// [`ClientError::NoRoute`] without the topic; a broker cannot be reached.
    pub async fn messages_by_key(
        &self,
        topic: &str,
        key: &str,
        between_ms: (i64, i64),
        max: i32,
    ) -> Result<Vec<Received>, ClientError> {
        self.messages_by_key_told(topic, key, (between_ms, max), |_, _| {}).await
    }

    /// The same, which tells how many of how many brokers it has asked.
    ///
    /// # Errors
    /// As [`Admin::messages_by_key`].
    pub async fn messages_by_key_told(
        &self,
        topic: &str,
        key: &str,
        (between_ms, max): ((i64, i64), i32),
        told: impl FnMut(usize, usize) + Send,
    ) -> Result<Vec<Received>, ClientError> {
        let header = QueryMessageHeader {
            topic: topic.into(),
            key: key.into(),
            messages_max: max,
            begin_timestamp_ms: between_ms.0,
            end_timestamp_ms: between_ms.1,
            is_unique_key: Some(false),
        };
        self.search(&header, told).await
    }

    /// The message at the place an offset id names, if `id` is one, its address that of a broker of the cluster, and
    /// a message of the topic there.
    async fn at_offset_id(&self, topic: &str, id: &str) -> Result<Option<Received>, ClientError> {
        let Ok(place) = id.parse::<OffsetId>() else { return Ok(None) };
        let address = place.host.to_string();
        let brokers = self.brokers().await?;
        let Some(broker) = brokers.iter().find(|broker| broker.address.as_str() == address) else {
            return Ok(None);
        };
        let header = ViewMessageByIdHeader { topic: Some(topic.into()), log_offset: place.log_offset };
        let body = match self.ask::<ViewMessageById>(&address, &header, Bytes::new()).await {
            Ok((_, body)) => body,
            // A producer's id can look like an offset id: the broker then has nothing at that place.
            Err(error) if error.code().is_some() => return Ok(None),
            Err(error) => return Err(error),
        };
        let found =
            StoredMessage::decode_all(body).map_err(|cause| malformed::<ViewMessageById>(&address, cause))?;
        let found = found.into_iter().find(|message| message.topic.as_str() == topic);
        Ok(found.map(|message| received(message, &broker.name)))
    }

    /// Asks every master that has the topic; oldest first.
    async fn search(
        &self,
        header: &QueryMessageHeader,
        mut told: impl FnMut(usize, usize) + Send,
    ) -> Result<Vec<Received>, ClientError> {
        let mut all = Vec::new();
        let masters = self.masters_of(&header.topic).await?;
        let count = masters.len();
        for (asked, (name, address)) in masters.into_iter().enumerate() {
            told(asked, count);
            let body = match self.ask::<QueryMessage>(&address, header, Bytes::new()).await {
                Ok((_, body)) => body,
                Err(error) if error.code() == Some(ResponseCode::QUERY_NOT_FOUND) => continue,
                Err(error) => return Err(error),
            };
            let found = StoredMessage::decode_all(body)
                .map_err(|cause| malformed::<QueryMessage>(&address, cause))?;
            // The index knows only hashes: what has another key is left out here.
            let has_key = |message: &StoredMessage| match header.is_unique_key {
                Some(true) => message.message_id() == header.key.as_str(),
                _ => message.keys().any(|own| own == header.key.as_str()),
            };
            all.extend(found.into_iter().filter(has_key).map(|message| received(message, &name)));
        }
        told(count, count);
        all.sort_by_key(Received::store_timestamp_ms);
        Ok(all)
    }
}

fn received(message: StoredMessage, broker_name: &Text) -> Received {
    let queue =
        Queue { topic: message.topic.clone(), broker_name: broker_name.clone(), queue_id: message.queue_id };
    Received::new(message, Arc::new(queue))
}

/// Members and subscriptions of two brokers' answers in one.
fn join(all: &mut ConsumerConnection, other: ConsumerConnection) {
    for connection in other.connection_set {
        if !all.connection_set.iter().any(|known| known.client_id == connection.client_id) {
            all.connection_set.push(connection);
        }
    }
    all.subscription_table.extend(other.subscription_table);
}

fn malformed<R: Request>(address: &str, cause: troupemq_codec::CodecError) -> ClientError {
    ClientError::Malformed { address: address.to_owned(), request: R::NAME, cause }
}
