/* SPDX-License-Identifier: GPL-2.0-only */
/* Several instances of a process (-z N) that give verdicts on the frames of one ring. For the writer they are one engine, which
 * examines frames in order and holds each. An instance that finds frames distributes them among all instances by their hash,
 * which is equal for both directions of a flow. Verdicts follow later.
 *
 *     ring --examined, held--> due (of each instance) --> messages of its pool --verdict--> ring
 *
 * One instance at a time waits at the ring. The others sleep until they are woken: they have frames due, or no instance waits
 * at the ring. The ring is used under the lock. Frames are copied from it without the lock, since a block stays until all of
 * its frames have verdicts. */
#define _GNU_SOURCE
#include "pool.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    INSTANCES = 256, /* maximum per ring */
    AT_ONCE = 64,    /* frames that an instance takes at a time */
};

/* A held frame in the queue of its instance. */
struct due {
    struct linerate_desc desc;
    const unsigned char *frame;
    struct linerate_ticket ticket;
};

struct shared {
    struct shared *next;
    char source[96];
    pthread_mutex_t lock;
    struct linerate_ring *ring;
    struct instance *members[INSTANCES];
    uint32_t count;
    uint32_t held;  /* frames without a verdict */
    int is_watched; /* an instance waits at the ring */
    int is_full;    /* the maximum number of frames is held; more may be in the ring */
    int is_left;    /* an instance stopped while it held frames, on which no other can give verdicts */
};

static struct shared *all;
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;

static void call(const struct instance *instance) {
    const uint64_t one = 1;
    /* It fails only if the counter is full: then a wake-up is pending. */
    if (write(instance->turn, &one, sizeof one) < 0)
        return;
}

/* Wakes a sleeping instance to wait at the ring, if none does. */
static void call_one(const struct shared *shared) {
    for (uint32_t at = 0; !shared->is_watched && at < shared->count; at++)
        if (shared->members[at]->is_asleep) {
            call(shared->members[at]);
            return;
        }
}

static enum linerate_end end_of(const struct shared *shared) {
    return shared->is_left ? LINERATE_DIED : linerate_end(shared->ring);
}

/* Returns the instance for frames with this hash. */
static struct instance *whose(const struct shared *shared, uint32_t hash) {
    return shared->members[(uint64_t)hash * shared->count >> 32];
}

static void put(struct instance *instance, struct due due) {
    instance->due[(instance->due_first + instance->due_count++) % MOST_HELD] = due;
}

/* Takes frames from the ring until there are some for this instance. */
static void fetch(struct shared *shared, const struct instance *instance) {
    struct linerate_burst burst;
    while (instance->due_count == 0 && !shared->is_left) {
        const uint32_t room = MOST_HELD - shared->held;
        shared->is_full = room == 0;
        if (room == 0 || !linerate_next_few(shared->ring, &burst, room < AT_ONCE ? room : AT_ONCE))
            return;
        for (uint32_t at = 0; at < burst.frames; at++) {
            if (!linerate_wanted(shared->ring, at))
                continue;
            struct instance *other = whose(shared, burst.descs[at].hash);
            put(other, (struct due){ burst.descs[at], linerate_frame(&burst, at), linerate_hold(shared->ring, at) });
            shared->held++;
            if (other != instance && other->is_asleep && other->due_count == 1)
                call(other);
        }
        linerate_release(shared->ring);
    }
}

unsigned shared_take(struct instance *instance, unsigned most, const struct daq_msg *msgs[]) {
    struct shared *shared = instance->shared;
    struct due some[AT_ONCE];
    uint32_t count = 0;
    pthread_mutex_lock(&shared->lock);
    if (!shared->is_watched)
        fetch(shared, instance);
    /* After the end no verdicts are needed on the remaining frames. */
    const int goes_on = end_of(shared) == LINERATE_RUNNING;
    while (goes_on && count < most && count < AT_ONCE && instance->due_count > 0) {
        some[count++] = instance->due[instance->due_first];
        instance->due_first = (instance->due_first + 1) % MOST_HELD;
        instance->due_count--;
    }
    if (count > 0)
        call_one(shared);
    pthread_mutex_unlock(&shared->lock);
    unsigned got = 0;
    for (uint32_t at = 0; at < count; at++) {
        const struct due *due = &some[at];
        if (!ring_wants(instance, &due->desc, due->frame)) {
            shared_say(instance, due->ticket, LINERATE_PASS);
            instance->stats.filtered++;
            continue;
        }
        struct message *message = ring_message(instance, &due->desc, due->frame);
        message->ticket = due->ticket;
        message->state = MESSAGE_HELD;
        msgs[got++] = &message->msg;
    }
    return got;
}

void shared_wait(struct instance *instance, int milliseconds) {
    struct shared *shared = instance->shared;
    struct pollfd wake[] = {
        { .fd = -1, .events = POLLIN },
        { .fd = instance->wake, .events = POLLIN },
        { .fd = instance->turn, .events = POLLIN },
    };
    uint64_t called;
    pthread_mutex_lock(&shared->lock);
    int waits = instance->due_count == 0 && end_of(shared) == LINERATE_RUNNING;
    const int watches = waits && !shared->is_watched && !shared->is_full;
    if (watches) {
        wake[0].fd = linerate_sleep(shared->ring);
        waits = wake[0].fd >= 0;
        shared->is_watched = 1;
    }
    instance->is_asleep = waits;
    pthread_mutex_unlock(&shared->lock);
    if (waits)
        poll(wake, 3, milliseconds);
    pthread_mutex_lock(&shared->lock);
    instance->is_asleep = 0;
    if (watches) {
        shared->is_watched = 0;
        linerate_awake(shared->ring);
    }
    if (read(instance->turn, &called, sizeof called) < 0)
        called = 0;
    pthread_mutex_unlock(&shared->lock);
}

/* Called if this instance returns without frames: a sleeping one must wait at the ring. */
void shared_pass_on(struct instance *instance) {
    pthread_mutex_lock(&instance->shared->lock);
    call_one(instance->shared);
    pthread_mutex_unlock(&instance->shared->lock);
}

int shared_is_left(const struct instance *instance) {
    pthread_mutex_lock(&instance->shared->lock);
    const int is_left = instance->shared->is_left;
    pthread_mutex_unlock(&instance->shared->lock);
    return is_left;
}

enum linerate_end shared_end(const struct instance *instance) {
    pthread_mutex_lock(&instance->shared->lock);
    const enum linerate_end end = end_of(instance->shared);
    pthread_mutex_unlock(&instance->shared->lock);
    return end;
}

void shared_say(struct instance *instance, struct linerate_ticket ticket, enum linerate_verdict verdict) {
    struct shared *shared = instance->shared;
    pthread_mutex_lock(&shared->lock);
    linerate_decide_later(shared->ring, ticket, verdict);
    shared->held--;
    if (shared->is_full && shared->held + AT_ONCE <= MOST_HELD) {
        shared->is_full = 0;
        call_one(shared);
    }
    pthread_mutex_unlock(&shared->lock);
}

enum linerate_answer shared_answer(struct instance *instance, struct linerate_ticket ticket, int replaces, int where,
                                   const void *data, uint32_t length) {
    struct shared *shared = instance->shared;
    pthread_mutex_lock(&shared->lock);
    const enum linerate_answer result = replaces ? linerate_replace(shared->ring, ticket, data, length)
                                                 : linerate_inject(shared->ring, ticket, where, data, length);
    pthread_mutex_unlock(&shared->lock);
    return result;
}

/* Returns the ring of this name that other instances of this process use, or attaches to it; NULL if that fails. */
static struct shared *find(const struct instance *instance, const struct linerate_options *options, char *why, size_t room) {
    for (struct shared *shared = all; shared; shared = shared->next) {
        pthread_mutex_lock(&shared->lock);
        const int goes_on = end_of(shared) == LINERATE_RUNNING && shared->count < INSTANCES;
        pthread_mutex_unlock(&shared->lock);
        if (goes_on && strcmp(shared->source, instance->source) == 0)
            return shared;
    }
    struct shared *shared = calloc(1, sizeof *shared);
    if (!shared || !(shared->ring = linerate_attach_engine(instance->source, options, why, room))) {
        free(shared);
        return NULL;
    }
    strncpy(shared->source, instance->source, sizeof shared->source - 1);
    pthread_mutex_init(&shared->lock, NULL);
    shared->next = all;
    all = shared;
    return shared;
}

int shared_join(struct instance *instance, const struct linerate_options *options) {
    char why[WHY] = "out of memory";
    instance->due = calloc(MOST_HELD, sizeof *instance->due);
    instance->turn = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    instance->due_first = instance->due_count = 0;
    pthread_mutex_lock(&all_lock);
    struct shared *shared = instance->due && instance->turn >= 0 ? find(instance, options, why, sizeof why) : NULL;
    if (shared) {
        pthread_mutex_lock(&shared->lock);
        /* Ordered by number, in any order of joining. */
        uint32_t at = shared->count++;
        for (; at > 0 && shared->members[at - 1]->shard > instance->shard; at--)
            shared->members[at] = shared->members[at - 1];
        shared->members[at] = instance;
        instance->shared = shared;
        instance->ring = shared->ring;
        pthread_mutex_unlock(&shared->lock);
    }
    pthread_mutex_unlock(&all_lock);
    if (shared)
        return DAQ_SUCCESS;
    free(instance->due);
    instance->due = NULL;
    if (instance->turn >= 0)
        close(instance->turn);
    return fails(instance, "%.120s: %.120s", instance->input, why);
}

static void forget(const struct shared *shared) {
    struct shared **link = &all;
    while (*link != shared)
        link = &(*link)->next;
    *link = shared->next;
}

void shared_leave(struct instance *instance) {
    struct shared *shared = instance->shared;
    pthread_mutex_lock(&all_lock);
    pthread_mutex_lock(&shared->lock);
    uint32_t at = 0;
    while (shared->members[at] != instance)
        at++;
    shared->count--;
    memmove(&shared->members[at], &shared->members[at + 1], (shared->count - at) * sizeof *shared->members);
    /* Frames not taken go to the remaining instances. If it holds messages, no other can give verdicts on them: all instances
     * end, and the writer applies its policy for a dead engine. */
    shared->is_left |= instance->pool.available < instance->pool.size;
    for (uint32_t due = 0; shared->count > 0 && due < instance->due_count; due++) {
        const struct due one = instance->due[(instance->due_first + due) % MOST_HELD];
        put(whose(shared, one.desc.hash), one);
    }
    for (uint32_t other = 0; other < shared->count; other++)
        call(shared->members[other]);
    const int is_last = shared->count == 0;
    pthread_mutex_unlock(&shared->lock);
    if (is_last) {
        forget(shared);
        linerate_detach(shared->ring);
        pthread_mutex_destroy(&shared->lock);
        free(shared);
    }
    pthread_mutex_unlock(&all_lock);
    close(instance->turn);
    free(instance->due);
    instance->due = NULL;
    instance->shared = NULL;
}
