//! The fixed delay levels: level 1 is the first.
//!
//! Invariants:
//! - there is at least one level;
//! - a level above the last means the last.

use crate::error::StoreError;

/// Delays by level (RocketMQ: `messageDelayLevel`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelayLevels {
    delays_ms: Vec<i64>,
}

impl DelayLevels {
    /// Reads `1s 5s 10s 30s 1m …`: numbers with one of the units s, m, h, d.
    pub fn parse(text: &str) -> Result<DelayLevels, StoreError> {
        let delays_ms: Option<Vec<i64>> = text.split_whitespace().map(delay_ms).collect();
        match delays_ms {
            Some(delays_ms) if !delays_ms.is_empty() => Ok(DelayLevels { delays_ms }),
            _ => {
                let why = format!("\"{text}\" is no list of delays such as \"1s 5m 2h\"");
                Err(StoreError::Config { key: "messageDelayLevel", why })
            }
        }
    }

    /// Delay of a level in milliseconds; of no level, a second.
    pub fn delay_ms(&self, level: i32) -> i64 {
        let clamped = self.clamp(level);
        let index = usize::try_from(clamped).ok().and_then(|level| level.checked_sub(1));
        index.and_then(|index| self.delays_ms.get(index)).copied().unwrap_or(1000)
    }

    /// Delay of a level in milliseconds, if there is one of this number.
    pub fn of(&self, level: i32) -> Option<i64> {
        (1..=self.max()).contains(&level).then(|| self.delay_ms(level))
    }

    /// The level that is really used for a wanted one.
    pub fn clamp(&self, level: i32) -> i32 {
        level.min(self.max())
    }

    /// The last level.
    pub fn max(&self) -> i32 {
        i32::try_from(self.delays_ms.len()).unwrap_or(i32::MAX)
    }
}

fn delay_ms(word: &str) -> Option<i64> {
    let (number, unit) = word.split_at_checked(word.len().checked_sub(1)?)?;
    let unit_ms = match unit {
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.parse::<i64>().ok().filter(|number| *number >= 0)?.checked_mul(unit_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_above_the_last_means_the_last() {
        let levels = DelayLevels::parse("1s 5m 2h 1d").unwrap();
        let delays: Vec<i64> = (0..=5).map(|level| levels.delay_ms(level)).collect();
        assert_eq!(delays, [1000, 1000, 300_000, 7_200_000, 86_400_000, 86_400_000]);
        assert_eq!((levels.max(), levels.clamp(9)), (4, 4));
        assert_eq!([0, 1, 4, 5].map(|level| levels.of(level)), [None, Some(1000), Some(86_400_000), None]);
    }

    #[test]
    fn what_is_no_delay_is_refused() {
        for text in ["", "1", "s", "1x", "5 s", "-1s", "1é"] {
            assert!(DelayLevels::parse(text).is_err(), "{text}");
        }
    }
}
