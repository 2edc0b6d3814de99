package delivery

import (
	"container/heap"
	"slices"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/outbox"
)

// item is a pending entry as the owner remembers it: a few words, while its
// body stays on disk.
type item struct {
	id       outbox.ID
	due      int64         // microseconds since 1970, of an entry that is not to be sent before
	body     *outbox.Entry // nil: on disk
	priority int8          // an outbox.Priority
	begun    bool          // a part of it was sent
}

// lane is the queue of one target. Its fields are guarded by the bot's mutex.
type lane struct {
	target chat.Target

	items  []item    // due, first in, first out; while busy, the first is being sent
	future dueHeap   // not due yet
	counts [4]int    // of items, by priority
	until  time.Time // blocked until then: a retry, or what the limiter said
	wakeAt time.Time // when it is looked at again while it is parked
	busy   bool      // its first item is being sent or settled

	arriving int        // entries whose commit is under way
	limited  int        // answers in a row that asked to wait and did not say how long
	retrying bool       // until is the backoff of a temporary failure
	doubtful bool       // its first item may have arrived, and goes out again when the platform answers
	list     *readyList // where it waits for a slot; nil if it does not
	prev     *lane
	next     *lane
	parked   int // index in the parked heap, from 1; 0 if it is not there
}

// priority is that of the most urgent due item.
func (l *lane) priority() outbox.Priority {
	for p := outbox.Reply; p > outbox.Bulk; p-- {
		if l.counts[p] > 0 {
			return p
		}
	}
	return outbox.Bulk
}

// withdraw takes an item out that no call is being made for. Whatever the lane
// waited for on its behalf is over.
func (l *lane) withdraw(id outbox.ID) (it item, ok bool) {
	for i, it := range l.items {
		if it.id != id {
			continue
		}
		if i == 0 && l.busy {
			return item{}, false
		}
		if i == 0 {
			l.until, l.retrying = time.Time{}, false
		}
		l.counts[it.priority]--
		l.items = slices.Delete(l.items, i, i+1)
		return it, true
	}
	for i, it := range l.future {
		if it.id == id {
			heap.Remove(&l.future, i)
			return it, true
		}
	}
	return item{}, false
}

// push adds a due item in the order of ids, never before one that is being sent.
func (l *lane) push(it item) {
	l.counts[it.priority]++
	first := 0
	if l.busy {
		first = 1
	}
	i := len(l.items)
	for i > first && l.items[i-1].id > it.id {
		i--
	}
	l.items = slices.Insert(l.items, i, it)
}

// pushFirst adds an item that was, or is being, sent already.
func (l *lane) pushFirst(it item) {
	l.counts[it.priority]++
	l.items = slices.Insert(l.items, 0, it)
}

// pop takes the first item off.
func (l *lane) pop() {
	l.counts[l.items[0].priority]--
	l.items[0] = item{} // let go of its body
	l.items = l.items[1:]
	if len(l.items) == 0 {
		l.items = nil
	}
}

// join moves what has become due to the tail.
func (l *lane) join(now time.Time) {
	for len(l.future) > 0 && l.future[0].due <= now.UnixMicro() {
		it, _ := heap.Pop(&l.future).(item)
		l.counts[it.priority]++
		l.items = append(l.items, it)
	}
}

// clear empties the lane but for an item that is being sent, and gives what
// went.
func (l *lane) clear() []item {
	gone := l.items
	var first []item
	if l.busy {
		first, gone = gone[:1:1], gone[1:]
	}
	gone = slices.Concat(gone, l.future)
	l.items, l.future, l.counts = first, nil, [4]int{}
	for _, it := range first {
		l.counts[it.priority]++
	}
	return gone
}

// reset empties the lane altogether.
func (l *lane) reset() {
	l.busy, l.until, l.limited, l.retrying, l.doubtful = false, time.Time{}, 0, false, false
	l.clear()
}

// absorb takes the entries of another lane in, in the order of their ids, but
// for one that is being sent.
func (l *lane) absorb(other *lane) {
	now := time.Now().UnixMicro()
	for _, it := range other.clear() {
		if it.due > now {
			l.future.add(it)
		} else {
			l.push(it)
		}
	}
	l.arriving += other.arriving
	other.arriving = 0
}

// dueHeap orders items by the time from which they may be sent.
type dueHeap []item

func (h dueHeap) Len() int { return len(h) }
func (h dueHeap) Less(i, j int) bool {
	return h[i].due < h[j].due || h[i].due == h[j].due && h[i].id < h[j].id
}
func (h dueHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *dueHeap) add(it item) { heap.Push(h, it) }

// Push is for package heap.
func (h *dueHeap) Push(x any) {
	if it, ok := x.(item); ok {
		*h = append(*h, it)
	}
}

// Pop is for package heap.
func (h *dueHeap) Pop() any {
	old := *h
	it := old[len(old)-1]
	*h = old[:len(old)-1]
	return it
}

// readyList holds the lanes of one priority that could use a slot now; who
// waits longest is first, so that lanes take turns.
type readyList struct {
	first, last *lane
}

func (r *readyList) append(l *lane) {
	l.list, l.prev, l.next = r, r.last, nil
	if r.last != nil {
		r.last.next = l
	} else {
		r.first = l
	}
	r.last = l
}

func (r *readyList) remove(l *lane) {
	if l.prev != nil {
		l.prev.next = l.next
	} else {
		r.first = l.next
	}
	if l.next != nil {
		l.next.prev = l.prev
	} else {
		r.last = l.prev
	}
	l.list, l.prev, l.next = nil, nil, nil
}

// parkedHeap orders the lanes that wait for a time.
type parkedHeap []*lane

func (h parkedHeap) Len() int           { return len(h) }
func (h parkedHeap) Less(i, j int) bool { return h[i].wakeAt.Before(h[j].wakeAt) }
func (h parkedHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].parked, h[j].parked = i+1, j+1
}

// Push is for package heap.
func (h *parkedHeap) Push(x any) {
	if l, ok := x.(*lane); ok {
		*h = append(*h, l)
		l.parked = len(*h)
	}
}

// Pop is for package heap.
func (h *parkedHeap) Pop() any {
	old := *h
	l := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	l.parked = 0
	return l
}
