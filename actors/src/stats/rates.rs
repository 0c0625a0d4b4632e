//! `Sampler`: readings of the counters, second by second, and what they say about the last seconds and the day.
//! Java: `StoreStatsService`, `BrokerStats`.
//!
//! Invariants:
//! - a rate over a span is what happened in that span, divided by its length; before the start nothing happened;
//! - sums of the minute, the hour and the day are taken as those of topics are, from a sample every 10 s;
//! - the counts of a day begin at midnight (UTC).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Handler, Message, MessageResult};
use troupemq_codec::request::BrokerStats;

use super::{Reading, Stats};
use crate::commit_log::MAILBOX;
use crate::config::NodeClock;
use crate::topic::counters::Pair;
use crate::topic::statistics::{Item, Of};

/// Seconds over which rates are told, the longest last.
pub const SPANS_S: [usize; 3] = [10, 60, 600];
/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

// ---- messages

/// What the counters say. Sent by GET_BROKER_RUNTIME_INFO.
#[derive(Debug, Message)]
#[rtype(result = "Rates")]
pub struct TellRates;

/// Sums of the whole broker; `None` if nothing of the kind ever came. Sent by VIEW_BROKER_STATS_DATA.
#[derive(Debug, Message)]
#[rtype(result = "Option<BrokerStats>")]
pub struct TellSums(pub Sums);

/// Which sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sums {
    /// Messages stored: BROKER_PUT_NUMS.
    Puts,
    /// The same without topics of the system's own: BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC.
    UsersPuts,
    /// Messages handed out: BROKER_GET_NUMS.
    Gets,
    /// The same without topics of the system's own: BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC.
    UsersGets,
    /// Connections that came: CHANNEL_ACTIVITY, CONNECT.
    Connects,
    /// Connections that ended: CLOSE.
    Closes,
    /// Those of them that were silent too long: IDLE.
    IdleEnds,
    /// Those of them that failed: EXCEPTION.
    FailedEnds,
    /// Milliseconds that heart-beats of consumer groups took: CONSUMER_REGISTER_TIME.
    ConsumerBeats,
    /// The same of producer groups: PRODUCER_REGISTER_TIME.
    ProducerBeats,
}

/// How many there are.
const SUMS: usize = Sums::ProducerBeats as usize + 1;

/// What the counters say.
#[derive(Debug, Clone, Default)]
pub struct Rates {
    /// When the broker started, epoch ms.
    pub started_ms: i64,
    /// The counters now.
    pub now: Reading,
    /// The counters before each of `SPANS_S`.
    pub before: [Reading; SPANS_S.len()],
    /// The counters when this day began.
    pub this_morning: Reading,
    /// The counters when the day before began.
    pub yesterday_morning: Reading,
}

// ---- actor

/// Owner of the readings of one broker.
#[derive(Debug)]
pub struct Sampler {
    stats: Arc<Stats>,
    clock: NodeClock,
    history: History,
    sums: BrokerSums,
}

impl Sampler {
    /// A sampler that has taken no reading yet.
    pub fn new(stats: Arc<Stats>, clock: NodeClock) -> Sampler {
        let history = History::begun(clock.0.now_ms());
        Sampler { stats, clock, history, sums: BrokerSums::default() }
    }

    fn round(&mut self) {
        let now_ms = self.clock.0.now_ms();
        let reading = self.stats.read();
        self.history.take(reading, now_ms);
        self.sums.take(&reading, now_ms);
    }
}

impl Actor for Sampler {
    type Context = Context<Sampler>;

    fn started(&mut self, context: &mut Self::Context) {
        context.set_mailbox_capacity(MAILBOX);
        self.round();
        context.run_interval(Duration::from_secs(1), |sampler, _| sampler.round());
    }
}

impl Handler<TellRates> for Sampler {
    type Result = MessageResult<TellRates>;

    fn handle(&mut self, _: TellRates, _: &mut Self::Context) -> Self::Result {
        MessageResult(self.history.rates(self.stats.read()))
    }
}

impl Handler<TellSums> for Sampler {
    type Result = MessageResult<TellSums>;

    fn handle(&mut self, TellSums(which): TellSums, _: &mut Self::Context) -> Self::Result {
        MessageResult(self.sums.of(which, &self.stats.read()))
    }
}

// ---- state

/// Readings of a second from one sample to the next.
const SAMPLE_EVERY: u64 = 10;

/// Samples of what the whole broker stored and handed out.
#[derive(Debug, Default)]
struct BrokerSums {
    items: [Item; SUMS],
    readings: u64,
}

impl BrokerSums {
    fn take(&mut self, reading: &Reading, now_ms: i64) {
        if self.readings.is_multiple_of(SAMPLE_EVERY) {
            for (item, pair) in self.items.iter_mut().zip(pairs(reading)) {
                item.sample(pair, now_ms, self.readings / SAMPLE_EVERY);
            }
        }
        self.readings += 1;
    }

    /// As in Java, messages are always there to be asked about, and what comes in calls once it has come.
    fn of(&self, which: Sums, reading: &Reading) -> Option<BrokerStats> {
        let is_of_messages = matches!(which, Sums::Puts | Sums::UsersPuts | Sums::Gets | Sums::UsersGets);
        let has_come = is_of_messages || pairs(reading)[which as usize].calls > 0;
        has_come.then(|| self.items[which as usize].stats(Of::Messages))
    }
}

/// What is sampled, in the order of `Sums`. As in Java, nobody counts the calls of all messages.
fn pairs(reading: &Reading) -> [Pair; SUMS] {
    let Reading { puts, system_puts, gets, system_gets, connects, closes, .. } = *reading;
    let Reading { idle_ends, failed_ends, consumer_beats, producer_beats, .. } = *reading;
    let pair = |messages, calls| Pair { messages, calls, ..Pair::default() };
    let took = |(groups, ms)| pair(ms, groups);
    [
        pair(puts, 0),
        pair(puts - system_puts, 0),
        pair(gets, 0),
        pair(gets - system_gets, 0),
        pair(connects, connects),
        pair(closes, closes),
        pair(idle_ends, idle_ends),
        pair(failed_ends, failed_ends),
        took(consumer_beats),
        took(producer_beats),
    ]
}

#[derive(Debug)]
struct History {
    started_ms: i64,
    seconds: VecDeque<Reading>,
    day: i64,
    this_morning: Reading,
    yesterday_morning: Reading,
}

impl History {
    fn begun(now_ms: i64) -> History {
        History {
            started_ms: now_ms,
            seconds: VecDeque::new(),
            day: now_ms.div_euclid(DAY_MS),
            this_morning: Reading::default(),
            yesterday_morning: Reading::default(),
        }
    }

    fn take(&mut self, reading: Reading, now_ms: i64) {
        self.seconds.push_back(reading);
        if self.seconds.len() > SPANS_S[SPANS_S.len() - 1] {
            self.seconds.pop_front();
        }
        let day = now_ms.div_euclid(DAY_MS);
        if day > self.day {
            self.day = day;
            self.yesterday_morning = std::mem::replace(&mut self.this_morning, reading);
        }
    }

    fn rates(&self, now: Reading) -> Rates {
        let before = SPANS_S.map(|span| {
            let at = self.seconds.len().checked_sub(span);
            at.and_then(|at| self.seconds.get(at)).copied().unwrap_or_default()
        });
        Rates {
            started_ms: self.started_ms,
            now,
            before,
            this_morning: self.this_morning,
            yesterday_morning: self.yesterday_morning,
        }
    }
}

impl Rates {
    /// A counter's rate per second over each of `SPANS_S`, in Java's form: three numbers, a blank between.
    #[expect(clippy::cast_precision_loss, reason = "rates are told with few digits")]
    pub fn of(&self, counter: impl Fn(&Reading) -> u64) -> String {
        let now = counter(&self.now);
        let rates = self.before.iter().zip(SPANS_S).map(|(before, span)| {
            let rate = now.saturating_sub(counter(before)) as f64 / span as f64;
            format!("{rate:?}")
        });
        rates.collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(puts: u64) -> Reading {
        Reading { puts, ..Reading::default() }
    }

    #[test]
    fn rates_are_told_over_three_spans() {
        let mut history = History::begun(0);
        for second in 0..100 {
            history.take(reading(100 * second), 1000 * i64::try_from(second).unwrap());
        }
        let rates = history.rates(reading(100 * 100));
        assert_eq!(rates.of(|reading| reading.puts), "100.0 100.0 16.666666666666668");
    }

    #[test]
    fn sums_of_the_broker_are_those_of_its_last_minute_hour_and_day() {
        let (mut sums, mut last) = (BrokerSums::default(), reading(0));
        for second in 0..7300_u64 {
            last = Reading {
                puts: 4 * second,
                system_puts: second,
                gets: 2 * second,
                connects: second / 2,
                consumer_beats: (second, 3 * second),
                ..reading(0)
            };
            sums.take(&last, 1000 * i64::try_from(second).unwrap());
        }
        let stats = |which| sums.of(which, &last).unwrap();
        let of = |which| {
            let stats = stats(which);
            (stats.stats_minute.sum, stats.stats_hour.sum, stats.stats_day.sum)
        };
        assert_eq!(of(Sums::Puts), (240, 14_400, 28_800));
        assert_eq!(of(Sums::UsersPuts), (180, 10_800, 21_600));
        assert_eq!((of(Sums::Gets), of(Sums::UsersGets)), ((120, 7200, 14_400), (120, 7200, 14_400)));
        assert_eq!(stats(Sums::Gets).stats_minute.tps, 2.0);
        assert_eq!(of(Sums::Connects), (30, 1800, 3600));
        assert_eq!((of(Sums::ConsumerBeats).0, stats(Sums::ConsumerBeats).stats_minute.avgpt), (180, 3.0));
        assert_eq!(sums.of(Sums::FailedEnds, &last), None, "none has failed");
    }

    #[test]
    fn a_day_begins_at_midnight() {
        let mut history = History::begun(DAY_MS - 2000);
        history.take(reading(5), DAY_MS - 1000);
        history.take(reading(7), DAY_MS);
        history.take(reading(20), 2 * DAY_MS);
        let rates = history.rates(reading(30));
        assert_eq!((rates.yesterday_morning.puts, rates.this_morning.puts, rates.now.puts), (7, 20, 30));
    }
}
