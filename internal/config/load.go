package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
)

// DefaultFile is read if no other is named and it exists.
const DefaultFile = "gateway.yaml"

// Options say where the configuration comes from. The zero value is the usual way.
type Options struct {
	// Path is the file to read. Empty: DefaultFile in the working folder if there
	// is one, else the environment alone.
	Path string
	// Lenient makes warnings of unknown keys.
	Lenient bool
	// Getenv looks up an environment variable; nil: os.LookupEnv.
	Getenv func(name string) (value string, ok bool)
	// HomeDir is what ~ stands for; empty: that of the user.
	HomeDir string
	// Flags are the settings given on the command line, by the path of their key,
	// e.g. "http.listen". Only the keys of ProcessKeys can be set so.
	Flags map[string]string
	// Platforms, Kinds and Policies are the names that are known for bots, handlers
	// and the inbound policy. An empty list is not checked.
	Platforms, Kinds, Policies []string
	// Check is called with the decoded configuration before Load returns, also if
	// there are mistakes already, so that the owners of the raw keys can decode
	// them and have their mistakes listed along with the others.
	Check func(*Config) error
}

// Load reads the configuration. The error lists all mistakes, one per line; each
// is a *KeyError, except if the file can't be read at all. A configuration
// without bots is no mistake: see Config.RequireBots.
func Load(o Options) (*Config, error) {
	path := o.Path
	if path == "" {
		path = DefaultFile
	}
	data, err := readLimited(path, maxFileSize)
	switch {
	case o.Path == "" && errors.Is(err, fs.ErrNotExist):
		path, data = "", nil
	case err != nil:
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	c, err := Parse(data, o)
	if c != nil {
		c.File = path
	}
	return c, err
}

// Parse reads the configuration from the text of a file; an empty text is as if
// there were none. Path is not used.
func Parse(data []byte, o Options) (*Config, error) {
	o = o.withDefaults()
	c := Default()
	warn := c.warnOnce()
	rep := newReport(o.Lenient, warn)
	root, err := parseDocument(data, rep)
	if err != nil {
		return nil, errors.Join(err)
	}
	if root == nil {
		root = &node{kind: mappingNode}
	}
	x := &expander{getenv: o.Getenv, rep: rep, done: make(map[*node]bool), secret: make(map[string]bool)}
	x.walk(root, "")
	c.secret = x.secret

	from := &source{lenient: o.Lenient, home: o.HomeDir, warn: warn}
	d := &decoder{rep: rep, home: o.HomeDir, from: from}
	d.decodeStruct(root, "", reflect.ValueOf(c).Elem())
	d.addEnvironmentBots(c, o)
	origins := d.layerSettings(c, root, o)
	c.finish()
	k := &checker{root: root, origins: origins, rep: rep, o: o}
	k.check(c)
	if o.Check != nil {
		rep.join(o.Check(c))
	}
	if err := rep.err(); err != nil {
		return nil, err
	}
	return c, nil
}

func (o Options) withDefaults() Options {
	if o.Getenv == nil {
		o.Getenv = os.LookupEnv
	}
	if o.HomeDir == "" {
		o.HomeDir, _ = os.UserHomeDir() // without one, ~ is a mistake
	}
	return o
}

// warnOnce gives a function that adds warnings; the same one is added once only,
// however often a section is decoded.
func (c *Config) warnOnce() func(*KeyError) {
	seen := make(map[KeyError]bool)
	return func(e *KeyError) {
		if !seen[*e] {
			seen[*e] = true
			c.Warnings = append(c.Warnings, e)
		}
	}
}

// finish gives bots and handlers their names.
func (c *Config) finish() {
	for name, b := range c.Bots {
		b.Name = name
	}
	for name, h := range c.Handlers {
		h.Name = name
	}
}
