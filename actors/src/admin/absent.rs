//! Requests of Java's tools for what this broker does not have: users and access lists (3001 to 3010), static topics
//! (513), a RocksDB store (355, 200056).
//!
//! Invariants:
//! - each is refused with REQUEST_CODE_NOT_SUPPORTED and told what is missing, so that nobody waits or guesses.

use troupemq_codec::request::{
    AuthCreateAcl, AuthCreateUser, AuthDeleteAcl, AuthDeleteUser, AuthGetAcl, AuthGetUser, AuthListAcl,
    AuthListUser, AuthUpdateAcl, AuthUpdateUser, ExportRocksdbConfigToJson, PopRollback,
    UpdateAndCreateStaticTopic,
};
use troupemq_codec::{Request, ResponseCode};

use crate::net::Refusal;

/// Why this broker does not serve a request; none for a code it has never heard of.
fn reason(code: i32) -> Option<(&'static str, &'static str)> {
    const USERS: &str = "this broker has no users";
    const LISTS: &str = "this broker has no access lists";
    const ROCKSDB: &str = "the store of this broker has files, no RocksDB";
    Some(match code {
        AuthCreateUser::CODE => (AuthCreateUser::NAME, USERS),
        AuthUpdateUser::CODE => (AuthUpdateUser::NAME, USERS),
        AuthDeleteUser::CODE => (AuthDeleteUser::NAME, USERS),
        AuthGetUser::CODE => (AuthGetUser::NAME, USERS),
        AuthListUser::CODE => (AuthListUser::NAME, USERS),
        AuthCreateAcl::CODE => (AuthCreateAcl::NAME, LISTS),
        AuthUpdateAcl::CODE => (AuthUpdateAcl::NAME, LISTS),
        AuthDeleteAcl::CODE => (AuthDeleteAcl::NAME, LISTS),
        AuthGetAcl::CODE => (AuthGetAcl::NAME, LISTS),
        AuthListAcl::CODE => (AuthListAcl::NAME, LISTS),
        UpdateAndCreateStaticTopic::CODE => {
            (UpdateAndCreateStaticTopic::NAME, "this broker has no static topics")
        }
        ExportRocksdbConfigToJson::CODE => (ExportRocksdbConfigToJson::NAME, ROCKSDB),
        PopRollback::CODE => (PopRollback::NAME, ROCKSDB),
        _ => return None,
    })
}

/// The refusal of a request that no handler takes.
pub fn refuse(code: i32) -> Refusal {
    let plain = Refusal::unsupported(code);
    match reason(code) {
        Some((name, why)) => {
            Refusal::new(ResponseCode::REQUEST_CODE_NOT_SUPPORTED, format!("{}: {name}, {why}", plain.remark))
        }
        None => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_the_request() {
        let refusal = refuse(3001);
        assert_eq!(refusal.code, ResponseCode::REQUEST_CODE_NOT_SUPPORTED);
        assert_eq!(
            refusal.remark,
            " request type 3001 not supported: AUTH_CREATE_USER, this broker has no users"
        );
        assert_eq!(refuse(4711).remark, " request type 4711 not supported");
    }
}
