//! Sends: SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE, from the frame to the answer.
//! Java: `SendMessageProcessor`.
//!
//! Invariants:
//! - the sends of one read are encoded straight into one batch, appended by one message to `CommitLog` and
//!   answered by one write;
//! - nothing is allocated per message: frames are read where they lie, records are encoded where they leave;
//! - a send is answered once, in the order of the batch; a one-way send never.
//!
//! Contents: `asked` is a send as it came, `check` says what is allowed, `cleaned` leaves out what is not stored,
//! `place` finds topic and queue, `ids` makes unique ids, `bench` gathers a batch, `run` takes those of its messages
//! that have an id and nothing else, `inner_batch` makes one record of many messages, `count` counts them, `reply`
//! writes the answers, `noted` is what is known of those that wait, `slow` tells of those that took long; `own` is for
//! what the broker stores itself.

pub mod asked;
pub mod bench;
pub mod check;
mod cleaned;
mod count;
pub mod ids;
mod inner_batch;
mod light;
mod noted;
pub mod own;
pub mod place;
pub mod reply;
mod run;
pub mod slow;

use troupemq_codec::Request;
use troupemq_codec::request::{SendBatchMessage, SendMessage, SendMessageV2};

pub use asked::{AnswerTo, Asked};
pub use bench::{Bench, Benches, Left};
pub use own::{Own, OwnBatch, OwnRecord, StoredOwn, set_if_room, set_within, store};

/// Whether a request code is a send that the session serves itself.
pub fn is_send(code: i32) -> bool {
    matches!(code, SendMessage::CODE | SendMessageV2::CODE | SendBatchMessage::CODE)
}
