package config

import (
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// decoder puts nodes into Go values and lists every mistake on the way. It knows
// structs (fields with a yaml tag; others are left alone), maps with string keys,
// slices, pointers, scalars, encoding.TextUnmarshaler, time.Duration, ID and Path.
type decoder struct {
	rep  *report
	home string
	from *source // what the sections that it decodes share
}

// nodeDecoder is a type that takes part of its keys and keeps the others raw.
type nodeDecoder interface {
	decodeNode(d *decoder, n *node, path string)
}

// field is one key of a struct.
type field struct {
	name  string
	index []int
	oneOf []string // the values that are allowed; empty: any
	min   string   // the smallest number or duration; with > before it, the value itself is too small
}

// fieldsOf lists the keys of a struct type. The tags are yaml:"name" (",inline"
// for the fields of a nested struct), oneof:"a|b" and min:"1" or min:">0".
func fieldsOf(t reflect.Type) []field {
	var fields []field
	for i := range t.NumField() {
		f := t.Field(i)
		tag, ok := f.Tag.Lookup("yaml")
		name, option, _ := strings.Cut(tag, ",")
		switch {
		case !ok || name == "-" || !f.IsExported():
		case option == "inline":
			for _, inner := range fieldsOf(f.Type) {
				inner.index = append([]int{i}, inner.index...)
				fields = append(fields, inner)
			}
		default:
			one := field{name: name, index: []int{i}, min: f.Tag.Get("min")}
			if values := f.Tag.Get("oneof"); values != "" {
				one.oneOf = strings.Split(values, "|")
			}
			fields = append(fields, one)
		}
	}
	return fields
}

func names(fields []field) []string {
	list := make([]string, 0, len(fields))
	for _, f := range fields {
		list = append(list, f.name)
	}
	return list
}

// decode puts n, the value at path, into v. A key without a value leaves v as
// it is, with a warning.
func (d *decoder) decode(n *node, path string, v reflect.Value) {
	if n.broken {
		return
	}
	if v.CanAddr() {
		if custom, ok := reflect.TypeAssert[nodeDecoder](v.Addr()); ok {
			custom.decodeNode(d, n, path)
			return
		}
	}
	if n.kind == nullNode {
		d.rep.warn(&KeyError{Path: path, Line: n.line, Column: n.column, Msg: "has no value and is left out"})
		return
	}
	if isScalarType(v.Type()) {
		d.decodeScalar(n, path, v)
		return
	}
	switch v.Kind() { //nolint:exhaustive // all others are scalars
	case reflect.Pointer:
		fresh := reflect.New(v.Type().Elem())
		if !v.IsNil() {
			fresh.Elem().Set(v.Elem())
		}
		d.decode(n, path, fresh.Elem())
		v.Set(fresh)
	case reflect.Struct:
		d.decodeStruct(n, path, v)
	case reflect.Map:
		d.decodeMap(n, path, v)
	case reflect.Slice:
		d.decodeList(n, path, v)
	case reflect.Interface:
		d.decodeAny(n, path, v)
	default:
		d.decodeScalar(n, path, v)
	}
}

func isScalarType(t reflect.Type) bool {
	return t == durationType || reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

func (d *decoder) decodeScalar(n *node, path string, v reflect.Value) {
	if n.kind != scalarNode {
		d.rep.failAt(path, n, "must be a single value, not %s", n.kind)
		return
	}
	if err := d.scalar(n, v); err != nil {
		d.rep.failAt(path, n, "%v%s", err, notThis(n, path, v.Type()))
	}
}

// notThis repeats a wrong value, where that can't tell a secret.
func notThis(n *node, path string, t reflect.Type) string {
	if n.expanded() || secretPath(path) || n.text == "" || isScalarType(t) && t != durationType {
		return ""
	}
	return ", not " + shorten(n.text)
}

func shorten(text string) string {
	const most = 40
	if r := []rune(text); len(r) > most {
		text = string(r[:most]) + "…"
	}
	return strconv.Quote(text)
}

// String names the kind as the messages do.
func (k nodeKind) String() string {
	switch k {
	case nullNode:
		return "nothing"
	case scalarNode:
		return "a single value"
	case mappingNode:
		return "keys and values"
	case listNode:
		return "a list"
	}
	return "nodeKind(" + strconv.Itoa(int(k)) + ")"
}

// decodeStruct decodes every key of v's type and reports the others.
func (d *decoder) decodeStruct(n *node, path string, v reflect.Value) {
	fields := fieldsOf(v.Type())
	rest := d.decodeFields(n, path, v, fields)
	for _, e := range rest {
		d.unknownKey(n, path, e, names(fields), v.Type())
	}
}

// decodeFields decodes the given keys and returns the other entries.
func (d *decoder) decodeFields(n *node, path string, v reflect.Value, fields []field) []entry {
	if n.kind == nullNode {
		return nil
	}
	if n.kind != mappingNode {
		d.rep.failAt(path, n, "must be keys and values, not %s", n.kind)
		return nil
	}
	var rest []entry
	for _, e := range n.entries {
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == e.key })
		if i < 0 {
			rest = append(rest, e)
			continue
		}
		d.decodeField(e.value, join(path, e.key), v.FieldByIndex(fields[i].index), fields[i])
	}
	return rest
}

// decodeField decodes one key and checks it against its tags.
func (d *decoder) decodeField(n *node, path string, v reflect.Value, f field) {
	before := len(d.rep.mistakes)
	d.decode(n, path, v)
	if len(d.rep.mistakes) > before || n.broken || n.kind != scalarNode {
		return
	}
	v = reflect.Indirect(v)
	if len(f.oneOf) > 0 && !slices.Contains(f.oneOf, v.String()) {
		d.rep.fail(&KeyError{
			Path: path, Line: n.line, Column: n.column,
			Msg:  "must be " + anyOf(f.oneOf) + notThis(n, path, v.Type()),
			Hint: didYouMean(v.String(), f.oneOf),
		})
	}
	if f.min != "" && !atLeast(v, f.min) {
		d.rep.failAt(path, n, "must be %s", minimumText(f.min))
	}
}

func anyOf(values []string) string {
	if len(values) == 1 {
		return values[0]
	}
	return strings.Join(values[:len(values)-1], ", ") + " or " + values[len(values)-1]
}

func minimumText(limit string) string {
	if above, ok := strings.CutPrefix(limit, ">"); ok {
		return "more than " + above
	}
	return limit + " or more"
}

// atLeast compares a number or a duration with a min tag; a duration's is in seconds.
func atLeast(v reflect.Value, limit string) bool {
	number, above := strings.CutPrefix(limit, ">")
	least, err := strconv.ParseFloat(number, 64)
	if err != nil {
		panic("config: min tag " + limit)
	}
	var have float64
	switch {
	case v.Type() == durationType:
		have = time.Duration(v.Int()).Seconds()
	case v.CanInt():
		have = float64(v.Int())
	case v.CanUint():
		have = float64(v.Uint())
	default:
		have = v.Float()
	}
	return have > least || have == least && !above
}

// unknownKey reports e, a key of n that nobody takes. A key right behind one that
// is empty was probably meant to stand below it.
func (d *decoder) unknownKey(n *node, path string, e entry, known []string, t reflect.Type) {
	d.rep.unknown(&KeyError{
		Path: join(path, e.key), Line: e.line, Column: e.column, Msg: "unknown key", Hint: d.keyHint(n, path, e, known, t),
	})
}

func (d *decoder) keyHint(n *node, path string, e entry, known []string, t reflect.Type) string {
	if len(d.rep.mistakes) > maxMistakes {
		return "" // not listed anyway
	}
	hint := didYouMean(e.key, known)
	i := slices.IndexFunc(n.entries, func(other entry) bool { return other.key == e.key })
	if i > 0 && n.entries[i-1].value.kind == nullNode && slices.Contains(known, n.entries[i-1].key) && hint == "" {
		hint = fmt.Sprintf("indent it if it belongs to %s", join(path, n.entries[i-1].key))
	}
	if hint == "" && t != nil {
		for _, elsewhere := range keysOf(t, path) {
			if strings.HasSuffix(elsewhere, "."+e.key) {
				hint = "did you mean " + elsewhere + "?"
				break
			}
		}
	}
	return hint
}

func (d *decoder) decodeMap(n *node, path string, v reflect.Value) {
	if n.kind != mappingNode {
		d.rep.failAt(path, n, "must be keys and values, not %s", n.kind)
		return
	}
	filled := reflect.MakeMap(v.Type())
	for _, key := range v.MapKeys() {
		filled.SetMapIndex(key, v.MapIndex(key))
	}
	for _, e := range n.entries {
		if v.Type().Key() == idType {
			if err := ID(e.key).Check(); err != nil {
				d.rep.fail(&KeyError{Path: join(path, e.key), Line: e.line, Column: e.column, Msg: "the key " + err.Error()})
			}
		}
		item := reflect.New(v.Type().Elem()).Elem()
		if item.Kind() == reflect.Pointer {
			item.Set(reflect.New(item.Type().Elem()))
			d.decode(e.value, join(path, e.key), item.Elem())
		} else {
			d.decode(e.value, join(path, e.key), item)
		}
		filled.SetMapIndex(reflect.ValueOf(e.key).Convert(v.Type().Key()), item)
	}
	v.Set(filled)
}

func (d *decoder) decodeList(n *node, path string, v reflect.Value) {
	if n.kind != listNode {
		d.rep.failAt(path, n, "must be a list, not %s", n.kind)
		return
	}
	list := reflect.MakeSlice(v.Type(), len(n.items), len(n.items))
	for i, item := range n.items {
		d.decode(item, joinIndex(path, i), list.Index(i))
	}
	v.Set(list)
}

// decodeAny fills an empty interface with strings, int64, float64, bool,
// map[string]any and []any.
func (d *decoder) decodeAny(n *node, path string, v reflect.Value) {
	switch n.kind {
	case mappingNode:
		m := make(map[string]any, len(n.entries))
		d.decodeMap(n, path, reflect.ValueOf(&m).Elem())
		v.Set(reflect.ValueOf(m))
	case listNode:
		list := make([]any, 0, len(n.items))
		d.decodeList(n, path, reflect.ValueOf(&list).Elem())
		v.Set(reflect.ValueOf(list))
	case scalarNode:
		d.decodeScalar(n, path, v)
	case nullNode:
	}
}

// keysOf lists the paths of all keys below a struct type, in its order; * stands
// for the names of a map.
func keysOf(t reflect.Type, path string) []string {
	var keys []string
	for _, f := range fieldsOf(t) {
		inner, below := t.FieldByIndex(f.index).Type, join(path, f.name)
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Map {
			if inner.Kind() == reflect.Map {
				below += ".*"
			}
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && !isScalarType(inner) {
			keys = append(keys, keysOf(inner, below)...)
			continue
		}
		keys = append(keys, below)
	}
	return keys
}

// Keys lists the paths of all keys that this package knows, in the order of the
// shipped file, e.g. gateway.rate_limit.max_requests and bots.*.platform.
func Keys() []string {
	return slices.Clip(keysOf(reflect.TypeFor[Config](), ""))
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
