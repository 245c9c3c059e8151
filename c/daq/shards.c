/* SPDX-License-Identifier: GPL-2.0-only */
/* Several instances of a process (-z N) that decide about the frames of one ring. To whoever shares it they are one engine, which
 * looks at frames in order and holds each: whichever instance finds frames there gives each its own, by the hash that both
 * directions of a flow have, and verdicts come later.
 *
 *     ring --looked at, held--> due (of each instance) --> messages of its pool --verdict--> ring
 *
 * One instance at a time waits at the ring, the others until they are called: because something is due to them, or because nobody
 * waits there any more. The ring is used under the lock; frames are copied out of it without, since a block stays until what becomes
 * of each of its frames was said. */
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
    INSTANCES = 256, /* of one ring */
    AT_ONCE = 64,    /* frames that an instance takes over at a time */
};

/* A frame that is held, for the instance that it is due to. */
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
    uint32_t held;  /* frames that nothing was said of */
    int is_watched; /* somebody waits at the ring */
    int is_full;    /* frames were left there, as so many are held */
    int is_left;    /* an instance has stopped with frames in its hands, which nobody else can speak of */
};

static struct shared *all;
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;

static void call(const struct instance *instance) {
    const uint64_t one = 1;
    /* One that has not come since it was last called is called already. */
    if (write(instance->turn, &one, sizeof one) < 0)
        return;
}

/* Has somebody wait at the ring who waits for frames. */
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

/* Whose frames these are. */
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
    /* In the end nobody waits for what becomes of those that are left. */
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

/* This one goes, and takes no frames: who waits for them looks after the ring. */
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

/* The ring of this name that others of this process have, or one that is attached now; NULL if neither can be. */
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
    char why[WHY] = "no memory for it";
    instance->due = calloc(MOST_HELD, sizeof *instance->due);
    instance->turn = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    instance->due_first = instance->due_count = 0;
    pthread_mutex_lock(&all_lock);
    struct shared *shared = instance->due && instance->turn >= 0 ? find(instance, options, why, sizeof why) : NULL;
    if (shared) {
        pthread_mutex_lock(&shared->lock);
        /* In the order of their numbers, whoever comes first. */
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
    /* What was not taken is for those who stay. What it has in its hands nobody can speak of: all of them end, and whoever shares
     * has its policy for an engine that has gone. */
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
