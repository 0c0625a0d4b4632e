//! What a send that failed says of the next try.
//!
//! Invariants:
//! - what a broker says of the message itself is final.

use troupemq_codec::ResponseCode;

use crate::client::error::ClientError;

/// Whether a broker refused because of itself: others may be well. RocketMQ's client avoids it like one that failed.
pub(super) fn is_about_broker(error: &ClientError) -> bool {
    let codes = [
        ResponseCode::SERVICE_NOT_AVAILABLE,
        ResponseCode::SYSTEM_ERROR,
        ResponseCode::SYSTEM_BUSY,
        ResponseCode::GO_AWAY,
    ];
    error.code().is_some_and(|code| codes.contains(&code))
}

/// Whether another try can help.
pub(super) fn may_retry(error: &ClientError) -> bool {
    let codes = [
        ResponseCode::TOPIC_NOT_EXIST,
        ResponseCode::SERVICE_NOT_AVAILABLE,
        ResponseCode::SYSTEM_ERROR,
        ResponseCode::SYSTEM_BUSY,
        ResponseCode::NO_PERMISSION,
        ResponseCode::NO_BUYER_ID,
        ResponseCode::NOT_IN_CURRENT_UNIT,
        ResponseCode::GO_AWAY,
    ];
    let is_elsewhere = matches!(error, ClientError::NoRoute { .. } | ClientError::NoQueue { .. });
    error.is_transport() || is_elsewhere || error.code().is_some_and(|code| codes.contains(&code))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_a_broker_says_of_itself_is_tried_elsewhere_and_what_it_says_of_the_message_is_not() {
        let refused = |code| {
            let (address, remark) = ("a:1".to_owned(), String::new());
            let error = ClientError::Refused { address, request: "SEND_MESSAGE_V2", code, remark };
            (may_retry(&error), is_about_broker(&error))
        };
        for code in [ResponseCode::SYSTEM_BUSY, ResponseCode::SERVICE_NOT_AVAILABLE, ResponseCode::GO_AWAY] {
            assert_eq!(refused(code), (true, true), "{code}");
        }
        for code in [ResponseCode::TOPIC_NOT_EXIST, ResponseCode::NO_PERMISSION] {
            assert_eq!(refused(code), (true, false), "{code}");
        }
        for code in [ResponseCode::MESSAGE_ILLEGAL, ResponseCode::INVALID_PARAMETER] {
            assert_eq!(refused(code), (false, false), "{code}");
        }
        let why = "no body".to_owned();
        assert!(!may_retry(&ClientError::IllegalMessage { topic: "t".to_owned(), why }));
        assert!(!may_retry(&ClientError::ShutDown { what: "client" }));
        let (address, request) = ("a:1".to_owned(), "SEND_MESSAGE_V2");
        assert!(may_retry(&ClientError::TimedOut { address, request, after: Duration::from_secs(3) }));
    }
}
