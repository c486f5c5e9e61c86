package signaling

import "sync"

// maxIdle is how many goroutines a crew keeps. Each has a stack of some KiB, which is little beside what as many connections
// take.
const maxIdle = 256

// crew runs short tasks, each at once in a goroutine that nothing else uses. Goroutines that are done wait for the next
// task, since a new one begins with the smallest stack there is: to make room for a system call it must be copied, which costs
// a third of what the call does. A task may block for as long as it likes, and holds up no other.
type crew struct {
	running sync.WaitGroup

	mu    sync.Mutex
	idle  []chan func() // the last is the next to work; each takes one task without blocking
	ended bool
}

// do runs a task.
func (c *crew) do(task func()) {
	c.mu.Lock()
	last := len(c.idle) - 1
	if last < 0 {
		c.mu.Unlock()
		c.running.Go(func() { c.work(task) })
		return
	}
	next := c.idle[last]
	c.idle = c.idle[:last]
	c.mu.Unlock()
	next <- task
}

// work runs a task, and then others until the crew ends or enough are idle.
func (c *crew) work(task func()) {
	next := make(chan func(), 1)
	for ok := true; ok; task, ok = <-next {
		task()
		if !c.rest(next) {
			return
		}
	}
}

// rest makes a goroutine idle; false: it is to end.
func (c *crew) rest(next chan func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || len(c.idle) >= maxIdle {
		return false
	}
	c.idle = append(c.idle, next)
	return true
}

// end waits for all tasks and goroutines. There must be no further task.
func (c *crew) end() {
	c.mu.Lock()
	c.ended = true
	for _, next := range c.idle {
		close(next)
	}
	c.idle = nil
	c.mu.Unlock()
	c.running.Wait()
}
