package interop;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;

/** The lite pull consumer: subscribed and assigned. */
final class LitePullScenarios {
    private LitePullScenarios() { }

    static void addTo(Scenarios list) {
        list.suite("everyday");
        list.add("lite-subscribe", "poll gives each message once; commits are kept for a successor", LitePullScenarios::subscribed);
        list.add("lite-tags", "a tag expression filters", LitePullScenarios::tags);
        list.add("lite-assign-seek", "seek to begin, to an offset, to a time, to the end", LitePullScenarios::seeking);
        list.add("lite-committed", "committed offsets are read back", LitePullScenarios::committed);
        list.add("lite-two-members", "two subscribed members share the queues", LitePullScenarios::twoMembers);
    }

    /** Polls until so many are here; the limit is an idle machine's. */
    private static List<MessageExt> poll(DefaultLitePullConsumer consumer, int wanted, double seconds) {
        List<MessageExt> all = new ArrayList<>();
        long deadline = System.nanoTime() + (long) (seconds * Check.PATIENCE * 1e9);
        while (all.size() < wanted && System.nanoTime() < deadline) {
            all.addAll(consumer.poll(200));
        }
        return all;
    }

    private static TreeSet<String> texts(Collection<MessageExt> messages) {
        TreeSet<String> texts = new TreeSet<>();
        messages.forEach(m -> texts.add(Inbox.text(m)));
        return texts;
    }

    private static void subscribed(Bed bed) throws Exception {
        String topic = bed.topic(3);
        String group = bed.name("g");
        DefaultMQProducer producer = bed.producer();
        TreeSet<String> first = Bed.send(producer, topic, "", "first", 30);
        DefaultLitePullConsumer consumer = bed.litePull(group);
        consumer.subscribe(topic, "*");
        consumer.setAutoCommit(false);
        consumer.start();
        List<MessageExt> got = poll(consumer, 30, 40);
        Check.equal(first, texts(got), "first messages");
        Check.equal(30, got.size(), "deliveries");
        consumer.commitSync();
        consumer.shutdown();
        TreeSet<String> second = Bed.send(producer, topic, "", "second", 20);
        DefaultLitePullConsumer successor = bed.litePull(group);
        successor.subscribe(topic, "*");
        successor.start();
        got = poll(successor, 20, 40);
        Check.equal(second, texts(got), "messages of the successor");
        Check.equal(List.of(), poll(successor, 1, 0.2), "further messages");
    }

    private static void tags(Bed bed) throws Exception {
        String topic = bed.topic(2);
        DefaultMQProducer producer = bed.producer();
        Bed.send(producer, topic, "A", "a", 10);
        TreeSet<String> wanted = Bed.send(producer, topic, "B", "b", 10);
        DefaultLitePullConsumer consumer = bed.litePull(bed.name("g"));
        consumer.subscribe(topic, "B || C");
        consumer.start();
        Check.equal(wanted, texts(poll(consumer, 10, 40)), "messages");
        wanted = Bed.send(producer, topic, "C", "c", 5);
        Check.equal(wanted, texts(poll(consumer, 5, 40)), "later messages");
    }

    private static void seeking(Bed bed) throws Exception {
        String topic = bed.topic(1);
        DefaultMQProducer producer = bed.producer();
        MessageQueue queue = bed.queues(topic).get(0);
        Bed.send(producer, queue, "early", 10);
        Thread.sleep(50);
        long between = System.currentTimeMillis();
        Thread.sleep(50);
        Bed.send(producer, queue, "late", 10);
        DefaultLitePullConsumer consumer = bed.litePull(bed.name("g"));
        consumer.setAutoCommit(false);
        consumer.start();
        Collection<MessageQueue> queues = consumer.fetchMessageQueues(topic);
        Check.equal(1, queues.size(), "queues");
        consumer.assign(queues);
        // The client of 4.9.8 hands out what a pull brings that was under way when it is told to seek.
        Check.equal(20, poll(consumer, 20, 40).size(), "messages from where a new group begins");
        Bed.awaitPull(consumer);
        consumer.seekToBegin(queue);
        Check.equal(0L, offsets(consumer, 20).get(0), "first offset after seeking to the begin");
        Bed.awaitPull(consumer);
        consumer.seek(queue, 7);
        Check.equal(7L, offsets(consumer, 13).get(0), "first offset after seeking to 7");
        long byTime = consumer.offsetForTimestamp(queue, between);
        Check.equal(10L, byTime, "offset by time");
        Bed.awaitPull(consumer);
        consumer.seek(queue, byTime);
        Check.equal(10L, offsets(consumer, 10).get(0), "first offset after seeking to the time");
        Bed.awaitPull(consumer);
        consumer.seekToEnd(queue);
        Check.equal(List.of(), poll(consumer, 1, 0.3), "messages at the end");
        Bed.send(producer, queue, "new", 3);
        Check.equal(20L, offsets(consumer, 3).get(0), "first offset after the end");
        Bed.awaitPull(consumer);
        consumer.seekToBegin(queue);
        Check.equal(23, offsets(consumer, 23).size(), "messages from the begin again");
    }

    private static List<Long> offsets(DefaultLitePullConsumer consumer, int count) {
        List<MessageExt> got = poll(consumer, count, 40);
        Check.equal(count, got.size(), "messages");
        List<Long> offsets = got.stream().map(MessageExt::getQueueOffset).toList();
        for (int i = 1; i < count; i++) {
            Check.equal(offsets.get(0) + i, offsets.get(i), "offsets are consecutive");
        }
        return offsets;
    }

    private static void committed(Bed bed) throws Exception {
        String topic = bed.topic(1);
        MessageQueue queue = bed.queues(topic).get(0);
        Bed.send(bed.producer(), queue, "m", 15);
        String group = bed.name("g");
        DefaultLitePullConsumer consumer = bed.litePull(group);
        consumer.setAutoCommit(false);
        // Not by a seek: after one, a pull that was under way may set this client's own offset back.
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.start();
        consumer.assign(List.of(queue));
        Check.equal(15, poll(consumer, 15, 40).size(), "messages");
        consumer.commitSync();
        Check.equal(15L, consumer.committed(queue), "committed offset");
        consumer.shutdown();
        var other = bed.pull(group);
        other.fetchSubscribeMessageQueues(topic);
        Check.within(30, "offset at the broker", () -> other.fetchConsumeOffset(queue, true) == 15);
    }

    private static void twoMembers(Bed bed) throws Exception {
        String topic = bed.topic(4);
        String group = bed.name("g");
        List<DefaultLitePullConsumer> members = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            DefaultLitePullConsumer consumer = bed.litePull(group);
            consumer.subscribe(topic, "*");
            consumer.start();
            members.add(consumer);
        }
        Check.within(30, "two queues each", () -> {
            Set<MessageQueue> all = new HashSet<>(members.get(0).assignment());
            all.addAll(members.get(1).assignment());
            return members.get(0).assignment().size() == 2 && members.get(1).assignment().size() == 2 && all.size() == 4;
        });
        TreeSet<String> wanted = Bed.send(bed.producer(), topic, "", "m", 40);
        TreeSet<String> got = new TreeSet<>();
        for (DefaultLitePullConsumer member : members) {
            List<MessageExt> share = poll(member, 20, 40);
            Check.equal(20, share.size(), "share of a member");
            got.addAll(texts(share));
        }
        Check.equal(wanted, got, "messages of both");
    }
}
