package telegram

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"
)

// shrink asks for less after an answer that is too large, or that holds an
// update which keeps the whole batch from being read.
func (p *poller) shrink(ctx context.Context, got answer) {
	switch {
	case got.status < http.StatusOK || got.status >= http.StatusMultipleChoices:
	case errors.Is(got.err, errTooLarge) && p.limit > 1:
		p.limit /= 2
	case errors.Is(got.err, errTooLarge) || (got.err == nil && broken(got.body)):
		if id, ok := firstUpdate(got.body); ok {
			p.stuck(ctx, id)
		}
	}
}

// stuck deals with an answer that holds updates but none that can be read. It
// goes on one by one, so that the rest passes; the one that still can't be read
// is skipped, after a wait. Ids are sequential, so at least one unreadable
// update stands at the offset. The first id is 0 if unknown.
func (p *poller) stuck(ctx context.Context, first int64) {
	p.unread++
	if p.limit > 1 {
		p.limit, p.singles = 1, batchSize
		return
	}
	if p.unread < 2 || (p.offset == 0 && first == 0) {
		return // it may be readable the next time, or nobody knows where to go on
	}
	level := slog.LevelDebug
	if !p.skipped {
		level = slog.LevelWarn
	}
	p.a.log.Log(ctx, level, "an update that can't be read is skipped", "offset", max(p.offset, first))
	p.offset, p.lastNews = max(p.offset, first)+1, time.Now()
	p.limit, p.singles, p.unread, p.skipped = batchSize, 0, 0, true
}

// broken reports whether body is no JSON somewhere before its end: one that
// was merely cut off may be whole the next time.
func broken(body []byte) bool {
	var whole json.RawMessage
	syntax, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(body, &whole))
	return ok && syntax.Offset < int64(len(body))
}

// firstUpdate looks for the beginning of a list of updates in a body that JSON
// can't read as a whole. It reports false if there is none, and gives the first
// update's id, or 0 if that can't be read either.
func firstUpdate(body []byte) (int64, bool) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if !opens(d, '{') {
		return 0, false
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return 0, false
		}
		if key != "result" {
			var skipped json.RawMessage
			if d.Decode(&skipped) != nil {
				return 0, false
			}
			continue
		}
		if !opens(d, '[') || !d.More() {
			return 0, false
		}
		return leadingID(d), true
	}
	return 0, false
}

// leadingID reads the id where Telegram puts it, in front of everything else.
func leadingID(d *json.Decoder) int64 {
	if !opens(d, '{') {
		return 0
	}
	if key, err := d.Token(); err != nil || key != "update_id" {
		return 0
	}
	value, err := d.Token()
	number, ok := value.(json.Number)
	if err != nil || !ok {
		return 0
	}
	id, _ := saneID([]byte(number))
	return id
}

func opens(d *json.Decoder, with json.Delim) bool {
	token, err := d.Token()
	return err == nil && token == with
}
