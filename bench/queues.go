package main

import "fmt"

// compareQueues compares the queues for each number of producers.
func compareQueues(p plan) error {
	for _, producers := range p.producers {
		title := fmt.Sprintf("producers: %d", producers)
		rows, err := rounds(p.rounds, title, p.peers, func(i, round int) (order, tracing) {
			o := order{What: "queue", Peer: p.peers[i], Dir: p.dir, Producers: producers, Time: p.time}
			if o.Peer == "ours" && round == p.rounds-1 {
				o.Profile = p.profile
			}
			return o, tracing{delay: p.delay}
		})
		if err == nil && p.delay == 0 && p.syncs {
			err = countRound(p, producers, rows)
		}
		if err != nil {
			return err
		}
		table(title, rows, perSecond, syncsEach, acceptP50, acceptP99, toWireP50, allocs, bytes, cpuTime)
	}
	return nil
}

// countRound lets each queue have one more turn under strace. Nothing but the
// number of syncs is taken from it, since a stop at each of them costs time.
func countRound(p plan, producers int, rows []row) error {
	counted, err := rounds(1, "counting syncs", p.peers, func(i, _ int) (order, tracing) {
		return order{What: "queue", Peer: p.peers[i], Dir: p.dir, Producers: producers, Time: p.time}, tracing{count: true}
	})
	for i, c := range counted {
		syncs := map[string]float64{syncsEach: c.rounds[0][syncsEach]}
		rows[i].rounds = append(rows[i].rounds, syncs)
	}
	return err
}
