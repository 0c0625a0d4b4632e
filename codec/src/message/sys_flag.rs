//! The bits of a record's system flag: compression, transaction state, address families, inner batches.
//!
//! Invariants:
//! - functions change only the bits they name.
//!
//! | bits | mask | meaning |
//! |---|---|---|
//! | 0 | 0x001 | the body is compressed |
//! | 1 | 0x002 | the topic may carry several tags |
//! | 2–3 | 0x00C | transaction: none, prepared, commit, rollback |
//! | 4 | 0x010 | the born host is an IPv6 address |
//! | 5 | 0x020 | the store host is an IPv6 address |
//! | 6 | 0x040 | the client splits the inner batch |
//! | 7 | 0x080 | the record is an inner batch |
//! | 8–10 | 0x700 | compression: 0 zlib (old clients), 1 LZ4, 2 ZSTD, 3 zlib |
//!
//! RocketMQ's name for it: `MessageSysFlag`.

/// The body is compressed.
pub const COMPRESSED: i32 = 0x1;
/// The topic may carry several tags.
pub const MULTI_TAGS: i32 = 0x2;
/// Both bits of the transaction state.
pub const TRANSACTION_MASK: i32 = 0xC;
/// A half message: not visible until it is committed.
pub const TRANSACTION_PREPARED: i32 = 0x4;
/// A committed message of a transaction.
pub const TRANSACTION_COMMIT: i32 = 0x8;
/// A half message that was rolled back.
pub const TRANSACTION_ROLLBACK: i32 = 0xC;
/// The born host takes 20 bytes instead of 8.
pub const BORN_HOST_V6: i32 = 0x10;
/// The store host takes 20 bytes instead of 8.
pub const STORE_HOST_V6: i32 = 0x20;
/// The client must split the inner batch.
pub const NEED_UNWRAP: i32 = 0x40;
/// The record is an inner batch: one record for several queue offsets.
pub const INNER_BATCH: i32 = 0x80;
/// The three bits of the compression type.
pub const COMPRESSION_MASK: i32 = 0x700;

/// The transaction bits of a flag: 0 or one of the `TRANSACTION_…` values.
pub const fn transaction(sys_flag: i32) -> i32 {
    sys_flag & TRANSACTION_MASK
}

/// The flag with its transaction bits replaced by those of `state`.
pub const fn with_transaction(sys_flag: i32, state: i32) -> i32 {
    (sys_flag & !TRANSACTION_MASK) | (state & TRANSACTION_MASK)
}

/// The flag without its compression bits: for a body that has been expanded.
pub const fn without_compression(sys_flag: i32) -> i32 {
    sys_flag & !(COMPRESSED | COMPRESSION_MASK)
}

/// Whether the record gets a unit in its consume queue: all but prepared and rolled back ones.
pub const fn is_visible(sys_flag: i32) -> bool {
    matches!(transaction(sys_flag), 0 | TRANSACTION_COMMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changing_the_transaction_state_keeps_the_other_bits() {
        let flag = COMPRESSED | BORN_HOST_V6 | TRANSACTION_PREPARED;
        let committed = with_transaction(flag, TRANSACTION_COMMIT);
        assert_eq!(committed, COMPRESSED | BORN_HOST_V6 | TRANSACTION_COMMIT);
        assert_eq!(with_transaction(committed, 0), COMPRESSED | BORN_HOST_V6);
    }

    #[test]
    fn only_plain_and_committed_records_are_visible() {
        assert!(is_visible(COMPRESSED));
        assert!(is_visible(TRANSACTION_COMMIT));
        assert!(!is_visible(TRANSACTION_PREPARED));
        assert!(!is_visible(TRANSACTION_ROLLBACK));
    }

    #[test]
    fn an_expanded_body_keeps_no_compression_bit() {
        assert_eq!(without_compression(0x301 | MULTI_TAGS), MULTI_TAGS);
    }
}
