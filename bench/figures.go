package main

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// The names of the figures.
const (
	messages    = "messages" // a count, not in the report
	perSecond   = "delivered/s"
	syncsEach   = "syncs/message"
	acceptP50   = "accept p50"
	acceptP99   = "accept p99"
	toWireP50   = "to worker, idle, p50"
	allocs      = "allocations/message"
	bytes       = "bytes/message"
	cpuTime     = "CPU/message"
	perCall     = "time/call"
	callAlloc   = "allocations/call"
	refusedPart = "refused"
	perChan     = "bytes/channel"
	sendRate    = "sent/s after a start"
	loadTime    = "time to load"
	heapEach    = "heap bytes/waiting message"
	rssEach     = "resident bytes/waiting message"
)

// isTime tells the figures that are in seconds.
func isTime(figure string) bool {
	return slices.Contains([]string{acceptP50, acceptP99, toWireP50, cpuTime, perCall, loadTime}, figure)
}

// row is one thing that was measured, once a round.
type row struct {
	name   string
	rounds []map[string]float64
}

// values are a figure's, of those rounds that have it.
func (r row) values(figure string) (vs []float64) {
	for _, round := range r.rounds {
		if v, ok := round[figure]; ok {
			vs = append(vs, v)
		}
	}
	return vs
}

// table prints the medians, and how the first row stands to the others: the
// ratio of each round, its median and the least and the most of it.
func table(title string, rows []row, figures ...string) {
	fmt.Printf("\n### %s\n\nMedians:\n\n", title)
	head(append([]string{""}, figures...))
	for _, r := range rows {
		cells := []string{r.name}
		for _, f := range figures {
			cells = append(cells, format(f, r.values(f)))
		}
		line(cells)
	}
	if len(rows) == 1 {
		return
	}
	fmt.Printf("\n%s, as a multiple of the others, round by round: median (least–most):\n\n", rows[0].name)
	head(append([]string{"of"}, figures...))
	for _, r := range rows[1:] {
		cells := []string{r.name}
		for _, f := range figures {
			if f == callAlloc || f == refusedPart { // 0 of 0
				cells = append(cells, "")
				continue
			}
			cells = append(cells, ratio(rows[0].values(f), r.values(f)))
		}
		line(cells)
	}
}

func head(cells []string) {
	line(cells)
	line(slices.Repeat([]string{"---"}, len(cells)))
}

func line(cells []string) { fmt.Println("| " + strings.Join(cells, " | ") + " |") }

func format(figure string, vs []float64) string {
	switch {
	case len(vs) == 0:
		return "–"
	case isTime(figure):
		return duration(median(vs))
	case median(vs) < 10:
		return fmt.Sprintf("%.4f", median(vs))
	}
	return fmt.Sprintf("%.1f", median(vs))
}

// duration writes seconds with four digits that count.
func duration(s float64) string {
	switch {
	case s < 1e-6:
		return fmt.Sprintf("%.1f ns", s*1e9)
	case s < 1e-3:
		return fmt.Sprintf("%.4g µs", s*1e6)
	case s < 1:
		return fmt.Sprintf("%.4g ms", s*1e3)
	}
	return fmt.Sprintf("%.4g s", s)
}

func ratio(ours, theirs []float64) string {
	var rs []float64
	for i := range min(len(ours), len(theirs)) {
		if theirs[i] != 0 {
			rs = append(rs, ours[i]/theirs[i])
		}
	}
	if len(rs) == 0 {
		return "–"
	}
	m := median(rs)
	return fmt.Sprintf("%.3f (%.3f–%.3f)", m, rs[0], rs[len(rs)-1])
}

// median sorts the values and gives the middle one.
func median[T cmp.Ordered](vs []T) T {
	slices.Sort(vs)
	return vs[len(vs)/2]
}

// describe says where the figures come from.
func describe(p plan) {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	fmt.Printf("%s; %s %s/%s; %d cores; %s", time.Now().UTC().Format(time.DateOnly), runtime.Version(), runtime.GOOS, runtime.GOARCH,
		runtime.NumCPU(), strings.TrimSpace(string(kernel)))
	if p.delay > 0 {
		fmt.Printf("; %v added to each sync", p.delay)
	}
	fmt.Printf("; %d rounds of %v; working in %s\n", p.rounds, p.time, p.dir)
}
