// Package connections measures what an idle connection costs a worker in memory, beside the centrifuge library.
//
// # One measurement
//
// A server process is started anew, `berth worker` with its `berth api` and a Postgres, or the server of bench/centrifuge with
// the library's memory broker. What it uses before anybody connects is read. Then n clients of this process connect, each a
// peer of a call, and subscribe. Once all of them were pinged, nothing else happens any more, and what the server uses is
// read again. The differences, divided by n, are what is reported:
//
//   - rss: VmRSS of the one server process that holds the sockets
//   - heap, stack: what its Go runtime has in use (go_memstats_heap_inuse_bytes, go_memstats_stack_inuse_bytes)
//   - kernel: the kernel's caches of sockets, their files and places in an epoll (/proc/slabinfo, root may read it), and the
//     socket buffers of /proc/net/sockstat, halved, since both ends of each connection are on this machine. It has no owner, so
//     that whatever else opens sockets shows in it; without the right to read the caches it is all of Slab in /proc/meminfo.
//
// Nobody forces a garbage collection, on either side. Both have Go's defaults, and pings at the same interval.
//
// # Subjects
//
// Two peers share each topic. "berth" and "centrifuge" have one subscription each and are what is to be compared; the
// library has its defaults there, and in "centrifuge_lean" the options that it has for many idle connections (a pool of write
// buffers, commands off the read loop). The other subjects of Berth have no subscription, many, or compression and one.
//
// Subjects take turns, so that no drift of the machine favors one, and medians are reported.
//
// # What is not promised
//
// An idle connection is one that is pinged and nothing else. What waits for slow readers comes on top.
package connections
