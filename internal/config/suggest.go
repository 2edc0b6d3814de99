package config

import (
	"slices"
	"strings"
)

// nearest gives the known name that was most likely meant by name, or "". Names
// are also compared part by part, so that "requests" finds "max_requests".
func nearest(name string, known []string) string {
	if len(name) > 64 {
		return ""
	}
	limit := max(1, (len(name)+1)/3)
	best, found := limit+1, ""
	for _, candidate := range slices.Sorted(slices.Values(known)) {
		if d := nameDistance(strings.ToLower(name), candidate); d < best {
			best, found = d, candidate
		}
	}
	return found
}

func nameDistance(name, candidate string) int {
	d := distance(name, candidate)
	parts := strings.Split(candidate, "_")
	for i := 1; i < len(parts); i++ {
		for _, half := range []string{strings.Join(parts[:i], "_"), strings.Join(parts[i:], "_")} {
			if len(half) >= 4 {
				d = min(d, distance(name, half))
			}
		}
	}
	return d
}

// distance counts the letters to insert, delete, replace or swap with their neighbour.
func distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

// didYouMean is the hint for a name, or "".
func didYouMean(name string, known []string) string {
	if near := nearest(name, known); near != "" {
		return "did you mean " + quoteOdd(near) + "?"
	}
	return ""
}
