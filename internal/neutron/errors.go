package neutron

import "fmt"

// Kind sorts errors by what a caller can do about them; the API maps it to a status code.
type Kind uint8

const (
	Invalid      Kind = iota + 1 // 400
	Forbidden                    // 403
	NotFound                     // 404
	Conflict                     // 409
	Precondition                 // 412
	Unsupported                  // 501
	Unavailable                  // 503: nothing was done
	Unknown                      // 504: whether it was done is not known
	Failed                       // 500, where the reference answers so
)

// Error is an error as Neutron answers it: clients decide by Type (neutron-api §1).
type Error struct {
	Kind    Kind
	Type    string // Neutron's exception class, such as NetworkNotFound
	Message string
}

func (e *Error) Error() string { return e.Message }

// Errorf makes an Error with a formatted message.
func Errorf(k Kind, typ, format string, args ...any) *Error {
	return &Error{Kind: k, Type: typ, Message: fmt.Sprintf(format, args...)}
}
