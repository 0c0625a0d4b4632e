//! Lines on standard output, and what is told on standard error.
//!
//! Invariants:
//! - a closed pipe (`troupemq consume | head`) ends the command without a word, like any other filter;
//! - a closed standard error ends nothing: what nobody reads need not be told.

use std::fmt;
use std::io::{self, Write};

use serde::Serialize;

use super::Failure;

/// Standard output, buffered until [`Output::flush`].
pub(super) struct Output(io::BufWriter<io::Stdout>);

impl Output {
    pub(super) fn new() -> Output {
        Output(io::BufWriter::new(io::stdout()))
    }

    /// One line of bytes as they are.
    pub(super) fn line(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.0.write_all(bytes).and_then(|()| self.0.write_all(b"\n")).map_err(failure)
    }

    /// Bytes with no end of line of their own.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.0.write_all(bytes).map_err(failure)
    }

    /// One JSON object.
    pub(super) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        serde_json::to_writer(&mut self.0, value).map_err(|cause| failure(cause.into()))?;
        self.line(b"")
    }

    /// Shows what was written so far.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        self.0.flush().map_err(failure)
    }
}

/// One line on standard error.
pub(super) fn complain(line: fmt::Arguments<'_>) {
    // There is nowhere else to tell it.
    let _ = writeln!(io::stderr(), "{line}");
}

fn failure(cause: io::Error) -> Failure {
    if cause.kind() == io::ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    Failure::Io { what: "cannot write to standard output", cause }
}
