package xapi

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"heddle/internal/task"
)

// controlPause is between looks at a control file that has no more lines yet.
const controlPause = 20 * time.Millisecond

// FollowControl carries out the lines of a control file as they come, until ctx ends: of a regular
// file, which may not be there yet, or of a named pipe. Lines that cannot be carried out are
// logged.
func (s *Simulation) FollowControl(ctx context.Context, file string) error {
	c := &controlFile{simulation: s, name: file}
	defer c.close()
	defer context.AfterFunc(ctx, c.close)() // reading a pipe without a writer would never end
	for {
		if err := c.read(ctx); err != nil {
			return err
		}
		if !task.Pause(ctx, controlPause) {
			return nil
		}
	}
}

// controlFile is a file that lines are added to.
type controlFile struct {
	simulation *Simulation
	name       string
	in         *bufio.Reader
	at         int64  // bytes read
	line       string // the beginning of a line that is not whole yet

	mu   sync.Mutex
	file *os.File
}

func (c *controlFile) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file != nil {
		_ = c.file.Close()
	}
}

// read carries out the lines that are there.
func (c *controlFile) read(ctx context.Context) error {
	if ok, err := c.open(); !ok || err != nil {
		return err
	}
	for ctx.Err() == nil {
		part, err := c.in.ReadString('\n')
		c.at += int64(len(part))
		c.line += part
		if errors.Is(err, io.EOF) || errors.Is(err, fs.ErrClosed) {
			return nil
		} else if err != nil {
			return err
		}
		if err := c.simulation.Control(ctx, c.line); err != nil {
			c.simulation.log.Error("control line not carried out", "file", c.name, "err", err)
		}
		c.line = ""
	}
	return nil
}

// open opens the file when it is there, and again when it has become shorter: it is another.
func (c *controlFile) open() (bool, error) {
	info, err := os.Stat(c.name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	if c.in != nil && (!info.Mode().IsRegular() || info.Size() >= c.at) {
		return true, nil
	}
	c.close()
	mode := os.O_RDONLY
	if info.Mode()&fs.ModeNamedPipe != 0 {
		mode = os.O_RDWR // end of file then never comes, even when the writer closes it
	}
	file, err := os.OpenFile(c.name, mode, 0)
	if err != nil {
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.file, c.in, c.at, c.line = file, bufio.NewReader(file), 0, ""
	return true, nil
}
