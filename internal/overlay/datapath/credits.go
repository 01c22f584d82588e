package datapath

// The words of a port's entry.
const (
	creditWords = 2
	takenWord   = 0
	givenWord   = 1
)

// credits holds what the upcalls of each port have taken and what was given back, in memory shared
// with the programs; index 0 stands for all ports.
type credits struct{ memory *sharedWords }

// giveBack lets the port's next upcalls in.
func (c *credits) giveBack(p Port, cost uint32) {
	if p == 0 {
		return // state messages take none
	}
	for _, i := range [...]uint32{0, index(uint32(p))} {
		if i < maxPorts {
			c.memory.add(int(i)*creditWords+givenWord, cost)
		}
	}
}

// settle returns the credits of frames that were lost on their way to the handler, as when an agent
// dies. It is called when nothing waits. A frame that comes up at that moment may be credited
// twice, until the next call.
func (c *credits) settle() {
	if c.memory.load(takenWord) == c.memory.load(givenWord) {
		return
	}
	for i := range maxPorts {
		taken := c.memory.load(i*creditWords + takenWord)
		if taken != c.memory.load(i*creditWords+givenWord) {
			c.memory.store(i*creditWords+givenWord, taken)
		}
	}
}
