//! The way from a client to the broker in its process.
//!
//! Invariants:
//! - a connection runs on the arbiter that writes the log: a send needs no hop between session and log.

use std::io;
use std::sync::Arc;

use tokio::sync::mpsc;
use troupemq_actors::net::pipe::Pipe;
use troupemq_actors::net::sessions::TakeInPipe;
use troupemq_actors::router::Served;
use troupemq_actors::{BrokerCast, own_route};
use troupemq_codec::route::{ClusterInfo, TopicRouteData};

use crate::client::error::ClientError;
use crate::client::link::LinkOrder;
use crate::client::near::{Near, NearAnswers, OnCall};

/// A broker as its clients in this process see it.
#[derive(Debug)]
pub(super) struct Way {
    cast: Arc<BrokerCast>,
}

impl Way {
    pub(super) fn new(cast: Arc<BrokerCast>) -> Way {
        Way { cast }
    }
}

impl Near for Way {
    fn route(&self, topic: &str) -> Option<TopicRouteData> {
        own_route::route(&self.cast, topic)
    }

    fn cluster(&self) -> ClusterInfo {
        own_route::cluster(&self.cast)
    }

    fn open(
        &self,
        orders: mpsc::Receiver<LinkOrder>,
        calls: OnCall,
        answers: mpsc::Sender<NearAnswers>,
    ) -> Result<(), ClientError> {
        let wanted = TakeInPipe {
            pipe: Pipe { orders, calls, answers },
            address: self.cast.advertised,
            served: Served::Broker(self.cast.clone()),
        };
        self.cast.sessions.try_send(wanted).map_err(|_| ClientError::Connect {
            address: self.cast.broker_name.to_string(),
            cause: io::Error::new(io::ErrorKind::ConnectionRefused, "the broker has ended"),
        })
    }
}
