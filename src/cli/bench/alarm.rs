//! Waking at a time to the microsecond: the timers of the runtime count whole milliseconds.
//!
//! Invariants:
//! - nobody is woken before the time;
//! - who stops waiting half way loses nothing, and finds the timer set if it waits for the same time again.

use std::io;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::time::{Instant, sleep_until};

/// Waits until `when`, to the millisecond if there is no alarm.
pub(super) async fn wait(alarm: Option<&mut Alarm>, when: Instant) -> io::Result<()> {
    match alarm {
        Some(alarm) => alarm.at(when).await,
        None => {
            sleep_until(when).await;
            Ok(())
        }
    }
}

/// A timer of the system for one who waits.
#[derive(Debug)]
pub(super) struct Alarm {
    timer: Receiver,
    set_to: Option<Instant>,
}

impl Alarm {
    pub(super) fn new() -> io::Result<Alarm> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // What rings is read as from a pipe: the runtime has no type of its own for it.
        Ok(Alarm { timer: Receiver::from_owned_fd_unchecked(timer)?, set_to: None })
    }

    /// Waits until `when`.
    pub(super) async fn at(&mut self, when: Instant) -> io::Result<()> {
        if self.set_to != Some(when) {
            // A timer that is set to nothing never rings.
            let left = when.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
            let long = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
            let it_value = Timespec { tv_sec: long(left.as_secs()), tv_nsec: left.subsec_nanos().into() };
            let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
            let once = Itimerspec { it_interval, it_value };
            timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
            self.set_to = Some(when);
        }
        // It gives how many times it has rung, all at once.
        self.timer.read_exact(&mut [0; 8]).await?;
        self.set_to = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn an_alarm_rings_at_its_time_and_again_when_it_is_set_again() {
        let mut alarm = Alarm::new().unwrap();
        let late = Instant::now() + Duration::from_secs(3600);
        assert!(timeout(Duration::from_millis(1), alarm.at(late)).await.is_err());
        for micros in [300, 0, 900] {
            let when = Instant::now() + Duration::from_micros(micros);
            alarm.at(when).await.unwrap();
            assert!(Instant::now() >= when);
        }
        assert!(timeout(Duration::from_millis(1), alarm.at(late)).await.is_err(), "it rang once");
    }
}
