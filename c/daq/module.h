/* SPDX-License-Identifier: GPL-2.0-only */
/* Declarations shared by the parts of daq_linerate.so. An instance takes frames from a ring (ring.c) or a file (file.c), hands
 * them out as messages of its own pool (pool.c), and returns verdicts. */
#ifndef LINERATE_DAQ_MODULE_H
#define LINERATE_DAQ_MODULE_H

#include "../linerate_ring.h"
#include "abi.h"

#include <stdatomic.h>

enum {
    MOST_HELD = 1024,     /* maximum number of messages of an inline instance: the writer's limit of held frames */
    DEFAULT_POOL = 512,
    MOST_POOL = 1 << 16,
    WHY = 256,            /* size of an error text in libdaq */
};

/* A message, with private copies of its numbers: an engine may write to all memory that the message points to. */
struct message {
    struct daq_msg msg;
    struct daq_packet packet;
    struct daq_decode decode;
    unsigned char *bytes;
    uint32_t length;
    enum { MESSAGE_FREE, MESSAGE_OUT, MESSAGE_HELD } state;
    uint32_t index;                /* out: index in the burst that it was taken from */
    struct linerate_ticket ticket; /* inline: ticket for its verdict */
} __attribute__((aligned(256)));
_Static_assert(sizeof(struct message) == 256, "whole cache lines");

struct pool {
    struct message *all;
    uint32_t *free;
    uint32_t size, available;
    void *owner; /* libdaq's handle of the instance */
    unsigned char *small, *large;
    size_t small_bytes, large_bytes;
};

struct filter;
struct file;
struct shared;
struct due;

enum { REASONS = 256 };

struct instance {
    void *handle; /* libdaq's handle of this instance */
    const char *source;
    char *input;
    enum { SOURCE_FILE, SOURCE_RING, SOURCE_INLINE } kind;
    enum daq_mode mode;
    uint32_t snaplen, shard, shards;
    int timeout; /* milliseconds; -1: no limit */
    /* Variables. */
    int lossless, trust;
    uint32_t quota, spin_us;
    char name[64];
    /* Source of frames. */
    struct linerate_ring *ring;
    struct file *file;
    struct filter *filter;
    int link; /* link type of all presented frames, a DLT_* number of libpcap */
    int links[LINERATE_INTERFACES]; /* link types of the ring's interfaces; DAQ_UNKNOWN: not looked up yet */
    struct pool pool;
    uint64_t newest;    /* time of the newest message */
    int joins_two;      /* inline: the ring has two ports, and each frame leaves by the other one */
    uint64_t reasons[REASONS]; /* verdicts per reason given by the engine */
    uint32_t undecided; /* inline: messages of the current burst without a verdict */
    int is_looking;
    struct shared *shared; /* inline with -z N: ring of several instances (shards.c) */
    struct due *due;       /* frames for this instance that were taken from the ring */
    uint32_t due_first, due_count;
    int turn; /* an eventfd: readable if frames are due, or this instance must wait at the ring */
    int is_asleep;
    /* Set by other threads. */
    atomic_int interrupted;
    int wake; /* an eventfd: readable after an interruption */
    struct daq_stats stats;
    uint64_t skipped_before;
};

extern struct daq_base daq_base;

/* Reports the reason of a failure to libdaq; returns DAQ_ERROR. */
int fails(const struct instance *instance, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Messages. */

/* Returns 0 or an error. */
int pool_create(struct pool *pool, uint32_t size, void *owner);
void pool_destroy(struct pool *pool);

/* Rings. */

/* Returns 0, or an error after reporting it. */
int ring_start(struct instance *instance);
void ring_stop(struct instance *instance);

/* Takes up to `most` frames into messages; returns their number. */
unsigned ring_take(struct instance *instance, unsigned most, const struct daq_msg *msgs[]);

/* Returns DAQ_RSTAT_OK while more frames may follow, else the end status; reports an error. */
enum daq_status ring_end(struct instance *instance);

/* Waits for frames or an interruption, for at most `milliseconds` (-1: no limit). */
void ring_wait(struct instance *instance, int milliseconds);

/* Called with the number of received messages, which it returns. If it is 0, another instance must wait at the ring. */
unsigned ring_received(struct instance *instance, unsigned got);

/* Returns 1 if verdicts are no longer accepted. */
int ring_is_over(const struct instance *instance);

/* Holds the frames of the last burst without a verdict, and publishes the verdicts on the others. */
void ring_publish(struct instance *instance);
void ring_say(struct instance *instance, struct message *message, enum daq_verdict verdict);
int ring_inject(struct instance *instance, struct message *message, const uint8_t *data, uint32_t length, int reverse);

/* Returns the number of frames that the writer skipped since the last reset of the statistics. */
uint64_t ring_skipped(const struct instance *instance);

/* An inline ring shared by several instances of a process. */

int shared_join(struct instance *instance, const struct linerate_options *options);
void shared_leave(struct instance *instance);
unsigned shared_take(struct instance *instance, unsigned most, const struct daq_msg *msgs[]);
void shared_wait(struct instance *instance, int milliseconds);
void shared_pass_on(struct instance *instance);
int shared_is_left(const struct instance *instance);
enum linerate_end shared_end(const struct instance *instance);
void shared_say(struct instance *instance, struct linerate_ticket ticket, enum linerate_verdict verdict);
enum linerate_answer shared_answer(struct instance *instance, struct linerate_ticket ticket, int replaces, int where,
                                   const void *data, uint32_t length);

/* Returns 1 if a frame has the announced link type and matches the filter. */
int ring_wants(struct instance *instance, const struct linerate_desc *desc, const unsigned char *frame);
struct message *ring_message(struct instance *instance, const struct linerate_desc *desc, const unsigned char *frame);

/* Converts a link type of a file (LINKTYPE_*) to the number in libpcap's API (DLT_*). */
int link_of_file(uint32_t link);

/* Returns the number of the interface of this name, or DAQ_UNKNOWN. */
int ring_interface(const struct instance *instance, const char *name);

/* Reasons of verdicts. libdaq does not report them: they are printed to standard error at the end. */

int reasons_take(struct instance *instance, const struct daq_verdict_reason *said, size_t length);
void reasons_say(struct instance *instance);

/* Files: pcap and pcapng. */

struct file *file_open(struct instance *instance, const char *path);
void file_close(struct file *file);
int file_link(const struct file *file);
enum daq_status file_take(struct instance *instance, unsigned most, const struct daq_msg *msgs[], unsigned *got);

/* Filters; they need libpcap at run time. */

int filter_is_there(void);
struct filter *filter_compile(const char *text, int link, char *why);
const char *filter_text(const struct filter *filter);
int filter_link(const struct filter *filter);
int filter_passes(const struct filter *filter, const unsigned char *bytes, uint32_t captured, uint32_t wire);
void filter_free(struct filter *filter);

#endif
