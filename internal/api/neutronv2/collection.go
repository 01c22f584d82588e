package neutronv2

import (
	"net/http"
	"strconv"
	"strings"

	"heddle/internal/api"
	"heddle/internal/control"
	"heddle/internal/neutron"
)

// collection serves one resource: all that resources share is here, all that differs in the table
// and the operations.
type collection[T any] struct {
	*handler
	table *neutron.Table[T]
	ops   control.Operations[T]
}

func (c *collection[T]) create(w http.ResponseWriter, r *http.Request) error {
	caller, res := api.Caller(r.Context()), c.table.Resource
	var vs []neutron.Values
	var bulk bool
	err := readDocument(r, c.countItems(r), func(body document) (err error) {
		bulk, err = items(body, res, neutron.Create, func(o map[string]any) error {
			v, err := neutron.Parse(caller, res, neutron.Create, o)
			vs = append(vs, v)
			return err
		})
		return err
	})
	if err != nil {
		return err
	}
	made, err := c.ops.Create(r.Context(), caller, vs)
	if err != nil {
		return err
	}
	e := c.table.Created(caller.Admin())
	if !bulk {
		return c.writeOne(w, http.StatusCreated, e, made[0])
	}
	out := newListWriter(w, http.StatusCreated, res.Collection())
	for _, o := range made {
		out.item(func(b []byte) []byte { return e.Append(b, o) })
	}
	return out.end(nil)
}

func (c *collection[T]) update(w http.ResponseWriter, r *http.Request) error {
	return c.updateItem(w, r, r.PathValue("id"))
}

// updateNothing is an update of the collection: the reference looks for an object of no name.
func (c *collection[T]) updateNothing(w http.ResponseWriter, r *http.Request) error {
	return c.updateItem(w, r, "None")
}

func (c *collection[T]) updateItem(w http.ResponseWriter, r *http.Request, id string) error {
	caller, res := api.Caller(r.Context()), c.table.Resource
	var v neutron.Values
	err := readObject(r, func(body document) error {
		_, err := items(body, res, neutron.Update, func(o map[string]any) (err error) {
			v, err = neutron.Parse(caller, res, neutron.Update, o)
			return err
		})
		return err
	})
	if err != nil {
		return err
	}
	match, err := ifMatch(r)
	if err != nil {
		return err
	}
	o, err := c.ops.Update(r.Context(), caller, id, v, match)
	if err != nil {
		return err
	}
	return c.writeOne(w, http.StatusOK, c.table.Encoder(caller.Admin(), nil), o)
}

func (c *collection[T]) delete(w http.ResponseWriter, r *http.Request) error {
	match, err := ifMatch(r)
	if err != nil {
		return err
	}
	if n, _ := r.Body.Read(make([]byte, 1)); n > 0 {
		return badRequest("Request body is not supported in DELETE.")
	}
	return empty(w, http.StatusNoContent, c.ops.Delete(r.Context(), api.Caller(r.Context()), r.PathValue("id"), match))
}

// empty answers without a body, unless the operation has failed.
func empty(w http.ResponseWriter, status int, err error) error {
	if err == nil {
		w.WriteHeader(status)
	}
	return err
}

func (c *collection[T]) show(w http.ResponseWriter, r *http.Request) error {
	caller := api.Caller(r.Context())
	o, err := c.ops.Show(r.Context(), caller, r.PathValue("id"))
	if err != nil {
		return err
	}
	return c.writeOne(w, http.StatusOK, c.table.Encoder(caller.Admin(), nonEmpty(r.URL.Query()["fields"])), o)
}

// writeOne answers {"network":{…}}.
func (c *collection[T]) writeOne(w http.ResponseWriter, status int, e *neutron.Encoder[T], o T) error {
	b := make([]byte, 0, 2048)
	b = append(b, `{"`...)
	b = append(b, c.table.Resource.Name()...)
	b = append(b, `":`...)
	b = append(e.Append(b, o), '}')
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	_, _ = w.Write(b) // a client that has gone is not our error
	return nil
}

// ifMatch is the revision number that the client insists on: If-Match: revision_number=3. Other
// values are ignored.
func ifMatch(r *http.Request) (*int64, error) {
	const key = "revision_number="
	var match *int64
	for tag := range strings.SplitSeq(r.Header.Get("If-Match"), ",") {
		tag = strings.Trim(strings.TrimPrefix(strings.TrimSpace(tag), "W/"), `"`)
		if !strings.HasPrefix(tag, key) {
			continue
		}
		if match != nil {
			return nil, neutron.Errorf(neutron.Invalid, "BadRequest",
				"Bad if-match request: Multiple revision_number etags are not supported..")
		}
		n, err := strconv.ParseInt(strings.TrimPrefix(tag, key), 10, 64)
		if err != nil {
			return nil, neutron.Errorf(neutron.Invalid, "BadRequest",
				"Bad if-match request: Revision number etag must be in the format of revision_number=<int>.")
		}
		match = &n
	}
	return match, nil
}

// nonEmpty returns the values that are not empty.
func nonEmpty(values []string) []string {
	var out []string
	for _, v := range values {
		if v != "" {
			out = append(out, v)
		}
	}
	return out
}
