package telegram_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chatgateway/gateway/simulator/telegram"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func TestSendMessage_parsesMarkup(t *testing.T) {
	type entities = []telegram.Entity
	tests := []struct {
		name, mode, in, text string
		want                 entities
	}{
		{"html tags nest", "HTML", "<b>a<i>b</i></b> &lt;&amp;&gt; &#33;", "ab <&> !", entities{{Type: "bold", Length: 2}, {Type: "italic", Offset: 1, Length: 1}}},
		{"html link", "html", `<a href="https://e.org/?a=1&amp;b=2">t</a>`, "t", entities{{Type: "text_link", Length: 1, URL: "https://e.org/?a=1&b=2"}}},
		{"html code block with a language", "HTML", `<pre><code class="language-go">x := 1</code></pre>`, "x := 1", entities{{Type: "pre", Length: 6, Language: "go"}}},
		{"html offsets are UTF-16", "HTML", "😀<b>a</b>", "😀a", entities{{Type: "bold", Offset: 2, Length: 1}}},
		{"html quote that expands", "HTML", "<blockquote expandable>q</blockquote>", "q", entities{{Type: "expandable_blockquote", Length: 1}}},
		{"html spoiler", "HTML", `<span class="tg-spoiler">s</span><tg-spoiler>t</tg-spoiler>`, "st", entities{{Type: "spoiler", Length: 1}, {Type: "spoiler", Offset: 1, Length: 1}}},
		{"html lone ampersand", "HTML", "a & b &nbsp; c", "a & b &nbsp; c", nil},
		{"blanks at the ends go", "HTML", "  <b>a </b> \n", "a", entities{{Type: "bold", Length: 1}}},
		{"markdown styles", "MarkdownV2", `*b* _i_ __u__ ~s~ ||p|| ` + "`c`", "b i u s p c", entities{
			{Type: "bold", Length: 1},
			{Type: "italic", Offset: 2, Length: 1},
			{Type: "underline", Offset: 4, Length: 1},
			{Type: "strikethrough", Offset: 6, Length: 1},
			{Type: "spoiler", Offset: 8, Length: 1},
			{Type: "code", Offset: 10, Length: 1},
		}},
		{"markdown escapes", "MarkdownV2", `a\.b\!\\ \*`, `a.b!\ *`, nil},
		{"markdown link", "MarkdownV2", `[t](https://e.org/a\)b)`, "t", entities{{Type: "text_link", Length: 1, URL: "https://e.org/a)b"}}},
		{"markdown fence", "MarkdownV2", "```go\nx.y()\n```", "x.y()", entities{{Type: "pre", Length: 5, Language: "go"}}},
		{"markdown fence without a language", "MarkdownV2", "```\na`b\n```", "a`b", entities{{Type: "pre", Length: 3}}},
		{"markdown quote", "MarkdownV2", ">a\n>b\nc", "a\nb\nc", entities{{Type: "blockquote", Length: 3}}},
		{"markdown quote that expands", "MarkdownV2", ">a\n>b||", "a\nb", entities{{Type: "expandable_blockquote", Length: 3}}},
		{"old markdown", "Markdown", "*b* _i_ `c` [t](https://e.org) \\*", "b i c t *", entities{
			{Type: "bold", Length: 1}, {Type: "italic", Offset: 2, Length: 1}, {Type: "code", Offset: 4, Length: 1}, {Type: "text_link", Offset: 6, Length: 1, URL: "https://e.org"},
		}},
	}
	s := start(t, telegram.Options{})
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			chat := int64(100 + i)
			s.mustWork(t, "sendMessage", "chat_id="+itoa(chat), "parse_mode="+tt.mode, "text="+tt.in)
			m := s.Messages(chat)[0]
			if m.Text != tt.text {
				t.Errorf("text = %q, want %q", m.Text, tt.text)
			}
			if len(m.Entities) > 0 || len(tt.want) > 0 {
				if d := cmp.Diff(tt.want, m.Entities); d != "" {
					t.Errorf("entities -want +got:\n%s", d)
				}
			}
		})
	}
}

func TestSendMessage_refusesBrokenMarkup(t *testing.T) {
	tests := []struct{ mode, in, want string }{
		{"HTML", "<b>a", `Can't find end tag corresponding to start tag "b"`},
		{"HTML", "a <x>", `Unsupported start tag "x" at byte offset 2`},
		{"HTML", "é<b", `Unclosed start tag at byte offset 2`},
		{"HTML", `<a href="x`, `Unclosed start tag "a" at byte offset 0`},
		{"HTML", "<b>a</i>", `Unmatched end tag at byte offset 4, expected "</b>", found "</i>"`},
		{"HTML", "a</b>", `Unexpected end tag at byte offset 1`},
		{"HTML", "<span>a</span>", `Tag "span" must have class "tg-spoiler" at byte offset 0`},
		{"MarkdownV2", "a.", `Character '.' is reserved and must be escaped with the preceding '\'`},
		{"MarkdownV2", "1 > 2", `Character '>' is reserved and must be escaped with the preceding '\'`},
		{"MarkdownV2", "a *b", `Can't find end of Bold entity at byte offset 2`},
		{"MarkdownV2", "```go\nx", `Can't find end of PreCode entity at byte offset 0`},
		{"MarkdownV2", "[a](b", `Can't find end of a URL at byte offset 3`},
		{"Markdown", "a *b", `Can't find end of the entity starting at byte offset 2`},
	}
	s := start(t, telegram.Options{})
	for _, tt := range tests {
		s.mustFail(t, 400, "Bad Request: can't parse entities: "+tt.want, "sendMessage", "chat_id=5", "parse_mode="+tt.mode, "text="+tt.in)
	}
}

func TestSendMessage_countsCodePointsAfterParsing(t *testing.T) {
	s := start(t, telegram.Options{})
	full := strings.Repeat("😀", 4096)
	s.mustWork(t, "sendMessage", "chat_id=5", "parse_mode=HTML", "text=<b>"+full+"</b>")
	s.mustFail(t, 400, "Bad Request: message is too long", "sendMessage", "chat_id=5", "text="+full+"a")
	s.mustFail(t, 400, "Bad Request: text is too long", "sendMessage", "chat_id=5", "text="+strings.Repeat("a", 32769))
	s.mustFail(t, 400, "Bad Request: message caption is too long", "sendDocument", "chat_id=5", "document=https://e.org/a", "caption="+strings.Repeat("a", 1025))
}

func FuzzSendMessage_parsers(f *testing.F) {
	for _, seed := range []string{"<b>a</b>", "<a href='", "&#x", "*a_", "```go\n", ">a\n>b||", "[a](b", "![x](tg://emoji?id=1)", "\\", "**>q", "</>", "<pre><code class=language-x>"} {
		f.Add(seed)
	}
	s := telegram.New(telegram.Options{Limits: &telegram.Limits{Off: true}})
	f.Fuzz(func(t *testing.T, text string) {
		for _, mode := range []string{"HTML", "MarkdownV2", "Markdown"} {
			if status := direct(t, s, "sendMessage", map[string]any{"chat_id": 5, "text": text, "parse_mode": mode}); status != 200 && status != 400 {
				t.Errorf("%s of %q = %d, want 200 or 400", mode, text, status)
			}
		}
	})
}
