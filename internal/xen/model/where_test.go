package model

import (
	"strings"
	"testing"
)

// bridges is a record that expressions are tried on.
func bridges() Record {
	r := New("PIF")
	r["device"], r["MTU"], r["physical"], r["IP"] = `eth"0`, int64(1500), true, ""
	return r
}

func TestWhere(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]bool{
		`true`:                                     true,
		`false`:                                    false,
		`not false`:                                true,
		`not not true`:                             true,
		`field "MTU"="1500"`:                       true,
		`field "MTU" = "01500"`:                    false,
		`"1500"=field "MTU"`:                       true,
		`"a"='a'`:                                  true,
		`field "device"="eth\"0"`:                  true,
		`field "physical" = "true"`:                true,
		`field "ip_configuration__mode"="None"`:    true,
		`field "network"="OpaqueRef:NULL"`:         true,
		`field "IP"=""`:                            true,
		`true or false and false`:                  true,
		`(true or false) and false`:                false,
		`not true or true`:                         true,
		`not (true or true)`:                       false,
		"(\tfield 'MTU'='1500'\n)and(not false)":   true,
		`false or false or true`:                   true,
		`true and true and false`:                  false,
		strings.Repeat("false or ", 5000) + "true": true,
	} {
		where, err := ParseWhere("PIF", expression)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
		} else if got := where.Match(bridges()); got != want {
			t.Errorf("%s: %t, want %t", expression, got, want)
		}
	}
}

// TestNotWhere: the error says what is wrong with an expression.
func TestNotWhere(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		``:                                     `the expression ends where a string should come`,
		`maybe`:                                `maybe comes where a string should`,
		`field`:                                `the expression ends where a string should come`,
		`field "MTU"`:                          `the expression ends where = should come`,
		`field "MTU"=`:                         `the expression ends where a string should come`,
		`field "MTU"=1500`:                     `1500 comes where a string should`,
		`field "mtu"="1500"`:                   `PIF has no field "mtu"`,
		`field "other_config"=""`:              `the field other_config of PIF holds many values, which cannot be compared`,
		`"a"="b`:                               `a string has no closing "`,
		`(true`:                                `the expression ends where ) should come`,
		`true)`:                                `) comes where the end should`,
		`true "or" true`:                       `"or" comes where the end should`,
		`true or`:                              `the expression ends where a string should come`,
		strings.Repeat("not ", 10000) + "true": `brackets and nots nest deeper than 100`,
		strings.Repeat("(", 10000) + "true":    `brackets and nots nest deeper than 100`,
	} {
		if _, err := ParseWhere("PIF", expression); err == nil || err.Error() != want {
			t.Errorf("%.40s: %v, want %s", expression, err, want)
		}
	}
	if _, err := ParseWhere("cloud", "true"); err == nil {
		t.Error("there is a class cloud")
	}
}

func FuzzWhere(f *testing.F) {
	for _, s := range []string{`field "MTU"="1500" and not (true or 'a'="\"")`, `field 'device' = "x" or false`, `((`, `"\`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, expression string) {
		where, err := ParseWhere("PIF", expression)
		if err != nil {
			return
		}
		got := where.Match(bridges())
		again, err := ParseWhere("PIF", "not ("+expression+")")
		if err != nil {
			if !strings.Contains(err.Error(), "deeper") {
				t.Fatalf("%q can be read, but not with not: %v", expression, err)
			}
			return
		}
		if again.Match(bridges()) == got {
			t.Fatalf("%q and its opposite are both %t", expression, got)
		}
	})
}
