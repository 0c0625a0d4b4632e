package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * What one scenario stands on: names of its own, clients that are closed when it ends, and the shared admin client.
 * Each client is an instance of its own, so it has a connection of its own, as separate processes would.
 */
final class Bed {
    interface Closing {
        void close() throws Exception;
    }

    /** How long a client waits for an answer: with their own limits, of 3 s, a busy machine makes them give up. */
    static final int ANSWER_MS = 30_000;
    private static final AtomicInteger CLIENTS = new AtomicInteger();
    private static final String RUN = Long.toString(System.currentTimeMillis() % 1_000_000_000L, 36);

    final String scenario;
    final Target target;
    final DefaultMQAdminExt admin;
    private final Deque<Closing> closings = new ArrayDeque<>();
    private int names;

    Bed(String scenario, Target target, DefaultMQAdminExt admin) {
        this.scenario = scenario;
        this.target = target;
        this.admin = admin;
    }

    void atEnd(Closing closing) {
        closings.push(closing);
    }

    void close() {
        while (!closings.isEmpty()) {
            try {
                closings.pop().close();
            } catch (Exception e) {
                System.err.println("closing a client of " + scenario + ": " + e);
            }
        }
    }

    String name(String kind) {
        return "it_" + scenario + "_" + RUN + "_" + kind + (names++);
    }

    /** A new topic that the broker and the name server know. */
    String topic(int queues) throws Exception {
        return topic(queues, queues, 6);
    }

    String topic(int writeQueues, int readQueues, int permissions) throws Exception {
        String topic = name("t");
        createTopic(topic, writeQueues, readQueues, permissions);
        return topic;
    }

    void createTopic(String topic, int writeQueues, int readQueues, int permissions) throws Exception {
        TopicConfig config = new TopicConfig(topic);
        config.setWriteQueueNums(writeQueues);
        config.setReadQueueNums(readQueues);
        config.setPerm(permissions);
        admin.createAndUpdateTopicConfig(brokerAddress(), config);
        Check.within(30, "route of the new topic " + topic, () -> {
            var queues = admin.examineTopicRouteInfo(topic).getQueueDatas();
            return queues.size() == 1 && queues.get(0).getWriteQueueNums() == writeQueues
                && queues.get(0).getPerm() == permissions;
        });
    }

    String brokerAddress() throws Exception {
        var brokers = admin.examineBrokerClusterInfo().getBrokerAddrTable();
        Check.equal(1, brokers.size(), "number of brokers");
        return brokers.values().iterator().next().selectBrokerAddr();
    }

    String brokerName() throws Exception {
        return admin.examineBrokerClusterInfo().getBrokerAddrTable().keySet().iterator().next();
    }

    String clusterName() throws Exception {
        return admin.examineBrokerClusterInfo().getClusterAddrTable().keySet().iterator().next();
    }

    List<MessageQueue> queues(String topic) throws Exception {
        var route = admin.examineTopicRouteInfo(topic).getQueueDatas().get(0);
        List<MessageQueue> queues = new ArrayList<>();
        for (int id = 0; id < route.getReadQueueNums(); id++) {
            queues.add(new MessageQueue(topic, route.getBrokerName(), id));
        }
        return queues;
    }

    /** Sum over the topic's queues of max offsets: how many messages it ever took. */
    long stored(String topic) throws Exception {
        long sum = 0;
        for (MessageQueue queue : queues(topic)) {
            sum += admin.maxOffset(queue);
        }
        return sum;
    }

    /** Waits until the broker shows that a group has had all; the last commit of a client that stops waits for no answer. */
    void awaitConsumed(String group, String topic) throws Exception {
        int queues = queues(topic).size();
        Check.within(30, "all of " + topic + " consumed by " + group, () -> {
            var progress = admin.examineConsumeStats(group, topic);
            return progress.getOffsetTable().size() == queues && progress.computeTotalDiff() == 0;
        });
    }

    /** The retry topic of a new group, which its first member makes, and then leaves. */
    String retryTopic(String group, String topic) throws Exception {
        DefaultMQPushConsumer first = pushing(group, topic, "*", new Inbox());
        String retries = "%RETRY%" + group;
        Check.within(30, "the retry topic", () -> queues(retries).size() == 1);
        first.shutdown();
        return retries;
    }

    private static String instance() {
        return ProcessHandle.current().pid() + "i" + CLIENTS.incrementAndGet();
    }

    /**
     * The client drops the heartbeat that should announce a new subscription version when its periodic heartbeat is under way,
     * which at a start is often so; pulls are then refused with 25 until the next one. That next one shall not be 30 s away.
     */
    private <C extends ClientConfig> C configured(C client) {
        client.setNamesrvAddr(target.nameServer());
        client.setInstanceName(instance());
        client.setHeartbeatBrokerInterval(4000);
        client.setPollNameServerInterval(5000);
        client.setMqClientApiTimeout(ANSWER_MS);
        return client;
    }

    DefaultMQProducer producer() throws Exception {
        return producer(name("pg"));
    }

    DefaultMQProducer producer(String group) throws Exception {
        DefaultMQProducer producer = unstartedProducer(group);
        producer.start();
        return producer;
    }

    DefaultMQProducer unstartedProducer(String group) {
        DefaultMQProducer producer = configured(new DefaultMQProducer(group));
        producer.setSendMsgTimeout(ANSWER_MS);
        producer.setMaxMessageSize(16 << 20);
        atEnd(producer::shutdown);
        return producer;
    }

    /** Configures and starts a producer of another kind. */
    void starts(DefaultMQProducer producer) throws Exception {
        configured(producer).setSendMsgTimeout(ANSWER_MS);
        atEnd(producer::shutdown);
        producer.start();
    }

    /**
     * A push consumer that is not started; it starts a new group at the first message. When it is shut down it waits for its
     * listeners: the client notes that a message is consumed after the listener has returned, and what it has not noted by then it
     * does not commit.
     */
    DefaultMQPushConsumer push(String group) {
        DefaultMQPushConsumer consumer = configured(new DefaultMQPushConsumer(group));
        consumer.setAwaitTerminationMillisWhenShutdown(30_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        atEnd(consumer::shutdown);
        return consumer;
    }

    /** A started concurrent push consumer of one topic and expression. */
    DefaultMQPushConsumer pushing(String group, String topic, String expression, Inbox inbox) throws Exception {
        return pushing(push(group), topic, expression, inbox);
    }

    /** The same with a consumer that has further settings. */
    static DefaultMQPushConsumer pushing(DefaultMQPushConsumer consumer, String topic, String expression, Inbox inbox) throws Exception {
        consumer.subscribe(topic, expression);
        consumer.registerMessageListener(inbox.concurrently);
        consumer.start();
        return consumer;
    }

    DefaultMQPullConsumer pull(String group) throws Exception {
        DefaultMQPullConsumer consumer = configured(new DefaultMQPullConsumer(group));
        consumer.setConsumerPullTimeoutMillis(ANSWER_MS);
        consumer.setConsumerTimeoutMillisWhenSuspend(2 * ANSWER_MS);
        consumer.start();
        atEnd(consumer::shutdown);
        return consumer;
    }

    DefaultLitePullConsumer litePull(String group) {
        DefaultLitePullConsumer consumer = configured(new DefaultLitePullConsumer(group));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        atEnd(consumer::shutdown);
        return consumer;
    }

    /**
     * Waits until a pull of this consumer's waits at the broker. A pull that is only setting out when its client seeks takes the
     * new offset for its own and is then given up, so that nobody goes there: the released clients do so at Java's broker as well.
     */
    static void awaitPull(DefaultLitePullConsumer consumer) throws Exception {
        String thread = "PullMsgThread-" + consumer.getConsumerGroup();
        Check.within(30, "a pull under way", () -> Thread.getAllStackTraces().entrySet().stream()
            .filter(running -> running.getKey().getName().startsWith(thread))
            .anyMatch(running -> Stream.of(running.getValue()).anyMatch(frame -> frame.getMethodName().equals("pullSyncImpl"))));
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static SendResult sent(SendResult result) {
        Check.equal(SendStatus.SEND_OK, result.getSendStatus(), "send status of " + result);
        return result;
    }

    /** Sends `prefix-0` … `prefix-(count-1)` and returns the set of texts. */
    static TreeSet<String> send(DefaultMQProducer producer, String topic, String tag, String prefix, int count) throws Exception {
        TreeSet<String> texts = new TreeSet<>();
        for (int i = 0; i < count; i++) {
            String text = prefix + "-" + i;
            sent(producer.send(new Message(topic, tag, text, bytes(text))));
            texts.add(text);
        }
        return texts;
    }

    static TreeSet<String> send(DefaultMQProducer producer, MessageQueue queue, String prefix, int count) throws Exception {
        TreeSet<String> texts = new TreeSet<>();
        for (int i = 0; i < count; i++) {
            String text = prefix + "-" + i;
            sent(producer.send(new Message(queue.getTopic(), "", text, bytes(text)), queue));
            texts.add(text);
        }
        return texts;
    }
}
