package xe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"heddle/internal/terminal"
	"heddle/internal/xen/model"
)

// usageLine ends what is said about commands that are wrong in form.
const usageLine = "For usage run: 'xe help'"

// usageFailure is a command that is wrong in form.
type usageFailure struct{ text string }

func (e *usageFailure) Error() string { return e.text }

func usageError(format string, args ...any) error { return &usageFailure{fmt.Sprintf(format, args...)} }

// missing is a required argument that is not there.
func missing(key string) error { return usageError("Required parameter not found: %s", key) }

// ownFailure is a command of right form that makes no sense.
type ownFailure struct{ message string }

func (e *ownFailure) Error() string { return e.message }

// report prints what went wrong, with the names of objects if a pool was reached.
func report(ctx context.Context, w io.Writer, a api, err error) {
	var usage *usageFailure
	var own *ownFailure
	var known *model.Error
	switch {
	case errors.As(err, &usage):
		fmt.Fprintf(w, "%s\n%s\n", terminal.EscapeLines(err.Error()), usageLine)
	case errors.As(err, &own):
		fmt.Fprintf(w, "The command could not be carried out.\nmessage: %s\n", terminal.EscapeLines(own.message))
	case errors.As(err, &known):
		reportAPI(ctx, w, a, known)
	default:
		fmt.Fprintln(w, terminal.EscapeLines(err.Error()))
	}
}

// reportAPI prints a failure that the server reported.
func reportAPI(ctx context.Context, w io.Writer, a api, failure *model.Error) {
	if failure.Code == "SESSION_AUTHENTICATION_FAILED" {
		fmt.Fprintf(w, "Authentication failed\n%s\n", usageLine)
		return
	}
	about := model.LookupError(failure.Code)
	if about == nil {
		fmt.Fprintf(w, "Error code: %s\nError parameters: %s\n", failure.Code, terminal.Escape(strings.Join(failure.Params, ", ")))
		return
	}
	r := newReader(ctx, a, false)
	fmt.Fprintln(w, about.Text)
	for i, text := range failure.Params {
		p := paramOf(about, failure, i)
		fmt.Fprintf(w, "%s: %s\n", p.Name, terminal.Escape(r.named(p.Class, text)))
	}
	fmt.Fprintf(w, "Error code: %s\n", failure.Code)
}

// paramOf returns the meaning of a failure's parameter. Other servers may send more of them.
func paramOf(about *model.ErrorCode, failure *model.Error, i int) model.ErrorParam {
	known := about.Params
	switch {
	case i >= len(known) && about.Many && len(known) > 0:
		return known[len(known)-1]
	case i >= len(known):
		return model.ErrorParam{Name: "parameter"}
	case known[0].Name == "type" && known[i].Class == "" && model.Lookup(failure.Params[0]) != nil:
		return model.ErrorParam{Name: known[i].Name, Class: failure.Params[0]} // of an object of the class that the first names
	}
	return known[i]
}

// named is a failure's parameter for people: of a reference, the object's UUID and its name.
func (r *reader) named(class, text string) string {
	if class == "" || r.api == nil || !strings.HasPrefix(text, "OpaqueRef:") {
		return text
	}
	object, err := r.record(class, text)
	if err != nil {
		return text
	}
	uuid, _ := object["uuid"].(string)
	if name, _ := object["name_label"].(string); name != "" {
		return uuid + " (" + name + ")"
	}
	return uuid
}
