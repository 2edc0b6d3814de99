package config

import (
	"errors"
	"regexp"
	"strings"
	"unicode"
)

// ID is an identifier of a platform, such as a chat's or a phone number's: text
// exactly as it stands in the file, also where YAML would read a number
// (-1001234567890, 0123, +15550001111).
type ID string

const maxIDDigits = 20 // the most that an unsigned 64-bit number has

var (
	wholeNumber   = regexp.MustCompile(`^[-+]?[0-9]+$`)
	brokenNumber  = regexp.MustCompile(`^[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9]+|[0-9][0-9_]*)([eE][-+]?[0-9]+)?$`)
	grouped       = regexp.MustCompile(`^[-+]?[0-9][0-9_]*$`)
	errIDEmpty    = errors.New("must not be empty")
	errIDSpace    = errors.New("must not hold spaces or invisible characters")
	errIDDigits   = errors.New("must use the digits 0 to 9")
	errIDZero     = errors.New("must not be zero")
	errIDTooLong  = errors.New("has too many digits for an id")
	errIDFraction = errors.New("must be an id, not a number with a fraction or an exponent")
	errIDWord     = errors.New("must be an id: put it in quotes if it is one")
)

// Check tells what is wrong with id, or nil. The error does not repeat the id.
func (id ID) Check() error {
	s := string(id)
	switch {
	case s == "":
		return errIDEmpty
	case strings.ContainsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }):
		return errIDSpace
	case strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII && unicode.IsNumber(r) }):
		return errIDDigits
	case !strings.ContainsFunc(s, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }):
		return errIDEmpty
	case wholeNumber.MatchString(s):
		return checkDigits(strings.TrimLeft(s, "+-"))
	case brokenNumber.MatchString(s) && !grouped.MatchString(s):
		return errIDFraction
	}
	return nil
}

func checkDigits(digits string) error {
	switch {
	case strings.Trim(digits, "0") == "":
		return errIDZero
	case len(digits) > maxIDDigits:
		return errIDTooLong
	}
	return nil
}

// Path is the name of a file or folder; a leading ~ was replaced by the home folder.
type Path string

// expandHome replaces a ~ that stands alone or before a slash.
func expandHome(path, home string) string {
	if rest, ok := strings.CutPrefix(path, "~"); ok && home != "" && (rest == "" || rest[0] == '/') {
		return home + rest
	}
	return path
}
