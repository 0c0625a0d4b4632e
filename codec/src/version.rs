//! Version numbers of clients and brokers (ordinals of RocketMQ's `MQVersion`).
//!
//! Invariants:
//! - our own number is that of 5.3.3, so no client switches a feature off;
//! - from 4.0.0 on the number is regular: twenty for each minor version, two for each patch, one less for a
//!   snapshot.

/// The version that this program announces (V5_3_3).
pub const OUR_VERSION: i32 = 479;

/// From this version on a client understands a reset of its offsets (V3_0_7_SNAPSHOT).
pub const RESETS_OFFSETS: i32 = 28;
/// From this version on a client answers questions about its state (V3_1_8_SNAPSHOT).
pub const TELLS_RUNNING_INFO: i32 = 62;
/// From this version on `maxReconsumeTimes` of a client is honoured (V3_4_9).
pub const SETS_RECONSUME_LIMIT: i32 = 121;
/// Below this version a client leaves `_UNIQUE_KEY_QUERY` out of its signature (V4_9_3 is the last).
pub const SIGNS_ALL_FIELDS: i32 = 400;
/// From this version on a client wants standard JSON for routes (V4_9_4).
pub const READS_STANDARD_JSON: i32 = 401;

const FIRST_REGULAR: i32 = 213;
const PER_MAJOR: i32 = 200;
const PER_MINOR: i32 = 20;

/// The name of a version in RocketMQ's spelling, such as `V5_3_3`.
pub fn version_name(version: i32) -> String {
    let next_release = version.saturating_add(1);
    let since_first = next_release.saturating_sub(FIRST_REGULAR);
    if since_first < 0 {
        return format!("V3_{version}");
    }
    let snapshot = if since_first % 2 == 0 { "_SNAPSHOT" } else { "" };
    let major = (since_first / PER_MAJOR).saturating_add(4);
    let minor = since_first % PER_MAJOR / PER_MINOR;
    let patch = since_first % PER_MINOR / 2;
    format!("V{major}_{minor}_{patch}{snapshot}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_ordinals() {
        let names = [
            (213, "V4_0_0"),
            (232, "V4_1_0_SNAPSHOT"),
            (233, "V4_1_0"),
            (333, "V4_6_0"),
            (399, "V4_9_3"),
            (401, "V4_9_4"),
            (413, "V5_0_0"),
            (475, "V5_3_1"),
            (OUR_VERSION, "V5_3_3"),
        ];
        for (version, name) in names {
            assert_eq!(version_name(version), name);
        }
    }
}
