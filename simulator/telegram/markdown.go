package telegram

import (
	"fmt"
	"net/url"
	"strings"
)

// markKind names an open piece of MarkdownV2 as the platform's errors do.
type markKind string

const (
	markBold       markKind = "Bold"
	markItalic     markKind = "Italic"
	markUnderline  markKind = "Underline"
	markStrike     markKind = "Strikethrough"
	markSpoiler    markKind = "Spoiler"
	markCode       markKind = "Code"
	markPre        markKind = "Pre"
	markPreCode    markKind = "PreCode"
	markLink       markKind = "TextUrl"
	markEmoji      markKind = "CustomEmoji"
	markQuote      markKind = "BlockQuote"
	reservedV2              = "_*[]()~`>#+-=|{}.!"
	reservedInCode          = "`"
)

// mark is markup that waits for its end.
type mark struct {
	kind     markKind
	begin    int // byte offset in the raw text
	offset   int // UTF-16 units before it
	bytes    int // length of the built text before it
	language string
}

// markdownParser turns MarkdownV2 into text and entities.
type markdownParser struct {
	in        string
	i         int
	lineStart bool // a '>' here starts a quote
	out       textBuilder
	open      []mark
	entities  []Entity
}

// parseMarkdownV2 returns the text, its entities, and what is wrong with the markup in the platform's words.
func parseMarkdownV2(in string) (text string, entities []Entity, problem string) {
	p := &markdownParser{in: in, lineStart: true}
	for p.i < len(in) {
		if problem := p.step(); problem != "" {
			return "", nil, problem
		}
	}
	if top, ok := p.top(); ok && top.kind == markQuote {
		p.pop()
		p.add("blockquote", top)
	}
	if top, ok := p.top(); ok {
		return "", nil, fmt.Sprintf("Can't find end of %s entity at byte offset %d", top.kind, top.begin)
	}
	return p.out.String(), p.entities, ""
}

func (p *markdownParser) top() (mark, bool) {
	if len(p.open) == 0 {
		return mark{}, false
	}
	return p.open[len(p.open)-1], true
}

func (p *markdownParser) pop() { p.open = p.open[:len(p.open)-1] }

func (p *markdownParser) push(kind markKind, skip int) {
	p.open = append(p.open, mark{kind: kind, begin: p.i, offset: p.out.units, bytes: p.out.Len()})
	p.i += skip
}

func (p *markdownParser) at(s string) bool { return strings.HasPrefix(p.in[p.i:], s) }

// step consumes one character or one piece of markup.
func (p *markdownParser) step() (problem string) {
	c := p.in[p.i]
	top, nested := p.top()
	inCode := nested && (top.kind == markCode || top.kind == markPre || top.kind == markPreCode)
	lineStart := p.lineStart
	p.lineStart = false
	switch {
	case c == '\\' && p.i+1 < len(p.in) && p.in[p.i+1] > 0 && p.in[p.i+1] <= 126:
		p.out.add(p.in[p.i+1 : p.i+2])
		p.i += 2
		return ""
	case c == '\n' && !inCode:
		return p.newline()
	case inCode && c != '`', !inCode && !strings.ContainsRune(reservedV2, rune(c)):
		p.i += p.out.addRune(p.in[p.i:])
		return ""
	}
	if nested && p.ends(top.kind) {
		return p.end(top)
	}
	if inCode { // A lone backtick inside a fence.
		p.i += p.out.addRune(p.in[p.i:])
		return ""
	}
	return p.begin(c, lineStart)
}

// newline ends a quote that the next line doesn't continue.
func (p *markdownParser) newline() (problem string) {
	p.i++
	p.lineStart = true
	quote := -1
	for i, m := range p.open {
		if m.kind == markQuote {
			quote = i
		}
	}
	if quote < 0 {
		p.out.add("\n")
		return ""
	}
	if p.at(">") {
		p.i++
		p.lineStart = false
		p.out.add("\n")
		return ""
	}
	if top, _ := p.top(); top.kind != markQuote {
		return fmt.Sprintf("Can't find end of %s entity at byte offset %d", top.kind, top.begin)
	}
	top, _ := p.top()
	p.pop()
	p.add("blockquote", top)
	p.out.add("\n")
	return ""
}

// ends reports whether the text goes on with the end of an entity of that kind.
func (p *markdownParser) ends(kind markKind) bool {
	switch kind {
	case markBold:
		return p.at("*")
	case markItalic:
		return p.at("_") && !p.at("__")
	case markUnderline:
		return p.at("__")
	case markStrike:
		return p.at("~")
	case markSpoiler:
		return p.at("||")
	case markCode:
		return p.at("`")
	case markPre, markPreCode:
		return p.at("```")
	case markLink, markEmoji:
		return p.at("]")
	case markQuote:
		rest, ok := strings.CutPrefix(p.in[p.i:], "||")
		return ok && (rest == "" || rest[0] == '\n' && !strings.HasPrefix(rest, "\n>"))
	}
	return false
}

// begin opens an entity at a reserved character, or refuses the character.
func (p *markdownParser) begin(c byte, lineStart bool) (problem string) {
	switch {
	case p.at("__"):
		p.push(markUnderline, 2)
	case c == '_':
		p.push(markItalic, 1)
	case lineStart && p.at("**>"):
		p.i += 2
		p.push(markQuote, 1)
	case c == '*':
		p.push(markBold, 1)
	case c == '~':
		p.push(markStrike, 1)
	case p.at("||"):
		p.push(markSpoiler, 2)
	case c == '[':
		p.push(markLink, 1)
	case p.at("!["):
		p.push(markEmoji, 2)
	case p.at("```"):
		p.push(markPre, 3)
		p.language()
	case c == '`':
		p.push(markCode, 1)
	case c == '>' && lineStart:
		p.push(markQuote, 1)
	default:
		return fmt.Sprintf("Character '%c' is reserved and must be escaped with the preceding '\\'", c)
	}
	return ""
}

// language reads the name after a fence and the line break that follows it.
func (p *markdownParser) language() {
	end := p.i
	for end < len(p.in) && !isSpace(p.in[end]) && p.in[end] != '`' {
		end++
	}
	if end > p.i && end < len(p.in) && p.in[end] != '`' {
		top := &p.open[len(p.open)-1]
		top.kind, top.language = markPreCode, p.in[p.i:end]
		p.i = end
	}
	if p.at("\r\n") {
		p.i++
	}
	if p.at("\n") {
		p.i++
	}
}

// end closes the innermost entity.
func (p *markdownParser) end(m mark) (problem string) {
	p.pop()
	simple := map[markKind]string{
		markBold: "bold", markItalic: "italic", markUnderline: "underline", markStrike: "strikethrough",
		markSpoiler: "spoiler", markCode: "code", markPre: "pre", markPreCode: "pre", markQuote: "expandable_blockquote",
	}
	if kind := simple[m.kind]; kind != "" {
		p.i += map[markKind]int{markUnderline: 2, markSpoiler: 2, markQuote: 2, markPre: 3, markPreCode: 3}[m.kind]
		if m.kind == markBold || m.kind == markItalic || m.kind == markStrike || m.kind == markCode {
			p.i++
		}
		p.add(kind, m)
		return ""
	}
	return p.endLink(m)
}

// endLink reads the address in parentheses after a link's or an emoji's text.
func (p *markdownParser) endLink(m mark) (problem string) {
	p.i++
	address := p.out.String()[m.bytes:]
	if p.at("(") {
		begin := p.i
		var b strings.Builder
		for p.i++; p.i < len(p.in) && p.in[p.i] != ')'; p.i++ {
			if p.in[p.i] == '\\' && p.i+1 < len(p.in) && p.in[p.i+1] > 0 && p.in[p.i+1] <= 126 {
				p.i++
			}
			b.WriteByte(p.in[p.i])
		}
		if p.i >= len(p.in) {
			return fmt.Sprintf("Can't find end of a URL at byte offset %d", begin)
		}
		p.i++
		address = b.String()
	} else if m.kind == markEmoji {
		return "Custom emoji entity must contain a tg://emoji URL"
	}
	length := p.out.units - m.offset
	if length == 0 {
		return ""
	}
	if m.kind == markEmoji {
		u, err := url.Parse(address)
		if err != nil || u.Scheme != "tg" || u.Host != "emoji" && u.Host != "time" {
			return "Custom emoji entity must contain a tg://emoji URL"
		}
		if id := u.Query().Get("id"); id != "" {
			p.entities = append(p.entities, Entity{Type: "custom_emoji", Offset: m.offset, Length: length, CustomEmojiID: id})
		}
		return ""
	}
	if e, ok := linkEntity(address, m.offset, length); ok {
		p.entities = append(p.entities, e)
	}
	return ""
}

func (p *markdownParser) add(kind string, m mark) {
	if length := p.out.units - m.offset; length > 0 {
		p.entities = append(p.entities, Entity{Type: kind, Offset: m.offset, Length: length, Language: m.language})
	}
}

// parseMarkdown handles the old Markdown mode: no nesting, and unmatched markup is an error.
func parseMarkdown(in string) (text string, entities []Entity, problem string) {
	p := &markdownParser{in: in}
	for p.i < len(in) {
		c := in[p.i]
		switch {
		case c == '\\' && p.i+1 < len(in) && strings.ContainsRune("_*`[", rune(in[p.i+1])):
			p.out.add(in[p.i+1 : p.i+2])
			p.i += 2
		case !strings.ContainsRune("_*`[", rune(c)):
			p.i += p.out.addRune(in[p.i:])
		default:
			if problem := p.oldEntity(c); problem != "" {
				return "", nil, problem
			}
		}
	}
	return p.out.String(), p.entities, ""
}

func (p *markdownParser) oldEntity(c byte) (problem string) {
	begin := p.i
	end := map[byte]string{'_': "_", '*': "*", '`': "`", '[': "]"}[c]
	kind := map[byte]string{'_': "italic", '*': "bold", '`': "code"}[c]
	m := mark{kind: markLink, begin: begin, offset: p.out.units, bytes: p.out.Len()}
	p.i++
	if p.at("``") && c == '`' {
		p.i += 2
		end, kind = "```", "pre"
		p.open = append(p.open, m)
		p.language()
		m.language = p.open[0].language
		p.open = nil
	}
	stop := strings.Index(p.in[p.i:], end)
	if stop < 0 {
		return fmt.Sprintf("Can't find end of the entity starting at byte offset %d", begin)
	}
	p.out.add(p.in[p.i : p.i+stop])
	p.i += stop
	if c == '[' {
		return p.endLink(m)
	}
	p.i += len(end)
	p.add(kind, m)
	return ""
}
