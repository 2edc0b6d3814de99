package simulator

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	maxFollowers = 64
	eventBuffer  = 1024
	heartbeat    = 20 * time.Second
)

// hub passes events on to the pages that follow along. A page that is too slow is told to load everything again.
type hub struct {
	done chan struct{}

	mu        sync.Mutex
	followers map[*follower]struct{}
	closed    bool
}

// follower is one open page.
type follower struct {
	events chan []byte
	missed bool // guarded by the hub's lock
}

func newHub() *hub { return &hub{done: make(chan struct{}), followers: map[*follower]struct{}{}} }

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.closed = true
		close(h.done)
	}
}

// publish never blocks.
func (h *hub) publish(platform string, event any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.followers) == 0 {
		return
	}
	data, err := json.Marshal(map[string]any{"platform": platform, "event": event})
	if err != nil {
		return // A page that misses one event shows it after the next load.
	}
	for f := range h.followers {
		if f.missed {
			data := []byte(`{"platform":"","event":{"kind":"reload"}}`)
			select {
			case f.events <- data:
				f.missed = false
			default:
			}
			continue
		}
		select {
		case f.events <- data:
		default:
			f.missed = true
		}
	}
}

func (h *hub) join() *follower {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.followers) >= maxFollowers {
		return nil
	}
	f := &follower{events: make(chan []byte, eventBuffer)}
	h.followers[f] = struct{}{}
	return f
}

func (h *hub) leave(f *follower) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.followers, f)
}

// serve answers GET /_sim/events with server-sent events.
func (h *hub) serve(w http.ResponseWriter, r *http.Request) {
	f := h.join()
	if f == nil {
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	defer h.leave(f)
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	if _, err := fmt.Fprint(w, "retry: 1000\n\n"); err != nil || out.Flush() != nil {
		return
	}
	for {
		var err error
		select {
		case data := <-f.events:
			_, err = fmt.Fprintf(w, "data: %s\n\n", data)
		case <-beat.C:
			_, err = fmt.Fprint(w, ": still here\n\n")
		case <-r.Context().Done():
			return
		case <-h.done:
			return
		}
		if err != nil || out.Flush() != nil {
			return
		}
	}
}
