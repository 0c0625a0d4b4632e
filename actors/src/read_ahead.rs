//! Records of the log for actors that deliver them: read where waiting is allowed.
//!
//! Invariants:
//! - a page that is not in memory is first touched on a thread that may wait, never on an arbiter;
//! - nothing is copied.

use bytes::Bytes;
use troupemq_store::Unit;

use crate::cast::BrokerCast;

/// Bytes of a page.
const PAGE_BYTES: usize = 4096;

/// The records of some units, in their order.
#[derive(Debug)]
pub struct Records(Vec<Option<Bytes>>);

impl Records {
    /// Reads the records of `units`. What is no longer kept is none.
    pub async fn read(cast: &BrokerCast, units: impl IntoIterator<Item = Unit>) -> Records {
        let mut records = Vec::new();
        let mut cold = Vec::new();
        for unit in units {
            let len = usize::try_from(unit.size).unwrap_or(0);
            let bytes = if unit.is_hole() { None } else { cast.log.slice(unit.log_offset, len) };
            if let Some(bytes) = bytes.as_ref().filter(|_| !cast.log.is_resident(unit.log_offset, len)) {
                cold.push(bytes.clone());
            }
            records.push(bytes);
        }
        if !cold.is_empty() {
            // A thread that cannot be had costs time, nothing else: the pages are read where they are used.
            let _ = actix_rt::task::spawn_blocking(move || touch(&cold)).await;
        }
        Records(records)
    }

    /// The records.
    pub fn iter(&self) -> impl Iterator<Item = Option<&[u8]>> {
        self.0.iter().map(|record| record.as_deref())
    }
}

fn touch(cold: &[Bytes]) {
    let sum =
        cold.iter().flat_map(|bytes| bytes.iter().step_by(PAGE_BYTES)).fold(0_u8, |sum, byte| sum ^ byte);
    std::hint::black_box(sum);
}
