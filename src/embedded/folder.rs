//! A temporary folder that is removed when it is dropped.
//!
//! Invariants:
//! - two brokers never share one, also not those of two processes.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::BrokerError;

/// Names tried before it is given up; two brokers never choose the same one twice.
const TRIES: u32 = 16;

/// The folder.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Makes a folder that nobody else has.
    pub(super) fn make() -> Result<Folder, BrokerError> {
        let mut tries = 1..TRIES;
        loop {
            let name = format!("troupemq-{:016x}", RandomState::new().build_hasher().finish());
            let path = std::env::temp_dir().join(name);
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(Folder(path)),
                Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists && tries.next().is_some() => {}
                Err(cause) => return Err(BrokerError::Folder { path, cause: Arc::new(cause) }),
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "temporary folder not removed");
        }
    }
}
