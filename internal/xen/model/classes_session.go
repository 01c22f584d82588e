package model

import "time"

var taskClass = Class{
	Name: "task", Role: ReadOnly,
	Doc: "What a call made with Async came to.",
	Fields: fields([]Field{uuid()}, []Field{fixed("name_label", text), fixed("name_description", text)}, operations(), []Field{
		kept("created", moment),
		kept("finished", moment, time.Unix(0, 0).UTC()),
		kept("status", enum("pending", "success", "failure", "cancelling", "cancelled"), "pending"),
		kept("resident_on", ref("host")),
		kept("progress", float),
		kept("type", text),
		kept("result", text).says("<value>…</value> of XML-RPC; empty for nothing"),
		kept("error_info", texts).says("code and parameters"),
		open("other_config", pairs),
		kept("subtask_of", ref("task")),
		far("subtasks", refs("task"), "task", "subtask_of"),
		kept("backtrace", text, "()"),
	}),
	Messages: []Message{
		{Name: "create", Doc: "Make a task of a client's own.",
			Params: []Param{need("label", text), need("description", text)}, Result: ref("task")},
		{Name: "destroy", Doc: "Remove it.",
			Params: self("task")},
		{Name: "cancel", Doc: "Ask that it stop.",
			Params: []Param{need("task", ref("task"))}, Errors: []string{"OPERATION_NOT_ALLOWED"}},
	},
}

var sessionClass = Class{
	Name: "session", Role: ReadOnly, NoList: true,
	Doc: "A client's session. References to it are what calls take first.",
	Fields: []Field{
		uuid(),
		kept("this_host", ref("host")),
		kept("this_user", ref("user")),
		kept("last_active", moment),
		kept("pool", truth),
		open("other_config", pairs),
		kept("is_local_superuser", truth),
		kept("subject", ref("subject")),
		kept("validation_time", moment),
		kept("auth_user_sid", text),
		kept("auth_user_name", text),
		kept("rbac_permissions", texts),
		kept("tasks", refs("task")),
		kept("parent", ref("session")),
		kept("originator", text),
		kept("client_certificate", truth),
	},
	Messages: []Message{
		{Name: "login_with_password", Doc: "Begin a session.",
			NoLogin: true, Params: []Param{need("uname", text), need("pwd", text), may("version", text, ""), may("originator", text, "")}, Result: ref("session"),
			Errors: []string{"SESSION_AUTHENTICATION_FAILED", "HOST_IS_SLAVE"}},
		{Name: "logout", Doc: "End this session."},
	},
}

var eventClass = Class{
	Name: "event", Role: ReadOnly, NoList: true, Value: true,
	Doc: "A change of an object.",
	Fields: []Field{
		kept("id", number),
		kept("timestamp", text, "0.0"),
		kept("class", text),
		kept("operation", enum("add", "mod", "del")),
		kept("ref", text),
		{Name: "snapshot", Type: Type{Kind: RecordOf}, Access: Dynamic},
	},
	Messages: []Message{
		{Name: "register", Doc: "Let event.next answer events of these classes (* for all) from now on.",
			Params: []Param{need("classes", texts)}},
		{Name: "unregister", Doc: "Have no more events of these classes.",
			Params: []Param{need("classes", texts)}},
		{Name: "next", Doc: "Wait for events since the last call and answer them.",
			Result: setOf(Type{Kind: RecordOf, Class: "event"}), Errors: []string{"SESSION_NOT_REGISTERED", "EVENTS_LOST"}},
		{Name: "from", Doc: "Answer the events of classes (* for all, CLASS/REF for one object) since a token, \"\" for the beginning; wait for one at most as many seconds as the timeout.",
			Params: []Param{need("classes", texts), need("token", text), need("timeout", float)}, Result: Type{Kind: RecordOf, Class: "event_batch"}, Errors: []string{"EVENT_FROM_TOKEN_PARSE_FAILURE"}},
		{Name: "inject", Doc: "Have an event of an object that has not changed, and answer the token before it.",
			Params: []Param{need("class", text), need("ref", text)}, Result: text},
		{Name: "get_current_id", Doc: "The number of the last event.",
			Result: number},
	},
}

// eventBatchClass is the class of event.from's answers. Its counts are by class, in lower case.
var eventBatchClass = Class{
	Name: "event_batch", Role: ReadOnly, NoList: true, Value: true,
	Doc: "What event.from answers: the events, the token to ask with next, and how many objects each class has.",
	Fields: []Field{
		kept("events", setOf(Type{Kind: RecordOf, Class: "event"})),
		kept("token", text),
		kept("valid_ref_counts", mapOf(number)),
	},
}

// systemClass holds the calls that are of no object.
var systemClass = Class{
	Name: "system", Role: ReadOnly, NoList: true,
	Doc: "Calls about the server.",
	Messages: []Message{
		{Name: "listMethods", Doc: "The names of all calls.",
			NoLogin: true, Result: texts},
		{Name: "isAlive", Doc: "Whether the server lives; called as system.isAlive:TEXT.",
			NoLogin: true, Result: truth},
	},
}

var roleClass = Class{
	Name: "role", Role: ReadOnly,
	Doc: "What an account may do.",
	Fields: []Field{
		uuid(),
		fixed("name_label", text),
		fixed("name_description", text),
		fixed("subroles", refs("role")),
		kept("is_internal", truth),
	},
}

var userClass = Class{
	Name: "user", Role: PoolAdmin,
	Doc: "An account.",
	Fields: []Field{
		uuid(),
		fixed("short_name", text),
		open("fullname", text),
		open("other_config", pairs),
	},
}
