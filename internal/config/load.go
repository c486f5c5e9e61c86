package config

import "os"

// Load reads the configuration of one kind of process from environ, which has the form of
// os.Environ, and validates it. The error joins a [Problem] for each variable that is wrong;
// the configuration must not be used then.
func Load[P Process](environ []string) (P, error) {
	var cfg P
	p := &problems{}
	env := readEnviron(environ)
	env.checkNames(p)
	own := variables(&cfg)
	for _, v := range own {
		env.assign(v, p)
	}
	env.checkForeign(own, p)
	if c, ok := any(&cfg).(completer); ok {
		c.complete(os.Hostname)
	}
	check(&cfg, p)
	return cfg, p.err()
}

// completer fills in the defaults that depend on other variables or on the host.
type completer interface {
	complete(hostname func() (string, error))
}

// assign sets one field from the environment, or else to its default. A field whose value is
// wrong gets its default too, so that rules between variables do not report it again.
func (env environment) assign(v variable, p *problems) {
	text, ok := env.text(v, p)
	if ok && set(v, text, p) {
		return
	}
	if standard := v.tag.Get("default"); standard != "" {
		set(v, standard, p)
	}
}

// set converts one text and reports what is wrong with it.
func set(v variable, text string, p *problems) bool {
	if v.isList() {
		trimmed, ok := trimItems(text)
		if !ok {
			p.add(v.name, "has an empty item", "give "+v.want())
			return false
		}
		text = trimmed
	}
	if err := convert(v, text); err != nil {
		p.add(v.name, "is not "+v.want(), "give a value of that form")
		return false
	}
	return true
}

// checkForeign checks the form and range of what is set for other kinds of process, so that a mistake in a
// shared environment shows in the first process that reads it. Files are not opened: they may be
// mounted elsewhere only.
func (env environment) checkForeign(own []variable, p *problems) {
	mine := make(map[string]bool, len(own))
	for _, v := range own {
		mine[v.name] = true
	}
	for _, e := range catalog() {
		if mine[e.name] {
			continue
		}
		if text, isSet := env[e.name]; isSet && checkText(e.name, text, e.variable, p) && set(e.variable, text, p) {
			checkRange(e.variable, p)
		}
		if path, isSet := env[e.name+fileSuffix]; isSet && e.isSecret() {
			checkText(e.name+fileSuffix, path, e.variable, p)
		}
	}
}

func (c *API) complete(func() (string, error)) {
	c.Database.DirectURL = fallback(c.Database.DirectURL, c.Database.URL)
}

func (c *Worker) complete(hostname func() (string, error)) {
	c.Database.DirectURL = fallback(c.Database.DirectURL, c.Database.URL)
	if c.Identity.WorkerID != "" {
		return
	}
	// Without a host name the id stays empty, and validation asks for one.
	if name, err := hostname(); err == nil {
		c.Identity.WorkerID = name
	}
}

func (c *Migrate) complete(func() (string, error)) {
	c.Database.DirectURL = fallback(c.Database.DirectURL, c.Database.URL)
}

func (c *Tool) complete(func() (string, error)) {
	c.Database.DirectURL = fallback(c.Database.DirectURL, c.Database.URL)
}

// fallback returns the direct URL, or the pooled one if there is none. A malformed one is not
// copied, so that it is reported once.
func fallback(direct, pooled Secret) Secret {
	if direct.IsSet() || !kindPostgres.accepts(pooled.Reveal()) {
		return direct
	}
	return pooled
}
