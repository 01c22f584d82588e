package selector_test

import (
	"fmt"

	"heddle/calico/selector"
)

func Example() {
	s, err := selector.Parse(`role in {'web', "db",} && !!has(tier)`)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s)
	fmt.Println(s.Match(selector.Map{"role": "web", "tier": ""}))
	fmt.Println(s.Match(selector.Map{"role": "web"}))
	// Output:
	// (role in {"db", "web"} && has(tier))
	// true
	// false
}

func ExampleParse_error() {
	_, err := selector.Parse(`role = "web"`)
	fmt.Println(err)
	// Output: selector, at byte 6: want ==, !=, in or not in after a label, not "= \"web\""
}
