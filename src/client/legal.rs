//! Which names topics and groups may have (Java: `Validators`).
//!
//! Invariants:
//! - what is refused here no broker would make, so that nobody waits for it; the reason names what is wrong and the
//!   limit.

use troupemq_codec::topic::{DEAD_LETTER_PREFIX, RETRY_PREFIX};

use super::error::ClientError;

/// Longest name of a topic.
const TOPIC_MAX_BYTES: usize = 127;
/// Longest name of a group, and of a topic that is made for one.
const GROUP_MAX_BYTES: usize = 255;

/// Why a topic cannot be called so.
pub(super) fn check_topic(name: &str) -> Result<(), String> {
    let is_of_group = [RETRY_PREFIX, DEAD_LETTER_PREFIX].iter().any(|prefix| name.starts_with(prefix));
    check_within(name, if is_of_group { GROUP_MAX_BYTES } else { TOPIC_MAX_BYTES })
}

/// A topic that is given as a setting, or to be made.
pub(super) fn topic(name: &str) -> Result<(), ClientError> {
    check_topic(name).map_err(|why| illegal("topic", name, why))
}

/// A group that is given as a setting, or to be made.
pub(super) fn group(name: &str) -> Result<(), ClientError> {
    check_within(name, GROUP_MAX_BYTES).map_err(|why| illegal("group", name, why))
}

fn illegal(what: &'static str, name: &str, why: String) -> ClientError {
    ClientError::IllegalName { what, name: name.to_owned(), why }
}

fn check_within(name: &str, max_bytes: usize) -> Result<(), String> {
    let is_allowed = |char: &char| char.is_ascii_alphanumeric() || "%|-_".contains(*char);
    // Asked for each message: most names are short, and letters and digits alone.
    if (1..=TOPIC_MAX_BYTES).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Ok(());
    }
    if name.is_empty() {
        return Err("it has no name".to_owned());
    }
    if let Some(bad) = name.chars().find(|char| !is_allowed(char)) {
        return Err(format!("{bad:?} is not allowed in a name, only letters, digits, '%', '|', '-' and '_'"));
    }
    match name.len() {
        bytes if bytes > max_bytes => {
            Err(format!("it has {bytes} characters, at most {max_bytes} are allowed"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_names_the_name_what_is_wrong_and_the_limit() {
        let only = "is not allowed in a name, only letters, digits, '%', '|', '-' and '_'";
        let said = |checked: Result<(), ClientError>| checked.expect_err("it is illegal").to_string();
        assert_eq!(said(topic("*")), format!("topic \"*\" is illegal: '*' {only}"));
        assert_eq!(said(topic("a b")), format!("topic \"a b\" is illegal: ' ' {only}"));
        assert_eq!(said(group("grüße")), format!("group \"grüße\" is illegal: 'ü' {only}"));
        assert_eq!(said(group("")), "group \"\" is illegal: it has no name");
        let long = "x".repeat(256);
        let told = said(topic(&long[..128]));
        assert!(told.ends_with("is illegal: it has 128 characters, at most 127 are allowed"), "{told}");
        let told = said(group(&long));
        assert!(told.ends_with("is illegal: it has 256 characters, at most 255 are allowed"), "{told}");
    }

    #[test]
    fn every_name_that_a_broker_takes_is_legal() {
        let long = "x".repeat(255);
        for name in ["a", "%RETRY%g|x_-1", "%LMQ%a", &long[..127], &format!("%DLQ%{}", &long[..250])] {
            topic(name).expect("brokers have such topics");
        }
        group(&long).expect("Java's client takes it");
    }
}
