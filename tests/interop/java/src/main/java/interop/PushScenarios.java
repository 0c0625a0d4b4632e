package interop;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** One push consumer and what it is given. */
final class PushScenarios {
    private PushScenarios() { }

    static void addTo(Scenarios list) {
        list.suite("everyday");
        list.add("push-concurrently", "each message once, with its ids, offsets and times", PushScenarios::concurrently);
        list.add("push-orderly", "3.6 #48: queue by queue in order", PushScenarios::orderly);
        list.add("push-wakes-at-once", "3.8 #66: a parked pull is answered as a message arrives", PushScenarios::wakes);
        list.add("push-tags", "3.7 #58, #59: alternatives, blanks, case, untagged, the tag *", PushScenarios::tags);
        list.add("push-tags-same-hash", "3.7 #60: Aa and BB have one hash, delivery is exact", PushScenarios::sameHash);
        list.add("push-tag-far-away", "3.7 #62: one match behind thousands of others is found", PushScenarios::farAway);
        list.add("push-from-first", "a new group gets what was there", PushScenarios::fromFirst);
        list.add("push-from-last", "3.8 #70: a young topic is consumed from 0 all the same", PushScenarios::fromLast);
        list.add("push-from-last-empty", "3.8 #70: what comes after the start is not missed", PushScenarios::fromLastEmpty);
        list.add("push-from-timestamp", "3.8 #70: a young topic is consumed from 0 all the same", PushScenarios::fromTimestamp);
        list.add("push-two-topics", "3.6 #54: a topic subscribed after the start is consumed", PushScenarios::twoTopics);
        list.add("push-before-topic", "a topic that appears later is found at the next route refresh", 90, PushScenarios::beforeTopic);
        list.add("push-goes-on", "3.8 #73: offsets kept at shutdown, a successor gets the rest only", PushScenarios::goesOn);
        list.add("push-large-batches", "consumeMessageBatchMaxSize and pullBatchSize 32 with thousands of messages", PushScenarios::largeBatches);
        list.add("push-suspended", "suspend and resume: nothing is lost meanwhile", PushScenarios::suspended);
    }

    private static void concurrently(Bed bed) throws Exception {
        String topic = bed.topic(4);
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "*", inbox);
        DefaultMQProducer producer = bed.producer();
        Map<String, SendResult> sent = new HashMap<>();
        for (int i = 0; i < 100; i++) {
            Message message = new Message(topic, "T" + i % 3, "key" + i, Bed.bytes("m" + i));
            message.putUserProperty("i", "" + i);
            sent.put("m" + i, Bed.sent(producer.send(message)));
        }
        inbox.awaitExactly(new TreeSet<>(sent.keySet()), 40);
        for (MessageExt message : inbox.messages()) {
            SendResult result = sent.get(Inbox.text(message));
            Check.equal(result.getMsgId(), message.getMsgId(), "message id");
            Check.equal(result.getMessageQueue().getQueueId(), message.getQueueId(), "queue");
            Check.equal(result.getQueueOffset(), message.getQueueOffset(), "queue offset");
            Check.equal(Inbox.text(message).substring(1), message.getUserProperty("i"), "property");
            Check.equal("" + 0, message.getProperty("MIN_OFFSET"), "min offset given with the message");
            Check.that(Long.parseLong(message.getProperty("MAX_OFFSET")) > message.getQueueOffset(), "max offset given with the message");
            long physical = Long.parseLong(result.getOffsetMsgId().substring(16), 16);
            Check.equal(physical, message.getCommitLogOffset(), "commit-log offset");
        }
    }

    private static void orderly(Bed bed) throws Exception {
        String topic = bed.topic(4);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = bed.push(bed.name("g"));
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(inbox.orderly);
        consumer.start();
        DefaultMQProducer producer = bed.producer();
        TreeSet<String> wanted = new TreeSet<>();
        for (MessageQueue queue : bed.queues(topic)) {
            wanted.addAll(Bed.send(producer, queue, "q" + queue.getQueueId(), 25));
        }
        inbox.awaitExactly(wanted, 40);
        Map<Integer, Long> next = new HashMap<>();
        for (MessageExt message : inbox.messages()) {
            Check.equal(next.getOrDefault(message.getQueueId(), 0L), message.getQueueOffset(), "next in queue %d", message.getQueueId());
            Check.equal("q" + message.getQueueId() + "-" + message.getQueueOffset(), Inbox.text(message), "order in the queue");
            next.put(message.getQueueId(), message.getQueueOffset() + 1);
        }
    }

    private static void wakes(Bed bed) throws Exception {
        String topic = bed.topic(2);
        Inbox inbox = new Inbox();
        List<Long> latencies = new ArrayList<>();
        DefaultMQPushConsumer consumer = bed.push(bed.name("g"));
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((List<MessageExt> batch, org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext c) -> {
            batch.forEach(m -> latencies.add(System.currentTimeMillis() - Long.parseLong(m.getUserProperty("at"))));
            inbox.addAll(batch);
            return org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = bed.producer();
        Bed.sent(producer.send(stamped(topic, "warm-up")));
        Check.within(30, "the warm-up", () -> inbox.size() == 1);
        latencies.clear();
        for (int i = 1; i <= 8; i++) {
            Thread.sleep(300);
            Bed.sent(producer.send(stamped(topic, "m" + i)));
            int count = i + 1;
            Check.within(30, "message " + i, () -> inbox.size() == count);
        }
        long median = latencies.stream().sorted().skip(4).findFirst().orElseThrow();
        // Otherwise each would be held for 15 s.
        Check.that(median < 10_000, "median from send to listener %d ms: %s", median, latencies);
    }

    private static Message stamped(String topic, String text) {
        Message message = new Message(topic, Bed.bytes(text));
        message.putUserProperty("at", "" + System.currentTimeMillis());
        return message;
    }

    private static void tags(Bed bed) throws Exception {
        String topic = bed.topic(2);
        DefaultMQProducer producer = bed.producer();
        for (String tag : new String[] {"A", "B", "C", "a", "*", "", null}) {
            Message message = new Message(topic, Bed.bytes("tag " + tag));
            if (tag != null) {
                message.setTags(tag);
            }
            Bed.sent(producer.send(message));
        }
        Map<String, TreeSet<String>> wanted = new HashMap<>();
        TreeSet<String> all = new TreeSet<>(List.of("tag A", "tag B", "tag C", "tag a", "tag *", "tag ", "tag null"));
        wanted.put("*", all);
        wanted.put("A", new TreeSet<>(List.of("tag A")));
        wanted.put("A || B", new TreeSet<>(List.of("tag A", "tag B")));
        wanted.put("  B||C  ||a", new TreeSet<>(List.of("tag B", "tag C", "tag a")));
        Map<String, Inbox> inboxes = new HashMap<>();
        for (String expression : wanted.keySet()) {
            inboxes.put(expression, new Inbox());
            bed.pushing(bed.name("g"), topic, expression, inboxes.get(expression));
        }
        for (String expression : wanted.keySet()) {
            inboxes.get(expression).awaitAll(wanted.get(expression), 40);
        }
        int deliveries = wanted.values().stream().mapToInt(TreeSet::size).sum();
        Check.stays(0.5, deliveries, "deliveries", () -> inboxes.values().stream().mapToInt(Inbox::size).sum());
        Map<String, TreeSet<String>> texts = new HashMap<>();
        inboxes.forEach((expression, inbox) -> texts.put(expression, inbox.texts()));
        Check.equal(wanted, texts, "messages for each expression");
    }

    private static void sameHash(Bed bed) throws Exception {
        String topic = bed.topic(1);
        DefaultMQProducer producer = bed.producer();
        for (int i = 0; i < 10; i++) {
            Bed.sent(producer.send(new Message(topic, i % 2 == 0 ? "Aa" : "BB", Bed.bytes((i % 2 == 0 ? "Aa" : "BB") + i))));
        }
        // Negative hash: sign extension of the 32-bit hash decides whether it matches.
        String negative = "polygenelubricants1";
        Check.that(negative.hashCode() < 0, "the hash is negative");
        Bed.sent(producer.send(new Message(topic, negative, Bed.bytes("negative"))));
        Inbox one = new Inbox();
        Inbox other = new Inbox();
        bed.pushing(bed.name("g"), topic, "Aa", one);
        bed.pushing(bed.name("g"), topic, negative, other);
        one.awaitAll(new TreeSet<>(List.of("Aa0", "Aa2", "Aa4", "Aa6", "Aa8")), 40);
        other.awaitExactly(new TreeSet<>(List.of("negative")), 40);
        Check.stays(0.3, 5, "deliveries", one::size);
    }

    private static void farAway(Bed bed) throws Exception {
        String topic = bed.topic(1);
        DefaultMQProducer producer = bed.producer();
        for (int i = 0; i < 50; i++) {
            List<Message> batch = new ArrayList<>();
            for (int k = 0; k < 100; k++) {
                batch.add(new Message(topic, "Common", Bed.bytes("common")));
            }
            Bed.sent(producer.send(batch));
        }
        Bed.sent(producer.send(new Message(topic, "Rare", Bed.bytes("rare"))));
        Inbox inbox = new Inbox();
        String group = bed.name("g");
        DefaultMQPushConsumer consumer = bed.pushing(group, topic, "Rare", inbox);
        inbox.awaitExactly(new TreeSet<>(List.of("rare")), 40);
        // The offset moves on past what did not match.
        consumer.shutdown();
        Check.within(30, "offset behind the match", () -> {
            var table = bed.admin.examineConsumeStats(group, topic).getOffsetTable();
            return table.values().iterator().next().getConsumerOffset() == 5001;
        });
    }

    private static void fromFirst(Bed bed) throws Exception {
        String topic = bed.topic(3);
        DefaultMQProducer producer = bed.producer();
        TreeSet<String> wanted = Bed.send(producer, topic, "", "old", 30);
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "*", inbox);
        inbox.awaitExactly(wanted, 40);
    }

    private static void fromLast(Bed bed) throws Exception {
        String topic = bed.topic(3);
        DefaultMQProducer producer = bed.producer();
        TreeSet<String> wanted = Bed.send(producer, topic, "", "old", 30);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = bed.push(bed.name("g"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        Bed.pushing(consumer, topic, "*", inbox);
        inbox.awaitExactly(wanted, 40);
        wanted.addAll(Bed.send(producer, topic, "", "new", 12));
        inbox.awaitExactly(wanted, 40);
    }

    private static void fromLastEmpty(Bed bed) throws Exception {
        String topic = bed.topic(3);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = bed.push(bed.name("g"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        Bed.pushing(consumer, topic, "*", inbox);
        Check.within(30, "all queues assigned", () -> consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl()
            .getProcessQueueTable().keySet().stream().filter(q -> q.getTopic().equals(topic)).count() == 3);
        // The reference loses what arrives between a group's first two questions; give it the time to ask both.
        Thread.sleep(bed.target.isJava() ? 1500 : 0);
        TreeSet<String> wanted = Bed.send(bed.producer(), topic, "", "new", 12);
        inbox.awaitExactly(wanted, 40);
    }

    private static void fromTimestamp(Bed bed) throws Exception {
        String topic = bed.topic(3);
        DefaultMQProducer producer = bed.producer();
        TreeSet<String> wanted = Bed.send(producer, topic, "", "old", 30);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = bed.push(bed.name("g"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP);
        consumer.setConsumeTimestamp(UtilAll.timeMillisToHumanString3(System.currentTimeMillis() - 3600_000));
        Bed.pushing(consumer, topic, "*", inbox);
        inbox.awaitExactly(wanted, 40);
        wanted.addAll(Bed.send(producer, topic, "", "new", 12));
        inbox.awaitExactly(wanted, 40);
    }

    private static void twoTopics(Bed bed) throws Exception {
        String first = bed.topic(2);
        String second = bed.topic(2);
        DefaultMQProducer producer = bed.producer();
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = bed.pushing(bed.name("g"), first, "*", inbox);
        TreeSet<String> wanted = Bed.send(producer, first, "", "first", 10);
        inbox.awaitExactly(wanted, 40);
        consumer.subscribe(second, "Wanted");
        wanted.addAll(Bed.send(producer, second, "Wanted", "second", 10));
        Bed.send(producer, second, "Other", "never", 5);
        inbox.awaitExactly(wanted, 40);
        consumer.unsubscribe(second);
        wanted.addAll(Bed.send(producer, first, "", "third", 10));
        inbox.awaitExactly(wanted, 40);
    }

    private static void beforeTopic(Bed bed) throws Exception {
        String topic = bed.name("later");
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "*", inbox);
        Thread.sleep(500);
        TreeSet<String> wanted = Bed.send(bed.producer(), topic, "", "m", 10);
        inbox.awaitExactly(wanted, 70);
    }

    private static void goesOn(Bed bed) throws Exception {
        String topic = bed.topic(4);
        String group = bed.name("g");
        DefaultMQProducer producer = bed.producer();
        TreeSet<String> wanted = Bed.send(producer, topic, "", "one", 40);
        Inbox first = new Inbox();
        DefaultMQPushConsumer consumer = bed.pushing(group, topic, "*", first);
        first.awaitExactly(wanted, 40);
        consumer.shutdown();
        bed.awaitConsumed(group, topic);
        var stats = bed.admin.examineConsumeStats(group, topic).getOffsetTable();
        Check.equal(4, stats.size(), "queues in the group's progress");
        stats.forEach((queue, offsets) -> {
            Check.equal(10L, offsets.getBrokerOffset(), "broker offset of " + queue);
            Check.equal(10L, offsets.getConsumerOffset(), "consumer offset of " + queue);
        });
        TreeSet<String> rest = Bed.send(producer, topic, "", "two", 20);
        Inbox second = new Inbox();
        bed.pushing(group, topic, "*", second);
        second.awaitExactly(rest, 40);
        Check.stays(0.5, 20, "deliveries to the successor", second::size);
    }

    private static void largeBatches(Bed bed) throws Exception {
        String topic = bed.topic(4);
        DefaultMQProducer producer = bed.producer();
        int count = 0;
        for (int i = 0; i < 40; i++) {
            List<Message> batch = new ArrayList<>();
            for (int k = 0; k < 100; k++) {
                batch.add(new Message(topic, Bed.bytes("m" + count++)));
            }
            Bed.sent(producer.send(batch));
        }
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = bed.push(bed.name("g"));
        consumer.setPullBatchSize(32);
        consumer.setConsumeMessageBatchMaxSize(32);
        Bed.pushing(consumer, topic, "*", inbox);
        Check.within(30, "4000 messages", () -> inbox.size() >= 4000);
        Check.equal(4000, inbox.texts().size(), "different messages");
        Check.equal(4000, inbox.size(), "deliveries");
    }

    private static void suspended(Bed bed) throws Exception {
        String topic = bed.topic(2);
        DefaultMQProducer producer = bed.producer();
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = bed.pushing(bed.name("g"), topic, "*", inbox);
        TreeSet<String> wanted = Bed.send(producer, topic, "", "before", 5);
        inbox.awaitExactly(wanted, 40);
        consumer.suspend();
        wanted.addAll(Bed.send(producer, topic, "", "during", 20));
        Thread.sleep(300);
        consumer.resume();
        inbox.awaitExactly(wanted, 40);
    }
}
