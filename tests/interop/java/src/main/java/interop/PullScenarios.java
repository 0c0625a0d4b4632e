package interop;

import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullCallback;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The classic pull consumer, which shows the broker's pull answers as they are. */
final class PullScenarios {
    private PullScenarios() { }

    static void addTo(Scenarios list) {
        list.suite("everyday");
        list.add("pull-found", "3.8 #67: at most 32 at a time, next offset, min and max", PullScenarios::found);
        list.add("pull-statuses", "3.8 #68: nothing new, illegal offsets, empty queue", PullScenarios::statuses);
        list.add("pull-no-match", "3.7 #62: nothing matches, the next offset moves on", PullScenarios::noMatch);
        list.add("pull-held", "3.8 #66: held for the suspend time of the request, not shorter", PullScenarios::held);
        list.add("pull-woken", "3.8 #66: answered as a message arrives", PullScenarios::woken);
        list.add("pull-woken-by-match-only", "3.8 #66: a message with another tag does not end the wait with an answer", PullScenarios::wokenByMatch);
        list.add("pull-queue-out-of-range", "3.8 #69: refused as an invalid parameter", PullScenarios::outOfRange);
        list.add("pull-unknown-topic", "3.8 #69: no route, and 17 from the broker", PullScenarios::unknownTopic);
        list.add("pull-offsets", "3.8 #70, #72: unknown group, commit, read back, backwards", PullScenarios::offsets);
        list.add("pull-min-max-time", "min, max, offset by time, earliest store time", PullScenarios::positions);
        list.add("pull-no-read-permission", "3.8 #69: a topic without R is refused", PullScenarios::noRead);
    }

    private static void found(Bed bed) throws Exception {
        String topic = bed.topic(1);
        DefaultMQProducer producer = bed.producer();
        Bed.send(producer, topic, "", "m", 80);
        DefaultMQPullConsumer consumer = bed.pull(bed.name("g"));
        Set<MessageQueue> queues = consumer.fetchSubscribeMessageQueues(topic);
        Check.equal(1, queues.size(), "queues");
        MessageQueue queue = queues.iterator().next();
        PullResult result = consumer.pull(queue, "*", 0, 50);
        Check.equal(PullStatus.FOUND, result.getPullStatus(), "status");
        Check.equal(32, result.getMsgFoundList().size(), "messages in one pull");
        Check.equal(32L, result.getNextBeginOffset(), "next offset");
        Check.equal(0L, result.getMinOffset(), "min offset");
        Check.equal(80L, result.getMaxOffset(), "max offset");
        long offset = 0;
        TreeSet<String> texts = new TreeSet<>();
        while (offset < 80) {
            result = consumer.pull(queue, (String) null, offset, 7);
            Check.equal(PullStatus.FOUND, result.getPullStatus(), "status at " + offset);
            for (MessageExt message : result.getMsgFoundList()) {
                Check.equal(offset++, message.getQueueOffset(), "queue offset");
                texts.add(Inbox.text(message));
            }
            Check.equal(offset, result.getNextBeginOffset(), "next offset");
        }
        Check.equal(80, texts.size(), "different messages");
        // 256 KiB per answer unless one message alone is larger.
        for (int i = 0; i < 4; i++) {
            org.apache.rocketmq.common.message.Message large = new org.apache.rocketmq.common.message.Message(topic, new byte[100_000]);
            new java.util.Random(i).nextBytes(large.getBody());
            Bed.sent(producer.send(large));
        }
        Check.equal(2, consumer.pull(queue, "*", 80, 32).getMsgFoundList().size(), "messages of 100,000 bytes in one pull");
    }

    private static void statuses(Bed bed) throws Exception {
        String topic = bed.topic(2);
        DefaultMQProducer producer = bed.producer();
        MessageQueue queue = bed.queues(topic).get(0);
        MessageQueue empty = bed.queues(topic).get(1);
        Bed.send(producer, queue, "m", 10);
        DefaultMQPullConsumer consumer = bed.pull(bed.name("g"));
        consumer.fetchSubscribeMessageQueues(topic);
        PullResult end = consumer.pull(queue, "*", 10, 32);
        Check.equal(PullStatus.NO_NEW_MSG, end.getPullStatus(), "status at the end");
        Check.equal(10L, end.getNextBeginOffset(), "next offset at the end");
        PullResult beyond = consumer.pull(queue, "*", 11, 32);
        Check.equal(PullStatus.OFFSET_ILLEGAL, beyond.getPullStatus(), "status beyond the end");
        Check.equal(10L, beyond.getNextBeginOffset(), "next offset beyond the end");
        PullResult nothing = consumer.pull(empty, "*", 0, 32);
        Check.equal(PullStatus.NO_NEW_MSG, nothing.getPullStatus(), "status of an empty queue at 0");
        PullResult off = consumer.pull(empty, "*", 5, 32);
        Check.equal(PullStatus.OFFSET_ILLEGAL, off.getPullStatus(), "status of an empty queue at 5");
        Check.equal(0L, off.getNextBeginOffset(), "next offset of an empty queue");
    }

    private static void noMatch(Bed bed) throws Exception {
        String topic = bed.topic(1);
        Bed.send(bed.producer(), topic, "Other", "m", 20);
        DefaultMQPullConsumer consumer = bed.pull(bed.name("g"));
        MessageQueue queue = consumer.fetchSubscribeMessageQueues(topic).iterator().next();
        PullResult result = consumer.pull(queue, "Wanted", 0, 32);
        Check.equal(PullStatus.NO_MATCHED_MSG, result.getPullStatus(), "status");
        Check.equal(20L, result.getNextBeginOffset(), "next offset");
    }

    private static void held(Bed bed) throws Exception {
        String topic = bed.topic(1);
        DefaultMQPullConsumer consumer = bed.pull(bed.name("g"));
        consumer.setBrokerSuspendMaxTimeMillis(4000);
        MessageQueue queue = consumer.fetchSubscribeMessageQueues(topic).iterator().next();
        long started = System.nanoTime();
        PullResult result = consumer.pullBlockIfNotFound(queue, "*", 0, 32);
        double seconds = (System.nanoTime() - started) / 1e9;
        Check.equal(PullStatus.NO_NEW_MSG, result.getPullStatus(), "status");
        // The reference looks every five seconds only.
        Check.that(seconds >= 3.9 && seconds < 15, "held for %.2f s", seconds);
    }

    private static CompletableFuture<PullResult> holding(DefaultMQPullConsumer consumer, MessageQueue queue, String tags, long offset)
        throws Exception {
        CompletableFuture<PullResult> answer = new CompletableFuture<>();
        consumer.pullBlockIfNotFound(queue, tags, offset, 32, new PullCallback() {
            @Override
            public void onSuccess(PullResult result) {
                answer.complete(result);
            }

            @Override
            public void onException(Throwable fault) {
                answer.completeExceptionally(fault);
            }
        });
        return answer;
    }

    private static void woken(Bed bed) throws Exception {
        String topic = bed.topic(1);
        DefaultMQProducer producer = bed.producer();
        DefaultMQPullConsumer consumer = bed.pull(bed.name("g"));
        MessageQueue queue = consumer.fetchSubscribeMessageQueues(topic).iterator().next();
        Bed.send(producer, queue, "warm-up", 1);
        for (int i = 1; i <= 5; i++) {
            CompletableFuture<PullResult> answer = holding(consumer, queue, "*", i);
            Thread.sleep(400);
            Check.that(!answer.isDone(), "the pull is held");
            long sent = System.nanoTime();
            Bed.send(producer, queue, "m" + i, 1);
            PullResult result = answer.get(120, TimeUnit.SECONDS);
            long elapsed = (System.nanoTime() - sent) / 1_000_000;
            Check.equal(PullStatus.FOUND, result.getPullStatus(), "status");
            Check.equal("m" + i + "-0", Inbox.text(result.getMsgFoundList().get(0)), "message");
            // Otherwise it would be held for 20 s.
            Check.that(elapsed < 10_000, "answered %d ms after the send began", elapsed);
        }
    }

    private static void wokenByMatch(Bed bed) throws Exception {
        String topic = bed.topic(1);
        DefaultMQProducer producer = bed.producer();
        DefaultMQPullConsumer consumer = bed.pull(bed.name("g"));
        MessageQueue queue = consumer.fetchSubscribeMessageQueues(topic).iterator().next();
        CompletableFuture<PullResult> answer = holding(consumer, queue, "Wanted", 0);
        Thread.sleep(300);
        Bed.send(producer, topic, "Other", "other", 3);
        Thread.sleep(700);
        // The reference looks at every held pull each five seconds and then answers without a match.
        Check.that(bed.target.isJava() || !answer.isDone(), "the pull is still held, not %s", answer);
        Bed.send(producer, topic, "Wanted", "wanted", 1);
        PullResult result = answer.get(120, TimeUnit.SECONDS);
        if (bed.target.isJava() && result.getPullStatus() != PullStatus.FOUND) {
            result = holding(consumer, queue, "Wanted", result.getNextBeginOffset()).get(120, TimeUnit.SECONDS);
        }
        Check.equal(PullStatus.FOUND, result.getPullStatus(), "status");
        Check.equal(1, result.getMsgFoundList().size(), "messages");
        Check.equal("wanted-0", Inbox.text(result.getMsgFoundList().get(0)), "message");
        Check.equal(4L, result.getNextBeginOffset(), "next offset");
    }

    private static void outOfRange(Bed bed) throws Exception {
        String topic = bed.topic(2);
        DefaultMQPullConsumer consumer = bed.pull(bed.name("g"));
        consumer.fetchSubscribeMessageQueues(topic);
        MQBrokerException fault = Check.refused(MQBrokerException.class, "queue 2 of 2",
            () -> consumer.pull(new MessageQueue(topic, bed.brokerName(), 2), "*", 0, 32));
        Check.equal(bed.target.invalidParameter(), fault.getResponseCode(), "code");
    }

    private static void unknownTopic(Bed bed) throws Exception {
        String known = bed.topic(1);
        String unknown = bed.name("none");
        DefaultMQPullConsumer consumer = bed.pull(bed.name("g"));
        consumer.fetchSubscribeMessageQueues(known);
        Check.refused(MQClientException.class, "queues of an unknown topic", () -> consumer.fetchSubscribeMessageQueues(unknown));
        MQClientException route = Check.refused(MQClientException.class, "route of an unknown topic",
            () -> bed.admin.examineTopicRouteInfo(unknown));
        Check.equal(17, route.getResponseCode(), "code of the name server");
        Check.contains(route.getErrorMessage(), "No topic route info in name server for the topic: " + unknown, "remark");
        // The client knows the broker's address once it has a route with it.
        consumer.pull(bed.queues(known).get(0), "*", 0, 1);
        MQBrokerException fault = Check.refused(MQBrokerException.class, "pull of an unknown topic",
            () -> consumer.pull(new MessageQueue(unknown, bed.brokerName(), 0), "*", 0, 32));
        Check.equal(17, fault.getResponseCode(), "code of the broker");
    }

    private static void offsets(Bed bed) throws Exception {
        String topic = bed.topic(1);
        DefaultMQProducer producer = bed.producer();
        DefaultMQPullConsumer consumer = bed.pull(bed.name("g"));
        MessageQueue queue = consumer.fetchSubscribeMessageQueues(topic).iterator().next();
        Bed.send(producer, queue, "m", 30);
        Check.within(30, "offset 0 of a new group on a young queue", () -> consumer.fetchConsumeOffset(queue, true) == 0);
        // The broker makes the group at its first heartbeat, which the old client sends when it knows the broker.
        consumer.pull(queue, "*", 0, 1);
        Check.within(30, "the group is known", () -> {
            consumer.getDefaultMQPullConsumerImpl().getOffsetStore().updateConsumeOffsetToBroker(queue, 1, false);
            return true;
        });
        for (long offset : new long[] {20, 30, 5}) {
            consumer.getDefaultMQPullConsumerImpl().getOffsetStore().updateConsumeOffsetToBroker(queue, offset, false);
            Check.equal(offset, consumer.fetchConsumeOffset(queue, true), "offset read back");
        }
        Check.within(30, "offsets in the group's progress", () -> {
            var progress = bed.admin.examineConsumeStats(consumer.getConsumerGroup(), topic).getOffsetTable().get(queue);
            return progress.getConsumerOffset() == 5 && progress.getBrokerOffset() == 30;
        });
    }

    private static void positions(Bed bed) throws Exception {
        String topic = bed.topic(1);
        DefaultMQProducer producer = bed.producer();
        MessageQueue queue = bed.queues(topic).get(0);
        DefaultMQPullConsumer consumer = bed.pull(bed.name("g"));
        consumer.fetchSubscribeMessageQueues(topic);
        Check.equal(0L, consumer.minOffset(queue), "min of an empty queue");
        Check.equal(0L, consumer.maxOffset(queue), "max of an empty queue");
        long before = System.currentTimeMillis();
        Thread.sleep(20);
        Bed.send(producer, queue, "early", 10);
        Thread.sleep(50);
        long between = System.currentTimeMillis();
        Thread.sleep(50);
        Bed.send(producer, queue, "late", 10);
        Thread.sleep(20);
        long after = System.currentTimeMillis() + 10_000;
        Check.equal(0L, consumer.minOffset(queue), "min");
        Check.equal(20L, consumer.maxOffset(queue), "max");
        Check.equal(0L, consumer.searchOffset(queue, before), "offset by a time before all");
        Check.equal(10L, consumer.searchOffset(queue, between), "offset by a time in the middle");
        Check.equal(20L, consumer.searchOffset(queue, after), "offset by a time after all");
        long earliest = consumer.earliestMsgStoreTime(queue);
        Check.that(earliest >= before && earliest <= between, "earliest store time %d, sent between %d and %d", earliest, before, between);
        var status = bed.admin.examineTopicStats(topic).getOffsetTable();
        Check.equal(1, status.size(), "queues in the topic's status");
        Check.equal(20L, status.get(queue).getMaxOffset(), "max in the topic's status");
        Check.equal(0L, status.get(queue).getMinOffset(), "min in the topic's status");
        Check.that(status.get(queue).getLastUpdateTimestamp() >= between, "last update");
    }

    private static void noRead(Bed bed) throws Exception {
        String topic = bed.topic(1, 1, 2);
        DefaultMQPullConsumer consumer = bed.pull(bed.name("g"));
        Bed.send(bed.producer(), topic, "", "m", 3);
        // The client drops queues without R from the route; the broker refuses by itself.
        consumer.fetchSubscribeMessageQueues(bed.topic(1));
        MQBrokerException fault = Check.refused(MQBrokerException.class, "pull of a topic without R",
            () -> consumer.pull(new MessageQueue(topic, bed.brokerName(), 0), "*", 0, 32));
        Check.equal(16, fault.getResponseCode(), "code");
    }
}
