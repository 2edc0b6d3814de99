package config

import (
	"regexp"
	"strconv"
	"strings"
)

type nodeKind int

const (
	nullNode nodeKind = iota + 1
	scalarNode
	mappingNode
	listNode
)

// node is one value of the file, with its place. Anchors, merges and tags are
// resolved; the text of a scalar is as it was written, never a converted number.
type node struct {
	kind         nodeKind
	line, column int
	text         string // of a scalar
	plain        bool   // a scalar without quotes
	entries      []entry
	items        []*node

	variables []string // environment variables that the text was made from
	broken    bool     // already reported: whoever decodes it keeps silent
	size      int      // nodes in it, itself included
	depth     int      // levels in it, itself included
}

// entry is one key of a mapping, in the order of the file.
type entry struct {
	key          string
	line, column int
	value        *node
}

// lookup finds a key of a mapping.
func (n *node) lookup(key string) (entry, bool) {
	if n != nil {
		for _, e := range n.entries {
			if e.key == key {
				return e, true
			}
		}
	}
	return entry{}, false
}

// find walks down along keys; nil if there is no such value.
func (n *node) find(keys ...string) *node {
	for _, key := range keys {
		e, ok := n.lookup(key)
		if !ok {
			return nil
		}
		n = e.value
	}
	return n
}

// fromText makes the node of a value that came from outside the file.
func fromText(text string, variables ...string) *node {
	return &node{kind: scalarNode, text: text, variables: variables, size: 1, depth: 1}
}

// expanded tells whether the text has no notation of its own, since it was made
// from variables: then it may be read as a number or a boolean without being one in YAML.
func (n *node) expanded() bool { return len(n.variables) > 0 }

var simpleKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// quoteOdd quotes a name that would be misread in a message.
func quoteOdd(name string) string {
	if simpleKey.MatchString(name) {
		return name
	}
	return strconv.Quote(name)
}

// join puts a key behind a path.
func join(path, key string) string {
	key = quoteOdd(key)
	if path == "" {
		return key
	}
	return path + "." + key
}

func joinIndex(path string, i int) string {
	return path + "[" + strconv.Itoa(i) + "]"
}

// secretSuffixes are the ends of names whose values are never shown.
var secretSuffixes = []string{
	"token", "secret", "password", "key", "passwd", "authorization", "cookie", "credential",
}

// secretName tells whether a key or variable of this name holds a secret.
func secretName(name string) bool {
	name = strings.ToLower(name)
	for _, suffix := range secretSuffixes {
		if strings.HasSuffix(strings.TrimSuffix(name, "s"), suffix) {
			return true
		}
	}
	return false
}

// secretPath tells whether any key on the path names a secret.
func secretPath(path string) bool {
	for part := range strings.FieldsFuncSeq(path, func(r rune) bool { return strings.ContainsRune(`."[]`, r) }) {
		if secretName(part) {
			return true
		}
	}
	return false
}
