//! CONSUMER_SEND_MSG_BACK.
//!
//! Invariants:
//! - who asks is answered, also where the mailbox is full or its owner gone.

use actix::prelude::SendError;
use troupemq_codec::request::{ConsumerSendMsgBack, ConsumerSendMsgBackHeader};
use troupemq_codec::{Command, Request, ResponseCode};

use super::{SendBack, too_many};
use crate::cast::BrokerCast;
use crate::held::hold;
use crate::net::{Answer, Call, Refusal};

/// Answers CONSUMER_SEND_MSG_BACK.
pub async fn send_back(cast: &BrokerCast, call: &Call) -> Answer {
    debug_assert_eq!(call.command.code, ConsumerSendMsgBack::CODE);
    let header: ConsumerSendMsgBackHeader = call.command.header()?;
    let (reply, waiting) = hold();
    cast.retry.try_send(SendBack { header, version: call.command.version, reply }).map_err(
        |undelivered| match undelivered {
            SendError::Full(_) => too_many(),
            SendError::Closed(_) => Refusal::gone("Retry"),
        },
    )?;
    waiting.await.map_err(|_lost| Refusal::gone("Retry"))??;
    Ok(Command::response(ResponseCode::SUCCESS))
}
