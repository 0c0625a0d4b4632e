//! What was done to the broker in a run.
//!
//! Invariants:
//! - a kill is a `SIGKILL`: a broker that gave up by itself is counted apart.

use crate::Fault;
use crate::broker::{Ended, Harm};
use crate::moment::Places;

/// The counts.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) places: Places,
    pub(crate) messages: usize,
    from_outside: u32,
    starting: u32,
    stopping: u32,
    stopped: u32,
    refused: u32,
    gave_up: u32,
}

impl Tally {
    pub(crate) fn kills(&self) -> u32 {
        self.from_outside + self.places.met()
    }

    /// Notes how a broker ended to which harm was done, and whether it had `served`.
    pub(crate) fn note(&mut self, harm: &Harm, ended: Ended, served: bool) -> Result<(), Fault> {
        self.refused += u32::from(harm.is_refused());
        let is_dead = matches!(ended, Ended::Killed | Ended::Struck);
        self.starting += u32::from(is_dead && !served);
        self.stopping += u32::from(is_dead && matches!(harm, Harm::Stops(_) | Harm::StopsAndKilled(_)));
        match ended {
            Ended::Killed => self.from_outside += 1,
            Ended::GaveUp => self.gave_up += 1,
            Ended::Stopped => self.stopped += 1,
            Ended::Struck => {}
        }
        match harm.moment() {
            Some(moment) => self.places.note(moment, ended == Ended::Struck),
            None => Ok(()),
        }
    }

    pub(crate) fn print(&self) {
        let (kills, outside, met) = (self.kills(), self.from_outside, self.places.met());
        let messages = self.messages;
        println!(
            "{kills} kills: {outside} from outside, {met} at chosen operations; {messages} acknowledged messages"
        );
        let (starting, stopping, stopped) = (self.starting, self.stopping, self.stopped);
        println!(
            "{starting} of them during a start, {stopping} during a stop; {stopped} stops under load in order"
        );
        println!(
            "{} starts that the system refused something, {} of them gave up",
            self.refused, self.gave_up
        );
        self.places.print();
    }
}
