package limiter

// A bucket here is a leaky one, turned into arithmetic ("generic cell rate
// algorithm"): instead of counting slots it keeps the reading at which it will
// be full again. How far that lies ahead is its level; a slot raises the level
// by the time in which one slot flows back.

// numbers are what a bucket is limited to, in nanoseconds.
type numbers struct {
	every int64 // in which one slot flows back
	burst int64 // slots in a full bucket
	depth int64 // burst × every: the level of an empty bucket
}

func numbersOf(r Rule) numbers {
	return numbers{every: int64(r.Every), burst: int64(r.Burst), depth: int64(r.Burst) * int64(r.Every)}
}

// on is false for a limit that doesn't exist.
func (n *numbers) on() bool { return n.every > 0 }

// never is the wait for a cost that no full bucket could pay.
const never = int64(1<<63 - 1)

// wait returns how long a bucket at that level refuses the cost; zero or less
// means that it is granted.
func (n *numbers) wait(level, cost int64) int64 {
	if cost < 1 || cost > n.burst {
		return never
	}
	return level + cost*n.every - n.depth
}

// maxMarks bounds the marks of one bucket.
const maxMarks = 32

// mark remembers the level that a reservation found. What an older reservation
// may give back is at most the lowest level found since: had it not been
// there, the bucket would have been full then, and the rest would have flowed over.
type mark struct {
	seq   uint64
	level int64
}

// state is what changes in a bucket.
type state struct {
	full  int64  // the reading at which it is full again
	since uint64 // reservations older than this have nothing left to give back
	marks *marks // after since
}

// marks are in order, both fields rising.
type marks struct{ list []mark }

// level returns how far the bucket is from full.
func (s *state) level(t int64) int64 { return max(s.full-t, 0) }

// take is the reservation seq, which found the level and makes the bucket full
// again at that reading.
func (s *state) take(level, full int64, seq uint64) {
	s.full = full
	if level != 0 || s.marks != nil {
		s.note(level, seq)
		return
	}
	s.since = seq
}

// note remembers the level that the reservation seq found. It is apart from
// take, which mostly finds a full bucket and so fits into its caller.
//
//go:noinline
func (s *state) note(level int64, seq uint64) {
	if level == 0 {
		s.clear(seq)
		return
	}
	s.mark(level, seq)
}

// clear forgets what older reservations could give back.
func (s *state) clear(seq uint64) {
	s.since = seq
	if s.marks != nil {
		s.marks.list = s.marks.list[:0]
	}
}

func (s *state) mark(level int64, seq uint64) {
	if s.marks == nil {
		s.marks = &marks{}
	}
	list := s.marks.list
	n := len(list)
	for n > 0 && list[n-1].level >= level {
		n--
	}
	list = append(list[:n], mark{seq: seq, level: level})
	if len(list) > maxMarks {
		// The two oldest become one with the lower level: a little less can be given back.
		list[1].level = list[0].level
		list = append(list[:0], list[1:]...)
	}
	s.marks.list = list
}

// giveBack lowers the level by what the reservation seq took and what has not
// flowed over since. It returns whether anything changed.
func (s *state) giveBack(t, amount int64, seq uint64) bool {
	level := s.level(t)
	if level == 0 || seq < s.since {
		return false
	}
	amount = min(amount, level)
	if s.marks != nil {
		amount = s.lower(amount, seq)
	}
	s.full -= amount
	return amount > 0
}

// lower takes the amount, or as much as there is, from all marks after seq, and
// returns how much that was.
func (s *state) lower(amount int64, seq uint64) int64 {
	list := s.marks.list
	first := len(list)
	for first > 0 && list[first-1].seq > seq {
		first--
	}
	if first == len(list) {
		return amount
	}
	amount = min(amount, list[first].level)
	for i := first; i < len(list); i++ {
		list[i].level -= amount
	}
	s.tidy(first)
	return amount
}

// tidy restores the rising order after the marks from first on were lowered.
func (s *state) tidy(first int) {
	list := s.marks.list
	if list[first].level <= 0 {
		s.since = list[first].seq
		s.marks.list = append(list[:0], list[first+1:]...)
		return
	}
	keep := first
	for keep > 0 && list[keep-1].level >= list[first].level {
		keep--
	}
	s.marks.list = append(list[:keep], list[first:]...)
}

// penalty is a closed door.
type penalty struct {
	until  int64 // reading
	length int64 // as it was imposed
}

// wait returns how long the penalty still holds, zero if it is over.
func (p *penalty) wait(t int64) int64 { return max(p.until-t, 0) }

// lengthen makes the penalty last at least for d from t on; it never shortens it.
func (p *penalty) lengthen(t, d int64) {
	if d > p.wait(t) {
		*p = penalty{until: t + d, length: d}
	}
}
