/* SPDX-License-Identifier: GPL-2.0-only */
/* Frames of a block ring (docs/block-ring.md), passive or inline. */
#define _GNU_SOURCE
#include "pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    BURSTS = 256,      /* maximum number of bursts per call if all frames are of other shards */
    ANSWER_WAIT = 100, /* milliseconds to wait for room for an answer */
    TCP = 6,
    UDP = 17,
};

int link_of_file(uint32_t link) {
    /* Link types with two numbers: ATM (RFC 1483), raw IP, SLIP and PPP of BSD/OS, IP over ATM. */
    static const struct { uint32_t file, process; } two[] = { { 100, 11 }, { 101, 12 }, { 102, 15 }, { 103, 16 }, { 106, 19 } };
    for (size_t at = 0; at < sizeof two / sizeof *two; at++)
        if (two[at].file == link)
            return (int)two[at].process;
    return (int)link;
}

/* Passive instances of a process (-z N) each read a part of one ring. Parts of a second ring would be unread. */
static struct {
    pthread_mutex_t lock;
    unsigned users;
    char source[96];
} parted = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int is_parted(const struct instance *instance) {
    return instance->kind == SOURCE_RING && instance->shards > 1;
}

static int parted_join(const struct instance *instance) {
    pthread_mutex_lock(&parted.lock);
    if (parted.users == 0)
        snprintf(parted.source, sizeof parted.source, "%s", instance->source);
    const int fits = strcmp(parted.source, instance->source) == 0;
    parted.users += (unsigned)fits;
    pthread_mutex_unlock(&parted.lock);
    return fits ? DAQ_SUCCESS
                : fails(instance, "%.60s: with -z N all instances must read the same ring; use one engine per ring, or one "
                                  "ring for all ports (linerate capture A B --share NAME)", instance->input);
}

static void parted_leave(void) {
    pthread_mutex_lock(&parted.lock);
    parted.users--;
    pthread_mutex_unlock(&parted.lock);
}

int ring_start(struct instance *instance) {
    char why[2 * WHY];
    const struct linerate_options options = {
        .lossless = instance->lossless,
        .trust = instance->trust,
        .quota = instance->quota,
        .name = instance->name,
    };
    const int decides = instance->kind == SOURCE_INLINE;
    if (decides && instance->shards > 1) {
        const int result = shared_join(instance, &options);
        if (result != DAQ_SUCCESS)
            return result;
    } else {
        instance->ring = (decides ? linerate_attach_engine : linerate_attach)(instance->source, &options, why, sizeof why);
        if (!instance->ring)
            return fails(instance, "%.120s: %.120s", instance->input, why);
        if (is_parted(instance) && parted_join(instance) != DAQ_SUCCESS) {
            linerate_detach(instance->ring);
            instance->ring = NULL;
            return DAQ_ERROR;
        }
    }
    instance->link = 1;
    instance->newest = 0;
    for (uint32_t at = 0; at < LINERATE_INTERFACES; at++)
        instance->links[at] = DAQ_UNKNOWN;
    /* All presented frames have the link type of the first interface. */
    struct linerate_interface first;
    if (linerate_interface(instance->ring, 0, &first))
        instance->link = link_of_file(first.link);
    return DAQ_SUCCESS;
}

void ring_stop(struct instance *instance) {
    if (!instance->ring)
        return;
    ring_publish(instance);
    reasons_say(instance);
    instance->stats.hw_dropped = ring_skipped(instance);
    if (is_parted(instance))
        parted_leave();
    if (instance->shared)
        shared_leave(instance);
    else
        linerate_detach(instance->ring);
    instance->ring = NULL;
}

uint64_t ring_skipped(const struct instance *instance) {
    return instance->ring ? linerate_skipped(instance->ring) - instance->skipped_before : instance->stats.hw_dropped;
}

int ring_interface(const struct instance *instance, const char *name) {
    struct linerate_interface one;
    for (uint32_t at = 0; instance->ring && linerate_interface(instance->ring, at, &one); at++)
        if (strcmp(one.name, name) == 0)
            return (int)at + 1;
    return DAQ_UNKNOWN;
}

/* Returns 1 if a frame has the announced link type. */
static int is_of_link(struct instance *instance, uint16_t interface) {
    int *link = &instance->links[interface];
    struct linerate_interface one;
    if (*link == DAQ_UNKNOWN && linerate_interface(instance->ring, interface, &one))
        *link = link_of_file(one.link);
    return *link == instance->link;
}

/* Both directions of a flow, and all fragments of a packet, have the same hash. */
static int is_of_shard(const struct instance *instance, const struct linerate_desc *desc) {
    return instance->shards < 2 || (uint32_t)((uint64_t)desc->hash * instance->shards >> 32) == instance->shard;
}

int ring_wants(struct instance *instance, const struct linerate_desc *desc, const unsigned char *frame) {
    const struct filter *filter = instance->filter;
    return is_of_link(instance, desc->interface) && (!filter || filter_passes(filter, frame, desc->captured, desc->wire));
}

/* Adds the checksum that the card or the kernel has verified. */
static void add_decoded(struct message *message, const struct linerate_desc *desc) {
    if (!(desc->flags & LINERATE_CHECKSUM_VALID) || desc->l3 == LINERATE_NO_LAYER || desc->l4 == LINERATE_NO_LAYER ||
        desc->l3 + 20u > message->length)
        return;
    const unsigned char *ip = message->bytes + desc->l3;
    const int protocol = ip[0] >> 4 == 4 ? ip[9] : ip[6];
    if (protocol != TCP && protocol != UDP)
        return;
    message->decode = (struct daq_decode){
        .flags = DAQ_DECODE_L3 | DAQ_DECODE_L4 | DAQ_DECODE_L4_SUM | (protocol == TCP ? DAQ_DECODE_TCP : DAQ_DECODE_UDP),
        .l2 = 0,
        .l3 = desc->l3,
        .l4 = desc->l4,
        .payload = DAQ_DECODE_NONE,
        .checksum = DAQ_DECODE_NONE,
    };
    message->msg.meta[DAQ_META_DECODE] = &message->decode;
}

/* Returns a message with a copy of this frame. */
struct message *ring_message(struct instance *instance, const struct linerate_desc *desc, const unsigned char *frame) {
    const int cut = instance->kind == SOURCE_RING && desc->captured > instance->snaplen;
    struct message *message = pool_take(&instance->pool, frame, cut ? instance->snaplen : desc->captured);
    /* A frame may be older than an earlier one of another lane. An engine takes its clock from these times, so they never
     * go back. */
    instance->newest = desc->time > instance->newest ? desc->time : instance->newest;
    message_fill(&instance->pool, message, instance->newest, desc->wire);
    message->packet.ingress_index = desc->interface + 1;
    if (instance->kind == SOURCE_RING)
        message->packet.flags = DAQ_PKT_NOT_FORWARDING;
    else if (instance->joins_two)
        message->packet.egress_index = 2 - desc->interface;
    if (desc->flags & LINERATE_DAMAGED)
        message->packet.flags |= DAQ_PKT_ERROR;
    add_decoded(message, desc);
    instance->stats.received++;
    return message;
}

/* Returns 1 if the ring has exactly two ports. With more, as in a switch, the egress port is not known yet. */
static int joins_two(const struct instance *instance) {
    struct linerate_interface one;
    return linerate_interface(instance->ring, 1, &one) && !linerate_interface(instance->ring, 2, &one);
}

/* Takes messages from a burst of an inline ring. Frames that do not match the filter pass. */
static unsigned take_inline(struct instance *instance, const struct linerate_burst *burst, const struct daq_msg *msgs[]) {
    unsigned got = 0;
    instance->joins_two = joins_two(instance);
    for (uint32_t at = 0; at < burst->frames; at++) {
        const struct linerate_desc *desc = &burst->descs[at];
        const unsigned char *frame = linerate_frame(burst, at);
        if (!linerate_wanted(instance->ring, at))
            continue;
        if (!ring_wants(instance, desc, frame)) {
            linerate_decide(instance->ring, at, LINERATE_PASS);
            instance->stats.filtered++;
            continue;
        }
        struct message *message = ring_message(instance, desc, frame);
        message->index = at;
        msgs[got++] = &message->msg;
    }
    instance->undecided = got;
    instance->is_looking = 1;
    if (got == 0)
        ring_publish(instance);
    return got;
}

static unsigned take_passive(struct instance *instance, const struct linerate_burst *burst, const struct daq_msg *msgs[]) {
    unsigned got = 0;
    for (uint32_t at = 0; at < burst->frames; at++) {
        const struct linerate_desc *desc = &burst->descs[at];
        if (!is_of_shard(instance, desc))
            continue;
        if (!ring_wants(instance, desc, linerate_frame(burst, at))) {
            instance->stats.filtered++;
            continue;
        }
        msgs[got++] = &ring_message(instance, desc, linerate_frame(burst, at))->msg;
    }
    linerate_release(instance->ring);
    return got;
}

unsigned ring_take(struct instance *instance, unsigned most, const struct daq_msg *msgs[]) {
    struct linerate_burst burst;
    unsigned got = 0;
    if (instance->shared) {
        instance->joins_two = joins_two(instance);
        return shared_take(instance, most, msgs);
    }
    for (int bursts = 0; got < most && bursts < BURSTS; bursts++) {
        if (!linerate_next_few(instance->ring, &burst, most - got))
            break;
        if (instance->kind == SOURCE_RING)
            got += take_passive(instance, &burst, msgs + got);
        else if ((got = take_inline(instance, &burst, msgs)) > 0)
            break; /* verdicts refer to frames of the current burst only */
    }
    return got;
}

void ring_wait(struct instance *instance, int milliseconds) {
    if (instance->shared)
        shared_wait(instance, milliseconds);
    else
        linerate_wait_or(instance->ring, instance->wake, milliseconds);
}

unsigned ring_received(struct instance *instance, unsigned got) {
    if (got == 0 && instance->shared)
        shared_pass_on(instance);
    return got;
}

static enum linerate_end end_of(const struct instance *instance) {
    if (!instance->ring)
        return LINERATE_BROKEN;
    return instance->shared ? shared_end(instance) : linerate_end(instance->ring);
}

int ring_is_over(const struct instance *instance) {
    return end_of(instance) != LINERATE_RUNNING;
}

enum daq_status ring_end(struct instance *instance) {
    if (instance->shared && shared_is_left(instance)) {
        fails(instance, "%.120s: another instance stopped while it held frames, so all instances of this ring end", instance->input);
        return DAQ_RSTAT_ERROR;
    }
    switch (end_of(instance)) {
    case LINERATE_RUNNING: return DAQ_RSTAT_OK;
    case LINERATE_ENDED: return DAQ_RSTAT_EOF;
    case LINERATE_DIED: fails(instance, "%.120s: the writer died", instance->input); break;
    case LINERATE_EVICTED:
        fails(instance, "%.120s: evicted by the writer: too slow, or broke the protocol", instance->input);
        break;
    default: fails(instance, "%.120s: the writer broke the format", instance->input);
    }
    return DAQ_RSTAT_ERROR;
}

void ring_publish(struct instance *instance) {
    if (!instance->is_looking)
        return;
    const int is_over = linerate_end(instance->ring) != LINERATE_RUNNING;
    for (uint32_t at = 0; instance->undecided > 0 && at < instance->pool.size; at++) {
        struct message *message = &instance->pool.all[at];
        if (message->state != MESSAGE_OUT)
            continue;
        if (!is_over)
            message->ticket = linerate_hold(instance->ring, message->index);
        message->state = MESSAGE_HELD;
        instance->undecided--;
    }
    instance->is_looking = 0;
    linerate_release(instance->ring);
}

static int64_t milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Answers with the new bytes of a message, or with an additional frame placed as in `where`. Waits for room, for a limited
 * time: the link must not stall. */
static int answer(struct instance *instance, struct message *message, int replaces, int where, const uint8_t *data,
                  uint32_t length) {
    const int64_t begun = milliseconds();
    for (;;) {
        const struct linerate_ticket ticket =
            message->state == MESSAGE_HELD ? message->ticket : linerate_ticket_of(instance->ring, message->index);
        const enum linerate_answer result = instance->shared ? shared_answer(instance, ticket, replaces, where, data, length)
                                            : replaces       ? linerate_replace(instance->ring, ticket, data, length)
                                                       : linerate_inject(instance->ring, ticket, where, data, length);
        if (result != LINERATE_FULL)
            return result == LINERATE_ANSWERED ? DAQ_SUCCESS : DAQ_ERROR_INVAL;
        if (ring_is_over(instance) || milliseconds() - begun > ANSWER_WAIT)
            return DAQ_ERROR_AGAIN;
        /* Room becomes free when frames with answers are sent, which needs their verdicts. */
        ring_publish(instance);
        nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
    }
}

int ring_inject(struct instance *instance, struct message *message, const uint8_t *data, uint32_t length, int reverse) {
    const int result = answer(instance, message, 0, reverse ? LINERATE_BACK : 0, data, length);
    instance->stats.injected += result == DAQ_SUCCESS;
    return result;
}

void ring_say(struct instance *instance, struct message *message, enum daq_verdict verdict) {
    if (ring_is_over(instance))
        return;
    /* A frame that was to be changed must not be sent unchanged. */
    if (verdict == DAQ_VERDICT_REPLACE &&
        answer(instance, message, 1, 0, message->bytes, message->length) != DAQ_SUCCESS)
        verdict = DAQ_VERDICT_BLOCK;
    if (instance->shared) {
        shared_say(instance, message->ticket, (enum linerate_verdict)verdict);
    } else if (message->state == MESSAGE_HELD) {
        linerate_decide_later(instance->ring, message->ticket, (enum linerate_verdict)verdict);
    } else {
        linerate_decide(instance->ring, message->index, (enum linerate_verdict)verdict);
        message->state = MESSAGE_FREE;
        if (--instance->undecided == 0)
            ring_publish(instance);
    }
}
