package adapters

import (
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	minWait = 50 * time.Millisecond // a shorter wait would be a busy loop
	maxWait = 7 * 24 * time.Hour    // a longer one is a timestamp or a mistake
)

// Wait turns a platform's number of seconds into a duration, rounded up so
// that a call is never early. Only waits above zero and up to seven days are
// sane; the shortest that is given is 50 ms.
func Wait(seconds float64) (time.Duration, bool) {
	if math.IsNaN(seconds) || seconds <= 0 || seconds > maxWait.Seconds() {
		return 0, false
	}
	return max(time.Duration(math.Ceil(seconds*float64(time.Second))), minWait), true
}

// RetryAfter reads the Retry-After header: seconds, a fraction of seconds, or
// a date, which is taken relative to the answer's own Date (now where that is
// missing). Several values, in one line or in many, give the largest sane one.
func RetryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	var longest time.Duration
	for _, line := range h.Values("Retry-After") {
		if d, ok := untilDate(line, h.Get("Date"), now); ok {
			longest = max(longest, d)
			continue
		}
		for value := range strings.SplitSeq(line, ",") {
			if d, ok := parseSeconds(value); ok {
				longest = max(longest, d)
			}
		}
	}
	return longest, longest > 0
}

func untilDate(value, date string, now time.Time) (time.Duration, bool) {
	at, err := http.ParseTime(strings.TrimSpace(value))
	if err != nil {
		return 0, false
	}
	if sent, err := http.ParseTime(date); err == nil {
		now = sent
	}
	return Wait(at.Sub(now).Seconds())
}

func parseSeconds(value string) (time.Duration, bool) {
	seconds, err := strconv.ParseFloat(strings.Trim(value, " \t\""), 64)
	if err != nil {
		return 0, false
	}
	return Wait(seconds)
}

var waitInText = regexp.MustCompile(`(?i)\bretry[ _]after["']?\s*[:=]?\s*(\d+(?:\.\d+)?)`)

// RetryAfterText reads "retry after N" or "retry_after: N" from an error text,
// the last resort where a platform's answer has lost its structure.
func RetryAfterText(text string) (time.Duration, bool) {
	m := waitInText.FindStringSubmatch(text)
	if m == nil {
		return 0, false
	}
	return parseSeconds(m[1])
}
