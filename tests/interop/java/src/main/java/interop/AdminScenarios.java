package interop;

import java.text.SimpleDateFormat;
import java.util.ArrayList;
import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** What the sub-commands of `mqadmin` 5.3.1 print about a broker whose contents are known. */
public final class AdminScenarios {
    private AdminScenarios() { }

    /** Called by name, since the old client's tools print otherwise. */
    public static void addTo(Scenarios list) {
        list.suite("admin");
        list.add("mqadmin-updateTopic", "topics are made with queues, permissions and attributes", AdminScenarios::updateTopic);
        list.add("mqadmin-clusterList", "cluster, broker, id, address, version, activity", AdminScenarios::clusterList);
        list.add("mqadmin-topicList", "topics, and with -c cluster and groups", AdminScenarios::topicList);
        list.add("mqadmin-topicRoute", "brokers and queues; 17 for an unknown topic", AdminScenarios::topicRoute);
        list.add("mqadmin-topicStatus", "3.8 #76: min, max and last update of each queue", AdminScenarios::topicStatus);
        list.add("mqadmin-topicClusterList", "the cluster of a topic", AdminScenarios::topicClusterList);
        list.add("mqadmin-consumerProgress", "3.8 #73: broker and consumer offset, difference, members", AdminScenarios::consumerProgress);
        list.add("mqadmin-consumerConnection", "members, subscription, model", AdminScenarios::consumerConnection);
        list.add("mqadmin-producerConnection", "producers of a group", AdminScenarios::producerConnection);
        list.add("mqadmin-queryMsgById", "every field of a message, by offset id", AdminScenarios::queryById);
        list.add("mqadmin-queryMsgByUniqueKey", "the same by message id", AdminScenarios::queryByUniqueKey);
        list.add("mqadmin-queryMsgByKey", "messages of a key with queue and offset", AdminScenarios::queryByKey);
        list.add("mqadmin-queryMsgByOffset", "a message by queue and offset", AdminScenarios::queryByOffset);
        list.add("mqadmin-printMsg", "all messages of a topic", AdminScenarios::printMsg);
        list.add("mqadmin-brokerStatus", "run-time figures that are true", AdminScenarios::brokerStatus);
        list.add("mqadmin-sendMessage", "a message sent by the tool", AdminScenarios::sendMessage);
        list.add("mqadmin-deleteTopic", "3.12 #118: gone from broker and name server", AdminScenarios::deleteTopic);
        list.add("mqadmin-groups", "updateSubGroup, getConsumerConfig, deleteSubGroup", AdminScenarios::groups);
        list.add("mqadmin-topics", "updateTopicPerm, updateTopicList, allocateMQ, updateOrderConf", AdminScenarios::topics);
        list.add("mqadmin-configuration", "getBrokerConfig, updateBrokerConfig, getNamesrvConfig, KV", AdminScenarios::configuration);
        list.add("mqadmin-write-permission", "3.12 #117: wipeWritePerm, addWritePerm", AdminScenarios::writePermission);
        list.add("broker-without-write", "3.1 #16: refused for ordered topics, taken for others", AdminScenarios::readOnly);
        list.add("mqadmin-queryCq", "3.7 #61: units of a consume queue: the tag's hash, or the time", AdminScenarios::queryCq);
        list.add("mqadmin-statistics", "statsAll, brokerConsumeStats, producer, sendMsgStatus, checkMsgSendRT", AdminScenarios::statistics);
        list.add("mqadmin-offsets", "3.9: resetOffsetByTime, skipAccumulatedMessage, cloneGroupOffset", AdminScenarios::offsets);
        list.add("mqadmin-consumers", "consumerStatus, consumeMessage, direct consumption", AdminScenarios::consumers);
        list.add("mqadmin-cleaning", "cleanUnusedTopic, cleanExpiredCQ, deleteExpiredCommitLog, haStatus", AdminScenarios::cleaning);
    }

    private static void updateTopic(Bed bed) throws Exception {
        Tool tool = new Tool(bed);
        String one = bed.name("t");
        String printed = tool.succeeds("updateTopic", "-b", bed.brokerAddress(), "-t", one, "-r", "3", "-w", "5", "-p", "6");
        Check.contains(printed, "create topic to " + bed.brokerAddress() + " success.", "first line");
        Check.contains(printed, "topicName=" + one + ", readQueueNums=3, writeQueueNums=5, perm=RW-", "second line");
        String two = bed.name("t");
        printed = tool.succeeds("updateTopic", "-c", bed.clusterName(), "-t", two, "-a", "+message.type=FIFO");
        Check.contains(printed, "create topic to " + bed.brokerAddress() + " success.", "first line");
        Check.within(30, "routes", () -> {
            var first = bed.admin.examineTopicRouteInfo(one).getQueueDatas().get(0);
            var second = bed.admin.examineTopicRouteInfo(two).getQueueDatas().get(0);
            return first.getReadQueueNums() == 3 && first.getWriteQueueNums() == 5
                && second.getReadQueueNums() == 8 && second.getWriteQueueNums() == 8;
        });
        var config = bed.admin.examineTopicConfig(bed.brokerAddress(), two);
        Check.equal(Map.of("message.type", "FIFO"), config.getAttributes(), "attributes");
        // Changing keeps what is not named and is seen at once.
        tool.succeeds("updateTopic", "-b", bed.brokerAddress(), "-t", one, "-r", "6", "-w", "6", "-p", "4");
        Check.within(30, "the changed route", () -> {
            var changed = bed.admin.examineTopicRouteInfo(one).getQueueDatas().get(0);
            return changed.getReadQueueNums() == 6 && changed.getWriteQueueNums() == 6 && changed.getPerm() == 4;
        });
    }

    private static void clusterList(Bed bed) throws Exception {
        List<String> row = Tool.row(new Tool(bed).succeeds("clusterList"), bed.clusterName());
        Check.equal(bed.brokerName(), row.get(1), "broker name");
        Check.equal("0", row.get(2), "broker id");
        Check.equal(bed.brokerAddress(), row.get(3), "address");
        Check.that(row.get(4).matches("V\\d+_\\d+_\\d+.*"), "version %s", row.get(4));
        Check.that(row.get(5).matches("\\d+\\.\\d+\\(\\d+,\\d+ms\\)"), "incoming rate %s", row.get(5));
        Check.that(row.get(6).matches("\\d+\\.\\d+\\(.*\\)"), "outgoing rate %s", row.get(6));
        Check.equal("true", row.get(row.size() - 1), "activity");
        double space = Double.parseDouble(row.get(row.size() - 2));
        Check.that(space > 0 && space < 1, "share of the disk %f", space);
    }

    private static void topicList(Bed bed) throws Exception {
        Tool tool = new Tool(bed);
        String topic = bed.topic(2);
        String group = bed.name("g");
        Inbox inbox = new Inbox();
        bed.pushing(group, topic, "*", inbox);
        Bed.send(bed.producer(), topic, "", "m", 5);
        Check.within(30, "5 messages", () -> inbox.size() == 5);
        List<String> wanted = List.of(topic, "%RETRY%" + group, "TBW102", bed.clusterName(), bed.brokerName(), "SELF_TEST_TOPIC",
            "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "OFFSET_MOVED_EVENT", "BenchmarkTest");
        Check.within(30, "every topic in the list", () -> {
            TreeSet<String> missing = new TreeSet<>(wanted);
            missing.removeAll(tool.succeeds("topicList").lines().map(String::trim).toList());
            Check.equal(new TreeSet<>(), missing, "topics that are not listed");
            return true;
        });
        List<String> line = List.of(bed.clusterName(), topic, group);
        Check.within(30, "the topic's line names its group",
            () -> Tool.rows(tool.succeeds("topicList", "-c", bed.clusterName()), bed.clusterName()).contains(line));
    }

    private static void topicRoute(Bed bed) throws Exception {
        Tool tool = new Tool(bed);
        String topic = bed.topic(3);
        String printed = tool.succeeds("topicRoute", "-t", topic).replaceAll("\\s", "");
        Check.contains(printed, "\"brokerAddrs\":{0:\"" + bed.brokerAddress() + "\"}", "addresses");
        Check.contains(printed, "\"brokerName\":\"" + bed.brokerName() + "\",\"cluster\":\"" + bed.clusterName() + "\"", "broker");
        Check.contains(printed, "\"perm\":6,\"readQueueNums\":3,\"topicSysFlag\":0,\"writeQueueNums\":3", "queues");
        String unknown = bed.name("none");
        Check.contains(tool.prints("topicRoute", "-t", unknown),
            "CODE: 17  DESC: No topic route info in name server for the topic: " + unknown, "unknown topic");
    }

    private static void topicStatus(Bed bed) throws Exception {
        Tool tool = new Tool(bed);
        String topic = bed.topic(3);
        List<List<String>> fresh = Tool.rows(tool.succeeds("topicStatus", "-t", topic), bed.brokerName());
        Check.equal(List.of(List.of(bed.brokerName(), "0", "0", "0"), List.of(bed.brokerName(), "1", "0", "0"),
            List.of(bed.brokerName(), "2", "0", "0")), fresh, "a fresh topic");
        DefaultMQProducer producer = bed.producer();
        for (MessageQueue queue : bed.queues(topic)) {
            Bed.send(producer, queue, "m", 4 + queue.getQueueId());
        }
        for (List<String> row : Tool.rows(tool.succeeds("topicStatus", "-t", topic), bed.brokerName())) {
            Check.equal("0", row.get(2), "min offset");
            Check.equal("" + (4 + Integer.parseInt(row.get(1))), row.get(3), "max offset of queue %s", row.get(1));
            Date updated = new SimpleDateFormat("yyyy-MM-dd HH:mm:ss,SSS").parse(row.get(4) + " " + row.get(5));
            Check.that(Math.abs(System.currentTimeMillis() - updated.getTime()) < 60_000, "last update %s", updated);
        }
    }

    private static void topicClusterList(Bed bed) throws Exception {
        Check.equal(bed.clusterName(), new Tool(bed).succeeds("topicClusterList", "-t", bed.topic(1)).trim(), "cluster");
    }

    private static void consumerProgress(Bed bed) throws Exception {
        Tool tool = new Tool(bed);
        String topic = bed.topic(2);
        String group = bed.name("g");
        DefaultMQProducer producer = bed.producer();
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = bed.pushing(group, topic, "*", inbox);
        Bed.send(producer, topic, "", "m", 10);
        Check.within(30, "10 messages", () -> inbox.size() == 10);
        Check.within(30, "the group in the list with nothing left", () -> {
            List<String> row = Tool.row(tool.succeeds("consumerProgress"), group);
            return row.get(1).equals("1") && row.get(3).equals("PUSH") && row.get(4).equals("CLUSTERING")
                && row.get(row.size() - 1).equals("0");
        });
        consumer.shutdown();
        Bed.send(producer, topic, "", "more", 6);
        String printed = tool.succeeds("consumerProgress", "-g", group);
        List<List<String>> rows = Tool.rows(printed, topic);
        Check.equal(List.of(List.of(topic, bed.brokerName(), "0", "8", "5", "3"), List.of(topic, bed.brokerName(), "1", "8", "5", "3")),
            rows.stream().map(row -> row.subList(0, 6)).toList(), "progress of the group");
        Check.contains(printed, "Consume Diff Total: 6", "sum");
    }

    private static void consumerConnection(Bed bed) throws Exception {
        Tool tool = new Tool(bed);
        String topic = bed.topic(2);
        String group = bed.name("g");
        DefaultMQPushConsumer consumer = bed.pushing(group, topic, "A || B", new Inbox());
        Check.within(30, "the member", () -> bed.admin.examineConsumerConnectionInfo(group).getConnectionSet().size() == 1);
        String printed = tool.succeeds("consumerConnection", "-g", group);
        List<String> member = Tool.row(printed, consumer.buildMQClientId());
        Check.that(member.get(1).startsWith("127.0.0.1:"), "address %s", member.get(1));
        Check.equal(List.of("JAVA", "V5_3_1"), member.subList(2, 4), "language and version");
        Check.equal(List.of("%RETRY%" + group, "*"), Tool.row(printed, "%RETRY%" + group), "subscription of the retry topic");
        Check.equal(List.of(topic, "A", "||", "B"), Tool.row(printed, topic), "subscription");
        Map<String, String> values = Tool.values(printed, ":");
        Check.equal("CONSUME_PASSIVELY", values.get("ConsumeType"), "consume type");
        Check.equal("CLUSTERING", values.get("MessageModel"), "message model");
        Check.equal("CONSUME_FROM_FIRST_OFFSET", values.get("ConsumeFromWhere"), "start");
        Check.contains(tool.prints("consumerConnection", "-g", bed.name("nobody")), "Exception", "a group that nobody is in");
    }

    private static void producerConnection(Bed bed) throws Exception {
        Tool tool = new Tool(bed);
        String topic = bed.topic(1);
        String group = bed.name("pg");
        DefaultMQProducer producer = bed.producer(group);
        Bed.send(producer, topic, "", "m", 1);
        Check.within(30, "the producer", () -> {
            String printed = tool.prints("producerConnection", "-g", group, "-t", topic);
            return printed.contains(producer.buildMQClientId()) && printed.contains("JAVA") && printed.contains("V5_3_1");
        });
    }

    private static void fields(Bed bed, String printed, String topic, String key, SendResult result) throws Exception {
        Map<String, String> values = Tool.values(printed, ":");
        Check.equal(topic, values.get("Topic"), "topic");
        Check.equal("[TagX]", values.get("Tags"), "tags");
        Check.equal("[" + key + "]", values.get("Keys"), "keys");
        Check.equal("" + result.getMessageQueue().getQueueId(), values.get("Queue ID"), "queue");
        Check.equal("" + result.getQueueOffset(), values.get("Queue Offset"), "queue offset");
        Check.equal("" + Long.parseLong(result.getOffsetMsgId().substring(16), 16), values.get("CommitLog Offset"), "log offset");
        Check.equal("0", values.get("Reconsume Times"), "reconsume times");
        Check.equal(bed.brokerAddress(), values.get("Store Host"), "store host");
        Check.that(values.get("Born Host").startsWith("127.0.0.1:"), "born host %s", values.get("Born Host"));
        Check.equal("0", values.get("System Flag"), "system flag");
        String properties = values.get("Properties");
        for (String part : List.of("UNIQ_KEY=" + result.getMsgId(), "TAGS=TagX", "KEYS=" + key, "CLUSTER=" + bed.clusterName(),
            "MSG_REGION=DefaultRegion", "TRACE_ON=true", "WAIT=true", "mine=yes")) {
            Check.contains(properties, part, "properties");
        }
    }

    private static SendResult sendOne(Bed bed, String topic, String key) throws Exception {
        Message message = new Message(topic, "TagX", key, Bed.bytes("the body"));
        message.putUserProperty("mine", "yes");
        return Bed.sent(bed.producer().send(message));
    }

    private static void queryById(Bed bed) throws Exception {
        String topic = bed.topic(2);
        SendResult result = sendOne(bed, topic, "k1");
        String printed = new Tool(bed).succeeds("queryMsgById", "-t", topic, "-i", result.getOffsetMsgId());
        Check.equal(result.getOffsetMsgId(), Tool.values(printed, ":").get("OffsetID"), "offset id");
        fields(bed, printed, topic, "k1", result);
    }

    private static void queryByUniqueKey(Bed bed) throws Exception {
        String topic = bed.topic(2);
        SendResult result = sendOne(bed, topic, "k2");
        Check.within(30, "the message by its id", () -> {
            fields(bed, new Tool(bed).succeeds("queryMsgByUniqueKey", "-t", topic, "-i", result.getMsgId()), topic, "k2", result);
            return true;
        });
    }

    private static void queryByKey(Bed bed) throws Exception {
        String topic = bed.topic(2);
        List<SendResult> results = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            results.add(sendOne(bed, topic, "same"));
        }
        sendOne(bed, topic, "other");
        Check.within(30, "three messages of the key", () -> {
            String printed = new Tool(bed).succeeds("queryMsgByKey", "-t", topic, "-k", "same");
            for (SendResult result : results) {
                Check.equal(List.of(result.getMsgId(), "" + result.getMessageQueue().getQueueId(), "" + result.getQueueOffset()),
                    Tool.row(printed, result.getMsgId()), "line of a message");
            }
            return printed.lines().count() == 4;
        });
    }

    private static void queryByOffset(Bed bed) throws Exception {
        String topic = bed.topic(2);
        SendResult result = sendOne(bed, topic, "k3");
        String printed = new Tool(bed).succeeds("queryMsgByOffset", "-t", topic, "-b", bed.brokerName(),
            "-i", "" + result.getMessageQueue().getQueueId(), "-o", "0");
        Check.equal(result.getOffsetMsgId(), Tool.values(printed, ":").get("OffsetID"), "offset id");
        fields(bed, printed, topic, "k3", result);
    }

    private static void printMsg(Bed bed) throws Exception {
        String topic = bed.topic(2);
        Bed.send(bed.producer(), topic, "T", "printed", 20);
        String printed = new Tool(bed).succeeds("printMsg", "-t", topic, "-d", "true");
        Check.equal(20L, printed.lines().filter(line -> line.startsWith("MSGID:")).count(), "messages");
        Check.equal(2L, printed.lines().filter(line -> line.startsWith("minOffset=0, maxOffset=10,")).count(), "queues");
        for (int i = 0; i < 20; i++) {
            Check.contains(printed, "KEYS=printed-" + i + ",", "a message");
        }
    }

    private static void brokerStatus(Bed bed) throws Exception {
        Tool tool = new Tool(bed);
        String topic = bed.topic(1);
        Map<String, String> before = Tool.values(tool.succeeds("brokerStatus", "-b", bed.brokerAddress()), ":");
        Bed.send(bed.producer(), topic, "", "m", 25);
        Map<String, String> after = Tool.values(tool.succeeds("brokerStatus", "-b", bed.brokerAddress()), ":");
        Check.equal("true", after.get("brokerActive"), "activity");
        Check.that(after.get("brokerVersionDesc").matches("V\\d+_\\d+_\\d+.*"), "version %s", after.get("brokerVersionDesc"));
        Check.equal(25L, number(after, "msgPutTotalTodayNow") - number(before, "msgPutTotalTodayNow"), "messages put meanwhile");
        Check.that(number(after, "commitLogMaxOffset") - number(before, "commitLogMaxOffset") > 25 * 100, "bytes put meanwhile");
        Check.equal("0", after.get("commitLogMinOffset"), "min log offset");
        Check.that(System.currentTimeMillis() - number(after, "bootTimestamp") < 3600_000, "time of the start");
        Check.that(Double.parseDouble(after.get("commitLogDiskRatio")) > 0, "share of the disk");
        Check.that(after.get("putTps").matches("[0-9.]+( [0-9.]+)*"), "put rate %s", after.get("putTps"));
        Check.that(after.get("getTotalTps").matches("[0-9.]+( [0-9.]+)*"), "get rate %s", after.get("getTotalTps"));
        Check.contains(tool.succeeds("brokerStatus", "-c", bed.clusterName()), "commitLogMaxOffset", "by cluster");
    }

    private static long number(Map<String, String> values, String name) {
        Check.that(values.containsKey(name), "%s is not printed", name);
        return Long.parseLong(values.get(name));
    }

    private static void sendMessage(Bed bed) throws Exception {
        Tool tool = new Tool(bed);
        String topic = bed.topic(2);
        List<String> row = Tool.row(tool.succeeds("sendMessage", "-t", topic, "-p", "hello from the tool", "-k", "toolkey", "-c", "ToolTag"),
            bed.brokerName());
        Check.equal("SEND_OK", row.get(2), "result");
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "ToolTag", inbox);
        inbox.awaitExactly(new TreeSet<>(List.of("hello from the tool")), 40);
        Check.equal(row.get(3), inbox.messages().get(0).getMsgId(), "message id");
        Check.equal(row.get(1), "" + inbox.messages().get(0).getQueueId(), "queue");
    }

    private static void deleteTopic(Bed bed) throws Exception {
        Tool tool = new Tool(bed);
        String topic = bed.topic(2);
        Bed.send(bed.producer(), topic, "", "m", 4);
        String printed = tool.succeeds("deleteTopic", "-c", bed.clusterName(), "-t", topic);
        Check.contains(printed, "delete topic [" + topic + "] from cluster [" + bed.clusterName() + "] success.", "broker");
        Check.contains(printed, "delete topic [" + topic + "] from NameServer success.", "name server");
        Check.contains(tool.prints("topicRoute", "-t", topic), "CODE: 17", "route");
        Check.that(tool.succeeds("topicList").lines().noneMatch(line -> line.trim().equals(topic)), "the topic is not listed");
        // Made again, it begins anew.
        bed.createTopic(topic, 2, 2, 6);
        Check.within(30, "an empty topic", () -> bed.stored(topic) == 0);
        Check.equal(0L, Bed.sent(bed.producer().send(new Message(topic, Bed.bytes("x")))).getQueueOffset(), "first queue offset");
    }

    private static void groups(Bed bed) throws Exception {
        Tool tool = new Tool(bed);
        String group = bed.name("g");
        String printed = tool.succeeds("updateSubGroup", "-b", bed.brokerAddress(), "-g", group, "-s", "true", "-m", "false", "-d", "false",
            "-q", "2", "-r", "5", "-i", "0", "-w", "1", "-a", "false");
        Check.contains(printed, "create subscription group to " + bed.brokerAddress() + " success.", "made");
        Map<String, String> config = Tool.values(tool.succeeds("getConsumerConfig", "-g", group), "=");
        Check.equal(List.of("true", "false", "false", "2", "5"), List.of(config.get("consumeEnable"), config.get("consumeFromMinEnable"),
            config.get("consumeBroadcastEnable"), config.get("retryQueueNums"), config.get("retryMaxTimes")), "configuration");
        printed = tool.succeeds("deleteSubGroup", "-b", bed.brokerAddress(), "-g", group, "-r", "true");
        Check.contains(printed, "delete subscription group [" + group + "] from broker [" + bed.brokerAddress() + "] success.", "deleted");
    }

    private static void topics(Bed bed) throws Exception {
        Tool tool = new Tool(bed);
        String topic = bed.topic(2);
        String printed = tool.succeeds("updateTopicPerm", "-b", bed.brokerAddress(), "-t", topic, "-p", "4");
        Check.contains(printed, "update topic perm from 6 to 4 in " + bed.brokerAddress() + " success.", "permission");
        Check.within(30, "the new permission in the route", () -> bed.admin.examineTopicRouteInfo(topic).getQueueDatas().get(0).getPerm() == 4);
        printed = tool.succeeds("allocateMQ", "-t", bed.topic(2), "-i", "10.0.0.1,10.0.0.2");
        for (String member : List.of("10.0.0.1", "10.0.0.2")) {
            Check.that(printed.matches("(?s).*\"" + member + "\":\\[\\{\"brokerName\":\"" + bed.brokerName()
                + "\",\"queueId\":[01],\"topic\":[^}]*}].*"), "one queue for %s in %s", member, printed);
        }
        tool.succeeds("updateOrderConf", "-t", topic, "-m", "put", "-v", bed.brokerName() + ":2");
        Check.contains(tool.succeeds("updateOrderConf", "-t", topic, "-m", "get"), "orderConf=[" + bed.brokerName() + ":2]", "order");
        tool.succeeds("updateOrderConf", "-t", topic, "-m", "delete");
    }

    private static void configuration(Bed bed) throws Exception {
        Tool tool = new Tool(bed);
        Map<String, String> config = Tool.values(tool.succeeds("getBrokerConfig", "-b", bed.brokerAddress()), "=");
        Check.equal(bed.brokerName(), config.get("brokerName"), "broker name");
        Check.equal("4194304", config.get("maxMessageSize"), "limit of a body");
        String other = config.get("maxTransferCountOnMessageInMemory").equals("32") ? "31" : "32";
        Check.contains(tool.succeeds("updateBrokerConfig", "-b", bed.brokerAddress(), "-k", "maxTransferCountOnMessageInMemory", "-v", other),
            "update broker config success, " + bed.brokerAddress(), "update");
        config = Tool.values(tool.succeeds("getBrokerConfig", "-b", bed.brokerAddress()), "=");
        Check.equal(other, config.get("maxTransferCountOnMessageInMemory"), "changed value");
        tool.succeeds("updateBrokerConfig", "-b", bed.brokerAddress(), "-k", "maxTransferCountOnMessageInMemory", "-v", "32");
        Check.contains(tool.succeeds("getNamesrvConfig"), "scanNotActiveBrokerInterval", "name server");
        Check.contains(tool.succeeds("updateKvConfig", "-s", "it_space", "-k", "k", "-v", "v"), "success", "KV");
        Check.equal("v", bed.admin.getKVConfig("it_space", "k"), "value in the name server");
        tool.succeeds("deleteKvConfig", "-s", "it_space", "-k", "k");
    }

    private static void writePermission(Bed bed) throws Exception {
        Tool tool = new Tool(bed);
        String topic = bed.topic(2);
        Check.contains(tool.succeeds("wipeWritePerm", "-b", bed.brokerName()), "OK", "wiped");
        Check.equal(4, bed.admin.examineTopicRouteInfo(topic).getQueueDatas().get(0).getPerm(), "permission in the route");
        Check.contains(tool.succeeds("addWritePerm", "-b", bed.brokerName()), "OK", "added");
        Check.equal(6, bed.admin.examineTopicRouteInfo(topic).getQueueDatas().get(0).getPerm(), "permission in the route");
    }

    private static void readOnly(Bed bed) throws Exception {
        Tool tool = new Tool(bed);
        String plain = bed.topic(1);
        String ordered = bed.name("t");
        TopicConfig config = new TopicConfig(ordered, 1, 1, 6);
        config.setOrder(true);
        bed.admin.createAndUpdateTopicConfig(bed.brokerAddress(), config);
        Raw raw = new Raw(bed);
        Check.equal(0, raw.send(ordered, Map.of()).getCode(), "code of a send while the broker has W");
        tool.succeeds("updateBrokerConfig", "-b", bed.brokerAddress(), "-k", "brokerPermission", "-v", "4");
        try {
            Check.equal(16, raw.send(ordered, Map.of()).getCode(), "code of a send to an ordered topic");
            Check.equal(0, raw.send(plain, Map.of()).getCode(), "code of a send to a plain topic");
        } finally {
            tool.succeeds("updateBrokerConfig", "-b", bed.brokerAddress(), "-k", "brokerPermission", "-v", "6");
        }
        Check.equal(0, raw.send(ordered, Map.of()).getCode(), "code of a send once the broker has W again");
        Check.within(30, "the route with W", () -> bed.admin.examineTopicRouteInfo(plain).getQueueDatas().get(0).getPerm() == 6);
    }

    private static void queryCq(Bed bed) throws Exception {
        String topic = bed.topic(1);
        List<SendResult> results = new ArrayList<>();
        for (int i = 0; i < 5; i++) {
            results.add(sendOne(bed, topic, "k" + i));
        }
        String printed = new Tool(bed).succeeds("queryCq", "-t", topic, "-q", "0", "-i", "0", "-c", "3", "-b", bed.brokerAddress());
        Check.contains(printed, "max: 5, min: 0", "bounds");
        for (int i = 0; i < 3; i++) {
            Check.contains(printed, "physicOffset=" + Long.parseLong(results.get(i).getOffsetMsgId().substring(16), 16) + ",", "unit " + i);
        }
        Check.contains(printed, "tagsCode=" + "TagX".hashCode() + ",", "tag code");
        // No other scenario of this suite uses the last level, of two hours.
        MessageQueue level = new MessageQueue("SCHEDULE_TOPIC_XXXX", bed.brokerName(), 17);
        long next = bed.admin.maxOffset(level);
        Message late = new Message(topic, "TagX", "late", Bed.bytes("late"));
        late.setDelayTimeLevel(18);
        Bed.sent(bed.producer().send(late));
        printed = new Tool(bed).succeeds("queryCq", "-t", level.getTopic(), "-q", "17", "-i", "" + next, "-c", "1", "-b", bed.brokerAddress());
        long due = Long.parseLong(printed.replaceAll("(?s).*tagsCode=(-?\\d+),.*", "$1"));
        long wait = due - System.currentTimeMillis();
        Check.that(wait > 7_100_000 && wait <= 7_200_000, "what waits two hours has a unit for in %d ms:%n%s", wait, printed);
    }

    private static void statistics(Bed bed) throws Exception {
        Tool tool = new Tool(bed);
        String topic = bed.topic(2);
        String group = bed.name("g");
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = bed.pushing(group, topic, "*", inbox);
        DefaultMQProducer producer = bed.producer();
        Bed.send(producer, topic, "", "m", 10);
        Check.within(30, "10 messages", () -> inbox.size() == 10);
        consumer.shutdown();
        bed.awaitConsumed(group, topic);
        Bed.send(producer, topic, "", "more", 4);
        List<String> stats = Tool.row(tool.succeeds("statsAll", "-t", topic), topic);
        Check.equal(group, stats.get(1), "group in statsAll");
        Check.equal("4", stats.get(2), "accumulation in statsAll");
        String printed = tool.succeeds("brokerConsumeStats", "-b", bed.brokerAddress());
        Check.equal(2L, Tool.rows(printed, topic).stream().filter(row -> row.get(1).equals(group) && row.get(4).equals("7")).count(),
            "lines of the topic in brokerConsumeStats");
        Check.contains(tool.succeeds("producer", "-b", bed.brokerAddress()), "producer group (" + producer.getProducerGroup() + ")", "producers");
        Check.equal(3L, tool.succeeds("sendMsgStatus", "-b", bed.brokerName(), "-s", "64", "-c", "3").lines()
            .filter(line -> line.contains("sendStatus=SEND_OK")).count(), "sends of sendMsgStatus");
        Check.contains(tool.succeeds("checkMsgSendRT", "-t", topic, "-a", "3", "-s", "64"), "Avg RT:", "checkMsgSendRT");
    }

    private static void offsets(Bed bed) throws Exception {
        Tool tool = new Tool(bed);
        String topic = bed.topic(2);
        String group = bed.name("g");
        DefaultMQProducer producer = bed.producer();
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = bed.pushing(group, topic, "*", inbox);
        TreeSet<String> wanted = Bed.send(producer, topic, "", "m", 20);
        inbox.awaitExactly(wanted, 40);
        inbox.clear();
        String longAgo = "" + (System.currentTimeMillis() - 3600_000);
        String printed = tool.succeeds("resetOffsetByTime", "-g", group, "-t", topic, "-s", longAgo, "-f", "true");
        Check.equal(List.of(List.of(bed.brokerName(), "0", "0"), List.of(bed.brokerName(), "1", "0")),
            Tool.sortedRows(printed, bed.brokerName()), "offsets after the reset");
        inbox.awaitAll(wanted, 40);
        Check.within(30, "the offsets are committed", () -> bed.admin.examineConsumeStats(group, topic).computeTotalDiff() == 0);
        consumer.shutdown();
        Bed.send(producer, topic, "", "skipped", 6);
        printed = tool.succeeds("skipAccumulatedMessage", "-g", group, "-t", topic, "-f", "true");
        Check.equal(List.of(List.of(bed.brokerName(), "0", "13"), List.of(bed.brokerName(), "1", "13")),
            Tool.sortedRows(printed, bed.brokerName()), "offsets after skipping");
        String clone = bed.name("g");
        tool.succeeds("updateSubGroup", "-b", bed.brokerAddress(), "-g", clone);
        Check.contains(tool.succeeds("cloneGroupOffset", "-s", group, "-d", clone, "-t", topic, "-o", "false"),
            "clone group offset success. srcGroup[" + group + "], destGroup=[" + clone + "], topic[" + topic + "]", "clone");
    }

    private static void consumers(Bed bed) throws Exception {
        Tool tool = new Tool(bed);
        String topic = bed.topic(2);
        String group = bed.name("g");
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = bed.pushing(group, topic, "*", inbox);
        SendResult result = sendOne(bed, topic, "direct");
        Check.within(30, "the message", () -> inbox.size() == 1);
        String printed = tool.succeeds("consumerStatus", "-g", group);
        Check.contains(printed, consumer.buildMQClientId(), "the member");
        Check.contains(printed, "Rebalance OK", "rebalance");
        printed = tool.succeeds("queryMsgById", "-i", result.getOffsetMsgId(), "-g", group, "-d", consumer.buildMQClientId(), "-t", topic);
        Check.contains(printed, "consumeResult=CR_SUCCESS", "direct consumption");
        Check.within(30, "consumed again", () -> inbox.size() == 2);
        printed = tool.succeeds("consumeMessage", "-t", topic, "-b", bed.brokerName(), "-i",
            "" + result.getMessageQueue().getQueueId(), "-o", "0", "-c", "1");
        Check.contains(printed, "Consume ok", "consumed by the tool");
        Check.contains(printed, "KEYS=direct", "message");
    }

    private static void cleaning(Bed bed) throws Exception {
        Tool tool = new Tool(bed);
        for (String command : List.of("cleanUnusedTopic", "cleanExpiredCQ", "deleteExpiredCommitLog")) {
            Check.equal("success", tool.succeeds(command, "-b", bed.brokerAddress()).trim(), command);
        }
        Check.contains(tool.succeeds("haStatus", "-b", bed.brokerAddress()), "#MasterAddr\t" + bed.brokerAddress(), "haStatus");
    }
}
