//! What tools ask a broker.
//!
//! Invariants:
//! - one subject is one file; `router` says which request goes where.

pub mod absent;
pub mod clients;
pub mod cold;
pub mod files;
pub mod forward;
pub mod groups;
pub mod progress;
pub mod reset;
pub mod runtime;
pub mod settings;
pub mod slaves;
pub mod statistics;
pub mod topic;
pub mod topic_stats;

#[cfg(test)]
mod bad_input_test;
#[cfg(test)]
mod forward_test;
#[cfg(test)]
mod golden_test;
#[cfg(test)]
mod settings_test;
#[cfg(test)]
mod slaves_test;
#[cfg(test)]
mod topic_golden_test;
#[cfg(test)]
mod topic_test;
