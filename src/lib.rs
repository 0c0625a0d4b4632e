//! TroupeMQ: a message broker compatible with Apache RocketMQ, made of actors, and a client for every such broker.
//!
//! A broker within the program and a cluster far away are used by the same handles:
//!
//! ```no_run
//! # async fn run(dir: std::path::PathBuf) -> Result<(), Box<dyn std::error::Error>> {
//! use futures::StreamExt;
//! use troupemq::{Broker, Client, Message};
//!
//! let broker = Broker::builder().store_dir(&dir).start().await?;                   // embedded; a socket only if asked
//! let client = Client::builder().name_servers("127.0.0.1:9876").connect().await?;  // remote; the rest reads the same
//!
//! let producer = broker.producer("orders-writer").start().await?;
//! let receipt = producer.send(Message::new("orders", "hello").tag("new").key("42")).await?;
//! let mut orders = broker.consumer("orders-reader").subscribe("orders", "new || paid").from_first().stream().await?;
//! while let Some(delivery) = orders.next().await {
//!     let delivery = delivery?;
//!     println!("{} {:?}", delivery.message().topic(), delivery.message().body());
//!     delivery.ack().await?;                                                       // or retry_later(level), give_up()
//! }
//! broker.shutdown().await?;
//! # drop((client, receipt));
//! # Ok(())
//! # }
//! ```
//!
//! | what | where it begins | guide |
//! |---|---|---|
//! | send and receive, with any RocketMQ-compatible cluster | [`Client::builder`] | [`guides::client`] |
//! | a broker within the program | [`Broker::builder`] | [`guides::embedding`] |
//! | the daemon and its tools, `troupemq --help` | `cargo run --release` | [`guides::daemon`] |
//! | coming from RocketMQ in Java | | [`guides::migration`] |
//!
//! [`Client::producer`] sends: one message, batches, to a queue, by key, later, in transactions, as requests.
//! [`Client::consumer`] receives as a member of a group: as a [`Stream`](futures_core::Stream), by a function, by an
//! actix actor; shared, in order or broadcast. [`Client::pull`] reads queues by hand, [`Client::admin`] does what
//! RocketMQ's `mqadmin` does. A [`Broker`] has all of that too: [`Broker::client`] is a [`Client`]. Each way is an
//! example: `cargo run --example producer`.
//!
//! | feature | default | gives |
//! |---|---|---|
//! | | | the client, always there |
//! | `tls` | yes | TLS to name servers and brokers |
//! | `broker` | yes | [`Broker`] |
//! | `cli` | yes | the program `troupemq` |
//!
//! Invariants:
//! - the facade adds names and defaults, never behaviour: that lives on the floors below;
//! - without default features there is the client alone, and nothing of the broker is built.
//!
//! Contents: [`client`] talks to any RocketMQ-compatible cluster, [`embedded`] is a broker within the program,
//! [`guides`] show how all of it is used.
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
