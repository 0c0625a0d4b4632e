package interop;

import io.netty.channel.ChannelHandlerContext;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.remoting.netty.NettyRequestProcessor;
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
    static RemotingCommand request(int code, byte[] body, Object... fields) {
        RemotingCommand request = RemotingCommand.createRequestCommand(code, null);
        for (int i = 0; i < fields.length; i += 2) {
            if (fields[i + 1] != null) {
                request.addExtField((String) fields[i], String.valueOf(fields[i + 1]));
            }
        }
        request.setBody(body);
        return request;
    }

    /** What the server at an address answers. */
    RemotingCommand ask(String address, RemotingCommand request, long limitMs) throws Exception {
        return api().getRemotingClient().invokeSync(address, request, limitMs);
    }

    RemotingCommand call(int code, byte[] body, Object... fields) throws Exception {
        return ask(bed.brokerAddress(), request(code, body, fields), 30_000);
    }

    /** The body of the answer to a request that has its parameters in its own body; it must be a success. */
    String json(int code, String body) throws Exception {
        RemotingCommand answer = call(code, Bed.bytes(body));
        Check.equal(0, answer.getCode(), "code of request %d (%s)", code, answer.getRemark());
        return answer.getBody() == null ? "" : new String(answer.getBody(), StandardCharsets.UTF_8);
    }

    /** How many one-way requests of a kind the broker has sent, instead of what the client does with them. */
    AtomicInteger counts(int code) {
        AtomicInteger count = new AtomicInteger();
        api().getRemotingClient().registerProcessor(code, new NettyRequestProcessor() {
            @Override
            public RemotingCommand processRequest(ChannelHandlerContext context, RemotingCommand request) {
                count.incrementAndGet();
                return null;
            }

            @Override
            public boolean rejectRequest() {
                return false;
            }
        }, ForkJoinPool.commonPool());
        return count;
    }

    /** Closes the connections without a word. */
    void close() {
        api().getRemotingClient().shutdown();
    }

    private MQClientAPIImpl api() {
        return client.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl();
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
