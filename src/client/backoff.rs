//! How long an address that could not be reached is left alone.
//!
//! Invariants:
//! - the pause doubles with each failure, up to [`PAUSE_MAX`], and is short again after a success;
//! - it keeps why the last try failed, so that who comes meanwhile hears the cause.

use std::io;
use std::time::Duration;

use tokio::time::Instant;

use super::error::ClientError;

/// Pause after the first failure.
const PAUSE: Duration = Duration::from_millis(200);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Failures of an address since it was last reached.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    until: Instant,
    failures: u32,
    kind: io::ErrorKind,
    why: String,
}

impl Backoff {
    /// The address failed, once more after `before`.
    pub(crate) fn after(before: Option<&Backoff>, error: &ClientError, now: Instant) -> Backoff {
        let failures = before.map_or(0, |before| before.failures).saturating_add(1);
        let kind = match error {
            ClientError::Connect { cause, .. } => cause.kind(),
            _ => io::ErrorKind::ConnectionAborted,
        };
        let why = match error {
            ClientError::Connect { cause, .. } => cause.to_string(),
            ClientError::Tls { why, .. } => why.clone(),
            other => other.to_string(),
        };
        Backoff { until: now + pause(failures), failures, kind, why }
    }

    /// Why the address is not dialled now, if it is not.
    pub(crate) fn refuses(&self, now: Instant) -> Option<io::Error> {
        let left = self.until.saturating_duration_since(now);
        (!left.is_zero()).then(|| io::Error::new(self.kind, format!("{}; next try in {left:.1?}", self.why)))
    }
}

fn pause(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    PAUSE.saturating_mul(1 << doublings).min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_limit() {
        let ms = [1, 2, 3, 4, 5, 6, 7, u32::MAX].map(|failures| pause(failures).as_millis());
        assert_eq!(ms, [200, 400, 800, 1600, 3200, 5000, 5000, 5000]);
    }

    #[test]
    fn who_comes_during_a_pause_hears_why_and_how_long() {
        let now = Instant::now();
        let cause = io::Error::new(io::ErrorKind::ConnectionRefused, "refused by the test");
        let error = ClientError::Connect { address: "a:1".to_owned(), cause };
        let first = Backoff::after(None, &error, now);
        let second = Backoff::after(Some(&first), &error, now);
        assert!(first.refuses(now + Duration::from_millis(200)).is_none());
        let refusal = second.refuses(now + Duration::from_millis(200)).expect("the pause is 400 ms now");
        assert_eq!(refusal.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(refusal.to_string(), "refused by the test; next try in 200.0ms");
    }
}
