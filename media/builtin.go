package media

// builtinHandlers returns the handlers that every engine has.
func builtinHandlers() (map[string]HandlerFactory, error) {
	c, err := loadClip()
	if err != nil {
		return nil, err
	}
	return map[string]HandlerFactory{
		"echo": func(*Session) (Handler, error) { return HandlerFunc(newEcho), nil },
		"play": func(*Session) (Handler, error) {
			return HandlerFunc(func(*Peer) (PeerHandler, error) { return &player{clip: c}, nil }), nil
		},
	}, nil
}
