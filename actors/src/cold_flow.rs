//! How much each consumer group reads that is not in memory, and when it is too much.
//! Java: `ColdDataCgCtrService`.
//!
//! Invariants:
//! - accounts begin anew every `PERIOD_MS`; nobody has to clear them;
//! - limits hold only while `coldDataFlowControlEnable` is set; what is read is counted always;
//! - of more than `GROUPS_MAX` groups the rest is counted together only.
//!
//! Deliberately absent: saving the limits, which Java does not do either, and its adaptive strategy.

use std::collections::BTreeMap;

use dashmap::DashMap;
use troupemq_codec::request::{ColdDataAccount, ColdDataFlow};
use troupemq_codec::{ResponseCode, Text};

use crate::config::BrokerConfig;
use crate::net::Refusal;

/// Time over which is counted, in ms.
const PERIOD_MS: i64 = 5000;
/// Time after which a group that reads nothing cold is forgotten, in ms.
const FORGET_AFTER_MS: i64 = 60_000;
/// Groups that have an account or a limit.
const GROUPS_MAX: usize = 10_000;
/// The account of all groups together: no group has this name.
const ALL: &str = "";

/// The accounts and limits of one broker.
#[derive(Debug, Default)]
pub struct ColdFlow {
    accounts: DashMap<Text, Account>,
    limits: DashMap<Text, i64>,
}

#[derive(Debug, Clone, Copy)]
struct Account {
    period: i64,
    bytes: i64,
    begun_ms: i64,
    last_ms: i64,
}

impl ColdFlow {
    /// Enters a cold read, or refuses it because the group, or all together, have read enough in this period.
    pub fn read(&self, group: &Text, bytes: i64, config: &BrokerConfig, now_ms: i64) -> Result<(), Refusal> {
        if config.cold_data_flow_control_enable && self.is_over(group, config, now_ms) {
            let remark = "This consumer group is reading cold data. It has been flow control";
            return Err(Refusal::new(ResponseCode::SYSTEM_BUSY, remark));
        }
        self.enter(ALL.into(), bytes, now_ms);
        self.enter(group.clone(), bytes, now_ms);
        Ok(())
    }

    /// Limits a group to so many bytes a period.
    pub fn limit(&self, group: Text, bytes: i64) -> Result<(), Refusal> {
        if self.limits.len() >= GROUPS_MAX && !self.limits.contains_key(&group) {
            let remark = format!("the table of limits for cold data is full: limit {GROUPS_MAX}");
            return Err(Refusal::new(ResponseCode::SYSTEM_ERROR, remark));
        }
        self.limits.insert(group, bytes);
        Ok(())
    }

    /// Gives a group the common limit again.
    pub fn unlimit(&self, group: &str) {
        self.limits.remove(group);
    }

    /// Limits and accounts as tools read them.
    pub fn tell(&self, config: &BrokerConfig, now_ms: i64) -> ColdDataFlow {
        let of_group = |entry: dashmap::mapref::multiple::RefMulti<'_, Text, Account>| {
            let told = ColdDataAccount {
                cold_acc: entry.bytes_at(now_ms),
                create_time_mills: entry.begun_ms,
                last_cold_read_time_mills: entry.last_ms,
            };
            (entry.key().clone(), told)
        };
        let accounts: BTreeMap<Text, ColdDataAccount> = self.accounts.iter().map(of_group).collect();
        let global_acc = accounts.get(ALL).map_or(0, |all| all.cold_acc);
        let is_recent = |(group, account): &(Text, ColdDataAccount)| {
            !group.is_empty() && now_ms - account.last_cold_read_time_mills < FORGET_AFTER_MS
        };
        ColdDataFlow {
            cg_cold_read_threshold: config.cg_cold_read_threshold,
            config_table: self.limits.iter().map(|entry| (entry.key().clone(), *entry.value())).collect(),
            global_acc,
            global_cold_read_threshold: config.global_cold_read_threshold,
            runtime_table: accounts.into_iter().filter(is_recent).collect(),
        }
    }

    fn is_over(&self, group: &str, config: &BrokerConfig, now_ms: i64) -> bool {
        let read = |group: &str| self.accounts.get(group).map_or(0, |account| account.bytes_at(now_ms));
        let limit = self.limits.get(group).map_or(config.cg_cold_read_threshold, |limit| *limit);
        let own = read(group);
        // Who has read nothing yet may go on: the others' reading is no reason to stop a newcomer for ever.
        own > 0 && (own >= limit || read(ALL) >= config.global_cold_read_threshold)
    }

    fn enter(&self, group: Text, bytes: i64, now_ms: i64) {
        if let Some(mut account) = self.accounts.get_mut(&group) {
            return account.enter(bytes, now_ms);
        }
        if self.accounts.len() >= GROUPS_MAX {
            self.accounts.retain(|_, account| now_ms - account.last_ms < FORGET_AFTER_MS);
        }
        if self.accounts.len() < GROUPS_MAX {
            let empty = Account { period: now_ms / PERIOD_MS, bytes: 0, begun_ms: now_ms, last_ms: now_ms };
            self.accounts.entry(group).or_insert(empty).enter(bytes, now_ms);
        }
    }
}

impl Account {
    fn enter(&mut self, bytes: i64, now_ms: i64) {
        self.bytes = self.bytes_at(now_ms).saturating_add(bytes);
        self.period = now_ms / PERIOD_MS;
        self.last_ms = now_ms;
    }

    fn bytes_at(&self, now_ms: i64) -> i64 {
        if self.period == now_ms / PERIOD_MS { self.bytes } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limited(enabled: bool) -> BrokerConfig {
        BrokerConfig {
            cold_data_flow_control_enable: enabled,
            cg_cold_read_threshold: 100,
            global_cold_read_threshold: 250,
            ..BrokerConfig::default()
        }
    }

    #[test]
    fn a_group_that_has_read_its_share_waits_for_the_next_period() {
        let (flow, config, group) = (ColdFlow::default(), limited(true), Text::from("g"));
        assert_eq!(flow.read(&group, 90, &config, 0), Ok(()));
        assert_eq!(flow.read(&group, 90, &config, 1), Ok(()));
        let refusal = flow.read(&group, 1, &config, 2).expect_err("180 of 100 bytes");
        assert_eq!(refusal.code, ResponseCode::SYSTEM_BUSY);
        assert_eq!(flow.tell(&config, 2).runtime_table["g"].cold_acc, 180);
        assert_eq!(flow.read(&group, 1, &config, PERIOD_MS), Ok(()));
        assert_eq!(flow.tell(&config, PERIOD_MS).global_acc, 1);
    }

    #[test]
    fn a_limit_of_its_own_counts_for_a_group_until_it_is_removed() {
        let (flow, config, group) = (ColdFlow::default(), limited(true), Text::from("g"));
        flow.limit(group.clone(), 10).unwrap();
        assert_eq!(flow.tell(&config, 0).config_table, BTreeMap::from([(group.clone(), 10)]));
        assert_eq!(flow.read(&group, 10, &config, 0), Ok(()));
        assert!(flow.read(&group, 10, &config, 0).is_err());
        flow.unlimit("g");
        assert_eq!(flow.read(&group, 10, &config, 0), Ok(()));
    }

    #[test]
    fn all_groups_together_have_a_limit_too() {
        let (flow, config) = (ColdFlow::default(), limited(true));
        for group in ["a", "b", "c"] {
            assert_eq!(flow.read(&Text::from(group), 99, &config, 0), Ok(()));
        }
        assert!(flow.read(&Text::from("a"), 1, &config, 0).is_err());
        assert_eq!(flow.read(&Text::from("d"), 1, &config, 0), Ok(()), "it has read nothing yet");
    }

    #[test]
    fn of_too_many_groups_the_rest_is_counted_together_and_no_limit_more_is_taken() {
        let (flow, config) = (ColdFlow::default(), limited(true));
        for group in 0..GROUPS_MAX {
            assert_eq!(flow.read(&Text::from(format!("g{group}")), 0, &config, 0), Ok(()));
            assert_eq!(flow.limit(Text::from(format!("g{group}")), 7), Ok(()));
        }
        assert_eq!(flow.read(&Text::from("one more"), 100, &config, 0), Ok(()));
        let told = flow.tell(&config, 0);
        assert_eq!((told.global_acc, told.runtime_table.get("one more")), (100, None));
        let refusal = flow.limit(Text::from("one more"), 7).expect_err("no room");
        assert!(refusal.remark.ends_with("limit 10000"), "{}", refusal.remark);
        assert_eq!(flow.limit(Text::from("g0"), 8), Ok(()), "it is known");
        // Those that have read nothing for a while make room.
        assert_eq!(flow.read(&Text::from("one more"), 1, &config, FORGET_AFTER_MS), Ok(()));
        assert_eq!(flow.tell(&config, FORGET_AFTER_MS).runtime_table["one more"].cold_acc, 1);
    }

    #[test]
    fn without_flow_control_reads_are_counted_and_never_refused() {
        let (flow, config, group) = (ColdFlow::default(), limited(false), Text::from("g"));
        for _ in 0..9 {
            assert_eq!(flow.read(&group, 1000, &config, 0), Ok(()));
        }
        assert_eq!(flow.tell(&config, 0).global_acc, 9000);
        assert!(flow.tell(&config, FORGET_AFTER_MS).runtime_table.is_empty());
    }
}
