package config

import (
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/viper"
)

// ProcessKeys are the settings that a flag and a variable of the environment can
// override, in this order: flag, GATEWAY_*, file, default.
func ProcessKeys() []string {
	return []string{
		"gateway.data_dir", "gateway.drain.timeout_seconds", "store.path", "http.listen", "log.level", "log.format",
	}
}

// EnvironmentName gives the variable of a process setting: GATEWAY_DATA_DIR for
// gateway.data_dir, GATEWAY_HTTP_LISTEN for http.listen.
func EnvironmentName(key string) string {
	key = strings.TrimPrefix(key, "gateway.")
	return "GATEWAY_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// layer is a setting's value from one of the layers; path is what a mistake names.
type layer struct {
	path string
	node *node // nil: what is there already, from the file or by default
}

// layerSettings lays the environment and the flags over the file. viper chooses
// the layer; it never sees the file itself, since it would change the case of
// its keys. It returns what mistakes name, by key, for the settings that did not
// come from the file.
func (d *decoder) layerSettings(c *Config, root *node, o Options) (origins map[string]string) {
	origins = make(map[string]string)
	v := viper.NewWithOptions(viper.KeyDelimiter("::"))
	fromFile, fromEnvironment := make(map[string]any), make(map[string]any)
	for _, key := range ProcessKeys() {
		v.SetDefault(key, layer{})
		if root.find(strings.Split(key, ".")...) != nil {
			fromFile[key] = layer{}
		}
		name := EnvironmentName(key)
		if value, ok := o.Getenv(name); ok && (value != "" || mayBeEmpty(key)) {
			fromEnvironment[key] = layer{path: name, node: fromText(value, name)}
		}
	}
	for _, layers := range []map[string]any{fromFile, fromEnvironment} {
		if err := v.MergeConfigMap(layers); err != nil {
			d.rep.join(err)
			return origins
		}
	}
	for _, key := range sortedKeys(o.Flags) {
		if !slices.Contains(ProcessKeys(), key) {
			d.rep.fail(&KeyError{Path: key, Msg: "can't be set by a flag", Hint: flagHint(key)})
			continue
		}
		v.Set(key, layer{path: "flag for " + key, node: fromText(o.Flags[key], key)})
	}
	for _, key := range ProcessKeys() {
		if l, ok := v.Get(key).(layer); ok && l.node != nil {
			origins[key] = l.path
			value, f := fieldAt(reflect.ValueOf(c).Elem(), strings.Split(key, "."))
			d.decodeField(l.node, l.path, value, f)
		}
	}
	return origins
}

func flagHint(key string) string {
	if near := nearest(key, ProcessKeys()); near != "" {
		return "did you mean " + near + "?"
	}
	return ""
}

// mayBeEmpty tells for which settings an empty variable is a value: no listener,
// and the path in the data folder. For the others it is as if it were not set.
func mayBeEmpty(key string) bool {
	return key == "http.listen" || key == "store.path"
}

// fieldAt finds the value of a key and its tags.
func fieldAt(v reflect.Value, keys []string) (reflect.Value, field) {
	var f field
	for _, key := range keys {
		fields := fieldsOf(v.Type())
		f = fields[slices.IndexFunc(fields, func(f field) bool { return f.name == key })]
		v = v.FieldByIndex(f.index)
	}
	return v, f
}
