package telegram_test

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// queue answers polls as Telegram does: with what stands at the offset and
// above, as much as is asked for.
func queue(first int, updates ...string) func(string, int, url.Values) reply {
	return func(_ string, _ int, form url.Values) reply {
		from := 0
		if offset, err := strconv.Atoi(form.Get("offset")); err == nil {
			from = max(0, offset-first)
		}
		if from >= len(updates) {
			return quiet(form)
		}
		limit, err := strconv.Atoi(form.Get("limit"))
		if err != nil {
			panic(err)
		}
		return ok(`[` + strings.Join(updates[from:min(len(updates), from+limit)], ",") + `]`)
	}
}

// deep is an update that is nested deeper than a reader of JSON goes.
func deep(id int) string {
	const levels = 200_000
	return fmt.Sprintf(`{"update_id":%d,"message":%s%s}`, id, strings.Repeat("[", levels), strings.Repeat("]", levels))
}

func TestPoll_passesAnUpdateThatSpoilsItsBatch(t *testing.T) {
	for _, c := range []struct {
		name    string
		updates []string
		want    []string
	}{
		{"in the middle", []string{text(10), text(11), deep(12), text(13)}, []string{"10", "11", "13"}},
		{"in front, with no offset known yet", []string{deep(10), text(11)}, []string{"11"}},
		{"at the end", []string{text(10), deep(11)}, []string{"10"}},
		{"two of them", []string{text(10), deep(11), deep(12), text(13)}, []string{"10", "13"}},
		{"no JSON at all", []string{text(10), `{"update_id":11,"message":nope}`, text(12)}, []string{"10", "12"}},
		{"without a readable id", []string{text(10), `{"update_id":1.5}`, `{"update_id":"12"}`, text(13)}, []string{"10", "13"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := &api{answer: queue(10, c.updates...)}
			p := poll(t, a, nil)
			time.Sleep(2 * time.Minute)
			p.stop(t)
			if diff := cmp.Diff(c.want, p.ids()); diff != "" {
				t.Errorf("%s: events (-want +got):\n%s", c.name, diff)
			}
			calls := a.of("getUpdates")
			if last := calls[len(calls)-1].form; last.Get("limit") != "100" || last.Get("offset") != strconv.Itoa(10+len(c.updates)) {
				t.Errorf("%s: last poll = %v, want limit 100 behind all updates", c.name, last)
			}
			if n := p.logged("WARN") + p.logged("ERROR"); n == 0 || n > 4 {
				t.Errorf("%s: %d warnings, want 1 to 4:\n%.2000s", c.name, n, p.log)
			}
		})
	}
}

func TestPoll_skipsNothingThatMayBeReadableLater(t *testing.T) {
	for _, c := range []struct {
		name string
		bad  reply
	}{
		{"a page of HTML", reply{200, "<html>", 0}},
		{"no list", ok(`{"a":1}`)},
		{"a null", ok(`null`)},
		{"a list that is cut off", reply{200, `{"ok":true,"result":[{"update_id":11,"mess`, 0}},
		{"a failure with a broken list", reply{502, `{"ok":true,"result":[{"update_id":11,"message":nope}]}`, 0}},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := &api{answer: func(_ string, n int, form url.Values) reply {
				if n > 0 && n < 10 {
					return c.bad
				}
				return queue(10, text(10), text(11))("", n, url.Values{
					"limit": {"1"}, "offset": form["offset"], "timeout": form["timeout"],
				})
			}}
			p := poll(t, a, nil)
			time.Sleep(10 * time.Minute)
			p.stop(t)
			if diff := cmp.Diff([]string{"10", "11"}, p.ids()); diff != "" {
				t.Errorf("%s: events (-want +got):\n%s", c.name, diff)
			}
		})
	}
}

func TestPoll_countsOnlyOnSaneIDs(t *testing.T) {
	for _, id := range []string{"1.5", "-3", "9223372036854775807", "9223372036854775808", "4611686018427387904", `"11"`, "1e3", "null", "{}"} {
		synctest.Test(t, func(t *testing.T) {
			a := &api{answer: func(_ string, n int, _ url.Values) reply {
				if n == 0 {
					return ok(`[` + text(10) + `]`)
				}
				return ok(`[` + fmt.Sprintf(updateJSON, id) + `]`)
			}}
			p := poll(t, a, nil)
			time.Sleep(10 * time.Minute)
			p.stop(t)
			if diff := cmp.Diff([]string{"10"}, p.ids()); diff != "" {
				t.Errorf("%s: events (-want +got):\n%s", id, diff)
			}
			calls := a.of("getUpdates")
			if n := len(calls); n < 15 || n > 60 {
				t.Errorf("%s: %d polls in ten minutes, want 15 to 60", id, n)
			}
			offset, err := strconv.Atoi(calls[len(calls)-1].form.Get("offset"))
			if err != nil || offset < 11 || offset > 11+len(calls)/2 {
				t.Errorf("%s: offset = %d after %d polls, want at most one for two polls", id, offset, len(calls))
			}
			if calls[1].form.Get("offset") != "11" || calls[2].form.Get("offset") != "11" {
				t.Errorf("%s: an update was skipped without asking again", id)
			}
			if n := p.logged("WARN") + p.logged("ERROR"); n > 2 {
				t.Errorf("%s: %d warnings, want at most 2:\n%.2000s", id, n, p.log)
			}
		})
	}
}

func TestPoll_takesTheIDZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{answer: queue(0, text(0), text(1))}
		p := poll(t, a, nil)
		time.Sleep(time.Second)
		p.stop(t)
		if diff := cmp.Diff([]string{"0", "1"}, p.ids()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

func TestPoll_leavesAServerThatRepeatsItselfMoreAndMoreTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{answer: func(_ string, n int, _ url.Values) reply {
			if n%7 == 6 {
				return ok(`[]`) // at once, which is no sign of health
			}
			return ok(`[` + text(9) + `,` + text(10) + `]`)
		}}
		p := poll(t, a, nil)
		time.Sleep(10 * time.Minute)
		p.stop(t)
		gaps := a.gaps("getUpdates")
		for i := 1; i < len(gaps); i++ {
			if gaps[i] < 1 && i%7 != 6 {
				t.Errorf("poll %d came %v s after the one before, want at least 1", i+1, gaps[i])
			}
		}
		if len(gaps) < 20 || len(gaps) > 60 || p.logged("WARN") != 1 {
			t.Errorf("%d polls in ten minutes with %d warnings, want 20 to 60 with one", len(gaps), p.logged("WARN"))
		}
	})
}

func TestPoll_logsOneLineForABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bad []string
		for i := range 50 {
			bad = append(bad, fmt.Sprintf(`{"update_id":%d,"message":7}`, 20+i), `{"update_id":null}`)
		}
		a := &api{answer: func(_ string, n int, form url.Values) reply {
			if n == 0 {
				return ok(`[` + strings.Join(bad, ",") + `]`)
			}
			return quiet(form)
		}}
		p := poll(t, a, nil)
		time.Sleep(time.Minute)
		p.stop(t)
		log := p.log.String()
		if strings.Count(log, "\n") != 1 || !strings.Contains(log, "count=50 first=20 without_id=50") {
			t.Errorf("log = %.2000s, want one line with the counts and the first id", log)
		}
		if len(p.events) != 50 {
			t.Errorf("%d events, want 50", len(p.events))
		}
	})
}
