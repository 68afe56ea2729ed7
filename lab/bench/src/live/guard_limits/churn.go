// A cache in Go's heap that is filled, mostly emptied, and filled again with values of another size.
// It speaks the line protocol of HawkEye's workloads: events as JSON on standard output, "go" on
// standard input.
//
// Arguments: MiB of values, number of deletions, milliseconds between deletion and refill. It is
// ready with half of the values.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"time"
)

const (
	lookUpsPerMiB  = 20000
	deletedPercent = 85
)

type sizes struct{ least, most uint64 }

var (
	small = sizes{512, 1536}
	large = sizes{8 << 10, 64 << 10}
)

type cache struct {
	values     map[uint64][]byte
	keys       []uint64
	bytes      uint64
	nextKey    uint64
	random     uint64
	operations uint64
}

func (c *cache) below(bound uint64) uint64 {
	c.random = c.random*6364136223846793005 + 1442695040888963407
	return (c.random >> 32) * bound >> 32
}

func (c *cache) fill(until uint64, of sizes) {
	for c.bytes < until {
		value := make([]byte, of.least+c.below(of.most-of.least))
		for i := range value {
			value[i] = byte(c.nextKey) | 1
		}
		c.values[c.nextKey] = value
		c.keys = append(c.keys, c.nextKey)
		c.bytes += uint64(len(value))
		c.nextKey++
		c.operations++
	}
}

func (c *cache) lookUp(count uint64) {
	for i := uint64(0); i < count; i++ {
		key := c.keys[c.below(uint64(len(c.keys)))]
		value := c.values[key]
		if value[c.below(uint64(len(value)))] != byte(key)|1 {
			fmt.Fprintf(os.Stderr, "the value of key %d is wrong\n", key)
			os.Exit(1)
		}
	}
	c.operations += count
}

func (c *cache) deleteMost() {
	kept := c.keys[:0]
	for _, key := range c.keys {
		if c.below(100) >= deletedPercent {
			kept = append(kept, key)
			continue
		}
		c.bytes -= uint64(len(c.values[key]))
		delete(c.values, key)
		c.operations++
	}
	c.keys = kept
}

func number(argument string) uint64 {
	number, err := strconv.ParseUint(argument, 10, 32)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return number
}

func main() {
	mib, deletions, pauseMs := number(os.Args[1]), number(os.Args[2]), number(os.Args[3])
	c := cache{values: make(map[uint64][]byte), random: 1}
	all, lookUps := mib<<20, mib*lookUpsPerMiB
	c.fill(all/2, small)
	fmt.Printf(`{"event":"ready","pid":%d,"start":0,"bytes":%d,"hot_start":0,"huge_bytes":0,"execs":0}`+"\n",
		os.Getpid(), c.bytes)
	if !bufio.NewScanner(os.Stdin).Scan() {
		return
	}
	begun, pause, before := time.Now(), time.Duration(pauseMs)*time.Millisecond, c.operations
	c.fill(all, small)
	c.lookUp(lookUps)
	for n := uint64(0); n < deletions; n++ {
		c.deleteMost()
		c.lookUp(lookUps / 4)
		time.Sleep(pause)
		c.fill(all, []sizes{large, small}[n%2])
		c.lookUp(lookUps)
	}
	worked := time.Since(begun) - time.Duration(deletions)*pause
	fmt.Printf(`{"event":"finished","elapsed_s":%f,"accesses":%d}`+"\n",
		worked.Seconds(), c.operations-before)
}
