package signaling

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func TestCrewRunsEachTaskOnceAndHoldsUpNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c crew
		var ran atomic.Int64
		stuck := make(chan struct{})
		for i := range 3 * maxIdle {
			c.do(func() {
				if i%2 == 0 {
					<-stuck
				}
				ran.Add(1)
			})
		}
		synctest.Wait()
		if got := ran.Load(); got != 3*maxIdle/2 {
			t.Fatalf("%d tasks ran beside those that are stuck, want %d", got, 3*maxIdle/2)
		}
		close(stuck)
		synctest.Wait()
		if ran.Load() != 3*maxIdle || len(c.idle) != maxIdle {
			t.Fatalf("%d tasks ran, %d goroutines are idle, want %d and %d", ran.Load(), len(c.idle), 3*maxIdle, maxIdle)
		}
		c.end()
		if ran.Load() != 3*maxIdle {
			t.Error("a task ran twice")
		}
	})
}

func TestCrewWorksAgainWithThoseThatAreIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c crew
		for range 100 {
			c.do(func() {})
			synctest.Wait()
			if len(c.idle) != 1 {
				t.Fatalf("%d goroutines are idle, want the same one each time", len(c.idle))
			}
		}
		c.end()
	})
}

func TestCrewEndsAfterItsLastTask(t *testing.T) {
	t.Parallel()
	var c crew
	var ran atomic.Bool
	var begun sync.WaitGroup
	begun.Add(1)
	more := make(chan struct{})
	c.do(func() {
		begun.Done()
		<-more
		ran.Store(true)
	})
	begun.Wait()
	go close(more)
	c.end()
	if !ran.Load() {
		t.Error("end did not wait")
	}
}
