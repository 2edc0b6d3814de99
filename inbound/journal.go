package inbound

import (
	"context"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/outbox"
)

// Journal is where events are kept from before the platform is told that they
// arrived until after they were answered. It is safe for concurrent use. A
// turn ends through outbox.Batch, together with its replies.
type Journal interface {
	// Accept stores the events, in order and in one commit; nil means that
	// they are on disk. An event whose id the bot has seen is not stored again,
	// and comes back without Fresh.
	Accept(ctx context.Context, intakes ...Intake) ([]Accepted, error)

	// Admit records that the policy let these turns in: they are not asked
	// about again after a restart.
	Admit(ctx context.Context, turns ...outbox.TurnID) error

	// Begin counts an attempt at the turn and gives its number, from 1 on. It
	// gives 0 for a turn that has ended.
	Begin(ctx context.Context, t outbox.TurnID) (attempt int, err error)

	// Unfinished gives the bot's turns that have not ended, oldest first, at
	// most limit of them after the given one.
	Unfinished(ctx context.Context, bot chat.BotName, after outbox.TurnID, limit int) ([]Turn, error)
}

// Intake is an event on its way into the journal.
type Intake struct {
	Event chat.Event
	Ended bool // nothing will answer it: it is kept, for the record and against repeats
}

// Accepted tells where an event stands in the journal.
type Accepted struct {
	Turn  outbox.TurnID
	Fresh bool // it was not known before
}

// Turn is an event that is to be answered.
type Turn struct {
	ID       outbox.TurnID
	Event    chat.Event
	Attempt  int  // 1 for the first run; more after a failure or a crash
	Admitted bool // the policy has let it in
}
