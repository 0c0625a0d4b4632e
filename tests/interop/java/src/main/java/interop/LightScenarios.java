package interop;

import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullCallback;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Light queues: a message that names them is in each, stored once. The broker has enableLmq and enableMultiDispatch. */
final class LightScenarios {
    private LightScenarios() { }

    static void addTo(Scenarios list) {
        list.suite("delivery");
        list.add("light-queues", "3.12 #114: a message is pulled from its topic and from every light queue it names", LightScenarios::dispatched);
        list.add("light-woken", "4.21: a pull held at a light queue is answered as a message comes", LightScenarios::woken);
        list.add("light-offsets", "4.21: offsets of light groups and of others, without a topic", LightScenarios::offsets);
        list.add("light-delayed", "4.21: what is delayed is in its light queues when it is due", LightScenarios::delayed);
        list.suite("delivery-restart");
        list.add("light-restart", "4.21: light queues and the offsets in them survive a restart", 120, LightScenarios::restarted);
    }

    /** The name of a light queue that no other scenario has; a client's own topic names may not begin so. */
    private static String light(Bed bed) {
        return "%LMQ%" + bed.name("l");
    }

    private static Message naming(String topic, String text, String... names) {
        Message message = new Message(topic, "T", "key-" + text, Bed.bytes(text));
        message.putUserProperty("INNER_MULTI_DISPATCH", String.join(",", names));
        return message;
    }

    /** A pull consumer that knows the broker's address by the route of a topic. */
    private static DefaultMQPullConsumer reader(Bed bed, String group, String topic) throws Exception {
        DefaultMQPullConsumer consumer = bed.pull(group);
        consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory().updateTopicRouteInfoFromNameServer(topic);
        return consumer;
    }

    /** Everything in a light queue from an offset on, once there is as much as expected. */
    private static List<MessageExt> all(DefaultMQPullConsumer consumer, MessageQueue queue, long from, int wanted) throws Exception {
        Check.within(30, wanted + " messages in " + queue.getTopic(), () -> consumer.maxOffset(queue) >= from + wanted);
        PullResult result = consumer.pull(queue, "*", from, 32);
        Check.equal(PullStatus.FOUND, result.getPullStatus(), "status in %s", queue.getTopic());
        Check.equal(from + wanted, result.getNextBeginOffset(), "next offset in %s", queue.getTopic());
        return result.getMsgFoundList();
    }

    private static void dispatched(Bed bed) throws Exception {
        String topic = bed.topic(2);
        String one = light(bed);
        String two = light(bed);
        DefaultMQProducer producer = bed.producer();
        for (int i = 0; i < 10; i++) {
            Bed.sent(producer.send(i % 2 == 0 ? naming(topic, "m" + i, one, two) : naming(topic, "m" + i, two)));
        }
        DefaultMQPullConsumer consumer = reader(bed, bed.name("g"), topic);
        MessageQueue both = new MessageQueue(one, bed.brokerName(), 0);
        List<MessageExt> half = all(consumer, both, 0, 5);
        for (int i = 0; i < 5; i++) {
            MessageExt message = half.get(i);
            Check.equal("m" + 2 * i, Inbox.text(message), "message %d", i);
            Check.equal(topic, message.getTopic(), "the topic it was sent to");
            Check.equal("T", message.getTags(), "its tag");
            Check.equal(i + "," + 2 * i, message.getProperty("INNER_MULTI_QUEUE_OFFSET"), "its offsets in the light queues");
            Check.equal(one + "," + two, message.getProperty("INNER_MULTI_DISPATCH"), "the queues it names");
        }
        Check.equal(10, all(consumer, new MessageQueue(two, bed.brokerName(), 0), 0, 10).size(), "messages in the other");
        Check.equal(PullStatus.NO_MATCHED_MSG, consumer.pull(both, "Other", 0, 32).getPullStatus(), "status for another tag");
        Check.equal(10L, bed.stored(topic), "messages in the topic itself");
    }

    private static void woken(Bed bed) throws Exception {
        String topic = bed.topic(1);
        String name = light(bed);
        DefaultMQPullConsumer consumer = reader(bed, bed.name("g"), topic);
        CompletableFuture<PullResult> held = new CompletableFuture<>();
        consumer.pullBlockIfNotFound(new MessageQueue(name, bed.brokerName(), 0), "*", 0, 32, new PullCallback() {
            @Override
            public void onSuccess(PullResult result) {
                held.complete(result);
            }

            @Override
            public void onException(Throwable error) {
                held.completeExceptionally(error);
            }
        });
        Bed.sent(bed.producer().send(naming(topic, "wakes", name)));
        PullResult result = held.get(120, TimeUnit.SECONDS);
        Check.equal(PullStatus.FOUND, result.getPullStatus(), "status");
        Check.equal("wakes", Inbox.text(result.getMsgFoundList().get(0)), "what woke it");
    }

    private static void offsets(Bed bed) throws Exception {
        String topic = bed.topic(1);
        String name = light(bed);
        DefaultMQProducer producer = bed.producer();
        for (int i = 0; i < 4; i++) {
            Bed.sent(producer.send(naming(topic, "m" + i, name)));
        }
        MessageQueue queue = new MessageQueue(name, bed.brokerName(), 0);
        for (String group : List.of(bed.name("g"), light(bed))) {
            DefaultMQPullConsumer consumer = reader(bed, group, topic);
            all(consumer, queue, 0, 4);
            consumer.getDefaultMQPullConsumerImpl().updateConsumeOffset(queue, 3);
            consumer.getDefaultMQPullConsumerImpl().getOffsetStore().persist(queue);
            Check.within(30, "the offset of " + group, () -> consumer.fetchConsumeOffset(queue, true) == 3);
        }
    }

    private static void delayed(Bed bed) throws Exception {
        String topic = bed.topic(1);
        String name = light(bed);
        Message message = naming(topic, "later", name);
        message.setDelayTimeLevel(2);
        Bed.sent(bed.producer().send(message));
        List<MessageExt> found = all(reader(bed, bed.name("g"), topic), new MessageQueue(name, bed.brokerName(), 0), 0, 1);
        Check.equal("later", Inbox.text(found.get(0)), "the message");
        Check.equal("0", found.get(0).getProperty("INNER_MULTI_QUEUE_OFFSET"), "its offset in the light queue");
    }

    private static void restarted(Bed bed) throws Exception {
        String topic = bed.topic(1);
        String name = light(bed);
        String group = light(bed);
        DefaultMQProducer producer = bed.producer();
        for (int i = 0; i < 3; i++) {
            Bed.sent(producer.send(naming(topic, "m" + i, name)));
        }
        MessageQueue queue = new MessageQueue(name, bed.brokerName(), 0);
        DefaultMQPullConsumer consumer = reader(bed, group, topic);
        all(consumer, queue, 0, 3);
        consumer.getDefaultMQPullConsumerImpl().updateConsumeOffset(queue, 2);
        consumer.getDefaultMQPullConsumerImpl().getOffsetStore().persist(queue);
        Check.within(30, "the offset of " + group, () -> consumer.fetchConsumeOffset(queue, true) == 2);
        bed.target.control("restart");
        Check.within(60, "the broker after its restart", () -> consumer.fetchConsumeOffset(queue, true) == 2);
        Check.within(60, "a send after the restart", () -> {
            producer.send(naming(topic, "after", name));
            return true;
        });
        TreeSet<String> texts = new TreeSet<>();
        Check.within(30, "the fourth message", () -> consumer.maxOffset(queue) >= 4);
        consumer.pull(queue, "*", 0, 32).getMsgFoundList().forEach(message -> texts.add(Inbox.text(message)));
        Check.equal(new TreeSet<>(List.of("m0", "m1", "m2", "after")), texts, "all messages");
    }
}
