package interop;

import java.lang.reflect.Field;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.client.impl.consumer.DefaultMQPushConsumerImpl;
import org.apache.rocketmq.client.impl.consumer.MQConsumerInner;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Every sub-command of `mqadmin` 5.3.1 that docs/mqadmin.md marks, against what the Java broker made it print
 * (tests/interop/mqadmin.txt): each line of it must be printed again, numbers, ids, addresses and blanks apart.
 */
public final class ToolScenarios {
    private static final String TOPIC = "AdmTopic";
    private static final String GROUP = "pg_adm_c";
    private static final String SEPARATOR = "=== ";

    private final Bed bed;
    private final Tool tool;
    private final String broker;
    private final Map<String, List<String>> java;
    private final List<String> wrong = new ArrayList<>();

    private ToolScenarios(Bed bed) throws Exception {
        this.bed = bed;
        this.tool = new Tool(bed);
        this.broker = bed.brokerAddress();
        this.java = recorded();
    }

    /** Called by name, since the old client's tools print otherwise. */
    public static void addTo(Scenarios list) {
        list.suite("admin");
        list.add("mqadmin-shapes", "every sub-command prints what it prints with Java's broker", 420, bed -> new ToolScenarios(bed).run());
        list.add("mqadmin-refused", "what there is not is refused with its name", ToolScenarios::refused);
        list.add("mqadmin-known", "every sub-command stands in docs/mqadmin.md", ToolScenarios::known);
        list.add("mqadmin-nothing-there", "what neither make has without being set up for it", ToolScenarios::nothingThere);
        list.add("mqadmin-setConsumeMode", "a group pops a topic, and how many share a queue", ToolScenarios::consumeMode);
        list.add("mqadmin-clusterRT", "how long sends to each broker take", ToolScenarios::clusterTimes);
        list.add("mqadmin-startMonitoring", "it reads what the broker tells of moved offsets, until it is ended", ToolScenarios::monitoring);
        list.add("mqadmin-trace", "6.8: queryMsgTraceById finds what clients traced", ToolScenarios::trace);
    }

    private static Map<String, List<String>> recorded() throws Exception {
        Map<String, List<String>> sections = new LinkedHashMap<>();
        List<String> lines = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(System.getenv("INTEROP_RECORDED"), "mqadmin.txt"))) {
            if (line.startsWith(SEPARATOR)) {
                lines = new ArrayList<>();
                sections.put(line.substring(SEPARATOR.length()), lines);
            } else {
                lines.add(line);
            }
        }
        return sections;
    }

    private String shape(String line) {
        return line.replace(broker, "ADDR").replace("127.0.0.1:10911", "ADDR")
            .replace(bed.target.nameServer(), "NAMESRV").replace("127.0.0.1:9876", "NAMESRV")
            .replace("DefaultCluster", "CLUSTER").replace("GoldCluster", "CLUSTER")
            .replaceAll("/(srv|tmp|root|work|home)/\\S*?(?=\\.json|\\.txt|\\s|$)", "PATH")
            .replaceAll("[0-9A-F]{32,56}", "ID")
            .replaceAll("\\d+(\\.\\d+){3}@[\\w#.:-]+", "CLIENT")
            .replaceAll("\\d+([._]\\d+)*(E-?\\d+)?", "0")
            .replaceAll("\\s+", " ").trim();
    }

    /** Runs a sub-command; lines of the recording that match `apart` are not looked for. */
    private void alike(String name, String apart, String... words) {
        String printed = tool.prints(words);
        TreeSet<String> ours = new TreeSet<>();
        printed.lines().forEach(line -> ours.add(shape(line)));
        for (String line : java.get(name)) {
            // The recorded broker had traceTopicEnable; the Java broker of these runs has not.
            boolean isLeftOut = line.matches(apart) || bed.target.isJava() && line.contains("RMQ_SYS_TRACE_TOPIC");
            if (!isLeftOut && !ours.contains(shape(line))) {
                wrong.add(name + " does not print <" + shape(line) + "> but:\n" + printed.lines().limit(12)
                    .map(text -> "    " + text + "\n").reduce("", String::concat));
            }
        }
    }

    private void same(String name, String... words) {
        alike(name, "", words);
    }

    private void run() throws Exception {
        List<SendResult> sent = new ArrayList<>();
        for (String name : List.of(TOPIC, "AdmOrder", "AdmPerm", "AdmRT", "AdmDelete", "AdmEmpty")) {
            bed.createTopic(name, 2, 2, 6);
        }
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = bed.pushing(GROUP, TOPIC, "*", inbox);
        DefaultMQProducer producer = bed.producer("pg_adm");
        for (int i = 0; i < 8; i++) {
            Message message = new Message(TOPIC, "TagA", "adm" + i, Bed.bytes("online-" + i));
            sent.add(Bed.sent(producer.send(message, bed.queues(TOPIC).get(i % 2))));
        }
        Check.within(30, "8 messages", () -> inbox.size() == 8);
        Check.within(30, "their offsets", () -> bed.admin.examineConsumeStats(GROUP, TOPIC).computeTotalDiff() == 0);
        // A queue that nothing comes to has progress once a pull of it was held to its end, 20 s at most; every 5 s it is told.
        Check.within(45, "the progress of its retries", () -> bed.admin.examineConsumeStats(GROUP).getOffsetTable().keySet()
            .stream().anyMatch(queue -> queue.getTopic().startsWith("%RETRY%")));
        brokers();
        topics();
        groups(consumer);
        messages(sent, consumer);
        offsets();
        nameServer();
        store();
        exports();
        Check.that(wrong.isEmpty(), "%d lines are missing:\n%s", wrong.size(), String.join("", wrong));
    }

    private void brokers() {
        same("clusterList", "clusterList");
        same("clusterList-2", "clusterList", "-m");
        // Not told: a path of the recording, and spans that Java only fills after a minute.
        alike("brokerStatus", "commitLogDiskRatio_.*|(put|get)\\w*Tps .*|putMessageDistributeTime.*", "brokerStatus", "-b", broker);
        same("updateBrokerConfig", "updateBrokerConfig", "-b", broker, "-k", "defaultTopicQueueNums", "-v", "4");
        same("updateBrokerConfig", "updateBrokerConfig", "-b", broker, "-k", "defaultTopicQueueNums", "-v", "8");
        same("updateBrokerConfig-2", "updateBrokerConfig", "-b", broker, "-k", "brokerConfigPath", "-v", "x");
        same("haStatus", "haStatus", "-b", broker);
        same("resetMasterFlushOffset", "resetMasterFlushOffset", "-b", broker, "-o", "0");
        same("getColdDataFlowCtrInfo", "getColdDataFlowCtrInfo", "-b", broker);
        same("updateColdDataFlowCtrGroupConfig", "updateColdDataFlowCtrGroupConfig", "-b", broker, "-g", "cg_adm_off", "-v", "1048576");
        Check.contains(tool.succeeds("getColdDataFlowCtrInfo", "-b", broker), "\"cg_adm_off\":1048576", "the limit");
        same("removeColdDataFlowCtrGroupConfig", "removeColdDataFlowCtrGroupConfig", "-b", broker, "-g", "cg_adm_off");
        same("setCommitLogReadAheadMode", "setCommitLogReadAheadMode", "-b", broker, "-m", "0");
        same("sendMsgStatus", "sendMsgStatus", "-b", bedBroker(), "-s", "64", "-c", "3");
        same("nosuchcommand", "nosuchcommand");
    }

    private String bedBroker() {
        try {
            return bed.brokerName();
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    private void topics() throws Exception {
        String cluster = bed.clusterName();
        same("topicList", "topicList");
        same("topicList-2", "topicList", "-c", cluster);
        same("topicStatus", "topicStatus", "-t", TOPIC);
        same("topicRoute", "topicRoute", "-t", TOPIC);
        same("topicRoute-2", "topicRoute", "-t", "NoSuchTopic");
        same("topicRoute-3", "topicRoute", "-t", TOPIC, "-l");
        same("topicClusterList", "topicClusterList", "-t", TOPIC);
        same("updateTopic", "updateTopic", "-b", broker, "-t", "AdmNew", "-r", "3", "-w", "3", "-p", "6", "-o", "true");
        same("updateTopic-2", "updateTopic", "-c", cluster, "-t", "AdmNew2", "-a", "+message.type=FIFO");
        same("updateTopic-3", "updateTopic", "-c", cluster, "-t", "AdmNew2", "-a", "-message.type");
        Path list = Files.writeString(Files.createTempFile("topics", ".list"),
            "[{\"topicName\":\"AdmList1\",\"readQueueNums\":1,\"writeQueueNums\":1,\"perm\":6}]");
        bed.atEnd(() -> Files.deleteIfExists(list));
        same("updateTopicList", "updateTopicList", "-b", broker, "-f", list.toString());
        Check.within(30, "the listed topic", () -> bed.admin.examineTopicConfig(broker, "AdmList1").getReadQueueNums() == 1);
        same("updateTopicPerm", "updateTopicPerm", "-b", broker, "-t", "AdmPerm", "-p", "4");
        Check.within(30, "the permission", () -> bed.admin.examineTopicRouteInfo("AdmPerm").getQueueDatas().get(0).getPerm() == 4);
        same("updateTopicPerm-2", "updateTopicPerm", "-c", cluster, "-t", "AdmPerm", "-p", "6");
        same("allocateMQ", "allocateMQ", "-t", TOPIC, "-i", "127.0.0.1,127.0.0.3");
        same("deleteTopic", "deleteTopic", "-c", cluster, "-t", "AdmDelete");
    }

    private void groups(DefaultMQPushConsumer consumer) throws Exception {
        same("updateSubGroup", "updateSubGroup", "-b", broker, "-g", "cg_new", "-s", "true", "-m", "false", "-d", "false",
            "-q", "2", "-r", "5", "-i", "0", "-w", "1", "-a", "false");
        same("updateSubGroup-2", "updateSubGroup", "-c", bed.clusterName(), "-g", "cg_new2");
        Path list = Files.writeString(Files.createTempFile("groups", ".list"), "[{\"groupName\":\"cg_list\"}]");
        bed.atEnd(() -> Files.deleteIfExists(list));
        same("updateSubGroupList", "updateSubGroupList", "-b", broker, "-f", list.toString());
        Check.within(30, "the listed group", () -> bed.admin.examineSubscriptionGroupConfig(broker, "cg_list") != null);
        same("deleteSubGroup", "deleteSubGroup", "-b", broker, "-g", "cg_new", "-r", "true");
        same("getConsumerConfig", "getConsumerConfig", "-g", GROUP);
        same("consumerProgress", "consumerProgress");
        same("consumerProgress-2", "consumerProgress", "-g", GROUP);
        same("consumerProgress-3", "consumerProgress", "-g", GROUP, "-t", TOPIC, "-s", "true");
        same("consumerConnection", "consumerConnection", "-g", GROUP);
        same("consumerConnection-2", "consumerConnection", "-g", "nobody");
        same("consumerConnection-3", "consumerConnection", "-g", GROUP, "-b", broker);
        same("consumerStatus", "consumerStatus", "-g", GROUP);
        // Names of properties end with Exception, so what is printed is not looked through for that word.
        String status = tool.prints("consumerStatus", "-g", GROUP, "-i", consumer.buildMQClientId());
        for (String part : List.of("#Consumer Properties#", "#Consumer Subscription#", "#Consumer Offset#", "#Consumer MQ Detail#",
            "#Consumer RT&TPS#", "PROP_CONSUME_TYPE", TOPIC)) {
            Check.contains(status, part, "the state of a consumer");
        }
        same("producerConnection", "producerConnection", "-g", "pg_adm", "-t", TOPIC);
        // The trace producer of the recording belongs to clients that trace.
        alike("producer", ".*INNER_TRACE_PRODUCER.*", "producer", "-b", broker);
    }

    private void messages(List<SendResult> sent, DefaultMQPushConsumer consumer) throws Exception {
        SendResult first = sent.get(0);
        Check.within(30, "the key in the index",
            () -> tool.prints("queryMsgByKey", "-t", TOPIC, "-k", "adm0").contains(first.getMsgId()));
        same("queryMsgByKey", "queryMsgByKey", "-t", TOPIC, "-k", "adm1");
        // How far a client has read depends on the moment.
        String moment = "Message Body Path:.*|MessageTrack .*|.*trackType.*|.*CONSUMED.*|(\\[)?Consume.*";
        alike("queryMsgById", moment, "queryMsgById", "-t", TOPIC, "-i", first.getOffsetMsgId());
        alike("queryMsgById-2", moment, "queryMsgById", "-t", TOPIC, "-i", first.getMsgId());
        same("queryMsgById-3", "queryMsgById", "-i", first.getOffsetMsgId(), "-g", GROUP, "-d", consumer.buildMQClientId(), "-t", TOPIC);
        same("queryMsgById-4", "queryMsgById", "-t", TOPIC, "-i", first.getOffsetMsgId(), "-s", "true", "-u", "unit");
        alike("queryMsgByUniqueKey", moment, "queryMsgByUniqueKey", "-t", TOPIC, "-i", first.getMsgId());
        alike("queryMsgByOffset", moment, "queryMsgByOffset", "-t", TOPIC, "-b", bed.brokerName(), "-i", "0", "-o", "0");
        // Of messages of other lengths.
        alike("printMsgByQueue", "MSGID: .*online-\\d\\d.*", "printMsgByQueue", "-t", TOPIC, "-a", bed.brokerName(), "-i", "0", "-d", "true", "-p", "true", "-f", "true");
        same("sendMessage", "sendMessage", "-t", TOPIC, "-p", "hello from the tool", "-k", "toolkey", "-c", "TagTool");
        same("sendMessage-2", "sendMessage", "-t", TOPIC, "-p", "to one queue", "-b", bed.brokerName(), "-i", "1");
        same("consumeMessage", "consumeMessage", "-t", TOPIC, "-b", bed.brokerName(), "-i", "0", "-o", "0", "-c", "2");
        same("consumeMessage-2", "consumeMessage", "-t", TOPIC, "-c", "3", "-g", "cg_adm_off");
        same("checkMsgSendRT", "checkMsgSendRT", "-t", "AdmRT", "-a", "3", "-s", "64");
        same("queryCq", "queryCq", "-t", TOPIC, "-q", "0", "-i", "0", "-c", "3", "-b", broker);
        // Ours asks the filter of the group, Java leaves it at no.
        alike("queryCq-2", ".*eval=false.*", "queryCq", "-t", TOPIC, "-q", "0", "-i", "0", "-c", "3", "-g", GROUP, "-b", broker);
        // Topics of other scenarios come and go; the recording's own are in it.
        alike("statsAll", "(AdmNew |AdmDelete|AdmOrder).*", "statsAll");
        same("statsAll-2", "statsAll", "-a", "-t", TOPIC);
        alike("brokerConsumeStats", ".*cg_adm_dest.*", "brokerConsumeStats", "-b", broker);
    }

    private void offsets() {
        tool.succeeds("updateSubGroup", "-b", broker, "-g", "cg_adm_off");
        tool.succeeds("updateSubGroup", "-b", broker, "-g", "cg_adm_dest");
        same("resetOffsetByTime", "resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "now", "-f", "true");
        same("resetOffsetByTime-2", "resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "-1", "-b", broker, "-q", "0", "-o", "1");
        same("resetOffsetByTime-3", "resetOffsetByTime", "-g", "cg_adm_off", "-t", TOPIC, "-s", "0");
        same("skipAccumulatedMessage", "skipAccumulatedMessage", "-g", GROUP, "-t", TOPIC, "-f", "true");
        same("cloneGroupOffset", "cloneGroupOffset", "-s", GROUP, "-d", "cg_adm_dest", "-t", TOPIC, "-o", "false");
        same("resetOffsetByTimeOld", "resetOffsetByTimeOld", "-g", "cg_adm_off", "-t", TOPIC, "-s", "0");
    }

    private void nameServer() {
        String ordered = bedBroker() + ":2";
        tool.succeeds("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true");
        same("updateOrderConf", "updateOrderConf", "-t", "AdmOrder", "-m", "put", "-v", ordered);
        same("updateOrderConf-2", "updateOrderConf", "-t", "AdmOrder", "-m", "get");
        same("topicRoute-4", "topicRoute", "-t", "AdmOrder");
        same("updateOrderConf-3", "updateOrderConf", "-t", "AdmOrder", "-m", "delete");
        same("updateKvConfig", "updateKvConfig", "-s", "adm_ns", "-k", "k1", "-v", "v1");
        same("deleteKvConfig", "deleteKvConfig", "-s", "adm_ns", "-k", "k1");
        // Told its name server otherwise, the tool did not print it there.
        alike("updateNamesrvConfig", "update name server config success!", "updateNamesrvConfig", "-k", "scanNotActiveBrokerInterval", "-v", "5000");
        Check.contains(tool.succeeds("getNamesrvConfig").replaceAll("\\s", ""), "scanNotActiveBrokerInterval=5000", "the changed setting");
        same("wipeWritePerm", "wipeWritePerm", "-b", bedBroker());
        same("topicRoute-5", "topicRoute", "-t", TOPIC);
        same("addWritePerm", "addWritePerm", "-b", bedBroker());
    }

    private void store() throws Exception {
        same("cleanUnusedTopic", "cleanUnusedTopic", "-b", broker);
        same("cleanExpiredCQ", "cleanExpiredCQ", "-b", broker);
        same("deleteExpiredCommitLog", "deleteExpiredCommitLog", "-b", broker);
        same("checkRocksdbCqWriteProgress", "checkRocksdbCqWriteProgress", "-c", bed.clusterName(), "-t", TOPIC);
        same("getBrokerEpoch", "getBrokerEpoch", "-c", bed.clusterName());
        same("getControllerMetaData", "getControllerMetaData", "-a", broker);
        same("getSyncStateSet", "getSyncStateSet", "-a", broker, "-b", bed.brokerName());
    }

    private void exports() throws Exception {
        Path folder = Files.createTempDirectory("export");
        bed.atEnd(() -> {
            for (Path file : Files.list(folder).toList()) {
                Files.delete(file);
            }
            Files.delete(folder);
        });
        same("exportMetadata", "exportMetadata", "-c", bed.clusterName(), "-f", folder.toString());
        same("exportMetadata-2", "exportMetadata", "-b", broker, "-t", "-f", folder.toString());
        same("exportConfigs", "exportConfigs", "-c", bed.clusterName(), "-f", folder.toString());
        same("exportMetrics", "exportMetrics", "-c", bed.clusterName(), "-f", folder.toString());
        Check.contains(Files.readString(folder.resolve("metadata.json")), "\"" + GROUP + "\"", "exported groups");
        Check.contains(Files.readString(folder.resolve("topic.json")), "\"" + TOPIC + "\"", "exported topics");
        Check.contains(Files.readString(folder.resolve("configs.json")), "\"maxMessageSize\"", "exported settings");
        Check.contains(Files.readString(folder.resolve("metrics.json")), "\"totalTps\"", "exported figures");
    }

    private static void refused(Bed bed) throws Exception {
        if (bed.target.isJava()) {
            throw new Main.Skipped("Java's broker has what ours has not");
        }
        Tool tool = new Tool(bed);
        String broker = bed.brokerAddress();
        String[][] commands = {
            {"no users", "createUser", "-b", broker, "-u", "user1", "-p", "pass1", "-t", "Normal"},
            {"no users", "updateUser", "-b", broker, "-u", "user1", "-s", "disable"},
            {"no users", "deleteUser", "-b", broker, "-u", "user1"},
            {"no users", "getUser", "-b", broker, "-u", "user1"},
            {"no users", "listUser", "-b", broker},
            {"no access lists", "createAcl", "-b", broker, "-s", "User:user1", "-r", "Topic:T", "-a", "PUB", "-d", "ALLOW"},
            {"no access lists", "updateAcl", "-b", broker, "-s", "User:user1", "-r", "Topic:T", "-a", "PUB", "-d", "DENY"},
            {"no access lists", "deleteAcl", "-b", broker, "-s", "User:user1"},
            {"no access lists", "getAcl", "-b", broker, "-s", "User:user1"},
            {"no access lists", "listAcl", "-b", broker},
            {"no users", "copyUser", "-f", broker, "-t", broker, "-u", "user1"},
            {"no access lists", "copyAcl", "-f", broker, "-t", broker, "-s", "User:user1"},
            {"no static topics", "updateStaticTopic", "-t", bed.name("t"), "-qn", "2", "-b", bed.brokerName()},
        };
        for (String[] words : commands) {
            String printed = tool.prints(List.of(words).subList(1, words.length).toArray(new String[0]));
            Check.contains(printed, "CODE: 3", words[1]);
            Check.contains(printed, "this broker has " + words[0], words[1]);
        }
        // The lists of 4.x.
        String[][] older = {
            {"50", "updateAclConfig", "-b", broker, "-a", "an-access-key", "-s", "a-secret-key"},
            {"51", "deleteAclConfig", "-b", broker, "-a", "an-access-key"},
            {"52", "clusterAclConfigVersion", "-b", broker},
            {"53", "updateGlobalWhiteAddr", "-b", broker, "-g", "10.0.0.1"},
        };
        for (String[] words : older) {
            String printed = tool.prints(List.of(words).subList(1, words.length).toArray(new String[0]));
            Check.contains(printed, "request type " + words[0] + " not supported", words[1]);
        }
    }

    private static void known(Bed bed) throws Exception {
        String table = Files.readString(Path.of(System.getenv("INTEROP_RECORDED"), "../../docs/mqadmin.md"));
        TreeSet<String> missing = Tool.commands();
        missing.removeIf(name -> Pattern.compile("\\b" + name + "\\b").matcher(table).find());
        Check.equal(new TreeSet<>(), missing, "sub-commands that docs/mqadmin.md lacks");
    }

    private static void nothingThere(Bed bed) throws Exception {
        Tool tool = new Tool(bed);
        String broker = bed.brokerAddress();
        String name = bed.brokerName();
        String cluster = bed.clusterName();
        String[][] commands = {
            {"request type 1005 not supported", "electMaster", "-a", broker, "-b", "1", "-bn", name, "-c", cluster},
            {"request type 1005 not supported", "cleanBrokerMetadata", "-a", broker, "-bn", name, "-c", cluster},
            {"request type 1010 not supported", "getControllerConfig", "-a", broker},
            {"request type 1009 not supported", "updateControllerConfig", "-a", broker, "-k", "key", "-v", "value"},
            {"request type 902 not supported", "addBroker", "-c", broker, "-b", "/none"},
            {"request type 903 not supported", "removeBroker", "-c", broker, "-b", cluster + ":" + name + ":1"},
            {"Mapping info should not be null in broker " + name, "remappingStaticTopic", "-t", bed.topic(1), "-b", name},
            {"path is invalid", "rocksDBConfigToJson", "-p", "/none", "-t", "topics"},
            {"path is invalid", "exportMetadataInRocksDB", "-p", "/none", "-t", "topics"},
            {"miss dump log file name", "dumpCompactionLog"},
        };
        for (String[] words : commands) {
            String printed = tool.prints(List.of(words).subList(1, words.length).toArray(new String[0]));
            Check.contains(printed, words[0], words[1]);
        }
    }

    private static void consumeMode(Bed bed) throws Exception {
        String topic = bed.topic(1);
        String group = bed.name("g");
        Tool tool = new Tool(bed);
        tool.succeeds("updateSubGroup", "-b", bed.brokerAddress(), "-g", group);
        String printed = tool.succeeds("setConsumeMode", "-b", bed.brokerAddress(), "-t", topic, "-g", group, "-m", "POP", "-q", "3");
        Check.contains(printed, "set consume mode to " + bed.brokerAddress() + " success.", "first line");
        Check.contains(printed, "topic[" + topic + "] group[" + group + "] consume mode[POP] popShareQueueNum[3]", "second line");
    }

    private static void clusterTimes(Bed bed) throws Exception {
        String printed = new Tool(bed).printsUntil(bed.brokerName(), "clusterRT", "-c", bed.clusterName(), "-a", "3", "-s", "64", "-i", "1");
        List<String> row = Tool.rows(printed, bed.clusterName()).get(0);
        Check.equal(List.of(bed.brokerName(), "3", "0"), List.of(row.get(1), row.get(3), row.get(4)), "broker, sends and failures");
    }

    /** The tool goes on in the background and prints nothing; the broker knows the group that it reads as. */
    private static void monitoring(Bed bed) throws Exception {
        String group = MixAll.MONITOR_CONSUMER_GROUP;
        bed.atEnd(() -> instances().forEach(instance -> end(instance.selectConsumer(group))));
        new Tool(bed).succeeds("startMonitoring");
        Check.within(60, "the monitor's subscription", () -> bed.admin.examineConsumerConnectionInfo(group).getSubscriptionTable()
            .containsKey("OFFSET_MOVED_EVENT"));
        Check.within(60, "its progress", () -> bed.admin.examineConsumeStats(group).getOffsetTable().keySet().stream()
            .anyMatch(queue -> queue.getTopic().equals("OFFSET_MOVED_EVENT")));
    }

    private static void end(MQConsumerInner consumer) {
        if (consumer instanceof DefaultMQPushConsumerImpl) {
            ((DefaultMQPushConsumerImpl) consumer).shutdown();
        }
    }

    /** All clients of this process. */
    private static List<MQClientInstance> instances() throws ReflectiveOperationException {
        Field table = MQClientManager.class.getDeclaredField("factoryTable");
        table.setAccessible(true);
        List<MQClientInstance> found = new ArrayList<>();
        ((Map<?, ?>) table.get(MQClientManager.getInstance())).values().forEach(one -> found.add((MQClientInstance) one));
        return found;
    }

    private static void trace(Bed bed) throws Exception {
        Tool tool = new Tool(bed);
        if (bed.target.isJava()) {
            throw new Main.Skipped("Java's broker has a trace topic only with traceTopicEnable");
        }
        String topic = bed.topic(1);
        Inbox inbox = new Inbox();
        String producerGroup = bed.name("pg");
        DefaultMQProducer producer = new DefaultMQProducer(producerGroup, true, null);
        producer.setNamesrvAddr(bed.target.nameServer());
        producer.setInstanceName(bed.name("traced"));
        producer.start();
        bed.atEnd(producer::shutdown);
        String group = bed.name("g");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group, true, null);
        consumer.setNamesrvAddr(bed.target.nameServer());
        consumer.setInstanceName(bed.name("traced"));
        // As in Bed: the first heartbeat can get lost in the client, the next shall not be 30 s away.
        consumer.setHeartbeatBrokerInterval(4000);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(inbox.concurrently);
        bed.atEnd(consumer::shutdown);
        SendResult sent = Bed.sent(producer.send(new Message(topic, "TagT", "traced", Bed.bytes("traced"))));
        consumer.setConsumeFromWhere(org.apache.rocketmq.common.consumer.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.start();
        Check.within(30, "the message", () -> inbox.size() == 1);
        MessageExt got = inbox.messages().get(0);
        Check.equal("true", got.getProperty("TRACE_ON"), "whether it is traced");
        Check.within(30, "the trace", () -> {
            String printed = tool.prints("queryMsgTraceById", "-i", sent.getMsgId(), "-t", "RMQ_SYS_TRACE_TOPIC");
            return Tool.row(printed, "Pub").subList(1, 2).equals(List.of(producerGroup))
                && printed.contains("success") && printed.contains("#ConsumerGroup") && printed.contains(group);
        });
    }
}
