package interop;

import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** What a broker refuses and with which words, and what reaches a consumer beside its messages. */
final class RefusalScenarios {
    private static final int CONSUMER_SEND_MSG_BACK = 36;
    private static final int RESET_OFFSET = 222;
    private static final int QUERY_MESSAGE = 12;
    private static final long NOWHERE = 1L << 40;

    private RefusalScenarios() { }

    static void addTo(Scenarios list) {
        list.suite("everyday");
        list.add("refused-topics", "3.1 #5, #6: illegal names and the broker's own topics", RefusalScenarios::topics);
        list.add("refused-unknown-request", "3.1 #12: 3, and the code in the remark", RefusalScenarios::unknownRequest);
        list.add("refused-batch-retry", "3.2 #18: no batch to a retry topic", RefusalScenarios::batchToRetry);
        list.add("refused-send-back", "3.5 #43: no message at that place", RefusalScenarios::sendBackNowhere);
        list.add("refused-resets", "3.9 #81, #86: out of the queue's range, unknown topic, unknown group", RefusalScenarios::resets);
        list.add("send-own-id", "3.1 #8, #9: an id that the sender chose is the message's", RefusalScenarios::ownId);
        list.add("send-signed", "3.12 #120: without access control a signature is not looked at", RefusalScenarios::signed);
        list.add("retry-topic-first", "3.5 #45: the retry topic is routed before anything failed", RefusalScenarios::retryTopic);
        list.add("consumer-asked", "4.18: running info and direct consumption reach the consumer", RefusalScenarios::asked);
        list.add("offset-reset-live", "3.9 #82, #83: a live group goes on where it was reset to", 120, RefusalScenarios::resetLive);
    }

    private static void refused(int code, String part, RemotingCommand answer, String what) {
        Check.equal(code, answer.getCode(), "code of %s (%s)", what, answer.getRemark());
        Check.contains(String.valueOf(answer.getRemark()), part, "remark of " + what);
    }

    private static void topics(Bed bed) throws Exception {
        Raw raw = new Raw(bed);
        for (String own : List.of("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
            "TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT")) {
            refused(16, own, raw.send(own, Map.of()), "a send to " + own);
        }
        int invalid = bed.target.invalidParameter();
        refused(invalid, "illegal characters", raw.send("a b", Map.of()), "a send to a topic with a blank");
        refused(invalid, "longer than topic max length", raw.send("t".repeat(128), Map.of()), "a send to a topic of 128 characters");
        refused(invalid, "blank", raw.send(" ", Map.of()), "a send to a blank topic");
    }

    private static void unknownRequest(Bed bed) throws Exception {
        refused(3, "4711", new Raw(bed).call(4711, null), "request 4711");
    }

    private static void batchToRetry(Bed bed) throws Exception {
        String group = bed.name("g");
        bed.pushing(group, bed.topic(1), "*", new Inbox());
        String topic = "%RETRY%" + group;
        Check.within(30, "the retry topic", () -> bed.queues(topic).size() == 1);
        refused(13, "batch", new Raw(bed).batch(topic), "a batch to " + topic);
    }

    private static void sendBackNowhere(Bed bed) throws Exception {
        String group = bed.name("g");
        bed.pushing(group, bed.topic(1), "*", new Inbox());
        Check.within(30, "the retry topic", () -> bed.queues("%RETRY%" + group).size() == 1);
        RemotingCommand answer = new Raw(bed).call(CONSUMER_SEND_MSG_BACK, null, "offset", NOWHERE, "group", group, "delayLevel", 0,
            "originMsgId", "x", "originTopic", "y", "unitMode", false, "maxReconsumeTimes", 3);
        refused(1, "look message by offset failed, " + NOWHERE, answer, "a message sent back from nowhere");
    }

    private static RemotingCommand reset(Raw raw, String group, String topic, int queue, long offset) throws Exception {
        return raw.call(RESET_OFFSET, null, "topic", topic, "group", group, "timestamp", -1, "isForce", true, "queueId", queue,
            "offset", offset);
    }

    private static void resets(Bed bed) throws Exception {
        String topic = bed.topic(2);
        String group = bed.name("g");
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = bed.pushing(group, topic, "*", inbox);
        inbox.awaitExactly(Bed.send(bed.producer(), bed.queues(topic).get(1), "m", 10), 40);
        consumer.shutdown();
        Raw raw = new Raw(bed);
        refused(1, "not in consume queue range", reset(raw, group, topic, 1, 12), "a reset behind the end");
        refused(17, topic + "x", reset(raw, group, topic + "x", 1, 5), "a reset in an unknown topic");
        refused(26, group + "x", reset(raw, group + "x", topic, 1, 5), "a reset of an unknown group");
        Check.equal(0, reset(raw, group, topic, 1, 7).getCode(), "code of a reset within the queue");
        Inbox rest = new Inbox();
        bed.pushing(group, topic, "*", rest);
        rest.awaitExactly(new TreeSet<>(List.of("m-7", "m-8", "m-9")), 50);
    }

    private static void ownId(Bed bed) throws Exception {
        String topic = bed.topic(1);
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "*", inbox);
        String id = bed.name("own").toUpperCase();
        Message message = new Message(topic, "T", "k", Bed.bytes("mine"));
        MessageAccessor.putProperty(message, "UNIQ_KEY", id);
        SendResult result = Bed.sent(bed.producer().send(message));
        Check.equal(id, result.getMsgId(), "id of the receipt");
        inbox.awaitExactly(new TreeSet<>(List.of("mine")), 40);
        MessageExt got = inbox.messages().get(0);
        Check.equal(id, got.getMsgId(), "id of the message");
        Raw raw = new Raw(bed);
        Check.within(30, "the message by its id", () -> {
            RemotingCommand found = raw.call(QUERY_MESSAGE, null, "topic", topic, "key", id, "maxNum", 32, "beginTimestamp", 0,
                "endTimestamp", Long.MAX_VALUE, "_UNIQUE_KEY_QUERY", true);
            return found.getCode() == 0 && found.getBody().length > 0;
        });
    }

    private static void signed(Bed bed) throws Exception {
        RemotingCommand answer = new Raw(bed).send(bed.topic(1),
            Map.of("AccessKey", "nobody", "Signature", "AAAA", "OnsChannel", "ALIYUN", "SecurityToken", "none"));
        Check.equal(0, answer.getCode(), "code of a signed send (%s)", answer.getRemark());
    }

    private static void retryTopic(Bed bed) throws Exception {
        String group = bed.name("g");
        bed.pushing(group, bed.topic(1), "*", new Inbox());
        Check.within(30, "the route of the retry topic", () -> {
            var queues = bed.admin.examineTopicRouteInfo("%RETRY%" + group).getQueueDatas();
            return queues.size() == 1 && queues.get(0).getReadQueueNums() == 1 && queues.get(0).getPerm() == 6;
        });
    }

    private static void asked(Bed bed) throws Exception {
        String topic = bed.topic(1);
        String group = bed.name("g");
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = bed.pushing(group, topic, "*", inbox);
        SendResult result = Bed.sent(bed.producer().send(new Message(topic, "T", "k", Bed.bytes("again"))));
        inbox.awaitExactly(new TreeSet<>(List.of("again")), 40);
        String id = consumer.buildMQClientId();
        var info = bed.admin.getConsumerRunningInfo(group, id, false);
        Check.that(info.getSubscriptionSet().stream().anyMatch(one -> one.getTopic().equals(topic)), "subscription told");
        Check.that(info.getMqTable().containsKey(new MessageQueue(topic, bed.brokerName(), 0)), "queue told: %s", info.getMqTable());
        var told = bed.admin.consumeMessageDirectly(group, id, topic, result.getOffsetMsgId());
        Check.equal("CR_SUCCESS", told.getConsumeResult().name(), "result of the direct consumption");
        Check.within(30, "the message once more", () -> inbox.size() == 2);
        Check.equal("again", Inbox.text(inbox.messages().get(1)), "what was consumed directly");
    }

    private static void resetLive(Bed bed) throws Exception {
        String topic = bed.topic(1);
        String group = bed.name("g");
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = bed.push(group);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            inbox.addAll(batch);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = bed.producer();
        inbox.awaitExactly(Bed.send(producer, topic, "", "m", 20), 40);
        Check.equal(0, reset(new Raw(bed), group, topic, 0, 5).getCode(), "code of the reset");
        Check.within(100, "15 messages once more", () -> inbox.size() >= 35);
        Check.equal(35, inbox.size(), "deliveries");
        for (int i = 5; i < 20; i++) {
            String text = "m-" + i;
            Check.equal(2L, inbox.messages().stream().filter(one -> Inbox.text(one).equals(text)).count(), "deliveries of " + text);
        }
    }
}
