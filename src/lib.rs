//! TroupeMQ: a message broker compatible with Apache RocketMQ, made of actors.
//!
//! Invariants:
//! - the facade adds names and defaults, never behaviour: that lives on the floors below;
//! - without default features there is the client alone, and nothing of the broker is built.
//!
//! Contents: [`client`] talks to any RocketMQ-compatible cluster.
#![forbid(unsafe_code)]

pub mod client;

pub use client::admin::{Admin, BrokerPlace, ResetTo};
pub use client::consumer::{ConsumerBuilder, Deliveries, Delivery};
pub use client::error::ClientError;
pub use client::message::{Message, Received};
pub use client::producer::{Producer, ProducerBuilder, SendReceipt, SendStatus};
pub use client::pull::{PullRequest, PullStatus, Pulled};
pub use client::queue::Queue;
pub use client::{Client, ClientBuilder};
pub use troupemq_codec::{ResponseCode, Text};
