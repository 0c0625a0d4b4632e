//! SEARCH_OFFSET_BY_TIMESTAMP (29): which offset of a queue belongs to a store time.
//!
//! Invariants:
//! - a queue that does not exist answers 0.

use crate::error::CodecError;
use crate::header::FieldText;
use crate::header::header;
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Queue and time.
    pub struct SearchOffsetByTimestampHeader {
        topic: Text = "topic",
        queue_id: i32 = "queueId",
        timestamp_ms: i64 = "timestamp",
        /// `Lower` if absent.
        boundary: Option<Boundary> = "boundaryType",
    }
}

header! {
    /// The offset.
    pub struct SearchOffsetByTimestampReplyHeader {
        queue_offset: i64 = "offset",
    }
}

/// SEARCH_OFFSET_BY_TIMESTAMP.
pub struct SearchOffsetByTimestamp;

impl Request for SearchOffsetByTimestamp {
    const CODE: i32 = 29;
    const NAME: &'static str = "SEARCH_OFFSET_BY_TIMESTAMP";
    const TO: Direction = Direction::ClientToBroker;
    type Header = SearchOffsetByTimestampHeader;
    type Reply = SearchOffsetByTimestampReplyHeader;
}

/// Which of several messages with the same store time is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Boundary {
    /// The first one.
    #[default]
    Lower,
    /// The last one.
    Upper,
}

impl FieldText for Boundary {
    fn from_text(value: &str, _: &'static str) -> Result<Option<Boundary>, CodecError> {
        let is_upper = value.eq_ignore_ascii_case("upper");
        Ok(Some(if is_upper { Boundary::Upper } else { Boundary::Lower }))
    }

    fn to_text(&self) -> Text {
        Text::from_static(match self {
            Boundary::Lower => "LOWER",
            Boundary::Upper => "UPPER",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::Fields;
    use crate::header::Header;

    #[test]
    fn anything_but_upper_is_the_lower_boundary() {
        for (value, boundary) in
            [("upper", Boundary::Upper), ("UPPER", Boundary::Upper), ("x", Boundary::Lower)]
        {
            let pairs = [("topic", "T"), ("queueId", "0"), ("timestamp", "1"), ("boundaryType", value)];
            let fields: Fields = pairs.into_iter().collect();
            assert_eq!(SearchOffsetByTimestampHeader::read(&fields).unwrap().boundary, Some(boundary));
        }
    }
}
