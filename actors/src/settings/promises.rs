//! Settings of RocketMQ that ask for a safety which is not here: to go on without it would be a lie.
//!
//! Invariants:
//! - the same settings are refused in a file, in the environment and while a broker runs.

/// Keys, the values that cannot be kept, and why.
pub const PROMISES: [(&str, &[&str], &str); 7] = [
    ("aclEnable", &["true"], "there is no access control here, everybody could do everything"),
    ("authenticationEnabled", &["true"], "there is no access control here, everybody could do everything"),
    ("authorizationEnabled", &["true"], "there is no access control here, everybody could do everything"),
    ("brokerRole", &["SLAVE"], "there is no replication here, it would be a second master"),
    ("enableDLegerCommitLog", &["true"], "there is no replication here, it would be a second master"),
    ("enableControllerMode", &["true"], "there is no replication here, it would be a second master"),
    ("storeType", &["defaultRocksDB"], "queues in RocksDB are not read here"),
];

/// Why a broker must not take this value of a key that does nothing here.
pub fn broken(key: &str, value: &str) -> Option<&'static str> {
    let is_it = |promise: &&(&str, &[&str], &str)| promise.0 == key && promise.1.contains(&value);
    PROMISES.iter().find(is_it).map(|(.., why)| *why)
}
