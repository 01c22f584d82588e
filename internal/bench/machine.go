package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/netlab"
)

// machine describes where a run was measured.
type machine struct {
	Processor  string  `json:"processor"`
	Cores      int     `json:"cores"`
	MemoryMB   int     `json:"memoryMB"`
	Kernel     string  `json:"kernel"`
	LoadBefore float64 `json:"loadBefore"` // average of a minute
	LoadAfter  float64 `json:"loadAfter"`
}

func thisMachine() (machine, error) {
	m := machine{Processor: "unknown processor", Cores: runtime.NumCPU()}
	if name, err := procField("/proc/cpuinfo", "model name"); err == nil {
		m.Processor = name
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return m, fmt.Errorf("memory: %w", err)
	}
	m.MemoryMB = int(info.Totalram * uint64(info.Unit) >> 20)
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return m, fmt.Errorf("name of the kernel: %w", err)
	}
	m.Kernel = unix.ByteSliceToString(u.Release[:])
	var err error
	m.LoadBefore, err = loadAverage()
	return m, err
}

func loadAverage() (float64, error) {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(raw), " ")
	return strconv.ParseFloat(first, 64)
}

// procField returns the text after "name:" in a file of /proc.
func procField(file, name string) (string, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(raw)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("%s has no %s", file, name)
}

// residentMB returns a process's memory, and the most it ever had, in units of 10⁶ bytes.
func residentMB(pid int) (now, most float64, err error) {
	file := fmt.Sprintf("/proc/%d/status", pid)
	for name, to := range map[string]*float64{"VmRSS": &now, "VmHWM": &most} {
		text, err := procField(file, name)
		if err != nil {
			return 0, 0, err
		}
		var kib float64
		if _, err := fmt.Sscan(text, &kib); err != nil {
			return 0, 0, fmt.Errorf("%s: %s is %q: %w", file, name, text, err)
		}
		*to = kib * 1024 / 1e6
	}
	return now, most, nil
}

// cpuTime returns a process's time on all cores, to the hundredth of a second.
func cpuTime(pid int) (time.Duration, error) {
	file := fmt.Sprintf("/proc/%d/stat", pid)
	raw, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	// Counted from the name, which may hold spaces: user and system time are fields 14 and 15
	// (proc(5)).
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	var ticks int
	for _, i := range []int{14 - 3, 15 - 3} {
		if i >= len(fields) {
			return 0, fmt.Errorf("%s: %d fields", file, len(fields))
		}
		n, err := strconv.Atoi(fields[i])
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil // of USER_HZ, which is 100 for programs on every machine
}

// threadTime returns the processor time of the calling thread.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err) // Linux has the clock since 2.6.12
	}
	return time.Duration(t.Nano())
}

// syncTime returns how long the disk of a directory takes to make a page durable.
func syncTime(dir string) (time.Duration, error) {
	f, err := os.CreateTemp(dir, "sync-*")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	page := make([]byte, 4096)
	var took []time.Duration
	for range 100 {
		start := time.Now()
		if _, err := f.Write(page); err != nil {
			return 0, err
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return 0, fmt.Errorf("make %s durable: %w", filepath.Base(f.Name()), err)
		}
		took = append(took, time.Since(start))
	}
	return netlab.Median(took), nil
}
