package interop;

import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.exception.RemotingTimeoutException;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Decisions about half messages as single requests, which clients send one-way; on the broker of `DeliveryScenarios`. */
final class TransactionScenarios {
    private static final int END_TRANSACTION = 37;
    private static final int HALF = 4;
    private static final int UNKNOWN = 0;
    private static final int COMMIT = 8;

    private TransactionScenarios() { }

    static void addTo(Scenarios list) {
        list.suite("delivery");
        list.add("tx-unknown-decision", "3.11 #105: an unknown decision decides nothing", TransactionScenarios::unknown);
        list.add("tx-stray-decision", "3.11 #109: a decision about nothing is told so", TransactionScenarios::stray);
        list.add("tx-delayed", "3.11 #111: half of a transaction is decided first, then it waits for its time", TransactionScenarios::delayed);
        list.add("tx-retried", "3.11 #111: a retry that says it is half of a transaction is a retry", TransactionScenarios::retried);
    }

    /** Where a half message lies, as its producer is told. */
    private record Half(String group, String id, long logOffset, long queueOffset) {
        static Half sent(Bed bed, Raw raw, String topic, String more) throws Exception {
            String group = bed.name("pg");
            String id = bed.name("id").toUpperCase();
            RemotingCommand answer = raw.send(topic, Map.of("sysFlag", "" + HALF, "properties",
                "TRAN_MSG\u0001true\u0002PGROUP\u0001" + group + "\u0002UNIQ_KEY\u0001" + id + "\u0002" + more));
            Check.equal(0, answer.getCode(), "code of the send of a half message (%s)", answer.getRemark());
            Map<String, String> fields = answer.getExtFields();
            return new Half(group, id, Long.parseLong(fields.get("msgId").substring(16), 16), Long.parseLong(fields.get("queueOffset")));
        }

        RemotingCommand decision(int state) {
            return Raw.request(END_TRANSACTION, null, "producerGroup", group, "tranStateTableOffset", queueOffset, "commitLogOffset",
                logOffset, "commitOrRollback", state, "fromTransactionCheck", false, "msgId", id, "transactionId", id);
        }
    }

    private static RemotingCommand decide(Bed bed, Raw raw, Half half, int state) throws Exception {
        return raw.ask(bed.brokerAddress(), half.decision(state), 30_000);
    }

    private static void unknown(Bed bed) throws Exception {
        String topic = bed.topic(1);
        Raw raw = new Raw(bed);
        Half half = Half.sent(bed, raw, topic, "");
        // The reference answers nothing, as its clients expect, who send it one-way.
        if (bed.target.isJava()) {
            Check.refused(RemotingTimeoutException.class, "no decision", () -> raw.ask(bed.brokerAddress(), half.decision(UNKNOWN), 1000));
        } else {
            Check.equal(0, decide(bed, raw, half, UNKNOWN).getCode(), "code of no decision");
        }
        Check.equal(1, decide(bed, raw, half, 99).getCode(), "code of a decision that there is not");
        Check.equal(0L, bed.stored(topic), "messages after no decision");
        Check.equal(0, decide(bed, raw, half, COMMIT).getCode(), "code of the commit");
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "*", inbox);
        inbox.awaitExactly(new TreeSet<>(List.of("raw")), 50);
        Check.equal(half.id, inbox.messages().get(0).getMsgId(), "message id");
    }

    private static void stray(Bed bed) throws Exception {
        String topic = bed.topic(1);
        Raw raw = new Raw(bed);
        Half half = Half.sent(bed, raw, topic, "");
        Half[] others = {
            new Half(half.group + "x", half.id, half.logOffset, half.queueOffset),
            new Half(half.group, half.id, half.logOffset, half.queueOffset + 1),
            new Half(half.group, half.id, half.logOffset + (1L << 40), half.queueOffset),
        };
        for (Half other : others) {
            RemotingCommand answer = decide(bed, raw, other, COMMIT);
            Check.equal(1, answer.getCode(), "code of a commit of %s", other);
            Check.that(answer.getRemark() != null && !answer.getRemark().isEmpty(), "no remark for a commit of %s", other);
        }
        Check.equal(0L, bed.stored(topic), "messages after decisions about nothing");
        Check.equal(0, decide(bed, raw, half, COMMIT).getCode(), "code of the commit");
        Check.within(30, "the message", () -> bed.stored(topic) == 1);
    }

    /** Clients since 4.6.1 send no such message. */
    private static void delayed(Bed bed) throws Exception {
        if (bed.target.isJava()) {
            throw new Main.Skipped("Java's broker delays the half, and never delivers what was committed meanwhile");
        }
        String topic = bed.topic(1);
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "*", inbox);
        Raw raw = new Raw(bed);
        Half half = Half.sent(bed, raw, topic, "DELAY\u00014\u0002");
        long began = System.currentTimeMillis();
        Check.equal(0, decide(bed, raw, half, COMMIT).getCode(), "code of the commit");
        inbox.awaitExactly(new TreeSet<>(List.of("raw")), 50);
        MessageExt got = inbox.messages().get(0);
        Check.equal(half.id, got.getMsgId(), "message id");
        Check.that(got.getStoreTimestamp() - began >= 2000, "level 4 is 2 s, it came after %d ms", got.getStoreTimestamp() - began);
    }

    private static void retried(Bed bed) throws Exception {
        String topic = bed.topic(1);
        String group = bed.name("g");
        String retries = bed.retryTopic(group, topic);
        // What a client before 4.6.1 sends also has the bit of the system flag, with which Java's broker forgets it.
        int flag = bed.target.isJava() ? 0 : HALF;
        RemotingCommand answer = new Raw(bed).send(retries, Map.of("sysFlag", "" + flag, "reconsumeTimes", "1", "properties",
            "TRAN_MSG\u0001true\u0002PGROUP\u0001nobody\u0002DELAY\u00011\u0002RETRY_TOPIC\u0001" + topic + "\u0002"));
        Check.equal(0, answer.getCode(), "code of the send (%s)", answer.getRemark());
        Inbox inbox = new Inbox();
        bed.pushing(group, topic, "*", inbox);
        inbox.awaitExactly(new TreeSet<>(List.of("raw")), 50);
        Check.equal(1, inbox.messages().get(0).getReconsumeTimes(), "failures before");
        Check.equal(topic, inbox.messages().get(0).getTopic(), "topic that it was sent to");
    }
}
