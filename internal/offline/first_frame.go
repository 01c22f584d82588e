package offline

import (
	"context"
	"fmt"
	"io"

	"heddle/internal/topology/flow"
	"heddle/internal/topology/simulate"
)

// FirstFrame is the frame that the first step of a scenario sends, in the network of the scenario.
// It can be simulated any number of times: what it leaves behind is not remembered.
type FirstFrame struct {
	simulator *simulate.Simulator
	in        simulate.Input
}

// OpenFirstFrame builds the network of a file's first scenario. A frame that no port gets is an
// error.
func OpenFirstFrame(ctx context.Context, in io.Reader) (*FirstFrame, error) {
	file, err := readScenarioFile(in)
	if err != nil {
		return nil, err
	}
	if len(file.scenarios) == 0 {
		return nil, fileErrorf("scenarios", "is empty")
	}
	o, err := file.scenarios[0].anyObject()
	if err != nil {
		return nil, err
	}
	w, end, err := newWorld(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	system, err := startScenario(w, o, placement{})
	if err != nil {
		return nil, err
	}
	steps, err := o.get("steps").list()
	if err != nil {
		return nil, err
	}
	if len(steps) == 0 {
		return nil, fileErrorf(o.under("steps"), "wants a step that sends a frame")
	}
	f := &FirstFrame{simulator: system.simulator}
	r, err := newRun(system, o, f.keep(system))
	if err != nil {
		return nil, err
	}
	if _, err := r.step(steps[0]); err != nil {
		return nil, err
	}
	if d := f.Simulate(); d.Verdict != flow.Forward {
		return nil, fileErrorf(steps[0].place, "the frame is not delivered: %v", d.Drops)
	}
	return f, nil
}

// keep returns the carry that keeps a frame as the simulator's input.
func (f *FirstFrame) keep(y *system) carry {
	return func(port string, frame []byte) (passage, error) {
		port, frame = y.entry(port, frame)
		if y.ports.ids[port] == "" {
			return passage{}, fmt.Errorf("%s is no port", port)
		}
		f.in = simulate.Input{PortID: y.ports.ids[port], Frame: frame, State: y.memory}
		return passage{}, nil
	}
}

// Simulate returns the decision on the frame.
func (f *FirstFrame) Simulate() *flow.Decision { return f.simulator.Run(f.in) }
