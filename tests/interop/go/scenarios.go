package main

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

var scenarios = []scenario{
	{"send-sync", "3.1 #8: ids, queue offsets from 0, transaction id", sendSync},
	{"send-async", "every call-back is called with SendOK", sendAsync},
	{"send-oneway", "3.1 #11: stored, no answer", sendOneway},
	{"send-batch", "3.2 #17: one queue, consecutive offsets", sendBatch},
	{"send-chosen-queue", "the manual selector's queue is the queue stored", sendChosenQueue},
	{"send-key-hash", "the hash selector keeps a key on its queue", sendKeyHash},
	{"send-to-unknown-topic", "3.1 #7: made on demand with the number of queues asked for", sendToUnknownTopic},
	{"send-compressed", "stored compressed, delivered plain", sendCompressed},
	{"push-concurrently", "each message once, with properties and ids", pushConcurrently},
	{"push-orderly", "3.6 #48: queue by queue in order", pushOrderly},
	{"push-tags", "3.7 #58: alternatives of tags", pushTags},
	{"push-goes-on", "3.8 #73: offsets kept at shutdown", pushGoesOn},
	{"push-from-last", "3.8 #70: a young topic is consumed from 0", pushFromLast},
	{"group-shares-and-takes-over", "3.6 #50, #52: two share, one takes over", groupShares},
	{"group-broadcast", "every member gets everything", groupBroadcast},
	{"delay-any-time", "3.3 #24, #25: by level and by times, never early", delayAnyTime},
	{"pull-from", "pull by queue and offset", pullFrom},
	{"sql-push", "3.7 #63, #64: SQL92 selects; what the broker cannot read is refused", sqlPush},
	{"request-reply", "3.12 #113: a reply reaches who asked, and a request that nobody answers ends", requestReply},
	{"trace", "6.8: both sides of a message are traced", trace},
	{"offset-reset", "3.9 #82: reset under a live consumer, which goes on from there", offsetReset},
}

func sendSync(b *bed) {
	topic := b.topic(4)
	sender := b.producer()
	next := map[int]int64{}
	for i := 0; i < 20; i++ {
		message := primitive.NewMessage(topic, []byte("x")).WithTag("T").WithKeys([]string{"k"})
		result := sent(sender.SendSync(context.Background(), message))
		check(len(result.MsgID) == 32 || len(result.MsgID) == 56, "message id %s", result.MsgID)
		equal(brokerAddress(), hostOf(result.OffsetMsgID), "the broker in offset id "+result.OffsetMsgID)
		equal(result.MsgID, result.TransactionID, "transaction id")
		equal("DefaultRegion", result.RegionID, "region")
		equal(next[result.MessageQueue.QueueId], result.QueueOffset, "queue offset")
		next[result.MessageQueue.QueueId]++
	}
	equal(4, len(next), "queues used")
}

func delayAnyTime(b *bed) {
	topic := b.topic(2)
	into := &inbox{}
	b.pushing(b.name("g"), topic, "*", into)
	sender := b.producer()
	dues := map[string]int64{}
	texts := []string{}
	for i := 0; i < 12; i++ {
		text := fmt.Sprint("later-", i)
		message := primitive.NewMessage(topic, []byte(text))
		now := time.Now().UnixMilli()
		switch i % 3 {
		case 0:
			message.WithDelayTimeLevel(1)
			dues[text] = now + 1000
		case 1:
			message.WithProperty("TIMER_DELAY_MS", "1600")
			dues[text] = now + 1600
		default:
			dues[text] = now + 2100
			message.WithProperty("TIMER_DELIVER_MS", fmt.Sprint(dues[text]))
		}
		sent(sender.SendSync(context.Background(), message))
		texts = append(texts, text)
	}
	into.awaitExactly(texts, 45*time.Second)
	for _, message := range into.all() {
		early := dues[string(message.Body)] - message.StoreTimestamp
		check(early <= 0, "%s came %d ms early", message.Body, early)
	}
}

func sendAsync(b *bed) {
	topic := b.topic(4)
	sender := b.producer()
	var called sync.WaitGroup
	var lock sync.Mutex
	ids := map[string]bool{}
	for i := 0; i < 100; i++ {
		called.Add(1)
		must(sender.SendAsync(context.Background(), func(_ context.Context, result *primitive.SendResult, err error) {
			defer called.Done()
			if err == nil && result.Status == primitive.SendOK {
				lock.Lock()
				ids[result.OffsetMsgID] = true
				lock.Unlock()
			}
		}, primitive.NewMessage(topic, []byte(fmt.Sprint("async-", i)))), "async send")
	}
	called.Wait()
	equal(100, len(ids), "acknowledged messages")
}

func sendOneway(b *bed) {
	topic := b.topic(2)
	sender := b.producer()
	wanted := []string{}
	for i := 0; i < 30; i++ {
		text := fmt.Sprint("oneway-", i)
		must(sender.SendOneWay(context.Background(), primitive.NewMessage(topic, []byte(text))), "one-way send")
		wanted = append(wanted, text)
	}
	wanted = append(wanted, send(sender, topic, "", "after", 3)...)
	into := &inbox{}
	b.pushing(b.name("g"), topic, "*", into)
	into.awaitExactly(wanted, 45*time.Second)
}

func sendBatch(b *bed) {
	topic := b.topic(3)
	sender := b.producer()
	messages := []*primitive.Message{}
	wanted := []string{}
	for i := 0; i < 25; i++ {
		text := fmt.Sprint("batch-", i)
		messages = append(messages, primitive.NewMessage(topic, []byte(text)).WithTag("B").WithKeys([]string{text}))
		wanted = append(wanted, text)
	}
	result := sent(sender.SendSync(context.Background(), messages...))
	into := &inbox{}
	b.pushing(b.name("g"), topic, "B", into)
	into.awaitExactly(wanted, 45*time.Second)
	for _, message := range into.all() {
		equal(result.MessageQueue.QueueId, message.Queue.QueueId, "queue")
		equal(fmt.Sprint("batch-", message.QueueOffset-result.QueueOffset), string(message.Body), "place in the batch")
		equal(string(message.Body), message.GetKeys(), "keys")
	}
}

func sendChosenQueue(b *bed) {
	topic := b.topic(4)
	sender := b.producer(producer.WithQueueSelector(producer.NewManualQueueSelector()))
	route := sent(b.producer().SendSync(context.Background(), primitive.NewMessage(b.name("name"), []byte("x"))))
	for id := 0; id < 4; id++ {
		for i := 0; i <= id; i++ {
			message := primitive.NewMessage(topic, []byte("x"))
			message.Queue = &primitive.MessageQueue{Topic: topic, BrokerName: route.MessageQueue.BrokerName, QueueId: id}
			result := sent(sender.SendSync(context.Background(), message))
			equal(id, result.MessageQueue.QueueId, "queue")
			equal(int64(i), result.QueueOffset, "queue offset")
		}
	}
}

func sendKeyHash(b *bed) {
	topic := b.topic(4)
	sender := b.producer(producer.WithQueueSelector(producer.NewHashQueueSelector()))
	queueOf := map[string]int{}
	for i := 0; i < 40; i++ {
		order := fmt.Sprint("order", i%8)
		result := sent(sender.SendSync(context.Background(), primitive.NewMessage(topic, []byte(order)).WithShardingKey(order)))
		if before, known := queueOf[order]; known {
			equal(before, result.MessageQueue.QueueId, "queue of "+order)
		}
		queueOf[order] = result.MessageQueue.QueueId
	}
}

func sendToUnknownTopic(b *bed) {
	topic := b.name("auto")
	sender := b.producer()
	wanted := send(sender, topic, "", "m", 9)
	client, err := admin.NewAdmin(admin.WithResolver(resolver()))
	must(err, "admin client")
	defer client.Close()
	queues, err := client.FetchPublishMessageQueues(context.Background(), topic)
	must(err, "route of the automatic topic")
	// This client asks for four whatever its option says.
	equal(4, len(queues), "queues of the automatic topic")
	into := &inbox{}
	b.pushing(b.name("g"), topic, "*", into)
	into.awaitExactly(wanted, 45*time.Second)
}

func sendCompressed(b *bed) {
	topic := b.topic(1)
	body := bytes.Repeat([]byte("compressible "), 8000)
	sent(b.producer().SendSync(context.Background(), primitive.NewMessage(topic, body)))
	into := &inbox{}
	b.pushing(b.name("g"), topic, "*", into)
	within(45*time.Second, "the message", func() bool { return len(into.all()) == 1 })
	got := into.all()[0]
	check(bytes.Equal(body, got.Body), "body of %d bytes differs", len(got.Body))
	check(int(got.StoreSize) < len(body)/10, "stored size %d shows compression", got.StoreSize)
}

func pushConcurrently(b *bed) {
	topic := b.topic(4)
	into := &inbox{}
	b.pushing(b.name("g"), topic, "*", into)
	sender := b.producer()
	ids := map[string]string{}
	wanted := []string{}
	for i := 0; i < 60; i++ {
		text := fmt.Sprint("m", i)
		message := primitive.NewMessage(topic, []byte(text)).WithTag("T").WithKeys([]string{"a" + text, "b" + text})
		message.WithProperty("unicode", "Grüße 你好 "+text)
		ids[text] = sent(sender.SendSync(context.Background(), message)).MsgID
		wanted = append(wanted, text)
	}
	into.awaitExactly(wanted, 45*time.Second)
	for _, message := range into.all() {
		text := string(message.Body)
		equal(ids[text], message.MsgId, "message id")
		equal("Grüße 你好 "+text, message.GetProperty("unicode"), "property")
		equal("a"+text+" b"+text, message.GetKeys(), "keys")
		equal("T", message.GetTags(), "tags")
		equal(int32(0), message.ReconsumeTimes, "reconsume times")
	}
}

func pushOrderly(b *bed) {
	topic := b.topic(3)
	into := &inbox{}
	b.pushing(b.name("g"), topic, "*", into, consumer.WithConsumerOrder(true))
	wanted := send(b.producer(), topic, "", "m", 60)
	into.awaitExactly(wanted, 45*time.Second)
	next := map[int]int64{}
	for _, message := range into.all() {
		equal(next[message.Queue.QueueId], message.QueueOffset, "next of the queue")
		next[message.Queue.QueueId]++
	}
}

func pushTags(b *bed) {
	topic := b.topic(2)
	sender := b.producer()
	wanted := append(send(sender, topic, "A", "a", 5), send(sender, topic, "B", "b", 5)...)
	send(sender, topic, "C", "c", 5)
	send(sender, topic, "", "untagged", 5)
	into := &inbox{}
	b.pushing(b.name("g"), topic, "A || B", into)
	into.awaitExactly(wanted, 45*time.Second)
}

func pushGoesOn(b *bed) {
	topic := b.topic(2)
	group := b.name("g")
	sender := b.producer()
	first := &inbox{}
	// One at a time: all but the last are noted by the client when the last reaches the listener.
	leaves := b.pushing(group, topic, "*", first, consumer.WithConsumeGoroutineNums(1))
	first.awaitExactly(send(sender, topic, "", "one", 20), 45*time.Second)
	awaitNoted(leaves, topic)
	must(leaves.Shutdown(), "shutdown")
	awaitConsumed(group, topic, 2, 20)
	rest := send(sender, topic, "", "two", 20)
	second := &inbox{}
	b.pushing(group, topic, "*", second)
	second.awaitExactly(rest, 45*time.Second)
}

func pushFromLast(b *bed) {
	topic := b.topic(2)
	sender := b.producer()
	wanted := send(sender, topic, "", "old", 10)
	into := &inbox{}
	b.pushing(b.name("g"), topic, "*", into, consumer.WithConsumeFromWhere(consumer.ConsumeFromLastOffset))
	into.awaitExactly(wanted, 45*time.Second)
	wanted = append(wanted, send(sender, topic, "", "new", 10)...)
	into.awaitExactly(wanted, 45*time.Second)
}

func groupShares(b *bed) {
	topic := b.topic(4)
	group := b.name("g")
	sender := b.producer()
	into := []*inbox{{}, {}}
	members := []rocketmq.PushConsumer{}
	for _, each := range into {
		members = append(members, b.pushing(group, topic, "*", each))
	}
	// Sharing is reached when each round of four reaches both members.
	within(30*time.Second, "both members get messages", func() bool {
		before := []int{len(into[0].all()), len(into[1].all())}
		send(sender, topic, "", "round", 4)
		within(30*time.Second, "the round comes", func() bool {
			return len(into[0].all())+len(into[1].all()) >= before[0]+before[1]+4
		})
		return len(into[0].all()) == before[0]+2 && len(into[1].all()) == before[1]+2
	})
	must(members[1].Shutdown(), "shutdown")
	had := len(into[1].all())
	before := len(into[0].all())
	send(sender, topic, "", "after", 40)
	within(45*time.Second, "the one that stayed gets all 40", func() bool { return len(into[0].all()) >= before+40 })
	equal(had, len(into[1].all()), "deliveries to the one that left")
}

func groupBroadcast(b *bed) {
	topic := b.topic(2)
	group := b.name("g")
	sender := b.producer()
	into := []*inbox{{}, {}}
	for _, each := range into {
		b.pushing(group, topic, "*", each, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	wanted := send(sender, topic, "", "m", 20)
	for _, each := range into {
		each.awaitExactly(wanted, 45*time.Second)
	}
}

func pullFrom(b *bed) {
	topic := b.topic(1)
	wanted := send(b.producer(), topic, "T", "m", 40)
	puller, err := rocketmq.NewPullConsumer(consumer.WithNsResolver(resolver()), consumer.WithInstance(instance()),
		consumer.WithGroupName(b.name("g")))
	must(err, "pull consumer")
	must(puller.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}), "subscription")
	must(puller.Start(), "start of a pull consumer")
	b.atEnd(func() { _ = puller.Shutdown() })
	client, err := admin.NewAdmin(admin.WithResolver(resolver()))
	must(err, "admin client")
	defer client.Close()
	queues, err := client.FetchPublishMessageQueues(context.Background(), topic)
	must(err, "queues")
	got := []string{}
	for offset := int64(0); offset < 40; {
		result, err := puller.PullFrom(context.Background(), queues[0], offset, 32)
		must(err, "pull")
		equal(primitive.PullFound, result.Status, "status")
		for _, message := range result.GetMessageExts() {
			equal(offset, message.QueueOffset, "queue offset")
			got = append(got, string(message.Body))
			offset++
		}
		equal(offset, result.NextBeginOffset, "next offset")
		equal(int64(40), result.MaxOffset, "max offset")
	}
	equal(fmt.Sprint(wanted), fmt.Sprint(got), "messages")
}
