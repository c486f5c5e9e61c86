package backplane

// admit moves the position by m and returns what of it is news: not what comes again, and not what a topic said before the
// reset that made the position.
func (p *Position) admit(m Message) (Message, bool) {
	if m.Recovery.Outcome == Reset {
		if m.Position.Epoch == p.Epoch {
			return m, false
		}
		*p = m.Position
		return m, true
	}
	if m.Position.Epoch != p.Epoch || m.Position.Offset <= p.Offset {
		return m, false
	}
	if m.Recovery.Outcome == Partial {
		m.Recovery.Missing.From = max(m.Recovery.Missing.From, p.Offset+1)
	}
	*p = m.Position
	return m, true
}

// follow moves the position by what was read after it, and returns that with notices of what is missing. behind says that
// there is more to read.
func (p *Position) follow(topic string, read page) (given []Message, behind bool) {
	if read.epoch != p.Epoch {
		// What was read comes after an offset of another epoch.
		*p = Position{Epoch: read.epoch}
		return []Message{{Topic: topic, Position: *p, Recovery: Recovery{Outcome: Reset}}}, read.last > 0
	}
	skip := func(to int64) {
		if to <= p.Offset {
			return
		}
		missing := Range{From: p.Offset + 1, To: to}
		p.Offset = to
		given = append(given, Message{Topic: topic, Position: *p, Recovery: Recovery{Outcome: Partial, Missing: missing}})
	}
	skip(read.first - 1)
	for _, m := range read.messages {
		if m.Position.Offset <= p.Offset {
			continue // the position is newer than the wish that was read for
		}
		skip(m.Position.Offset - 1) // nothing, unless somebody deleted rows
		p.Offset = m.Position.Offset
		given = append(given, m)
	}
	if len(read.messages) == 0 {
		skip(read.last)
	}
	return given, p.Offset < read.last
}

// resume answers a subscriber that wants to go on from a position, by the first page read after it. The answer's position
// is the one to go on from.
func (p Position) resume(topic string, read page) Message {
	switch {
	case read.epoch != p.Epoch || p.Offset > read.last:
		return Message{
			Topic: topic, Position: Position{Epoch: read.epoch, Offset: read.last}, Recovery: Recovery{Outcome: Reset},
		}
	case read.first > p.Offset+1:
		missing := Range{From: p.Offset + 1, To: read.first - 1}
		return Message{
			Topic: topic, Position: Position{Epoch: p.Epoch, Offset: missing.To},
			Recovery: Recovery{Outcome: Partial, Missing: missing},
		}
	default:
		return Message{Topic: topic, Position: p, Recovery: Recovery{Outcome: Complete}}
	}
}
