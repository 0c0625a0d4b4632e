//! What brokers tell a name server: REGISTER_BROKER (103), UNREGISTER_BROKER (104), QUERY_DATA_VERSION (322),
//! BROKER_HEARTBEAT (904), REGISTER_TOPIC_IN_NAMESRV (217).
//!
//! Invariants:
//! - nothing that is kept is a slice of a frame: a name must not keep megabytes alive.

use bytes::Bytes;
use troupemq_codec::loose_json::{from_loose, to_fastjson};
use troupemq_codec::message::record::body_crc;
use troupemq_codec::request::{
    BrokerHeartbeatHeader, KvTable, QueryDataVersionHeader, QueryDataVersionReplyHeader, RegisterBrokerBody,
    RegisterBrokerHeader, RegisterBrokerReplyHeader, RegisterTopicInNamesrvHeader, UnregisterBrokerHeader,
};
use troupemq_codec::route::{QueueData, TopicRouteData};
use troupemq_codec::topic::{DataVersion, TopicConfig};
use troupemq_codec::{Command, ResponseCode, Text};

use super::kv::{Namespace, ORDER_TOPICS};
use super::liveness::BrokerAddress;
use super::registry::{EnterTopic, Heard, Register, Unregister};
use super::routes::{PAIRS_MAX, Registered, Registration, TopicQueues};
use crate::cast::NameServerCast;
use crate::net::{Answer, Call, Refusal};

/// REGISTER_BROKER: a slave is told its master, everybody the ordered topics.
pub(super) async fn register_broker(cast: &NameServerCast, call: &Call) -> Answer {
    let header: RegisterBrokerHeader = call.command.header()?;
    let body = &call.command.body;
    if header.body_crc.is_some_and(|crc| crc != 0 && u32::try_from(crc) != Ok(body_crc(body))) {
        return Err(Refusal::new(ResponseCode::SYSTEM_ERROR, "crc32 not match"));
    }
    let body = RegisterBrokerBody::decode(body)?;
    let registration = registration(cast, header, body);
    let registered = cast.routes.send(Register { registration, link: call.link.clone() }).await?;
    let mut reply = RegisterBrokerReplyHeader::default();
    match registered {
        Registered::Accepted { master: Some(master) } => {
            reply.ha_address = Some(master.ha_address);
            reply.master_address = Some(master.address);
        }
        Registered::Accepted { master: None } | Registered::Outdated => {}
        Registered::Incomplete => {
            return Err(Refusal::new(ResponseCode::SYSTEM_ERROR, "register broker failed"));
        }
        Registered::Full { has, new, limit } => {
            let remark = format!(
                "the broker is not registered, its topics find no room: {has} pairs of broker and topic are known, \
                 {new} would be new, limit {limit}"
            );
            return Err(Refusal::new(ResponseCode::SYSTEM_BUSY, remark));
        }
    }
    let answer = Command::response(ResponseCode::SUCCESS).with_header(&reply);
    if !cast.config().return_order_topic_config_to_broker {
        return Ok(answer);
    }
    match cast.kv.send(Namespace(Text::from_static(ORDER_TOPICS))).await? {
        Some(table) => Ok(answer.with_body(Bytes::from(to_fastjson(&KvTable { table })))),
        None => Ok(answer),
    }
}

/// UNREGISTER_BROKER: always a success, whether there was something to remove or not.
pub(super) async fn unregister_broker(cast: &NameServerCast, call: &Call) -> Answer {
    let header: UnregisterBrokerHeader = call.command.header()?;
    let broker = BrokerAddress { cluster: header.cluster_name, address: header.broker_address };
    let link = call.link.id();
    let gone = Unregister { broker, name: header.broker_name, id: header.broker_id, link };
    cast.routes.send(gone).await?;
    Ok(Command::response(ResponseCode::SUCCESS))
}

/// BROKER_HEARTBEAT: an unknown broker is ignored.
pub(super) async fn broker_heartbeat(cast: &NameServerCast, call: &Call) -> Answer {
    let header: BrokerHeartbeatHeader = call.command.header()?;
    let broker = BrokerAddress { cluster: header.cluster_name, address: header.broker_address };
    cast.routes.send(Heard(broker)).await?;
    Ok(Command::response(ResponseCode::SUCCESS))
}

/// QUERY_DATA_VERSION: a sign of life, answered with what is known here; a broker that is unknown has changed.
pub(super) async fn query_data_version(cast: &NameServerCast, call: &Call) -> Answer {
    let header: QueryDataVersionHeader = call.command.header()?;
    let own: DataVersion = from_loose(&call.command.body)?;
    let broker = BrokerAddress { cluster: header.cluster_name, address: header.broker_address };
    let known = cast.routes.send(Heard(broker)).await?;
    let reply = QueryDataVersionReplyHeader { changed: known != Some(own) };
    let answer = Command::response(ResponseCode::SUCCESS).with_header(&reply);
    match known {
        Some(known) => Ok(answer.with_body(Bytes::from(to_fastjson(&known)))),
        None => Ok(answer),
    }
}

/// REGISTER_TOPIC_IN_NAMESRV: always a success; what stands on an unknown broker is left out.
pub(super) async fn register_topic(cast: &NameServerCast, call: &Call) -> Answer {
    let header: RegisterTopicInNamesrvHeader = call.command.header()?;
    let route: TopicRouteData = from_loose(&call.command.body)?;
    let queues = route.queue_datas.iter().map(|data| (Text::from(data.broker_name.as_str()), data.into()));
    let topic = Text::from(header.topic.as_str());
    let all_entered = cast.routes.send(EnterTopic { topic, queues: queues.collect() }).await?;
    if !all_entered {
        tracing::warn!(topic = %header.topic, limit = PAIRS_MAX,
            "a topic names a broker that is not registered, or finds no room: it is not entered there");
    }
    Ok(Command::response(ResponseCode::SUCCESS))
}

fn registration(
    cast: &NameServerCast,
    header: RegisterBrokerHeader,
    body: RegisterBrokerBody,
) -> Registration {
    let config = cast.config();
    let table = body.topic_config_serialize_wrapper;
    let copy = |text: &Text| Text::from(text.as_str());
    Registration {
        cluster: copy(&header.cluster_name),
        name: copy(&header.broker_name),
        id: header.broker_id,
        address: copy(&header.broker_address),
        ha_address: copy(&header.ha_address),
        zone: header.zone_name.as_ref().map(copy),
        silence_max_ms: Some(header.heartbeat_timeout_ms.unwrap_or(config.broker_silence_ms)),
        acting_master: header.acting_master,
        version: table.data_version,
        topics: table.topic_config_table.iter().map(|(name, topic)| (copy(name), topic.into())).collect(),
        drops_missing: config.delete_topic_with_broker_registration,
    }
}

impl From<&TopicConfig> for TopicQueues {
    fn from(topic: &TopicConfig) -> TopicQueues {
        TopicQueues {
            read_queues: topic.read_queue_nums,
            write_queues: topic.write_queue_nums,
            perm: topic.perm,
            sys_flag: topic.topic_sys_flag,
        }
    }
}

impl From<&QueueData> for TopicQueues {
    fn from(data: &QueueData) -> TopicQueues {
        TopicQueues {
            read_queues: data.read_queue_nums,
            write_queues: data.write_queue_nums,
            perm: data.perm,
            sys_flag: data.topic_sys_flag,
        }
    }
}
