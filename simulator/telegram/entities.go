package telegram

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	maxTextRunes    = 4096  // code points after entity parsing (Bot API, sendMessage; read 2026-11-30).
	maxCaptionRunes = 1024  // code points after entity parsing (Bot API, sendPhoto; read 2026-11-30).
	maxRawText      = 32768 // bytes before parsing (telegram-bot-api source; read 2026-11-30).
)

// Entity marks up a part of a text. Offset and Length count UTF-16 units.
type Entity struct {
	Type          string `json:"type"`
	Offset        int    `json:"offset"`
	Length        int    `json:"length"`
	URL           string `json:"url,omitempty"`
	Language      string `json:"language,omitempty"`
	CustomEmojiID string `json:"custom_emoji_id,omitempty"`
}

// parseText turns a raw text into what a chat shows and its entities, by the call's parse mode or its own entities.
func parseText(raw, mode, given string) (string, []Entity, *apiError) {
	if len(raw) > maxRawText {
		return "", nil, badRequest("text is too long")
	}
	var text string
	var entities []Entity
	var problem string
	switch strings.ToLower(mode) {
	case "":
		text = raw
		if given != "" {
			if err := json.Unmarshal([]byte(given), &entities); err != nil {
				return "", nil, badRequest("can't parse entities JSON object")
			}
			entities = clipEntities(text, entities)
		}
	case "html":
		text, entities, problem = parseHTML(raw)
	case "markdownv2":
		text, entities, problem = parseMarkdownV2(raw)
	case "markdown":
		text, entities, problem = parseMarkdown(raw)
	default:
		return "", nil, badRequest("unsupported parse_mode")
	}
	if problem != "" {
		return "", nil, badRequest("can't parse entities: " + problem)
	}
	sortEntities(entities)
	text, entities = trimText(text, entities)
	return text, entities, nil
}

func sortEntities(entities []Entity) {
	slices.SortStableFunc(entities, func(a, b Entity) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(b.Length, a.Length))
	})
}

// clipEntities drops what doesn't lie inside the text.
func clipEntities(text string, entities []Entity) []Entity {
	end := utf16Len(text)
	return slices.DeleteFunc(entities, func(e Entity) bool {
		return e.Length <= 0 || e.Offset < 0 || e.Length > end || e.Offset > end-e.Length
	})
}

// trimText removes blanks at both ends, as the platform does; leading ones only outside entities.
func trimText(text string, entities []Entity) (string, []Entity) {
	text = strings.TrimRight(text, " \n\t\r")
	lead := len(text) - len(strings.TrimLeft(text, " \n\t\r"))
	if len(entities) > 0 {
		lead = min(lead, entities[0].Offset)
	}
	text = text[lead:]
	end := utf16Len(text)
	kept := entities[:0]
	for _, e := range entities {
		e.Offset -= lead
		e.Length = min(e.Length, end-e.Offset)
		if e.Length > 0 {
			kept = append(kept, e)
		}
	}
	return text, kept
}

func utf16Len(s string) int {
	n := 0
	for _, r := range s {
		n += max(1, utf16.RuneLen(r))
	}
	return n
}

// textBuilder collects a parsed text and knows its length in UTF-16 units.
type textBuilder struct {
	text  strings.Builder
	units int
}

func (b *textBuilder) String() string { return b.text.String() }

// Len is the length in bytes.
func (b *textBuilder) Len() int { return b.text.Len() }

func (b *textBuilder) add(s string) {
	b.text.WriteString(s)
	b.units += utf16Len(s)
}

// addRune copies the character at the start of s and returns its length in bytes.
func (b *textBuilder) addRune(s string) int {
	_, n := utf8.DecodeRuneInString(s)
	b.add(s[:n])
	return n
}

// linkEntity makes the entity of a link text, or none where the address is no link at all.
func linkEntity(url string, offset, length int) (Entity, bool) {
	lower := strings.ToLower(url)
	for _, scheme := range []string{"http://", "https://", "tg://", "ton://", "tonsite://", "mailto:", "tel:"} {
		if strings.HasPrefix(lower, scheme) && len(url) > len(scheme) {
			return Entity{Type: "text_link", Offset: offset, Length: length, URL: url}, true
		}
	}
	if strings.Contains(url, ".") && !strings.ContainsAny(url, " \n<>\"") && !strings.HasPrefix(url, "/") {
		return Entity{Type: "text_link", Offset: offset, Length: length, URL: "http://" + url}, true
	}
	return Entity{}, false
}

// findEntities finds the commands, mentions and links that the platform marks by itself in what users write.
func findEntities(text string) []Entity {
	var found []Entity
	units := 0
	for i := 0; i < len(text); {
		start := i
		for i < len(text) && !strings.ContainsRune(" \n\t", rune(text[i])) {
			i++
		}
		word := text[start:i]
		if kind, n := entityOf(word); kind != "" {
			found = append(found, Entity{Type: kind, Offset: units, Length: utf16Len(word[:n])})
		}
		units += utf16Len(word)
		for i < len(text) && strings.ContainsRune(" \n\t", rune(text[i])) {
			i++
			units++
		}
	}
	return found
}

// entityOf tells what a word is and how many of its bytes belong to it.
func entityOf(word string) (kind string, n int) {
	lower := strings.ToLower(word)
	switch {
	case strings.HasPrefix(word, "/"):
		kind, n = "bot_command", nameEnd(word, "@")
	case strings.HasPrefix(word, "@"):
		kind, n = "mention", nameEnd(word, "")
	case strings.HasPrefix(word, "#"):
		kind, n = "hashtag", nameEnd(word, "")
	case strings.HasPrefix(lower, "http://"), strings.HasPrefix(lower, "https://"):
		return "url", len(word)
	}
	if n < 2 {
		return "", 0
	}
	return kind, n
}

func nameEnd(word, also string) int {
	for i := 1; i < len(word); i++ {
		c := word[i]
		if !isAlnum(c) && c != '_' && !strings.Contains(also, string(rune(c))) {
			return i
		}
	}
	return len(word)
}

func isAlnum(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
