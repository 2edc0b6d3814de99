package inbound_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/inbound"
	"github.com/chatgateway/gateway/policy"
)

func TestPipeline_deniesByThePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counting{left: 1, retry: 1400 * time.Millisecond}
		r := newRig(t, inbound.Options{Policy: c, Notice: "in {retry_after}", Notices: notices(t, time.Minute)}, nil)
		r.say("a", "1", "2", "3")
		pass(time.Second)
		r.wantRuns("1#1")
		r.wantUnfinished(0)
		r.wantArrived("a", "in 2s", "re: 1")
		r.say("a", "4")
		r.say("b", "1")
		pass(time.Minute)
		r.say("a", "5")
		pass(time.Second)
		r.wantArrived("a", "in 2s", "re: 1", "in 2s")
		r.wantArrived("b", "in 2s")
		r.restart()
		pass(time.Minute)
		r.wantRuns("1#1")
	})
}

func TestPipeline_saysNothingWithoutANotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, inbound.Options{Policy: &counting{}, Notices: notices(t, time.Minute)}, nil)
		r.say("a", "1")
		pass(time.Second)
		r.wantArrived("a")
		r.wantUnfinished(0)
	})
}

func TestPipeline_asksThePolicyOnceForATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counting{left: 2}
		r := newRig(t, inbound.Options{Policy: c}, func(ctx context.Context, t inbound.Turn) ([]chat.Message, error) {
			if t.Attempt == 1 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return nil, nil
		})
		r.say("a", "1", "2")
		pass(time.Second)
		r.restart()
		pass(time.Second)
		r.restart()
		pass(time.Second)
		r.wantUnfinished(0)
		if c.asked != 2 {
			t.Errorf("the policy was asked %d times, want once for each turn", c.asked)
		}
	})
}

func TestPipeline_countsByScope(t *testing.T) {
	tests := []struct {
		scope inbound.PolicyScope
		runs  int
	}{
		{scope: inbound.ScopeBot, runs: 1},
		{scope: inbound.ScopeChat, runs: 2},
		{scope: inbound.ScopePlatform, runs: 1},
		{scope: inbound.ScopeGateway, runs: 1},
	}
	for _, tt := range tests {
		t.Run(tt.scope.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, err := policy.NewSlidingWindowRateLimitPolicy(policy.SlidingWindowConfig{MaxRequests: 1, Window: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				r := newRig(t, inbound.Options{Policy: p, Scope: tt.scope}, nil)
				for _, id := range []string{"a", "b"} {
					e := r.event(id, "x")
					e.Sender = "fake:ann"
					r.emit(e)
				}
				pass(time.Second)
				if got := len(r.runs); got != tt.runs {
					t.Errorf("%d turns ran, want %d", got, tt.runs)
				}
				if again, err := inbound.ParsePolicyScope(tt.scope.String()); err != nil || again != tt.scope {
					t.Errorf("ParsePolicyScope(%q) = %v, %v", tt.scope, again, err)
				}
			})
		})
	}
}

type broken struct{}

func (broken) Check(context.Context, policy.Query) (policy.Decision, error) {
	return policy.Decision{Allowed: true}, errors.New("redis is away")
}

func TestPipeline_followsTheGuardOfABrokenPolicy(t *testing.T) {
	for _, onError := range []policy.OnError{policy.Allow, policy.Deny} {
		t.Run(onError.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, err := policy.NewGuard(broken{}, onError, nil)
				if err != nil {
					t.Fatal(err)
				}
				r := newRig(t, inbound.Options{Policy: g}, nil)
				r.say("a", "1")
				pass(time.Second)
				if got := len(r.runs); (got == 1) != (onError == policy.Allow) {
					t.Errorf("%d turns ran with on_error %v", got, onError)
				}
				r.wantUnfinished(0)
			})
		})
	}
}
