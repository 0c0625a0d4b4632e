package interop;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * One store that Java's broker and ours open in turns. INTEROP_LEDGER is a file of lines `queue offset offsetId key tag crc`
 * about everything sent so far; each turn checks all of it, consumes what its group has not had, and adds to it.
 */
final class ExchangeScenarios {
    private static final String TOPIC = "it_exchange";
    private static final String GROUP = "it_exchange_group";

    private ExchangeScenarios() { }

    static void addTo(Scenarios list) {
        list.suite("exchange");
        list.add("exchange-turn", "a store of the one is read, queried, consumed and written on by the other", 120, ExchangeScenarios::turn);
        list.suite("registration");
        list.add("registration", "the broker is routed by the name server, a topic change at once", 60, ExchangeScenarios::registration);
    }

    private record Entry(int queue, long offset, String id, String key, String tag, long crc) {
        String line() {
            return queue + " " + offset + " " + id + " " + key + " " + tag + " " + crc;
        }

        static Entry parse(String line) {
            String[] parts = line.split(" ");
            return new Entry(Integer.parseInt(parts[0]), Long.parseLong(parts[1]), parts[2], parts[3], parts[4], Long.parseLong(parts[5]));
        }
    }

    private static long crc(byte[] body) {
        CRC32 crc = new CRC32();
        crc.update(body);
        return crc.getValue();
    }

    private static void turn(Bed bed) throws Exception {
        String file = System.getenv("INTEROP_LEDGER");
        if (file == null) {
            throw new Main.Skipped("INTEROP_LEDGER names no file");
        }
        Path ledger = Path.of(file);
        List<Entry> entries = new ArrayList<>();
        if (Files.exists(ledger)) {
            Files.readAllLines(ledger).forEach(line -> entries.add(Entry.parse(line)));
        } else {
            bed.createTopic(TOPIC, 3, 3, 6);
        }
        Check.within(30, "route of the topic", () -> bed.queues(TOPIC).size() == 3);
        if (!entries.isEmpty()) {
            check(bed, entries);
            // 3.8 #73: the group had consumed all of it; nothing may come twice.
            var progress = bed.admin.examineConsumeStats(GROUP, TOPIC).getOffsetTable();
            for (MessageQueue queue : bed.queues(TOPIC)) {
                long max = entries.stream().filter(e -> e.queue == queue.getQueueId()).count();
                Check.equal(max, progress.get(queue).getConsumerOffset(), "committed offset of %s", queue);
            }
        }
        int turn = entries.size() / 200;
        List<Entry> added = send(bed, turn);
        entries.addAll(added);
        List<String> lines = entries.stream().map(Entry::line).toList();
        Files.write(ledger, lines, StandardOpenOption.CREATE, StandardOpenOption.TRUNCATE_EXISTING);
        check(bed, entries);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = bed.pushing(GROUP, TOPIC, "*", inbox);
        Check.within(30, "200 messages", () -> inbox.size() >= 200);
        TreeSet<String> keys = new TreeSet<>();
        inbox.messages().forEach(m -> keys.add(m.getKeys()));
        TreeSet<String> wanted = new TreeSet<>();
        added.forEach(e -> wanted.add(e.key));
        Check.equal(wanted, keys, "keys of what the group was given");
        Check.equal(200, inbox.size(), "deliveries");
        consumer.shutdown();
        bed.awaitConsumed(GROUP, TOPIC);
    }

    private static List<Entry> send(Bed bed, int turn) throws Exception {
        DefaultMQProducer producer = bed.producer();
        Random random = new Random(turn);
        List<Entry> added = new ArrayList<>();
        for (int i = 0; i < 175; i++) {
            byte[] body = new byte[random.nextInt(i % 20 == 0 ? 60_000 : 900) + 1];
            if (i % 3 != 0) {
                random.nextBytes(body);
            }
            String key = "x" + turn + "_" + i;
            String tag = "T" + i % 4;
            SendResult result = Bed.sent(producer.send(new Message(TOPIC, tag, key, body)));
            added.add(new Entry(result.getMessageQueue().getQueueId(), result.getQueueOffset(), result.getOffsetMsgId(), key, tag, crc(body)));
        }
        List<Message> batch = new ArrayList<>();
        for (int i = 175; i < 200; i++) {
            batch.add(new Message(TOPIC, "Batch", "x" + turn + "_" + i, Bed.bytes("batch item " + i)));
        }
        SendResult result = Bed.sent(producer.send(batch));
        String[] ids = result.getOffsetMsgId().split(",");
        for (int i = 0; i < 25; i++) {
            Message message = batch.get(i);
            added.add(new Entry(result.getMessageQueue().getQueueId(), result.getQueueOffset() + i, ids[i], message.getKeys(),
                "Batch", crc(message.getBody())));
        }
        return added;
    }

    /** Everything in the ledger: by pull at its place, by offset id, by key, and by tag through a filtered pull. */
    private static void check(Bed bed, List<Entry> entries) throws Exception {
        TreeMap<String, Entry> byPlace = new TreeMap<>();
        entries.forEach(e -> byPlace.put(e.queue + ":" + e.offset, e));
        Check.equal(entries.size(), byPlace.size(), "different places");
        var consumer = bed.pull(bed.name("g"));
        consumer.fetchSubscribeMessageQueues(TOPIC);
        // Java's broker shows a message a moment after it has acknowledged it.
        Check.within(30, "every message in its queue", () -> bed.stored(TOPIC) == entries.size());
        int seen = 0;
        int tagged = 0;
        for (MessageQueue queue : bed.queues(TOPIC)) {
            long max = consumer.maxOffset(queue);
            for (long offset = 0; offset < max;) {
                var result = consumer.pull(queue, "*", offset, 32);
                Check.that(result.getMsgFoundList() != null, "%s at %d of %s", result.getPullStatus(), offset, queue);
                for (MessageExt message : result.getMsgFoundList()) {
                    Entry entry = byPlace.get(queue.getQueueId() + ":" + message.getQueueOffset());
                    Check.that(entry != null, "an unknown message at %d of %s", message.getQueueOffset(), queue);
                    Check.equal(offset++, message.getQueueOffset(), "no gap in " + queue);
                    Check.equal(entry.key, message.getKeys(), "keys");
                    Check.equal(entry.tag, message.getTags(), "tags");
                    Check.equal(entry.crc, crc(message.getBody()), "check sum of the body of %s", entry.key);
                    seen++;
                }
            }
            for (long offset = 0; offset < max;) {
                var result = consumer.pull(queue, "T2", offset, 32);
                tagged += result.getMsgFoundList() == null ? 0 : result.getMsgFoundList().size();
                Check.that(result.getNextBeginOffset() > offset, "the filtered pull moves on");
                offset = result.getNextBeginOffset();
            }
        }
        Check.equal(entries.size(), seen, "messages in the queues");
        Check.equal((int) entries.stream().filter(e -> e.tag.equals("T2")).count(), tagged, "messages with the tag T2");
        for (int i = 0; i < entries.size(); i += 7) {
            Entry entry = entries.get(i);
            MessageExt viewed = bed.admin.viewMessage(TOPIC, entry.id);
            Check.equal(entry.key, viewed.getKeys(), "keys by offset id");
            Check.within(30, "by key " + entry.key, () -> {
                var found = bed.admin.queryMessage(TOPIC, entry.key, 8, 0, System.currentTimeMillis() + 60_000).getMessageList();
                return found.size() == 1 && crc(found.get(0).getBody()) == entry.crc;
            });
        }
    }

    private static void registration(Bed bed) throws Exception {
        Check.within(35, "the broker is in the cluster", () -> bed.brokerAddress() != null);
        String topic = bed.topic(5);
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "*", inbox);
        inbox.awaitExactly(Bed.send(bed.producer(), topic, "", "m", 50), 40);
        String automatic = bed.name("auto");
        Bed.sent(bed.producer().send(new Message(automatic, Bed.bytes("first"))));
        Check.within(30, "route of the automatic topic", () -> bed.queues(automatic).size() == 4);
        Check.equal(bed.clusterName(), bed.admin.examineTopicRouteInfo(topic).getBrokerDatas().get(0).getCluster(), "cluster in the route");
    }
}
