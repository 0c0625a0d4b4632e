//! The properties of a message that is sent, without those that must not be stored.
//!
//! Invariants:
//! - a message that has none of them is stored with its properties as they came, and nothing is copied.

use bytes::Bytes;
use troupemq_codec::message::properties::{
    DELAY, INNER_MULTI_QUEUE_OFFSET, POP_CK, TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS,
    TRANSIENT_PREFIX,
};
use troupemq_codec::message::{Properties, PropertiesView};

use crate::retry::next::NO_LEVEL_OF_SENT;
use crate::send::check::Marks;
use crate::send::light;

/// Properties that name a delivery time; a delay level wins over them.
const TIMES: [&str; 3] = [TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS];

/// The properties of a message without those that must not be stored; none if it has no such. A dead letter says
/// that it waits for nothing.
pub(super) fn cleaned(marks: &Marks<'_>, text: &[u8], is_dead: bool) -> Option<Properties> {
    let view = PropertiesView(text);
    let transient: Vec<&str> = match marks.has_transient {
        true => view.iter().map(|(name, _)| name).filter(|name| name.starts_with(TRANSIENT_PREFIX)).collect(),
        false => Vec::new(),
    };
    let dies = is_dead && marks.level != Some(NO_LEVEL_OF_SENT);
    if !marks.needs_cleaning() && transient.is_empty() && !light::is_numbered(marks.light, text) && !dies {
        return None;
    }
    let mut properties = Properties::parse(Bytes::copy_from_slice(text));
    let with_level: &[&str] = if marks.has_level() { &TIMES } else { &[] };
    let with_queues: &[&str] = if marks.light.is_some() { &[INNER_MULTI_QUEUE_OFFSET] } else { &[] };
    for name in [POP_CK].iter().chain(with_level).chain(with_queues).chain(&transient) {
        properties.remove(name);
    }
    if dies {
        properties.set(DELAY, NO_LEVEL_OF_SENT);
    }
    Some(properties)
}
