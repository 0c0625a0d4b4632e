package interop;

import java.lang.reflect.Method;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Several members of one group: sharing, taking over, broadcasting. */
final class GroupScenarios {
    private GroupScenarios() { }

    static void addTo(Scenarios list) {
        list.suite("everyday");
        list.add("group-shares", "3.6 #50, #52: a second member gets half, nothing is lost", GroupScenarios::shares);
        list.add("group-takeover", "3.6 #50: a member that leaves is replaced", GroupScenarios::takeover);
        list.add("group-takeover-after-crash", "3.6 #50: a closed connection counts at once", GroupScenarios::crash);
        list.add("group-orderly-takeover", "3.6 #48, #55: one queue has one orderly consumer, the other takes over in order", 90, GroupScenarios::orderlyTakeover);
        list.add("group-more-members-than-queues", "3.6 #52: idle members disturb nothing", GroupScenarios::moreMembers);
        list.add("group-broadcast", "every member of a broadcast group gets everything", GroupScenarios::broadcast);
        list.add("group-broadcast-late", "3.8 #71: a broadcast member that starts later starts at the end", GroupScenarios::broadcastLate);
        list.add("group-members-known", "3.6 #51 and connection list: clients, subscription, model", GroupScenarios::membersKnown);
        list.add("group-two-groups", "two groups of one topic do not know each other", GroupScenarios::twoGroups);
    }

    private static Set<MessageQueue> owned(DefaultMQPushConsumer consumer, String topic) {
        return consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
            .filter(queue -> queue.getTopic().equals(topic)).collect(Collectors.toSet());
    }

    private static void awaitOwned(DefaultMQPushConsumer consumer, String topic, int queues, double seconds) throws Exception {
        Check.within(seconds, queues + " queues owned", () -> owned(consumer, topic).size() == queues);
    }

    private static void shares(Bed bed) throws Exception {
        String topic = bed.topic(8);
        String group = bed.name("g");
        DefaultMQProducer producer = bed.producer();
        Inbox one = new Inbox();
        Inbox two = new Inbox();
        DefaultMQPushConsumer first = bed.pushing(group, topic, "*", one);
        awaitOwned(first, topic, 8, 30);
        TreeSet<String> alone = Bed.send(producer, topic, "", "alone", 40);
        one.awaitExactly(alone, 40);
        DefaultMQPushConsumer second = bed.pushing(group, topic, "*", two);
        awaitOwned(first, topic, 4, 30);
        awaitOwned(second, topic, 4, 30);
        Set<MessageQueue> all = new HashSet<>(owned(first, topic));
        all.addAll(owned(second, topic));
        Check.equal(8, all.size(), "queues owned by the two together");
        one.clear();
        TreeSet<String> both = Bed.send(producer, topic, "", "both", 80);
        Check.within(30, "80 messages", () -> union(one, two).containsAll(both));
        Check.equal(40, one.size(), "share of the first member");
        // The second may be given again what the first had consumed and not yet committed.
        long fresh = two.messages().stream().filter(m -> Inbox.text(m).startsWith("both")).count();
        Check.equal(40L, fresh, "share of the second member");
    }

    private static TreeSet<String> union(Inbox one, Inbox two) {
        TreeSet<String> union = one.texts();
        union.addAll(two.texts());
        return union;
    }

    /** Two members with two queues each; one of them goes. */
    private record Two(String topic, DefaultMQProducer producer, DefaultMQPushConsumer stays, Inbox staysGot,
        DefaultMQPushConsumer goes, Inbox goesGot) {
        static Two of(Bed bed) throws Exception {
            String topic = bed.topic(4);
            String group = bed.name("g");
            Inbox staysGot = new Inbox();
            Inbox goesGot = new Inbox();
            Two two = new Two(topic, bed.producer(), bed.pushing(group, topic, "*", staysGot), staysGot,
                bed.pushing(group, topic, "*", goesGot), goesGot);
            // Of the four that the first takes at its start it has two for a moment as well.
            Check.within(30, "two queues owned by each", () -> {
                Set<MessageQueue> all = new HashSet<>(owned(two.stays, topic));
                all.addAll(owned(two.goes, topic));
                return owned(two.stays, topic).size() == 2 && owned(two.goes, topic).size() == 2 && all.size() == 4;
            });
            return two;
        }
    }

    private static void takeover(Bed bed) throws Exception {
        Two two = Two.of(bed);
        TreeSet<String> wanted = Bed.send(two.producer, two.topic, "", "both", 40);
        Check.within(30, "40 messages", () -> union(two.staysGot, two.goesGot).containsAll(wanted));
        two.goes.shutdown();
        awaitOwned(two.stays, two.topic, 4, 30);
        TreeSet<String> after = Bed.send(two.producer, two.topic, "", "after", 40);
        two.staysGot.awaitAll(after, 40);
        Check.equal(20, two.goesGot.size(), "deliveries to the one that left");
        // The one that stayed may be given again what the other had consumed and not yet committed.
        long fresh = two.staysGot.messages().stream().filter(m -> Inbox.text(m).startsWith("after")).count();
        Check.equal(40L, fresh, "deliveries of what came after, to the one that stayed");
    }

    private static void crash(Bed bed) throws Exception {
        Two two = Two.of(bed);
        // Its connections close without a word, as when the process is killed.
        two.goes.getDefaultMQPushConsumerImpl().getmQClientFactory().getMQClientAPIImpl().shutdown();
        awaitOwned(two.stays, two.topic, 4, 30);
        TreeSet<String> after = Bed.send(two.producer, two.topic, "", "after", 40);
        two.staysGot.awaitAll(after, 40);
    }

    private static void orderlyTakeover(Bed bed) throws Exception {
        String topic = bed.topic(1);
        String group = bed.name("g");
        DefaultMQProducer producer = bed.producer();
        MessageQueue queue = bed.queues(topic).get(0);
        Inbox[] inboxes = {new Inbox(), new Inbox()};
        DefaultMQPushConsumer[] members = new DefaultMQPushConsumer[2];
        for (int i = 0; i < 2; i++) {
            members[i] = bed.push(group);
            members[i].subscribe(topic, "*");
            members[i].registerMessageListener(inboxes[i].orderly);
            members[i].start();
        }
        // The queue is that member's whose id is the smaller one; the first member has it until the second is known.
        int owner = members[0].buildMQClientId().compareTo(members[1].buildMQClientId()) < 0 ? 0 : 1;
        Check.within(30, "one owner", () -> owned(members[owner], topic).size() == 1 && owned(members[1 - owner], topic).isEmpty());
        Bed.send(producer, queue, "first", 30);
        Check.within(30, "30 messages", () -> union(inboxes[0], inboxes[1]).size() == 30);
        Check.equal(0, inboxes[1 - owner].size(), "deliveries to the other member");
        members[owner].shutdown();
        Bed.send(producer, queue, "second", 30);
        // It may be given again what the other had consumed and not yet committed.
        Check.within(30, "the other member has taken over", () -> fresh(inboxes[1 - owner], 30).size() >= 30);
        long next = 30;
        for (long offset : fresh(inboxes[1 - owner], 30)) {
            Check.equal(next++, offset, "queue offset after the takeover");
        }
    }

    /** The queue offsets from one on, in the order in which they came. */
    private static List<Long> fresh(Inbox inbox, long from) {
        return inbox.messages().stream().map(MessageExt::getQueueOffset).filter(offset -> offset >= from).toList();
    }

    private static void moreMembers(Bed bed) throws Exception {
        String topic = bed.topic(2);
        String group = bed.name("g");
        Inbox[] inboxes = new Inbox[4];
        DefaultMQPushConsumer[] members = new DefaultMQPushConsumer[4];
        for (int i = 0; i < 4; i++) {
            inboxes[i] = new Inbox();
            members[i] = bed.pushing(group, topic, "*", inboxes[i]);
        }
        Check.within(30, "two owners", () -> {
            int sum = 0;
            for (DefaultMQPushConsumer member : members) {
                sum += owned(member, topic).size();
            }
            return sum == 2;
        });
        TreeSet<String> wanted = Bed.send(bed.producer(), topic, "", "m", 40);
        Check.within(30, "40 messages", () -> {
            int sum = 0;
            for (Inbox inbox : inboxes) {
                sum += inbox.size();
            }
            return sum >= wanted.size();
        });
    }

    /** The enum of the message models moved between the releases, so it is reached through the setter's type. */
    static void setBroadcasting(DefaultMQPushConsumer consumer) throws Exception {
        for (Method method : DefaultMQPushConsumer.class.getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                for (Object model : method.getParameterTypes()[0].getEnumConstants()) {
                    if (model.toString().equals("BROADCASTING")) {
                        method.invoke(consumer, model);
                        return;
                    }
                }
            }
        }
        throw new AssertionError("the client has no message model BROADCASTING");
    }

    private static DefaultMQPushConsumer broadcasting(Bed bed, String group, String topic, Inbox inbox) throws Exception {
        DefaultMQPushConsumer consumer = bed.push(group);
        setBroadcasting(consumer);
        return Bed.pushing(consumer, topic, "*", inbox);
    }

    private static void broadcast(Bed bed) throws Exception {
        String topic = bed.topic(4);
        String group = bed.name("g");
        Inbox one = new Inbox();
        Inbox two = new Inbox();
        DefaultMQPushConsumer first = broadcasting(bed, group, topic, one);
        DefaultMQPushConsumer second = broadcasting(bed, group, topic, two);
        awaitOwned(first, topic, 4, 30);
        awaitOwned(second, topic, 4, 30);
        TreeSet<String> wanted = Bed.send(bed.producer(), topic, "", "m", 60);
        one.awaitExactly(wanted, 40);
        two.awaitExactly(wanted, 40);
    }

    private static void broadcastLate(Bed bed) throws Exception {
        String topic = bed.topic(2);
        DefaultMQProducer producer = bed.producer();
        Bed.send(producer, topic, "", "old", 10);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = bed.push(bed.name("g"));
        GroupScenarios.setBroadcasting(consumer);
        consumer.setConsumeFromWhere(org.apache.rocketmq.common.consumer.ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        Bed.pushing(consumer, topic, "*", inbox);
        awaitOwned(consumer, topic, 2, 30);
        TreeSet<String> wanted = Bed.send(producer, topic, "", "new", 10);
        inbox.awaitExactly(wanted, 40);
    }

    private static void membersKnown(Bed bed) throws Exception {
        String topic = bed.topic(2);
        String group = bed.name("g");
        MQBrokerException nobody = Check.refused(MQBrokerException.class, "connections of a group without members",
            () -> bed.admin.examineConsumerConnectionInfo(group, bed.brokerAddress()));
        Check.equal(206, nobody.getResponseCode(), "code for a group without members");
        DefaultMQPushConsumer one = bed.pushing(group, topic, "A || B", new Inbox());
        DefaultMQPushConsumer two = bed.pushing(group, topic, "A || B", new Inbox());
        Check.within(30, "both members", () -> bed.admin.examineConsumerConnectionInfo(group).getConnectionSet().size() == 2);
        var info = bed.admin.examineConsumerConnectionInfo(group);
        Check.equal(Set.of(one.buildMQClientId(), two.buildMQClientId()),
            info.getConnectionSet().stream().map(c -> c.getClientId()).collect(Collectors.toSet()), "client ids");
        info.getConnectionSet().forEach(c -> {
            Check.equal("JAVA", c.getLanguage().toString(), "language");
            Check.that(c.getClientAddr().startsWith("127.0.0.1:"), "address %s", c.getClientAddr());
        });
        Check.equal("CONSUME_PASSIVELY", info.getConsumeType().toString(), "consume type");
        Check.equal("CLUSTERING", info.getMessageModel().toString(), "message model");
        Check.equal(Set.of(topic, "%RETRY%" + group), info.getSubscriptionTable().keySet(), "subscribed topics");
        Check.equal("A || B", info.getSubscriptionTable().get(topic).getSubString(), "expression");
        two.shutdown();
        Check.within(30, "one member left", () -> bed.admin.examineConsumerConnectionInfo(group).getConnectionSet().size() == 1);
        // 3.5 #45: the retry topic is there after the first heartbeat.
        Check.within(30, "one queue of the retry topic",
            () -> bed.admin.examineTopicRouteInfo("%RETRY%" + group).getQueueDatas().get(0).getReadQueueNums() == 1);
    }

    private static void twoGroups(Bed bed) throws Exception {
        String topic = bed.topic(3);
        DefaultMQProducer producer = bed.producer();
        Inbox one = new Inbox();
        Inbox two = new Inbox();
        bed.pushing(bed.name("g"), topic, "*", one);
        bed.pushing(bed.name("g"), topic, "X", two);
        TreeSet<String> plain = Bed.send(producer, topic, "", "plain", 20);
        TreeSet<String> tagged = Bed.send(producer, topic, "X", "tagged", 20);
        TreeSet<String> all = new TreeSet<>(plain);
        all.addAll(tagged);
        one.awaitExactly(all, 40);
        two.awaitExactly(tagged, 40);
        Check.equal(List.of(), two.messages().stream().filter(m -> !"X".equals(m.getTags())).toList(), "foreign messages");
    }
}
