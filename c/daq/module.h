/* SPDX-License-Identifier: GPL-2.0-only */
/* The parts of daq_linerate.so: an instance takes frames from a ring (ring.c) or a file (file.c), hands them out as messages of its
 * own pool (pool.c), and says what became of them. */
#ifndef LINERATE_DAQ_MODULE_H
#define LINERATE_DAQ_MODULE_H

#include "../linerate_ring.h"
#include "abi.h"

#include <stdatomic.h>

enum {
    MOST_HELD = 1024,     /* messages that an inline instance has out: whoever shares lets no engine hold more frames */
    DEFAULT_POOL = 512,
    MOST_POOL = 1 << 16,
    WHY = 256,            /* bytes of what libdaq keeps of an error */
};

/* A message, and what is known of it by ourselves: whoever has it may write into all that it points to. */
struct message {
    struct daq_msg msg;
    struct daq_packet packet;
    struct daq_decode decode;
    unsigned char *bytes;
    uint32_t length;
    enum { MESSAGE_FREE, MESSAGE_OUT, MESSAGE_HELD } state;
    uint32_t index;                /* out: of the burst that it was taken from */
    struct linerate_ticket ticket; /* inline: what its verdict names it by */
} __attribute__((aligned(256)));
_Static_assert(sizeof(struct message) == 256, "whole lines");

struct pool {
    struct message *all;
    uint32_t *free;
    uint32_t size, available;
    void *owner; /* the instance, as libdaq knows it */
    unsigned char *small, *large;
    size_t small_bytes, large_bytes;
};

struct filter;
struct file;
struct shared;
struct due;

enum { REASONS = 256 };

struct instance {
    void *handle; /* what libdaq knows this instance by */
    const char *source;
    char *input;
    enum { SOURCE_FILE, SOURCE_RING, SOURCE_INLINE } kind;
    enum daq_mode mode;
    uint32_t snaplen, shard, shards;
    int timeout; /* milliseconds; -1: for ever */
    /* Variables. */
    int lossless, trust;
    uint32_t quota, spin_us;
    char name[64];
    /* Where frames come from. */
    struct linerate_ring *ring;
    struct file *file;
    struct filter *filter;
    int link; /* of all frames that are shown, as libpcap numbers them (DLT) */
    int links[LINERATE_INTERFACES]; /* of interfaces of the ring; DAQ_UNKNOWN: not looked up yet */
    struct pool pool;
    uint64_t newest;    /* the time of the newest message */
    int joins_two;      /* inline: the ring belongs to who joins two ports, and each frame leaves by the other one */
    uint64_t reasons[REASONS]; /* how often the engine gave this one for a verdict */
    uint32_t undecided; /* inline: messages of the burst that is looked at */
    int is_looking;
    struct shared *shared; /* inline with -z N: the ring is that of several instances (shards.c) */
    struct due *due;       /* frames of this one that another instance has taken from it */
    uint32_t due_first, due_count;
    int turn; /* an eventfd that is readable when there are some, or it is to look itself */
    int is_asleep;
    /* From another thread. */
    atomic_int interrupted;
    int wake; /* an eventfd that is readable then */
    struct daq_stats stats;
    uint64_t skipped_before;
};

extern struct daq_base daq_base;

/* Says why a function fails; returns DAQ_ERROR. */
int fails(const struct instance *instance, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Messages. */

/* 0 or an error. */
int pool_create(struct pool *pool, uint32_t size, void *owner);
void pool_destroy(struct pool *pool);

/* Rings. Those that return an int return 0, or an error that was said. */

int ring_start(struct instance *instance);
void ring_stop(struct instance *instance);

/* Takes up to `most` frames into messages; how many. */
unsigned ring_take(struct instance *instance, unsigned most, const struct daq_msg *msgs[]);

/* Why no more frames come, if none do: a status and an error said, or DAQ_RSTAT_OK. */
enum daq_status ring_end(struct instance *instance);

/* Waits for frames, an interruption, or so many milliseconds (-1: for ever). */
void ring_wait(struct instance *instance, int milliseconds);

/* So many messages were received. Without any another instance looks after the ring. */
unsigned ring_received(struct instance *instance, unsigned got);

/* Whether no more can be said of frames. */
int ring_is_over(const struct instance *instance);

/* Frames of the last burst that nothing was said of are held from now on, and the others are told. */
void ring_publish(struct instance *instance);
void ring_say(struct instance *instance, struct message *message, enum daq_verdict verdict);
int ring_inject(struct instance *instance, struct message *message, const uint8_t *data, uint32_t length, int reverse);

/* Frames that the writer did not show, since the statistics were begun. */
uint64_t ring_skipped(const struct instance *instance);

/* A ring that several instances of a process decide about. */

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

/* Whether a frame is of the kind that was promised, and the filter lets it through. */
int ring_wants(struct instance *instance, const struct linerate_desc *desc, const unsigned char *frame);
struct message *ring_message(struct instance *instance, const struct linerate_desc *desc, const unsigned char *frame);

/* The number of a link type, as libpcap numbers it within a process, of that in files. */
int link_of_file(uint32_t link);

/* The number of the interface of this name, or DAQ_UNKNOWN. */
int ring_interface(const struct instance *instance, const char *name);

/* Reasons of verdicts. libdaq has no place for them: they are said on standard error in the end. */

int reasons_take(struct instance *instance, const struct daq_verdict_reason *said, size_t length);
void reasons_say(struct instance *instance);

/* Files: pcap and pcapng. */

struct file *file_open(struct instance *instance, const char *path);
void file_close(struct file *file);
int file_link(const struct file *file);
enum daq_status file_take(struct instance *instance, unsigned most, const struct daq_msg *msgs[], unsigned *got);

/* Filters, by libpcap where it is there. */

int filter_is_there(void);
struct filter *filter_compile(const char *text, int link, char *why);
const char *filter_text(const struct filter *filter);
int filter_link(const struct filter *filter);
int filter_passes(const struct filter *filter, const unsigned char *bytes, uint32_t captured, uint32_t wire);
void filter_free(struct filter *filter);

#endif
