//! A histogram of latencies: exact below 64 ns, within 1.6 % above.
//!
//! Invariants:
//! - recording takes no memory and no time that depends on what was recorded before.

use std::time::Duration;

/// Steps within a power of two.
const STEPS: u64 = 64;
/// Bits of a step.
const STEP_BITS: u32 = 6;
/// Enough for 2^44 ns, which is almost five hours; what is longer counts as that.
const BUCKETS: usize = 64 * 40;

/// How often each latency occurred.
#[derive(Debug, Clone)]
pub(super) struct Latencies {
    buckets: Box<[u64; BUCKETS]>,
    count: u64,
    max: Duration,
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies { buckets: Box::new([0; BUCKETS]), count: 0, max: Duration::ZERO }
    }
}

impl Latencies {
    pub(super) fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(nanos)] += 1;
        self.count += 1;
        self.max = self.max.max(latency);
    }

    pub(super) fn add(&mut self, other: &Latencies) {
        self.buckets.iter_mut().zip(other.buckets.iter()).for_each(|(own, more)| *own += more);
        self.count += other.count;
        self.max = self.max.max(other.max);
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn max(&self) -> Duration {
        self.max
    }

    /// The latency that `per_mille` of all did not exceed.
    pub(super) fn at(&self, per_mille: u64) -> Duration {
        let wanted = (self.count * per_mille).div_ceil(1000);
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return Duration::from_nanos(highest(index)).min(self.max);
            }
        }
        self.max
    }
}

fn bucket(nanos: u64) -> usize {
    let index = if nanos < STEPS {
        nanos
    } else {
        let shift = nanos.ilog2() - STEP_BITS;
        // The top bit of the shifted value is always set: the next power of two begins where this one ends.
        u64::from(shift) * STEPS + (nanos >> shift)
    };
    usize::try_from(index).map_or(BUCKETS - 1, |index| index.min(BUCKETS - 1))
}

/// The largest value of a bucket.
fn highest(index: usize) -> u64 {
    let index = u64::try_from(index).expect("a bucket's number is small");
    if index < 2 * STEPS {
        return index;
    }
    let shift = index / STEPS - 1;
    let value = index % STEPS + STEPS;
    ((value + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_falls_into_a_bucket_that_is_at_most_one_sixty_fourth_wide() {
        for nanos in (0..5000).chain([1 << 20, (1 << 30) + 12_345, 1 << 40]) {
            let high = highest(bucket(nanos));
            assert!(high >= nanos && high - nanos <= nanos / 64 + 1, "{nanos} → {high}");
        }
    }

    #[test]
    fn percentiles_are_those_of_the_recorded_values() {
        let mut latencies = Latencies::default();
        (1..=1000).for_each(|micros| latencies.record(Duration::from_micros(micros)));
        let near = |found: Duration, micros: u64| {
            let wanted = Duration::from_micros(micros);
            found >= wanted && found < wanted + wanted / 50
        };
        assert!(near(latencies.at(500), 500), "{:?}", latencies.at(500));
        assert!(near(latencies.at(990), 990), "{:?}", latencies.at(990));
        assert_eq!(latencies.max(), Duration::from_millis(1));
    }

    #[test]
    fn nothing_recorded_is_zero() {
        assert_eq!(Latencies::default().at(999), Duration::ZERO);
    }
}
