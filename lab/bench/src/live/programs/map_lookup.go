// Looks random keys up in a Go map whose values lie on the heap, and reports its rate. It speaks the
// line protocol of HawkEye's workloads: events as JSON on standard output; "go", "stop" and "quit" on
// standard input. The end of standard input ends it.
//
// Argument: size of the heap in MiB. The map grows until the heap has this size.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	batch          = 4096
	reportInterval = 20 * time.Millisecond
)

// value is one of the runtime's size classes: no memory is lost to rounding.
type value struct {
	key     uint64
	payload [13]uint64
}

func heapBytes() uint64 {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return memory.HeapAlloc
}

// filledMap has the keys from 0 on.
func filledMap(bytes uint64) map[uint64]*value {
	entries := make(map[uint64]*value)
	for heapBytes() < bytes {
		for i := 0; i < batch; i++ {
			key := uint64(len(entries))
			entries[key] = &value{key: key}
		}
	}
	return entries
}

func say(format string, arguments ...any) {
	if _, err := fmt.Printf(format+"\n", arguments...); err != nil {
		os.Exit(1)
	}
}

// control has the state that requests change.
type control struct {
	changed *sync.Cond
	going   atomic.Bool
}

func (c *control) listen() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() && lines.Text() != "quit" {
		c.changed.L.Lock()
		c.going.Store(lines.Text() == "go")
		c.changed.L.Unlock()
		c.changed.Broadcast()
	}
	os.Exit(0)
}

func (c *control) awaitGo() {
	c.changed.L.Lock()
	for !c.going.Load() {
		c.changed.Wait()
	}
	c.changed.L.Unlock()
}

// lookUp looks count random keys up and returns the state of the random numbers.
func lookUp(entries map[uint64]*value, random uint64, count int) uint64 {
	keys := uint64(len(entries))
	for i := 0; i < count; i++ {
		random = random*6364136223846793005 + 1442695040888963407
		key := (random >> 32) * keys >> 32
		if found := entries[key]; found == nil || found.key != key {
			fmt.Fprintf(os.Stderr, "key %d is not in the map\n", key)
			os.Exit(1)
		}
	}
	return random
}

func main() {
	mib, err := strconv.ParseUint(os.Args[1], 10, 32)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	entries := filledMap(mib << 20)
	requests := control{changed: sync.NewCond(&sync.Mutex{})}
	say(`{"event":"ready","pid":%d,"start":0,"bytes":%d,"hot_start":0,"huge_bytes":0,"execs":0}`,
		os.Getpid(), mib<<20)
	go requests.listen()
	random, lookups, begun := uint64(1), uint64(0), time.Now()
	for {
		requests.awaitGo()
		reportedAt, reported := time.Now(), lookups
		for requests.going.Load() {
			random = lookUp(entries, random, batch)
			lookups += batch
			if passed := time.Since(reportedAt); passed >= reportInterval {
				say(`{"event":"rate","elapsed_s":%f,"accesses":%d,"accesses_per_s":%f}`,
					time.Since(begun).Seconds(), lookups, float64(lookups-reported)/passed.Seconds())
				reportedAt, reported = time.Now(), lookups
			}
		}
	}
}
