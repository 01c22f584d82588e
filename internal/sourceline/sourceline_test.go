package sourceline

import "testing"

func TestFind(t *testing.T) {
	t.Parallel()
	const text = `# comment
serve:
  data: /var/lib/heddle

  etcd-endpoints:
  - a:1
  - b:2
labels: &labels
  a: 1
  a.b:
    c: 2
copy: *labels
flow: [{x: 1}, {x: 2,
  y: 3}]
`
	for _, c := range []struct {
		text, place string
		line        int
	}{
		{text, "serve", 2},
		{text, "serve.data", 3},
		{text, "serve.etcd-endpoints", 5},
		{text, "serve.etcd-endpoints[1]", 7},
		{text, "labels.a", 9},
		{text, "labels.a.b.c", 11},
		{text, "copy.a.b", 10},
		{text, "flow[1].x", 13},
		{text, "flow[1].y", 14},
		{text, "serve.datum", 2}, // as much of the way as there is
		{text, "serve.data.x[0]", 3},
		{text, "serve.etcd-endpoints[9]", 5},
		{text, "", 0},
		{text, "nothing", 0},
		{"{\n\t\"a\": [\n\t\t1,\n\t\t{\"b\": null}]}", "a[1].b", 4},
		{"- a\n- b: c\n", "[1].b", 2},
		{"a: [", "a", 0},
		{"", "a", 0},
		{"text", "a", 0},
	} {
		if got := Find([]byte(c.text), c.place); got != c.line {
			t.Errorf("%q is on line %d, want %d, of\n%s", c.place, got, c.line, c.text)
		}
	}
}

func TestPrefix(t *testing.T) {
	t.Parallel()
	for place, want := range map[string]string{"a.b": "file.yaml:2", "c": "file.yaml"} {
		if got := Prefix("file.yaml", []byte("a:\n  b: 1\n"), place); got != want {
			t.Errorf("%s: %s, want %s", place, got, want)
		}
	}
}

func FuzzFind(f *testing.F) {
	f.Add("a: &x [b]\nc: *x\n", "c[0]")
	f.Add("a: &x [*x]\n", "a[0][0][0]")
	f.Fuzz(func(_ *testing.T, text, place string) { Find([]byte(text), place) })
}
