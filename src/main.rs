//! The `troupemq` program: name server, broker and tools in one binary.
//!
//! Invariants:
//! - standard output belongs to the user of a command, logs go to standard error;
//! - the exit code is 0 if all was done, 1 if something failed, 2 if the command line is wrong.
#![forbid(unsafe_code)]

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
