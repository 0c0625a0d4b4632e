package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// mqadmin runs the Java tools, which this client has no counterpart of; `run` exports the function.
func mqadmin(arguments ...string) string {
	const call = `if ! declare -F mqadmin >/dev/null; then exit 77; fi; mqadmin "$@" 2>&1`
	out, err := exec.Command("bash", append([]string{"-c", call, "mqadmin"}, arguments...)...).Output()
	if exit, is := err.(*exec.ExitError); is && exit.ExitCode() == 77 {
		panic(skipped("the Java tools are missing"))
	}
	must(err, "mqadmin "+strings.Join(arguments, " "))
	return string(out)
}

func sqlPush(b *bed) {
	topic := b.topic(2)
	sender := b.producer()
	wanted := []string{}
	for price := 0; price < 20; price++ {
		message := primitive.NewMessage(topic, []byte(fmt.Sprint("p", price))).WithTag([]string{"A", "B"}[price%2])
		if price != 15 {
			message.WithProperty("price", fmt.Sprint(price))
		}
		sent(sender.SendSync(context.Background(), message))
		if price > 9 && price != 15 && price%2 == 0 || price == 3 {
			wanted = append(wanted, fmt.Sprint("p", price))
		}
	}
	into := &inbox{}
	made := b.push(b.name("g"))
	selects := consumer.MessageSelector{Type: consumer.SQL92, Expression: "(price > 9 AND TAGS = 'A') OR price IN ('3')"}
	must(made.Subscribe(topic, selects, into.add), "subscription")
	must(made.Start(), "start of a push consumer")
	into.awaitExactly(wanted, 60*time.Second)
}

func requestReply(b *bed) {
	topic := b.topic(1)
	replies := b.producer()
	answer := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, request := range messages {
			reply, err := consumer.CreateReplyMessage(request, nil)
			if err != nil {
				return consumer.ConsumeRetryLater, err
			}
			reply.Body = append([]byte("re: "), request.Body...)
			// This client asks before its heartbeat has made it known to the broker.
			within(40*time.Second, "a reply that is taken", func() bool {
				_, err := replies.SendSync(context.Background(), reply)
				return err == nil
			})
		}
		return consumer.ConsumeSuccess, nil
	}
	made := b.push(b.name("g"))
	must(made.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}, answer), "subscription")
	must(made.Start(), "start of a push consumer")
	asks := b.producer()
	for i := 0; i < 3; i++ {
		text := fmt.Sprint("question ", i)
		reply, err := asks.Request(context.Background(), 40*time.Second, primitive.NewMessage(topic, []byte(text)))
		must(err, "request")
		equal("re: "+text, string(reply.Body), "reply")
	}
	_, err := asks.Request(context.Background(), time.Second, primitive.NewMessage(b.topic(1), []byte("anybody?")))
	check(err != nil && strings.Contains(err.Error(), "timeout"), "a request that nobody answers ended with %v", err)
}

func trace(b *bed) {
	topic := b.topic(1)
	traces := b.topic(1)
	group := b.name("g")
	config := func() *primitive.TraceConfig {
		return &primitive.TraceConfig{TraceTopic: traces, Access: primitive.Local, Resolver: resolver()}
	}
	into := &inbox{}
	b.pushing(group, topic, "*", into, consumer.WithTrace(config()))
	sender := b.producer(producer.WithTrace(config()))
	message := primitive.NewMessage(topic, []byte("traced")).WithTag("T").WithKeys([]string{"k"})
	id := sent(sender.SendSync(context.Background(), message)).MsgID
	into.awaitExactly([]string{"traced"}, 45*time.Second)
	found := &inbox{}
	b.pushing(b.name("reader"), traces, "*", found)
	has := func(kind string, parts ...string) bool {
		for _, body := range found.texts() {
			for _, line := range strings.Split(body, "\x02") {
				fields := "\x01" + line + "\x01"
				whole := strings.HasPrefix(line, kind+"\x01")
				for _, part := range parts {
					whole = whole && strings.Contains(fields, "\x01"+part+"\x01")
				}
				if whole {
					return true
				}
			}
		}
		return false
	}
	within(45*time.Second, "both sides of the message", func() bool {
		return has("Pub", id, topic, "T", "k") && has("SubBefore", id, group) && has("SubAfter", id, group, "true")
	})
	for _, one := range found.all() {
		check(strings.Contains(one.GetKeys(), id), "keys of a trace: %s", one.GetKeys())
	}
}

func offsetReset(b *bed) {
	topic := b.topic(1)
	group := b.name("g")
	into := &inbox{}
	b.pushing(group, topic, "*", into)
	wanted := send(b.producer(), topic, "", "m", 20)
	into.awaitExactly(wanted, 45*time.Second)
	out := mqadmin("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0")
	check(strings.Contains(out, topic), "mqadmin printed: %s", out)
	// This client sleeps for 10 s when it is told that its offset is another one, and takes the queue anew at its next rebalance.
	wanted = append(wanted, wanted...)
	into.awaitExactly(wanted, 75*time.Second)
}
