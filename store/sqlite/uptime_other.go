//go:build !linux

package sqlite

import "time"

// systemClock reads the wall clock: the uptime of the system is not known here.
func systemClock() func() systemTime {
	return func() systemTime {
		return systemTime{wall: time.Now().UnixNano()} //nolint:forbidigo // the store's own clock
	}
}
