package interop;

import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The node stops, is killed and comes back; these run alone, one after another. */
final class RestartScenarios {
    private RestartScenarios() { }

    static void addTo(Scenarios list) {
        list.suite("restart");
        list.add("restart-in-the-middle", "clients go on by themselves; nothing acknowledged is missing", 150, bed -> inTheMiddle(bed, "restart"));
        list.add("kill-in-the-middle", "the same when the process is killed", 150, bed -> inTheMiddle(bed, "kill-and-start"));
        list.add("restart-keeps-offsets", "3.8 #73: a group goes on where it was", 90, RestartScenarios::keepsOffsets);
        list.add("restart-keeps-messages", "queues, ids, keys and topics are as before", 90, RestartScenarios::keepsMessages);
    }

    private static void needsControl(Bed bed) {
        if (!bed.target.isControlled()) {
            throw new Main.Skipped("INTEROP_CONTROL names no command that restarts the node");
        }
    }

    private static void restart(Bed bed, String word) throws Exception {
        if (word.equals("kill-and-start")) {
            bed.target.control("kill");
            bed.target.control("start");
        } else {
            bed.target.control(word);
        }
    }

    private static void inTheMiddle(Bed bed, String word) throws Exception {
        needsControl(bed);
        String topic = bed.topic(4);
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "*", inbox);
        DefaultMQProducer producer = bed.producer();
        ConcurrentSkipListSet<String> acknowledged = new ConcurrentSkipListSet<>();
        ConcurrentLinkedQueue<String> places = new ConcurrentLinkedQueue<>();
        AtomicBoolean stop = new AtomicBoolean();
        Thread sender = new Thread(() -> {
            for (int i = 0; !stop.get(); i++) {
                try {
                    SendResult result = producer.send(new Message(topic, "T", "key" + i, Bed.bytes("m" + i)));
                    if (result.getSendStatus() == SendStatus.SEND_OK) {
                        acknowledged.add("m" + i);
                        places.add(result.getMessageQueue().getQueueId() + ":" + result.getQueueOffset());
                    }
                    Thread.sleep(2);
                } catch (Exception e) {
                    continue; // the node is away: the next message is tried
                }
            }
        });
        sender.start();
        Check.within(30, "300 messages before", () -> acknowledged.size() >= 300);
        restart(bed, word);
        int before = acknowledged.size();
        Check.within(60, "300 messages after", () -> acknowledged.size() >= before + 300);
        stop.set(true);
        sender.join();
        inbox.awaitAll(new TreeSet<>(acknowledged), 60);
        Check.equal(places.size(), new TreeSet<>(places).size(), "different places of acknowledged messages");
        // Every acknowledged message is at its place, read from the queues by a fresh client.
        int found = 0;
        var consumer = bed.pull(bed.name("g"));
        consumer.fetchSubscribeMessageQueues(topic);
        TreeSet<String> wanted = new TreeSet<>(places);
        for (MessageQueue queue : bed.queues(topic)) {
            long offset = 0;
            while (offset < consumer.maxOffset(queue)) {
                var result = consumer.pull(queue, "*", offset, 32);
                Check.that(result.getMsgFoundList() != null, "%s at %d of %s", result.getPullStatus(), offset, queue);
                for (MessageExt message : result.getMsgFoundList()) {
                    Check.equal(offset++, message.getQueueOffset(), "no gap in " + queue);
                    if (wanted.contains(queue.getQueueId() + ":" + message.getQueueOffset())) {
                        Check.that(acknowledged.contains(Inbox.text(message)), "acknowledged message at its place");
                        found++;
                    }
                }
            }
        }
        Check.equal(places.size(), found, "acknowledged messages at their places");
    }

    private static void keepsOffsets(Bed bed) throws Exception {
        needsControl(bed);
        String topic = bed.topic(4);
        String group = bed.name("g");
        DefaultMQProducer producer = bed.producer();
        TreeSet<String> first = Bed.send(producer, topic, "", "first", 40);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = bed.pushing(group, topic, "*", inbox);
        inbox.awaitExactly(first, 40);
        consumer.shutdown();
        bed.awaitConsumed(group, topic);
        restart(bed, "restart");
        TreeSet<String> second = new TreeSet<>();
        Check.within(40, "sending after the restart", () -> {
            String text = "second-" + second.size();
            Bed.sent(producer.send(new Message(topic, Bed.bytes(text))));
            second.add(text);
            return second.size() == 20;
        });
        Inbox rest = new Inbox();
        bed.pushing(group, topic, "*", rest);
        rest.awaitAll(second, 40);
        Check.equal(0L, rest.messages().stream().filter(m -> Inbox.text(m).startsWith("first")).count(), "messages given again");
        var progress = bed.admin.examineConsumeStats(group, topic).getOffsetTable();
        Check.equal(4, progress.size(), "queues in the group's progress");
    }

    private static void keepsMessages(Bed bed) throws Exception {
        needsControl(bed);
        String topic = bed.topic(3);
        DefaultMQProducer producer = bed.producer();
        SendResult[] results = new SendResult[30];
        for (int i = 0; i < 30; i++) {
            results[i] = Bed.sent(producer.send(new Message(topic, "T", "keep" + i, Bed.bytes("keep-" + i))));
        }
        Check.within(30, "indexed", () -> bed.admin.queryMessage(topic, "keep29", 8, 0, System.currentTimeMillis() + 10_000).getMessageList().size() == 1);
        restart(bed, "restart");
        Check.within(40, "the node answers", () -> bed.stored(topic) == 30);
        Check.equal(3, bed.queues(topic).size(), "queues");
        for (int i = 0; i < 30; i++) {
            MessageExt message = bed.admin.viewMessage(topic, results[i].getOffsetMsgId());
            Check.equal("keep-" + i, Inbox.text(message), "body");
            Check.equal(results[i].getQueueOffset(), message.getQueueOffset(), "queue offset");
            var byKey = bed.admin.queryMessage(topic, "keep" + i, 8, 0, System.currentTimeMillis() + 10_000).getMessageList();
            Check.equal(1, byKey.size(), "messages by key");
            Check.equal("keep-" + i, Inbox.text(byKey.get(0)), "body by key");
        }
        Check.within(40, "sending goes on", () -> Bed.sent(producer.send(new Message(topic, Bed.bytes("new")))).getQueueOffset() == 10);
    }
}
