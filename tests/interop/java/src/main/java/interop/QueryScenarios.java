package interop;

import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Finding messages by id and by key. */
final class QueryScenarios {
    private QueryScenarios() { }

    static void addTo(Scenarios list) {
        list.suite("everyday");
        list.add("query-by-offset-id", "3.8 #77: viewed by offset id at once", QueryScenarios::byOffsetId);
        list.add("query-by-unique-id", "3.8 #77: viewed by message id", QueryScenarios::byUniqueId);
        list.add("query-by-key", "3.8 #79: each of several keys, only this topic, only this time", QueryScenarios::byKey);
        list.add("query-limit", "3.8 #78: at most 64 of one broker", QueryScenarios::limit);
        list.add("query-nothing", "3.8 #78, #80: unknown key, wrong offset", QueryScenarios::nothing);
    }

    private static void byOffsetId(Bed bed) throws Exception {
        String topic = bed.topic(2);
        DefaultMQProducer producer = bed.producer();
        for (int i = 0; i < 10; i++) {
            SendResult result = Bed.sent(producer.send(new Message(topic, "T", "k" + i, Bed.bytes("m" + i))));
            MessageExt found = bed.admin.viewMessage(topic, result.getOffsetMsgId());
            Check.equal("m" + i, Inbox.text(found), "body");
            Check.equal("k" + i, found.getKeys(), "keys");
            Check.equal(result.getQueueOffset(), found.getQueueOffset(), "queue offset");
            Check.equal(result.getMsgId(), found.getMsgId(), "message id");
        }
    }

    private static void byUniqueId(Bed bed) throws Exception {
        String topic = bed.topic(2);
        DefaultMQProducer producer = bed.producer();
        for (int i = 0; i < 5; i++) {
            String text = "m" + i;
            SendResult result = Bed.sent(producer.send(new Message(topic, "T", "k" + i, Bed.bytes(text))));
            Check.within(30, "message " + i + " by its id",
                () -> Inbox.text(bed.admin.viewMessage(topic, result.getMsgId())).equals(text));
        }
    }

    private static Set<String> query(Bed bed, String topic, String key, int max, long begin, long end) throws Exception {
        List<MessageExt> found = bed.admin.queryMessage(topic, key, max, begin, end).getMessageList();
        Set<String> texts = found.stream().map(Inbox::text).collect(Collectors.toSet());
        Check.equal(found.size(), texts.size(), "each message once");
        return texts;
    }

    private static void byKey(Bed bed) throws Exception {
        String topic = bed.topic(2);
        String other = bed.topic(2);
        DefaultMQProducer producer = bed.producer();
        long start = System.currentTimeMillis() - 1000;
        Bed.sent(producer.send(new Message(topic, "T", "red green", Bed.bytes("one"))));
        Bed.sent(producer.send(new Message(topic, "T", "green", Bed.bytes("two"))));
        Bed.sent(producer.send(new Message(topic, "T", "greenish", Bed.bytes("three"))));
        Bed.sent(producer.send(new Message(other, "T", "green", Bed.bytes("four"))));
        long end = System.currentTimeMillis() + 60_000;
        Check.within(30, "green", () -> query(bed, topic, "green", 32, start, end).equals(Set.of("one", "two")));
        Check.equal(Set.of("one"), query(bed, topic, "red", 32, start, end), "red");
        Check.equal(Set.of("three"), query(bed, topic, "greenish", 32, start, end), "greenish");
        Check.equal(Set.of("four"), query(bed, other, "green", 32, start, end), "green of the other topic");
        Check.refused(MQClientException.class, "a time long ago",
            () -> query(bed, topic, "green", 32, start - 7200_000, start - 3600_000));
    }

    private static void limit(Bed bed) throws Exception {
        String topic = bed.topic(2);
        DefaultMQProducer producer = bed.producer();
        for (int i = 0; i < 100; i++) {
            Bed.sent(producer.send(new Message(topic, "T", "same", Bed.bytes("m" + i))));
        }
        long now = System.currentTimeMillis();
        Check.within(30, "64 of 100", () -> query(bed, topic, "same", 500, now - 60_000, now + 60_000).size() == 64);
        Check.equal(10, query(bed, topic, "same", 10, now - 60_000, now + 60_000).size(), "10 asked for");
    }

    private static void nothing(Bed bed) throws Exception {
        String topic = bed.topic(1);
        SendResult result = Bed.sent(bed.producer().send(new Message(topic, "T", "k", Bed.bytes("m"))));
        long now = System.currentTimeMillis();
        MQClientException fault = Check.refused(MQClientException.class, "unknown key",
            () -> bed.admin.queryMessage(topic, "nokey", 32, 0, now + 60_000));
        Check.equal(208, fault.getResponseCode(), "the client's code for no message");
        long physical = Long.parseLong(result.getOffsetMsgId().substring(16), 16);
        for (long wrong : new long[] {physical + 3, physical + (1L << 40)}) {
            String id = result.getOffsetMsgId().substring(0, 16) + String.format("%016X", wrong);
            MQBrokerException refusal = Check.refused(MQBrokerException.class, "offset " + wrong,
                () -> view(bed, id));
            Check.equal(1, refusal.getResponseCode(), "code");
            Check.contains(refusal.getErrorMessage(), "can not find message by the offset", "remark");
        }
        Check.equal("m", Inbox.text(bed.admin.viewMessage(topic, result.getOffsetMsgId())), "the right offset still");
    }

    /** Views by offset id without the client's fall-back to a search by unique id. */
    private static MessageExt view(Bed bed, String offsetId) throws Exception {
        var id = org.apache.rocketmq.common.message.MessageDecoder.decodeMessageId(offsetId);
        var api = bed.producer().getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl();
        String address = bed.brokerAddress();
        for (var method : api.getClass().getMethods()) {
            if (method.getName().equals("viewMessage")) {
                try {
                    return (MessageExt) (method.getParameterCount() == 3
                        ? method.invoke(api, address, id.getOffset(), (long) Bed.ANSWER_MS)
                        : method.invoke(api, address, "none", id.getOffset(), (long) Bed.ANSWER_MS));
                } catch (java.lang.reflect.InvocationTargetException e) {
                    throw (Exception) e.getCause();
                }
            }
        }
        throw new AssertionError("the client has no viewMessage");
    }
}
