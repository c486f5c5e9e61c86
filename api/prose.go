package api

import (
	"regexp"
	"strings"
)

// span is a run of text in one style.
type span struct {
	Text   string
	Code   bool
	Strong bool
	Link   string // path or URL; empty for none
}

// marked finds the three kinds of markup that openapi.yaml uses: `code`, **strong** and [text](link).
var marked = regexp.MustCompile("`([^`]+)`|\\*\\*([^*]+)\\*\\*|\\[([^\\]]+)\\]\\(([^)]+)\\)")

// prose splits text into paragraphs of spans, so that the template escapes all of it.
func prose(text string) [][]span {
	var paragraphs [][]span
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		if paragraph != "" {
			paragraphs = append(paragraphs, spans(paragraph))
		}
	}
	return paragraphs
}

func spans(paragraph string) []span {
	var list []span
	at := 0
	for _, m := range marked.FindAllStringSubmatchIndex(paragraph, -1) {
		if m[0] > at {
			list = append(list, span{Text: paragraph[at:m[0]]})
		}
		switch {
		case m[2] >= 0:
			list = append(list, span{Text: paragraph[m[2]:m[3]], Code: true})
		case m[4] >= 0:
			list = append(list, span{Text: paragraph[m[4]:m[5]], Strong: true})
		default:
			list = append(list, span{Text: paragraph[m[6]:m[7]], Link: paragraph[m[8]:m[9]]})
		}
		at = m[1]
	}
	if at < len(paragraph) {
		list = append(list, span{Text: paragraph[at:]})
	}
	return list
}
