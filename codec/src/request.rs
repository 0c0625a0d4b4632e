//! Every request there is: code, name, direction, header, reply.
//!
//! Invariants:
//! - a request stands in one file of `request/`; its number and its keys are written there and nowhere else;
//! - no code stands twice in [`REQUESTS`], and every request is in it.

mod heart_beat;
mod pull_message;

pub use heart_beat::*;
pub use pull_message::*;

use crate::header::{Header, header};
use crate::text::Text;

/// Who sends a request to whom. Tools count as clients, a slave as a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// A client or tool asks a broker.
    ClientToBroker,
    /// A client, tool or broker asks a name server.
    ToNameServer,
    /// A broker asks a client over the connection the client opened.
    BrokerToClient,
    /// A tool asks a broker, which asks a client with the same code.
    ThroughBroker,
    /// A name server tells a broker.
    NameServerToBroker,
    /// A slave asks its master, or a broker another.
    BrokerToBroker,
}

/// A request: what is known about it at compile time.
pub trait Request {
    /// The request code.
    const CODE: i32;
    /// The name in RocketMQ's spelling.
    const NAME: &'static str;
    /// Who sends it to whom.
    const TO: Direction;
    /// The header of the request.
    type Header: Header;
    /// The header of a successful answer.
    type Reply: Header;
}

header! {
    /// Fields that newer clients add to nearly every request; a broker without static topics needs none of them.
    pub struct CommonHeader {
        namespace: Option<Text> = "ns",
        is_namespaced: Option<bool> = "nsd",
        broker_name: Option<Text> = "bname",
        is_logical: Option<bool> = "lo",
        is_oneway: Option<bool> = "oway",
    }
}

/// What the table tells about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestInfo {
    /// The request code.
    pub code: i32,
    /// The name in RocketMQ's spelling.
    pub name: &'static str,
    /// Who sends it to whom.
    pub to: Direction,
    /// Keys of the request's header.
    pub keys: &'static [&'static str],
    /// Keys of the header of a successful answer.
    pub reply_keys: &'static [&'static str],
}

const fn info<R: Request>() -> RequestInfo {
    RequestInfo { code: R::CODE, name: R::NAME, to: R::TO, keys: R::Header::KEYS, reply_keys: R::Reply::KEYS }
}

/// Every request.
pub const REQUESTS: &[RequestInfo] = &[info::<HeartBeat>(), info::<PullMessage>(), info::<LitePullMessage>()];

/// Looks a code up.
pub fn request_info(code: i32) -> Option<&'static RequestInfo> {
    REQUESTS.iter().find(|request| request.code == code)
}
