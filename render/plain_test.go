package render_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/rivo/uniseg"
	"pgregory.net/rapid"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/render"
)

func TestPlain(t *testing.T) {
	points := func(n int) chat.Capabilities { return chat.Capabilities{MaxText: n, TextUnit: chat.CodePoints} }
	tests := []struct {
		name string
		text string
		caps chat.Capabilities
		want []string
	}{
		{name: "a short text is one part", text: "hello", caps: points(5), want: []string{"hello"}},
		{name: "a blank text is no part", text: " \n\t ", caps: points(5)},
		{name: "paragraphs come first", text: "one\n\ntwo\nx three", caps: points(12), want: []string{"one\n\ntwo\n", "x three"}},
		{name: "a late paragraph wins over a later word", text: "aaaa\n\nbb cc dd", caps: points(10), want: []string{"aaaa\n\n", "bb cc dd"}},
		{name: "lines come before sentences", text: "one. two\nthree four", caps: points(12), want: []string{"one. two\n", "three four"}},
		{name: "sentences come before words", text: "It is so. But why", caps: points(12), want: []string{"It is so. ", "But why"}},
		{name: "words are kept whole", text: "alpha beta", caps: points(8), want: []string{"alpha ", "beta"}},
		{name: "a long word is cut", text: "abcdefgh", caps: points(3), want: []string{"abc", "def", "gh"}},
		{name: "an emoji is not cut", text: "aa👩‍👩‍👧b", caps: points(5), want: []string{"aa", "👩‍👩‍👧", "b"}},
		{name: "code points are counted, not bytes", text: strings.Repeat("ж", 10), caps: points(10), want: []string{strings.Repeat("ж", 10)}},
		{name: "utf-16 counts an emoji twice", text: "😀😀😀", caps: chat.Capabilities{MaxText: 4}, want: []string{"😀😀", "😀"}},
		{name: "a blank part is left out", text: "ab\n\n\n\n\n\n\n\ncd", caps: points(4), want: []string{"ab\n\n", "\n\ncd"}},
		{name: "bad bytes become the replacement character", text: "a\xffb", caps: points(9), want: []string{"a\uFFFDb"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, render.Plain(tt.text, tt.caps)); diff != "" {
				t.Errorf("Plain(%q) differs (-want +got):\n%s", tt.text, diff)
			}
		})
	}
}

func TestPlain_telegramsLimit(t *testing.T) {
	telegram := chat.Capabilities{MaxText: 4096, TextUnit: chat.CodePoints}
	tests := []struct {
		name string
		text string
		want int
	}{
		{name: "4,096 emoji are one part", text: strings.Repeat("😀", 4096), want: 1},
		{name: "4,097 emoji are two", text: strings.Repeat("😀", 4097), want: 2},
		{name: "an emoji on the seam stays whole", text: strings.Repeat("a", 4095) + "😀" + strings.Repeat("b", 10), want: 2},
		{name: "10,000 letters without a blank are three", text: strings.Repeat("x", 10000), want: 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			parts := render.Plain(tt.text, telegram)
			if len(parts) != tt.want || strings.Join(parts, "") != tt.text {
				t.Errorf("Plain() gave %d parts, want %d that make up the text", len(parts), tt.want)
			}
		})
	}
}

func TestPlain_properties(t *testing.T) {
	text := rapid.StringOf(rapid.SampledFrom([]rune("ab. !\n\n 😀👩‍e\u0301ж。\t")))
	rapid.Check(t, func(rt *rapid.T) {
		in := text.Draw(rt, "text")
		unit := rapid.SampledFrom([]chat.TextUnit{0, chat.CodePoints, chat.UTF16Units, chat.Bytes}).Draw(rt, "unit")
		limit := rapid.IntRange(4, 40).Draw(rt, "limit")
		rest := in
		for _, part := range render.Plain(in, chat.Capabilities{MaxText: limit, TextUnit: unit}) {
			if n := render.Length(part, unit); n > limit {
				rt.Fatalf("part %q has length %d, want at most %d", part, n, limit)
			}
			if !utf8.ValidString(part) || strings.TrimSpace(part) == "" {
				rt.Fatalf("part %q is broken or blank", part)
			}
			before, after, found := strings.Cut(rest, part)
			if !found || strings.TrimSpace(before) != "" {
				rt.Fatalf("part %q is not what comes next in %q", part, rest)
			}
			rest = after
		}
		if strings.TrimSpace(rest) != "" {
			rt.Fatalf("lost %q", rest)
		}
	})
}

func FuzzPlain(f *testing.F) {
	f.Add("one two", 3)
	f.Add(strings.Repeat("e\u0301", 50), 7)
	f.Add("\xf0\x9f\x98", 1)
	f.Fuzz(func(t *testing.T, in string, limit int) {
		limit = max(2, limit%5000) // one code point of two units must fit
		parts := render.Plain(in, chat.Capabilities{MaxText: limit, TextUnit: chat.UTF16Units})
		for _, p := range parts {
			if n := render.Length(p, chat.UTF16Units); n > limit && uniseg.GraphemeClusterCount(p) >= 1 {
				t.Errorf("part of length %d, want at most %d", n, limit)
			}
		}
	})
}
