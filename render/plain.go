// Package render turns a message's text into the parts that a platform takes:
// each within the platform's limit, counted in the platform's own unit, and
// together the whole text.
package render

import (
	"strings"
	"unicode/utf8"

	"github.com/rivo/uniseg"

	"github.com/chatgateway/gateway/chat"
)

// shortText is the limit of a target that does not state one.
const shortText = 1000

// Plain splits text into parts that the target takes as they are: at the end
// of a paragraph if one ends in the second half of a part, else of a line, a
// sentence or a word, else between two characters as a reader sees them. The
// parts put together are the text; parts with nothing to see are left out, so
// the result is empty for a blank text. Bytes that are not UTF-8 become U+FFFD.
func Plain(text string, c chat.Capabilities) []string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	limit := c.MaxText
	if limit <= 0 {
		limit = shortText
	}
	var parts []string
	for text != "" {
		end := prefix(text, limit, c.TextUnit)
		if end < len(text) {
			end = breakBefore(text, end)
		}
		if part := text[:end]; strings.TrimSpace(part) != "" {
			parts = append(parts, part)
		}
		text = text[end:]
	}
	return parts
}

// Length counts text in a platform's unit.
func Length(text string, u chat.TextUnit) int {
	switch u {
	case chat.CodePoints:
		return utf8.RuneCountInString(text)
	case chat.Bytes:
		return len(text)
	case chat.UTF16Units:
	}
	n := 0
	for _, r := range text {
		n += runeLength(r, u)
	}
	return n
}

func runeLength(r rune, u chat.TextUnit) int {
	switch u {
	case chat.CodePoints:
		return 1
	case chat.Bytes:
		return utf8.RuneLen(r)
	case chat.UTF16Units:
	}
	if r > 0xffff {
		return 2
	}
	return 1
}

// prefix gives the length in bytes of the longest start of text that holds
// whole characters and is within the limit. A character longer than the limit
// is cut between its code points; something is always taken.
func prefix(text string, limit int, u chat.TextUnit) int {
	if len(text) <= limit { // no unit counts more than bytes
		return len(text)
	}
	end, used, state := 0, 0, -1
	for end < len(text) {
		var cluster string
		cluster, _, _, state = uniseg.FirstGraphemeClusterInString(text[end:], state)
		n := Length(cluster, u)
		if used+n > limit {
			break
		}
		end, used = end+len(cluster), used+n
	}
	if end > 0 {
		return end
	}
	for i, r := range text {
		n := runeLength(r, u)
		if used+n > limit && i > 0 {
			return i
		}
		used += n
	}
	return len(text)
}

// breakBefore gives the best place to end a part at or before end.
func breakBefore(text string, end int) int {
	part := text[:end]
	for _, mark := range []string{"\n\n", "\n"} {
		if i := strings.LastIndex(part, mark); i >= 0 && i+len(mark) > end/2 {
			return i + len(mark)
		}
	}
	best := -1
	for _, mark := range []string{". ", "! ", "? ", "。", "！", "？"} {
		if i := strings.LastIndex(part, mark); i >= 0 {
			best = max(best, i+len(mark))
		}
	}
	if best > end/2 {
		return best
	}
	if i := strings.LastIndexAny(part, " \t\n"); i >= 0 {
		return i + 1
	}
	return end
}
