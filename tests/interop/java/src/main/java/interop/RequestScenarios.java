package interop;

import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;

/** Requests that wait for a reply, and those who reply. */
final class RequestScenarios {
    private RequestScenarios() { }

    static void addTo(Scenarios list) {
        list.suite("everyday");
        list.add("request-callback", "3.12 #113: a reply reaches the call-back of its request", RequestScenarios::callback);
        list.add("request-waiting", "the same while the requester waits (4.9)", RequestScenarios::waiting);
        list.add("request-timeout", "a request that nobody answers ends at its time", RequestScenarios::timeout);
        list.add("request-compressed", "a compressed request and its compressed reply", RequestScenarios::compressed);
        list.add("reply-to-stranger", "3.12 #113: a reply to a client that is not there is refused", RequestScenarios::stranger);
    }

    /** Answers each request of a topic with `re: ` and its text. */
    static void replier(Bed bed, String topic) throws Exception {
        DefaultMQProducer replies = bed.producer();
        DefaultMQPushConsumer consumer = bed.push(bed.name("g"));
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            for (MessageExt request : batch) {
                try {
                    Bed.sent(replies.send(MessageUtil.createReplyMessage(request, Bed.bytes("re: " + Inbox.text(request)))));
                } catch (Exception e) {
                    throw new IllegalStateException(e);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    private static String text(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    /** Waits for the first call-back that says something: 5.x calls back with nothing when the request is sent. */
    private static final class Reply implements RequestCallback {
        final AtomicReference<Message> message = new AtomicReference<>();
        final AtomicReference<Throwable> fault = new AtomicReference<>();
        final CountDownLatch done = new CountDownLatch(1);

        @Override
        public void onSuccess(Message reply) {
            if (reply != null) {
                message.set(reply);
                done.countDown();
            }
        }

        @Override
        public void onException(Throwable e) {
            fault.set(e);
            done.countDown();
        }
    }

    private static Message ask(DefaultMQProducer producer, Message request) throws Exception {
        Reply reply = new Reply();
        producer.request(request, reply, 120_000);
        Check.that(reply.done.await(130, TimeUnit.SECONDS), "neither a reply nor a fault came");
        if (reply.fault.get() != null) {
            throw new AssertionError("the request failed", reply.fault.get());
        }
        return reply.message.get();
    }

    private static void callback(Bed bed) throws Exception {
        String topic = bed.topic(2);
        replier(bed, topic);
        DefaultMQProducer producer = bed.producer();
        for (int i = 0; i < 5; i++) {
            Message request = new Message(topic, "Tag", "key" + i, Bed.bytes("question " + i));
            Message reply = ask(producer, request);
            Check.equal("re: question " + i, text(reply), "reply");
            Check.equal(bed.clusterName() + "_REPLY_TOPIC", reply.getTopic(), "topic of the reply");
            Check.equal(request.getProperty(MessageConst.PROPERTY_CORRELATION_ID),
                reply.getProperty(MessageConst.PROPERTY_CORRELATION_ID), "id that joins both");
            Check.that(reply.getProperty("PUSH_REPLY_TIME") != null, "no time of the push in %s", reply.getProperties());
        }
    }

    /** The client 5.3.1 gives up as soon as its request is acknowledged, whatever the broker; 4.9.8 waits. */
    private static boolean givesUpAtOnce() {
        return MQVersion.CURRENT_VERSION >= MQVersion.Version.V5_0_0.ordinal();
    }

    private static void waiting(Bed bed) throws Exception {
        if (givesUpAtOnce()) {
            throw new Main.Skipped("this client does not wait for the reply, whatever the broker");
        }
        String topic = bed.topic(2);
        replier(bed, topic);
        DefaultMQProducer producer = bed.producer();
        for (int i = 0; i < 5; i++) {
            Check.equal("re: question " + i, text(producer.request(new Message(topic, Bed.bytes("question " + i)), 120_000)), "reply");
        }
    }

    private static void timeout(Bed bed) throws Exception {
        DefaultMQProducer producer = bed.producer();
        String topic = bed.topic(1);
        Reply reply = new Reply();
        // The time counts for the send as well, which the client then calls another failure: the route shall be known by then.
        Bed.send(producer, topic, "", "first", 1);
        producer.request(new Message(topic, Bed.bytes("is anybody there?")), reply, 4000);
        Check.that(reply.done.await(120, TimeUnit.SECONDS), "the request did not end");
        Check.that(reply.fault.get() instanceof RequestTimeoutException, "it ended with %s, %s", reply.fault.get(), reply.message.get());
        Check.refused(RequestTimeoutException.class, "a request that waits",
            () -> producer.request(new Message(topic, Bed.bytes("is nobody there?")), 4000));
    }

    private static void compressed(Bed bed) throws Exception {
        String topic = bed.topic(1);
        replier(bed, topic);
        String question = "compressible ".repeat(8000);
        Check.equal("re: " + question, text(ask(bed.producer(), new Message(topic, Bed.bytes(question)))), "reply");
    }

    private static void stranger(Bed bed) throws Exception {
        DefaultMQProducer producer = bed.producer();
        producer.setRetryTimesWhenSendFailed(0);
        String client = "127.0.0.1@" + bed.name("nobody");
        MessageExt request = new MessageExt();
        request.putUserProperty("x", "y");
        request.getProperties().put(MessageConst.PROPERTY_CLUSTER, bed.clusterName());
        request.getProperties().put(MessageConst.PROPERTY_MESSAGE_REPLY_TO_CLIENT, client);
        request.getProperties().put(MessageConst.PROPERTY_CORRELATION_ID, "c1");
        request.getProperties().put(MessageConst.PROPERTY_MESSAGE_TTL, "3000");
        MQClientException failed = Check.refused(MQClientException.class, "a reply to a stranger",
            () -> producer.send(MessageUtil.createReplyMessage(request, Bed.bytes("an answer"))));
        Check.that(failed.getCause() instanceof MQBrokerException, "refused by %s", failed.getCause());
        MQBrokerException refused = (MQBrokerException) failed.getCause();
        Check.equal(1, refused.getResponseCode(), "code");
        Check.equal("push reply message fail, channel of <" + client + "> not found.", refused.getErrorMessage(), "remark");
    }
}
