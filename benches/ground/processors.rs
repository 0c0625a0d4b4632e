//! On how many processors this program may run.
//!
//! Invariants:
//! - what is said holds from the start of the program, as `taskset` sets it.

use std::num::NonZero;

/// What a line of figures says behind what was measured.
pub(crate) fn kept() -> &'static str {
    match std::thread::available_parallelism().map_or(1, NonZero::get) {
        1 => ", on one processor",
        _ => "",
    }
}
