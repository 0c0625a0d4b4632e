// Scenarios for the official Go client, run against the node that NAMESRV names.
// Prints a line for each and a closing line, and ends with 1 if one failed. Arguments: names of scenarios; none means all.
package main

import (
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

const limit = 90 * time.Second

func main() {
	if os.Getenv("NAMESRV") == "" {
		fmt.Fprintln(os.Stderr, "NAMESRV must hold host:port of the name server")
		os.Exit(2)
	}
	rlog.SetLogLevel("fatal")
	wanted := map[string]bool{}
	for _, name := range os.Args[1:] {
		wanted[name] = true
	}
	var passed, failed int
	var lock sync.Mutex
	var all sync.WaitGroup
	lanes := make(chan bool, 6)
	for _, each := range scenarios {
		if len(wanted) > 0 && !wanted[each.name] {
			continue
		}
		all.Add(1)
		go func(each scenario) {
			defer all.Done()
			lanes <- true
			started := time.Now()
			err := run(each)
			<-lanes
			lock.Lock()
			defer lock.Unlock()
			if err == nil {
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
	fmt.Printf("suite %s: passed %d, failed %d, skipped 0\n", suite, passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
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
