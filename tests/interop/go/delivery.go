package main

import (
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

// Delays, failures and transactions, on a broker whose times are short: transactionTimeOut 1 s, transactionCheckInterval 1 s,
// delay levels 1 s (1 to 3) and 2 s (4 on).
var deliveries = []scenario{
	{"delay-levels", "3.3 #24, #29: not before its level, and as it was sent", delayLevels},
	{"retry-levels", "3.5 #37, #38: later, with the number of failures and everything it was sent with", retryLevels},
	{"retry-chosen-level", "3.5 #40: the listener chooses the level", retryChosenLevel},
	{"retry-dead-letter", "3.5 #39, #42, #44: beyond the consumer's limit it is dead, and readable",
		func(b *bed) { retryDead(b, 1) }},
	{"retry-none", "3.5 #39: with a limit of 0 the first failure is the last", func(b *bed) { retryDead(b, 0) }},
	{"orderly-suspend", "3.5 #41: tried in place, then dead at once, and the next flows", orderlySuspend},
	{"orderly-successor", "3.6 #48, #73: who leaves gives its queue back, the next goes on in order", orderlySuccessor},
	{"tx-commit-and-rollback", "3.11 #104: a half message is seen once committed, never when rolled back", txDecided},
	{"tx-check", "3.11 #106, #107: the producer is asked until it knows", txCheck},
}

func delayLevels(b *bed) {
	topic := b.topic(1)
	into := &inbox{}
	b.pushing(b.name("g"), topic, "*", into)
	sender := b.producer()
	seconds := map[int]int64{1: 1, 3: 1, 4: 2, 18: 2}
	due, ids, wanted := map[string]int64{}, map[string]string{}, []string{}
	for level, wait := range seconds {
		text := fmt.Sprint("level-", level)
		message := primitive.NewMessage(topic, []byte(text)).WithTag("T").WithKeys([]string{"k1", text})
		message.WithProperty("own", "value")
		message.WithDelayTimeLevel(level)
		due[text] = time.Now().UnixMilli() + wait*1000
		ids[text] = sent(sender.SendSync(context.Background(), message)).MsgID
		wanted = append(wanted, text)
	}
	into.awaitExactly(wanted, 75*time.Second)
	for _, message := range into.all() {
		text := string(message.Body)
		check(message.StoreTimestamp >= due[text]-1, "%s came %d ms early", text, due[text]-message.StoreTimestamp)
		equal(ids[text], message.MsgId, "message id")
		equal("T", message.GetTags(), "tag")
		equal("k1 "+text, message.GetKeys(), "keys")
		equal("value", message.GetProperty("own"), "property")
		equal(topic, message.Topic, "topic")
	}
}

// failures is a listener that does with each message what `does` says, and notes what it was given and when.
type failures struct {
	inbox
	at   []time.Time
	does func(context.Context, *primitive.MessageExt) consumer.ConsumeResult
}

// listen keeps a copy: this client changes the message that it gives again.
func (f *failures) listen(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	f.lock.Lock()
	for _, message := range messages {
		copied := primitive.MessageExt{MsgId: message.MsgId, ReconsumeTimes: message.ReconsumeTimes}
		copied.Topic, copied.Body, copied.Flag, copied.Queue = message.Topic, message.Body, message.Flag, message.Queue
		copied.QueueOffset = message.QueueOffset
		copied.WithProperties(message.GetProperties())
		f.messages = append(f.messages, &copied)
		f.at = append(f.at, time.Now())
	}
	f.lock.Unlock()
	return f.does(ctx, messages[0]), nil
}

func (f *failures) pause(before int) time.Duration {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.at[before].Sub(f.at[before-1])
}

func (b *bed) failing(group, topic string, with *failures, options ...consumer.Option) rocketmq.PushConsumer {
	made := b.push(group, options...)
	must(made.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}, with.listen), "subscription")
	must(made.Start(), "start of a push consumer")
	return made
}

func retryLevels(b *bed) {
	topic := b.topic(1)
	seen := &failures{does: func(_ context.Context, message *primitive.MessageExt) consumer.ConsumeResult {
		if message.ReconsumeTimes < 2 {
			return consumer.ConsumeRetryLater
		}
		return consumer.ConsumeSuccess
	}}
	b.failing(b.name("g"), topic, seen)
	message := primitive.NewMessage(topic, []byte("hard")).WithTag("T").WithKeys([]string{"k1", "k2"})
	message.WithProperty("own", "value")
	result := sent(b.producer().SendSync(context.Background(), message))
	within(75*time.Second, "three deliveries", func() bool { return len(seen.all()) == 3 })
	for i, one := range seen.all() {
		equal(int32(i), one.ReconsumeTimes, "failures before")
		equal(topic, one.Topic, "topic")
		equal(result.MsgID, one.MsgId, "message id")
		equal("hard", string(one.Body), "body")
		equal("T", one.GetTags(), "tag")
		equal("k1 k2", one.GetKeys(), "keys")
		equal("value", one.GetProperty("own"), "property")
		if i > 0 {
			equal(result.OffsetMsgID, one.GetProperty("ORIGIN_MESSAGE_ID"), "first id")
			check(seen.pause(i) >= 900*time.Millisecond, "delivery %d came after %v", i, seen.pause(i))
		}
	}
}

func retryChosenLevel(b *bed) {
	topic := b.topic(1)
	group := b.name("g")
	seen := &failures{does: func(ctx context.Context, message *primitive.MessageExt) consumer.ConsumeResult {
		chosen, _ := primitive.GetConcurrentlyCtx(ctx)
		chosen.DelayLevelWhenNextConsume = 4
		if message.ReconsumeTimes > 0 {
			chosen.DelayLevelWhenNextConsume = -1
		}
		return consumer.ConsumeRetryLater
	}}
	b.failing(group, topic, seen)
	sent(b.producer().SendSync(context.Background(), primitive.NewMessage(topic, []byte("hard"))))
	equal("hard", string(deadLetter(b, group).Body), "dead letter")
	equal(2, len(seen.all()), "deliveries")
	check(seen.pause(1) >= 1900*time.Millisecond, "level 4 is 2 s, it came after %v", seen.pause(1))
}

func retryDead(b *bed, limit int32) {
	topic := b.topic(1)
	group := b.name("g")
	seen := &failures{does: func(context.Context, *primitive.MessageExt) consumer.ConsumeResult {
		return consumer.ConsumeRetryLater
	}}
	b.failing(group, topic, seen, consumer.WithMaxReconsumeTimes(limit))
	message := primitive.NewMessage(topic, []byte("poison")).WithTag("T").WithKeys([]string{"key"})
	result := sent(b.producer().SendSync(context.Background(), message))
	letter := deadLetter(b, group)
	equal(int(limit)+1, len(seen.all()), "deliveries")
	equal(result.MsgID, letter.MsgId, "message id")
	equal("poison", string(letter.Body), "body")
	equal("T", letter.GetTags(), "tag")
	equal("key", letter.GetKeys(), "keys")
	equal(topic, letter.GetProperty("RETRY_TOPIC"), "topic that it was sent to")
	equal(result.OffsetMsgID, letter.GetProperty("ORIGIN_MESSAGE_ID"), "first id")
}

// deadLetter waits for the first dead letter of a group and reads it as any consumer could.
func deadLetter(b *bed, group string) *primitive.MessageExt {
	topic := "%DLQ%" + group
	client, err := admin.NewAdmin(admin.WithResolver(resolver()))
	must(err, "admin client")
	defer client.Close()
	within(75*time.Second, "the topic "+topic, func() bool {
		queues, err := client.FetchPublishMessageQueues(context.Background(), topic)
		return err == nil && len(queues) == 1
	})
	into := &inbox{}
	b.pushing(b.name("reader"), topic, "*", into)
	within(75*time.Second, "a dead letter", func() bool { return len(into.all()) == 1 })
	return into.all()[0]
}

func orderlySuspend(b *bed) {
	topic := b.topic(1)
	group := b.name("g")
	send(b.producer(), topic, "", "m", 5)
	seen := &failures{does: func(ctx context.Context, message *primitive.MessageExt) consumer.ConsumeResult {
		if string(message.Body) != "m-0" {
			return consumer.ConsumeSuccess
		}
		moment, _ := primitive.GetOrderlyCtx(ctx)
		moment.SuspendCurrentQueueTimeMillis = 200
		return consumer.SuspendCurrentQueueAMoment
	}}
	b.failing(group, topic, seen, consumer.WithConsumerOrder(true), consumer.WithMaxReconsumeTimes(1))
	within(75*time.Second, "the others", func() bool { return len(seen.all()) >= 7 })
	order := []string{}
	for _, one := range seen.all() {
		order = append(order, fmt.Sprintf("%s/%d", one.Body, one.ReconsumeTimes))
	}
	// This client gives up when the failures exceed the limit, one later than Java's.
	equal("[m-0/0 m-0/1 m-0/2 m-1/0 m-2/0 m-3/0 m-4/0]", fmt.Sprint(order), "what was seen, in order")
	equal("m-0", string(deadLetter(b, group).Body), "dead letter")
}

func orderlySuccessor(b *bed) {
	topic := b.topic(1)
	group := b.name("g")
	sender := b.producer()
	got := []string{}
	wanted := []string{}
	for _, part := range []string{"one", "two", "three"} {
		into := &inbox{}
		member := b.pushing(group, topic, "*", into, consumer.WithConsumerOrder(true))
		texts := send(sender, topic, "", part, 20)
		wanted = append(wanted, texts...)
		within(75*time.Second, "all of part "+part, func() bool { return len(into.all()) >= 20 })
		for _, message := range into.all() {
			got = append(got, string(message.Body))
		}
		awaitNoted(member, topic)
		must(member.Shutdown(), "shutdown")
		awaitConsumed(group, topic, 1, len(wanted))
	}
	equal(fmt.Sprint(wanted), fmt.Sprint(got), "messages in order")
}

// ledger decides transactions by the text of their message: by what is first said, or by the second question.
type ledger struct {
	lock   sync.Mutex
	first  map[string]primitive.LocalTransactionState
	second map[string]primitive.LocalTransactionState
	asked  []*primitive.MessageExt
	// came counts deliveries; before notes how many there were at the second question about a text.
	came   func() int
	before map[string]int
}

func (l *ledger) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	return l.first[string(message.Body)]
}

func (l *ledger) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	l.lock.Lock()
	defer l.lock.Unlock()
	text := string(message.Body)
	times := 0
	for _, earlier := range l.asked {
		if string(earlier.Body) == text {
			times++
		}
	}
	l.asked = append(l.asked, message)
	state, known := l.second[text]
	if times == 0 || !known {
		return primitive.UnknowState
	}
	if times == 1 {
		l.before[text] = l.came()
	}
	return state
}

func (l *ledger) questions() []*primitive.MessageExt {
	l.lock.Lock()
	defer l.lock.Unlock()
	return append([]*primitive.MessageExt{}, l.asked...)
}

func (b *bed) transactional(group string, decides *ledger) rocketmq.TransactionProducer {
	made, err := rocketmq.NewTransactionProducer(decides, producer.WithNsResolver(resolver()),
		producer.WithInstanceName(instance()), producer.WithGroupName(group), producer.WithSendMsgTimeout(30*time.Second))
	must(err, "transaction producer")
	must(made.Start(), "start of a transaction producer")
	b.atEnd(func() { _ = made.Shutdown() })
	return made
}

func half(sender rocketmq.TransactionProducer, topic, text string) *primitive.TransactionSendResult {
	message := primitive.NewMessage(topic, []byte(text)).WithTag("T").WithKeys([]string{text})
	message.WithProperty("own", "value")
	result, err := sender.SendMessageInTransaction(context.Background(), message)
	must(err, "send of a half message")
	equal(primitive.SendOK, result.Status, "send status")
	return result
}

func txDecided(b *bed) {
	topic := b.topic(2)
	into := &inbox{}
	b.pushing(b.name("g"), topic, "*", into)
	decides := &ledger{first: map[string]primitive.LocalTransactionState{}}
	for i := 0; i < 20; i++ {
		decides.first[fmt.Sprint("m", i)] = []primitive.LocalTransactionState{
			primitive.CommitMessageState, primitive.RollbackMessageState}[i%2]
	}
	sender := b.transactional(b.name("pg"), decides)
	ids, wanted := map[string]string{}, []string{}
	for i := 0; i < 20; i++ {
		text := fmt.Sprint("m", i)
		result := half(sender, topic, text)
		equal(decides.first[text], result.State, "state told")
		if i%2 == 0 {
			ids[text] = result.MsgID
			wanted = append(wanted, text)
		}
	}
	into.awaitExactly(wanted, 75*time.Second)
	time.Sleep(2500 * time.Millisecond)
	equal(10, len(into.all()), "deliveries after the time of checks")
	equal(0, len(decides.questions()), "questions about what was decided")
	for _, message := range into.all() {
		equal(ids[string(message.Body)], message.MsgId, "message id")
		equal("T", message.GetTags(), "tag")
		equal("value", message.GetProperty("own"), "property")
	}
}

func txCheck(b *bed) {
	topic := b.topic(1)
	group := b.name("pg")
	into := &inbox{}
	b.pushing(b.name("g"), topic, "*", into)
	// Decided by the second question, whenever the scenario gets round to it: after the last it is too late.
	decides := &ledger{before: map[string]int{}, came: func() int { return len(into.all()) }}
	decides.second = map[string]primitive.LocalTransactionState{
		"good": primitive.CommitMessageState, "bad": primitive.RollbackMessageState}
	decides.first = map[string]primitive.LocalTransactionState{
		"good": primitive.UnknowState, "bad": primitive.UnknowState}
	sender := b.transactional(group, decides)
	result := half(sender, topic, "good")
	half(sender, topic, "bad")
	within(75*time.Second, "a question about each", func() bool {
		texts := map[string]bool{}
		for _, message := range decides.questions() {
			texts[string(message.Body)] = true
		}
		return texts["good"] && texts["bad"]
	})
	for _, asked := range decides.questions() {
		equal(topic, asked.Topic, "topic of the question")
		equal(group, asked.GetProperty("PGROUP"), "group of the question")
		if string(asked.Body) == "good" {
			equal(result.MsgID, asked.TransactionId, "transaction id of the question")
		}
	}
	into.awaitExactly([]string{"good"}, 75*time.Second)
	equal(result.MsgID, into.all()[0].MsgId, "message id")
	decides.lock.Lock()
	before := decides.before["good"]
	decides.lock.Unlock()
	equal(0, before, "deliveries before the decision")
	within(75*time.Second, "no more questions", func() bool {
		had := len(decides.questions())
		time.Sleep(3 * time.Second)
		return len(decides.questions()) == had
	})
	equal("[good]", fmt.Sprint(into.texts()), "deliveries")
}
