package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/** The Rust client beside the Java client: members of one group, requests and replies, bodies that the other compressed. */
public final class Release5RustScenarios {
    private static final List<CompressionType> COMPRESSIONS =
        List.of(CompressionType.ZLIB, CompressionType.LZ4, CompressionType.ZSTD);

    private Release5RustScenarios() { }

    /** Called by name, since this file is not compiled with the old client. */
    public static void addTo(Scenarios list) {
        list.suite("client");
        list.add("rust-group", "3.6 #50, #52: a Java and a Rust member share, each takes over from the other", 90, Release5RustScenarios::group);
        list.add("rust-orderly", "3.6 #48: order is kept from a Java member to a Rust one and back", 90, Release5RustScenarios::orderly);
        list.add("rust-broadcast", "both members of a broadcast group get everything", 90, Release5RustScenarios::broadcast);
        list.add("rust-answers", "3.12 #113: Rust answers a request of Java", 90, Release5RustScenarios::answers);
        list.add("rust-asks", "3.12 #113: Java answers a request of Rust", 90, Release5RustScenarios::asks);
        list.add("rust-reads-compressed", "1.9: what Java compressed, Rust reads", 90, Release5RustScenarios::reads);
        list.add("rust-writes-compressed", "1.9: what Rust compressed, Java reads", 90, Release5RustScenarios::writes);
    }

    /** A process of the Rust program and what it has printed. */
    private static final class Rust {
        final List<String> lines = Collections.synchronizedList(new ArrayList<>());
        private final Process process;

        Rust(Bed bed, String... words) throws Exception {
            String program = System.getenv("INTEROP_RUST");
            if (program == null) {
                throw new Main.Skipped("INTEROP_RUST names no program");
            }
            List<String> command = new ArrayList<>(List.of(program));
            command.addAll(List.of(words));
            process = new ProcessBuilder(command).redirectErrorStream(true).start();
            bed.atEnd(process::destroyForcibly);
            Thread reader = new Thread(() -> new BufferedReader(new InputStreamReader(process.getInputStream()))
                .lines().forEach(lines::add));
            reader.setDaemon(true);
            reader.start();
        }

        Rust ready() throws Exception {
            Check.within(40, "the Rust program is ready", () -> lines.contains("ready"));
            return this;
        }

        /** What it got, as `QUEUE OFFSET BYTES BEGIN-OF-BODY`. */
        List<String> got() {
            synchronized (lines) {
                return lines.stream().filter(line -> line.startsWith("got ")).map(line -> line.substring(4)).toList();
            }
        }

        Set<String> texts() {
            TreeSet<String> texts = new TreeSet<>();
            got().forEach(line -> texts.add(line.split(" ", 4)[3]));
            return texts;
        }

        /** Ends in order: what was consumed is committed. */
        void end() throws Exception {
            process.getOutputStream().close();
            Check.that(process.waitFor(120, TimeUnit.SECONDS), "the Rust program did not end");
            Check.equal(0, process.exitValue(), "exit code of the Rust program, which printed %s", lines);
        }
    }

    private static void group(Bed bed) throws Exception {
        String topic = bed.topic(4);
        String group = bed.name("g");
        Rust rust = new Rust(bed, "consume", group, topic, "shared").ready();
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer java = bed.pushing(group, topic, "*", inbox);
        DefaultMQProducer producer = bed.producer();
        Check.within(60, "two queues for each member", () -> {
            int mine = inbox.size();
            int others = rust.got().size();
            Bed.send(producer, topic, "", "round", 4);
            Check.within(3, "the round", () -> inbox.size() + rust.got().size() >= mine + others + 4);
            return inbox.size() == mine + 2 && rust.got().size() == others + 2;
        });
        String status = new Tool(bed).succeeds("consumerStatus", "-g", group);
        Check.equal(1, Tool.rows(status, "2").size(), "both members tell the tool what they do: %s", status);
        Check.contains(status, "Rebalance OK", "members of both makes");
        java.shutdown();
        TreeSet<String> after = Bed.send(producer, topic, "", "after", 20);
        Check.within(30, "the Rust member has every queue", () -> rust.texts().containsAll(after));
        // Whoever joins takes its queues from where they are committed.
        bed.awaitConsumed(group, topic);
        Inbox successor = new Inbox();
        bed.pushing(group, topic, "*", successor);
        rust.end();
        TreeSet<String> last = Bed.send(producer, topic, "", "last", 20);
        successor.awaitAll(last, 40);
        Check.that(!successor.texts().contains("after-0"), "what the Rust member committed comes again");
    }

    /** Consumes in order and notes the next offset. */
    private static DefaultMQPushConsumer orderly(Bed bed, String group, String topic, List<String> seen) throws Exception {
        DefaultMQPushConsumer member = bed.push(group);
        member.subscribe(topic, "*");
        member.registerMessageListener((List<MessageExt> batch, ConsumeOrderlyContext context) -> {
            batch.forEach(message -> seen.add(Inbox.text(message)));
            return ConsumeOrderlyStatus.SUCCESS;
        });
        member.start();
        return member;
    }

    private static void orderly(Bed bed) throws Exception {
        String topic = bed.topic(1);
        String group = bed.name("g");
        MessageQueue queue = bed.queues(topic).get(0);
        DefaultMQProducer producer = bed.producer();
        List<String> seen = Collections.synchronizedList(new ArrayList<>());
        for (int turn = 0; turn < 4; turn++) {
            String prefix = "turn" + turn;
            Bed.send(producer, queue, prefix, 10);
            List<String> wanted = new ArrayList<>();
            for (int i = 0; i < 10; i++) {
                wanted.add(prefix + "-" + i);
            }
            seen.clear();
            if (turn % 2 == 0) {
                DefaultMQPushConsumer java = orderly(bed, group, topic, seen);
                Check.within(40, "ten messages for Java", () -> seen.size() >= 10);
                java.shutdown();
            } else {
                Rust rust = new Rust(bed, "consume", group, topic, "orderly");
                Check.within(40, "ten messages for Rust", () -> rust.got().size() >= 10);
                rust.end();
                rust.got().forEach(line -> seen.add(line.split(" ", 4)[3]));
            }
            Check.equal(wanted, List.copyOf(seen), "messages of turn %d, in order", turn);
        }
    }

    private static void broadcast(Bed bed) throws Exception {
        String topic = bed.topic(2);
        String group = bed.name("g");
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer java = bed.push(group);
        java.setMessageModel(MessageModel.BROADCASTING);
        Bed.pushing(java, topic, "*", inbox);
        Rust rust = new Rust(bed, "consume", group, topic, "broadcast").ready();
        DefaultMQProducer producer = bed.producer();
        // A broadcast member starts at the end: until it has, it misses what is sent.
        Check.within(40, "both get a probe", () -> {
            TreeSet<String> probe = Bed.send(producer, topic, "", bed.name("probe"), 2);
            Check.within(2, "the probe", () -> inbox.texts().containsAll(probe) && rust.texts().containsAll(probe));
            return true;
        });
        TreeSet<String> wanted = Bed.send(producer, topic, "", "m", 20);
        inbox.awaitAll(wanted, 40);
        Check.within(30, "all for Rust", () -> rust.texts().containsAll(wanted));
        rust.end();
    }

    private static void answers(Bed bed) throws Exception {
        String topic = bed.topic(1);
        Rust rust = new Rust(bed, "answer", bed.name("g"), topic).ready();
        AtomicReference<Object> came = new AtomicReference<>();
        CountDownLatch done = new CountDownLatch(1);
        bed.producer().request(new Message(topic, Bed.bytes("what is it?")), new RequestCallback() {
            @Override
            public void onSuccess(Message reply) {
                if (reply != null) {
                    came.set(new String(reply.getBody()));
                    done.countDown();
                }
            }

            @Override
            public void onException(Throwable e) {
                came.set(e);
                done.countDown();
            }
        }, 200_000);
        Check.that(done.await(210, TimeUnit.SECONDS), "neither a reply nor a fault came");
        Check.equal("re: what is it?", came.get(), "reply");
        rust.end();
    }

    private static void asks(Bed bed) throws Exception {
        String topic = bed.topic(1);
        RequestScenarios.replier(bed, topic);
        Rust rust = new Rust(bed, "ask", topic, "who is there?");
        Check.within(70, "the reply", () -> rust.lines.contains("reply re: who is there?"));
        rust.end();
    }

    private static void reads(Bed bed) throws Exception {
        String topic = bed.topic(1);
        Rust rust = new Rust(bed, "consume", bed.name("g"), topic, "shared").ready();
        Map<String, Integer> sizes = new HashMap<>();
        for (CompressionType by : COMPRESSIONS) {
            String name = by.name().toLowerCase();
            String text = (name + " compressible ").repeat(4000);
            sizes.put(name, text.length());
            DefaultMQProducer producer = bed.producer();
            producer.setCompressType(by);
            Bed.sent(producer.send(new Message(topic, Bed.bytes(text))));
        }
        Check.within(60, "every message", () -> rust.got().size() == sizes.size());
        for (String line : rust.got()) {
            String[] parts = line.split(" ");
            Check.equal(sizes.get(parts[3]), Integer.parseInt(parts[2]), "bytes of what %s compressed", parts[3]);
        }
        rust.end();
    }

    private static void writes(Bed bed) throws Exception {
        String topic = bed.topic(1);
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "*", inbox);
        TreeSet<String> wanted = new TreeSet<>();
        for (CompressionType by : COMPRESSIONS) {
            String name = by.name().toLowerCase();
            new Rust(bed, "send", topic, name, "4000", name + " compressible ").end();
            wanted.add((name + " compressible ").repeat(4000));
        }
        inbox.awaitExactly(wanted, 60);
        for (MessageExt message : inbox.messages()) {
            Check.that(message.getStoreSize() < message.getBody().length / 10, "stored size %d shows compression", message.getStoreSize());
        }
    }
}
