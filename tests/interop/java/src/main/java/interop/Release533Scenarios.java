package interop;

import java.util.List;
import java.util.TreeSet;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** What clients can ask for since 5.3.3. */
public final class Release533Scenarios {
    private Release533Scenarios() { }

    /** Called by name, since this file is not compiled with older clients. */
    public static void addTo(Scenarios list) {
        list.suite("release-5.3.3");
        list.add("recall-by-client", "3.4 #32, #33, #36: the client recalls by the handle of its receipt", Release533Scenarios::recall);
    }

    private static void recall(Bed bed) throws Exception {
        TimerScenarios.needsRecall(bed);
        String topic = bed.topic(1);
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "*", inbox);
        DefaultMQProducer producer = bed.producer();
        Message gone = new Message(topic, Bed.bytes("gone"));
        gone.setDelayTimeMs(20_000);
        SendResult sent = Bed.sent(producer.send(gone));
        Message stays = new Message(topic, Bed.bytes("stays"));
        stays.setDelayTimeMs(20_000);
        Bed.sent(producer.send(stays));
        Check.that(sent.getRecallHandle() != null, "no handle in %s", sent);
        Check.equal(null, Bed.sent(producer.send(new Message(topic, Bed.bytes("now")))).getRecallHandle(), "handle of a plain send");
        Check.equal(sent.getMsgId(), producer.recallMessage(topic, sent.getRecallHandle()), "what was recalled");
        inbox.awaitExactly(new TreeSet<>(List.of("now", "stays")), 40);
        MQBrokerException late = Check.refused(MQBrokerException.class, "a recall that is too late",
            () -> producer.recallMessage(topic, sent.getRecallHandle()));
        Check.equal(604, late.getResponseCode(), "code of a recall that is too late");
    }
}
