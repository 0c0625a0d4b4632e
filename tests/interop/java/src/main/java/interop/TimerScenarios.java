package interop;

import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Messages that come later: delay levels, times of their own, recalls. Both clients can set the properties. */
final class TimerScenarios {
    private static final int RECALL_MESSAGE = 370;
    /** How long what is taken back waits: it must be taken back before it is due, whatever else the machine does. */
    private static final long RECALLED_AFTER_MS = 20_000;

    private TimerScenarios() { }

    static void addTo(Scenarios list) {
        list.suite("everyday");
        list.add("delay-level", "3.3 #24, #29: not before its level and as it was sent", TimerScenarios::level);
        list.add("delay-any-time", "3.3 #25: each of the three ways to name a time, never early", TimerScenarios::anyTime);
        list.add("delay-past", "3.3 #26: a time that is past is now", TimerScenarios::past);
        list.add("delay-too-far", "3.3 #27: more than three days ahead is refused with 13", TimerScenarios::tooFar);
        list.add("delay-level-wins", "3.3 #28: a level counts before a time", TimerScenarios::levelWins);
        list.add("delay-cancelled", "a timer with the key of another cancels it", TimerScenarios::cancelled);
        list.add("delay-recall", "3.4 #33: recalled by its handle, it never comes", TimerScenarios::recall);
        list.add("delay-recall-bad", "3.4 #35, #36: bad handles are refused with 604, unknown topics with 17, what never was is a success",
            TimerScenarios::badHandles);
        list.add("delay-recall-elsewhere", "3.4 #34: a handle made for another topic takes nothing back", TimerScenarios::recallElsewhere);
        list.add("delay-in-order", "3.3 #30: messages of a level come in the order in which they were sent", TimerScenarios::inOrder);
        list.suite("restart");
        list.add("restart-delays", "3.3 #31: what waits survives a restart, comes once and not early", 120, bed -> survives(bed, "restart"));
        list.add("kill-delays", "the same when the process is killed", 120, bed -> survives(bed, "kill-and-start"));
    }

    static Message timed(String topic, String text, String name, long value) {
        Message message = new Message(topic, "T", text, Bed.bytes(text));
        MessageAccessor.putProperty(message, name, Long.toString(value));
        return message;
    }

    /** Checks that messages came once each and none before its time; `benches/delay` tells how late they are. */
    static void awaitTimes(Inbox inbox, TreeMap<String, Long> dues) throws Exception {
        inbox.awaitExactly(new TreeSet<>(dues.keySet()), 40);
        for (MessageExt message : inbox.messages()) {
            long late = message.getStoreTimestamp() - dues.get(Inbox.text(message));
            Check.that(late >= 0, "%s came %d ms early", Inbox.text(message), -late);
        }
    }

    private static void level(Bed bed) throws Exception {
        String topic = bed.topic(2);
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "T", inbox);
        DefaultMQProducer producer = bed.producer();
        TreeMap<String, Long> dues = new TreeMap<>();
        for (int i = 0; i < 20; i++) {
            Message message = new Message(topic, "T", "key" + i, Bed.bytes("level-" + i));
            message.setDelayTimeLevel(i % 2 + 1);
            message.putUserProperty("colour", "blue");
            long now = System.currentTimeMillis();
            Bed.sent(producer.send(message));
            dues.put("level-" + i, now + (i % 2 == 0 ? 1000 : 5000));
        }
        awaitTimes(inbox, dues);
        MessageExt first = inbox.messages().get(0);
        Check.equal("blue", first.getUserProperty("colour"), "the user's property");
        Check.equal("T", first.getTags(), "the tag");
        Check.equal(topic, first.getProperty("REAL_TOPIC"), "the topic it waited for");
    }

    private static void anyTime(Bed bed) throws Exception {
        String topic = bed.topic(2);
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "*", inbox);
        DefaultMQProducer producer = bed.producer();
        TreeMap<String, Long> dues = new TreeMap<>();
        TreeMap<String, Long> latest = new TreeMap<>();
        for (int i = 0; i < 30; i++) {
            String text = "timed-" + i;
            long now = System.currentTimeMillis();
            switch (i % 3) {
                case 0 -> {
                    Bed.sent(producer.send(timed(topic, text, "TIMER_DELIVER_MS", now + 1700 + i)));
                    dues.put(text, now + 1700 + i);
                }
                case 1 -> {
                    Bed.sent(producer.send(timed(topic, text, "TIMER_DELAY_MS", 2400)));
                    dues.put(text, now + 2400);
                }
                default -> {
                    Bed.sent(producer.send(timed(topic, text, "TIMER_DELAY_SEC", 3)));
                    dues.put(text, now + 3000);
                }
            }
            // A relative time counts from when the broker has the message.
            latest.put(text, dues.get(text) + (i % 3 == 0 ? 0 : System.currentTimeMillis() - now));
        }
        awaitTimes(inbox, dues);
        for (MessageExt message : inbox.messages()) {
            long slot = Long.parseLong(message.getProperty("TIMER_OUT_MS"));
            String text = Inbox.text(message);
            Check.that(slot >= slotOf(dues.get(text)) && slot <= slotOf(latest.get(text)), "%s was to come in the slot %d, not from %d to %d",
                text, slot, dues.get(text), latest.get(text));
            Check.that(message.getKeys().startsWith("timed-"), "the key is kept");
        }
    }

    /** The slot of a second that a time lies in, at its end at the latest. */
    private static long slotOf(long dueMs) {
        return (dueMs - 1) / 1000 * 1000;
    }

    private static void past(Bed bed) throws Exception {
        String topic = bed.topic(1);
        DefaultMQProducer producer = bed.producer();
        Bed.sent(producer.send(timed(topic, "past", "TIMER_DELIVER_MS", System.currentTimeMillis() - 20_000)));
        Check.equal(1L, bed.stored(topic), "messages in the topic at once");
    }

    private static void tooFar(Bed bed) throws Exception {
        String topic = bed.topic(1);
        DefaultMQProducer producer = bed.producer();
        producer.setRetryTimesWhenSendFailed(0);
        for (Message message : new Message[] {timed(topic, "far", "TIMER_DELAY_SEC", 3 * 86_400 + 1),
            timed(topic, "far", "TIMER_DELIVER_MS", System.currentTimeMillis() + 4 * 86_400_000L)}) {
            MQBrokerException refused = Check.refused(MQBrokerException.class, "too far", () -> producer.send(message));
            Check.equal(13, refused.getResponseCode(), "code");
            Check.contains(refused.getErrorMessage(), "max delay 259200000ms", "remark");
        }
        Check.equal(0L, bed.stored(topic), "messages in the topic");
    }

    private static void levelWins(Bed bed) throws Exception {
        String topic = bed.topic(1);
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "*", inbox);
        Message message = timed(topic, "both", "TIMER_DELAY_SEC", 3600);
        message.setDelayTimeLevel(1);
        long now = System.currentTimeMillis();
        Bed.sent(bed.producer().send(message));
        TreeMap<String, Long> dues = new TreeMap<>();
        dues.put("both", now + 1000);
        awaitTimes(inbox, dues);
        Check.equal(null, inbox.messages().get(0).getProperty("TIMER_DELAY_SEC"), "the time, which does not count");
    }

    private static void cancelled(Bed bed) throws Exception {
        String topic = bed.topic(1);
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "*", inbox);
        DefaultMQProducer producer = bed.producer();
        long at = System.currentTimeMillis() + RECALLED_AFTER_MS;
        SendResult sent = Bed.sent(producer.send(timed(topic, "gone", "TIMER_DELIVER_MS", at)));
        Bed.sent(producer.send(timed(topic, "stays", "TIMER_DELIVER_MS", at)));
        Message cancel = timed(topic, "cancel", "TIMER_DELIVER_MS", at);
        MessageAccessor.putProperty(cancel, "TIMER_DEL_UNIQKEY", sent.getMsgId());
        Bed.sent(producer.send(cancel));
        TreeMap<String, Long> dues = new TreeMap<>();
        dues.put("stays", at);
        awaitTimes(inbox, dues);
        Check.stays(0.7, 1, "messages that came", inbox::size);
    }

    private static String handle(String topic, String broker, long slotMs, String id) {
        String plain = String.join(" ", "v1", topic, broker, Long.toString(slotMs + 1), id);
        return Base64.getUrlEncoder().encodeToString(plain.getBytes(StandardCharsets.UTF_8));
    }

    private static RemotingCommand recall(Bed bed, DefaultMQProducer producer, String topic, String handle) throws Exception {
        RemotingCommand request = RemotingCommand.createRequestCommand(RECALL_MESSAGE, null);
        request.addExtField("producerGroup", producer.getProducerGroup());
        request.addExtField("topic", topic);
        request.addExtField("recallHandle", handle);
        var api = producer.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl();
        return api.getRemotingClient().invokeSync(bed.brokerAddress(), request, Bed.ANSWER_MS);
    }

    /** Recalls came with 5.3.2, and are switched off unless asked for. */
    static void needsRecall(Bed bed) throws Exception {
        if (bed.target.isJava()) {
            throw new Main.Skipped("the Java broker 5.3.1 knows no recall");
        }
        java.util.Properties on = new java.util.Properties();
        on.setProperty("recallMessageEnable", "true");
        bed.admin.updateBrokerConfig(bed.brokerAddress(), on);
    }

    private static void recall(Bed bed) throws Exception {
        needsRecall(bed);
        String topic = bed.topic(1);
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "*", inbox);
        DefaultMQProducer producer = bed.producer();
        long at = System.currentTimeMillis() + RECALLED_AFTER_MS;
        long slot = slotOf(at);
        SendResult sent = Bed.sent(producer.send(timed(topic, "gone", "TIMER_DELIVER_MS", at)));
        Bed.sent(producer.send(timed(topic, "stays", "TIMER_DELIVER_MS", at)));
        String handle = handle(topic, bed.brokerName(), slot, sent.getMsgId());
        RemotingCommand answer = recall(bed, producer, topic, handle);
        Check.equal(0, answer.getCode(), "code of the recall (%s)", answer.getRemark());
        Check.equal(sent.getMsgId(), answer.getExtFields().get("msgId"), "what was recalled");
        TreeMap<String, Long> dues = new TreeMap<>();
        dues.put("stays", at);
        awaitTimes(inbox, dues);
        Check.stays(0.7, 1, "messages that came", inbox::size);
        Check.equal(604, recall(bed, producer, topic, handle).getCode(), "code when it is too late");
    }

    private static void badHandles(Bed bed) throws Exception {
        needsRecall(bed);
        String topic = bed.topic(1);
        DefaultMQProducer producer = bed.producer();
        Bed.sent(producer.send(new Message(topic, Bed.bytes("x"))));
        long slot = System.currentTimeMillis() / 1000 * 1000 + 60_000;
        String good = handle(topic, bed.brokerName(), slot, "id");
        Check.equal(0, recall(bed, producer, topic, good).getCode(), "3.4 #35: of an id that was never sent");
        for (String bad : new String[] {"", "?", good.substring(5), handle(topic, "elsewhere", slot, "id"),
            handle("other", bed.brokerName(), slot, "id"), handle(topic, bed.brokerName(), slot - 120_000, "id"),
            handle(topic, bed.brokerName(), slot + 4 * 86_400_000L, "id")}) {
            Check.equal(604, recall(bed, producer, topic, bad).getCode(), "code of " + bad);
        }
        Check.equal(17, recall(bed, producer, topic + "x", good).getCode(), "code of an unknown topic");
    }

    private static void recallElsewhere(Bed bed) throws Exception {
        needsRecall(bed);
        String topic = bed.topic(1);
        String other = bed.topic(1);
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "*", inbox);
        DefaultMQProducer producer = bed.producer();
        long at = System.currentTimeMillis() + RECALLED_AFTER_MS;
        SendResult sent = Bed.sent(producer.send(timed(topic, "stays", "TIMER_DELIVER_MS", at)));
        String handle = handle(other, bed.brokerName(), slotOf(at), sent.getMsgId());
        RemotingCommand answer = recall(bed, producer, other, handle);
        Check.equal(0, answer.getCode(), "code of the recall (%s)", answer.getRemark());
        TreeMap<String, Long> dues = new TreeMap<>();
        dues.put("stays", at);
        awaitTimes(inbox, dues);
    }

    private static void inOrder(Bed bed) throws Exception {
        String topic = bed.topic(1);
        DefaultMQProducer producer = bed.producer();
        for (int i = 0; i < 60; i++) {
            Message message = new Message(topic, Bed.bytes("m" + i));
            message.setDelayTimeLevel(1);
            Bed.sent(producer.send(message));
        }
        Check.within(30, "60 messages in the topic", () -> bed.stored(topic) == 60);
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "*", inbox);
        Check.within(30, "60 messages", () -> inbox.size() >= 60);
        for (MessageExt message : inbox.messages()) {
            Check.equal("m" + message.getQueueOffset(), Inbox.text(message), "message at its place in the queue");
        }
    }

    private static void survives(Bed bed, String word) throws Exception {
        if (!bed.target.isControlled()) {
            throw new Main.Skipped("INTEROP_CONTROL names no command that restarts the node");
        }
        String topic = bed.topic(2);
        DefaultMQProducer producer = bed.producer();
        TreeMap<String, Long> dues = new TreeMap<>();
        for (int i = 0; i < 40; i++) {
            String text = "wait-" + i;
            long now = System.currentTimeMillis();
            if (i % 4 == 0) {
                Message message = new Message(topic, Bed.bytes(text));
                message.setDelayTimeLevel(2);
                Bed.sent(producer.send(message));
                dues.put(text, now + 5000);
            } else {
                long delay = 1500 + i * 150L;
                Bed.sent(producer.send(timed(topic, text, "TIMER_DELAY_MS", delay)));
                dues.put(text, now + delay);
            }
        }
        // Some are delivered, some are not: whatever was done may be done only once.
        Check.within(30, "the first", () -> bed.stored(topic) >= 10);
        if (word.equals("restart")) {
            bed.target.control("restart");
        } else {
            bed.target.control("kill");
            bed.target.control("start");
        }
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "*", inbox);
        inbox.awaitAll(new TreeSet<>(dues.keySet()), 60);
        for (MessageExt message : inbox.messages()) {
            Check.that(message.getStoreTimestamp() >= dues.get(Inbox.text(message)), "%s came early", Inbox.text(message));
        }
        // Java's broker notes a delivery seconds later and may repeat it after a kill.
        if (!bed.target.isJava()) {
            Check.equal(dues.size(), inbox.size(), "deliveries");
        }
    }
}
