//! Response codes (RocketMQ's `RemotingSysResponseCode` and `ResponseCode`).
//!
//! Invariants:
//! - a code that is not in the list is kept as it is: a newer peer may know more.

use std::fmt;

/// The code of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ResponseCode(pub i32);

impl ResponseCode {
    /// Done.
    pub const SUCCESS: ResponseCode = ResponseCode(0);
    /// Any failure without a code of its own.
    pub const SYSTEM_ERROR: ResponseCode = ResponseCode(1);
    /// Overload: the request was refused, its remark says by what.
    pub const SYSTEM_BUSY: ResponseCode = ResponseCode(2);
    /// Unknown request code.
    pub const REQUEST_CODE_NOT_SUPPORTED: ResponseCode = ResponseCode(3);
    /// Reserved.
    pub const TRANSACTION_FAILED: ResponseCode = ResponseCode(4);
    /// Stored, but the sync flush did not finish in time.
    pub const FLUSH_DISK_TIMEOUT: ResponseCode = ResponseCode(10);
    /// Stored, but no slave is fit for sync replication.
    pub const SLAVE_NOT_AVAILABLE: ResponseCode = ResponseCode(11);
    /// Stored, but no slave confirmed in time.
    pub const FLUSH_SLAVE_TIMEOUT: ResponseCode = ResponseCode(12);
    /// The message cannot be stored as it is.
    pub const MESSAGE_ILLEGAL: ResponseCode = ResponseCode(13);
    /// The store takes no writes.
    pub const SERVICE_NOT_AVAILABLE: ResponseCode = ResponseCode(14);
    /// Reserved.
    pub const VERSION_NOT_SUPPORTED: ResponseCode = ResponseCode(15);
    /// A permission is missing.
    pub const NO_PERMISSION: ResponseCode = ResponseCode(16);
    /// Unknown topic, or no route.
    pub const TOPIC_NOT_EXIST: ResponseCode = ResponseCode(17);
    /// Reserved.
    pub const TOPIC_EXIST_ALREADY: ResponseCode = ResponseCode(18);
    /// No new message.
    pub const PULL_NOT_FOUND: ResponseCode = ResponseCode(19);
    /// Nothing matched in what was scanned, go on at once.
    pub const PULL_RETRY_IMMEDIATELY: ResponseCode = ResponseCode(20);
    /// The offset is illegal, go on with the one in the answer.
    pub const PULL_OFFSET_MOVED: ResponseCode = ResponseCode(21);
    /// Nothing is known under the key.
    pub const QUERY_NOT_FOUND: ResponseCode = ResponseCode(22);
    /// The filter expression does not compile.
    pub const SUBSCRIPTION_PARSE_FAILED: ResponseCode = ResponseCode(23);
    /// The group has not subscribed to the topic.
    pub const SUBSCRIPTION_NOT_EXIST: ResponseCode = ResponseCode(24);
    /// The pull knows a newer subscription than the broker.
    pub const SUBSCRIPTION_NOT_LATEST: ResponseCode = ResponseCode(25);
    /// Unknown consumer group.
    pub const SUBSCRIPTION_GROUP_NOT_EXIST: ResponseCode = ResponseCode(26);
    /// The compiled filter is missing.
    pub const FILTER_DATA_NOT_EXIST: ResponseCode = ResponseCode(27);
    /// The compiled filter is older than the subscription.
    pub const FILTER_DATA_NOT_LATEST: ResponseCode = ResponseCode(28);
    /// A parameter is out of its range.
    pub const INVALID_PARAMETER: ResponseCode = ResponseCode(29);
    /// Reserved.
    pub const TRANSACTION_SHOULD_COMMIT: ResponseCode = ResponseCode(200);
    /// Reserved.
    pub const TRANSACTION_SHOULD_ROLLBACK: ResponseCode = ResponseCode(201);
    /// Reserved.
    pub const TRANSACTION_STATE_UNKNOW: ResponseCode = ResponseCode(202);
    /// Reserved.
    pub const TRANSACTION_STATE_GROUP_WRONG: ResponseCode = ResponseCode(203);
    /// Commercial.
    pub const NO_BUYER_ID: ResponseCode = ResponseCode(204);
    /// Commercial.
    pub const NOT_IN_CURRENT_UNIT: ResponseCode = ResponseCode(205);
    /// The group has no connection.
    pub const CONSUMER_NOT_ONLINE: ResponseCode = ResponseCode(206);
    /// A client did not answer a forwarded call.
    pub const CONSUME_MSG_TIMEOUT: ResponseCode = ResponseCode(207);
    /// The offset lies outside the queue.
    pub const NO_MESSAGE: ResponseCode = ResponseCode(208);
    /// Too many requests are parked.
    pub const POLLING_FULL: ResponseCode = ResponseCode(209);
    /// The poll time is over.
    pub const POLLING_TIMEOUT: ResponseCode = ResponseCode(210);
    /// For tools.
    pub const BROKER_NOT_EXIST: ResponseCode = ResponseCode(211);
    /// For tools.
    pub const BROKER_DISPATCH_NOT_COMPLETE: ResponseCode = ResponseCode(212);
    /// For tools.
    pub const BROADCAST_CONSUMPTION: ResponseCode = ResponseCode(213);
    /// Wait before the next pull.
    pub const FLOW_CONTROL: ResponseCode = ResponseCode(215);
    /// Static topics.
    pub const NOT_LEADER_FOR_QUEUE: ResponseCode = ResponseCode(501);
    /// Not allowed now, or a bad recall handle.
    pub const ILLEGAL_OPERATION: ResponseCode = ResponseCode(604);
    /// The server is shutting down: connect anew and repeat.
    pub const GO_AWAY: ResponseCode = ResponseCode(1500);
    /// Controller.
    pub const CONTROLLER_FENCED_MASTER_EPOCH: ResponseCode = ResponseCode(2000);
    /// Controller.
    pub const CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH: ResponseCode = ResponseCode(2001);
    /// Controller.
    pub const CONTROLLER_INVALID_MASTER: ResponseCode = ResponseCode(2002);
    /// Controller.
    pub const CONTROLLER_INVALID_REPLICAS: ResponseCode = ResponseCode(2003);
    /// Controller.
    pub const CONTROLLER_MASTER_NOT_AVAILABLE: ResponseCode = ResponseCode(2004);
    /// Controller.
    pub const CONTROLLER_INVALID_REQUEST: ResponseCode = ResponseCode(2005);
    /// Controller.
    pub const CONTROLLER_BROKER_NOT_ALIVE: ResponseCode = ResponseCode(2006);
    /// Controller.
    pub const CONTROLLER_NOT_LEADER: ResponseCode = ResponseCode(2007);
    /// Controller.
    pub const CONTROLLER_BROKER_METADATA_NOT_EXIST: ResponseCode = ResponseCode(2008);
    /// Controller.
    pub const CONTROLLER_INVALID_CLEAN_BROKER_METADATA: ResponseCode = ResponseCode(2009);
    /// Controller.
    pub const CONTROLLER_BROKER_NEED_TO_BE_REGISTERED: ResponseCode = ResponseCode(2010);
    /// Controller.
    pub const CONTROLLER_MASTER_STILL_EXIST: ResponseCode = ResponseCode(2011);
    /// Controller.
    pub const CONTROLLER_ELECT_MASTER_FAILED: ResponseCode = ResponseCode(2012);
    /// Controller.
    pub const CONTROLLER_ALTER_SYNC_STATE_SET_FAILED: ResponseCode = ResponseCode(2013);
    /// Controller.
    pub const CONTROLLER_BROKER_ID_INVALID: ResponseCode = ResponseCode(2014);
    /// Controller.
    pub const CONTROLLER_JRAFT_INTERNAL_ERROR: ResponseCode = ResponseCode(2015);
    /// Controller.
    pub const CONTROLLER_BROKER_LIVE_INFO_NOT_EXISTS: ResponseCode = ResponseCode(2016);
    /// Unknown user.
    pub const USER_NOT_EXIST: ResponseCode = ResponseCode(3001);
    /// Unknown policy.
    pub const POLICY_NOT_EXIST: ResponseCode = ResponseCode(3002);

    /// The name in RocketMQ's spelling; `None` for a code that is not in the list.
    pub fn name(self) -> Option<&'static str> {
        NAMES.iter().find(|(code, _)| *code == self).map(|(_, name)| *name)
    }

    /// Whether a send with this answer was stored.
    pub fn is_stored(self) -> bool {
        matches!(
            self,
            ResponseCode::SUCCESS
                | ResponseCode::FLUSH_DISK_TIMEOUT
                | ResponseCode::SLAVE_NOT_AVAILABLE
                | ResponseCode::FLUSH_SLAVE_TIMEOUT
        )
    }
}

impl fmt::Display for ResponseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Every code with its name.
const NAMES: &[(ResponseCode, &str)] = &[
    (ResponseCode::SUCCESS, "SUCCESS"),
    (ResponseCode::SYSTEM_ERROR, "SYSTEM_ERROR"),
    (ResponseCode::SYSTEM_BUSY, "SYSTEM_BUSY"),
    (ResponseCode::REQUEST_CODE_NOT_SUPPORTED, "REQUEST_CODE_NOT_SUPPORTED"),
    (ResponseCode::TRANSACTION_FAILED, "TRANSACTION_FAILED"),
    (ResponseCode::FLUSH_DISK_TIMEOUT, "FLUSH_DISK_TIMEOUT"),
    (ResponseCode::SLAVE_NOT_AVAILABLE, "SLAVE_NOT_AVAILABLE"),
    (ResponseCode::FLUSH_SLAVE_TIMEOUT, "FLUSH_SLAVE_TIMEOUT"),
    (ResponseCode::MESSAGE_ILLEGAL, "MESSAGE_ILLEGAL"),
    (ResponseCode::SERVICE_NOT_AVAILABLE, "SERVICE_NOT_AVAILABLE"),
    (ResponseCode::VERSION_NOT_SUPPORTED, "VERSION_NOT_SUPPORTED"),
    (ResponseCode::NO_PERMISSION, "NO_PERMISSION"),
    (ResponseCode::TOPIC_NOT_EXIST, "TOPIC_NOT_EXIST"),
    (ResponseCode::TOPIC_EXIST_ALREADY, "TOPIC_EXIST_ALREADY"),
    (ResponseCode::PULL_NOT_FOUND, "PULL_NOT_FOUND"),
    (ResponseCode::PULL_RETRY_IMMEDIATELY, "PULL_RETRY_IMMEDIATELY"),
    (ResponseCode::PULL_OFFSET_MOVED, "PULL_OFFSET_MOVED"),
    (ResponseCode::QUERY_NOT_FOUND, "QUERY_NOT_FOUND"),
    (ResponseCode::SUBSCRIPTION_PARSE_FAILED, "SUBSCRIPTION_PARSE_FAILED"),
    (ResponseCode::SUBSCRIPTION_NOT_EXIST, "SUBSCRIPTION_NOT_EXIST"),
    (ResponseCode::SUBSCRIPTION_NOT_LATEST, "SUBSCRIPTION_NOT_LATEST"),
    (ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST, "SUBSCRIPTION_GROUP_NOT_EXIST"),
    (ResponseCode::FILTER_DATA_NOT_EXIST, "FILTER_DATA_NOT_EXIST"),
    (ResponseCode::FILTER_DATA_NOT_LATEST, "FILTER_DATA_NOT_LATEST"),
    (ResponseCode::INVALID_PARAMETER, "INVALID_PARAMETER"),
    (ResponseCode::TRANSACTION_SHOULD_COMMIT, "TRANSACTION_SHOULD_COMMIT"),
    (ResponseCode::TRANSACTION_SHOULD_ROLLBACK, "TRANSACTION_SHOULD_ROLLBACK"),
    (ResponseCode::TRANSACTION_STATE_UNKNOW, "TRANSACTION_STATE_UNKNOW"),
    (ResponseCode::TRANSACTION_STATE_GROUP_WRONG, "TRANSACTION_STATE_GROUP_WRONG"),
    (ResponseCode::NO_BUYER_ID, "NO_BUYER_ID"),
    (ResponseCode::NOT_IN_CURRENT_UNIT, "NOT_IN_CURRENT_UNIT"),
    (ResponseCode::CONSUMER_NOT_ONLINE, "CONSUMER_NOT_ONLINE"),
    (ResponseCode::CONSUME_MSG_TIMEOUT, "CONSUME_MSG_TIMEOUT"),
    (ResponseCode::NO_MESSAGE, "NO_MESSAGE"),
    (ResponseCode::POLLING_FULL, "POLLING_FULL"),
    (ResponseCode::POLLING_TIMEOUT, "POLLING_TIMEOUT"),
    (ResponseCode::BROKER_NOT_EXIST, "BROKER_NOT_EXIST"),
    (ResponseCode::BROKER_DISPATCH_NOT_COMPLETE, "BROKER_DISPATCH_NOT_COMPLETE"),
    (ResponseCode::BROADCAST_CONSUMPTION, "BROADCAST_CONSUMPTION"),
    (ResponseCode::FLOW_CONTROL, "FLOW_CONTROL"),
    (ResponseCode::NOT_LEADER_FOR_QUEUE, "NOT_LEADER_FOR_QUEUE"),
    (ResponseCode::ILLEGAL_OPERATION, "ILLEGAL_OPERATION"),
    (ResponseCode::GO_AWAY, "GO_AWAY"),
    (ResponseCode::CONTROLLER_FENCED_MASTER_EPOCH, "CONTROLLER_FENCED_MASTER_EPOCH"),
    (ResponseCode::CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH, "CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH"),
    (ResponseCode::CONTROLLER_INVALID_MASTER, "CONTROLLER_INVALID_MASTER"),
    (ResponseCode::CONTROLLER_INVALID_REPLICAS, "CONTROLLER_INVALID_REPLICAS"),
    (ResponseCode::CONTROLLER_MASTER_NOT_AVAILABLE, "CONTROLLER_MASTER_NOT_AVAILABLE"),
    (ResponseCode::CONTROLLER_INVALID_REQUEST, "CONTROLLER_INVALID_REQUEST"),
    (ResponseCode::CONTROLLER_BROKER_NOT_ALIVE, "CONTROLLER_BROKER_NOT_ALIVE"),
    (ResponseCode::CONTROLLER_NOT_LEADER, "CONTROLLER_NOT_LEADER"),
    (ResponseCode::CONTROLLER_BROKER_METADATA_NOT_EXIST, "CONTROLLER_BROKER_METADATA_NOT_EXIST"),
    (ResponseCode::CONTROLLER_INVALID_CLEAN_BROKER_METADATA, "CONTROLLER_INVALID_CLEAN_BROKER_METADATA"),
    (ResponseCode::CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, "CONTROLLER_BROKER_NEED_TO_BE_REGISTERED"),
    (ResponseCode::CONTROLLER_MASTER_STILL_EXIST, "CONTROLLER_MASTER_STILL_EXIST"),
    (ResponseCode::CONTROLLER_ELECT_MASTER_FAILED, "CONTROLLER_ELECT_MASTER_FAILED"),
    (ResponseCode::CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, "CONTROLLER_ALTER_SYNC_STATE_SET_FAILED"),
    (ResponseCode::CONTROLLER_BROKER_ID_INVALID, "CONTROLLER_BROKER_ID_INVALID"),
    (ResponseCode::CONTROLLER_JRAFT_INTERNAL_ERROR, "CONTROLLER_JRAFT_INTERNAL_ERROR"),
    (ResponseCode::CONTROLLER_BROKER_LIVE_INFO_NOT_EXISTS, "CONTROLLER_BROKER_LIVE_INFO_NOT_EXISTS"),
    (ResponseCode::USER_NOT_EXIST, "USER_NOT_EXIST"),
    (ResponseCode::POLICY_NOT_EXIST, "POLICY_NOT_EXIST"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_code_stands_twice() {
        for (position, (code, name)) in NAMES.iter().enumerate() {
            assert_eq!(NAMES.iter().position(|(other, _)| other == code), Some(position), "{name}");
        }
    }

    #[test]
    fn a_code_shows_its_name_and_number() {
        assert_eq!(ResponseCode::PULL_NOT_FOUND.to_string(), "PULL_NOT_FOUND (19)");
        assert_eq!(ResponseCode(4711).to_string(), "4711");
    }
}
