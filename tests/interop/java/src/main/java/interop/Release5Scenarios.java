package interop;

import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** What only the 5.x client can ask for. */
public final class Release5Scenarios {
    private Release5Scenarios() { }

    /** Called by name, since this file is not compiled with the old client. */
    public static void addTo(Scenarios list) {
        list.suite("everyday");
        list.add("send-compressed-lz4", "body compressed by LZ4", bed -> compressed(bed, CompressionType.LZ4));
        list.add("send-compressed-zstd", "body compressed by Zstandard", bed -> compressed(bed, CompressionType.ZSTD));
    }

    private static void compressed(Bed bed, CompressionType type) throws Exception {
        String topic = bed.topic(1);
        DefaultMQProducer producer = bed.producer();
        producer.setCompressType(type);
        String text = "compressible ".repeat(8000);
        SendResult result = Bed.sent(producer.send(new Message(topic, "Big", "big", Bed.bytes(text))));
        Check.equal(text, Inbox.text(bed.admin.viewMessage(topic, result.getOffsetMsgId())), "body as viewed");
        Inbox inbox = new Inbox();
        bed.pushing(bed.name("g"), topic, "Big", inbox);
        Check.within(30, "the message", () -> inbox.size() == 1);
        MessageExt got = inbox.messages().get(0);
        Check.equal(text, Inbox.text(got), "body as consumed");
        Check.that(got.getStoreSize() < text.length() / 10, "stored size %d shows compression", got.getStoreSize());
        Check.equal(type.getCompressionFlag(), got.getSysFlag() & (7 << 8), "kind of compression in the system flag");
    }
}
