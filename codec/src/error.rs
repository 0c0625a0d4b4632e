//! What can be wrong with bytes that were received or read.
//!
//! Invariants:
//! - an error names what was being read, so that a log line alone tells the peer's mistake;
//! - no error holds more than a short piece of the offending input.

/// Why bytes could not be turned into a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The input ends before the thing that is read does.
    #[error("{what} needs {need} bytes, only {have} are there")]
    Short {
        /// What was being read.
        what: &'static str,
        /// Bytes it needs.
        need: usize,
        /// Bytes that are left.
        have: usize,
    },
    /// A length or a count is above its limit.
    #[error("{what} is {len} long, at most {max} is allowed")]
    TooLong {
        /// What was being read.
        what: &'static str,
        /// The length that was claimed.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// A value does not have the form it must have.
    #[error("{what} is invalid: {value}")]
    Invalid {
        /// What was being read.
        what: &'static str,
        /// The value, or the beginning of it.
        value: String,
    },
    /// A key that must be there is not.
    #[error("{key} is missing")]
    Missing {
        /// The key as it is written on the wire.
        key: &'static str,
    },
}

/// Most bytes of a bad value that an error repeats.
const SHOWN_MAX: usize = 64;

impl CodecError {
    /// An [`CodecError::Invalid`] that repeats the beginning of `value`.
    pub fn invalid(what: &'static str, value: impl AsRef<[u8]>) -> CodecError {
        let shown: Vec<u8> = value.as_ref().iter().take(SHOWN_MAX).copied().collect();
        CodecError::Invalid { what, value: String::from_utf8_lossy(&shown).into_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_repeats_only_the_beginning_of_a_bad_value() {
        let CodecError::Invalid { value, .. } = CodecError::invalid("topic", "x".repeat(5000)) else {
            panic!("not the variant for a bad value")
        };
        assert_eq!(value.len(), SHOWN_MAX);
    }
}
