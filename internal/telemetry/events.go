package telemetry

// Event is a log message that operators look for. Its id stays the same when the message is
// reworded.
type Event struct{ ID, Message string }

// Events returns the messages that have an id in the journal (MESSAGE_ID).
func Events() []Event {
	return []Event{
		{"55f9730af7b5473faceea680c268c914", "the store does not answer; going on with what was known last"},
		{"0e84317866584f72bb1f59bdf57de5a5", "the store answers again"},
		{"492886653472459ca936968a2723b4b6", "the store refuses this process; going on with what was known last"},
		{"bc4acc0b862a4b478a321d367dc65f09", "the store cannot be reached; waiting for it"},
		{"64d348b3cb9a4519956e9d3b68ddd6b6", "the store is full; only deletions and log-ins are accepted"},
		{"0defb6dbb3dd4633b6fea0cb6a2cfd84", "the store has space again"},
		{"0017acc4cce94cf1a256dd1c48c91353", "the disk is nearly full; accepting no writes"},
		{"015da1a1028b4ef9a4d04c6081a14f3c", "the disk has space again; accepting writes"},
		{"60b226d4182948928214894159592641", "request failed"},
		{"133b22f24e8149fc93afe2a0edabcb1c", "parts of this process hang"},
		{"6bd8f61fb3f144a3a76bdd296ded1d73", "reloaded"},
		{"f539e11e1dd94a5181d0bdcf1a002a53", "cannot use the changed certificate; keeping the one in force"},
		{"1172230b8182424cb92c0b28e27691f3", "cannot renew the certificate of this host, will try again"},
		{"9b3c515eb12544aa86d0e6e22c55f90b", "host joined"},
		{"9e779894d2a94aab828d4afdcdcd70da", "host removed"},
		{"c44114239d3a400eb8d9bcc32317b9da", "cut off host, which exceeded its limits in the store"},
		{"3ba47e49e592400b9b59c4d45ab9a2cc", "this agent is displaced: it reports nothing, and other hosts may send it no frames"},
		{"b067834a9fbf4da89f48dc83fefc176c", "this agent is no longer displaced; reporting again"},
		{"02381d831ea642a8b560693c75e38f50", "no path to host"},
		{"61fe78840e3e4d49b79824a9d072feca", "nothing arrives from a host by its tunnel, though its agent is alive"},
		{"b4917ed24997493db04c34f69a951639", "nothing arrives at a host by the tunnel to it, though its agent is alive"},
		{"1b408c031fa6477ab377b1ea015499f1", "not carrying a physical network"},
		{"87e0779a2166438d92ef856bee3a4f4b", "carrying a physical network"},
		{"a702c80e606c44c5bb72f9f4866a3185", "failed, will try again"},
		{"6fa34c42278a441fb3d89d7977826764", "no block of NAT ports is left to lease: connections that need more are dropped"},
		{"cb4c9dc2492040fea391ac2954c7828b", "records of logs are written again"},
		{"484b5635ad28426ebe92add62a7e0b29", "leaving out further log records of a message"},
	}
}
