package delivery

import (
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/limiter"
	"github.com/chatgateway/gateway/outbox"
)

// flight is one call on its way: from its slot to the commit that settles it.
type flight struct {
	lane   *lane
	target chat.Target // the lane's when the slot was taken
	id     outbox.ID
	entry  *outbox.Entry // nil until read
	slot   limiter.Reservation
	at     time.Time // when the slot was taken
	seat   int       // under which the call is noted
}

// newSeats gives the seats of n calls in flight, the lowest last.
func newSeats(n int) []int {
	seats := make([]int, n)
	for i := range seats {
		seats[i] = n - 1 - i
	}
	return seats
}

// board gives a new flight a seat, which must be free. The caller holds the
// mutex.
func (b *bot) board(f *flight) *flight {
	b.inFlight++
	last := len(b.seats) - 1
	f.seat = b.seats[last]
	b.seats = b.seats[:last]
	return f
}

// cancel ends a flight whose call is not made. The caller holds the mutex.
func (b *bot) cancel(f *flight) {
	f.slot.Cancel(time.Now())
	b.inFlight--
	b.leaveSeat(f)
}

// leaveSeat lets another flight have the seat: not before the end of this one
// is stored, since its note is all that tells of it until then. The caller
// holds the mutex.
func (b *bot) leaveSeat(f *flight) { b.seats = append(b.seats, f.seat) }
