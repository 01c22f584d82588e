package tunnel

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

// labs is the number of labs at once: tests wait for daemons most of the time, not for a processor.
const labs = 5

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		if err := f.Value.Set(strconv.Itoa(labs)); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
