//! What can go wrong for a client.
//!
//! Invariants:
//! - a refusal keeps the server's code and remark as they came;
//! - every error names the server or the setting it is about.

use std::io;
use std::time::Duration;

use troupemq_codec::{CodecError, ResponseCode};

/// Why an operation of a client did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server answered, and the answer is no.
    #[error("{address} refused {request}: {code}: {remark}")]
    Refused {
        /// The server.
        address: String,
        /// RocketMQ's name of the request.
        request: &'static str,
        /// The server's code.
        code: ResponseCode,
        /// The server's explanation.
        remark: String,
    },
    /// No connection could be made.
    #[error("cannot connect to {address}: {cause}")]
    Connect {
        /// The server.
        address: String,
        /// What the operating system said.
        cause: io::Error,
    },
    /// There is a connection, but no TLS over it.
    #[error("no TLS with {address}: {why}")]
    Tls {
        /// The server.
        address: String,
        /// What went wrong in the handshake.
        why: String,
    },
    /// The connection ended before the answer came. The server may have carried the request out.
    #[error("connection to {address} closed before the answer to {request}: {why}")]
    Disconnected {
        /// The server.
        address: String,
        /// RocketMQ's name of the request.
        request: &'static str,
        /// How it ended.
        why: String,
    },
    /// No answer came in time. The server may have carried the request out.
    #[error("{address} did not answer {request} within {after:?}")]
    TimedOut {
        /// The server.
        address: String,
        /// RocketMQ's name of the request.
        request: &'static str,
        /// How long the answer was waited for.
        after: Duration,
    },
    /// The answer cannot be read.
    #[error("{address} answered {request} with something unreadable: {cause}")]
    Malformed {
        /// The server.
        address: String,
        /// RocketMQ's name of the request.
        request: &'static str,
        /// What is wrong with it.
        cause: CodecError,
    },
    /// None of several name servers can be asked.
    #[error("no name server answers: {}", one_by_one(causes))]
    NameServers {
        /// What went wrong with each, in the order in which they were tried.
        causes: Vec<ClientError>,
    },
    /// The list of name servers cannot be read.
    #[error("no list of name servers from {url}: {cause}")]
    NameServerList {
        /// Where it should be.
        url: String,
        /// What the operating system said, or what came instead.
        cause: io::Error,
    },
    /// No name server knows a broker for the topic.
    #[error("no route for topic {topic}: {why}")]
    NoRoute {
        /// The topic.
        topic: String,
        /// What the name servers said.
        why: String,
    },
    /// The name servers know no broker that could do it.
    #[error("no master has registered with the name servers {name_servers}")]
    NoBroker {
        /// The name servers, with `;` between.
        name_servers: String,
    },
    /// The topic has no queue that fits.
    #[error("topic {topic} has no {wanted} queue")]
    NoQueue {
        /// The topic.
        topic: String,
        /// What the queue must be fit for.
        wanted: &'static str,
    },
    /// The broker wants the group to pop the topic.
    #[error("{address} wants {topic} popped by {group}; this client only pulls")]
    WantsPop {
        /// The broker.
        address: String,
        /// The topic.
        topic: String,
        /// The group.
        group: String,
    },
    /// The message cannot be sent as it is.
    #[error("message to {topic} is illegal: {why}")]
    IllegalMessage {
        /// The topic.
        topic: String,
        /// What is wrong with it.
        why: String,
    },
    /// No topic or group can be called so.
    #[error("{what} {name:?} is illegal: {why}")]
    IllegalName {
        /// What should be called so.
        what: &'static str,
        /// The name.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// A setting is wrong.
    #[error("{setting}: {why}")]
    Setting {
        /// The setting.
        setting: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The client, producer or consumer was shut down.
    #[error("{what} is shut down")]
    ShutDown {
        /// What was shut down.
        what: &'static str,
    },
}

fn one_by_one(causes: &[ClientError]) -> String {
    causes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl ClientError {
    /// The server's code, if a server refused.
    pub fn code(&self) -> Option<ResponseCode> {
        match self {
            ClientError::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether a consumer cannot hope that it passes by itself.
    pub(crate) fn is_lasting(&self) -> bool {
        let codes = [
            ResponseCode::SUBSCRIPTION_PARSE_FAILED,
            ResponseCode::NO_PERMISSION,
            ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST,
            ResponseCode::REQUEST_CODE_NOT_SUPPORTED,
        ];
        matches!(self, ClientError::WantsPop { .. }) || self.code().is_some_and(|code| codes.contains(&code))
    }

    /// Whether it is about the way to the server and not about what was asked.
    pub fn is_transport(&self) -> bool {
        matches!(
            self,
            ClientError::Connect { .. }
                | ClientError::Tls { .. }
                | ClientError::NameServerList { .. }
                | ClientError::NameServers { .. }
                | ClientError::Disconnected { .. }
                | ClientError::TimedOut { .. }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_shows_who_what_and_why() {
        let error = ClientError::Refused {
            address: "127.0.0.1:10911".to_owned(),
            request: "PULL_MESSAGE",
            code: ResponseCode::TOPIC_NOT_EXIST,
            remark: "topic[T] not exist".to_owned(),
        };
        let shown = "127.0.0.1:10911 refused PULL_MESSAGE: TOPIC_NOT_EXIST (17): topic[T] not exist";
        assert_eq!(error.to_string(), shown);
        assert_eq!(error.code(), Some(ResponseCode::TOPIC_NOT_EXIST));
        assert!(!error.is_transport());
    }
}
