package policy

// maxStamps bounds the requests that all logs together have room for: 64 MB.
const maxStamps = 8 << 20

// ring holds the readings of an identity's requests, oldest first.
type ring struct {
	stamps []int64
	first  uint32
}

// logs are the requests of all entries, by their place. How many there are is
// the entry's count.
type logs struct {
	limit int
	total int // room in all rings
	most  int // from which on it doesn't grow without somebody being forgotten
	rings []ring
}

func newLogs(limit int) *logs { return &logs{limit: limit, most: maxStamps} }

// grows is true if one more request of the entry needs more room.
func (g *logs) grows(place uint32, e *entry) bool {
	return int(place) >= len(g.rings) || int(e.count) == len(g.rings[place].stamps)
}

// crowded is true if others have to be forgotten before a log may grow.
func (g *logs) crowded() bool { return g.total >= g.most }

func (g *logs) at(r *ring, i uint32) *int64 {
	return &r.stamps[(r.first+i)%uint32(len(r.stamps))] //nolint:gosec // at most maxLog
}

// oldest returns the reading of the oldest request that is remembered.
func (g *logs) oldest(place uint32) int64 {
	r := &g.rings[place]
	return *g.at(r, 0)
}

// drop forgets the requests up to the reading.
func (g *logs) drop(place uint32, e *entry, until int64) {
	if e.count == 0 {
		return
	}
	r := &g.rings[place]
	for e.count > 0 && *g.at(r, 0) <= until {
		r.first = (r.first + 1) % uint32(len(r.stamps)) //nolint:gosec // at most maxLog
		e.count--
	}
}

// add remembers a request.
func (g *logs) add(place uint32, e *entry, t int64) {
	for int(place) >= len(g.rings) {
		g.rings = append(g.rings, ring{})
	}
	r := &g.rings[place]
	if int(e.count) == len(r.stamps) {
		stamps := make([]int64, min(max(2*len(r.stamps), 4), g.limit))
		for i := range e.count {
			stamps[i] = *g.at(r, i)
		}
		g.total += len(stamps) - len(r.stamps)
		r.stamps, r.first = stamps, 0
	}
	*g.at(r, e.count) = t
}

// clear forgets all requests and gives their room back.
func (g *logs) clear(place uint32, e *entry) {
	e.count = 0
	if int(place) < len(g.rings) {
		g.total -= len(g.rings[place].stamps)
		g.rings[place] = ring{}
	}
}
