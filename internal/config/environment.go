package config

import (
	"slices"
	"strings"
)

// environmentBots are the bots that need no file: the platform's name, and the
// variables that hold its required keys.
func environmentBots() []environmentBot {
	return []environmentBot{
		{platform: "telegram", keys: []environmentKey{{key: "token", variable: "TELEGRAM_BOT_TOKEN"}}},
	}
}

type environmentBot struct {
	platform string
	keys     []environmentKey
}

type environmentKey struct{ key, variable string }

// addEnvironmentBots adds a bot, named after its platform, for each whose
// variables are all set, if the file names no bot.
func (d *decoder) addEnvironmentBots(c *Config, o Options) {
	if len(c.Bots) > 0 {
		return
	}
	for _, row := range environmentBots() {
		if len(o.Platforms) > 0 && !slices.Contains(o.Platforms, row.platform) {
			continue
		}
		n := &node{kind: mappingNode, entries: []entry{{key: "platform", value: fromText(row.platform)}}}
		missing := ""
		for _, k := range row.keys {
			value, _ := o.Getenv(k.variable)
			if value = strings.TrimSpace(value); value == "" {
				missing = k.variable
				continue
			}
			n.entries = append(n.entries, entry{key: k.key, value: fromText(value, k.variable)})
		}
		switch {
		case missing == "":
			b := &Bot{}
			b.decodeNode(d, n, join("bots", row.platform))
			c.Bots[row.platform] = b
		case len(n.entries) > 1:
			d.rep.warn(&KeyError{Path: missing, Msg: "is not set, so that there is no " + row.platform + " bot"})
		}
	}
}
