package config

import (
	"encoding"
	"errors"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var (
	decimalInt   = regexp.MustCompile(`^[-+]?(0|[1-9][0-9]*(_[0-9]+)*)$`)
	decimalFloat = regexp.MustCompile(`^[-+]?([0-9]+(_[0-9]+)*)?(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)
	notFinite    = regexp.MustCompile(`(?i)^[-+]?\.?(inf|infinity|nan)$`)

	durationType = reflect.TypeFor[time.Duration]()
	idType       = reflect.TypeFor[ID]()
	pathType     = reflect.TypeFor[Path]()
)

var (
	errWantBool      = errors.New("must be true or false")
	errWantInt       = errors.New("must be a whole number")
	errIntRange      = errors.New("is too large or too small")
	errWantNumber    = errors.New("must be a number")
	errNotFinite     = errors.New("must be a finite number")
	errWantDuration  = errors.New("must be a number of seconds or a duration such as 30s or 6h")
	errDurationUnit  = errors.New(`needs a unit, as in "30s"; a number without quotes is seconds`)
	errDurationSign  = errors.New("must not be negative")
	errDurationRange = errors.New("is too long a time")
	errWantString    = errors.New("must be text: put it in quotes")
)

// scalar decodes the scalar n into v, whose kind is known to be supported. The
// error does not hold the value.
func (d *decoder) scalar(n *node, v reflect.Value) error {
	switch v.Type() {
	case durationType:
		return decodeDuration(n, v)
	case idType:
		return decodeID(n, v)
	case pathType:
		if err := decodeString(n, v); err != nil {
			return err
		}
		if d.home == "" && expandHome(v.String(), "/") != v.String() {
			return errors.New("~ stands for the home folder, which is not known here (HOME is not set): write the path out")
		}
		v.SetString(expandHome(v.String(), d.home))
		return nil
	}
	if v.CanAddr() {
		if u, ok := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr()); ok {
			return decodeText(n, u, v.Type())
		}
	}
	switch v.Kind() { //nolint:exhaustive // the others are no scalars
	case reflect.String:
		return decodeString(n, v)
	case reflect.Bool:
		return decodeBool(n, v)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return decodeInt(n, v)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return decodeUint(n, v)
	case reflect.Float32, reflect.Float64:
		return decodeFloat(n, v)
	case reflect.Interface:
		v.Set(reflect.ValueOf(n.value()))
		return nil
	}
	panic("config: fields of type " + v.Type().String() + " are not supported")
}

// bare gives the text of a value that may be read as a number or a boolean: it
// stands without quotes, or was made from a variable.
func (n *node) bare() (string, bool) {
	if n.expanded() {
		return strings.TrimSpace(n.text), true
	}
	return n.text, n.plain
}

// value is the Go value of a scalar of unknown type.
func (n *node) value() any {
	if n.plain && !n.expanded() {
		switch {
		case n.text == "true", n.text == "false":
			return n.text == "true"
		case decimalInt.MatchString(n.text):
			if i, err := strconv.ParseInt(strings.ReplaceAll(n.text, "_", ""), 10, 64); err == nil {
				return i
			}
		case isFloat(n.text):
			if f, err := strconv.ParseFloat(n.text, 64); err == nil {
				return f
			}
		}
	}
	return n.text
}

func isFloat(text string) bool {
	return decimalFloat.MatchString(text) && strings.ContainsAny(text, "0123456789")
}

func decodeString(n *node, v reflect.Value) error {
	if n.plain && !n.expanded() && isBoolWord(n.text) {
		return errWantString
	}
	v.SetString(n.text)
	return nil
}

func isBoolWord(text string) bool {
	return strings.EqualFold(text, "true") || strings.EqualFold(text, "false")
}

// decodeText hands the text over. The unmarshaler's own error is not used, since
// it may repeat a secret.
func decodeText(n *node, u encoding.TextUnmarshaler, t reflect.Type) error {
	if err := u.UnmarshalText([]byte(n.text)); err != nil {
		return errors.New("is not a valid " + t.Name())
	}
	return nil
}

func decodeID(n *node, v reflect.Value) error {
	if n.plain && !n.expanded() && isBoolWord(n.text) || notFinite.MatchString(n.text) && n.plain {
		return errIDWord
	}
	if err := ID(n.text).Check(); err != nil {
		return err
	}
	v.SetString(n.text)
	return nil
}

func decodeBool(n *node, v reflect.Value) error {
	text, ok := n.bare()
	if !ok || text != "true" && text != "false" {
		return errWantBool
	}
	v.SetBool(text == "true")
	return nil
}

func decodeInt(n *node, v reflect.Value) error {
	text, ok := n.bare()
	if !ok || !decimalInt.MatchString(text) {
		return errWantInt
	}
	i, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64)
	if err != nil || v.OverflowInt(i) {
		return errIntRange
	}
	v.SetInt(i)
	return nil
}

func decodeUint(n *node, v reflect.Value) error {
	text, ok := n.bare()
	if !ok || !decimalInt.MatchString(text) {
		return errWantInt
	}
	u, err := strconv.ParseUint(strings.ReplaceAll(strings.TrimPrefix(text, "+"), "_", ""), 10, 64)
	if err != nil || v.OverflowUint(u) {
		return errIntRange
	}
	v.SetUint(u)
	return nil
}

func decodeFloat(n *node, v reflect.Value) error {
	text, ok := n.bare()
	if !ok {
		return errWantNumber
	}
	f, err := parseFloat(text)
	if err != nil {
		return err
	}
	if v.OverflowFloat(f) {
		return errIntRange
	}
	v.SetFloat(f)
	return nil
}

func parseFloat(text string) (float64, error) {
	if notFinite.MatchString(text) {
		return 0, errNotFinite
	}
	if !isFloat(text) {
		return 0, errWantNumber
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64)
	if err != nil || math.IsInf(f, 0) {
		return 0, errIntRange
	}
	return f, nil
}

// decodeDuration reads seconds, or text as time.ParseDuration takes it.
func decodeDuration(n *node, v reflect.Value) error {
	text, bare := n.bare()
	if bare && (isFloat(text) || notFinite.MatchString(text)) {
		seconds, err := parseFloat(text)
		if err != nil {
			return err
		}
		return setSeconds(seconds, v)
	}
	if isFloat(text) {
		return errDurationUnit
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil && durationShape.MatchString(text):
		return errDurationRange
	case err != nil:
		return errWantDuration
	case d < 0:
		return errDurationSign
	}
	v.SetInt(int64(d))
	return nil
}

var durationShape = regexp.MustCompile(`^[-+]?([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$`)

// setSeconds keeps fractions, to the nanosecond; the smallest time above zero is one.
func setSeconds(seconds float64, v reflect.Value) error {
	nanos := math.Round(seconds * float64(time.Second))
	switch {
	case seconds < 0:
		return errDurationSign
	case nanos >= math.MaxInt64:
		return errDurationRange
	case nanos < 1 && seconds > 0:
		nanos = 1
	}
	v.SetInt(int64(nanos))
	return nil
}
