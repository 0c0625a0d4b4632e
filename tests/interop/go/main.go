// Scenarios for the official Go client, run against the node that NAMESRV names.
// Prints a line for each and a closing line, and ends with 1 if one failed. Arguments: names of suites (everyday, delivery) or
// scenarios; none means everyday.
package main

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// scenario is one thing that a client does and what must come of it; holds quotes the behaviour that it pins down.
type scenario struct {
	name  string
	holds string
	body  func(bed *bed)
}

// fault is what a scenario panics with when something is not as it must be.
type fault string

// skipped is what a scenario panics with when the machine lacks something that it needs.
type skipped string

func (s skipped) Error() string { return string(s) }

var suites = map[string][]scenario{"everyday": scenarios, "delivery": deliveries}

const limit = patience * 90 * time.Second

func main() {
	if os.Getenv("NAMESRV") == "" {
		fmt.Fprintln(os.Stderr, "NAMESRV must hold host:port of the name server")
		os.Exit(2)
	}
	rlog.SetLogLevel("fatal")
	var passed, failed, left int
	var lock sync.Mutex
	var all sync.WaitGroup
	lanes := make(chan bool, 12)
	for _, each := range chosen(os.Args[1:]) {
		all.Add(1)
		go func(each scenario) {
			defer all.Done()
			lanes <- true
			started := time.Now()
			err := run(each)
			<-lanes
			lock.Lock()
			defer lock.Unlock()
			var lacks skipped
			if errors.As(err, &lacks) {
				left++
				fmt.Printf("skip  %-34s %s\n", each.name, string(lacks))
			} else if err == nil {
				passed++
				fmt.Printf("ok    %-34s %5.1f s  %s\n", each.name, time.Since(started).Seconds(), each.holds)
			} else {
				failed++
				fmt.Printf("FAIL  %-34s %5.1f s  %s\n      %v\n", each.name, time.Since(started).Seconds(), each.holds, err)
			}
		}(each)
	}
	all.Wait()
	suite := os.Getenv("INTEROP_SUITE")
	if suite == "" {
		suite = "go"
	}
	fmt.Printf("suite %s: passed %d, failed %d, skipped %d\n", suite, passed, failed, left)
	if failed > 0 {
		os.Exit(1)
	}
}

// chosen are the scenarios of the suites and names that were given.
func chosen(names []string) []scenario {
	if len(names) == 0 {
		return suites["everyday"]
	}
	list := []scenario{}
	for _, name := range names {
		list = append(list, suites[name]...)
		for _, suite := range suites {
			for _, each := range suite {
				if each.name == name {
					list = append(list, each)
				}
			}
		}
	}
	if len(list) == 0 {
		fmt.Fprintln(os.Stderr, "no suite or scenario is named", names)
		os.Exit(2)
	}
	return list
}

// run ends with the scenario or its limit, whichever comes first.
func run(each scenario) error {
	bed := newBed(each.name)
	done := make(chan error, 1)
	go func() {
		defer func() {
			switch why := recover().(type) {
			case nil:
				done <- nil
			case skipped:
				done <- why
			case fault:
				done <- fmt.Errorf("%s", string(why))
			default:
				done <- fmt.Errorf("panic: %v", why)
			}
		}()
		each.body(bed)
	}()
	var err error
	select {
	case err = <-done:
	case <-time.After(limit):
		err = fmt.Errorf("still running after %v", limit)
	}
	closed := make(chan bool, 1)
	go func() {
		bed.close()
		closed <- true
	}()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
	}
	return err
}
