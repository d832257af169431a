/*
 * net.h
 *		Waiting for sockets and name servers, with a deadline.
 */
#ifndef SNOWID_REGISTRY_NET_H
#define SNOWID_REGISTRY_NET_H

#define NET_ERR_LEN 256
#define NET_ADDRESS_LEN 64		/* of a numeric address, with its NUL */
#define NET_ADDRESSES_LEN 512

extern void net_set_deadline(int timeout_ms);
extern void net_begin_last_call(int64 ends);
extern bool net_wait(int fd, int event, char *err);
extern bool net_resolve(const char *host, char *addresses, char *err);

#endif							/* SNOWID_REGISTRY_NET_H */
