//! `troupemq completions`: what a shell needs to complete commands and flags.
//!
//! Invariants:
//! - it is made from the declaration of the command line itself, so it cannot fall behind.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::output::Output;
use super::{CommandLine, Failure};

/// Print completions for a shell: `source <(troupemq completions bash)`
#[derive(Debug, Args)]
pub(super) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut CommandLine::command(), "troupemq", &mut script);
        let mut out = Output::new();
        out.bytes(&script)?;
        out.flush()
    }
}
