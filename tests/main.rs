//! End-to-end tests: the `troupemq` program as a process of its own, and the client against it.
//!
//! Invariants:
//! - every test has its own folder and ports the system chose; none sleeps, each wait ends with what it waits for.
#[path = "end_to_end/admin.rs"]
mod admin;
#[path = "end_to_end/as_written.rs"]
mod as_written;
#[path = "end_to_end/bad_input.rs"]
mod bad_input;
#[path = "end_to_end/client.rs"]
mod client;
#[path = "end_to_end/client_calls.rs"]
mod client_calls;
#[path = "end_to_end/client_end.rs"]
mod client_end;
#[path = "end_to_end/client_order.rs"]
mod client_order;
#[path = "end_to_end/client_outage.rs"]
mod client_outage;
#[cfg(feature = "tls")]
#[path = "end_to_end/client_tls.rs"]
mod client_tls;
#[path = "end_to_end/client_trace.rs"]
mod client_trace;
#[path = "end_to_end/client_trouble.rs"]
mod client_trouble;
#[path = "end_to_end/command_line.rs"]
mod command_line;
#[path = "end_to_end/config.rs"]
mod config;
#[path = "end_to_end/daemon.rs"]
mod daemon;
#[path = "end_to_end/doctor.rs"]
mod doctor;
#[path = "end_to_end/embedded.rs"]
mod embedded;
#[path = "end_to_end/examples.rs"]
mod examples;
#[path = "end_to_end/guides.rs"]
mod guides;
#[path = "end_to_end/idle.rs"]
mod idle;
#[path = "end_to_end/life.rs"]
mod life;
#[path = "end_to_end/listener.rs"]
mod listener;
#[path = "end_to_end/middle.rs"]
mod middle;
#[path = "end_to_end/name_server_list.rs"]
mod name_server_list;
#[path = "end_to_end/progress.rs"]
mod progress;
#[path = "end_to_end/proxy.rs"]
mod proxy;
#[path = "end_to_end/runtimes.rs"]
mod runtimes;
#[path = "end_to_end/store.rs"]
mod store;
#[path = "end_to_end/terminal.rs"]
mod terminal;
#[path = "end_to_end/waiting.rs"]
mod waiting;
