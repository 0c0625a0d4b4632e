package interop;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Transactions, retries, dead letters and order, on a broker whose times are short: transactionTimeOut 1 s,
 * transactionCheckInterval 1 s, transactionCheckMax 8, delay levels 1 s (1 to 3) and 2 s (4 on).
 */
final class DeliveryScenarios {
    private static final String GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC";

    private DeliveryScenarios() { }

    static void addTo(Scenarios list) {
        list.suite("delivery");
        list.add("tx-commit-and-rollback", "3.11 #104, #112: a half message is seen once committed, never when rolled back", DeliveryScenarios::commit);
        list.add("tx-check", "3.11 #106, #107: the producer is asked until it knows", DeliveryScenarios::check);
        list.add("tx-given-up", "3.11 #106: after the last check it lies in a topic of its own", DeliveryScenarios::givenUp);
        list.add("tx-lost-producer", "3.11 #107: another producer of the group is asked", DeliveryScenarios::lostProducer);
        list.add("tx-immunity", "3.11 #108: the producer sets when it is asked first", DeliveryScenarios::immunity);
        list.add("retry-levels", "3.5 #37, #38, #47: later each time, with the number of failures", DeliveryScenarios::levels);
        list.add("retry-dead-letter", "3.5 #39, #42, #44: beyond the consumer's limit it is dead, and readable", bed -> dead(bed, 1));
        list.add("retry-none", "3.5 #39: with a limit of 0 the first failure is the last", bed -> dead(bed, 0));
        list.add("retry-chosen-level", "3.5 #40: the listener chooses the level, -1 is the end", DeliveryScenarios::chosenLevel);
        list.add("delay-beyond-levels", "3.3 #23: a level that there is not is the last", DeliveryScenarios::beyondLevels);
        list.add("retry-send-back", "4.3: sendMessageBack with a level", DeliveryScenarios::sendBack);
        list.add("orderly-suspend", "3.5 #41: tried in place, then dead at once, and the next flows", DeliveryScenarios::suspend);
        list.add("orderly-member-change", "3.6 #48, #52, #55: order is kept when members come and go", 90, bed -> order(bed, DeliveryScenarios::comeAndGo));
        list.suite("delivery-restart");
        list.add("orderly-restart", "order is kept over a restart of the broker", 120, bed -> order(bed, DeliveryScenarios::restart));
    }

    /** What a producer decides, and what it was asked. */
    private static final class Ledger implements TransactionListener {
        /** What it says from the second question about a key on; the first it leaves open, and notes how much had come by the second. */
        final Map<String, LocalTransactionState> later = Collections.synchronizedMap(new HashMap<>());
        final Map<String, Integer> cameBefore = Collections.synchronizedMap(new HashMap<>());
        Inbox inbox = new Inbox();
        final Map<String, LocalTransactionState> checks = Collections.synchronizedMap(new HashMap<>());
        final List<MessageExt> asked = Collections.synchronizedList(new ArrayList<>());
        final List<Long> askedAt = Collections.synchronizedList(new ArrayList<>());

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object wanted) {
            return (LocalTransactionState) wanted;
        }

        boolean isAsked(String key) {
            return List.copyOf(asked).stream().anyMatch(message -> message.getKeys().equals(key));
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            boolean isAskedAgain = isAsked(message.getKeys());
            asked.add(message);
            askedAt.add(System.currentTimeMillis());
            if (isAskedAgain && later.containsKey(message.getKeys())) {
                cameBefore.putIfAbsent(message.getKeys(), inbox.size());
                return later.get(message.getKeys());
            }
            return checks.getOrDefault(message.getKeys(), LocalTransactionState.UNKNOW);
        }
    }

    /** A producer that the broker knows: Java counts checks also while nobody is there to be asked. */
    private static TransactionMQProducer producer(Bed bed, String group, String topic, Ledger ledger) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(group);
        producer.setTransactionListener(ledger);
        bed.starts(producer);
        // A producer of 5.3.1 knows no broker, and tells none of itself, before its first message.
        Bed.sent(producer.send(new Message(bed.topic(1), Bed.bytes("first"))));
        String id = producer.buildMQClientId();
        Check.within(30, "the producer at the broker", () -> bed.admin.examineProducerConnectionInfo(group, topic)
            .getConnectionSet().stream().anyMatch(connection -> connection.getClientId().equals(id)));
        return producer;
    }

    private static Message half(String topic, String text) {
        Message message = new Message(topic, "T", text, Bed.bytes(text));
        message.putUserProperty("own", "value");
        return message;
    }

    private static void commit(Bed bed) throws Exception {
        String topic = bed.topic(2);
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "*", inbox);
        TransactionMQProducer producer = producer(bed, bed.name("pg"), topic, new Ledger());
        Map<String, SendResult> sent = new HashMap<>();
        for (int i = 0; i < 20; i++) {
            var wanted = i % 2 == 0 ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
            SendResult result = Bed.sent(producer.sendMessageInTransaction(half(topic, "m" + i), wanted));
            if (i % 2 == 0) {
                sent.put("m" + i, result);
            }
        }
        inbox.awaitExactly(new TreeSet<>(sent.keySet()), 40);
        Check.stays(2.5, 10, "deliveries up to after the time of checks", inbox::size);
        for (MessageExt message : inbox.messages()) {
            SendResult result = sent.get(Inbox.text(message));
            Check.equal(result.getMsgId(), message.getMsgId(), "message id");
            Check.equal(result.getMsgId(), message.getTransactionId(), "transaction id");
            Check.equal(result.getTransactionId(), message.getProperty("__transactionId__"), "transaction id as a property");
            Check.equal(result.getMessageQueue().getQueueId(), message.getQueueId(), "queue");
            Check.equal("value", message.getUserProperty("own"), "property");
            Check.equal("T", message.getTags(), "tag");
        }
    }

    private static void check(Bed bed) throws Exception {
        String topic = bed.topic(1);
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "*", inbox);
        // Decided by the second question, whenever the scenario gets round to it: after the last it is too late.
        Ledger ledger = new Ledger();
        ledger.inbox = inbox;
        ledger.later.put("good", LocalTransactionState.COMMIT_MESSAGE);
        ledger.later.put("bad", LocalTransactionState.ROLLBACK_MESSAGE);
        String group = bed.name("pg");
        TransactionMQProducer producer = producer(bed, group, topic, ledger);
        long began = System.currentTimeMillis();
        SendResult result = Bed.sent(producer.sendMessageInTransaction(half(topic, "good"), LocalTransactionState.UNKNOW));
        Bed.sent(producer.sendMessageInTransaction(half(topic, "bad"), LocalTransactionState.UNKNOW));
        Check.within(30, "a question about each", () -> ledger.isAsked("good") && ledger.isAsked("bad"));
        Check.that(ledger.askedAt.get(0) - began >= 1000, "asked after %d ms", ledger.askedAt.get(0) - began);
        MessageExt asked = ledger.asked.stream().filter(m -> m.getKeys().equals("good")).findFirst().orElseThrow();
        Check.equal("good", Inbox.text(asked), "body of the question");
        Check.equal(topic, asked.getTopic(), "topic of the question");
        Check.equal(result.getMsgId(), asked.getTransactionId(), "transaction id of the question");
        Check.equal(group, asked.getProperty("PGROUP"), "group of the question");
        Check.equal("1", asked.getProperty("TRANSACTION_CHECK_TIMES"), "number of the question");
        inbox.awaitExactly(new TreeSet<>(List.of("good")), 40);
        Check.equal(result.getMsgId(), inbox.messages().get(0).getMsgId(), "message id");
        Check.equal(0, ledger.cameBefore.get("good"), "deliveries before the decision");
        Check.within(30, "no more questions", () -> {
            int questions = ledger.asked.size();
            Thread.sleep(3000);
            return ledger.asked.size() == questions;
        });
        Check.equal(1, inbox.size(), "deliveries");
    }

    private static void givenUp(Bed bed) throws Exception {
        String topic = bed.topic(1);
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "*", inbox);
        Ledger ledger = new Ledger();
        TransactionMQProducer producer = producer(bed, bed.name("pg"), topic, ledger);
        SendResult result = Bed.sent(producer.sendMessageInTransaction(half(topic, "never"), LocalTransactionState.UNKNOW));
        DefaultMQPullConsumer reader = bed.pull(bed.name("g"));
        MessageQueue queue = new MessageQueue(GIVEN_UP, bed.brokerName(), 0);
        Check.within(30, "the message in " + GIVEN_UP, () -> all(reader, queue).stream()
            .anyMatch(m -> result.getMsgId().equals(m.getProperty("UNIQ_KEY")) && Inbox.text(m).equals("never")));
        Check.within(30, "8 questions", () -> ledger.asked.size() == 8
            || bed.target.isJava() && !ledger.asked.isEmpty() && ledger.asked.size() < 8);
        Check.equal(0, inbox.size(), "deliveries");
    }

    private static void lostProducer(Bed bed) throws Exception {
        String topic = bed.topic(1);
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "*", inbox);
        String group = bed.name("pg");
        Ledger ledger = new Ledger();
        ledger.checks.put("orphan", LocalTransactionState.COMMIT_MESSAGE);
        TransactionMQProducer first = producer(bed, group, topic, new Ledger());
        producer(bed, group, topic, ledger);
        Bed.sent(first.sendMessageInTransaction(half(topic, "orphan"), LocalTransactionState.UNKNOW));
        first.shutdown();
        inbox.awaitExactly(new TreeSet<>(List.of("orphan")), 40);
        Check.that(!ledger.asked.isEmpty(), "the second producer was asked");
    }

    private static void immunity(Bed bed) throws Exception {
        String topic = bed.topic(1);
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "*", inbox);
        Ledger ledger = new Ledger();
        ledger.checks.put("late", LocalTransactionState.COMMIT_MESSAGE);
        TransactionMQProducer producer = producer(bed, bed.name("pg"), topic, ledger);
        Message message = half(topic, "late");
        message.putUserProperty("CHECK_IMMUNITY_TIME_IN_SECONDS", "5");
        long began = System.currentTimeMillis();
        Bed.sent(producer.sendMessageInTransaction(message, LocalTransactionState.UNKNOW));
        inbox.awaitExactly(new TreeSet<>(List.of("late")), 40);
        long first = ledger.askedAt.get(0) - began;
        Check.that(first >= 5000, "asked after %d ms", first);
    }

    /** A consumer that is given messages one at a time and does with each what `does` says. */
    private interface Does {
        ConsumeConcurrentlyStatus with(MessageExt message, ConsumeConcurrentlyContext context) throws Exception;
    }

    private static DefaultMQPushConsumer consumer(Bed bed, String group, String topic, Does does) throws Exception {
        DefaultMQPushConsumer consumer = bed.push(group);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((List<MessageExt> batch, ConsumeConcurrentlyContext context) -> {
            try {
                return does.with(batch.get(0), context);
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        });
        return consumer;
    }

    private static void levels(Bed bed) throws Exception {
        String topic = bed.topic(1);
        List<MessageExt> seen = Collections.synchronizedList(new ArrayList<>());
        List<Long> at = Collections.synchronizedList(new ArrayList<>());
        consumer(bed, bed.name("g"), topic, (message, context) -> {
            seen.add(message);
            at.add(System.currentTimeMillis());
            if (message.getReconsumeTimes() == 1) {
                throw new IllegalArgumentException("fails");
            }
            return message.getReconsumeTimes() == 0 ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        }).start();
        Message message = new Message(topic, "T", "k1 k2", 7, Bed.bytes("hard"), true);
        message.putUserProperty("own", "value");
        SendResult result = Bed.sent(bed.producer().send(message));
        Check.within(30, "three deliveries", () -> seen.size() == 3);
        for (int i = 0; i < 3; i++) {
            MessageExt one = seen.get(i);
            Check.equal(i, one.getReconsumeTimes(), "failures before");
            Check.equal(topic, one.getTopic(), "topic");
            Check.equal(result.getMsgId(), one.getMsgId(), "message id");
            Check.equal("hard", Inbox.text(one), "body");
            Check.equal("T", one.getTags(), "tag");
            Check.equal("k1 k2", one.getKeys(), "keys");
            Check.equal(7, one.getFlag(), "flag");
            Check.equal("value", one.getUserProperty("own"), "property");
            if (i > 0) {
                long pause = at.get(i) - at.get(i - 1);
                Check.that(pause >= i * 1000L - 100, "pause %d before delivery %d", pause, i);
                Check.equal(result.getOffsetMsgId(), one.getProperty("ORIGIN_MESSAGE_ID"), "first id");
            }
        }
        Check.stays(2.5, 3, "deliveries", seen::size);
    }

    private static void dead(Bed bed, int limit) throws Exception {
        String topic = bed.topic(1);
        String group = bed.name("g");
        AtomicInteger deliveries = new AtomicInteger();
        DefaultMQPushConsumer consumer = consumer(bed, group, topic, (message, context) -> {
            deliveries.incrementAndGet();
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.setMaxReconsumeTimes(limit);
        consumer.start();
        SendResult result = Bed.sent(bed.producer().send(new Message(topic, "T", "key", Bed.bytes("poison"))));
        MessageExt letter = deadLetter(bed, group);
        Check.equal(limit + 1, deliveries.get(), "deliveries");
        Check.equal(result.getMsgId(), letter.getMsgId(), "message id");
        Check.equal("poison", Inbox.text(letter), "body");
        Check.equal("T", letter.getTags(), "tag");
        Check.equal("key", letter.getKeys(), "key");
        Check.equal(topic, letter.getProperty("RETRY_TOPIC"), "topic that it was sent to");
        // Java forgets it when the first failure is the last.
        if (limit > 0 || !bed.target.isJava()) {
            Check.equal(result.getOffsetMsgId(), letter.getProperty("ORIGIN_MESSAGE_ID"), "first id");
        }
        Check.stays(3, limit + 1, "deliveries after it was dead", deliveries::get);
    }

    /** The first dead letter of a group, read by a pull consumer. */
    private static MessageExt deadLetter(Bed bed, String group) throws Exception {
        DefaultMQPullConsumer reader = bed.pull(bed.name("g"));
        MessageQueue queue = new MessageQueue("%DLQ%" + group, bed.brokerName(), 0);
        List<MessageExt> letters = new ArrayList<>();
        Check.within(30, "a dead letter", () -> letters.addAll(all(reader, queue)));
        return letters.get(0);
    }

    /** Everything in a queue. */
    private static List<MessageExt> all(DefaultMQPullConsumer reader, MessageQueue queue) throws Exception {
        List<MessageExt> found = new ArrayList<>();
        long next = 0;
        while (true) {
            var result = reader.pull(queue, "*", next, 32);
            if (result.getPullStatus() == PullStatus.FOUND) {
                found.addAll(result.getMsgFoundList());
            } else if (result.getNextBeginOffset() <= next) {
                return found;
            }
            next = result.getNextBeginOffset();
        }
    }

    private static void chosenLevel(Bed bed) throws Exception {
        String topic = bed.topic(1);
        String group = bed.name("g");
        List<Long> at = Collections.synchronizedList(new ArrayList<>());
        consumer(bed, group, topic, (message, context) -> {
            at.add(System.currentTimeMillis());
            context.setDelayLevelWhenNextConsume(message.getReconsumeTimes() == 0 ? 4 : -1);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        }).start();
        Bed.sent(bed.producer().send(new Message(topic, Bed.bytes("hard"))));
        Check.equal("hard", Inbox.text(deadLetter(bed, group)), "dead letter");
        Check.equal(2, at.size(), "deliveries");
        Check.that(at.get(1) - at.get(0) >= 1900, "level 4 is 2 s, it came after %d ms", at.get(1) - at.get(0));
    }

    private static void beyondLevels(Bed bed) throws Exception {
        String topic = bed.topic(1);
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "*", inbox);
        Message message = new Message(topic, Bed.bytes("late"));
        message.setDelayTimeLevel(99);
        long began = System.currentTimeMillis();
        Bed.sent(bed.producer().send(message));
        inbox.awaitExactly(new TreeSet<>(List.of("late")), 40);
        Check.that(inbox.messages().get(0).getStoreTimestamp() - began >= 2000, "before the time of the last level");
    }

    private static void sendBack(Bed bed) throws Exception {
        String topic = bed.topic(1);
        String group = bed.name("g");
        SendResult result = Bed.sent(bed.producer().send(new Message(topic, "T", "key", Bed.bytes("back"))));
        DefaultMQPullConsumer reader = bed.pull(group);
        List<MessageExt> first = new ArrayList<>();
        Check.within(30, "the message", () -> first.addAll(all(reader, result.getMessageQueue())));
        long began = System.currentTimeMillis();
        reader.sendMessageBack(first.get(0), 4);
        MessageQueue retries = new MessageQueue("%RETRY%" + group, bed.brokerName(), 0);
        List<MessageExt> again = new ArrayList<>();
        Check.within(30, "the message in its retry topic", () -> again.addAll(all(reader, retries)));
        Check.that(System.currentTimeMillis() - began >= 1900, "not before its time");
        Check.equal(result.getMsgId(), again.get(0).getMsgId(), "message id");
        Check.equal(1, again.get(0).getReconsumeTimes(), "failures before");
        Check.equal(topic, again.get(0).getProperty("RETRY_TOPIC"), "topic that it was sent to");
    }

    private static void suspend(Bed bed) throws Exception {
        String topic = bed.topic(1);
        String group = bed.name("g");
        List<String> seen = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer consumer = bed.push(group);
        consumer.subscribe(topic, "*");
        consumer.setMaxReconsumeTimes(2);
        consumer.setSuspendCurrentQueueTimeMillis(300);
        consumer.registerMessageListener((List<MessageExt> batch, ConsumeOrderlyContext context) -> {
            String text = Inbox.text(batch.get(0));
            seen.add(text + "/" + batch.get(0).getReconsumeTimes());
            return text.equals("m-0") ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
        });
        DefaultMQProducer producer = bed.producer();
        Bed.send(producer, bed.queues(topic).get(0), "m", 5);
        consumer.start();
        Check.within(30, "the others", () -> seen.contains("m-4/0"));
        Check.equal(List.of("m-0/0", "m-0/1", "m-0/2", "m-1/0", "m-2/0", "m-3/0", "m-4/0"), List.copyOf(seen), "what was seen, in order");
        Check.equal("m-0", Inbox.text(deadLetter(bed, group)), "dead letter");
        Check.stays(3, 7, "deliveries", seen::size);
    }

    /** What happens while messages are sent and consumed in order. */
    private interface Upset {
        void of(Bed bed, String group, String topic, Order order) throws Exception;
    }

    /** Consumes in order; of each queue, whoever consumes, nothing may be left out, and nothing newer come first. */
    private static final class Order {
        final Map<Integer, Long> next = new HashMap<>();
        final List<String> faults = new ArrayList<>();
        final AtomicBoolean stop = new AtomicBoolean();
        final Map<String, Integer> byMember = new HashMap<>();

        synchronized void take(String member, MessageExt message) {
            byMember.merge(member, 1, Integer::sum);
            long expected = next.getOrDefault(message.getQueueId(), 0L);
            if (message.getQueueOffset() > expected) {
                faults.add("queue " + message.getQueueId() + ": " + message.getQueueOffset() + " came before " + expected);
            }
            next.put(message.getQueueId(), Math.max(expected, message.getQueueOffset() + 1));
        }

        synchronized long count() {
            return next.values().stream().mapToLong(Long::longValue).sum();
        }

        synchronized int of(String member) {
            return byMember.getOrDefault(member, 0);
        }
    }

    private static DefaultMQPushConsumer member(Bed bed, String group, String topic, String name, Order order) throws Exception {
        DefaultMQPushConsumer consumer = bed.push(group);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((List<MessageExt> batch, ConsumeOrderlyContext context) -> {
            batch.forEach(message -> order.take(name, message));
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    private static void order(Bed bed, Upset upset) throws Exception {
        String topic = bed.topic(4);
        String group = bed.name("g");
        Order order = new Order();
        DefaultMQProducer producer = bed.producer();
        List<MessageQueue> queues = bed.queues(topic);
        Thread sender = new Thread(() -> {
            for (int i = 0; !order.stop.get(); i++) {
                try {
                    producer.send(new Message(topic, Bed.bytes("m" + i)), queues.get(i % queues.size()));
                    Thread.sleep(5);
                } catch (Exception e) {
                    continue; // the node is away: the next message is tried
                }
            }
        });
        sender.start();
        try {
            upset.of(bed, group, topic, order);
        } finally {
            order.stop.set(true);
            sender.join();
        }
        long stored = bed.stored(topic);
        Check.within(60, "all " + stored + " messages", () -> order.count() >= stored);
        Check.equal(List.of(), order.faults.stream().limit(5).toList(), "messages out of order");
    }

    private static void comeAndGo(Bed bed, String group, String topic, Order order) throws Exception {
        DefaultMQPushConsumer first = member(bed, group, topic, "first", order);
        Check.within(30, "the first member consumes", () -> order.of("first") > 100);
        DefaultMQPushConsumer second = member(bed, group, topic, "second", order);
        Check.within(30, "the second member consumes", () -> order.of("second") > 100);
        first.shutdown();
        long before = order.count();
        Check.within(40, "the second member has every queue", () -> order.count() > before + 400);
        second.shutdown();
        member(bed, group, topic, "third", order);
        Check.within(30, "the third member consumes", () -> order.of("third") > 100);
    }

    private static void restart(Bed bed, String group, String topic, Order order) throws Exception {
        if (!bed.target.isControlled()) {
            throw new Main.Skipped("INTEROP_CONTROL names no command that restarts the node");
        }
        member(bed, group, topic, "first", order);
        member(bed, group, topic, "second", order);
        Check.within(30, "both members consume", () -> order.of("first") > 100 && order.of("second") > 100);
        bed.target.control("restart");
        long before = order.count();
        Check.within(60, "they go on", () -> order.count() > before + 400);
    }
}
