package policy

import (
	"hash/maphash"
	"time"
)

// maxIdentities is how many identities a policy remembers.
const maxIdentities = 100_000

// An identity that finds no room replaces another. Identities are kept in
// these classes, and the cheapest one that can be forgotten goes first: one
// whose time is over, then one from the first class that has any, the one
// that has been there for longest.
const (
	below  = iota // the ceiling
	full          // at the ceiling: the next one is refused
	denied        // refused or locked
	classes
)

// none is the end of a list.
const none = ^uint32(0)

// entry is what is remembered of one identity in one scope. Its name is not
// kept, only a hash with a random seed: so an entry has a fixed and small
// size, however long the names are that strangers choose. Two names that meet
// share a limit; but even of a hundred thousand, no two do with a probability
// of one in three thousand million, and nobody can look for a pair without the seed.
type entry struct {
	hash       uint64
	at         int64 // reading: the window's start or, if locked, the lock's end
	count      uint32
	prev, next uint32 // in the list of its class
	class      uint8
	locked     bool
	renewed    bool // another window began since the entry got its place in the list
}

// list is an end and a beginning, both places of entries.
type list struct{ newest, oldest uint32 }

const (
	chunkBits = 10
	chunkSize = 1 << chunkBits
)

// store maps identities to entries. It grows in chunks, so that nothing is
// copied, to a fixed bound. It is not safe for concurrent use.
type store struct {
	seeds     [2]maphash.Seed // of identities and of scopes, so that the two can't be exchanged
	scope     string          // the one asked for last, with its hash
	scopeHash uint64
	mask      uint64   // of hashes, to a place in the index
	index     []uint32 // open addressing by linear probing: slots, 0 is free
	chunks    [][]entry
	used      uint32 // places in chunks that were ever taken
	free      uint32 // the first of the places that were given up; the others follow by next
	bound     uint32
	lists     [classes]list
	base      time.Time
	last      int64 // reading
}

func newStore(bound uint32) *store {
	s := &store{bound: bound}
	for i := range s.seeds {
		s.seeds[i] = maphash.MakeSeed()
	}
	s.hashScope("")
	s.base = time.Unix(0, 0) // any time but the zero one, which is refused
	s.reset()
	return s
}

// reset forgets everybody.
func (s *store) reset() {
	s.mask, s.chunks = 63, nil
	s.index = make([]uint32, s.mask+1)
	s.used, s.free = 0, none
	for i := range s.lists {
		s.lists[i] = list{newest: none, oldest: none}
	}
}

func (s *store) hashScope(scope string) {
	s.scope, s.scopeHash = scope, maphash.String(s.seeds[1], scope)
}

// hash names an identity in a scope.
func (s *store) hash(scope, identity string) uint64 {
	if scope != s.scope {
		s.hashScope(scope)
	}
	return maphash.String(s.seeds[0], identity) ^ s.scopeHash
}

func (s *store) entry(place uint32) *entry {
	return &s.chunks[place>>chunkBits][place&(chunkSize-1)]
}

// A slot of the index is a place + 1 and, above that, the highest bits of the
// entry's hash, which spare most looks at the wrong entry.
const (
	placeBits = 17 // 131,071 places
	placeMask = 1<<placeBits - 1
)

func slotOf(hash uint64, place uint32) uint32 {
	return uint32(hash>>32)&^placeMask | (place + 1)
}

// find returns the place of the entry with that hash.
func (s *store) find(hash uint64) (place uint32, ok bool) {
	tag := slotOf(hash, 0) &^ placeMask
	for i := hash & s.mask; s.index[i] != 0; i = (i + 1) & s.mask {
		if slot := s.index[i]; slot&^placeMask == tag {
			if place := slot&placeMask - 1; s.entry(place).hash == hash {
				return place, true
			}
		}
	}
	return 0, false
}

// add puts a new, empty entry in the place, in the class below.
func (s *store) add(hash uint64, place uint32) *entry {
	e := s.entry(place)
	*e = entry{hash: hash}
	s.insert(place)
	s.push(place, e, below)
	return e
}

// fresh returns a place that nobody has; ok is false at the bound.
func (s *store) fresh() (place uint32, ok bool) {
	if place := s.free; place != none {
		s.free = s.entry(place).next
		return place, true
	}
	if s.used == s.bound {
		return 0, false
	}
	if s.used&(chunkSize-1) == 0 {
		s.chunks = append(s.chunks, make([]entry, chunkSize))
	}
	s.used++
	if uint64(s.used)*2 > s.mask {
		s.grow()
	}
	return s.used - 1, true
}

// grow doubles the index.
func (s *store) grow() {
	old := s.index
	s.mask = 2*s.mask + 1
	s.index = make([]uint32, s.mask+1)
	for _, at := range old {
		if at != 0 {
			s.insert(at&placeMask - 1)
		}
	}
}

// insert puts the place into the index.
func (s *store) insert(place uint32) {
	mask := s.mask
	hash := s.entry(place).hash
	i := hash & mask
	for s.index[i] != 0 {
		i = (i + 1) & mask
	}
	s.index[i] = slotOf(hash, place)
}

// giveUp makes the place free.
func (s *store) giveUp(place uint32) {
	s.remove(place)
	s.entry(place).next, s.free = s.free, place
}

// remove takes the place out of the index and out of its list.
func (s *store) remove(place uint32) {
	e := s.entry(place)
	s.unlink(e)
	mask := s.mask
	hole := e.hash & mask
	for s.index[hole]&placeMask != place+1 {
		hole = (hole + 1) & mask
	}
	// Whoever was pushed beyond the hole by others moves back into it.
	for i := (hole + 1) & mask; s.index[i] != 0; i = (i + 1) & mask {
		home := s.entry(s.index[i]&placeMask-1).hash & mask
		if (i-home)&mask >= (i-hole)&mask {
			s.index[hole], hole = s.index[i], i
		}
	}
	s.index[hole] = 0
}

func (s *store) unlink(e *entry) {
	l := &s.lists[e.class]
	if e.prev == none {
		l.newest = e.next
	} else {
		s.entry(e.prev).next = e.next
	}
	if e.next == none {
		l.oldest = e.prev
	} else {
		s.entry(e.next).prev = e.prev
	}
}

// push makes the entry the newest of the class.
func (s *store) push(place uint32, e *entry, class uint8) {
	l := &s.lists[class]
	e.class, e.prev, e.next = class, none, l.newest
	if l.newest == none {
		l.oldest = place
	} else {
		s.entry(l.newest).prev = place
	}
	l.newest = place
}

// move makes the entry the newest of the class.
func (s *store) move(place uint32, e *entry, class uint8) {
	if s.lists[class].newest == place {
		return
	}
	s.unlink(e)
	s.push(place, e, class)
}

const (
	// maxDuration bounds windows and locks.
	maxDuration = 10 * 365 * 24 * time.Hour
	// allOver is a time after which every window and every lock is over.
	allOver = int64(2 * maxDuration)
	// farthest bounds readings, so that sums of them stay within an int64.
	farthest = int64(1) << 61
	// jitter is how far readings may go back without a step of the clock:
	// callers read it before they get the lock.
	jitter = int64(10 * time.Millisecond)
)

// reading turns a time into nanoseconds since base. Readings never go back:
// where the clock was stepped back, time stands still for that moment and goes
// on from there, so nothing lasts longer than it was meant to. ok is false for
// the zero time.
func (s *store) reading(now time.Time) (t int64, ok bool) {
	t = int64(now.Sub(s.base))
	if uint64(t-s.last) > uint64(allOver) || t > farthest { //nolint:gosec // wraps around on purpose: what lies before last is large
		return s.stepped(now, t)
	}
	s.last = t
	return t, true
}

// stepped is reading for the first time of all, and for one that lies before
// the last one, or so far after it that everything is over.
func (s *store) stepped(now time.Time, t int64) (int64, bool) {
	t = max(t, -farthest)
	switch {
	case now.IsZero():
		return 0, false
	case t > s.last:
		s.reset()
		s.base, s.last = now, 0
	case monotonic(now) && monotonic(s.base), s.last-t < jitter:
		// It was read first and got the lock last; so it is at least as late as last.
	default:
		s.base = now.Add(-time.Duration(s.last))
	}
	return s.last, true
}

// monotonic is true for a time that was read from a clock that never steps.
func monotonic(t time.Time) bool { return t != t.Round(0) }
