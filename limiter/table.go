package limiter

import (
	"hash/maphash"
	"strings"
)

const (
	// chunkSize is how many channels are allocated at once: 32 KiB, which the
	// allocator aligns to pages, and so each channel to a line of the cache.
	chunkSize = 512
	// fewestPlaces is the size of the smallest index, a power of two.
	fewestPlaces = 64
)

// table holds the channels by their names. They lie in chunks, close together
// and never moved, and an index of open addressing finds them: with a hundred
// thousand channels a look-up costs what the memory's misses cost, so there are few.
type table struct {
	seed      maphash.Seed
	places    []place // a power of two of them; the channel of a hash is at its place or soon after
	last      place   // of the places
	chunks    []*[chunkSize]channel
	n         int // channels
	ids       uint32
	free      []uint32             // ids below ids that hold no channel
	long      map[*channel]string  // names that are too long for their channels
	penalties map[*channel]penalty // of the channels that are closed
	hand      uint32               // the id that is looked at next when room is sought

	recent     *channel // the one looked up last
	recentName string   // as its caller gave it; "" if there is none
	unsaved    []*channel
	overflow   [2]*channel // shared by all chats, and all groups, that found no room
}

// inPlace is the longest name, in bytes, that is kept in the channel itself. The
// ids of all platforms are shorter; a longer one costs another look-up.
const inPlace = 22

const longName = inPlace + 1 // the size of all longer names

// place is one of the index: the id plus 1 of a channel, in as many bits as
// number the places, and above it bits of the name's hash; zero if it is free.
type place uint32

func (tb *table) init() {
	*tb = table{seed: maphash.MakeSeed(), places: make([]place, fewestPlaces)}
	tb.last = fewestPlaces - 1
}

// at returns the channel of that id.
func (tb *table) at(id uint32) *channel { return &tb.chunks[id/chunkSize][id%chunkSize] }

// where returns at which place the channel of that name is, or the next ones
// if others are there, and what is in its place above the id.
func (tb *table) where(name string) (home, tag place) {
	hash := maphash.String(tb.seed, name)
	return place(hash) & tb.last, place(hash>>32) &^ tb.last //nolint:gosec // its two halves
}

// find returns the channel of that name, nil if there is none.
func (tb *table) find(name string) *channel {
	home, tag := tb.where(name)
	for i := home; ; i = (i + 1) & tb.last {
		p := tb.places[i]
		if p == 0 {
			return nil
		}
		if p&^tb.last == tag {
			if ch := tb.at(uint32(p&tb.last) - 1); tb.is(ch, name) {
				return ch
			}
		}
	}
}

// is reports whether that is the channel's name.
func (tb *table) is(ch *channel, name string) bool {
	if ch.size == longName {
		return tb.long[ch] == name
	}
	return string(ch.text[:ch.size]) == name
}

// name returns the channel's name.
func (tb *table) name(ch *channel) string {
	if ch.size == longName {
		return tb.long[ch]
	}
	return string(ch.text[:ch.size])
}

func (tb *table) setName(ch *channel, name string) {
	if len(name) <= inPlace {
		ch.size = uint8(copy(ch.text[:], name)) //nolint:gosec // at most inPlace
		return
	}
	if tb.long == nil {
		tb.long = make(map[*channel]string)
	}
	ch.size, tb.long[ch] = longName, strings.Clone(name)
}

// add returns a new channel of that name, which must not be known, with its
// other fields as they were left.
func (tb *table) add(name string) *channel {
	if 8*(tb.n+1) > 7*len(tb.places) {
		tb.grow()
	}
	id := tb.ids
	if k := len(tb.free); k > 0 {
		id, tb.free = tb.free[k-1], tb.free[:k-1]
	} else {
		if id%chunkSize == 0 {
			tb.chunks = append(tb.chunks, new([chunkSize]channel))
		}
		tb.ids++
	}
	tb.n++
	ch := tb.at(id)
	tb.setName(ch, name)
	tb.put(id, name)
	return ch
}

// put puts the channel of that id and name in the index.
func (tb *table) put(id uint32, name string) {
	i, tag := tb.where(name)
	for tb.places[i] != 0 {
		i = (i + 1) & tb.last
	}
	tb.places[i] = tag | place(id) + 1
}

func (tb *table) grow() {
	tb.places = make([]place, 2*len(tb.places))
	tb.last = 2*tb.last + 1
	for id := range tb.ids {
		if ch := tb.at(id); !ch.nameless() {
			tb.put(id, tb.name(ch))
		}
	}
}

// remove forgets the channel of that id.
func (tb *table) remove(id uint32) {
	ch := tb.at(id)
	i, _ := tb.where(tb.name(ch))
	for tb.places[i]&tb.last != place(id)+1 {
		i = (i + 1) & tb.last
	}
	// Whatever was pushed beyond the place that becomes free moves up to it.
	for j := (i + 1) & tb.last; tb.places[j] != 0; j = (j + 1) & tb.last {
		home, _ := tb.where(tb.name(tb.at(uint32(tb.places[j]&tb.last) - 1)))
		if (j-home)&tb.last >= (j-i)&tb.last {
			tb.places[i], i = tb.places[j], j
		}
	}
	tb.places[i] = 0
	if tb.recent == ch {
		tb.recent, tb.recentName = nil, ""
	}
	if ch.size == longName {
		delete(tb.long, ch)
	}
	if ch.is(isClosed) {
		delete(tb.penalties, ch)
	}
	*ch = channel{flags: ch.flags & isUnsaved} // it stays in the list, for who comes next
	tb.free = append(tb.free, id)
	tb.n--
}

// each calls f with every channel.
func (tb *table) each(f func(ch *channel)) {
	for id := range tb.ids {
		if ch := tb.at(id); !ch.nameless() {
			f(ch)
		}
	}
}

// touch notes that the channel's anchors have to be stored.
func (tb *table) touch(ch *channel) {
	if !ch.is(isUnsaved) {
		tb.unsaved = append(tb.unsaved, ch)
		ch.flags |= isUnsaved
	}
}

// penalty returns the channel's penalty.
func (tb *table) penalty(ch *channel) penalty {
	if !ch.is(isClosed) {
		return penalty{until: longAgo}
	}
	return tb.penalties[ch]
}

// close imposes p on the channel.
func (tb *table) close(ch *channel, p penalty) {
	if tb.penalties == nil {
		tb.penalties = make(map[*channel]penalty)
	}
	ch.flags |= isClosed
	tb.penalties[ch] = p
}

// closed returns how long the channel's penalty still holds, and forgets it once it is over.
func (tb *table) closed(t int64, ch *channel) int64 {
	p := tb.penalties[ch]
	left := p.wait(t)
	if left == 0 {
		delete(tb.penalties, ch)
		ch.flags &^= isClosed
	}
	return left
}
