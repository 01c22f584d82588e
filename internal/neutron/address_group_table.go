package neutron

func addressGroupTable() *Table[*AddressGroupView] {
	std := func(o *AddressGroupView) *Standard { return &o.Standard }
	cols := []column[*AddressGroupView]{idColumn(std), nameColumn(std), descriptionColumn(std)}
	cols = append(cols, projectColumns(std)...)
	cols = append(cols,
		row(Attribute{Name: "addresses", Create: true, Default: unset{}, Computed: true, Type: "list of cidrs",
			Doc: "host bits are cleared; changed by add_addresses and remove_addresses", parse: nullAs([]any{}, prefixList)},
			jsonValue(func(b []byte, o *AddressGroupView) []byte { return appendList(b, o.Addresses, appendPrefix) })),
		row(Attribute{Name: "shared", Filter: true, Type: "boolean", Doc: "the caller sees it because it is shared"},
			flagValue(func(o *AddressGroupView) bool { return o.Shared })),
	)
	return newTable(AddressGroups, append(cols, lastColumns(std)...))
}
