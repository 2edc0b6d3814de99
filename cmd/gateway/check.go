package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/chatgateway/gateway"
)

func checkCommand(s *settings) *cobra.Command {
	var offline, asJSON bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the configuration, and every bot's login at its platform",
		Long: `Check the configuration, and ask each platform whether it knows the bot.
Exit code 0: all is well. 1: a login is refused or a platform can't be reached. 2: the configuration is wrong.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := s.load(cmd)
			if err != nil {
				return err
			}
			if err := cfg.RequireBots(); err != nil {
				return err
			}
			if offline && asJSON {
				return printChecks(cmd, []gateway.BotCheck{}, true)
			}
			if offline {
				fmt.Fprintln(cmd.OutOrStdout(), "the configuration is right; no bot was asked")
				return nil
			}
			results := gateway.CheckBots(cmd.Context(), cfg)
			return printChecks(cmd, results, asJSON)
		},
	}
	cmd.Flags().BoolVar(&offline, "offline", false, "check the configuration alone")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printChecks(cmd *cobra.Command, results []gateway.BotCheck, asJSON bool) error {
	out := cmd.OutOrStdout()
	failed := 0
	for _, r := range results {
		if r.Error != "" {
			failed++
		}
	}
	if asJSON {
		if err := json.NewEncoder(out).Encode(results); err != nil {
			return err
		}
	} else {
		for _, r := range results {
			if r.Error != "" {
				fmt.Fprintf(out, "failed  %s (%s): %s\n", r.Bot, r.Platform, r.Error)
			} else {
				fmt.Fprintf(out, "ok      %s (%s)\n", r.Bot, r.Platform)
			}
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d bots can't be used", failed, len(results))
	}
	return nil
}
