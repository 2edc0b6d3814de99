package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"
)

// Section is a part of the file of which some keys belong to somebody else: to a
// bot's platform, a handler's kind, or a registered policy. It keeps those keys
// until their owner decodes them. The zero value has no keys. A Section shares
// its Config's Warnings, so that it is not safe for concurrent use.
type Section struct {
	path  string
	node  *node
	rest  []entry
	taken []string // the keys that this package decoded
	from  *source
}

// source is what all parts of one reading share.
type source struct {
	lenient bool
	home    string
	warn    func(*KeyError)
}

// keep sets the section's raw keys.
func (s *Section) keep(n *node, path string, rest []entry, taken []string) {
	s.node, s.path, s.rest, s.taken = n, path, rest, taken
}

// Path is the section's place in the file, e.g. bots.support.
func (s *Section) Path() string { return s.path }

// Keys lists the names of the keys that Decode decodes, in the order of the file.
func (s *Section) Keys() []string {
	var keys []string
	for _, e := range s.rest {
		keys = append(keys, e.key)
	}
	return keys
}

// Has tells whether one of the keys that Decode decodes stands in the file with a value.
func (s *Section) Has(key string) bool {
	return slices.ContainsFunc(s.rest, func(e entry) bool { return e.key == key && e.value.kind != nullNode })
}

// Decode puts the section's own keys into the struct that into points to; what
// the struct holds before are the defaults. Fields are found by their yaml tag;
// oneof:"a|b" and min:"1" (or min:">0") are checked. A key that has no field is
// an error, or a warning when lenient. All mistakes are joined, each a *KeyError;
// none repeats a secret. It panics if into can't be decoded into.
func (s *Section) Decode(into any) error {
	v := reflect.ValueOf(into)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		panic("config: Decode wants a pointer to a struct")
	}
	if s.node == nil {
		return nil
	}
	rep := newReport(s.from.lenient, s.from.warn)
	d := &decoder{rep: rep, home: s.from.home}
	v = v.Elem()
	fields := fieldsOf(v.Type())
	own := *s.node
	own.kind, own.entries = mappingNode, s.rest
	known := slices.Concat(names(fields), s.taken)
	for _, e := range d.decodeFields(&own, s.path, v, fields) {
		d.unknownKey(s.node, s.path, e, known, v.Type())
	}
	return rep.err()
}

// Errorf makes a mistake of the section's key, with its place in the file.
// Without a key, or if the key isn't there, the place is that of the section.
func (s *Section) Errorf(key, format string, args ...any) error {
	e := &KeyError{Path: s.path, Msg: fmt.Sprintf(format, args...)}
	if s.node != nil {
		e.Line, e.Column = s.node.line, s.node.column
	}
	if key == "" {
		return e
	}
	e.Path = join(s.path, key)
	if found, ok := s.node.lookup(key); ok {
		e.Line, e.Column = found.line, found.column
	}
	return e
}

const maxSecretFile = 64 << 10 // bytes; a token has a hundred

// Secret gives the text of a pair of keys such as token and token_file, of which
// at most one may be set: text as it stands under key, or what the file holds
// that the key with _file names, without line ends around it. It is empty if
// neither is set; whether that is a mistake is for the caller to say.
func (s *Section) Secret(key, text string, file Path) (string, error) {
	if file == "" {
		return text, nil
	}
	fileKey := key + "_file"
	if text != "" {
		return "", s.Errorf(fileKey, "%s is set as well: keep one of the two", key)
	}
	data, err := readLimited(string(file), maxSecretFile)
	if err != nil {
		return "", s.Errorf(fileKey, "%s", fileMistake(err))
	}
	secret := strings.Trim(string(bytes.TrimPrefix(data, []byte("\uFEFF"))), "\r\n\t ")
	if secret == "" {
		return "", s.Errorf(fileKey, "the file is empty")
	}
	return secret, nil
}

var errFileSize = errors.New("the file is too large")

// readLimited reads a file of at most the given number of bytes.
func readLimited(name string, limit int64) (data []byte, err error) {
	f, err := os.Open(name) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	data, err = io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = errFileSize
	}
	return data, err
}

// fileMistake says why a file can't be read, without repeating the key's value:
// a token that was put under the wrong key stays out of the message.
func fileMistake(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return "the file can't be read: " + e.Err.Error()
	}
	return err.Error()
}
