//! Lines that a bench prints.
//!
//! Invariants:
//! - a closed pipe (`cargo bench --bench pages | head -1`) ends the bench without a word, like any other filter.

use std::io;

/// Takes note of what printing a line has come to.
///
/// # Panics
/// If standard output takes no line, and not because nobody reads it any more.
pub(crate) fn said(printed: io::Result<()>) {
    match printed {
        Err(cause) if cause.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        printed => printed.expect("the terminal takes a line"),
    }
}
