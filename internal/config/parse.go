package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

const (
	maxFileSize = 256 << 10 // bytes; a configuration is a few KiB
	maxBlank    = 500       // blank lines in a row; the library's time grows with their square
	maxDepth    = 64        // levels of mappings and lists
	maxNodes    = 50_000    // after aliases, so that they can't multiply without end
	maxTokens   = 50_000    // as with blank lines
)

// parseDocument reads one YAML document. The node is nil for an empty one.
// Mistakes that leave the rest readable, such as a duplicate key, go to rep; an
// error means that there is nothing to go on with.
func parseDocument(data []byte, rep *report) (*node, error) {
	text, err := plainText(data)
	if err != nil {
		return nil, err
	}
	file, err := parseText(text)
	if err != nil {
		return nil, err
	}
	var body ast.Node
	documents := 0
	for _, doc := range file.Docs {
		if doc.Body != nil && doc.Body.Type() == ast.DirectiveType {
			continue
		}
		if documents++; documents > 1 {
			return nil, secondDocument(doc)
		}
		body = doc.Body
	}
	if body == nil {
		return nil, nil //nolint:nilnil // an empty file is the default configuration
	}
	b := &builder{rep: rep, anchors: make(map[string]*node)}
	root, err := b.build(body, "", 1)
	if err != nil {
		return nil, err
	}
	if root.kind == nullNode {
		return nil, nil //nolint:nilnil // likewise
	}
	if root.kind != mappingNode {
		return nil, keyErrorAt(body, "the file must hold keys and values, such as `log: {level: info}`")
	}
	return root, nil
}

func secondDocument(doc *ast.DocumentNode) error {
	e := &KeyError{Msg: "a second document (---) is not allowed: use one file with one document"}
	if doc.Start != nil {
		e.Line, e.Column = doc.Start.Position.Line, doc.Start.Position.Column
	}
	return e
}

// plainText checks the bytes and gives them without byte order mark, with \n as
// the only line end.
func plainText(data []byte) (string, error) {
	if len(data) > maxFileSize {
		return "", &KeyError{Msg: fmt.Sprintf("the file has %d bytes; %d at most", len(data), maxFileSize)}
	}
	if bytes.HasPrefix(data, []byte{0xFE, 0xFF}) || bytes.HasPrefix(data, []byte{0xFF, 0xFE}) {
		return "", &KeyError{Line: 1, Column: 1, Msg: "the file is UTF-16: save it as UTF-8"}
	}
	text := strings.TrimPrefix(string(data), "\uFEFF")
	text = strings.ReplaceAll(text, "\r\n", "\n")
	blank := 0
	for number, line := range enumerateLines(text) {
		if blank++; strings.TrimSpace(line) != "" {
			blank = 0
		}
		if blank > maxBlank {
			return "", &KeyError{Line: number, Column: 1, Msg: "too many blank lines"}
		}
		if !utf8.ValidString(line) {
			return "", &KeyError{Line: number, Column: 1, Msg: "the line is not valid UTF-8"}
		}
		if i := strings.IndexFunc(line, isControl); i >= 0 {
			column := utf8.RuneCountInString(line[:i]) + 1
			return "", &KeyError{Line: number, Column: column, Msg: "control characters are not allowed"}
		}
	}
	return text, nil
}

func enumerateLines(text string) func(yield func(int, string) bool) {
	return func(yield func(int, string) bool) {
		number := 0
		for line := range strings.SplitSeq(text, "\n") {
			if number++; !yield(number, line) {
				return
			}
		}
	}
}

func isControl(r rune) bool {
	return r < ' ' && r != '\t' || r == 0x7F || r >= 0x80 && r <= 0x9F || r == '\uFEFF'
}

// parseText gives the syntax tree. The library's own messages quote the source,
// which may hold a secret, so that only their first line is taken.
func parseText(text string) (file *ast.File, err error) {
	defer func() {
		if r := recover(); r != nil {
			file, err = nil, &KeyError{Msg: "the file is not valid YAML"}
		}
	}()
	tokens := lexer.Tokenize(text)
	if err := checkSize(tokens); err != nil {
		return nil, err
	}
	if err := checkTabs(tokens, text); err != nil {
		return nil, err
	}
	file, err = parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err == nil {
		return file, nil
	}
	e := &KeyError{Msg: "the file is not valid YAML"}
	if syntax, ok := errors.AsType[*yaml.SyntaxError](err); ok {
		e.Msg = "not valid YAML: " + syntax.Message
		if syntax.Token != nil && syntax.Token.Position != nil {
			e.Line, e.Column = syntax.Token.Position.Line, syntax.Token.Position.Column
		}
	}
	explainSyntax(e, text)
	return nil, e
}

// explainSyntax replaces the parser's words for the two usual mistakes.
func explainSyntax(e *KeyError, text string) {
	for number, line := range enumerateLines(text) {
		indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
		if (number == e.Line || number == e.Line+1) && strings.Contains(indent, "\t") {
			e.Line, e.Column, e.Msg = number, strings.Index(indent, "\t")+1, tabIndent
			return
		}
		if number == e.Line && strings.Contains(line, "${") && strings.ContainsAny(line, "{[") {
			e.Hint = `inside { } and [ ] write "${NAME}" with quotes`
		}
	}
}

const tabIndent = "a tab is used for indentation: YAML wants spaces"

// checkTabs refuses a tab before the first token of a line, which the parser
// allows after spaces, where it hides the real indentation.
func checkTabs(tokens token.Tokens, text string) error {
	lines := strings.Split(text, "\n")
	last := 0
	for i, tk := range tokens {
		number := tk.Position.Line
		if number == last || number > len(lines) || number < 1 {
			continue
		}
		last = number
		if tk.Type == token.CommentType || isBlockText(tokens[:i]) {
			continue
		}
		line := lines[number-1]
		indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
		if tab := strings.IndexByte(indent, '\t'); tab >= 0 {
			return &KeyError{Line: number, Column: tab + 1, Msg: tabIndent}
		}
	}
	return nil
}

// checkSize refuses what would nest the parser too deeply or keep it for long.
func checkSize(tokens token.Tokens) error {
	if len(tokens) > maxTokens {
		return &KeyError{Msg: tooMany}
	}
	flow, run, line := 0, 0, 0
	for _, tk := range tokens {
		if tk.Position.Line != line {
			run, line = 0, tk.Position.Line
		}
		switch tk.Type { //nolint:exhaustive // only what opens or closes a level
		case token.MappingStartType, token.SequenceStartType:
			flow++
		case token.MappingEndType, token.SequenceEndType:
			flow--
		case token.SequenceEntryType, token.MappingKeyType, token.MappingValueType, token.AnchorType, token.TagType:
			run++
		case token.CollectEntryType:
			run = 0
		}
		if flow > maxDepth || run > maxDepth {
			return &KeyError{Line: tk.Position.Line, Column: tk.Position.Column, Msg: tooDeep}
		}
	}
	return nil
}

// isBlockText tells whether the tokens before one make it the text of | or >.
func isBlockText(before token.Tokens) bool {
	for len(before) > 0 && before[len(before)-1].Type == token.CommentType {
		before = before[:len(before)-1]
	}
	if len(before) == 0 {
		return false
	}
	last := before[len(before)-1].Type
	return last == token.LiteralType || last == token.FoldedType
}

const (
	tooDeep = "nested too deeply"
	tooMany = "too many values"
)
