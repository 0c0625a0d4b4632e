//! The `troupemq` program: name server, broker and tools in one binary.
//!
//! Invariants:
//! - standard output belongs to the user of a command, logs go to standard error;
//! - the exit code tells the class of a failure: see `troupemq --help`.
#![forbid(unsafe_code)]

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
