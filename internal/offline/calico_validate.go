package offline

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"heddle/calico"
)

// ValidateOptions change what Validate takes and how it prints.
type ValidateOptions struct {
	JSON       bool // raw values as JSON too
	Extensions bool // selectors may have the operators of later versions
}

// Validate reads a value of Calico's data model as it is stored, and prints its canonical form.
// What is wrong with the value comes back as an error that is no [FileError]; that is for kinds
// that do not exist.
func Validate(kind string, in io.Reader, opts ValidateOptions, out io.Writer) error {
	k := calico.Kind(kind)
	if kinds := ValidateKinds(); !slices.Contains(kinds, kind) {
		return fileErrorf("", "kind %q: there is none; want one of %s", kind, strings.Join(kinds, ", "))
	}
	value, err := io.ReadAll(in)
	if err != nil {
		return fileErrorf("", "%v", err)
	}
	var options []calico.Option
	if opts.Extensions {
		options = append(options, calico.SelectorExtensions())
	}
	object, err := calico.DecodeAs(k, value, options...)
	if err != nil {
		return newlineHint(k, value, err)
	}
	switch o := object.(type) {
	case *calico.Block:
		if err := o.Check(); err != nil {
			return err
		}
	case bool:
		if !o {
			return newlineHint(k, value, fmt.Errorf(`%s: %q: want exactly true; agents wait until then`, kind, value))
		}
	case *calico.IPAMHost:
		return nil // nothing is stored there
	}
	text, err := calico.EncodeAs(k, object, options...)
	if err != nil {
		return err
	}
	if opts.JSON && isRaw(k) {
		text = []byte(quoteJSON(string(text)))
	}
	_, err = fmt.Fprintf(out, "%s\n", text)
	return err
}

// isRaw reports whether values of a kind are stored without JSON.
func isRaw(kind calico.Kind) bool {
	switch kind {
	case calico.KindReady, calico.KindHostIP, calico.KindProfileRefcount, calico.KindNeutronElection,
		calico.KindGlobalConfig, calico.KindHostConfig, calico.KindBGPGlobalConfig, calico.KindBGPNodeConfig:
		return true
	}
	return false
}

// newlineHint adds a hint about the newline that editors and echo put at the end of a file.
func newlineHint(kind calico.Kind, value []byte, err error) error {
	if isRaw(kind) && strings.HasSuffix(string(value), "\n") {
		return fmt.Errorf("%w; the newline at its end would be stored too", err)
	}
	return err
}

// ValidateKinds are the kinds of values that Validate takes.
func ValidateKinds() []string {
	var kinds []string
	for _, k := range append(calico.Kinds(), calico.KindBGPPeer, calico.KindNodeMesh) {
		kinds = append(kinds, string(k))
	}
	return kinds
}
