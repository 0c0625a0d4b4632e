package interop;

import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Requests as they are, over a client's own connection: what the client itself would not let through. */
final class Raw {
    private static final int SEND_MESSAGE = 10;
    private static final int SEND_BATCH_MESSAGE = 320;
    private final Bed bed;
    private final DefaultMQProducer client;

    Raw(Bed bed) throws Exception {
        this.bed = bed;
        this.client = bed.producer();
    }

    /** `fields` are keys and values in turn; null values are left out. */
    RemotingCommand call(int code, byte[] body, Object... fields) throws Exception {
        RemotingCommand request = RemotingCommand.createRequestCommand(code, null);
        for (int i = 0; i < fields.length; i += 2) {
            if (fields[i + 1] != null) {
                request.addExtField((String) fields[i], String.valueOf(fields[i + 1]));
            }
        }
        request.setBody(body);
        var api = client.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl();
        return api.getRemotingClient().invokeSync(bed.brokerAddress(), request, 10_000);
    }

    /** A send with these fields besides those that every send has. */
    RemotingCommand send(String topic, Map<String, String> more) throws Exception {
        Object[] fields = new Object[] {"producerGroup", client.getProducerGroup(), "topic", topic, "defaultTopic", "TBW102",
            "defaultTopicQueueNums", 4, "queueId", 0, "sysFlag", 0, "bornTimestamp", System.currentTimeMillis(), "flag", 0,
            "properties", "", "reconsumeTimes", 0, "unitMode", false};
        Object[] all = java.util.Arrays.copyOf(fields, fields.length + 2 * more.size());
        int at = fields.length;
        for (Map.Entry<String, String> field : more.entrySet()) {
            all[at++] = field.getKey();
            all[at++] = field.getValue();
        }
        return call(SEND_MESSAGE, Bed.bytes("raw"), all);
    }

    /** A batch of one message to a topic, in the short form of its header. */
    RemotingCommand batch(String topic) throws Exception {
        byte[] body = {0, 0, 0, 23, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 'x', 0, 0};
        return call(SEND_BATCH_MESSAGE, body, "a", client.getProducerGroup(), "b", topic, "c", "TBW102", "d", 4, "e", 0, "f", 0,
            "g", System.currentTimeMillis(), "h", 0, "i", "", "j", 0, "k", false, "m", true);
    }
}
