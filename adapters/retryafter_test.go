package adapters_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/chatgateway/gateway/adapters"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	date := now.Add(-time.Hour).Format(http.TimeFormat) // the server's clock is an hour behind
	tests := []struct {
		name   string
		values []string
		date   string
		want   time.Duration
	}{
		{name: "whole seconds", values: []string{"3"}, want: 3 * time.Second},
		{name: "a fraction is kept", values: []string{"1.5"}, want: 1500 * time.Millisecond},
		{name: "a tiny wait is raised to the floor", values: []string{"0.0004"}, want: 50 * time.Millisecond},
		{name: "a merged list gives the largest", values: []string{"2814, 2"}, want: 2814 * time.Second},
		{name: "two lines give the largest", values: []string{"2", "2814"}, want: 2814 * time.Second},
		{name: "an insane value is passed over", values: []string{"1796040000, 5"}, want: 5 * time.Second},
		{
			name: "a date is relative to the answer's own date", date: date,
			values: []string{now.Add(-time.Hour + 30*time.Second).Format(http.TimeFormat)}, want: 30 * time.Second,
		},
		{name: "a date without a date header is relative to now", values: []string{now.Add(20 * time.Second).Format(http.TimeFormat)}, want: 20 * time.Second},
		{name: "a date in the past is no wait", values: []string{now.Add(-time.Minute).Format(http.TimeFormat)}},
		{name: "zero is no wait", values: []string{"0"}},
		{name: "a negative number is no wait", values: []string{"-3"}},
		{name: "not a number is no wait", values: []string{"NaN"}},
		{name: "a word is no wait", values: []string{"soon"}},
		{name: "no header is no wait"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := http.Header{"Retry-After": tt.values}
			if tt.date != "" {
				h.Set("Date", tt.date)
			}
			got, ok := adapters.RetryAfter(h, now)
			if got != tt.want || ok != (tt.want > 0) {
				t.Errorf("RetryAfter(%q) = %v, %v, want %v", tt.values, got, ok, tt.want)
			}
		})
	}
}

func TestRetryAfterText(t *testing.T) {
	tests := []struct {
		text string
		want time.Duration
	}{
		{text: "Too Many Requests: retry after 37", want: 37 * time.Second},
		{text: `{"retry_after": 0.25}`, want: 250 * time.Millisecond},
		{text: "retry_after=1.5", want: 1500 * time.Millisecond},
		{text: "please retry"},
		{text: "retry after lunch"},
	}
	for _, tt := range tests {
		if got, ok := adapters.RetryAfterText(tt.text); got != tt.want || ok != (tt.want > 0) {
			t.Errorf("RetryAfterText(%q) = %v, %v, want %v", tt.text, got, ok, tt.want)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{"3", "1.5", "2814, 2", "Wed, 21 Oct 2026 07:28:00 GMT", "1e309", "-0", ","} {
		f.Add(seed, "Wed, 21 Oct 2026 07:27:00 GMT")
	}
	f.Fuzz(func(t *testing.T, value, date string) {
		h := http.Header{"Retry-After": {value}, "Date": {date}}
		d, ok := adapters.RetryAfter(h, time.Unix(1_800_000_000, 0))
		if ok && (d < 50*time.Millisecond || d > 7*24*time.Hour) || !ok && d != 0 {
			t.Errorf("RetryAfter(%q) = %v, %v", value, d, ok)
		}
	})
}
