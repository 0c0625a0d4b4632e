//! TroupeMQ: a message broker compatible with Apache RocketMQ, made of actors.
//!
//! Invariants:
//! - the facade adds names and defaults, never behaviour: that lives on the floors below;
//! - without default features there is the client alone, and nothing of the broker is built.
//!
//! Contents: [`client`] talks to any RocketMQ-compatible cluster, `embedded` is a broker within the program, `guides`
//! show how both are used.
#![forbid(unsafe_code)]

pub mod client;
#[cfg(feature = "broker")]
pub mod embedded;
#[cfg(all(feature = "broker", feature = "tls"))]
pub mod guides;

pub use client::admin::{Admin, BrokerPlace, ResetTo};
pub use client::consumer::listener::{Listener, Outcome};
pub use client::consumer::{ConsumerBuilder, Deliveries, Delivery};
pub use client::error::ClientError;
pub use client::message::{Message, Received};
pub use client::producer::{Producer, ProducerBuilder, SendReceipt, SendStatus};
pub use client::pull::{ExpressionType, PullRequest, PullStatus, Pulled};
pub use client::queue::Queue;
pub use client::request_reply::Reply;
#[cfg(feature = "tls")]
pub use client::tls::Tls;
pub use client::transaction::{Decision, Transaction};
pub use client::{Client, ClientBuilder};
#[cfg(feature = "broker")]
pub use embedded::{Broker, BrokerBuilder, BrokerError};
#[cfg(feature = "broker")]
pub use troupemq_actors::BrokerConfig;
pub use troupemq_codec::message::Compression;
pub use troupemq_codec::request::TimerMetrics;
pub use troupemq_codec::{ResponseCode, Text};
#[cfg(feature = "broker")]
pub use troupemq_store::{FlushMode, StoreConfig};
