package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var variable = regexp.MustCompile(`^\$\{([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\}`)

// expander replaces ${NAME} in the texts of a document, after it was parsed, so
// that a value can never become YAML.
type expander struct {
	getenv func(string) (string, bool)
	rep    *report
	done   map[*node]bool  // an anchor's value is reached more than once
	secret map[string]bool // paths of values that were made from a secret's variable
}

// walk expands n, the value at path, and all below it.
func (x *expander) walk(n *node, path string) {
	if n == nil || x.done[n] {
		return
	}
	x.done[n] = true
	if n.kind == scalarNode && strings.Contains(n.text, "${") {
		x.scalar(n, path)
	}
	for _, e := range n.entries {
		x.walk(e.value, join(path, e.key))
	}
	for i, item := range n.items {
		x.walk(item, joinIndex(path, i))
	}
}

func (x *expander) scalar(n *node, path string) {
	text, variables, err := expandText(n.text, x.getenv)
	if err != nil {
		x.rep.failAt(path, n, "%v", err)
		n.broken = true
		return
	}
	n.text, n.variables = text, variables
	if slices.ContainsFunc(variables, secretName) {
		x.secret[path] = true
	}
}

// expandText replaces ${NAME} and ${NAME:-default} and turns $${ into ${. Any
// other $ stays. As in a shell, the default also stands for an empty variable.
func expandText(text string, getenv func(string) (string, bool)) (expanded string, variables []string, err error) {
	var b strings.Builder
	for text != "" {
		i := strings.Index(text, "${")
		if i < 0 {
			break
		}
		if i > 0 && text[i-1] == '$' {
			b.WriteString(text[:i-1])
			b.WriteString("${")
			text = text[i+2:]
			continue
		}
		b.WriteString(text[:i])
		match := variable.FindStringSubmatch(text[i:])
		if match == nil {
			return "", nil, fmt.Errorf("${ must be ${NAME} or ${NAME:-default}; write $${ for the two characters themselves")
		}
		value, ok := getenv(match[1])
		if match[2] != "" && value == "" {
			value, ok = match[3], true
		}
		if !ok {
			return "", nil, fmt.Errorf("the environment variable %s is not set", match[1])
		}
		b.WriteString(value)
		variables = append(variables, match[1])
		text = text[i+len(match[0]):]
	}
	b.WriteString(text)
	return b.String(), variables, nil
}
