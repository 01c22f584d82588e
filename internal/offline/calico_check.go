package offline

import (
	"cmp"
	"context"
	"errors"
	"io"
	"strings"

	"heddle/internal/policy/judge"
)

// CheckOptions say how Check decides and what it prints.
type CheckOptions struct {
	JSON       bool // one JSON document instead of text for people
	Extensions bool // read the selector operators of later versions
	Kernel     bool // send real packets past the rules of a kernel, as root, instead of calculating
}

// checkedFile is the output (file-formats §3).
type checkedFile struct {
	Cases []checkedCase `json:"cases"`
}

// checkedCase is the outcome of one case, or why it cannot be judged.
type checkedCase struct {
	ID      any             `json:"id,omitempty"`
	Error   string          `json:"error,omitempty"`
	Invalid []string        `json:"invalid,omitempty"` // objects that are refused, and why
	Packets []checkedPacket `json:"packets,omitzero"`
	title   string
	name    string
	unsent  error // of the first packet that could not be sent
}

// checkedPacket is the result for one packet.
type checkedPacket struct {
	Verdict   string `json:"verdict"` // allow or deny; notSendable
	OK        *bool  `json:"ok"`      // nil: nothing was expected
	DecidedBy string `json:"decided_by"`
	packet    policyPacket
	walk      []judge.Step
}

// notSendable is the verdict about a packet that --kernel cannot send: what it says is not known.
const notSendable = "not-sendable"

// Check reads cases of endpoints, profiles and policies, as the store has them, and says of each
// packet whether it would be allowed, and what decides. It returns a [FileError] when the file, or
// one of its cases, is not what the format wants (the other cases are judged and printed all the
// same), and [ErrExpectation] when a verdict is not the expected one. An object that the model
// refuses is no fault of the file: it counts for what it counts for in a store, and is named.
func Check(ctx context.Context, in io.Reader, opts CheckOptions, out io.Writer) error {
	if opts.Kernel && opts.Extensions {
		return fileErrorf("", "--kernel: the agent does not read selector operators of later versions, so --extensions cannot be true of it")
	}
	root, err := parse(in)
	if errors.Is(err, ErrManyDocuments) {
		return fileErrorf("", "there is more than one document: %s", notCases)
	}
	if err != nil {
		return err
	}
	cases, err := policyCases(root)
	if err != nil {
		return err
	}
	results := checkedFile{Cases: []checkedCase{}}
	var wrong error
	for i, n := range cases {
		done, err := checkCase(ctx, n, opts)
		fault := cmp.Or(err, done.unsent)
		if _, isList := root.value.([]any); isList {
			setPath(fault, n.place, root.at(i))
		} else {
			setPath(fault, n.place, "")
		}
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			if len(cases) == 1 {
				return err
			}
			done = checkedCase{ID: done.ID, name: n.place, Error: err.Error()}
		}
		wrong = cmp.Or(wrong, fault)
		results.Cases = append(results.Cases, done)
	}
	if err := results.print(opts.JSON, out); err != nil {
		return err
	}
	if wrong != nil {
		return wrong
	}
	return results.expectations()
}

// notCases is the problem with a file that was written for another command.
const notCases = "these are objects, for `heddle calico apply`; `check` reads cases, see --help"

// policyCases are the cases of a file: a list, or one alone. Each is placed by its name.
func policyCases(root node) ([]node, error) {
	cases := []node{root}
	if _, isList := root.value.([]any); isList {
		var err error
		if cases, err = root.list(); err != nil {
			return nil, err
		}
	}
	for i := range cases {
		if o, err := cases[i].anyObject(); err == nil && o.has("kind") && o.has("metadata") {
			return nil, fileErrorf(cases[i].place, "%s", notCases)
		}
		cases[i].place = caseName(cases[i], i+1)
	}
	return cases, nil
}

// setPath gives a FileError about a case, which is placed by the case's name, its path in the file.
func setPath(err error, name, path string) {
	var wrong *FileError
	if errors.As(err, &wrong) {
		wrong.path = strings.TrimPrefix(path+strings.TrimPrefix(wrong.Place, name), ".")
	}
}

// checkCase judges the packets of one case.
func checkCase(ctx context.Context, n node, opts CheckOptions) (done checkedCase, err error) {
	if o, err := n.anyObject(); err == nil {
		done.ID = o.get("id").value
	}
	c, err := readPolicyCase(n)
	if err != nil {
		return done, err
	}
	w, err := c.world(opts.Extensions)
	if err != nil {
		return done, err
	}
	done.title, done.name, done.Invalid, done.Packets = c.title, c.place, w.invalid, []checkedPacket{}
	verdicts := w.judge(c.packets)
	answers := make([]answer, len(verdicts))
	for i, v := range verdicts {
		answers[i].Verdict = v
	}
	if opts.Kernel {
		if answers, err = w.ask(ctx, c, verdicts); err != nil {
			return done, err
		}
	}
	for i, p := range c.packets {
		v := answers[i]
		r := checkedPacket{Verdict: "deny", DecidedBy: v.By, packet: p, walk: v.Walk}
		switch {
		case v.unsent != nil:
			r.Verdict, r.DecidedBy = notSendable, v.unsent.Error()
			done.unsent = cmp.Or(done.unsent, v.unsent)
			done.Packets = append(done.Packets, r)
			continue
		case v.Allowed:
			r.Verdict = "allow"
		}
		if p.expect != "" {
			met := p.expect == r.Verdict
			r.OK = &met
		}
		done.Packets = append(done.Packets, r)
	}
	return done, nil
}

// expectations is ErrExpectation if one failed.
func (f *checkedFile) expectations() error {
	for _, c := range f.Cases {
		for _, p := range c.Packets {
			if p.OK != nil && !*p.OK {
				return ErrExpectation
			}
		}
	}
	return nil
}

func (f *checkedFile) print(asJSON bool, out io.Writer) error {
	if asJSON {
		return printJSON(out, f)
	}
	var l lines
	met, total := 0, 0
	for i, c := range f.Cases {
		if i > 0 {
			l.add("")
		}
		l.add("%s", strings.TrimSuffix(c.name+": "+c.title, ": "))
		if c.Error != "" {
			l.add("  cannot be judged: %s", c.Error)
			continue
		}
		for _, reason := range c.Invalid {
			l.add("  invalid: %s", reason)
		}
		for j, p := range c.Packets {
			l.checkedPacket(j+1, &p)
			if p.OK != nil {
				total++
				if *p.OK {
					met++
				}
			}
		}
	}
	l.add("")
	l.add("%d of %d expectations met", met, total)
	return l.writeTo(out)
}

func (l *lines) checkedPacket(number int, p *checkedPacket) {
	l.add("  %d. %s", number, &p.packet)
	for _, s := range p.walk {
		l.add("       %s: %s", s.Where, s.What)
	}
	verdict := p.Verdict + " by " + p.DecidedBy
	switch {
	case p.Verdict == notSendable:
		verdict = "not sendable: " + p.DecidedBy
	case p.OK == nil:
	case *p.OK:
		verdict += ": as expected"
	default:
		verdict += ": NOT as expected"
		if p.packet.why != "" {
			verdict += " (" + p.packet.why + ")"
		}
	}
	l.add("     %s", verdict)
}
