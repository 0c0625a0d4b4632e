package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.stream.LongStream;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** What only the 5.x client can ask for. */
public final class Release5Scenarios {
    private Release5Scenarios() { }

    /** Called by name, since this file is not compiled with the old client. */
    public static void addTo(Scenarios list) {
        list.suite("everyday");
        list.add("send-compressed-lz4", "body compressed by LZ4", bed -> compressed(bed, CompressionType.LZ4));
        list.add("send-compressed-zstd", "body compressed by Zstandard", bed -> compressed(bed, CompressionType.ZSTD));
        list.add("batch-queue", "3.2 #19: a batch is one record with an offset for each message", Release5Scenarios::batchQueue);
        list.add("batch-queue-whole", "3.2 #20, #21: no message yet is -1, and a pull takes whole batches", Release5Scenarios::wholeBatches);
        list.add("group-assigned-by-broker", "3.6 #56: members that let the broker share the queues out", Release5Scenarios::assigned);
        list.add("progress-pulled", "3.8 #74, #75: what was handed out counts apart from what was consumed", Release5Scenarios::pulled);
        list.add("delay-by-setters", "3.3 #25: the client's own ways to name a time", Release5Scenarios::timed);
    }

    private static void assigned(Bed bed) throws Exception {
        String topic = bed.topic(4);
        String group = bed.name("g");
        List<Inbox> inboxes = List.of(new Inbox(), new Inbox());
        for (Inbox inbox : inboxes) {
            DefaultMQPushConsumer member = bed.push(group);
            member.setClientRebalance(false);
            member.subscribe(topic, "*");
            member.registerMessageListener(inbox.concurrently);
            member.start();
        }
        DefaultMQProducer producer = bed.producer();
        Check.within(50, "two queues for each member", () -> {
            List<Integer> before = inboxes.stream().map(Inbox::size).toList();
            Bed.send(producer, topic, "", "round", 4);
            Check.within(2, "the round", () -> inboxes.get(0).size() + inboxes.get(1).size() >= before.get(0) + before.get(1) + 4);
            return inboxes.get(0).size() == before.get(0) + 2 && inboxes.get(1).size() == before.get(1) + 2;
        });
    }

    private static void pulled(Bed bed) throws Exception {
        String topic = bed.topic(1);
        String group = bed.name("g");
        CountDownLatch go = new CountDownLatch(1);
        bed.atEnd(go::countDown);
        DefaultMQPushConsumer consumer = bed.push(group);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            try {
                go.await();
            } catch (InterruptedException e) {
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Bed.send(bed.producer(), topic, "", "m", 10);
        var queue = bed.queues(topic).get(0);
        Check.within(50, "ten handed out, none consumed", () -> {
            var progress = bed.admin.examineConsumeStats(group, topic).getOffsetTable().get(queue);
            return progress.getBrokerOffset() == 10 && progress.getConsumerOffset() == 0 && progress.getPullOffset() == 10;
        });
        go.countDown();
        Check.within(50, "ten consumed", () ->
            bed.admin.examineConsumeStats(group, topic).getOffsetTable().get(queue).getConsumerOffset() == 10);
    }

    private static void timed(Bed bed) throws Exception {
        String topic = bed.topic(1);
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "*", inbox);
        DefaultMQProducer producer = bed.producer();
        TreeMap<String, Long> dues = new TreeMap<>();
        for (String way : new String[] {"deliver", "ms", "seconds"}) {
            Message message = new Message(topic, Bed.bytes(way));
            long now = System.currentTimeMillis();
            switch (way) {
                case "deliver" -> message.setDeliverTimeMs(now + 1500);
                case "ms" -> message.setDelayTimeMs(1500);
                default -> message.setDelayTimeSec(2);
            }
            Bed.sent(producer.send(message));
            dues.put(way, now + (way.equals("seconds") ? 2000 : 1500));
        }
        TimerScenarios.awaitTimes(inbox, dues);
    }

    private static void compressed(Bed bed, CompressionType type) throws Exception {
        String topic = bed.topic(1);
        DefaultMQProducer producer = bed.producer();
        producer.setCompressType(type);
        String text = "compressible ".repeat(8000);
        SendResult result = Bed.sent(producer.send(new Message(topic, "Big", "big", Bed.bytes(text))));
        Check.equal(text, Inbox.text(bed.admin.viewMessage(topic, result.getOffsetMsgId())), "body as viewed");
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "Big", inbox);
        Check.within(30, "the message", () -> inbox.size() == 1);
        MessageExt got = inbox.messages().get(0);
        Check.equal(text, Inbox.text(got), "body as consumed");
        Check.that(got.getStoreSize() < text.length() / 10, "stored size %d shows compression", got.getStoreSize());
        Check.equal(type.getCompressionFlag(), got.getSysFlag() & (7 << 8), "kind of compression in the system flag");
    }

    private static String batchTopic(Bed bed) throws Exception {
        String topic = bed.name("t");
        TopicConfig config = new TopicConfig(topic, 1, 1, 6);
        config.setAttributes(Map.of("+queue.type", "BatchCQ"));
        bed.admin.createAndUpdateTopicConfig(bed.brokerAddress(), config);
        Check.within(30, "route of the new topic", () -> bed.queues(topic).size() == 1);
        return topic;
    }

    private static List<Message> batch(String topic, int size) {
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < size; i++) {
            batch.add(new Message(topic, "Tag", Bed.bytes("m" + size + "-" + i)));
        }
        return batch;
    }

    private static void wholeBatches(Bed bed) throws Exception {
        String topic = batchTopic(bed);
        MessageQueue queue = bed.queues(topic).get(0);
        MessageQueue plain = bed.queues(bed.topic(1)).get(0);
        Check.equal(-1L, bed.admin.minOffset(queue), "min of a batch queue without messages");
        Check.equal(0L, bed.admin.maxOffset(queue), "max of a batch queue without messages");
        Check.equal(0L, bed.admin.minOffset(plain), "min of a plain queue without messages");
        DefaultMQProducer producer = bed.producer();
        for (int i = 0; i < 5; i++) {
            Bed.sent(producer.send(batch(topic, 10)));
        }
        Check.equal(0L, bed.admin.minOffset(queue), "min");
        Check.equal(50L, bed.admin.maxOffset(queue), "max");
        DefaultMQPullConsumer consumer = bed.pull(bed.name("g"));
        consumer.fetchSubscribeMessageQueues(topic);
        for (int[] pull : new int[][] {{5, 20, 0, 20}, {25, 1, 20, 30}, {45, 32, 40, 50}}) {
            PullResult result = consumer.pull(queue, "*", pull[0], pull[1]);
            Check.equal(PullStatus.FOUND, result.getPullStatus(), "status from %d", pull[0]);
            List<Long> offsets = result.getMsgFoundList().stream().map(MessageExt::getQueueOffset).toList();
            Check.equal(LongStream.range(pull[2], pull[3]).boxed().toList(), offsets, "offsets of %d from %d", pull[1], pull[0]);
            Check.equal((long) pull[3], result.getNextBeginOffset(), "next offset");
        }
    }

    private static void batchQueue(Bed bed) throws Exception {
        String topic = batchTopic(bed);
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "*", inbox);
        DefaultMQProducer producer = bed.producer();
        TreeSet<String> wanted = new TreeSet<>();
        long next = 0;
        for (int size : List.of(3, 1, 5)) {
            List<Message> batch = batch(topic, size);
            batch.forEach(message -> wanted.add(new String(message.getBody(), StandardCharsets.UTF_8)));
            SendResult result = Bed.sent(producer.send(batch));
            Check.equal(next, result.getQueueOffset(), "offset of the first message");
            Check.that(!result.getMsgId().contains(","), "one id for the batch: %s", result.getMsgId());
            next += size;
        }
        Check.equal(next, bed.admin.maxOffset(bed.queues(topic).get(0)), "end of the queue");
        inbox.awaitExactly(wanted, 40);
        TreeSet<Long> offsets = new TreeSet<>();
        inbox.messages().forEach(message -> offsets.add(message.getQueueOffset()));
        Check.equal(next, (long) offsets.size(), "each message has an offset of its own");
    }
}
