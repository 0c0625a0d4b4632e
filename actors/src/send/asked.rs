//! A send as it was asked for, and who is answered.
//!
//! Invariants:
//! - a send reads alike whether it came as a frame or from this process, without one;
//! - who waits in this process is answered once, or learns that nobody will: its waiting ends.

use troupemq_codec::request::{SendBatchMessage, SendMessageV2Header, SendView};
use troupemq_codec::version::OUR_VERSION;
use troupemq_codec::{CommandView, HeaderForm, Request};

use crate::net::Refusal;
use crate::net::pipe::Waiter;

/// A send.
#[derive(Debug, Clone, Copy)]
pub enum Asked<'a> {
    /// It came as a frame; its body.
    Frame(&'a CommandView<'a>, &'a [u8]),
    /// It came from this process; its body.
    Here(&'a SendMessageV2Header, &'a [u8]),
}

/// Who is answered, and how.
#[derive(Debug)]
pub enum AnswerTo {
    /// Who sent this frame, by another.
    Frame {
        /// The frame's number.
        opaque: i32,
        /// The form of its header.
        form: HeaderForm,
        /// Whether no answer is wanted.
        is_oneway: bool,
    },
    /// Who waits in this process.
    Here(Waiter),
}

impl<'a> Asked<'a> {
    /// What it says.
    pub(super) fn send(self) -> Result<SendView<'a>, Refusal> {
        match self {
            Asked::Frame(view, _) => {
                let mut send = SendView::read(view)?;
                send.is_batch |= view.code == SendBatchMessage::CODE;
                Ok(send)
            }
            Asked::Here(header, _) => Ok(SendView::of(header)),
        }
    }

    /// The body.
    pub(super) fn body(self) -> &'a [u8] {
        match self {
            Asked::Frame(_, body) | Asked::Here(_, body) => body,
        }
    }

    /// The version of the client.
    pub(super) fn version(self) -> i32 {
        match self {
            Asked::Frame(view, _) => view.version,
            Asked::Here(..) => OUR_VERSION,
        }
    }
}

impl AnswerTo {
    /// Who sent a frame.
    pub fn of(view: &CommandView<'_>) -> AnswerTo {
        AnswerTo::Frame { opaque: view.opaque, form: view.form, is_oneway: view.is_oneway() }
    }
}
