/* Interface between linerate and its DPDK plugin: whole bursts, in C, so that DPDK's structures stay inside the plugin.
 *
 * The plugin is a shared object, linerate-dpdk.so.N, where N is the ABI version of the DPDK that it was compiled against.
 * Its only symbol, linerate_dpdk_plugin, returns a table. The offsets of the first two numbers of the table never change; a
 * program with another version or other sizes rejects the plugin.
 *
 * A queue of a port may be used by one thread at a time; different queues may be used by different threads at once. */
#ifndef LINERATE_DPDK_H
#define LINERATE_DPDK_H

#include <stddef.h>
#include <stdint.h>

enum {
    LINERATE_DPDK_ABI = 3,
    LINERATE_DPDK_WHY = 512,   /* size of a reason, with its NUL */
    LINERATE_DPDK_NAME = 64,
    LINERATE_DPDK_TAIL = 64,   /* bytes after the last frame of an area that may be written too */
};

/* Descriptor of a frame: same as struct linerate_desc in linerate_ring.h. */
struct linerate_dpdk_desc {
    uint64_t time;
    uint32_t offset, captured, wire;
    uint16_t interface, flags;
    uint8_t l3, l4;
    uint16_t note;
    uint32_t hash;
};

/* Source of time stamps. */
enum linerate_dpdk_stamps {
    LINERATE_DPDK_BY_POLL = 0,   /* time of reading */
    LINERATE_DPDK_BY_DRIVER = 1, /* UTC from the driver, for example of a capture file */
    LINERATE_DPDK_BY_CARD = 2,   /* clock of the network card, converted to the host's */
};

/* Settings of DPDK for the process, applied once. */
struct linerate_dpdk_start {
    uint32_t memory_mib;
    uint32_t huge;  /* use huge pages */
    const char *prefix;
};

/* Port to open. */
struct linerate_dpdk_open {
    const char *device;             /* DPDK syntax: name or PCI address, then arguments after commas */
    uint16_t rx_queues, tx_queues;  /* 0: same number as of the other kind, limited by the driver */
    uint32_t depth;                 /* frames per queue; 0: 1024, adjusted to the driver */
    uint32_t mtu;                   /* 0 for 1500 */
    uint32_t promiscuous;
    uint32_t fifo;                  /* reuse buffers in turn, so that they are not cached, as in the ring of a card */
    /* 0: by poll. 1 or 2: by driver or card, or an error. Greater: by driver if it knows UTC, else by poll. */
    uint32_t stamps;
};

/* Properties of an open port. */
struct linerate_dpdk_info {
    uint16_t rx_queues, tx_queues;
    uint32_t longest;     /* maximum length of a sent frame, without FCS */
    uint32_t stamps;      /* enum linerate_dpdk_stamps */
    uint32_t promiscuous; /* 1: enabled */
    int32_t node;         /* NUMA node; -1: none */
    char driver[LINERATE_DPDK_NAME];
};

/* Room for frames, and received frames. Frames are presented in the driver's buffers if these are in the memory of the pool.
 * Others (of several buffers, with a tag to restore, in other memory of the driver) are copied to the room given, in a call of
 * their own. Either way they do not change until the next call, even while the queue is detached. */
struct linerate_dpdk_take {
    uint8_t *room;                    /* a multiple of 64 */
    struct linerate_dpdk_desc *descs;
    uint32_t bytes, most;             /* size of the room without the tail; maximum number of descs */
    uint32_t snap;                    /* maximum captured length of a frame */
    uint64_t now;                     /* UTC in nanoseconds */
    /* Results. */
    uint32_t frames;
    uint32_t waiting;                 /* frames that were read and not returned yet */
    const uint8_t *base;              /* base of the offsets in descs */
    uint64_t joined, tagged, unstamped;
};

/* Frames to send, and results. */
struct linerate_dpdk_put {
    const uint8_t *base;
    const struct linerate_dpdk_desc *descs;
    uint32_t frames;
    /* Results. */
    uint32_t done;      /* number of frames from the first that were sent or rejected */
    uint32_t sent;
    uint64_t bytes;
    uint64_t too_long;
    uint64_t too_short; /* shorter than an Ethernet header */
};

struct linerate_dpdk_stats {
    uint64_t received, missed, errors, no_buffer, sent, send_errors;
};

/* A counter of the driver. */
struct linerate_dpdk_counter {
    char name[LINERATE_DPDK_NAME];
    uint64_t value;
};

/* Baseline for benchmarks, as in other DPDK programs: frames of several ports are ordered by time, and each is copied from its
 * buffer to other memory. */
struct linerate_dpdk_classic {
    struct linerate_dpdk_port *const *ports;
    uint32_t count;
    uint64_t frames;  /* minimum number of frames to process */
    uint8_t *base;
    size_t bytes;     /* size of base, which is filled repeatedly */
    struct linerate_dpdk_desc *descs;
    uint32_t most;    /* number of descs; 0: frames are received and freed */
    uint32_t threads; /* not 0: one thread receives, one merges, one copies, to a memfd of the same size instead of base */
    uint64_t cpu_ns[3]; /* CPU time of each thread, without waits for the others */
};

struct linerate_dpdk_port;

struct linerate_dpdk_plugin {
    uint32_t abi;
    uint32_t size; /* of this table */
    /* Sizes of the structures above, in order. */
    uint32_t sizes[9];
    uint32_t reserved;
    const char *version; /* DPDK version as text */

    /* Functions that return int return 0, or another number and write the reason. */
    int (*start)(const struct linerate_dpdk_start *, char *why);
    int (*open)(const struct linerate_dpdk_open *, struct linerate_dpdk_port **, struct linerate_dpdk_info *, char *why);
    void (*take)(struct linerate_dpdk_port *, uint16_t queue, struct linerate_dpdk_take *);
    /* Reads the frames that have arrived, to be taken later, and stops reading. */
    void (*detach)(struct linerate_dpdk_port *, uint16_t queue);
    /* Resumes reading after a detach; frames not taken are discarded. */
    void (*attach)(struct linerate_dpdk_port *, uint16_t queue);
    void (*put)(struct linerate_dpdk_port *, uint16_t queue, struct linerate_dpdk_put *);
    void (*stats)(struct linerate_dpdk_port *, struct linerate_dpdk_stats *);
    /* Writes at most `most` of the driver's own counters; returns their number. */
    uint32_t (*counters)(struct linerate_dpdk_port *, struct linerate_dpdk_counter *, uint32_t most);
    /* Closes the port. Waits up to one second until frames that the driver accepted are sent. */
    void (*close)(struct linerate_dpdk_port *);
    /* Returns the number of processed frames. */
    uint64_t (*classic)(struct linerate_dpdk_classic *);
};

__attribute__((visibility("default"))) const struct linerate_dpdk_plugin *linerate_dpdk_plugin(void);

#endif
