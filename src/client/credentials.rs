//! Whose name requests are signed with (RocketMQ's `AclClientRPCHook`).
//!
//! Invariants:
//! - a secret or a token is never shown, also not by `Debug`;
//! - what was told of them counts in whichever order it was told.

use std::fmt;

use troupemq_codec::signature::{ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, sign};
use troupemq_codec::{Command, Text};

use super::error::ClientError;

/// Who signs requests.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    user: Text,
    secret: Text,
    token: Option<Text>,
}

/// What a builder was told of credentials.
#[derive(Clone, Default)]
pub(super) struct Told {
    pub(super) user: Option<(Text, Text)>,
    pub(super) token: Option<Text>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials of {}", self.user)
    }
}

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Told").field(&self.user.as_ref().map(|(user, _)| user)).finish()
    }
}

impl Told {
    /// The credentials, if there are any.
    pub(super) fn credentials(self) -> Result<Option<Credentials>, ClientError> {
        match self.user {
            Some((user, secret)) => Ok(Some(Credentials { user, secret, token: self.token })),
            None if self.token.is_some() => {
                let why = "a token goes with credentials, and none were given".to_owned();
                Err(ClientError::Setting { setting: "security_token", why })
            }
            None => Ok(None),
        }
    }
}

impl Credentials {
    /// Adds who asks, and the signature over everything.
    pub(crate) fn sign(&self, command: &mut Command) {
        command.fields.set(ACCESS_KEY, self.user.clone());
        if let Some(token) = &self.token {
            command.fields.set(SECURITY_TOKEN, token.clone());
        }
        let signature = sign(&command.fields, &command.body, &self.secret);
        command.fields.set(SIGNATURE, signature);
    }
}

#[cfg(test)]
mod tests {
    use crate::client::Client;

    #[test]
    fn a_token_counts_whether_it_is_given_before_the_credentials_or_behind_them() {
        let before = Client::builder().security_token("token").credentials("user", "secret");
        let behind = Client::builder().credentials("user", "secret").security_token("token");
        let [before, behind] = [before, behind].map(|builder| builder.credentials.credentials());
        let (before, behind) = (before.expect("both are there"), behind.expect("both are there"));
        assert_eq!(before.as_ref().and_then(|signer| signer.token.as_deref()), Some("token"));
        assert_eq!(before, behind);
    }

    #[tokio::test]
    async fn a_token_without_credentials_is_refused_and_not_shown() {
        let builder = Client::builder().name_servers("127.0.0.1:1").security_token("hush");
        assert!(!format!("{builder:?}").contains("hush"), "{builder:?}");
        let error = builder.connect().await.expect_err("nobody signs");
        assert_eq!(error.to_string(), "security_token: a token goes with credentials, and none were given");
    }
}
