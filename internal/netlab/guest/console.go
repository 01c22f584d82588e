package guest

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync"

	"heddle/internal/netlab"
)

// console is a guest's serial console.
type console struct {
	conn net.Conn
	done chan struct{} // closed once nothing more comes

	mu   sync.Mutex
	text strings.Builder
	read int // how much of text an earlier call has consumed
}

func newConsole(c net.Conn) *console {
	x := &console{conn: c, done: make(chan struct{})}
	go func() {
		defer close(x.done)
		for buffer := make([]byte, 4096); ; {
			n, err := c.Read(buffer)
			if err != nil {
				return // the guest has ended
			}
			x.mu.Lock()
			x.text.WriteString(strings.ReplaceAll(string(buffer[:n]), "\r", ""))
			x.mu.Unlock()
		}
	}()
	return x
}

func (x *console) close() {
	x.conn.Close()
	<-x.done
}

func (x *console) all() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.text.String()
}

// until waits for a match of what comes after the last one, and returns the text up to its end.
func (x *console) until(ctx context.Context, match *regexp.Regexp) (text string, err error) {
	err = netlab.Until(ctx, fmt.Sprintf("%q on the console", match), func() (bool, error) {
		ended := false
		select {
		case <-x.done:
			ended = true
		default:
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		rest := x.text.String()[x.read:]
		at := match.FindStringIndex(rest)
		if at == nil && ended {
			return false, fmt.Errorf("the guest has ended; its console says:\n%s", x.text.String())
		}
		if at == nil {
			return false, nil
		}
		text = rest[:at[1]]
		x.read += at[1]
		return true, nil
	})
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w; the console says:\n%s", err, x.all())
	}
	return text, err
}

// endOfCommand matches the line that run has the shell print after a command, with the exit code.
var endOfCommand = regexp.MustCompile(`<end (\d+)>\n`)

func (x *console) run(ctx context.Context, line string) (string, error) {
	if _, err := fmt.Fprintf(x.conn, "%s\necho \"<end $?>\"\n", line); err != nil {
		return "", err
	}
	text, err := x.until(ctx, endOfCommand)
	if err != nil {
		return "", fmt.Errorf("%s: %w", line, err)
	}
	end := endOfCommand.FindStringSubmatchIndex(text)
	if code := text[end[2]:end[3]]; code != "0" {
		return "", fmt.Errorf("in the guest: %s: exit code %s: %s", line, code, text[:end[0]])
	}
	return text[:end[0]], nil
}
