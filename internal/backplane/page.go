package backplane

import "sort"

// page is what a topic keeps after some offset, or the first part of that, as one snapshot of it. It is not changed, as
// several may have it.
type page struct {
	epoch    string
	first    int64 // the lowest offset that is kept; last+1 if none is
	last     int64 // the highest offset that was taken
	messages []Message
}

// found says whether the topic was there.
func (p page) found() bool { return p.epoch != "" }

// from returns the page after a higher offset than that which it was read after, as far as it goes; false if that is
// no further than it goes.
func (p page) from(after int64) (page, bool) {
	if n := len(p.messages); n > 0 {
		end := p.messages[n-1].Position.Offset
		if end < p.last && end <= after {
			return page{}, false
		}
	}
	skip := sort.Search(len(p.messages), func(i int) bool { return p.messages[i].Position.Offset > after })
	p.messages = p.messages[skip:len(p.messages):len(p.messages)]
	return p, true
}
