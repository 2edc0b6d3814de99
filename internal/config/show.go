package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const redacted = "[redacted]"

// Show gives the effective configuration as YAML: every default filled in, every
// variable expanded, nothing secret. Hidden are the values of keys whose name
// ends in token, secret, password, key and the like, whatever was made from a
// variable with such a name, and the passwords in addresses. What was hidden
// reads [redacted]; apart from that, the text can be read again.
func (c *Config) Show() ([]byte, error) {
	w := yamlWriter{secret: c.secret}
	w.mapping(structEntries(reflect.ValueOf(c).Elem(), nil), "", 0)
	return w.buf.Bytes(), w.err
}

// sectioned is a struct with raw keys of somebody else.
type sectioned interface {
	rawEntries() []entry
	owns(key string) bool
}

func (s *Section) rawEntries() []entry { return s.rest }

func (s *Section) owns(string) bool { return true }

func (r *RateLimit) owns(key string) bool { return r.ownsKey(key) }

// structEntries gives the keys of a struct as entries, nil pointers left out.
func structEntries(v reflect.Value, owns func(string) bool) []entry {
	var entries []entry
	for _, f := range fieldsOf(v.Type()) {
		if owns != nil && !owns(f.name) {
			continue
		}
		if n := valueNode(v.FieldByIndex(f.index), strings.HasSuffix(f.name, "_seconds")); n != nil {
			entries = append(entries, entry{key: f.name, value: n})
		}
	}
	return entries
}

// valueNode turns a decoded value back into a node; inSeconds is for durations
// whose key says so.
func valueNode(v reflect.Value, inSeconds bool) *node {
	if v.Kind() == reflect.Pointer && v.IsNil() {
		return nil
	}
	v = reflect.Indirect(v)
	if d, ok := reflect.TypeAssert[time.Duration](v); ok {
		return durationNode(d, inSeconds)
	}
	switch v.Kind() { //nolint:exhaustive // the kinds of Config's fields
	case reflect.Struct:
		if s, ok := reflect.TypeAssert[sectioned](v.Addr()); ok {
			return &node{kind: mappingNode, entries: slices.Concat(structEntries(v, s.owns), s.rawEntries())}
		}
		return &node{kind: mappingNode, entries: structEntries(v, nil)}
	case reflect.Map:
		n := &node{kind: mappingNode}
		for _, key := range v.MapKeys() {
			n.entries = append(n.entries, entry{key: key.String(), value: valueNode(v.MapIndex(key), false)})
		}
		slices.SortFunc(n.entries, func(a, b entry) int { return strings.Compare(a.key, b.key) })
		return n
	case reflect.String:
		return &node{kind: scalarNode, text: v.String()}
	default:
		return &node{kind: scalarNode, text: fmt.Sprint(v.Interface()), plain: true}
	}
}

// durationNode writes 168h, not 168h0m0s.
func durationNode(d time.Duration, inSeconds bool) *node {
	if inSeconds {
		seconds := strconv.FormatFloat(d.Seconds(), 'f', -1, 64)
		if whole, frac := math.Modf(d.Seconds()); frac == 0 {
			seconds = strconv.FormatFloat(whole, 'f', 0, 64)
		}
		return &node{kind: scalarNode, text: seconds, plain: true}
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return &node{kind: scalarNode, text: text, plain: true}
}

// yamlWriter writes nodes in block style.
type yamlWriter struct {
	buf    bytes.Buffer
	err    error
	secret map[string]bool // paths of values to hide, whatever their key
}

func (w *yamlWriter) indent(level int) {
	for range level {
		w.buf.WriteString("  ")
	}
}

func (w *yamlWriter) mapping(entries []entry, path string, level int) {
	for _, e := range entries {
		w.indent(level)
		w.text(e.key)
		w.buf.WriteByte(':')
		below := join(path, e.key)
		w.value(w.hide(e.key, below, e.value), below, level)
	}
}

// value writes what follows a key's colon or a list's dash.
func (w *yamlWriter) value(n *node, path string, level int) {
	switch {
	case n.kind == mappingNode && len(n.entries) > 0:
		w.buf.WriteByte('\n')
		w.mapping(n.entries, path, level+1)
	case n.kind == mappingNode:
		w.buf.WriteString(" {}\n")
	case n.kind == listNode && len(n.items) > 0:
		w.buf.WriteByte('\n')
		for i, item := range n.items {
			w.indent(level + 1)
			w.buf.WriteByte('-')
			below := joinIndex(path, i)
			w.value(w.hide("", below, item), below, level+1)
		}
	case n.kind == listNode:
		w.buf.WriteString(" []\n")
	case n.kind == nullNode:
		w.buf.WriteString(" null\n")
	case n.bareInYAML():
		w.buf.WriteString(" " + n.text + "\n")
	default:
		w.buf.WriteByte(' ')
		w.text(strings.ReplaceAll(n.text, "${", "$${"))
		w.buf.WriteByte('\n')
	}
}

// bareInYAML tells whether a scalar is a number, a boolean or a duration, which
// must or may stand without quotes.
func (n *node) bareInYAML() bool {
	_, isText := n.value().(string)
	return !isText || n.plain && durationShape.MatchString(n.text)
}

var unquoted = regexp.MustCompile(`^([A-Za-z/]|\./)[A-Za-z0-9_./-]*(:[0-9A-Za-z/]?[A-Za-z0-9_./-]+)*$`)

// text writes a string so that it is read as one.
func (w *yamlWriter) text(s string) {
	switch strings.ToLower(s) {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n", ".inf", ".nan":
	default:
		if unquoted.MatchString(s) {
			w.buf.WriteString(s)
			return
		}
	}
	// A JSON string is a YAML string.
	e := json.NewEncoder(&w.buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		w.err = err
		return
	}
	w.buf.Truncate(w.buf.Len() - 1)
}

var addressPassword = regexp.MustCompile(`(://[^/@\s:]*:)[^/@\s]+@`)

// hide gives the value of the key at path with its secrets redacted.
func (w *yamlWriter) hide(key, path string, n *node) *node {
	if n.kind == nullNode {
		return n
	}
	secret := secretName(key) || w.secret[path] || slices.ContainsFunc(n.variables, secretName)
	if secret && (n.kind != scalarNode || n.text != "") {
		return &node{kind: scalarNode, text: redacted}
	}
	if n.kind == scalarNode && addressPassword.MatchString(n.text) {
		shown := *n
		shown.text = addressPassword.ReplaceAllString(n.text, "${1}"+redacted+"@")
		return &shown
	}
	return n
}
