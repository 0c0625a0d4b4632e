package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.message.MessageExt;

/** Keeps what a listener was given, in the order of arrival. */
final class Inbox {
    private final List<MessageExt> received = new ArrayList<>();

    final MessageListenerConcurrently concurrently = (List<MessageExt> batch, ConsumeConcurrentlyContext context) -> {
        addAll(batch);
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    };
    final MessageListenerOrderly orderly = (List<MessageExt> batch, ConsumeOrderlyContext context) -> {
        addAll(batch);
        return ConsumeOrderlyStatus.SUCCESS;
    };

    synchronized void addAll(List<MessageExt> batch) {
        received.addAll(batch);
    }

    synchronized List<MessageExt> messages() {
        return new ArrayList<>(received);
    }

    synchronized int size() {
        return received.size();
    }

    synchronized void clear() {
        received.clear();
    }

    static String text(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    TreeSet<String> texts() {
        return messages().stream().map(Inbox::text).collect(Collectors.toCollection(TreeSet::new));
    }

    /** Waits until every one of the texts is here; more or twice is the caller's to judge. The limit is an idle machine's. */
    void awaitAll(TreeSet<String> wanted, double seconds) throws Exception {
        try {
            Check.within(seconds, "all messages", () -> texts().containsAll(wanted));
        } catch (AssertionError e) {
            TreeSet<String> missing = new TreeSet<>(wanted);
            missing.removeAll(texts());
            throw new AssertionError("of " + wanted.size() + " messages " + missing.size() + " did not come within "
                + seconds * Check.PATIENCE + " s, " + size() + " came; missing: " + missing.stream().limit(10).toList(), e);
        }
    }

    /** Waits for exactly these texts, each once. */
    void awaitExactly(TreeSet<String> wanted, double seconds) throws Exception {
        awaitAll(wanted, seconds);
        Check.equal(wanted, texts(), "the set of messages");
        Check.equal(wanted.size(), size(), "number of deliveries");
    }
}
