//! Whose name requests are signed with: a file, so that the secret stands neither in the list of processes nor in a
//! shell's history.
//!
//! Invariants:
//! - a file that cannot be used is named with what is wrong in it, never with a secret.
//!
//! | key | meaning |
//! |---|---|
//! | `accessKey` | name of the user |
//! | `secretKey` | secret of the user |
//! | `securityToken` | a temporary token, where the cluster gives them out |
//!
//! A line holds a key and its value with `:` or `=` between, as RocketMQ's `conf/tools.yml` has them; `#` begins a
//! remark.

use std::path::{Path, PathBuf};

use troupemq::ClientBuilder;

/// What a file says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Credentials {
    user: String,
    secret: String,
    token: Option<String>,
}

/// Why a file of credentials is not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum CredentialsError {
    #[error("cannot read {}: {cause}", file.display())]
    Read { file: PathBuf, cause: std::io::Error },
    #[error("{}:{line}: neither accessKey, secretKey nor securityToken", file.display())]
    Line { file: PathBuf, line: usize },
    #[error("{}: it has no {key}", file.display())]
    Missing { file: PathBuf, key: &'static str },
}

impl Credentials {
    /// Reads a file.
    pub(super) fn read(file: &Path) -> Result<Credentials, CredentialsError> {
        let text = std::fs::read_to_string(file);
        of(file, &text.map_err(|cause| CredentialsError::Read { file: file.to_owned(), cause })?)
    }

    /// Signs what a client asks.
    pub(super) fn sign(&self, builder: ClientBuilder) -> ClientBuilder {
        let builder = builder.credentials(&self.user, &self.secret);
        match &self.token {
            Some(token) => builder.security_token(token),
            None => builder,
        }
    }
}

fn of(file: &Path, text: &str) -> Result<Credentials, CredentialsError> {
    let mut found = Credentials::default();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (key, value) = line.split_once([':', '=']).unwrap_or((line, ""));
        let value = value.trim().trim_matches(['"', '\'']).to_owned();
        match key.trim() {
            "accessKey" => found.user = value,
            "secretKey" => found.secret = value,
            "securityToken" => found.token = Some(value),
            _ => return Err(CredentialsError::Line { file: file.to_owned(), line: at + 1 }),
        }
    }
    for (key, value) in [("accessKey", &found.user), ("secretKey", &found.secret)] {
        if value.is_empty() {
            return Err(CredentialsError::Missing { file: file.to_owned(), key });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Credentials, String> {
        of(Path::new("tools.yml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_of_rocketmqs_tools_is_understood() {
        let of_java = read("# tools\naccessKey: rocketmq2\nsecretKey: \"1234:5678\"\n").expect("a good file");
        assert_eq!(
            of_java,
            Credentials { user: "rocketmq2".into(), secret: "1234:5678".into(), token: None }
        );
        let token = read("accessKey=a\n\nsecretKey = b\nsecurityToken=c\n").expect("a good file").token;
        assert_eq!(token.as_deref(), Some("c"));
    }

    #[test]
    fn what_is_wrong_is_said_without_the_secret() {
        assert_eq!(read("accessKey: a\n"), Err("tools.yml: it has no secretKey".to_owned()));
        assert_eq!(read("secretKey: hush\n"), Err("tools.yml: it has no accessKey".to_owned()));
        let wrong = read("accessKey: a\nsecretkey: hush\n").expect_err("misspelt");
        assert_eq!(wrong, "tools.yml:2: neither accessKey, secretKey nor securityToken");
        let error = Credentials::read(Path::new("/no/such.yml")).expect_err("it is not there").to_string();
        assert!(error.starts_with("cannot read /no/such.yml: "), "{error}");
    }
}
