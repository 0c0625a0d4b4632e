//! Defaults, bounds and names of the settings.
//!
//! Invariants:
//! - what RocketMQ has under the same name has its default.

use super::*;

#[test]
fn the_defaults_are_within_their_bounds() {
    assert_eq!(BrokerConfig::default().check(), Ok(()));
    assert_eq!(NodeConfig::empty().check(), Ok(()));
}

/// `enablePropertyFilter` alone is otherwise: RocketMQ's is off.
#[test]
fn the_defaults_of_a_broker_are_those_of_rocketmq() {
    let defaults = serde_json::to_value(BrokerConfig::default()).expect("settings are JSON");
    let java = serde_json::json!({
        "autoCreateTopicEnable": true, "autoCreateSubscriptionGroup": true, "defaultTopicQueueNums": 8,
        "brokerPermission": 6, "enableCalcFilterBitMap": false, "longPollingEnable": true,
        "shortPollingTimeMills": 1000, "slaveReadEnable": false, "recallMessageEnable": false,
        "allowRecallWhenBrokerNotWriteable": true, "timerWheelEnable": true, "timerMaxDelaySec": 259_200,
        "timerCongestNumEachSlot": i32::MAX, "timerStopEnqueue": false, "timerStopDequeue": false,
        "transactionTimeOut": 6000, "transactionCheckMax": 15, "transactionCheckInterval": 30_000,
        "reviveQueueNum": 8, "useServerSideResetOffset": true, "rejectTransactionMessage": false,
        "maxMessageSize": 4 << 20, "maxTransferCountOnMessageInMemory": 32,
        "maxTransferBytesOnMessageInMemory": 256 << 10, "maxTransferCountOnMessageInDisk": 8,
        "maxTransferBytesOnMessageInDisk": 64 << 10, "maxFilterMessageSize": 16_000,
        "maxMsgsNumBatch": 64, "defaultQueryMaxNum": 32, "storeReplyMessageEnable": true,
        "enableMixedMessageType": false, "registerNameServerPeriod": 30_000,
        "loadBalancePollNameServerInterval": 30_000, "traceOn": true, "regionId": "DefaultRegion",
    });
    for (key, value) in java.as_object().expect("an object") {
        assert_eq!(defaults.get(key), Some(value), "{key}");
    }
}

#[test]
fn a_value_out_of_bounds_is_named_with_its_java_key() {
    let config = BrokerConfig { broker_permission: 9, ..BrokerConfig::default() };
    let error = config.check().expect_err("9 is no permission");
    assert_eq!(error.to_string(), "brokerPermission = 9 is out of bounds: 0..=7");
}

#[test]
fn a_broker_has_a_name() {
    for broker_name in ["", " "] {
        let config = BrokerConfig { broker_name: broker_name.to_owned(), ..BrokerConfig::default() };
        let refused = config.check().unwrap_err().to_string();
        assert_eq!(refused, format!("brokerName = {broker_name:?} is out of bounds: at least one letter"));
    }
}

#[test]
fn a_java_key_is_read_by_its_name() {
    let config: BrokerConfig =
        serde_json::from_str(r#"{"autoCreateTopicEnable":false,"brokerName":"b"}"#).expect("two known keys");
    assert!(!config.auto_create_topic_enable);
    assert_eq!(config.broker_name, "b");
    assert_eq!(config.max_message_size, 4 << 20);
}
