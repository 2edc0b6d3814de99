package archtest_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/chatgateway/gateway"

// levels gives every package its place; an import only ever goes down. A new
// package needs a line here and a sentence in docs/ARCHITECTURE.md.
var levels = map[string]int{
	"chat":                    0,
	"adapters":                1,
	"outbox":                  1,
	"limiter":                 1,
	"policy":                  1,
	"render":                  1,
	"delivery":                2,
	"inbound":                 2,
	"adapters/adaptertest":    3,
	"adapters/telegram":       3,
	"handlers":                3,
	"internal/api":            3,
	"internal/archtest":       3,
	"internal/config":         3,
	"simulator":               3,
	"simulator/clienttest":    3,
	"simulator/simulatortest": 3,
	"simulator/telegram":      3,
	"store/redis":             3,
	"store/sqlite":            3,
	"store/storetest":         3,
	"":                        4,
	"cmd/gateway":             5,
	"examples/greeter":        5,
}

// sideways are the imports within a level that are meant to be.
var sideways = map[string][]string{
	"adapters":                {"limiter"}, // an adapter owns its limiter
	"outbox":                  {"limiter"}, // anchors
	"inbound":                 {"delivery"},
	"simulator":               {"simulator/telegram"}, // it mounts the platforms
	"simulator/simulatortest": {"simulator", "simulator/telegram"},
	"simulator/clienttest":    {"simulator", "simulator/telegram", "simulator/simulatortest"},
}

// testOnly are packages for tests: nothing but tests may import them.
var testOnly = []string{"adapters/adaptertest", "store/storetest", "simulator/simulatortest", "simulator/clienttest"}

type goPackage struct {
	ImportPath string
	Doc        string
	Imports    []string
	GoFiles    []string
}

func packages(t *testing.T) map[string]goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Doc,Imports,GoFiles", module+"/...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := map[string]goPackage{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		all[short(p.ImportPath)] = p
	}
}

func short(path string) string {
	return strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
}

func TestImports_goDown(t *testing.T) {
	for name, p := range packages(t) {
		level, ok := levels[name]
		if !ok {
			t.Errorf("package %q has no level: give it one in the table above", name)
			continue
		}
		for _, path := range p.Imports {
			if !strings.HasPrefix(path, module) {
				continue
			}
			imported := short(path)
			if levels[imported] >= level && !slices.Contains(sideways[name], imported) {
				t.Errorf("%s (level %d) imports %s (level %d): imports go down", name, level, imported, levels[imported])
			}
			if slices.Contains(testOnly, imported) && !slices.Contains(testOnly, name) {
				t.Errorf("%s imports %s, which is for tests", name, imported)
			}
		}
	}
}

func TestLevels_nameOnlyPackagesThatExist(t *testing.T) {
	all := packages(t)
	for name := range levels {
		if _, ok := all[name]; !ok {
			t.Errorf("package %q is in the table but not in the module", name)
		}
	}
}

func TestPackages_haveTheirComment(t *testing.T) {
	for name, p := range packages(t) {
		if p.Doc == "" && len(p.GoFiles) > 0 {
			t.Errorf("package %q has no comment", name)
		}
	}
}

// TestPlatforms_stayAmongThemselves: who delivers knows no platform, and
// platforms don't know each other.
func TestPlatforms_stayAmongThemselves(t *testing.T) {
	all := packages(t)
	for name := range all {
		if strings.HasPrefix(name, "adapters/") && name != "adapters/adaptertest" || strings.HasPrefix(name, "store/") {
			for other, p := range all {
				imports := slices.Contains(p.Imports, module+"/"+name)
				if imports && other != "" && !slices.Contains(testOnly, other) {
					t.Errorf("%s imports %s: only the front door names platforms and databases", other, name)
				}
			}
		}
	}
}
