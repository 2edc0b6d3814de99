package sqlite

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// systemClock reads the wall clock, and the time since the system was started,
// which is the same for all processes and which nobody steps.
func systemClock() func() systemTime {
	run := bootID()
	return func() systemTime {
		now := systemTime{wall: time.Now().UnixNano()} //nolint:forbidigo // the store's own clock
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err == nil {
			now.uptime, now.run = ts.Nano(), run
		}
		return now
	}
}

// bootID names the run of the system; it is empty where the system does not tell.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}
