package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/chatgateway/gateway"
	"github.com/chatgateway/gateway/internal/api"
)

// maxStdin bounds a text from standard input, in bytes.
const maxStdin = 1 << 20

func sendCommand(s *settings) *cobra.Command {
	var m api.NewMessage
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "send TARGET TEXT|-",
		Short: "Store a message for delivery",
		Long: `Store a message for delivery and print its id. TARGET is bot:chat or bot:chat/thread; a platform's
name stands for its bot where it has only one. With - the text comes from standard input.
A running gateway sends it at once; without one it is sent when the gateway starts.`,
		Example: "  gateway send telegram:123456789 'The build is green.'\n  date | gateway send support:-1001234567890/77 -",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := s.load(cmd)
			if err != nil {
				return err
			}
			m.Target, m.Text = args[0], args[1]
			if m.Text == "-" {
				if m.Text, err = readText(cmd.InOrStdin()); err != nil {
					return err
				}
			}
			accepted, running, err := send(cmd.Context(), cfg, m)
			if err != nil {
				return err
			}
			return printAccepted(cmd, accepted, running, asJSON)
		},
	}
	f := cmd.Flags()
	f.StringVar(&m.Priority, "priority", "", "reply, proactive (the default) or bulk")
	f.StringVar(&m.Format, "format", "", "plain (the default) or markdown")
	f.StringVar(&m.IdempotencyKey, "key", "", "idempotency `key`: the same key and message are stored once")
	f.StringVar(&m.ReplyTo, "reply-to", "", "the platform's `id` of the message that this one answers")
	f.BoolVar(&m.Silent, "silent", false, "deliver without a sound")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func readText(in io.Reader) (string, error) {
	b, err := io.ReadAll(io.LimitReader(in, maxStdin+1))
	if err != nil {
		return "", fmt.Errorf("read the text: %w", err)
	}
	if len(b) > maxStdin {
		return "", usageError{errors.New("the text is longer than 1 MiB")}
	}
	return string(b), nil
}

// send hands the message to the running gateway, or stores it itself.
func send(ctx context.Context, cfg *gateway.Config, m api.NewMessage) (a api.Accepted, running bool, err error) {
	client, running := api.Client(ctx, string(cfg.Gateway.DataDir))
	if running {
		a, err = post(ctx, client, m)
		return a, true, err
	}
	a, err = gateway.Enqueue(ctx, cfg, m)
	if api.IsMistake(err) {
		err = usageError{err}
	}
	return a, false, err
}

func post(ctx context.Context, client *http.Client, m api.NewMessage) (api.Accepted, error) {
	var a api.Accepted
	body, err := json.Marshal(m)
	if err != nil {
		return a, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://gateway/api/messages", bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return a, fmt.Errorf("ask the running gateway: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusAccepted {
		return a, json.NewDecoder(resp.Body).Decode(&a)
	}
	var p struct {
		Code   string `json:"code"`
		Detail string `json:"detail"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxStdin)).Decode(&p); err != nil {
		return a, fmt.Errorf("the running gateway answers %s", resp.Status)
	}
	if resp.StatusCode == http.StatusUnprocessableEntity {
		return a, usageError{errors.New(p.Detail)}
	}
	return a, fmt.Errorf("not stored (%s): %s", p.Code, p.Detail)
}

func printAccepted(cmd *cobra.Command, a api.Accepted, running, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(a)
	}
	if _, err := fmt.Fprintln(cmd.OutOrStdout(), a.ID); err != nil {
		return err
	}
	switch {
	case a.Duplicate:
		fmt.Fprintln(cmd.ErrOrStderr(), "this key was known: the id is the earlier message's")
	case !running:
		fmt.Fprintln(cmd.ErrOrStderr(), "no gateway is running: the message is stored, and sent when one starts")
	}
	return nil
}
