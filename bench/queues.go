package main

import (
	"fmt"
	"os"
)

// compareQueues lets each queue have its turn in each round.
func compareQueues(p plan) error {
	for _, producers := range p.producers {
		rows := make([]row, len(p.peers))
		for round := range p.rounds {
			for i, peer := range p.peers {
				rows[i].name = peer
				o := order{What: "queue", Peer: peer, Dir: p.dir, Producers: producers, Time: p.time}
				if peer == "ours" && round == p.rounds-1 {
					o.Profile = p.profile
				}
				values, err := turn(o, tracing{delay: p.delay})
				if err != nil {
					return err
				}
				rows[i].rounds = append(rows[i].rounds, values)
			}
			fmt.Fprintf(os.Stderr, "queue: %d producers, round %d of %d\n", producers, round+1, p.rounds)
		}
		if p.delay == 0 && p.syncs {
			if err := countRound(p, producers, rows); err != nil {
				return err
			}
		}
		table(fmt.Sprintf("producers: %d", producers), rows,
			perSecond, syncsEach, acceptP50, acceptP99, toWireP50, allocs, bytes, cpuTime)
	}
	return nil
}

// countRound lets each queue have one more turn under strace. Nothing but the
// number of syncs is taken from it, since a stop at each of them costs time.
func countRound(p plan, producers int, rows []row) error {
	for i := range rows {
		o := order{What: "queue", Peer: rows[i].name, Dir: p.dir, Producers: producers, Time: p.time}
		values, err := turn(o, tracing{count: true})
		if err != nil {
			return err
		}
		rows[i].rounds = append(rows[i].rounds, map[string]float64{syncsEach: values[syncsEach]})
	}
	return nil
}
