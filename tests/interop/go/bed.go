package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

var clients atomic.Int64
var runID = strconv.FormatInt(time.Now().UnixMilli()%1_000_000_000, 36)

// bed is what one scenario stands on: names of its own and clients that are closed when it ends.
type bed struct {
	scenario string
	names    int
	lock     sync.Mutex
	closings []func()
}

func newBed(scenario string) *bed {
	return &bed{scenario: scenario}
}

func (b *bed) atEnd(closing func()) {
	b.lock.Lock()
	defer b.lock.Unlock()
	b.closings = append(b.closings, closing)
}

func (b *bed) close() {
	b.lock.Lock()
	defer b.lock.Unlock()
	for i := len(b.closings) - 1; i >= 0; i-- {
		b.closings[i]()
	}
}

func (b *bed) name(kind string) string {
	b.names++
	return fmt.Sprintf("go_%s_%s_%s%d", b.scenario, runID, kind, b.names)
}

func resolver() primitive.NsResolver {
	return primitive.NewPassthroughResolver([]string{os.Getenv("NAMESRV")})
}

func instance() string {
	return fmt.Sprintf("%dg%d", os.Getpid(), clients.Add(1))
}

func must(err error, what string) {
	if err != nil {
		panic(fault(fmt.Sprintf("%s: %v", what, err)))
	}
}

func check(holds bool, format string, values ...any) {
	if !holds {
		panic(fault(fmt.Sprintf(format, values...)))
	}
}

func equal[T comparable](expected, actual T, what string) {
	check(expected == actual, "%s: expected <%v>, got <%v>", what, expected, actual)
}

// patience is how many times as long as an idle machine needs a wait may last: this one may have other work.
const patience = 4

// within waits until the condition holds; the limit is an idle machine's.
func within(idle time.Duration, what string, condition func() bool) {
	limit := idle * patience
	deadline := time.Now().Add(limit)
	for !condition() {
		check(time.Now().Before(deadline), "not within %v: %s", limit, what)
		time.Sleep(25 * time.Millisecond)
	}
}

// topic makes a new topic at the only broker.
func (b *bed) topic(queues int) string {
	topic := b.name("t")
	client, err := admin.NewAdmin(admin.WithResolver(resolver()))
	must(err, "admin client")
	defer client.Close()
	must(client.CreateTopic(context.Background(), admin.WithTopicCreate(topic), admin.WithBrokerAddrCreate(brokerAddress()),
		admin.WithReadQueueNums(queues), admin.WithWriteQueueNums(queues)), "creation of a topic")
	within(45*time.Second, "route of "+topic, func() bool {
		found, err := client.FetchPublishMessageQueues(context.Background(), topic)
		return err == nil && len(found) == queues
	})
	return topic
}

var broker struct {
	sync.Mutex
	address string
}

// brokerAddress is the address that the only broker has registered.
func brokerAddress() string {
	broker.Lock()
	defer broker.Unlock()
	if broker.address == "" {
		within(30*time.Second, "a broker that makes topics", func() bool {
			address, err := routeAddress("TBW102")
			broker.address = address
			return err == nil
		})
	}
	return broker.address
}

func (b *bed) producer(options ...producer.Option) rocketmq.Producer {
	options = append([]producer.Option{producer.WithNsResolver(resolver()), producer.WithInstanceName(instance()),
		producer.WithGroupName(b.name("pg")), producer.WithSendMsgTimeout(30 * time.Second)}, options...)
	made, err := rocketmq.NewProducer(options...)
	must(err, "producer")
	must(made.Start(), "start of a producer")
	b.atEnd(func() { _ = made.Shutdown() })
	return made
}

// inbox keeps what a listener was given, in the order of arrival.
type inbox struct {
	lock     sync.Mutex
	messages []*primitive.MessageExt
}

func (i *inbox) add(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	i.lock.Lock()
	defer i.lock.Unlock()
	i.messages = append(i.messages, messages...)
	return consumer.ConsumeSuccess, nil
}

func (i *inbox) all() []*primitive.MessageExt {
	i.lock.Lock()
	defer i.lock.Unlock()
	return append([]*primitive.MessageExt{}, i.messages...)
}

func (i *inbox) texts() []string {
	texts := []string{}
	for _, message := range i.all() {
		texts = append(texts, string(message.Body))
	}
	sort.Strings(texts)
	return texts
}

// awaitExactly waits for these texts, each once; the limit is an idle machine's.
func (i *inbox) awaitExactly(wanted []string, idle time.Duration) {
	limit := idle * patience
	deadline := time.Now().Add(limit)
	for len(i.all()) < len(wanted) {
		check(time.Now().Before(deadline), "%d of %d messages came within %v", len(i.all()), len(wanted), limit)
		time.Sleep(25 * time.Millisecond)
	}
	sorted := append([]string{}, wanted...)
	sort.Strings(sorted)
	equal(fmt.Sprint(sorted), fmt.Sprint(i.texts()), "messages")
}

func (b *bed) push(group string, options ...consumer.Option) rocketmq.PushConsumer {
	options = append([]consumer.Option{consumer.WithNsResolver(resolver()), consumer.WithInstance(instance()),
		consumer.WithGroupName(group), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset)}, options...)
	made, err := rocketmq.NewPushConsumer(options...)
	must(err, "push consumer")
	b.atEnd(func() { _ = made.Shutdown() })
	return made
}

// pushing is a started consumer of one topic and tag expression.
func (b *bed) pushing(group, topic, expression string, into *inbox, options ...consumer.Option) rocketmq.PushConsumer {
	made := b.push(group, options...)
	must(made.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: expression}, into.add), "subscription")
	must(made.Start(), "start of a push consumer")
	return made
}

// awaitNoted waits until a member that consumes one message at a time knows that all it was given is consumed: it notes that
// after the listener has returned, and what it has not noted when it is shut down it does not commit.
func awaitNoted(member rocketmq.PushConsumer, topic string) {
	within(30*time.Second, "the client has noted what its listener has had", func() bool {
		behind, known := member.GetOffsetDiffMap()[topic]
		return known && behind == 0
	})
}

// send sends prefix-0 … and returns the texts.
func send(sender rocketmq.Producer, topic, tag, prefix string, count int) []string {
	texts := []string{}
	for i := 0; i < count; i++ {
		text := fmt.Sprintf("%s-%d", prefix, i)
		message := primitive.NewMessage(topic, []byte(text)).WithTag(tag).WithKeys([]string{text})
		sent(sender.SendSync(context.Background(), message))
		texts = append(texts, text)
	}
	return texts
}

func sent(result *primitive.SendResult, err error) *primitive.SendResult {
	must(err, "send")
	equal(primitive.SendOK, result.Status, "send status")
	return result
}
