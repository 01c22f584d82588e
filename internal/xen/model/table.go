package model

// Types that the table below is written with.
var (
	text   = Type{Kind: String}
	number = Type{Kind: Int}
	float  = Type{Kind: Float}
	truth  = Type{Kind: Bool}
	moment = Type{Kind: Time}
	texts  = setOf(text)
	pairs  = mapOf(text)
)

func ref(class string) Type      { return Type{Kind: Ref, Class: class} }
func refs(class string) Type     { return setOf(ref(class)) }
func setOf(t Type) Type          { return Type{Kind: Set, Elem: &t} }
func mapOf(t Type) Type          { return Type{Kind: Map, Elem: &t} }
func enum(values ...string) Type { return Type{Kind: Enum, Values: values} }

// Fields by their access: fixed at creation, kept by the system, written by clients; far is the
// other side of a field.
func fixed(name string, t Type, def ...any) Field { return field(name, t, Constructed, def) }
func kept(name string, t Type, def ...any) Field  { return field(name, t, Dynamic, def) }
func open(name string, t Type, def ...any) Field  { return field(name, t, Writable, def) }
func far(name string, t Type, class, of string) Field {
	return Field{Name: name, Type: t, Access: Dynamic, Far: &Far{class, of}}
}

func field(name string, t Type, a Access, def []any) Field {
	f := Field{Name: name, Type: t, Access: a}
	if len(def) > 0 {
		f.Default = def[0]
	}
	return f
}

// says is the field with what people should know of it.
func (f Field) says(doc string) Field {
	f.Doc = doc
	return f
}

// operators is the field, which only a pool's operators may write.
func operators(f Field) Field {
	f.SetRole = PoolOperator
	return f
}

// uuid is the field that every class has.
func uuid() Field { return fixed("uuid", text) }

// operations are the fields of what may be done with an object and what is under way.
func operations() []Field {
	return []Field{kept("allowed_operations", texts), kept("current_operations", pairs)}
}

func fields(lists ...[]Field) []Field {
	var all []Field
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// naming are the fields by which people know an object.
func naming() []Field { return []Field{open("name_label", text), open("name_description", text)} }

func need(name string, t Type) Param { return Param{Name: name, Type: t} }
func may(name string, t Type, def any) Param {
	return Param{Name: name, Type: t, Optional: true, Default: def}
}
func self(class string) []Param { return []Param{need("self", ref(class))} }
