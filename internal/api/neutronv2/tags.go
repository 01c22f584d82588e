package neutronv2

import (
	"errors"
	"net/http"
	"slices"
	"unicode/utf8"

	"heddle/internal/api"
	"heddle/internal/neutron"
)

// maxTag is the reference's limit on the length of a tag, characters.
const maxTag = 255

// tags are those of the object that the path names.
func (c *collection[T]) tags(r *http.Request) ([]string, error) {
	o, err := c.ops.Show(r.Context(), api.Caller(r.Context()), r.PathValue("id"))
	if err != nil {
		return nil, c.tagError(r, err)
	}
	return c.ops.Tags(o), nil
}

// changeTags lets the operation change them.
func (c *collection[T]) changeTags(r *http.Request, change func(tags []string) ([]string, error)) error {
	_, err := c.ops.ChangeTags(r.Context(), api.Caller(r.Context()), r.PathValue("id"), change)
	return c.tagError(r, err)
}

// tagError words the absence of the object as the tags of the reference do.
func (c *collection[T]) tagError(r *http.Request, err error) error {
	var known *neutron.Error
	if errors.As(err, &known) && known.Kind == neutron.NotFound && known.Type != "TagNotFound" {
		return neutron.Errorf(neutron.NotFound, "TagResourceNotFound", "Resource %s %s could not be found.",
			c.table.Resource.Collection(), r.PathValue("id"))
	}
	return err
}

func noTag(tag string) error {
	return neutron.Errorf(neutron.NotFound, "TagNotFound", "Tag %s could not be found.", tag)
}

func (c *collection[T]) listTags(w http.ResponseWriter, r *http.Request) error {
	tags, err := c.tags(r)
	if err != nil {
		return err
	}
	writeTags(w, tags)
	return nil
}

func writeTags(w http.ResponseWriter, tags []string) {
	api.WriteJSON(w, http.StatusOK, map[string][]string{"tags": append([]string{}, tags...)})
}

func (c *collection[T]) hasTag(w http.ResponseWriter, r *http.Request) error {
	tag, err := pathTag(r)
	if err != nil {
		return err
	}
	tags, err := c.tags(r)
	if err != nil {
		return err
	}
	if !slices.Contains(tags, tag) {
		return noTag(tag)
	}
	return empty(w, http.StatusNoContent, nil)
}

func (c *collection[T]) addTag(w http.ResponseWriter, r *http.Request) error {
	tag, err := pathTag(r)
	if err != nil {
		return err
	}
	err = c.changeTags(r, func(tags []string) ([]string, error) {
		if slices.Contains(tags, tag) {
			return tags, nil
		}
		return append(slices.Clone(tags), tag), nil
	})
	return empty(w, http.StatusCreated, err)
}

func (c *collection[T]) removeTag(w http.ResponseWriter, r *http.Request) error {
	tag, err := pathTag(r)
	if err != nil {
		return err
	}
	err = c.changeTags(r, func(tags []string) ([]string, error) {
		i := slices.Index(tags, tag)
		if i < 0 {
			return nil, noTag(tag)
		}
		return slices.Delete(slices.Clone(tags), i, i+1), nil
	})
	return empty(w, http.StatusNoContent, err)
}

func (c *collection[T]) removeTags(w http.ResponseWriter, r *http.Request) error {
	return empty(w, http.StatusNoContent, c.changeTags(r, func([]string) ([]string, error) { return []string{}, nil }))
}

func (c *collection[T]) replaceTags(w http.ResponseWriter, r *http.Request) error {
	var tags []string
	err := readObject(r, func(body document) error {
		raw, given := body["tags"]
		if !given {
			return invalidInput("Invalid tags body")
		}
		v, err := decodeValue(raw)
		if err != nil {
			return err
		}
		tags, err = neutron.ParseTags(v)
		return err
	})
	if err != nil {
		return err
	}
	if err := c.changeTags(r, func([]string) ([]string, error) { return tags, nil }); err != nil {
		return err
	}
	writeTags(w, tags)
	return nil
}

// pathTag is the tag that the path names.
func pathTag(r *http.Request) (string, error) {
	tag := r.PathValue("tag")
	switch {
	case !utf8.ValidString(tag):
		return "", invalidInput("The tag in the path is not UTF-8")
	case utf8.RuneCountInString(tag) > maxTag:
		return "", invalidInput("'" + tag + "' exceeds maximum length of 255")
	}
	return tag, nil
}
