package control_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain plays fewer random games than rapid does by default, since each checks the whole store
// after every step. -rapid.checks plays more.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "12"); err != nil {
		panic(err)
	}
	flag.Parse() // what is given there counts
	os.Exit(m.Run())
}
