package xapi

import "maps"

// operations returns the handlers of all messages, by call ("tunnel.create").
func operations() map[string]handler {
	all := map[string]handler{}
	for _, class := range []map[string]handler{
		tunnelMessages(), pifMessages(), pifRecordMessages(), networkMessages(), vlanMessages(), bondMessages(), vifMessages(), vmMessages(), hostMessages(), poolMessages(),
		sessionMessages(), eventMessages(), taskMessages(),
	} {
		maps.Copy(all, class)
	}
	return all
}
