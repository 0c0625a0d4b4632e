//! Where a timer goes that is entered. Plain data.
//!
//! Invariants:
//! - a unit is linked to the one that was entered into its slot before it, and to none of another slot.

/// Where a timer has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placed {
    /// To the slot of this time (epoch ms).
    Slot {
        /// The time of the slot.
        slot_ms: i64,
        /// Whether it is to be entered again when the slot is due: it is due later than that.
        is_roll: bool,
        /// Its unit.
        unit: UnitAt,
    },
    /// Nowhere: it was delivered before the store was opened; the files had lost it.
    Done,
}

/// Where a unit stands, and behind which other of its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnitAt {
    /// Its position in the timer log.
    pub position: i64,
    /// That of the one before it in its slot; -1 if it is the first.
    pub previous: i64,
    /// When it was entered, epoch ms, as it tells that.
    pub written_ms: i64,
}
