package cli

import (
	"slices"
	"strings"
)

// plainPunctuation holds the punctuation that bash, zsh and fish take literally inside words.
const plainPunctuation = "._:@%+,/-"

// isPlainWord reports whether shells take a word literally and no program takes it for a flag.
//
// Completions offer no other words that someone else chose. When several words fit, bash inserts
// what they begin with in common without quoting it, and the script of cobra evaluates the command
// line at the next TAB: a port named web$(reboot)1, next to web$(reboot)2, would be run. Letters
// are those of ASCII, since which others are blanks depends on the locale.
func isPlainWord(word string) bool {
	return word != "" && word[0] != '-' && !strings.ContainsFunc(word, func(r rune) bool {
		return !isASCIILetterOrDigit(r) && !strings.ContainsRune(plainPunctuation, r)
	})
}

func isASCIILetterOrDigit(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
}

// plainWords returns the plain ones of words.
func plainWords(words []string) []string {
	return slices.DeleteFunc(words, func(word string) bool { return !isPlainWord(word) })
}

// firstPlain returns the first plain one of the texts by which an object can be called, or "".
func firstPlain(texts ...string) string {
	if i := slices.IndexFunc(texts, isPlainWord); i >= 0 {
		return texts[i]
	}
	return ""
}
