//! How fast subscriptions select messages by their stored properties.
//!
//! `cargo bench --bench filter` prints one line for each expression: the median of the rounds.
//!
//! Invariants:
//! - every message matches, so that no evaluation ends early by luck.

use std::hint::black_box;
use std::io::Write;

use troupemq_codec::filter::MessageFilter;
use troupemq_codec::message::PropertiesView;
use troupemq_store::{Clock, SystemClock};

const MESSAGES: u32 = 1_000_000;
const ROUNDS: usize = 7;
const PROPERTIES: &[u8] = b"CLUSTER\x01DefaultCluster\x02KEYS\x01order-1\x02MSG_REGION\x01DefaultRegion\x02\
    TAGS\x01TagA\x02TRACE_ON\x01true\x02UNIQ_KEY\x017F0000015B334E0E2F2A939017EE0002\x02WAIT\x01true\x02\
    price\x0130\x02region\x01r1\x02";

fn main() {
    let clock = SystemClock::new();
    let mut out = std::io::stdout().lock();
    let filters = [
        ("TAG", "TagA || TagB"),
        ("SQL92", "price > 20"),
        ("SQL92", "region IN ('r1', 'r2') AND price BETWEEN 5 AND 50"),
    ];
    for (expression_type, expression) in filters {
        let filter =
            MessageFilter::compile(Some(expression_type), expression).expect("the expression compiles");
        let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| nanos_each(&clock, &filter)).collect();
        rounds.sort_by(f64::total_cmp);
        let median = rounds[ROUNDS / 2];
        let rate = 1000.0 / median;
        writeln!(out, "{expression_type} {expression}: {median:.0} ns, {rate:.1} million a second")
            .expect("the terminal takes a line");
    }
}

fn nanos_each(clock: &SystemClock, filter: &MessageFilter) -> f64 {
    let start = clock.nanos();
    let mut matched = 0_u32;
    for _ in 0..MESSAGES {
        matched += u32::from(black_box(filter).matches(PropertiesView(black_box(PROPERTIES))));
    }
    assert_eq!(matched, MESSAGES);
    (clock.nanos() - start) as f64 / f64::from(MESSAGES)
}
