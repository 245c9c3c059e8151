/* Declarations shared by the parts of the plugin. */
#ifndef PLUGIN_H
#define PLUGIN_H

#include "../linerate_dpdk.h"

/* Only for rte_eth_read_clock. */
#define ALLOW_EXPERIMENTAL_API

#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_mbuf_dyn.h>

enum {
    BURST = 32,
    MAX_FRAME = 262144,
    /* Bytes copied per take: few enough to stay in the cache until the next copy. */
    ENOUGH = 65536,
    /* Maximum number of frames per take. */
    SHOWN = 512,
    LEAST_FRAME = 14, /* an Ethernet header: drivers read it without a check of the length */
    /* Minimum number of frames of a queue that detach can read. */
    DETACHED = 1024,
    /* Bits of desc.flags (struct linerate_desc in linerate_ring.h). */
    VLAN_RESTORED = 1 << 0,
    CHECKSUM_VALID = 1 << 2,
    JOINED = 1 << 7,
    NO_LAYER = 255,
};

/* One receive queue. */
struct rx {
    struct rte_mbuf **mbufs; /* frames read; those from `next` on are not presented, those from `freed` on not freed */
    uint32_t room, count, next, freed;
    int detached;
    uint64_t last; /* time of the last frame */
    uint64_t anchored; /* time of the last comparison of ticks and UTC */
    uint64_t ticks, utc;
    double ns_per_tick;
} __rte_cache_aligned;

/* One send queue. */
struct tx {
    struct rte_mbuf *spare[BURST]; /* buffers that the driver did not accept */
    uint32_t spares;
    uint64_t last; /* TSC when the driver last accepted frames; 0: never */
} __rte_cache_aligned;

struct linerate_dpdk_port {
    uint16_t id, rx_queues, tx_queues, tx_depth;
    char name[LINERATE_DPDK_NAME];
    struct rte_device *device;
    struct rte_mempool *pool;
    const uint8_t *base; /* memory of the pool if it is contiguous; else NULL */
    size_t bytes;        /* its size */
    uint32_t room;    /* size of a buffer */
    uint32_t longest; /* maximum length of a sent frame */
    uint32_t stamps;
    int stamp_field;
    uint64_t stamp_flag;
    uint64_t ticks, utc; /* read together when the port was opened */
    struct rx *rx;
    struct tx *tx;
};

int start(const struct linerate_dpdk_start *asked, char *why);
int open_port(const struct linerate_dpdk_open *asked, struct linerate_dpdk_port **made, struct linerate_dpdk_info *info,
              char *why);
void close_port(struct linerate_dpdk_port *port);
void port_stats(struct linerate_dpdk_port *port, struct linerate_dpdk_stats *stats);
uint32_t port_counters(struct linerate_dpdk_port *port, struct linerate_dpdk_counter *counters, uint32_t most);

void take(struct linerate_dpdk_port *port, uint16_t queue, struct linerate_dpdk_take *into);
void detach(struct linerate_dpdk_port *port, uint16_t queue);
void attach(struct linerate_dpdk_port *port, uint16_t queue);
void put(struct linerate_dpdk_port *port, uint16_t queue, struct linerate_dpdk_put *out);
uint64_t classic(struct linerate_dpdk_classic *asked);

/* Writes a reason, with DPDK's log since listen_to_dpdk(1); returns -1. */
int because(char *why, const char *format, ...) __rte_format_printf(2, 3);
/* Sets whether DPDK's log is kept for a reason (1), or printed to standard error (0). */
void listen_to_dpdk(int on);
/* Registers this thread with DPDK, which caches buffers for registered threads. */
void enlist(void);
/* Returns UTC in nanoseconds. */
uint64_t utc_now(void);

/* Copies a frame; up to 63 bytes after it may be overwritten. */
static inline void copy_over(uint8_t *to, const struct rte_mbuf *m, uint32_t len)
{
    const uint8_t *from = rte_pktmbuf_mtod(m, const uint8_t *);

    if (m->data_off + RTE_ALIGN(len, 64) > m->buf_len) {
        memcpy(to, from, len);
        return;
    }
    for (uint32_t at = 0; at < len; at += 64)
        __builtin_memcpy(to + at, from + at, 64);
}

#endif
