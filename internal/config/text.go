package config

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxText bounds a value, and a file that holds one.
const maxText = 64 << 10

// text finds the text of a variable, from the environment or from its file. It reports false if
// there is none or it is unusable; the latter is in p.
func (env environment) text(v variable, p *problems) (string, bool) {
	direct, isSet := env[v.name]
	path, hasFile := env[v.name+fileSuffix]
	switch {
	case !v.isSecret() || !hasFile:
		return direct, isSet && checkText(v.name, direct, v, p)
	case isSet:
		p.add(v.name, "is set together with "+v.name+fileSuffix, "keep one of them")
		return "", false
	default:
		return readFile(v, path, p)
	}
}

// readFile reads a secret from its file and drops one trailing newline, which editors and
// `echo` add. Problems name the path, unless it looks like the secret itself.
func readFile(v variable, path string, p *problems) (string, bool) {
	name := v.name + fileSuffix
	if !checkText(name, path, v, p) {
		return "", false
	}
	if strings.Contains(path, "://") || len(path) > 4096 {
		p.add(name, "holds something other than a path", "give the path of a file, or set "+v.name)
		return "", false
	}
	content, err := readBounded(path)
	if err != nil {
		p.add(name, "cannot read "+path+": "+cause(err), "make it a readable file that holds the secret")
		return "", false
	}
	content = strings.TrimSuffix(strings.TrimSuffix(content, "\n"), "\r")
	return content, checkText(name, content, v, p)
}

// readBounded reads a whole file of at most maxText bytes.
func readBounded(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }() // read only: nothing can be lost
	content, err := io.ReadAll(io.LimitReader(file, maxText+1))
	if err != nil {
		return "", err
	}
	if len(content) > maxText {
		return "", errors.New("more than 64 KiB")
	}
	return string(content), nil
}

// cause is the reason of a file error without the path, which the caller names.
func cause(err error) string {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err.Error()
	}
	return err.Error()
}

// checkText refuses texts that are wrong for every variable; name is the variable or its file.
func checkText(name, text string, v variable, p *problems) bool {
	var reason, remedy string
	switch {
	case strings.TrimSpace(text) == "":
		reason, remedy = "is set but empty", "unset it, or give "+v.want()
	case !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) || len(text) > maxText:
		reason, remedy = "has control characters, invalid UTF-8 or more than 64 KiB", "give "+v.want()
	case strings.TrimSpace(text) != text:
		reason, remedy = "has white space around its value", "remove the white space"
	case isQuoted(text):
		reason, remedy = "has quotes as part of its value", "remove the quotes, which env files and YAML lists keep"
	default:
		return true
	}
	p.add(name, reason, remedy)
	return false
}

// isQuoted reports whether text starts and ends with the same quote.
func isQuoted(text string) bool {
	last := len(text) - 1
	return last > 0 && text[0] == text[last] && strings.ContainsRune("\"'`", rune(text[0]))
}
