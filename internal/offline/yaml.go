package offline

import (
	"bytes"
	"errors"
	"io"

	"sigs.k8s.io/yaml"
	goyaml "sigs.k8s.io/yaml/goyaml.v2"
)

// ErrManyDocuments means that a text has more than one YAML document.
var ErrManyDocuments = errors.New("there is more than one document")

// DocumentJSON is the one document of a YAML text as JSON. A second one would be lost, so it is
// [ErrManyDocuments]; a key that is given twice is an error too.
func DocumentJSON(text []byte) ([]byte, error) {
	converted, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, err
	}
	d := goyaml.NewDecoder(bytes.NewReader(text))
	for documents := 0; ; documents++ {
		var skipped any
		switch err := d.Decode(&skipped); {
		case err == io.EOF:
			return converted, nil
		case err != nil:
			return nil, err
		case documents > 0:
			return nil, ErrManyDocuments
		}
	}
}
