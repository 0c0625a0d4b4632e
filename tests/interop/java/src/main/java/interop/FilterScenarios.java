package interop;

import java.util.List;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** What a consumer selects by properties and tags, and from where a group goes on. */
final class FilterScenarios {
    private FilterScenarios() { }

    static void addTo(Scenarios list) {
        list.suite("everyday");
        list.add("sql-push", "3.7 #63: comparisons, IN, NULL; a missing property selects nothing", FilterScenarios::push);
        list.add("sql-pull", "3.7 #65: the pull carries its expression, no heartbeat is needed", FilterScenarios::pull);
        list.add("sql-broken", "3.7 #64: the start of the consumer fails with 23 and the parser's text", FilterScenarios::broken);
        list.add("sql-two-groups", "each group gets what it selects, tags beside SQL", FilterScenarios::twoGroups);
        list.add("tags-nothing-matches", "3.7 #62: progress goes on while nothing matches", FilterScenarios::nothingMatches);
        list.add("tags-same-hash", "3.7 #60: tags with the same hash are told apart", FilterScenarios::sameHash);
        list.add("offset-new-group", "3.8 #70: a new group on a young topic gets everything, whatever it wishes", FilterScenarios::newGroup);
        list.add("offset-reset-offline", "3.9 #83: a group without a member goes on at the time it was reset to", FilterScenarios::resetOffline);
        list.add("offset-reset-own", "3.8 #72: a consumer that resets itself to a time goes on there", 120, FilterScenarios::resetOwn);
        list.add("offset-seek-back", "a consumer that seeks back commits from there", FilterScenarios::seekBack);
        list.suite("delivery");
        list.add("offset-reset-told", "3.9 #83: a live member that the broker tells of a reset goes on at its time", 120,
            FilterScenarios::resetTold);
        list.suite("restart");
        list.add("restart-keeps-filters", "SQL92 filters hold for what comes while the group is away", 90, FilterScenarios::restart);
    }

    /** Sends prices 0 … count-1 with a region each, and one message without any property. */
    private static void sendPriced(DefaultMQProducer producer, String topic, int count) throws Exception {
        for (int price = 0; price < count; price++) {
            Message message = new Message(topic, price % 2 == 0 ? "Even" : "Odd", Bed.bytes("p" + price));
            message.putUserProperty("price", "" + price);
            message.putUserProperty("region", price % 3 == 0 ? "r0" : "r1");
            Bed.sent(producer.send(message));
        }
        Bed.sent(producer.send(new Message(topic, "None", Bed.bytes("bare"))));
    }

    private static TreeSet<String> priced(int... prices) {
        TreeSet<String> texts = new TreeSet<>();
        for (int price : prices) {
            texts.add("p" + price);
        }
        return texts;
    }

    private static DefaultMQPushConsumer selecting(Bed bed, String group, String topic, String sql, Inbox inbox) throws Exception {
        DefaultMQPushConsumer consumer = bed.push(group);
        consumer.subscribe(topic, MessageSelector.bySql(sql));
        consumer.registerMessageListener(inbox.concurrently);
        consumer.start();
        return consumer;
    }

    private static void push(Bed bed) throws Exception {
        String topic = bed.topic(2);
        Inbox some = new Inbox();
        Inbox bare = new Inbox();
        selecting(bed, bed.name("g"), topic, "price BETWEEN 5 AND 8 AND region IN ('r0', 'r2') OR price > 18", some);
        selecting(bed, bed.name("g"), topic, "price IS NULL", bare);
        sendPriced(bed.producer(), topic, 20);
        some.awaitExactly(priced(6, 19), 40);
        bare.awaitExactly(new TreeSet<>(List.of("bare")), 40);
    }

    private static void pull(Bed bed) throws Exception {
        String topic = bed.topic(1);
        sendPriced(bed.producer(), topic, 10);
        DefaultMQPullConsumer consumer = bed.pull(bed.name("g"));
        MessageQueue queue = bed.queues(topic).get(0);
        PullResult[] first = {null};
        // The client learns the broker's version with the answer to its first heartbeat, and pulls by SQL only then.
        Check.within(30, "a pull by SQL", () -> {
            first[0] = consumer.pull(queue, MessageSelector.bySql("price >= 8 AND TAGS = 'Odd'"), 0, 32);
            return true;
        });
        PullResult result = first[0];
        Check.equal(PullStatus.FOUND, result.getPullStatus(), "status");
        TreeSet<String> texts = new TreeSet<>();
        result.getMsgFoundList().forEach(message -> texts.add(Inbox.text(message)));
        Check.equal(priced(9), texts, "messages");
        Check.equal(11L, result.getNextBeginOffset(), "where to go on");
        result = consumer.pull(queue, MessageSelector.bySql("price > 99"), 0, 32);
        Check.equal(PullStatus.NO_MATCHED_MSG, result.getPullStatus(), "status when nothing matches");
        Check.equal(11L, result.getNextBeginOffset(), "progress when nothing matches");
    }

    private static void broken(Bed bed) throws Exception {
        String topic = bed.topic(1);
        DefaultMQPushConsumer consumer = bed.push(bed.name("g"));
        consumer.subscribe(topic, MessageSelector.bySql("price >"));
        consumer.registerMessageListener(new Inbox().concurrently);
        MQClientException refused = Check.refused(MQClientException.class, "start", () -> {
            consumer.start();
            return null;
        });
        Check.equal(23, refused.getResponseCode(), "code");
        Check.contains(refused.getErrorMessage(), "line 1, column", "text");
    }

    private static void twoGroups(Bed bed) throws Exception {
        String topic = bed.topic(2);
        Inbox sql = new Inbox();
        Inbox tags = new Inbox();
        Inbox all = new Inbox();
        selecting(bed, bed.name("g"), topic, "price < 3", sql);
        bed.pushing(bed.name("g"), topic, "None || Nobody", tags);
        bed.pushing(bed.name("g"), topic, "*", all);
        sendPriced(bed.producer(), topic, 12);
        sql.awaitExactly(priced(0, 1, 2), 40);
        tags.awaitExactly(new TreeSet<>(List.of("bare")), 40);
        Check.within(30, "13 messages", () -> all.size() == 13);
    }

    private static void nothingMatches(Bed bed) throws Exception {
        String topic = bed.topic(1);
        String group = bed.name("g");
        Inbox inbox = new Inbox();
        bed.pushing(group, topic, "Wanted", inbox);
        Bed.send(bed.producer(), topic, "Other", "m", 200);
        Check.within(30, "nothing is left to be looked at", () -> bed.admin.examineConsumeStats(group, topic).computeTotalDiff() == 0);
        Check.equal(0, inbox.size(), "messages");
        Bed.send(bed.producer(), topic, "Wanted", "w", 1);
        Check.within(30, "the message", () -> inbox.size() == 1);
    }

    private static void sameHash(Bed bed) throws Exception {
        String topic = bed.topic(1);
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "Aa", inbox);
        DefaultMQProducer producer = bed.producer();
        Bed.send(producer, topic, "BB", "b", 5);
        inbox.awaitExactly(Bed.send(producer, topic, "Aa", "a", 5), 40);
    }

    private static void newGroup(Bed bed) throws Exception {
        String topic = bed.topic(2);
        TreeSet<String> wanted = Bed.send(bed.producer(), topic, "", "m", 10);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = bed.push(bed.name("g"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        Bed.pushing(consumer, topic, "*", inbox);
        inbox.awaitExactly(wanted, 40);
    }

    /** Consumes ten messages, then sends ten more after a moment; returns the time between. */
    private static long consumed(Bed bed, String topic, String group, Inbox inbox) throws Exception {
        DefaultMQPushConsumer consumer = bed.pushing(group, topic, "*", inbox);
        inbox.awaitExactly(Bed.send(bed.producer(), topic, "", "before", 10), 40);
        TimeUnit.MILLISECONDS.sleep(50);
        long between = System.currentTimeMillis();
        TimeUnit.MILLISECONDS.sleep(50);
        Bed.send(bed.producer(), topic, "", "after", 10);
        Check.within(30, "20 messages", () -> inbox.size() == 20);
        consumer.shutdown();
        inbox.clear();
        return between;
    }

    private static TreeSet<String> afterwards() {
        TreeSet<String> texts = new TreeSet<>();
        for (int i = 0; i < 10; i++) {
            texts.add("after-" + i);
        }
        return texts;
    }

    private static void resetOffline(Bed bed) throws Exception {
        String topic = bed.topic(1);
        String group = bed.name("g");
        Inbox inbox = new Inbox();
        long between = consumed(bed, topic, group, inbox);
        bed.admin.resetOffsetByTimestamp(topic, group, between, true);
        bed.pushing(group, topic, "*", inbox);
        inbox.awaitExactly(afterwards(), 40);
    }

    private static void resetsAtBroker(Bed bed, boolean isSo) throws Exception {
        Properties setting = new Properties();
        setting.setProperty("useServerSideResetOffset", String.valueOf(isSo));
        bed.admin.updateBrokerConfig(bed.brokerAddress(), setting);
    }

    /** As brokers before 5.0 do it: the broker tells every member, which stops for ten seconds and commits where it was sent. */
    private static void resetTold(Bed bed) throws Exception {
        String topic = bed.topic(1);
        String group = bed.name("g");
        Inbox inbox = new Inbox();
        long between = consumed(bed, topic, group, inbox);
        bed.pushing(group, topic, "*", inbox);
        Check.within(30, "20 committed", () -> committed(bed, group, topic) == 20);
        // Until it is a member, and has the queue that it is to be told of.
        Bed.send(bed.producer(), topic, "", "live", 1);
        Check.within(30, "the message to the live member", () -> inbox.size() == 1);
        bed.atEnd(() -> resetsAtBroker(bed, true));
        resetsAtBroker(bed, false);
        bed.admin.resetOffsetByTimestamp(topic, group, between, true);
        Check.within(60, "11 messages once more", () -> inbox.size() >= 12);
        TreeSet<String> wanted = afterwards();
        wanted.add("live-0");
        Check.equal(wanted, inbox.texts(), "the set of messages");
        Check.equal(12, inbox.size(), "deliveries");
        Check.within(30, "21 committed again", () -> committed(bed, group, topic) == 21);
    }

    /** The client stops for ten seconds for each of its topics, and begins again with the next rebalance. */
    private static void resetOwn(Bed bed) throws Exception {
        String topic = bed.topic(1);
        String group = bed.name("g");
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = bed.pushing(group, topic, "*", inbox);
        inbox.awaitExactly(Bed.send(bed.producer(), topic, "", "m", 20), 40);
        Check.within(30, "20 committed", () -> committed(bed, group, topic) == 20);
        consumer.getDefaultMQPushConsumerImpl().resetOffsetByTimeStamp(0);
        Check.within(60, "20 messages once more", () -> inbox.size() >= 40);
        Check.equal(40, inbox.size(), "deliveries");
        Check.within(30, "20 committed again", () -> committed(bed, group, topic) == 20);
    }

    private static void seekBack(Bed bed) throws Exception {
        String topic = bed.topic(1);
        String group = bed.name("g");
        Bed.send(bed.producer(), topic, "", "m", 20);
        MessageQueue queue = bed.queues(topic).get(0);
        DefaultLitePullConsumer consumer = bed.litePull(group);
        consumer.setAutoCommit(false);
        consumer.setPullBatchSize(5);
        consumer.start();
        // Not by a seek: after one, a pull that was under way may set this client's own offset back (4.9.8).
        consumer.assign(List.of(queue));
        read(consumer, 20);
        Check.within(30, "20 committed", () -> {
            consumer.commitSync();
            return committed(bed, group, topic) == 20;
        });
        Bed.awaitPull(consumer);
        consumer.seek(queue, 0);
        read(consumer, 5);
        consumer.commitSync();
        Check.within(30, "the way back committed", () -> committed(bed, group, topic) < 20);
    }

    private static long committed(Bed bed, String group, String topic) throws Exception {
        return bed.admin.examineConsumeStats(group, topic).getOffsetTable().values().iterator().next().getConsumerOffset();
    }

    private static void read(DefaultLitePullConsumer consumer, int count) throws Exception {
        int[] got = {0};
        Check.within(20, count + " messages", () -> {
            got[0] += consumer.poll(200).size();
            return got[0] >= count;
        });
    }

    private static void restart(Bed bed) throws Exception {
        if (!bed.target.isControlled()) {
            throw new Main.Skipped("INTEROP_CONTROL names no command that restarts the node");
        }
        String topic = bed.topic(1);
        String group = bed.name("g");
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = selecting(bed, group, topic, "price > 7", inbox);
        sendPriced(bed.producer(), topic, 10);
        inbox.awaitExactly(priced(8, 9), 40);
        consumer.shutdown();
        // The last message that it selects is the tenth of the queue; the last commit of a client that stops waits for no answer.
        Check.within(30, "what it selects is committed", () -> committed(bed, group, topic) >= 10);
        bed.target.control("restart");
        // Before the broker is back a producer takes the topic for a new one, with the queues of the template.
        Check.within(30, "the route", () -> !bed.admin.examineTopicRouteInfo(topic).getBrokerDatas().isEmpty());
        DefaultMQProducer producer = bed.producer();
        Check.within(30, "sends", () -> {
            Bed.sent(producer.send(new Message(topic, "Probe", Bed.bytes("probe"))));
            return true;
        });
        sendPriced(producer, topic, 12);
        inbox.clear();
        selecting(bed, group, topic, "price > 7", inbox);
        inbox.awaitExactly(priced(8, 9, 10, 11), 40);
    }
}
