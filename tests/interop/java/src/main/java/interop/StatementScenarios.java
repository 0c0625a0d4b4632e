package interop;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.SerializeType;

/** Statements about single requests that no public call of a client makes, or hides the answer of. */
final class StatementScenarios {
    private static final int PULL_MESSAGE = 11;
    private static final int QUERY_CONSUMER_OFFSET = 14;
    private static final int UPDATE_CONSUMER_OFFSET = 15;
    private static final int GET_MAX_OFFSET = 30;
    private static final int HEART_BEAT = 34;
    private static final int UNREGISTER_CLIENT = 35;
    private static final int CONSUMER_SEND_MSG_BACK = 36;
    private static final int GET_CONSUMER_LIST_BY_GROUP = 38;
    private static final int NOTIFY_CONSUMER_IDS_CHANGED = 40;
    private static final int LOCK_BATCH_MQ = 41;
    private static final int UNLOCK_BATCH_MQ = 42;
    private static final int GET_ROUTEINFO_BY_TOPIC = 105;
    private static final int UPDATE_GROUP = 200;
    private static final int RESET_OFFSET = 222;
    private static final int QUERY_ASSIGNMENT = 400;

    private StatementScenarios() { }

    static void addTo(Scenarios list) {
        list.suite("everyday");
        list.add("send-pop-mark", "3.1 #10: a pop mark that a producer sends is not stored", StatementScenarios::popMark);
        list.add("answer-form", "3.12 #119: an answer has the number and the form of its request", StatementScenarios::answerForm);
        list.add("lock-what-is-free", "3.6 #48, #49: a lock request gets the free queues, and after an unlock the rest",
            bed -> locks(bed, bed.name("g")));
        list.add("lock-unknown-group", "3.6 #49: leases know no groups: one that cannot be made has them as any other",
            bed -> locks(bed, "no name of a group! " + bed.name("g")));
        list.add("group-nobody", "3.6 #51: who asks for the members of a group without any is told 1", StatementScenarios::nobody);
        list.add("group-told", "3.6 #50: members are told at once of who comes, goes, or reads other topics", StatementScenarios::told);
        list.add("group-newer-subscription", "3.6 #53: the newer subscription counts, whoever tells his last", StatementScenarios::newerSubscription);
        list.add("retry-before-rebalance", "3.5 #46: a retry topic is read from 0, also by who begins at the end", StatementScenarios::retryFromZero);
        list.add("retry-no-queues", "3.5 #43: a group without retry queues drops what fails", StatementScenarios::noRetryQueues);
        list.add("offset-reset-twice", "3.9 #82, #83, #85: the last reset is told and pulled from, of this queue alone", StatementScenarios::resetTwice);
        list.suite("delivery");
        list.add("light-assignment", "3.6 #57: a light queue is one queue in an assignment", StatementScenarios::lightAssignment);
        list.suite("restart");
        list.add("stop-unregisters", "3.12 #117: after the last broker stopped there is no route", 120, StatementScenarios::unregisters);
    }

    private static void popMark(Bed bed) throws Exception {
        String topic = bed.topic(1);
        RemotingCommand answer = new Raw(bed).send(topic, Map.of("properties", "POP_CK\u00010 1 2 3\u0002own\u0001value\u0002"));
        Check.equal(0, answer.getCode(), "code of the send (%s)", answer.getRemark());
        MessageExt stored = bed.admin.viewMessage(topic, answer.getExtFields().get("msgId"));
        Check.equal("value", stored.getProperty("own"), "the sender's own property");
        Check.equal(null, stored.getProperty("POP_CK"), "the pop mark");
    }

    private static void answerForm(Bed bed) throws Exception {
        String topic = bed.topic(1);
        Raw raw = new Raw(bed);
        for (SerializeType form : SerializeType.values()) {
            for (int code : new int[] {GET_MAX_OFFSET, 4711, GET_ROUTEINFO_BY_TOPIC}) {
                RemotingCommand request = Raw.request(code, null, "topic", topic, "queueId", 0);
                request.setSerializeTypeCurrentRPC(form);
                String address = code == GET_ROUTEINFO_BY_TOPIC ? bed.target.nameServer() : bed.brokerAddress();
                RemotingCommand answer = raw.ask(address, request, 30_000);
                Check.equal(request.getOpaque(), answer.getOpaque(), "number of the answer to %d", code);
                // Java's servers answer in the form that they are set to; its clients read both.
                SerializeType wanted = bed.target.isJava() ? SerializeType.JSON : form;
                Check.equal(wanted, answer.getSerializeTypeCurrentRPC(), "form of the answer to %d", code);
                Check.that(answer.isResponseType(), "the answer to %d is none: %s", code, answer);
                Check.that(answer.getVersion() > 0, "version of the answer to %d: %d", code, answer.getVersion());
            }
        }
    }

    private static String queue(String topic, String broker, int id) {
        return "{\"topic\":\"" + topic + "\",\"brokerName\":\"" + broker + "\",\"queueId\":" + id + "}";
    }

    /** The ids of queues that a body names. */
    private static TreeSet<Integer> queueIds(String body) {
        return Pattern.compile("\"queueId\":(\\d+)").matcher(body).results().map(found -> Integer.parseInt(found.group(1)))
            .collect(Collectors.toCollection(TreeSet::new));
    }

    private static void locks(Bed bed, String group) throws Exception {
        String topic = bed.topic(4);
        String broker = bed.brokerName();
        Raw raw = new Raw(bed);
        interface Asks {
            String of(String client, int... queues);
        }
        Asks body = (client, queues) -> "{\"clientId\":\"" + client + "\",\"consumerGroup\":\"" + group + "\",\"mqSet\":["
            + IntStream.of(queues).mapToObj(id -> queue(topic, broker, id)).collect(Collectors.joining(",")) + "]}";
        Check.equal(new TreeSet<>(List.of(0, 1)), queueIds(raw.json(LOCK_BATCH_MQ, body.of("one", 0, 1))), "queues of the first");
        Check.equal(new TreeSet<>(List.of(2, 3)), queueIds(raw.json(LOCK_BATCH_MQ, body.of("two", 0, 1, 2, 3))), "queues of the second");
        Check.equal(new TreeSet<>(), queueIds(raw.json(LOCK_BATCH_MQ, body.of("three", 0, 1, 2, 3))), "queues of the third");
        Check.equal(new TreeSet<>(List.of(0, 1)), queueIds(raw.json(LOCK_BATCH_MQ, body.of("one", 0, 1))), "queues that are renewed");
        raw.json(UNLOCK_BATCH_MQ, body.of("one", 0));
        raw.json(UNLOCK_BATCH_MQ, body.of("three", 1));
        Check.equal(new TreeSet<>(List.of(0, 2, 3)), queueIds(raw.json(LOCK_BATCH_MQ, body.of("two", 0, 1, 2, 3))), "queues after the unlock");
    }

    private static void nobody(Bed bed) throws Exception {
        String group = bed.name("g");
        RemotingCommand answer = new Raw(bed).call(GET_CONSUMER_LIST_BY_GROUP, null, "consumerGroup", group);
        Check.equal(1, answer.getCode(), "code");
        Check.contains(answer.getRemark(), "no consumer for this group, " + group, "remark");
    }

    /** A member's heartbeat; it reads the topic by one tag. */
    private static String heartbeat(String client, String group, String topic, String tag, long version) {
        return "{\"clientID\":\"" + client + "\",\"producerDataSet\":[],\"consumerDataSet\":[{\"groupName\":\"" + group
            + "\",\"consumeType\":\"CONSUME_PASSIVELY\",\"messageModel\":\"CLUSTERING\",\"consumeFromWhere\":"
            + "\"CONSUME_FROM_FIRST_OFFSET\",\"unitMode\":false,\"subscriptionDataSet\":[{\"topic\":\"" + topic
            + "\",\"subString\":\"" + tag + "\",\"tagsSet\":[\"" + tag + "\"],\"codeSet\":[" + tag.hashCode()
            + "],\"subVersion\":" + version + ",\"classFilterMode\":false,\"expressionType\":\"TAG\"}]}]}";
    }

    private static void newerSubscription(Bed bed) throws Exception {
        String topic = bed.topic(1);
        String group = bed.name("g");
        DefaultMQProducer producer = bed.producer();
        Bed.send(producer, topic, "Old", "old", 3);
        Bed.send(producer, topic, "New", "new", 3);
        Raw older = new Raw(bed);
        Raw newer = new Raw(bed);
        older.json(HEART_BEAT, heartbeat("older", group, topic, "Old", 100));
        newer.json(HEART_BEAT, heartbeat("newer", group, topic, "New", 200));
        older.json(HEART_BEAT, heartbeat("older", group, topic, "Old", 100));
        var table = bed.admin.examineConsumerConnectionInfo(group).getSubscriptionTable();
        Check.equal("New", table.get(topic).getSubString(), "the subscription that counts");
        RemotingCommand answer = older.call(PULL_MESSAGE, null, "consumerGroup", group, "topic", topic, "queueId", 0, "queueOffset", 0,
            "maxMsgNums", 32, "sysFlag", 0, "commitOffset", 0, "suspendTimeoutMillis", 0, "subVersion", 100);
        Check.equal(0, answer.getCode(), "code of the pull (%s)", answer.getRemark());
        List<String> texts = MessageDecoder.decodes(ByteBuffer.wrap(answer.getBody())).stream().map(Inbox::text).toList();
        Check.equal(List.of("new-0", "new-1", "new-2"), texts, "what a pull without an expression finds");
    }

    private static void told(Bed bed) throws Exception {
        String topic = bed.topic(1);
        String group = bed.name("g");
        Raw stays = new Raw(bed);
        Raw other = new Raw(bed);
        AtomicInteger notices = stays.counts(NOTIFY_CONSUMER_IDS_CHANGED);
        interface Change {
            void happens() throws Exception;
        }
        Map<String, Change> changes = new LinkedHashMap<>();
        changes.put("itself", () -> stays.json(HEART_BEAT, heartbeat("stays", group, topic, "A", 1)));
        changes.put("a new member", () -> other.json(HEART_BEAT, heartbeat("other", group, topic, "A", 1)));
        changes.put("another topic", () -> other.json(HEART_BEAT, heartbeat("other", group, bed.topic(1), "A", 2)));
        changes.put("a member that takes its leave",
            () -> Check.equal(0, other.call(UNREGISTER_CLIENT, null, "clientID", "other", "consumerGroup", group).getCode(), "code"));
        changes.put("a member that is there again", () -> other.json(HEART_BEAT, heartbeat("other", group, topic, "A", 3)));
        changes.put("a closed connection", other::close);
        for (var change : changes.entrySet()) {
            int before = notices.get();
            change.getValue().happens();
            Check.within(30, "a notice of " + change.getKey(), () -> notices.get() > before);
        }
    }

    private static void retryFromZero(Bed bed) throws Exception {
        String topic = bed.topic(1);
        String group = bed.name("g");
        RemotingCommand answer = new Raw(bed).send(bed.retryTopic(group, topic), Map.of());
        Check.equal(0, answer.getCode(), "code of the send (%s)", answer.getRemark());
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer second = bed.push(group);
        second.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        Bed.pushing(second, topic, "*", inbox);
        inbox.awaitExactly(new TreeSet<>(List.of("raw")), 50);
    }

    private static void noRetryQueues(Bed bed) throws Exception {
        String topic = bed.topic(1);
        SendResult result = Bed.sent(bed.producer().send(new Message(topic, Bed.bytes("poison"))));
        long place = Long.parseLong(result.getOffsetMsgId().substring(16), 16);
        Raw raw = new Raw(bed);
        for (int queues : new int[] {0, 1}) {
            String group = bed.name("g");
            raw.json(UPDATE_GROUP, "{\"groupName\":\"" + group + "\",\"retryQueueNums\":" + queues + "}");
            // Level -1 is the end: a dead letter is there when the answer is.
            RemotingCommand answer = raw.call(CONSUMER_SEND_MSG_BACK, null, "offset", place, "group", group, "delayLevel", -1,
                "originMsgId", result.getMsgId(), "originTopic", topic, "unitMode", false, "maxReconsumeTimes", 3);
            Check.equal(0, answer.getCode(), "code for %d retry queues (%s)", queues, answer.getRemark());
            String dead = "%DLQ%" + group;
            if (queues == 0) {
                MQClientException none = Check.refused(MQClientException.class, "a dead letter", () -> bed.admin.examineTopicRouteInfo(dead));
                Check.equal(17, none.getResponseCode(), "code for a topic of no dead letters");
            } else {
                Check.within(30, "the dead letter of the other group", () -> bed.stored(dead) == 1);
            }
        }
    }

    private static RemotingCommand pull(Raw raw, String group, MessageQueue queue, long offset) throws Exception {
        return raw.call(PULL_MESSAGE, null, "consumerGroup", group, "topic", queue.getTopic(), "queueId", queue.getQueueId(),
            "queueOffset", offset, "maxMsgNums", 32, "sysFlag", 4, "commitOffset", 0, "suspendTimeoutMillis", 0, "subscription", "*",
            "subVersion", 0, "expressionType", "TAG");
    }

    private static void resetTwice(Bed bed) throws Exception {
        String topic = bed.topic(2);
        String group = bed.name("g");
        DefaultMQProducer producer = bed.producer();
        List<MessageQueue> queues = bed.queues(topic);
        Raw raw = new Raw(bed);
        raw.json(UPDATE_GROUP, "{\"groupName\":\"" + group + "\"}");
        for (MessageQueue queue : queues) {
            Bed.send(producer, queue, "m", 10);
            raw.call(UPDATE_CONSUMER_OFFSET, null, "consumerGroup", group, "topic", topic, "queueId", queue.getQueueId(), "commitOffset", 10);
        }
        interface Asks {
            String of(int queue) throws Exception;
        }
        Asks committed = queue -> raw.call(QUERY_CONSUMER_OFFSET, null, "consumerGroup", group, "topic", topic, "queueId", queue)
            .getExtFields().get("offset");
        Check.equal("10", committed.of(0), "offset before the reset");
        for (int offset : new int[] {3, 5}) {
            RemotingCommand answer = raw.call(RESET_OFFSET, null, "topic", topic, "group", group, "timestamp", -1, "isForce", true,
                "queueId", 0, "offset", offset);
            Check.equal(0, answer.getCode(), "code of the reset to %d (%s)", offset, answer.getRemark());
            String body = new String(answer.getBody(), StandardCharsets.UTF_8);
            Check.contains(body, ":" + offset, "the queue and its offset in the answer");
        }
        Check.equal("5", committed.of(0), "offset after the resets");
        RemotingCommand ignored = raw.call(UPDATE_CONSUMER_OFFSET, null, "consumerGroup", group, "topic", topic, "queueId", 0, "commitOffset", 9);
        Check.equal(0, ignored.getCode(), "code of a commit before the pull");
        Check.contains(ignored.getRemark(), "Offset has been previously reset", "remark of a commit before the pull");
        Check.equal("5", committed.of(0), "offset after the commit that does not count");
        RemotingCommand told = pull(raw, group, queues.get(0), 10);
        Check.equal(21, told.getCode(), "code of the first pull (%s)", told.getRemark());
        Check.equal("5", told.getExtFields().get("nextBeginOffset"), "where the first pull is sent");
        RemotingCommand next = pull(raw, group, queues.get(0), 5);
        Check.equal(0, next.getCode(), "code of the next pull (%s)", next.getRemark());
        Check.equal("10", next.getExtFields().get("nextBeginOffset"), "where the next pull ends");
        Check.equal("10", committed.of(1), "offset of the other queue");
        Check.equal(19, pull(raw, group, queues.get(1), 10).getCode(), "code of a pull of the other queue");
    }

    private static void lightAssignment(Bed bed) throws Exception {
        String topic = bed.topic(4);
        String group = bed.name("g");
        DefaultMQPushConsumer member = bed.pushing(group, topic, "*", new Inbox());
        Raw raw = new Raw(bed);
        for (String name : List.of(topic, "%LMQ%" + bed.name("l"))) {
            TreeSet<Integer> wanted = name.equals(topic) ? new TreeSet<>(List.of(0, 1, 2, 3)) : new TreeSet<>(List.of(0));
            Check.within(30, "the queues " + wanted + " of " + name, () -> queueIds(raw.json(QUERY_ASSIGNMENT, "{\"topic\":\"" + name
                + "\",\"consumerGroup\":\"" + group + "\",\"clientId\":\"" + member.buildMQClientId()
                + "\",\"strategyName\":\"AVG\",\"messageModel\":\"CLUSTERING\"}")).equals(wanted));
        }
    }

    private static void unregisters(Bed bed) throws Exception {
        if (!bed.target.isControlled()) {
            throw new Main.Skipped("INTEROP_CONTROL names no command that restarts the node");
        }
        String topic = bed.topic(2);
        bed.target.control("stop");
        MQClientException none = Check.refused(MQClientException.class, "a route", () -> bed.admin.examineTopicRouteInfo(topic));
        Check.equal(17, none.getResponseCode(), "code when the last broker has stopped");
        Check.that(bed.admin.examineBrokerClusterInfo().getBrokerAddrTable().isEmpty(), "no broker is left");
        bed.target.control("start");
        Check.within(60, "the route after a new start", () -> bed.queues(topic).size() == 2);
    }
}
