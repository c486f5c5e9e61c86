// Package openfile knows how many files, sockets among them, this process may have open at once: the first limit that a
// server of connections meets.
//
// A process has a soft limit, which counts, and a hard limit, up to which it may raise the soft one. Distributions keep
// the soft one low (1024) for programs that use select(2), and the hard one high. The Go runtime raises the soft limit when
// a program starts; [Raise] does so too, because much depends on it here, and says what came of it.
//
// Above the limit accept(2) fails with EMFILE: clients wait in the kernel's queue and see nothing but a slow server. So a
// process refuses connections by itself before that, see [Limit.Room].
package openfile
