package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clockTick is what the system counts other processes' time in (USER_HZ of
// Linux, the same on all its platforms).
const clockTick = 10 * time.Millisecond

// usedCPU is the processor time that this process and the servers have used.
func usedCPU(servers []int) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	used := time.Duration(u.Utime.Nano() + u.Stime.Nano())
	for _, id := range servers {
		used += otherCPU(id)
	}
	return used
}

// otherCPU reads the time of another process, of user and system.
func otherCPU(id int) time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", id))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	var ticks int
	for _, f := range fields[11:13] { // utime and stime
		n, _ := strconv.Atoi(f)
		ticks += n
	}
	return time.Duration(ticks) * clockTick
}
