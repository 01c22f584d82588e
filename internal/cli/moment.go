package cli

import (
	"fmt"
	"io"
	"regexp"
	"time"

	"heddle/internal/command"
	"heddle/internal/terminal"
)

var revisionForm = regexp.MustCompile(`^([0-9]+\.)?[0-9]+$`)

// momentOf reads a flag such as --at: a time, or a revision as heddle history prints it; "" is the
// present.
func momentOf(flag, text string) (string, error) {
	if text == "" || revisionForm.MatchString(text) {
		return text, nil
	}
	at, err := parseSince(text, time.Now())
	if err != nil {
		return "", &command.Exit{Code: 2, Text: flag + ": " + err.Error()}
	}
	return at.UTC().Format(time.RFC3339), nil
}

// printMoment says of an answer about the past what it is of.
func printMoment(w io.Writer, revision int64, at *time.Time) {
	if at != nil {
		terminal.Fprintln(w, fmt.Sprintf("as of revision %d, %s, for a new connection:", revision, localTime(*at)))
	}
}
