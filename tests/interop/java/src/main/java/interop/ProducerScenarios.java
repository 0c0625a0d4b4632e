package interop;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Sending in every way that the client offers. */
final class ProducerScenarios {
    private ProducerScenarios() { }

    static void addTo(Scenarios list) {
        list.suite("everyday");
        list.add("send-sync", "3.1 #8: ids, queue offsets from 0, transaction id = unique key", ProducerScenarios::sync);
        list.add("send-async", "every call-back is called with SEND_OK", ProducerScenarios::async);
        list.add("send-oneway", "3.1 #11: stored, no answer", ProducerScenarios::oneway);
        list.add("send-batch", "3.2 #17, #22: one queue, consecutive offsets, one offset id each", ProducerScenarios::batch);
        list.add("send-chosen-queue", "the queue given or selected is the queue stored", ProducerScenarios::chosenQueue);
        list.add("send-key-hash", "SelectMessageQueueByHash: a key stays on its queue, in order", ProducerScenarios::keyHash);
        list.add("send-queue-out-of-range", "3.1 #1: refused as an invalid parameter", ProducerScenarios::outOfRange);
        list.add("send-negative-queue", "3.1 #2: the broker chooses a queue and says which", ProducerScenarios::negativeQueue);
        list.add("send-largest-body", "3.1 #3: 4 MiB + 16 KiB of properties fit, 4 MiB + 1 is refused with 13", ProducerScenarios::largest);
        list.add("send-properties-limit", "3.1 #4: 30 KiB of Chinese fit, above 32767 bytes 13", ProducerScenarios::propertiesLimit);
        list.add("send-to-unknown-topic", "3.1 #7: made with min(client's queues, 8), perm 6, routed at once", ProducerScenarios::automaticTopic);
        list.add("send-keeps-everything", "3.1 #14, #15: flag, keys, tags, buyer id, WAIT, properties, bytes", ProducerScenarios::keepsEverything);
        list.add("send-compressed", "3.10 #95 for pull: stored compressed, delivered plain", ProducerScenarios::compressed);
        list.add("send-no-write-permission", "3.1 #16: a topic without W has no queue to send to", ProducerScenarios::noWrite);
        list.add("send-many-producers", "8 producers at once: queue offsets have no gap and no double", ProducerScenarios::many);
    }

    private static void sync(Bed bed) throws Exception {
        String topic = bed.topic(4);
        DefaultMQProducer producer = bed.producer();
        Map<Integer, Long> next = new HashMap<>();
        Set<String> ids = new HashSet<>();
        for (int i = 0; i < 20; i++) {
            Message message = new Message(topic, "TagA", "key" + i, Bed.bytes("sync-" + i));
            SendResult result = Bed.sent(producer.send(message));
            Check.that(result.getMsgId().matches("[0-9A-F]{32}|[0-9A-F]{56}"), "message id %s", result.getMsgId());
            Check.equal(message.getProperty("UNIQ_KEY"), result.getMsgId(), "message id");
            Check.that(result.getOffsetMsgId().matches("[0-9A-F]{32}|[0-9A-F]{56}"), "offset id %s", result.getOffsetMsgId());
            String place = MessageDecoder.decodeMessageId(result.getOffsetMsgId()).getAddress().toString().replaceFirst("^.*/", "");
            Check.equal(bed.brokerAddress(), place, "the broker in the offset id");
            Check.equal(result.getMsgId(), result.getTransactionId(), "transaction id");
            Check.equal("DefaultRegion", result.getRegionId(), "region");
            Check.that(result.isTraceOn(), "trace is on");
            Check.that(ids.add(result.getOffsetMsgId()), "offset id is new");
            MessageQueue queue = result.getMessageQueue();
            Check.equal(next.getOrDefault(queue.getQueueId(), 0L), result.getQueueOffset(), "queue offset in " + queue);
            next.put(queue.getQueueId(), result.getQueueOffset() + 1);
        }
        Check.equal(Map.of(0, 5L, 1, 5L, 2, 5L, 3, 5L), next, "messages by queue");
        for (MessageQueue queue : bed.queues(topic)) {
            Check.equal(5L, bed.admin.maxOffset(queue), "max offset of " + queue);
            Check.equal(0L, bed.admin.minOffset(queue), "min offset of " + queue);
        }
    }

    private static void async(Bed bed) throws Exception {
        String topic = bed.topic(4);
        DefaultMQProducer producer = bed.producer();
        CountDownLatch all = new CountDownLatch(200);
        ConcurrentLinkedQueue<Object> faults = new ConcurrentLinkedQueue<>();
        Set<String> ids = java.util.concurrent.ConcurrentHashMap.newKeySet();
        for (int i = 0; i < 200; i++) {
            producer.send(new Message(topic, Bed.bytes("async-" + i)), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    ids.add(result.getOffsetMsgId());
                    all.countDown();
                }

                @Override
                public void onException(Throwable fault) {
                    faults.add(fault);
                    all.countDown();
                }
            });
        }
        Check.that(all.await(120, TimeUnit.SECONDS), "%d call-backs were not called", all.getCount());
        Check.equal(List.of(), List.copyOf(faults), "faults");
        Check.equal(200, ids.size(), "different offset ids");
        Check.equal(200L, bed.stored(topic), "messages stored");
    }

    private static void oneway(Bed bed) throws Exception {
        String topic = bed.topic(2);
        DefaultMQProducer producer = bed.producer();
        TreeSet<String> wanted = new TreeSet<>();
        for (int i = 0; i < 50; i++) {
            producer.sendOneway(new Message(topic, Bed.bytes("oneway-" + i)));
            wanted.add("oneway-" + i);
        }
        // An error answer to a one-way request would sit on this connection too: it must go on working.
        producer.sendOneway(new Message(topic, Bed.bytes("lost")), new MessageQueue(topic, bed.brokerName(), 99));
        wanted.addAll(Bed.send(producer, topic, "", "after", 3));
        Check.within(30, "53 messages stored", () -> bed.stored(topic) == 53);
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "*", inbox);
        inbox.awaitExactly(wanted, 40);
    }

    private static void batch(Bed bed) throws Exception {
        String topic = bed.topic(4);
        DefaultMQProducer producer = bed.producer();
        Bed.send(producer, topic, "", "before", 6);
        List<Message> messages = new ArrayList<>();
        TreeSet<String> wanted = new TreeSet<>();
        for (int i = 0; i < 25; i++) {
            Message message = new Message(topic, i % 2 == 0 ? "Even" : "Odd", "batch" + i, Bed.bytes("batch-" + i));
            message.putUserProperty("number", "" + i);
            message.setFlag(i);
            messages.add(message);
            if (i % 2 == 0) {
                wanted.add("batch-" + i);
            }
        }
        SendResult result = Bed.sent(producer.send(messages));
        String[] offsetIds = result.getOffsetMsgId().split(",");
        Check.equal(25, offsetIds.length, "offset ids of the batch");
        Check.equal(25, result.getMsgId().split(",").length, "message ids of the batch");
        long first = result.getQueueOffset();
        MessageExt zero = null;
        for (int i = 0; i < 25; i++) {
            MessageExt message = bed.admin.viewMessage(topic, offsetIds[i]);
            zero = zero == null ? message : zero;
            Check.equal("batch-" + i, Inbox.text(message), "body of item " + i);
            Check.equal(first + i, message.getQueueOffset(), "queue offset of item %d", i);
            Check.equal(result.getMessageQueue().getQueueId(), message.getQueueId(), "queue of item %d", i);
            Check.equal("" + i, message.getUserProperty("number"), "property of item %d", i);
            Check.equal(i, message.getFlag(), "flag of item %d", i);
            Check.equal(zero.getBornTimestamp(), message.getBornTimestamp(), "born time of item %d", i);
            Check.equal(zero.getBornHost(), message.getBornHost(), "born host of item %d", i);
            Check.equal(zero.getStoreTimestamp(), message.getStoreTimestamp(), "store time of item %d", i);
        }
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "Even", inbox);
        inbox.awaitExactly(wanted, 40);
    }

    private static void chosenQueue(Bed bed) throws Exception {
        String topic = bed.topic(6);
        DefaultMQProducer producer = bed.producer();
        for (int id = 0; id < 6; id++) {
            MessageQueue queue = new MessageQueue(topic, bed.brokerName(), id);
            for (int i = 0; i <= id; i++) {
                SendResult result = Bed.sent(producer.send(new Message(topic, Bed.bytes("q" + id)), queue));
                Check.equal(queue, result.getMessageQueue(), "queue");
                Check.equal((long) i, result.getQueueOffset(), "queue offset");
            }
            SendResult selected = Bed.sent(producer.send(new Message(topic, Bed.bytes("s" + id)),
                (queues, message, argument) -> queues.get((Integer) argument), id));
            Check.equal((long) id + 1, selected.getQueueOffset(), "queue offset of the selected queue");
        }
        for (MessageQueue queue : bed.queues(topic)) {
            Check.equal(queue.getQueueId() + 2L, bed.admin.maxOffset(queue), "max offset of " + queue);
        }
    }

    private static void keyHash(Bed bed) throws Exception {
        String topic = bed.topic(4);
        DefaultMQProducer producer = bed.producer();
        Map<String, Integer> queueOf = new HashMap<>();
        for (int i = 0; i < 60; i++) {
            String order = "order" + i % 10;
            SendResult result = Bed.sent(producer.send(
                new Message(topic, "", order, Bed.bytes(order + "#" + i / 10)), new SelectMessageQueueByHash(), order));
            int queue = result.getMessageQueue().getQueueId();
            Check.equal(Math.abs(order.hashCode() % 4), queue, "queue of " + order);
            Check.equal(queueOf.computeIfAbsent(order, o -> queue), queue, "queue of " + order);
        }
        Inbox inbox = new Inbox();
        var consumer = bed.push(bed.name("g"));
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(inbox.orderly);
        consumer.start();
        Check.within(30, "60 messages", () -> inbox.size() >= 60);
        Map<String, Integer> step = new HashMap<>();
        for (MessageExt message : inbox.messages()) {
            String[] parts = Inbox.text(message).split("#");
            Check.equal(step.getOrDefault(parts[0], 0), Integer.parseInt(parts[1]), "step of " + parts[0]);
            step.merge(parts[0], 1, Integer::sum);
        }
    }

    private static void outOfRange(Bed bed) throws Exception {
        String topic = bed.topic(4);
        DefaultMQProducer producer = bed.producer();
        MessageQueue queue = new MessageQueue(topic, bed.brokerName(), 4);
        MQBrokerException fault = Check.refused(MQBrokerException.class, "queue 4 of 4",
            () -> producer.send(new Message(topic, Bed.bytes("x")), queue));
        Check.equal(bed.target.invalidParameter(), fault.getResponseCode(), "code");
        Check.contains(fault.getErrorMessage(), "4", "the remark names the queue");
        CountDownLatch called = new CountDownLatch(1);
        List<Throwable> faults = new ArrayList<>();
        producer.send(new Message(topic, Bed.bytes("x")), queue, new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                called.countDown();
            }

            @Override
            public void onException(Throwable e) {
                faults.add(e);
                called.countDown();
            }
        });
        Check.that(called.await(120, TimeUnit.SECONDS), "the call-back was not called within 120 s");
        Check.equal(1, faults.size(), "faults given to the call-back");
        Check.equal(0L, bed.stored(topic), "messages stored");
        Bed.send(producer, topic, "", "fine", 4);
    }

    private static void negativeQueue(Bed bed) throws Exception {
        String topic = bed.topic(4);
        DefaultMQProducer producer = bed.producer();
        for (int id : new int[] {-1, -100}) {
            SendResult result = Bed.sent(producer.send(new Message(topic, Bed.bytes("x")),
                new MessageQueue(topic, bed.brokerName(), id)));
            MessageExt stored = bed.admin.viewMessage(topic, result.getOffsetMsgId());
            Check.that(stored.getQueueId() >= 0 && stored.getQueueId() < 4, "queue %d", stored.getQueueId());
        }
        Check.equal(2L, bed.stored(topic), "messages stored");
    }

    private static void largest(Bed bed) throws Exception {
        String topic = bed.topic(1);
        DefaultMQProducer producer = bed.producer();
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        byte[] body = new byte[4 << 20];
        new Random(7).nextBytes(body);
        Message message = new Message(topic, body);
        message.putUserProperty("filler", "p".repeat(16 << 10));
        SendResult result = Bed.sent(producer.send(message));
        MessageExt stored = bed.admin.viewMessage(topic, result.getOffsetMsgId());
        Check.that(Arrays.equals(body, stored.getBody()), "4 MiB body as sent");
        Check.equal(16 << 10, stored.getUserProperty("filler").length(), "length of the property");
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "*", inbox);
        Check.within(30, "the large message", () -> inbox.size() == 1);
        Check.that(Arrays.equals(body, inbox.messages().get(0).getBody()), "4 MiB body as consumed");
        MQBrokerException fault = Check.refused(MQBrokerException.class, "4 MiB + 1",
            () -> producer.send(new Message(topic, new byte[(4 << 20) + 1])));
        Check.equal(13, fault.getResponseCode(), "code");
        Check.equal(1L, bed.stored(topic), "messages stored");
    }

    private static void propertiesLimit(Bed bed) throws Exception {
        String topic = bed.topic(1);
        DefaultMQProducer producer = bed.producer();
        String chinese = "消".repeat(10 * 1024);
        Message fits = new Message(topic, Bed.bytes("x"));
        fits.putUserProperty("text", chinese);
        SendResult result = Bed.sent(producer.send(fits));
        Check.equal(chinese, bed.admin.viewMessage(topic, result.getOffsetMsgId()).getUserProperty("text"), "property");
        Message tooLong = new Message(topic, Bed.bytes("x"));
        tooLong.putUserProperty("text", "消".repeat(10_923));
        MQBrokerException fault = Check.refused(MQBrokerException.class, "32769 bytes of property", () -> producer.send(tooLong));
        Check.equal(13, fault.getResponseCode(), "code");
    }

    private static void automaticTopic(Bed bed) throws Exception {
        DefaultMQProducer producer = bed.producer();
        for (int[] pair : new int[][] {{4, 4}, {2, 2}, {20, 8}}) {
            String topic = bed.name("auto");
            DefaultMQProducer asking = bed.unstartedProducer(bed.name("pg"));
            asking.setDefaultTopicQueueNums(pair[0]);
            asking.start();
            Bed.sent(asking.send(new Message(topic, Bed.bytes("first"))));
            Check.within(30, "route of " + topic, () -> !bed.admin.examineTopicRouteInfo(topic).getQueueDatas().isEmpty());
            var route = bed.admin.examineTopicRouteInfo(topic).getQueueDatas().get(0);
            Check.equal(pair[1], route.getWriteQueueNums(), "write queues");
            Check.equal(pair[1], route.getReadQueueNums(), "read queues");
            Check.equal(6, route.getPerm(), "permissions");
            TreeSet<String> wanted = Bed.send(producer, topic, "", "more", 5);
            wanted.add("first");
            Inbox inbox = new Inbox();
            bed.pushing(bed.name("g"), topic, "*", inbox);
            inbox.awaitExactly(wanted, 40);
        }
    }

    private static void keepsEverything(Bed bed) throws Exception {
        String topic = bed.topic(1);
        DefaultMQProducer producer = bed.producer();
        byte[] body = new byte[3000];
        new Random(11).nextBytes(body);
        Message message = new Message(topic, "Tag-ü", "k1 k2 ключ", 0x7FFF1234, body, false);
        message.setBuyerId("buyer-7");
        message.putUserProperty("spaces", " in and around ");
        message.putUserProperty("unicode", "Grüße 你好 🚀");
        message.putUserProperty("json", "{\"a\":[1,2]}");
        long before = System.currentTimeMillis();
        SendResult result = Bed.sent(producer.send(message));
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "Tag-ü", inbox);
        Check.within(30, "the message", () -> inbox.size() == 1);
        for (MessageExt got : List.of(inbox.messages().get(0), bed.admin.viewMessage(topic, result.getOffsetMsgId()))) {
            Check.that(Arrays.equals(body, got.getBody()), "body bytes");
            Check.equal(topic, got.getTopic(), "topic");
            Check.equal("Tag-ü", got.getTags(), "tags");
            Check.equal("k1 k2 ключ", got.getKeys(), "keys");
            Check.equal(0x7FFF1234, got.getFlag(), "flag");
            Check.equal("buyer-7", got.getBuyerId(), "buyer id");
            Check.equal(false, got.isWaitStoreMsgOK(), "wait for the store");
            Check.equal(" in and around ", got.getUserProperty("spaces"), "property with spaces");
            Check.equal("Grüße 你好 🚀", got.getUserProperty("unicode"), "unicode property");
            Check.equal("{\"a\":[1,2]}", got.getUserProperty("json"), "json property");
            Check.equal(result.getMsgId(), got.getMsgId(), "message id");
            Check.equal(0, got.getReconsumeTimes(), "reconsume times");
            Check.equal(0L, got.getPreparedTransactionOffset(), "prepared transaction offset");
            Check.equal(bed.brokerAddress(), got.getStoreHost().toString().replaceFirst("^.*/", ""), "store host");
            Check.that(got.getBornHost().toString().contains("/127.0.0.1:"), "born host %s", got.getBornHost());
            Check.that(Math.abs(got.getBornTimestamp() - before) < 60_000, "born time %d", got.getBornTimestamp());
            Check.that(Math.abs(got.getStoreTimestamp() - before) < 60_000, "store time %d", got.getStoreTimestamp());
        }
    }

    private static void compressed(Bed bed) throws Exception {
        String topic = bed.topic(1);
        DefaultMQProducer producer = bed.producer();
        String text = "compressible ".repeat(8000);
        SendResult result = Bed.sent(producer.send(new Message(topic, "Big", "big", Bed.bytes(text))));
        MessageExt viewed = bed.admin.viewMessage(topic, result.getOffsetMsgId());
        Check.equal(text, Inbox.text(viewed), "body as viewed");
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "Big", inbox);
        Check.within(30, "the message", () -> inbox.size() == 1);
        MessageExt got = inbox.messages().get(0);
        Check.equal(text, Inbox.text(got), "body as consumed");
        Check.that(got.getStoreSize() < text.length() / 10, "stored size %d shows compression", got.getStoreSize());
        Check.equal(1, got.getSysFlag() & 1, "compressed bit of the system flag");
    }

    private static void noWrite(Bed bed) throws Exception {
        String topic = bed.topic(2, 2, 4);
        DefaultMQProducer producer = bed.producer();
        Check.refused(MQClientException.class, "topic without W", () -> producer.send(new Message(topic, Bed.bytes("x"))));
        Check.equal(0L, bed.stored(topic), "messages stored");
    }

    private static void many(Bed bed) throws Exception {
        String topic = bed.topic(3);
        List<Thread> threads = new ArrayList<>();
        ConcurrentLinkedQueue<String> places = new ConcurrentLinkedQueue<>();
        ConcurrentLinkedQueue<Throwable> faults = new ConcurrentLinkedQueue<>();
        for (int p = 0; p < 8; p++) {
            DefaultMQProducer producer = bed.producer();
            Thread thread = new Thread(() -> {
                try {
                    for (int i = 0; i < 150; i++) {
                        SendResult result = Bed.sent(producer.send(new Message(topic, new byte[i * 10 + 1])));
                        places.add(result.getMessageQueue().getQueueId() + ":" + result.getQueueOffset());
                    }
                } catch (Throwable e) {
                    faults.add(e);
                }
            });
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        Check.equal(List.of(), List.copyOf(faults), "faults");
        Check.equal(1200, new HashSet<>(places).size(), "different places");
        Check.equal(1200L, bed.stored(topic), "messages stored");
    }
}
