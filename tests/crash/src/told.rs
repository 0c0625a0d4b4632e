//! What a start is to tell: how it found the store, what it replayed, and what is on the disk.
//!
//! Invariants:
//! - only the lines behind the end of the start before are looked at;
//! - a start that served has told it, one that was killed while it recovered may have; who tells, tells the truth.

use std::path::Path;

use troupemq_codec::message::RecordView;
use troupemq_store::RecoveryReport;
use troupemq_store::inspect::StoreView;

use crate::Fault;

/// What the next start of a store finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    was_closed: bool,
    records: u64,
    from: u64,
    to: u64,
}

impl Found {
    /// What the first start finds.
    pub(crate) const NOTHING: Found = Found { was_closed: true, records: 0, from: 0, to: 0 };

    /// What a start finds that reads the log of `store` as `report` says; the records are counted.
    pub(crate) fn counted(store: &Path, report: &RecoveryReport) -> Result<Found, Fault> {
        let RecoveryReport { was_closed, replayed_from: from, log_end, .. } = *report;
        let mut records = 0;
        let to = match has_log(store) {
            false => 0,
            true => {
                let view = StoreView::open(store).map_err(Fault::of("cannot look at the store"))?;
                let count = |_: &RecordView<'_>| {
                    records += 1;
                    true
                };
                view.records(from, count, |_| ()).map_err(Fault::of("cannot read the log"))?.0
            }
        };
        if to != log_end || records != report.replayed {
            let said = format!("{} messages up to {log_end}", report.replayed);
            return Err(Fault(format!("from {from} the log has {records} up to {to}, {said} were replayed")));
        }
        Ok(Found { was_closed, records, from, to })
    }

    /// Whether a line tells of the same log, read from here or from further back.
    fn is_read_from_further_back(&self, line: &str) -> bool {
        let numbers = line.split_once(REPLAYED).map_or("", |(_, numbers)| numbers);
        let words: Vec<&str> = numbers.split_whitespace().take(6).collect();
        let [records, "messages", "from", from, "to", to] = words[..] else { return false };
        let number = |word: &str| word.parse::<u64>().ok();
        number(records).is_some_and(|records| records >= self.records)
            && number(from).is_some_and(|from| from <= self.from)
            && number(to) == Some(self.to)
    }

    /// Its line in the log of the broker.
    fn line(&self) -> String {
        let Found { was_closed, records, from, to } = *self;
        match was_closed && records == 0 {
            true => CLOSED.to_owned(),
            false => format!("{REPLAYED}{records} messages from {from} to {to} "),
        }
    }
}

/// Whether a store has a log: one that was killed before it had is as good as none.
pub(crate) fn has_log(store: &Path) -> bool {
    store.join("commitlog").read_dir().is_ok_and(|mut files| files.next().is_some())
}

const CLOSED: &str = "store opened as it was closed ";
const REPLAYED: &str = "replayed ";
/// What the system says when it refuses.
const CAUSES: [&str; 2] = ["No space left on device", "Input/output error"];
const FLUSHED: &str = "the log is on the disk to=";

/// Whether the start whose lines begin at `begun` has told what it found; it must have if it `served`.
pub(crate) fn judge(log: &Path, begun: usize, found: &Found, served: bool) -> Result<(), Fault> {
    let text = std::fs::read_to_string(log).map_err(Fault::of("cannot read the log"))?;
    let text = text.get(begun..).unwrap_or_default();
    let mut told = text.lines().filter(|line| line.contains(CLOSED) || line.contains(REPLAYED));
    let wanted = found.line();
    match told.next() {
        Some(line) if line.contains(&wanted) => Ok(()),
        // A derived file that the system refused is made anew from further back.
        Some(line) if found.is_read_from_further_back(line) && was_refused(text, line) => Ok(()),
        Some(line) => Err(Fault(format!("the start told {line:?}, and it was to be {wanted:?}"))),
        None if served => Err(Fault(format!("the start has not told {wanted:?}"))),
        None => Ok(()),
    }
}

/// Whether the system refused something in front of a line.
fn was_refused(text: &str, line: &str) -> bool {
    let before = text.split_once(line).map_or(text, |(before, _)| before);
    CAUSES.iter().any(|cause| before.contains(cause))
}

/// Where the lines of the next start begin.
pub(crate) fn begin(log: &Path) -> usize {
    std::fs::metadata(log).map_or(0, |log| usize::try_from(log.len()).unwrap_or(usize::MAX))
}

/// Whether the start whose lines begin at `begun`, which ended by itself, was refused something and names the cause.
pub(crate) fn cause_is_named(log: &Path, begun: usize) -> Result<(), Fault> {
    let text = std::fs::read_to_string(log).map_err(Fault::of("cannot read the log"))?;
    let lines = text.get(begun..).unwrap_or_default();
    let Some((_, behind)) = lines.split_once("refused ") else {
        return Err(Fault("the broker gave up though it was refused nothing".to_owned()));
    };
    match CAUSES.iter().any(|cause| behind.contains(cause)) {
        true => Ok(()),
        false => Err(Fault("the broker gave up and names no cause".to_owned())),
    }
}

/// Up to where the start whose lines begin at `begun` knew the log to be on the disk; 0 if it never said.
pub(crate) fn flushed_to(log: &Path, begun: usize) -> Result<u64, Fault> {
    let text = std::fs::read_to_string(log).map_err(Fault::of("cannot read the log"))?;
    let places = text.get(begun..).unwrap_or_default().lines().rev();
    let mut places = places.filter_map(|line| line.split_once(FLUSHED)?.1.trim().parse().ok());
    Ok(places.next().unwrap_or(0))
}
