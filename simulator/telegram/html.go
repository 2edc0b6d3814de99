package telegram

import (
	"fmt"
	"html"
	"strconv"
	"strings"
)

// htmlTag is a start tag that waits for its end.
type htmlTag struct {
	name   string
	entity Entity // Type is empty where the tag only carries text
	offset int    // UTF-16 units before it
	bytes  int    // length of the built text before it
}

// htmlParser turns the Bot API's HTML into text and entities.
type htmlParser struct {
	in       string
	out      textBuilder
	open     []htmlTag
	entities []Entity
}

// parseHTML returns the text, its entities, and what is wrong with the markup in the platform's words.
func parseHTML(in string) (text string, entities []Entity, problem string) {
	p := &htmlParser{in: in}
	for i := 0; i < len(in); {
		switch {
		case in[i] == '&':
			i += p.reference(i)
		case in[i] != '<':
			i += p.out.addRune(in[i:])
		case strings.HasPrefix(in[i:], "</"):
			i, problem = p.endTag(i)
		default:
			i, problem = p.startTag(i)
		}
		if problem != "" {
			return "", nil, problem
		}
	}
	if n := len(p.open); n > 0 {
		return "", nil, fmt.Sprintf("Can't find end tag corresponding to start tag %q", p.open[n-1].name)
	}
	return p.out.String(), p.entities, ""
}

// reference copies the character reference at i, or the ampersand alone where it is none.
func (p *htmlParser) reference(i int) int {
	end := strings.IndexByte(p.in[i:min(len(p.in), i+12)], ';')
	if end > 0 {
		ref := p.in[i : i+end+1]
		known := ref == "&lt;" || ref == "&gt;" || ref == "&amp;" || ref == "&quot;" || strings.HasPrefix(ref, "&#")
		if s := html.UnescapeString(ref); known && s != ref {
			p.out.add(s)
			return len(ref)
		}
	}
	p.out.add("&")
	return 1
}

func (p *htmlParser) startTag(begin int) (next int, problem string) {
	in, i := p.in, begin+1
	for i < len(in) && !isSpace(in[i]) && in[i] != '>' {
		i++
	}
	if i == len(in) {
		return 0, fmt.Sprintf("Unclosed start tag at byte offset %d", begin)
	}
	name := strings.ToLower(in[begin+1 : i])
	if !supportedTag(name) {
		return 0, fmt.Sprintf("Unsupported start tag %q at byte offset %d", name, begin)
	}
	attributes, next, problem := p.attributes(name, begin, i)
	if problem != "" {
		return 0, problem
	}
	tag := htmlTag{name: name, offset: p.out.units, bytes: p.out.Len()}
	tag.entity, problem = p.entityOf(name, attributes, begin)
	if problem != "" {
		return 0, problem
	}
	p.open = append(p.open, tag)
	return next, ""
}

func supportedTag(name string) bool {
	switch name {
	case "a", "b", "strong", "i", "em", "s", "strike", "del", "u", "ins", "tg-spoiler", "tg-emoji", "tg-time", "span",
		"pre", "code", "blockquote":
		return true
	}
	return false
}

// attributes reads the attributes from i up to the closing angle bracket.
func (p *htmlParser) attributes(name string, begin, i int) (found map[string]string, next int, problem string) {
	in, found := p.in, map[string]string{}
	unclosed := fmt.Sprintf("Unclosed start tag %q at byte offset %d", name, begin)
	for {
		i = skipSpace(in, i)
		if i >= len(in) {
			return nil, 0, unclosed
		}
		if in[i] == '>' {
			return found, i + 1, ""
		}
		start := i
		for i < len(in) && !isSpace(in[i]) && in[i] != '=' && in[i] != '>' {
			i++
		}
		key := strings.ToLower(in[start:i])
		if key == "" {
			return nil, 0, fmt.Sprintf("Empty attribute name in the tag %q at byte offset %d", name, begin)
		}
		i = skipSpace(in, i)
		if i >= len(in) {
			return nil, 0, unclosed
		}
		if in[i] != '=' {
			found[key] = "" // An attribute without a value, such as blockquote's "expandable".
			continue
		}
		value, end, ok := attributeValue(in, skipSpace(in, i+1))
		if !ok {
			return nil, 0, unclosed
		}
		found[key], i = value, end
	}
}

// attributeValue reads a bare or quoted value at i.
func attributeValue(in string, i int) (value string, next int, ok bool) {
	if i >= len(in) {
		return "", 0, false
	}
	if in[i] == '"' || in[i] == '\'' {
		end := strings.IndexByte(in[i+1:], in[i])
		if end < 0 {
			return "", 0, false
		}
		return html.UnescapeString(in[i+1 : i+1+end]), i + end + 2, true
	}
	start := i
	for i < len(in) && !isSpace(in[i]) && in[i] != '>' {
		i++
	}
	return html.UnescapeString(in[start:i]), i, i < len(in)
}

func (p *htmlParser) entityOf(name string, attributes map[string]string, begin int) (e Entity, problem string) {
	switch name {
	case "b", "strong":
		e.Type = "bold"
	case "i", "em":
		e.Type = "italic"
	case "u", "ins":
		e.Type = "underline"
	case "s", "strike", "del":
		e.Type = "strikethrough"
	case "tg-spoiler":
		e.Type = "spoiler"
	case "span":
		if attributes["class"] != "tg-spoiler" {
			return e, fmt.Sprintf("Tag \"span\" must have class \"tg-spoiler\" at byte offset %d", begin)
		}
		e.Type = "spoiler"
	case "a":
		e.URL = attributes["href"]
	case "code":
		e.Type, e.Language = "code", strings.TrimPrefix(attributes["class"], "language-")
		if e.Language == attributes["class"] {
			e.Language = ""
		}
	case "pre":
		e.Type = "pre"
	case "blockquote":
		e.Type = "blockquote"
		if _, ok := attributes["expandable"]; ok {
			e.Type = "expandable_blockquote"
		}
	case "tg-emoji":
		if _, err := strconv.ParseUint(attributes["emoji-id"], 10, 64); err != nil {
			return e, "Invalid custom emoji identifier specified"
		}
		e.Type, e.CustomEmojiID = "custom_emoji", attributes["emoji-id"]
	}
	return e, ""
}

func (p *htmlParser) endTag(begin int) (next int, problem string) {
	if len(p.open) == 0 {
		return 0, fmt.Sprintf("Unexpected end tag at byte offset %d", begin)
	}
	in, i := p.in, begin+2
	for i < len(in) && !isSpace(in[i]) && in[i] != '>' {
		i++
	}
	name := strings.ToLower(in[begin+2 : i])
	i = skipSpace(in, i)
	if i >= len(in) || in[i] != '>' {
		return 0, fmt.Sprintf("Unclosed end tag at byte offset %d", begin)
	}
	tag := p.open[len(p.open)-1]
	if name != "" && name != tag.name {
		return 0, fmt.Sprintf("Unmatched end tag at byte offset %d, expected \"</%s>\", found \"</%s>\"", begin, tag.name, name)
	}
	p.open = p.open[:len(p.open)-1]
	p.close(tag)
	return i + 1, ""
}

// close adds the entity of a tag that has ended.
func (p *htmlParser) close(tag htmlTag) {
	e := tag.entity
	e.Offset, e.Length = tag.offset, p.out.units-tag.offset
	if e.Length == 0 {
		return
	}
	switch tag.name {
	case "a":
		url := e.URL
		if url == "" {
			url = p.out.String()[tag.bytes:]
		}
		link, ok := linkEntity(url, e.Offset, e.Length)
		if !ok {
			return
		}
		e = link
	case "pre":
		// <pre><code class="language-go">…</code></pre> is one entity with a language.
		if n := len(p.entities); n > 0 {
			if in := p.entities[n-1]; in.Type == "code" && in.Offset == e.Offset && in.Length == e.Length {
				e.Language = in.Language
				p.entities = p.entities[:n-1]
			}
		}
	case "code":
		if len(p.open) == 0 || p.open[len(p.open)-1].name != "pre" {
			e.Language = ""
		}
	}
	if e.Type != "" {
		p.entities = append(p.entities, e)
	}
}

func isSpace(c byte) bool {
	return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f' || c == 0
}

func skipSpace(s string, i int) int {
	for i < len(s) && isSpace(s[i]) {
		i++
	}
	return i
}
