package neutron

import "strconv"

// QoSPolicyView is a policy as one caller sees it. The QoSPolicy is not to be modified.
type QoSPolicyView struct {
	*QoSPolicy
	Shared bool // as this caller sees it
}

// QoSRuleView is a rule of a policy.
type QoSRuleView struct {
	QoSRule
	PolicyID string
}

// QoSRuleTypeView is a type of rules and, where the request is about this type alone, what this
// server enforces of it.
type QoSRuleTypeView struct {
	QoSRuleType
	Detailed bool
}

func qosPolicyTable() *Table[*QoSPolicyView] {
	std := func(o *QoSPolicyView) *Standard { return &o.Standard }
	cols := []column[*QoSPolicyView]{
		idColumn(std),
		nameColumn(std),
		row(Attribute{Name: "shared", Create: true, Update: true, Default: false, Filter: true, Computed: true, Type: "boolean",
			Doc: "an RBAC policy shares it with the caller's project; true shares it with all", parse: flag}, flagValue(func(o *QoSPolicyView) bool { return o.Shared })),
	}
	cols = append(cols, projectColumns(std)...)
	cols = append(cols,
		row(Attribute{Name: "rules", Type: "list of objects", Doc: "made and changed below the policy"}, jsonValue(appendQoSRules)),
		row(Attribute{Name: "is_default", Create: true, Update: true, Default: false, Filter: true, Type: "boolean",
			Doc: "of one policy of a project at most: new networks of the project get it", parse: flag},
			flagValue(func(o *QoSPolicyView) bool { return o.Default })),
		descriptionColumn(std),
	)
	cols = append(cols, lastColumns(std)...)
	cols = append(cols, tagColumns(Attribute{Doc: "set through the tags sub-resource"}, std)...)
	return newTable(QoSPolicies, cols)
}

// attrQoSPolicy is the attribute that names a policy.
const attrQoSPolicy = "qos_policy_id"

// qosPolicyColumn names the policy that an object has.
func qosPolicyColumn[T any](doc string, get func(o T) string) column[T] {
	return row(Attribute{Name: attrQoSPolicy, Create: true, Update: true, Policed: true, Type: "uuid", Doc: doc, parse: orNull(uuid)},
		textOrNullValue(get))
}

// appendQoSRules appends the rules as a policy has them, each with its type and its policy. Of a
// type that a later version of the server knows it has no more.
func appendQoSRules(b []byte, o *QoSPolicyView) []byte {
	return appendList(b, o.Rules, func(b []byte, r QoSRule) []byte {
		t := QoSRuleTypeNamed(r.Type)
		b = appendString(append(b, `{"id":`...), r.ID)
		b = appendString(append(b, `,"qos_policy_id":`...), o.ID)
		b = appendString(append(b, `,"type":`...), r.Type)
		if t == nil {
			return append(b, '}')
		}
		b = strconv.AppendInt(append(b, `,"`+t.Value+`":`...), int64(r.Value), 10)
		if t.Burst != "" {
			b = strconv.AppendInt(append(b, `,"`+t.Burst+`":`...), int64(r.Burst), 10)
		}
		if t.Directions != nil {
			b = appendString(append(b, `,"direction":`...), r.Direction)
		}
		return append(b, '}')
	})
}

// qosRuleTables returns the tables of rules.
func qosRuleTables() map[Resource]*Table[*QoSRuleView] {
	tables := map[Resource]*Table[*QoSRuleView]{}
	for _, t := range QoSRuleTypes() {
		tables[t.Resource] = qosRuleTable(t, false)
		if t.Alias != 0 {
			tables[t.Alias] = qosRuleTable(t, true)
		}
	}
	return tables
}

// qosRuleTable returns the table of a type's rules, or with alias that of the resource that needs
// no policy, where rules are not made.
func qosRuleTable(t QoSRuleType, alias bool) *Table[*QoSRuleView] {
	attr := func(name, typ, doc string, def any, p parser) Attribute {
		return Attribute{Name: name, Create: !alias, Update: true, Default: def, Filter: true, Sort: true, Type: typ, Doc: doc, parse: p}
	}
	number := between(0, maxQoSValue)
	if t.Values != nil {
		number = oneOfNumbers(t.Values)
	}
	cols := []column[*QoSRuleView]{
		row(Attribute{Name: "id", Filter: true, Sort: true, Type: "uuid", Doc: "made by the server"},
			textValue(func(o *QoSRuleView) string { return o.ID })),
		row(attr(t.Value, "integer", t.Unit, required{}, number), numberValue(func(o *QoSRuleView) int64 { return int64(o.Value) })),
	}
	if t.Burst != "" {
		cols = append(cols, row(attr(t.Burst, "integer", "0 = 80 % of what the limit passes in a second", 0, between(0, maxQoSValue)),
			numberValue(func(o *QoSRuleView) int64 { return int64(o.Burst) })))
	}
	if t.Directions != nil {
		cols = append(cols, row(attr("direction", "string", "as seen from the machine", DirectionEgress, oneOf(t.Directions...)),
			textValue(func(o *QoSRuleView) string { return o.Direction })))
	}
	resource := t.Resource
	if alias {
		resource = t.Alias
	} else {
		for _, name := range []string{"tenant_id", "project_id"} {
			cols = append(cols, row(Attribute{Name: name, Create: true, Default: unset{}, Hidden: true, Type: "string",
				Doc: "means nothing: a rule is its policy's", parse: text(maxProject)}, value[*QoSRuleView]{}))
		}
	}
	return newTable(resource, cols)
}

func qosRuleTypeTable() *Table[*QoSRuleTypeView] {
	drivers := jsonValue(appendQoSDrivers)
	drivers.omit = func(o *QoSRuleTypeView, _ bool) bool { return !o.Detailed }
	return newTable(QoSRuleTypeNames, []column[*QoSRuleTypeView]{
		row(Attribute{Name: "type", Type: "string"}, textValue(func(o *QoSRuleTypeView) string { return o.Name })),
		row(Attribute{Name: "drivers", Type: "list of objects", Doc: "only for one type: what enforces it, with the values it takes; none for minimums"},
			drivers),
		row(Attribute{Name: "all_supported", Filter: true, Hidden: true, Type: "boolean", Doc: "filter: only types that are enforced"}, value[*QoSRuleTypeView]{}),
		row(Attribute{Name: "all_rules", Filter: true, Hidden: true, Type: "boolean", Doc: "filter: all types"}, value[*QoSRuleTypeView]{}),
	})
}

// appendQoSDrivers appends what enforces a type of rules: this server, or nothing.
func appendQoSDrivers(b []byte, o *QoSRuleTypeView) []byte {
	if o.Reserves {
		return append(b, "[]"...)
	}
	b = append(b, `[{"name":"heddle","supported_parameters":[`...)
	if o.Values != nil {
		b = appendQoSChoices(b, o.Value, o.Values, func(b []byte, n int) []byte { return strconv.AppendInt(b, int64(n), 10) })
	} else {
		b = appendQoSRange(b, o.Value)
	}
	if o.Burst != "" {
		b = appendQoSRange(append(b, ','), o.Burst)
	}
	if o.Directions != nil {
		b = appendQoSChoices(append(b, ','), "direction", o.Directions, appendString)
	}
	return append(b, `]}]`...)
}

func appendQoSRange(b []byte, name string) []byte {
	b = appendString(append(b, `{"parameter_name":`...), name)
	b = append(b, `,"parameter_type":"range","parameter_values":{"start":0,"end":`...)
	return append(strconv.AppendInt(b, maxQoSValue, 10), `}}`...)
}

func appendQoSChoices[T any](b []byte, name string, values []T, item func([]byte, T) []byte) []byte {
	b = appendString(append(b, `{"parameter_name":`...), name)
	b = appendList(append(b, `,"parameter_type":"choices","parameter_values":`...), values, item)
	return append(b, '}')
}
