package config

import (
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// builder turns the library's syntax tree into nodes.
type builder struct {
	rep     *report
	anchors map[string]*node
	total   int // nodes so far, aliases counted in full
}

// keyErrorAt is a mistake at n that has no key's path.
func keyErrorAt(n ast.Node, msg string) *KeyError {
	e := &KeyError{Msg: msg}
	if tk := n.GetToken(); tk != nil && tk.Position != nil {
		e.Line, e.Column = tk.Position.Line, tk.Position.Column
	}
	return e
}

// build makes the node of n, the value at path; level is its depth in the file.
func (b *builder) build(n ast.Node, path string, level int) (*node, error) {
	if b.total++; b.total > maxNodes {
		return nil, keyErrorAt(n, tooMany)
	}
	if level > maxDepth {
		return nil, keyErrorAt(n, tooDeep)
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		return b.mapping(n, n.Values, path, level)
	case *ast.MappingValueNode:
		return b.mapping(n, []*ast.MappingValueNode{n}, path, level)
	case *ast.SequenceNode:
		return b.list(n, path, level)
	case *ast.AnchorNode:
		value, err := b.build(n.Value, path, level+1)
		if err == nil {
			b.anchors[n.Name.GetToken().Value] = value
		}
		return value, err
	case *ast.AliasNode:
		return b.alias(n, level)
	case *ast.TagNode:
		return b.tagged(n, path, level)
	case *ast.NullNode:
		return placed(n.GetToken(), &node{kind: nullNode}), nil
	case *ast.LiteralNode:
		return placed(n.GetToken(), &node{kind: scalarNode, text: n.Value.Value}), nil
	case ast.ScalarNode:
		return scalar(n.GetToken()), nil
	default:
		return nil, keyErrorAt(n, "this kind of value is not supported")
	}
}

func placed(tk *token.Token, n *node) *node {
	n.line, n.column = tk.Position.Line, tk.Position.Column
	n.size, n.depth = 1, 1
	return n
}

// scalar keeps the text as it stands in the file: 0123 stays 0123.
func scalar(tk *token.Token) *node {
	n := &node{kind: scalarNode, text: tk.Value, plain: true}
	switch tk.Type { //nolint:exhaustive // what is left are the notations of numbers and booleans
	case token.SingleQuoteType, token.DoubleQuoteType:
		n.plain = false
	case token.StringType:
	default:
		n.text = strings.TrimSpace(tk.Origin)
	}
	return placed(tk, n)
}

func (b *builder) tagged(n *ast.TagNode, path string, level int) (*node, error) {
	if n.Start.Value != "!!str" || n.Value == nil {
		return nil, keyErrorAt(n, "tags are not supported")
	}
	value, err := b.build(n.Value, path, level+1)
	if err != nil {
		return nil, err
	}
	if value.kind != scalarNode {
		return nil, keyErrorAt(n, "tags are not supported")
	}
	value.plain = false
	return value, nil
}

func (b *builder) alias(n *ast.AliasNode, level int) (*node, error) {
	value, ok := b.anchors[n.Value.GetToken().Value]
	if !ok {
		return nil, keyErrorAt(n, "there is no such anchor before this alias")
	}
	if level+value.depth > maxDepth {
		return nil, keyErrorAt(n, tooDeep)
	}
	if b.total += value.size; b.total > maxNodes {
		return nil, keyErrorAt(n, tooMany)
	}
	return value, nil
}

func (b *builder) list(n *ast.SequenceNode, path string, level int) (*node, error) {
	list := placed(n.GetToken(), &node{kind: listNode})
	for i, v := range n.Values {
		item, err := b.build(v, joinIndex(path, i), level+1)
		if err != nil {
			return nil, err
		}
		list.items = append(list.items, item)
		list.grow(item)
	}
	return list, nil
}

func (b *builder) mapping(at ast.Node, values []*ast.MappingValueNode, path string, level int) (*node, error) {
	m := placed(at.GetToken(), &node{kind: mappingNode})
	known := make(map[string]bool)
	var merged []*node
	for _, v := range values {
		if v.Key.IsMergeKey() {
			from, err := b.build(v.Value, path, level+1)
			if err != nil {
				return nil, err
			}
			merged = append(merged, from)
			continue
		}
		e, err := b.entry(v, path, level)
		if err != nil {
			return nil, err
		}
		if known[e.key] {
			b.rep.fail(&KeyError{Path: join(path, e.key), Line: e.line, Column: e.column, Msg: "the key is given twice"})
			continue
		}
		known[e.key] = true
		m.entries = append(m.entries, e)
		m.grow(e.value)
	}
	if len(m.entries) > 0 && !isFlow(at) {
		m.line, m.column = m.entries[0].line, m.entries[0].column
	}
	for _, from := range merged {
		if !m.merge(from, known) {
			return nil, keyErrorAt(at, "<< must name a mapping or a list of mappings")
		}
	}
	return m, nil
}

func isFlow(n ast.Node) bool {
	m, ok := n.(*ast.MappingNode)
	return ok && m.IsFlowStyle
}

func (b *builder) entry(v *ast.MappingValueNode, path string, level int) (entry, error) {
	keyNode := ast.Node(v.Key)
	if explicit, ok := keyNode.(*ast.MappingKeyNode); ok {
		keyNode = explicit.Value
	}
	name, ok := keyNode.(ast.ScalarNode)
	if !ok {
		return entry{}, keyErrorAt(v.Key, "a key must be plain text")
	}
	if literal, ok := name.(*ast.LiteralNode); ok {
		return entry{}, keyErrorAt(literal, "a key must be plain text")
	}
	key := scalar(name.GetToken())
	if v.Value == nil {
		return entry{}, keyErrorAt(v.Key, "the key has no value")
	}
	value, err := b.build(v.Value, join(path, key.text), level+1)
	return entry{key: key.text, line: key.line, column: key.column, value: value}, err
}

// grow counts child into n's size and depth.
func (n *node) grow(child *node) {
	n.size += child.size
	n.depth = max(n.depth, child.depth+1)
}

// merge adds the entries of from, a mapping or a list of them, that are not known yet.
func (n *node) merge(from *node, known map[string]bool) bool {
	switch from.kind {
	case mappingNode:
		for _, e := range from.entries {
			if !known[e.key] {
				known[e.key] = true
				n.entries = append(n.entries, e)
				n.grow(e.value)
			}
		}
		return true
	case listNode:
		return !slices.ContainsFunc(from.items, func(item *node) bool {
			return item.kind != mappingNode || !n.merge(item, known)
		})
	case nullNode, scalarNode:
		return false
	}
	return false
}
