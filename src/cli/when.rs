//! Times on the command line and in tables.
//!
//! Invariants:
//! - a time is given as epoch ms, as `now`, or as a span back from now (`90s`, `15m`, `2h`, `3d`);
//! - a time is shown in UTC to the millisecond, so that two lines compare wherever they were printed.

use std::str::FromStr;

use troupemq_store::{Clock, SystemClock};

/// A moment: epoch ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment(pub(super) i64);

const DAY_MS: i64 = 86_400_000;

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Moment, String> {
        if text == "now" {
            return Ok(Moment(now_ms()));
        }
        if let Ok(epoch_ms) = text.parse() {
            return Ok(Moment(epoch_ms));
        }
        let unit_ms = match text.chars().last() {
            Some('s') => 1_000,
            Some('m') => 60_000,
            Some('h') => 3_600_000,
            Some('d') => DAY_MS,
            _ => 0,
        };
        let number = text.get(..text.len().saturating_sub(1)).and_then(|number| number.parse::<i64>().ok());
        match number.filter(|_| unit_ms > 0).and_then(|number| number.checked_mul(unit_ms)) {
            Some(span_ms) => Ok(Moment(now_ms().saturating_sub(span_ms))),
            None => Err(format!("{text:?} is no time: epoch ms, now, or a span such as 90s, 15m, 2h, 3d")),
        }
    }
}

/// The machine's time: epoch ms.
pub(super) fn now_ms() -> i64 {
    SystemClock::new().now_ms()
}

/// `2026-11-29 20:19:50.123`, or `-` for no time.
pub(super) fn shown(epoch_ms: i64) -> String {
    if epoch_ms <= 0 {
        return "-".to_owned();
    }
    let (days, ms) = (epoch_ms.div_euclid(DAY_MS), epoch_ms.rem_euclid(DAY_MS));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{:03}", ms % 1_000)
}

/// Year, month and day of a number of days since 1970-01-01, in the Gregorian calendar.
fn date(days: i64) -> (i64, i64, i64) {
    // Counted from 0000-03-01, so that the leap day is the last of its year; 146 097 days are 400 years.
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_utc() {
        assert_eq!(shown(0), "-");
        assert_eq!(shown(1), "1970-01-01 00:00:00.001");
        assert_eq!(shown(951_782_400_000), "2000-02-29 00:00:00.000");
        assert_eq!(shown(1_795_983_590_123), "2026-11-29 20:19:50.123");
    }

    #[test]
    fn spans_count_back_from_now() {
        let Moment(hour_ago) = "1h".parse().expect("a span");
        assert!((now_ms() - hour_ago - 3_600_000).abs() < 60_000);
        assert_eq!("123".parse(), Ok(Moment(123)));
        for text in ["", "h", "1y", "x1h", "99999999999999d"] {
            assert!(text.parse::<Moment>().is_err(), "{text}");
        }
    }
}
