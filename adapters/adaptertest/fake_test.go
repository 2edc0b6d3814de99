package adaptertest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/chatgateway/gateway/adapters/adaptertest"
	"github.com/chatgateway/gateway/chat"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	ann      = chat.Target{Bot: "fake", Chat: "ann"}
	bob      = chat.Target{Bot: "fake", Chat: "bob"}
	errFlood = errors.New("flood")
)

func TestFake_failsAsScripted(t *testing.T) {
	fake := adaptertest.NewFake(t)
	limited := &chat.SendError{Kind: chat.RateLimited, RetryAfter: time.Minute, Err: errFlood}
	fake.FailOnce(limited)
	fake.FailChat("bob", &chat.SendError{Kind: chat.TargetGone, Err: errFlood})

	if _, err := fake.Send(t.Context(), bob, chat.Part{Text: "b"}); chat.KindOf(err) != chat.TargetGone {
		t.Errorf("Send() = %v, want target gone", err)
	}
	if _, err := fake.Send(t.Context(), ann, chat.Part{Text: "a"}); !errors.Is(err, limited) {
		t.Errorf("Send() = %v, want %v", err, limited)
	}
	fake.HealChat("bob")
	for _, target := range []chat.Target{bob, ann} {
		receipt, err := fake.Send(t.Context(), target, chat.Part{Text: "again"})
		if err != nil {
			t.Errorf("Send() = %v, want nil", err)
		}
		if d := fake.NextDelivery(t); d.Target != target || d.Receipt != receipt || d.Part.Text != "again" {
			t.Errorf("NextDelivery() = %+v, want %v with %q", d, target, receipt)
		}
	}
	if n := len(fake.Attempts()); n != 4 {
		t.Errorf("Attempts() has %d, want 4", n)
	}
}

func TestFake_hangsUntilReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := adaptertest.NewFake(t)
		start := time.Now()
		release := fake.BlockChat("ann")
		go func() {
			_, _ = fake.Send(t.Context(), ann, chat.Part{Text: "late"})
		}()
		if _, err := fake.Send(t.Context(), bob, chat.Part{}); err != nil {
			t.Errorf("Send() to another chat = %v, want nil", err)
		}
		if d := fake.NextDelivery(t); d.Target != bob {
			t.Errorf("NextDelivery() = %v, want %v", d.Target, bob)
		}
		time.AfterFunc(time.Hour, release)
		if d := fake.NextDelivery(t); d.Target != ann || d.At.Sub(start) != time.Hour {
			t.Errorf("NextDelivery() = %v after %v, want %v after an hour", d.Target, d.At.Sub(start), ann)
		}

		release = fake.Block()
		defer release()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := fake.Send(ctx, ann, chat.Part{}); chat.KindOf(err) != chat.Uncertain || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Send() = %v, want uncertain", err)
		}
	})
}

func TestFake_emitsToTheRunningSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := adaptertest.NewFake(t, adaptertest.WithBot("support"))
		ctx, cancel := context.WithCancel(t.Context())
		var got []chat.Event
		var result error
		done := make(chan error)
		go func() {
			done <- fake.Run(ctx, func(_ context.Context, events ...chat.Event) error {
				got = events
				return result
			})
		}()
		if err := fake.Emit(ctx, chat.Event{ID: "1"}, chat.Event{ID: "2"}); err != nil {
			t.Errorf("Emit() = %v, want nil", err)
		}
		if len(got) != 2 || got[1].ID != "2" || got[1].Source.Bot != "support" {
			t.Errorf("sink got %+v, want both events of the bot", got)
		}
		result = errFlood
		if err := fake.Emit(ctx, chat.Event{ID: "3"}); !errors.Is(err, errFlood) {
			t.Errorf("Emit() = %v, want what the sink said", err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run() = %v, want nil", err)
		}
		fake.FailRun(errFlood)
		if err := fake.Run(t.Context(), nil); !errors.Is(err, errFlood) {
			t.Errorf("Run() = %v, want %v", err, errFlood)
		}
	})
}
