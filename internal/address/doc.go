// Package address says which client a request counts for, and keeps what is known of each client in bounded memory.
//
// A client is the network of the right-most address on a request's way that is no trusted proxy: an address of IPv4, a /64 of
// IPv6. Whoever is further left was named by the client itself, or by proxies that nobody vouches for, so it is not believed:
// no header frees a client from its limit, or uses up another's. A proxy that is not named as trusted is one client, with all
// that come through it.
package address
