package reach

// Of returns the set of some ranges, which may overlap.
func Of(ranges ...Range) Services {
	var all Services
	for _, r := range ranges {
		one := services([]Range{r})
		rest := one.Minus(&all)
		all = services(append(all.ranges(), rest.ranges()...))
	}
	return all
}

// Minus returns the services of s that are not in o.
func (s *Services) Minus(o *Services) Services {
	var left []Range
	for _, r := range s.ranges() {
		left = append(left, r.minus(o.ranges())...)
	}
	return services(left)
}

// And returns the services of s and o.
func (s *Services) And(o *Services) Services {
	rest := o.Minus(s)
	return services(append(s.ranges(), rest.ranges()...))
}

// ranges returns the set as ranges, in no order.
func (s *Services) ranges() (all []Range) {
	for _, p := range s.Whole() {
		all = append(all, Range{p, 0, 0xffff})
	}
	return append(all, s.parts...)
}

// minus returns the parts of a range that are in none of others.
func (r Range) minus(others []Range) []Range {
	left := []Range{r}
	for _, o := range others {
		if o.Proto != r.Proto {
			continue
		}
		var next []Range
		for _, x := range left {
			if o.High < x.Low || x.High < o.Low {
				next = append(next, x)
				continue
			}
			if x.Low < o.Low {
				next = append(next, Range{x.Proto, x.Low, o.Low - 1})
			}
			if o.High < x.High {
				next = append(next, Range{x.Proto, o.High + 1, x.High})
			}
		}
		left = next
	}
	return left
}
