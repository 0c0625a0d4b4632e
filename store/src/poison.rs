//! The end of writing after a failure that must not be tried again.
//!
//! Invariants:
//! - the first cause stays, later ones are dropped;
//! - once set it is never cleared: the store has to be opened again, which recovers.

use std::sync::{Arc, OnceLock};

use crate::error::StoreError;

/// Shared by all writers of one store.
#[derive(Debug, Clone, Default)]
pub struct Poison {
    cause: Arc<OnceLock<Arc<str>>>,
}

impl Poison {
    /// Refuses if a write has failed for good.
    pub fn check(&self) -> Result<(), StoreError> {
        match self.cause.get() {
            None => Ok(()),
            Some(cause) => Err(StoreError::Poisoned { cause: Arc::clone(cause) }),
        }
    }

    /// The first failure, if there was one.
    pub fn cause(&self) -> Option<Arc<str>> {
        self.cause.get().map(Arc::clone)
    }

    /// Ends writing because of `error`, and hands it back.
    pub fn set(&self, error: StoreError) -> StoreError {
        if self.cause.set(error.to_string().into()).is_ok() {
            tracing::error!(%error, "the store takes no more writes");
        }
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cause_stays() {
        let poison = Poison::default();
        poison.check().unwrap();
        for op in ["flush", "write"] {
            poison.set(StoreError::io(op, "/x".as_ref())(std::io::Error::from_raw_os_error(5)));
        }
        let error = poison.check().unwrap_err();
        assert!(error.to_string().contains("cannot flush /x"), "{error}");
    }
}
