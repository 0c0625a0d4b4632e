//! Positions of pieces of text in a header.
//!
//! Invariants:
//! - a position is below 2^24, the longest header a frame can hold, so the top bit is free;
//! - the first fields of a header cost no allocation, however the header is made.

use std::ops::Range;

/// Fields that fit before memory is asked for; Java's longest header with a signature has fewer.
const INLINE_FIELDS: usize = 24;

/// Set in `end` if the text has JSON escapes.
const ESCAPED: u32 = 1 << 31;

/// From where to where a piece of text goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// Text that stands for itself.
    pub(crate) fn new(start: usize, end: usize) -> Span {
        Span { start: small(start), end: small(end) }
    }

    /// Text with JSON escapes in it.
    pub(crate) fn with_escapes(start: usize, end: usize) -> Span {
        Span { start: small(start), end: small(end) | ESCAPED }
    }

    /// Whether there are JSON escapes in it.
    pub(crate) fn has_escapes(self) -> bool {
        self.end & ESCAPED != 0
    }

    /// The positions.
    pub(crate) fn range(self) -> Range<usize> {
        self.start as usize..(self.end & !ESCAPED) as usize
    }
}

fn small(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX) & !ESCAPED
}

/// Key and value of one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FieldSpan {
    pub(crate) key: Span,
    pub(crate) value: Span,
}

/// All fields of a header in their order.
#[derive(Debug, Default)]
pub(crate) struct FieldSpans {
    inline: [FieldSpan; INLINE_FIELDS],
    len: usize,
    more: Vec<FieldSpan>,
}

impl FieldSpans {
    /// Adds a field at the end.
    pub(crate) fn push(&mut self, field: FieldSpan) {
        match self.inline.get_mut(self.len) {
            Some(slot) => {
                *slot = field;
                self.len = self.len.saturating_add(1);
            }
            None => self.more.push(field),
        }
    }

    /// All fields; from the back too.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &FieldSpan> + Clone {
        self.inline.get(..self.len).unwrap_or_default().iter().chain(&self.more)
    }

    /// Number of fields.
    pub(crate) fn len(&self) -> usize {
        self.len.saturating_add(self.more.len())
    }
}

impl Clone for FieldSpans {
    fn clone(&self) -> FieldSpans {
        let mut clone = FieldSpans::default();
        clone.clone_from(self);
        clone
    }

    /// Copies what is there, and none of the room that is left.
    fn clone_from(&mut self, other: &FieldSpans) {
        let fields = other.inline.get(..other.len).unwrap_or_default();
        self.inline.get_mut(..fields.len()).unwrap_or_default().copy_from_slice(fields);
        self.len = fields.len();
        self.more.clone_from(&other.more);
    }
}

impl PartialEq for FieldSpans {
    fn eq(&self, other: &FieldSpans) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for FieldSpans {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_beyond_the_inline_room_keep_their_order() {
        let mut spans = FieldSpans::default();
        for at in 0..60 {
            spans.push(FieldSpan { key: Span::new(at, at), value: Span::with_escapes(at, 70) });
        }
        assert_eq!(spans.len(), 60);
        assert!(spans.iter().map(|field| field.key.range().start).eq(0..60));
        let mut other = FieldSpans::default();
        for fewer in [&spans, &FieldSpans::default()] {
            other.clone_from(fewer);
            assert_eq!((&other, other.len()), (fewer, fewer.len()));
            assert_eq!(fewer.clone(), *fewer);
        }
        assert!(spans.iter().all(|field| field.value.has_escapes() && field.value.range().end == 70));
    }
}
