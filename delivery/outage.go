package delivery

import "time"

const (
	outageAfter = 3               // temporary failures in a row, without a success, that look like an outage
	probeOutage = 5 * time.Second // while it lasts, one call goes out at least this often
)

// outage tells a platform that is down from a chat that has trouble of its
// own. While it lasts one call probes the platform, and the first success ends
// the backoff of all that wait.
type outage struct {
	failures int       // temporary ones since the last success
	probe    time.Time // when the next call goes out, whatever the backoffs say
}

// failed counts a temporary failure. The caller holds the mutex.
func (b *bot) failed(now time.Time) {
	b.down.failures++
	b.down.probe = now.Add(probeOutage)
}

// assumeOutage lets the platform be tried soon after a start, since what waits
// from the last run may wait for the end of an outage. The caller holds the mutex.
func (b *bot) assumeOutage() {
	b.down = outage{failures: outageAfter, probe: time.Now()}
}

// recovered ends an outage: what waits for a backoff is tried now. The caller
// holds the mutex.
func (b *bot) recovered() {
	was := b.down.failures
	b.down = outage{}
	if was < outageAfter {
		return
	}
	now := time.Now()
	for _, l := range b.lanes {
		if l.retrying && !l.busy {
			l.until = now
			b.place(l, now)
		}
	}
}

// nextProbe is when the platform is tried again during an outage.
func (b *bot) nextProbe() (time.Time, bool) {
	return b.down.probe, b.down.failures >= outageAfter && len(b.parked) > 0
}

// probeOutage lets one lane through though its backoff runs.
func (b *bot) probeOutage(now time.Time) {
	at, ok := b.nextProbe()
	if !ok || now.Before(at) {
		return
	}
	b.down.probe = now.Add(probeOutage)
	for _, l := range b.parked { // the first in the heap's order is the next to end its backoff
		if l.retrying {
			l.until = now
			b.unlist(l)
			b.place(l, now)
			return
		}
	}
	b.down.probe = now.Add(farOff) // until something fails again
}
