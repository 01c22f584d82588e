package control

import "math/rand/v2"

// testRandom returns a source of chance that is the same in every run.
func testRandom() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }
