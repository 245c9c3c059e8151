/* What linerate and its DPDK plugin say to each other: whole bursts, in C, so that nothing of DPDK's own structures leaves the plugin.
 *
 * The plugin is a shared object, linerate-dpdk.so.N, where N is the ABI version of the DPDK that it was compiled against. It has
 * one symbol, linerate_dpdk_plugin, which leads to a table. The first two numbers of the table have their places for ever; a
 * program that knows another version, or has other sizes, goes no further.
 *
 * A queue of a port belongs to one thread at a time, and different queues may be used by different threads at once. */
#ifndef LINERATE_DPDK_H
#define LINERATE_DPDK_H

#include <stddef.h>
#include <stdint.h>

enum {
    LINERATE_DPDK_ABI = 3,
    LINERATE_DPDK_WHY = 512,   /* bytes for a reason, which ends in NUL */
    LINERATE_DPDK_NAME = 64,
    LINERATE_DPDK_TAIL = 64,   /* bytes behind the last frame of an area that may be written too */
};

/* About one frame: the same 32 bytes as everywhere in linerate (struct linerate_desc in linerate_ring.h). */
struct linerate_dpdk_desc {
    uint64_t time;
    uint32_t offset, captured, wire;
    uint16_t interface, flags;
    uint8_t l3, l4;
    uint16_t note;
    uint32_t hash;
};

/* Where frames have their times from. */
enum linerate_dpdk_stamps {
    LINERATE_DPDK_BY_POLL = 0,   /* when they were read */
    LINERATE_DPDK_BY_DRIVER = 1, /* UTC that the driver knows, as of a capture file */
    LINERATE_DPDK_BY_CARD = 2,   /* the clock of the card, put onto the host's */
};

/* How the process is to use DPDK: asked for once. */
struct linerate_dpdk_start {
    uint32_t memory_mib;
    uint32_t huge;  /* from huge pages */
    const char *prefix;
};

/* What is to be opened. */
struct linerate_dpdk_open {
    const char *device;             /* as DPDK writes it: name or PCI address, then arguments with commas */
    uint16_t rx_queues, tx_queues;  /* 0: as many as of the other kind, if there are so many */
    uint32_t depth;                 /* frames of a queue; 0 for what the driver recommends */
    uint32_t mtu;                   /* 0 for 1500 */
    uint32_t promiscuous;
    uint32_t fifo;                  /* buffers go round, as behind the ring of a card, and are cold */
    uint32_t stamps;                /* by poll, or by driver or card; if it is greater by driver, where it knows UTC, else by poll */
};

/* What was opened. */
struct linerate_dpdk_info {
    uint16_t rx_queues, tx_queues;
    uint32_t longest;     /* frame that is sent, without FCS */
    uint32_t stamps;      /* enum linerate_dpdk_stamps */
    uint32_t promiscuous; /* whether it is */
    int32_t node;         /* of NUMA; -1 if there is none */
    char driver[LINERATE_DPDK_NAME];
};

/* Room for frames, and what came. Frames are shown where the driver put them as long as those lie in one memory of the queue;
 * others (of several buffers, with a tag to be put back, in memory of the driver's own) are copied to the room that is given, and
 * shown by themselves. Either way they stay as they are until the next call, also while the queue is detached. */
struct linerate_dpdk_take {
    uint8_t *room;                    /* a multiple of 64 */
    struct linerate_dpdk_desc *descs;
    uint32_t bytes, most;             /* of the room, without the tail, and descs */
    uint32_t snap;                    /* most bytes of a frame */
    uint64_t now;                     /* UTC in nanoseconds */
    /* What came. */
    uint32_t frames;
    uint32_t waiting;                 /* frames that were read, and come next */
    const uint8_t *base;              /* of offsets in descs */
    uint64_t joined, tagged, unstamped;
};

/* Frames to send, and what became of them. */
struct linerate_dpdk_put {
    const uint8_t *base;
    const struct linerate_dpdk_desc *descs;
    uint32_t frames;
    /* What became of them: the first so many are done with. */
    uint32_t done;
    uint32_t sent;
    uint64_t bytes;
    uint64_t too_long;
    uint64_t too_short; /* less than an Ethernet header */
};

struct linerate_dpdk_stats {
    uint64_t received, missed, errors, no_buffer, sent, send_errors;
};

/* A counter of the driver. */
struct linerate_dpdk_counter {
    char name[LINERATE_DPDK_NAME];
    uint64_t value;
};

/* The frames of several ports, ordered by time and copied each from its buffer to other memory: what programs over DPDK do, to be
 * measured beside. */
struct linerate_dpdk_classic {
    struct linerate_dpdk_port *const *ports;
    uint32_t count;
    uint64_t frames;  /* at least so many */
    uint8_t *base;
    size_t bytes;     /* filled again and again */
    struct linerate_dpdk_desc *descs;
    uint32_t most;    /* 0: frames are received and freed */
    uint32_t threads; /* not 0: one receives, one merges, one copies, into as much memory of a memfd in place of that */
    uint64_t cpu_ns[3]; /* of these: what they used of a processor, without their waiting for each other */
};

struct linerate_dpdk_port;

struct linerate_dpdk_plugin {
    uint32_t abi;
    uint32_t size; /* of this table */
    /* Of the structures above, in their order. */
    uint32_t sizes[9];
    uint32_t reserved;
    const char *version; /* of DPDK, as text */

    /* All that return int say 0, or another number and the reason. */
    int (*start)(const struct linerate_dpdk_start *, char *why);
    int (*open)(const struct linerate_dpdk_open *, struct linerate_dpdk_port **, struct linerate_dpdk_info *, char *why);
    void (*take)(struct linerate_dpdk_port *, uint16_t queue, struct linerate_dpdk_take *);
    /* Reads what has arrived, to be taken later, and no more from then on. */
    void (*detach)(struct linerate_dpdk_port *, uint16_t queue);
    /* Receives again where it was detached; what nobody took is gone. */
    void (*attach)(struct linerate_dpdk_port *, uint16_t queue);
    void (*put)(struct linerate_dpdk_port *, uint16_t queue, struct linerate_dpdk_put *);
    void (*stats)(struct linerate_dpdk_port *, struct linerate_dpdk_stats *);
    /* The driver's own counters: how many there are now, at most `most` of them written. */
    uint32_t (*counters)(struct linerate_dpdk_port *, struct linerate_dpdk_counter *, uint32_t most);
    /* Waits for frames that the driver has taken, a second at most. */
    void (*close)(struct linerate_dpdk_port *);
    /* How many were copied. */
    uint64_t (*classic)(struct linerate_dpdk_classic *);
};

__attribute__((visibility("default"))) const struct linerate_dpdk_plugin *linerate_dpdk_plugin(void);

#endif
