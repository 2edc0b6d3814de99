package main

import "testing"

func TestRatio_pairsTheRounds(t *testing.T) {
	// The second round met a busy machine: both were slow, and the ratio holds.
	got := ratio([]float64{600, 60, 500}, []float64{100, 10, 50})
	if want := "6.000 (6.000–10.000)"; got != want {
		t.Errorf("ratio() = %q, want %q", got, want)
	}
	if got := ratio([]float64{1}, nil); got != "–" {
		t.Errorf("ratio() without a second value = %q, want a dash", got)
	}
}

func TestDuration_hasFourDigits(t *testing.T) {
	for _, c := range []struct {
		seconds float64
		want    string
	}{
		{74.54e-9, "74.5 ns"},
		{316.54e-6, "316.5 µs"},
		{0.0035, "3.5 ms"},
		{12.3456, "12.35 s"},
	} {
		if got := duration(c.seconds); got != c.want {
			t.Errorf("duration(%v) = %q, want %q", c.seconds, got, c.want)
		}
	}
}
