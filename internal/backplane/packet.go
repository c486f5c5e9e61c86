package backplane

import (
	"errors"
	"strconv"
	"strings"
)

// tagLength is how many of the last digits of an epoch stand for it in a notification.
const tagLength = 12

// entry is one message as a notification tells it; see migrations/code/backplane.sql.
type entry struct {
	topic  string
	tag    string // last digits of the epoch
	offset int64
	data   []byte // nil: to be read from the log
}

// tag is what entries have of the epoch.
func tag(epoch string) string { return epoch[max(0, len(epoch)-tagLength):] }

// message is the entry in an epoch whose tag it has.
func (e entry) message(epoch string) Message {
	return Message{Topic: e.topic, Position: Position{Epoch: epoch, Offset: e.offset}, Data: e.data}
}

var errMalformed = errors.New("malformed notification")

// parse splits a notification into its entries. Those before a malformed one are returned with the error.
func parse(payload string) ([]entry, error) {
	var entries []entry
	for payload != "" {
		head, rest, found := strings.Cut(payload, "\n")
		fields := strings.Split(head, " ")
		if !found || len(fields) != 4 || fields[0] == "" || fields[1] == "" {
			return entries, errMalformed
		}
		offset, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil || offset < 1 {
			return entries, errMalformed
		}
		e := entry{topic: fields[0], tag: fields[1], offset: offset}
		if fields[3] != "-" {
			size, err := strconv.ParseUint(fields[3], 10, 16)
			if err != nil || int(size) > len(rest) {
				return entries, errMalformed
			}
			e.data, rest = []byte(rest[:size]), rest[size:]
		}
		entries = append(entries, e)
		payload = rest
	}
	return entries, nil
}
