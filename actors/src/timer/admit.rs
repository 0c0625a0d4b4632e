//! Whether a message waits for a time of its own, and in which slot. Java: `HookUtils.transformTimerMessage`.
//!
//! Invariants:
//! - a time that has come already is no reason to wait; one too far ahead is refused with the limit;
//! - a slot begins before the time it is for, so that a message of the slot is never due before its time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::ArcSwap;
use troupemq_codec::ResponseCode;
use troupemq_codec::message::properties::{TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS};
use troupemq_store::timer::TimerView;

use crate::config::BrokerConfig;
use crate::net::Refusal;
use crate::timer::enqueue::Marker;
use crate::timer::name_hash::NameHashes;

/// The time at which a message is to be delivered, as it stands in its properties.
#[derive(Debug, Clone, Copy, Default)]
pub struct TimeWish<'a> {
    /// So many seconds from now; counts before the others.
    pub seconds: Option<&'a str>,
    /// So many milliseconds from now; counts before `deliver`.
    pub ms: Option<&'a str>,
    /// At this time, epoch ms.
    pub deliver: Option<&'a str>,
    /// Whether it has waited already.
    pub was_timed: bool,
    /// Whether it cancels another timer.
    pub cancels: bool,
}

/// Decides about timers.
#[derive(Debug)]
pub struct TimerGate {
    config: Arc<ArcSwap<BrokerConfig>>,
    /// What waits already; none before there is a wheel.
    view: Option<TimerView>,
    marker: Marker,
    dice: AtomicU32,
}

impl TimeWish<'_> {
    /// Whether a time is wished for.
    pub fn is_any(&self) -> bool {
        self.seconds.or(self.ms).or(self.deliver).is_some()
    }

    /// Its time in epoch ms when it is asked at `now_ms`; none if it names none.
    fn due_ms(&self, now_ms: i64) -> Result<Option<i64>, String> {
        let number = |name: &str, text: &str| {
            text.parse::<i64>().map_err(|_| format!("{name} \"{text}\" is no number"))
        };
        let ahead = |number: i64, factor: i64| now_ms.saturating_add(number.saturating_mul(factor));
        Ok(match (self.seconds, self.ms, self.deliver) {
            (Some(text), _, _) => Some(ahead(number(TIMER_DELAY_SEC, text)?, 1000)),
            (None, Some(text), _) => Some(ahead(number(TIMER_DELAY_MS, text)?, 1)),
            (None, None, Some(text)) => Some(number(TIMER_DELIVER_MS, text)?),
            (None, None, None) => None,
        })
    }
}

impl TimerGate {
    /// A gate by the settings of `config` to the timers that `view` shows.
    pub fn new(config: Arc<ArcSwap<BrokerConfig>>, view: TimerView) -> TimerGate {
        let marker = Marker { precision_ms: view.precision_ms(), hashes: NameHashes::random() };
        TimerGate { config, view: Some(view), marker, dice: AtomicU32::new(1) }
    }

    /// Reads what timers say.
    pub fn marker(&self) -> &Marker {
        &self.marker
    }

    /// A gate with all defaults to a wheel in which nothing waits.
    #[cfg(test)]
    pub fn open_to_all() -> TimerGate {
        TimerGate::with(BrokerConfig::default())
    }

    #[cfg(test)]
    fn with(config: BrokerConfig) -> TimerGate {
        let config = Arc::new(ArcSwap::from_pointee(config));
        let marker = Marker { precision_ms: 1000, hashes: NameHashes::random() };
        TimerGate { config, view: None, marker, dice: AtomicU32::new(1) }
    }

    /// The time of the slot (epoch ms) in which a message has to wait; none if it need not.
    pub fn slot(&self, wish: &TimeWish<'_>, now_ms: i64) -> Result<Option<i64>, Refusal> {
        if wish.was_timed || !wish.is_any() {
            return Ok(None);
        }
        let config = self.config.load();
        if !config.timer_wheel_enable {
            let remark = "accurate timer message is not enabled, timerWheelEnable is false";
            return Err(Refusal::new(ResponseCode::SYSTEM_ERROR, remark));
        }
        let max_ms = config.timer_max_delay_sec * 1000;
        let due_ms = wish.due_ms(now_ms).map_err(|why| illegal(max_ms, &why))?;
        let Some(due_ms) = due_ms.filter(|due_ms| *due_ms > now_ms) else {
            let why =
                || illegal(max_ms, &format!("the time is {}ms past", now_ms - due_ms.unwrap_or(now_ms)));
            return if wish.cancels { Err(why()) } else { Ok(None) };
        };
        if due_ms.saturating_sub(now_ms) > max_ms {
            return Err(illegal(max_ms, &format!("the delay is {}ms", due_ms.saturating_sub(now_ms))));
        }
        let precision_ms = self.marker.precision_ms;
        // The last moment of a slot belongs to it: it is over when the slot is.
        let slot_ms = (due_ms - 1) - (due_ms - 1).rem_euclid(precision_ms);
        let limit = config.timer_congest_num_each_slot;
        // A slot counts no further than that: it need not be read.
        if limit < i64::from(i32::MAX) {
            let waiting = self.view.as_ref().map_or(0, |view| i64::from(view.count_at(slot_ms)));
            if self.refuses(waiting, limit) {
                return Err(congested(waiting, limit));
            }
        }
        Ok(Some(slot_ms))
    }

    /// Whether one more is too much for a slot: the more likely the more wait beyond `limit`.
    fn refuses(&self, waiting: i64, limit: i64) -> bool {
        if waiting <= limit || waiting >= limit * 2 {
            return waiting > limit;
        }
        let seed = self.dice.fetch_add(0x9E37_79B9, Ordering::Relaxed);
        let thrown = i64::from(seed.wrapping_mul(747_796_405) >> 16);
        thrown * limit < (waiting - limit) << 16
    }
}

fn illegal(max_ms: i64, why: &str) -> Refusal {
    let remark = format!(
        "timer message illegal, the delay time should not be bigger than the max delay {max_ms}ms; or if set del msg, \
         the delay time should be bigger than the current time: {why}"
    );
    Refusal::new(ResponseCode::MESSAGE_ILLEGAL, remark)
}

fn congested(waiting: i64, limit: i64) -> Refusal {
    let remark = format!(
        "timer message is under flow control, max num limit is {} or the current value is greater than {limit} and \
         less than {}, trigger random flow control: {waiting} wait in the slot",
        limit * 2,
        limit * 2
    );
    Refusal::new(ResponseCode::SYSTEM_ERROR, remark)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: i64 = 1_795_000_000_400;

    fn deliver(text: &str) -> TimeWish<'_> {
        TimeWish { deliver: Some(text), ..TimeWish::default() }
    }

    fn slot(wish: TimeWish<'_>) -> Result<Option<i64>, Refusal> {
        TimerGate::open_to_all().slot(&wish, NOW_MS)
    }

    /// 3.3 #25, #26.
    #[test]
    fn a_slot_begins_before_the_time_and_holds_its_last_moment() {
        assert_eq!(slot(deliver("1795000001000")), Ok(Some(1_795_000_000_000)));
        assert_eq!(slot(deliver("1795000001001")), Ok(Some(1_795_000_001_000)));
        assert_eq!(slot(deliver("1795000001999")), Ok(Some(1_795_000_001_000)));
        assert_eq!(slot(deliver("1795000002000")), Ok(Some(1_795_000_001_000)));
        let seconds = TimeWish { seconds: Some("2"), ms: Some("9000"), ..deliver("5") };
        assert_eq!(slot(seconds), Ok(Some(1_795_000_002_000)));
        let ms = TimeWish { ms: Some("600"), ..deliver("5") };
        assert_eq!(slot(ms), Ok(Some(1_795_000_000_000)));
        assert_eq!(slot(deliver("1795000000400")), Ok(None), "it is due");
        assert_eq!(slot(deliver("-1")), Ok(None));
        assert_eq!(slot(TimeWish { seconds: Some("-20"), ..TimeWish::default() }), Ok(None));
        assert_eq!(slot(TimeWish { was_timed: true, ..deliver("1795000001000") }), Ok(None));
        assert_eq!(slot(TimeWish::default()), Ok(None));
    }

    /// 3.3 #27.
    #[test]
    fn what_is_no_time_too_far_or_past_is_refused_with_value_and_limit() {
        let max = "max delay 259200000ms";
        assert_eq!(slot(TimeWish { seconds: Some("259200"), ..deliver("") }), Ok(Some(1_795_259_200_000)));
        let cases = [
            (TimeWish { seconds: Some("259201"), ..deliver("") }, "the delay is 259201000ms"),
            (TimeWish { seconds: Some("9223372036854775807"), ..deliver("") }, "the delay is 92233"),
            (deliver("9223372036854775807"), "the delay is 92233"),
            (deliver("soon"), "TIMER_DELIVER_MS \"soon\" is no number"),
            (TimeWish { ms: Some("1.5"), ..deliver("") }, "TIMER_DELAY_MS \"1.5\" is no number"),
            (TimeWish { seconds: Some(""), ..deliver("") }, "TIMER_DELAY_SEC \"\" is no number"),
            (TimeWish { cancels: true, ..deliver("1794999999400") }, "the time is 1000ms past"),
        ];
        for (wish, why) in cases {
            let refusal = slot(wish).expect_err(why);
            assert_eq!(refusal.code, ResponseCode::MESSAGE_ILLEGAL);
            assert!(refusal.remark.contains(max) && refusal.remark.contains(why), "{}", refusal.remark);
        }
        let gate = TimerGate::with(BrokerConfig { timer_wheel_enable: false, ..BrokerConfig::default() });
        let refusal = gate.slot(&deliver("1795000001000"), NOW_MS).expect_err("switched off");
        assert_eq!(refusal.code, ResponseCode::SYSTEM_ERROR);
        assert!(refusal.remark.contains("timerWheelEnable is false"));
    }

    #[test]
    fn the_fuller_a_slot_the_more_is_refused() {
        let gate = TimerGate::open_to_all();
        let refused = |waiting| (0..1000).filter(|_| gate.refuses(waiting, 100)).count();
        assert_eq!((refused(100), refused(200), refused(5000)), (0, 1000, 1000));
        assert!((50..350).contains(&refused(120)) && (650..950).contains(&refused(180)));
    }
}
