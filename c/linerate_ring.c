/* Reader of block rings. linerate_ring.h documents its functions, docs/block-ring.md the protocol. */
#define _GNU_SOURCE
#include "linerate_ring.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

_Static_assert(sizeof(_Atomic uint32_t) == 4 && sizeof(_Atomic uint64_t) == 8, "atomics have the size of their values");
_Static_assert(ATOMIC_INT_LOCK_FREE == 2 && ATOMIC_LLONG_LOCK_FREE == 2, "read-only memory needs plain loads");

enum {
    PAGE = 4096,
    PATIENCE_S = 5,
    QUIET = 256, /* polls without frames before the socket is checked */
    WAKES = 64,  /* maximum number of wake-ups drained at a time */
    LINE = 64,   /* header before the verdicts on a block */
    ANSWERS = 256,
    ANSWER_FRAME = 16384,
    BATCH = 64, /* frames per burst of an engine: their verdicts take effect together */
    SETTLED = 254, /* stored by the writer: no verdict is needed */
};

/* A received block, and its first frame that was not presented yet. */
struct held {
    uint32_t slot, from;
};

struct linerate_ring {
    int socket;
    const unsigned char *arena;
    unsigned char *control;
    size_t arena_bytes, control_bytes;
    /* Copied from the arena once, and checked. */
    uint64_t slot_bytes, generation;
    uint32_t slots, frames, body, capacity;
    /* Private counts of both rings. */
    uint64_t taken, given;
    /* Held blocks in order of arrival, a circular buffer of `capacity`; and a flag per slot. */
    struct held *held;
    uint32_t first, holds;
    unsigned char *is_held;
    /* Descs of the current burst, of the first held block. */
    struct linerate_desc *descs;
    /* Engines only, per block: number of held frames, and whether only these delay its return. */
    uint32_t *unsaid;
    unsigned char *put_aside;
    /* Offset of the answers in the control memory, and their number so far. */
    uint64_t answers, given_answers;
    uint32_t shown, quiet;
    uint64_t bad;
    int hung_up;
    enum linerate_end end;
};

/* Loads of single numbers from shared memory. */

static uint32_t word(const void *base, size_t offset, memory_order order) {
    return atomic_load_explicit((const _Atomic uint32_t *)((const char *)base + offset), order);
}

static uint64_t doubleword(const void *base, size_t offset, memory_order order) {
    return atomic_load_explicit((const _Atomic uint64_t *)((const char *)base + offset), order);
}

#define ARENA(load, field, order) load(ring->arena, offsetof(struct linerate_arena, field), order)
#define CONTROL(load, field, order) load(ring->control, offsetof(struct linerate_control, field), order)

static const unsigned char *block_at(const struct linerate_ring *ring, uint32_t slot) {
    return ring->arena + LINERATE_SLOTS_OFFSET + slot * ring->slot_bytes;
}

/* Attaching. */

/* Returns a socket connected to the writer, or -1 with errno. */
static int connect_to(const char *name) {
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    const size_t length = strlen(name), base = offsetof(struct sockaddr_un, sun_path);
    socklen_t bytes;
    if (length == 0 || length > 90) {
        errno = ENAMETOOLONG;
        return -1;
    }
    if (strchr(name, '/')) {
        memcpy(address.sun_path, name, length + 1);
        bytes = (socklen_t)(base + length + 1);
    } else {
        /* An abstract address starts with a zero byte; its length marks its end. */
        bytes = (socklen_t)(base + 1 + (size_t)snprintf(address.sun_path + 1, 107, "linerate/%s", name));
    }
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    const struct timeval patience = { .tv_sec = PATIENCE_S };
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(fd, (const struct sockaddr *)&address, bytes) != 0) {
        const int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

/* Returns 1 if the writer is root or this user. */
static int is_own(int fd) {
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0)
        return 0;
    return peer.uid == 0 || peer.uid == geteuid();
}

/* Receives the writer's answer and its two descriptors. Returns 0, or -1 with no descriptor open. */
static int hear(int fd, struct linerate_welcome *welcome, int fds[2]) {
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } rights;
    struct iovec into = { .iov_base = welcome, .iov_len = sizeof *welcome };
    struct msghdr message = { .msg_iov = &into, .msg_iovlen = 1 };
    ssize_t got = -1;
    for (int tries = 0; tries < 8 && got < 0; tries++) {
        message.msg_control = rights.bytes;
        message.msg_controllen = sizeof rights.bytes;
        got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
        /* A writer that closes without reading has answered before; the answer follows this error. */
        if (got < 0 && errno != EINTR && errno != ECONNRESET)
            return -1;
    }
    int count = 0;
    for (struct cmsghdr *part = got < 0 ? NULL : CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t at = 0; at < (part->cmsg_len - CMSG_LEN(0)) / sizeof(int); at++) {
            int one;
            memcpy(&one, CMSG_DATA(part) + at * sizeof one, sizeof one);
            if (count < 2)
                fds[count++] = one;
            else
                close(one);
        }
    }
    const int whole = got == (ssize_t)sizeof *welcome && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC));
    if (whole && memcmp(welcome->magic, "LRWe", 4) == 0 && (count == 2) == (welcome->status == 0))
        return 0;
    while (count > 0)
        close(fds[--count]);
    errno = EPROTO;
    return -1;
}

/* Returns the problem with a received memory, or NULL. It must have exactly `bytes` bytes and be sealed against shrinking.
 * Another user's (`foreign`) must not be in reserved huge pages: access to a missing one is SIGBUS. Memory that is only read
 * (`whole`) must be present and stay so: a missing page would be charged to this process once it is read. */
static const char *wrong_with(int fd, uint64_t bytes, int foreign, int whole) {
    struct stat stat;
    struct statfs system;
    const int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK))
        return "its memory may be truncated while it is read";
    if (fstat(fd, &stat) != 0 || (uint64_t)stat.st_size != bytes)
        return "its memory has another size than announced";
    if (foreign && (fstatfs(fd, &system) != 0 || system.f_type == HUGETLBFS_MAGIC))
        return "it belongs to another user and is in reserved huge pages; share it with --share-small-pages";
    if (foreign && whole &&
        (!(seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) || (uint64_t)stat.st_blocks * 512 < (uint64_t)stat.st_size))
        return "it belongs to another user, and its memory has holes or may get some";
    return NULL;
}

static void *map(int fd, uint64_t bytes, int protection) {
    void *memory = mmap(NULL, (size_t)bytes, protection, MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static uint64_t up(uint64_t bytes, uint64_t to) {
    return (bytes + to - 1) / to * to;
}

/* Copies the layout of the arena; checks that it is consistent and matches the control memory. */
static const char *check(struct linerate_ring *ring, const struct linerate_welcome *welcome) {
    const memory_order relaxed = memory_order_relaxed;
    if (memcmp(ring->arena, "LINERATE", 8) != 0 || ARENA(word, byte_order, relaxed) != LINERATE_BYTE_ORDER)
        return "its memory does not begin with a ring header";
    if (ARENA(word, major, relaxed) != LINERATE_MAJOR)
        return "it has another version of the format; this reader supports version 1";
    ring->slots = ARENA(word, slots, relaxed);
    ring->slot_bytes = ARENA(doubleword, slot_bytes, relaxed);
    ring->frames = ARENA(word, frames, relaxed);
    ring->body = ARENA(word, body, relaxed);
    ring->generation = ARENA(doubleword, generation, relaxed);
    const uint64_t size = ring->slot_bytes;
    if (ring->slots < LINERATE_LEAST_SLOTS || ring->slots > LINERATE_MOST_SLOTS || size < LINERATE_LEAST_SLOT ||
        size > LINERATE_MOST_SLOT || (size & (size - 1)) != 0)
        return "its size or number of blocks is invalid";
    const uint64_t least = ring->body + (uint64_t)LINERATE_RECORD_HEADER + LINERATE_MAX_FRAME + LINERATE_TAIL;
    const uint64_t descs = sizeof(struct linerate_block) + ring->frames * (uint64_t)sizeof(struct linerate_desc);
    if (ring->frames == 0 || ring->body % PAGE != 0 || descs > ring->body || least > size)
        return "its blocks do not have the layout of version 1";
    const uint64_t end = LINERATE_SLOTS_OFFSET + ring->slots * size;
    const uint64_t huge = LINERATE_SLOTS_OFFSET;
    if (ARENA(doubleword, slots_offset, relaxed) != LINERATE_SLOTS_OFFSET || ARENA(word, interface_offset, relaxed) != PAGE ||
        ARENA(word, interface_bytes, relaxed) != sizeof(struct linerate_interface) ||
        (end + huge - 1) / huge * huge != ring->arena_bytes)
        return "its memory does not have the layout of version 1";
    for (ring->capacity = LINERATE_LEAST_SLOTS; ring->capacity < ring->slots;)
        ring->capacity *= 2;
    uint64_t rings = up(sizeof(struct linerate_control) + 16 * (uint64_t)ring->capacity, PAGE);
    if (ring->unsaid) {
        const uint64_t verdicts = LINE + up(ring->frames, LINE);
        const uint64_t answers = up(rings + ring->slots * verdicts, PAGE);
        if (CONTROL(word, verdicts_offset, relaxed) != rings || CONTROL(word, verdict_bytes, relaxed) != verdicts)
            return "no verdicts are wanted there; attach to a ring of linerate inline, version 1.1 or later";
        if (CONTROL(word, answers_offset, relaxed) != answers || CONTROL(word, answers, relaxed) != ANSWERS ||
            CONTROL(word, answer_bytes, relaxed) != LINE + ANSWER_FRAME)
            return "its answers do not have the layout of version 1.1";
        ring->answers = answers;
        rings = up(answers + ANSWERS * (LINE + (uint64_t)ANSWER_FRAME), PAGE);
    }
    if (rings != ring->control_bytes || CONTROL(word, capacity, relaxed) != ring->capacity ||
        CONTROL(word, published_offset, relaxed) != sizeof(struct linerate_control) ||
        CONTROL(word, returned_offset, relaxed) != sizeof(struct linerate_control) + 8 * ring->capacity)
        return "its control memory does not fit its arena";
    if (ring->generation != welcome->generation || CONTROL(doubleword, generation, relaxed) != ring->generation)
        return "it sent the memory of another ring";
    return NULL;
}

/* Maps the received memory. Returns the problem with it, or NULL. */
static const char *take_over(struct linerate_ring *ring, const struct linerate_welcome *welcome, const int fds[2]) {
    const int foreign = !is_own(ring->socket);
    /* The arena must contain its header, and sizes computed from it must not overflow. */
    if (welcome->arena_bytes < 2 * LINERATE_SLOTS_OFFSET || welcome->arena_bytes > (uint64_t)1 << 43 ||
        welcome->control_bytes < PAGE || welcome->control_bytes > (uint64_t)1 << (ring->unsaid ? 28 : 21))
        return "its sizes are invalid";
    ring->arena_bytes = (size_t)welcome->arena_bytes;
    ring->control_bytes = (size_t)welcome->control_bytes;
    const char *wrong = wrong_with(fds[0], welcome->arena_bytes, foreign, 1);
    /* Missing pages of the control memory are charged to this process: it is small. */
    if (!wrong)
        wrong = wrong_with(fds[1], welcome->control_bytes, foreign, 0);
    if (wrong)
        return wrong;
    ring->arena = map(fds[0], welcome->arena_bytes, PROT_READ);
    ring->control = map(fds[1], welcome->control_bytes, PROT_READ | PROT_WRITE);
    if (!ring->arena || !ring->control)
        return "mapping its memory failed";
    if ((wrong = check(ring, welcome)))
        return wrong;
    ring->held = calloc(ring->capacity, sizeof *ring->held);
    ring->is_held = calloc(ring->slots, 1);
    ring->descs = calloc(ring->frames, sizeof *ring->descs);
    return ring->held && ring->is_held && ring->descs ? NULL : "out of memory for descs";
}

/* Copies the writer's text, with control characters replaced. */
static void say_text(char *why, size_t room, const struct linerate_welcome *welcome) {
    uint32_t length = welcome->text_bytes < sizeof welcome->text ? welcome->text_bytes : sizeof welcome->text;
    if (room == 0)
        return;
    length = length < room - 1 ? length : (uint32_t)(room - 1);
    for (uint32_t at = 0; at < length; at++) {
        const unsigned char byte = (unsigned char)welcome->text[at];
        why[at] = byte < ' ' || byte == 127 ? '?' : (char)byte;
    }
    why[length] = 0;
}

static struct linerate_ring *attach(const char *name, const struct linerate_options *options, int decides, char *why,
                                    size_t room) {
    struct linerate_hello hello = { .magic = { 'L', 'R', 'H', 'i' }, .major = LINERATE_MAJOR, .minor = 1 };
    struct linerate_welcome welcome;
    int fds[2];
    struct linerate_ring *ring = calloc(1, sizeof *ring);
    if (!ring || (ring->socket = connect_to(name)) < 0) {
        const int absent = ring && (errno == ECONNREFUSED || errno == ENOENT);
        const char *missing = decides ? "no writer shares it; start linerate inline --share first"
                                      : "no writer shares it; start linerate capture --share first";
        snprintf(why, room, "%s", absent ? missing : strerror(errno));
        free(ring);
        return NULL;
    }
    if (decides) {
        ring->unsaid = calloc(LINERATE_MOST_SLOTS, sizeof *ring->unsaid);
        ring->put_aside = calloc(LINERATE_MOST_SLOTS, 1);
        if (!ring->unsaid || !ring->put_aside) {
            snprintf(why, room, "out of memory for verdicts");
            linerate_detach(ring);
            return NULL;
        }
    }
    /* Bit mask: 1 lossless, 2 inline. */
    hello.lossless = (options->lossless != 0 ? 1 : 0) + (decides ? 2 : 0);
    hello.quota = options->quota;
    hello.name_bytes = options->name ? (uint32_t)strnlen(options->name, sizeof hello.name) : 0;
    memcpy(hello.name, options->name ? options->name : "", hello.name_bytes);
    if (!options->trust && !is_own(ring->socket)) {
        snprintf(why, room, "neither root nor this user shares it; set the option trust to attach anyway");
    } else if (send(ring->socket, &hello, sizeof hello, MSG_NOSIGNAL) < 0 && errno != EPIPE && errno != ECONNRESET) {
        snprintf(why, room, "%s", strerror(errno));
    } else if (hear(ring->socket, &welcome, fds) != 0) {
        snprintf(why, room, "peer is not a linerate ring: %s", strerror(errno));
    } else if (welcome.status != 0) {
        say_text(why, room, &welcome);
    } else {
        const char *wrong = take_over(ring, &welcome, fds);
        close(fds[0]);
        close(fds[1]);
        if (!wrong)
            return ring;
        snprintf(why, room, "peer is not a linerate ring: %s", wrong);
    }
    linerate_detach(ring);
    return NULL;
}

struct linerate_ring *linerate_attach(const char *name, const struct linerate_options *options, char *why, size_t room) {
    return attach(name, options, 0, why, room);
}

struct linerate_ring *linerate_attach_engine(const char *name, const struct linerate_options *options, char *why,
                                             size_t room) {
    return attach(name, options, 1, why, room);
}

void linerate_detach(struct linerate_ring *ring) {
    if (!ring)
        return;
    /* The writer reclaims held blocks when the socket is closed. */
    close(ring->socket);
    if (ring->arena)
        munmap((void *)(uintptr_t)ring->arena, ring->arena_bytes);
    if (ring->control)
        munmap(ring->control, ring->control_bytes);
    free(ring->held);
    free(ring->is_held);
    free(ring->unsaid);
    free(ring->put_aside);
    free(ring->descs);
    free(ring);
}

/* Reading. */

static void stop(struct linerate_ring *ring, enum linerate_end end) {
    ring->end = end;
    ring->shown = ring->holds = 0;
    shutdown(ring->socket, SHUT_RDWR);
}

/* Drains wake-ups from the socket and detects its end. */
static void listen_to(struct linerate_ring *ring) {
    char bytes[16];
    for (int wake = 0; wake < WAKES; wake++) {
        const ssize_t got = recv(ring->socket, bytes, sizeof bytes, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            ring->hung_up |= got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
            return;
        }
    }
}

/* Takes the published blocks; returns 0 if the ring contents are invalid. */
static int take_published(struct linerate_ring *ring) {
    for (;;) {
        const uint64_t there = CONTROL(doubleword, published, memory_order_acquire) - ring->taken;
        if (there == 0)
            return 1;
        if (there > ring->capacity)
            return 0;
        const size_t at = sizeof(struct linerate_control) + 8 * (size_t)(ring->taken & (ring->capacity - 1));
        const uint64_t entry = doubleword(ring->control, at, memory_order_relaxed);
        const struct held block = { .slot = (uint32_t)entry, .from = (uint32_t)(entry >> 32) };
        if (block.slot >= ring->slots || ring->is_held[block.slot])
            return 0;
        ring->is_held[block.slot] = 1;
        ring->held[(ring->first + ring->holds++) & (ring->capacity - 1)] = block;
        ring->taken++;
    }
}

static int is_evicted(const struct linerate_ring *ring) {
    return CONTROL(word, status, memory_order_acquire) == 1;
}

static void give_back(struct linerate_ring *ring, uint32_t slot) {
    const size_t entries = sizeof(struct linerate_control) + 8 * (size_t)ring->capacity;
    unsigned char *entry = ring->control + entries + 8 * (size_t)(ring->given & (ring->capacity - 1));
    unsigned char *count = ring->control + offsetof(struct linerate_control, returned);
    ring->is_held[slot] = 0;
    atomic_store_explicit((_Atomic uint64_t *)entry, slot, memory_order_relaxed);
    atomic_store_explicit((_Atomic uint64_t *)count, ++ring->given, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst);
}

/* Drops the first block; returns it to the writer if it is closed. Check is_evicted before accessing the next one: after an
 * eviction the writer preserves only the first block that was not returned. */
static void give_up(struct linerate_ring *ring, int closed) {
    const uint32_t slot = ring->held[ring->first].slot;
    ring->first = (ring->first + 1) & (ring->capacity - 1);
    ring->holds--;
    if (closed && ring->unsaid && ring->unsaid[slot] > 0)
        ring->put_aside[slot] = 1;
    else if (closed)
        give_back(ring, slot);
    else
        ring->is_held[slot] = 0;
}

/* Copies a desc word by word. Returns 1 if the frame and its tail are within the records of the block. */
static int copy_desc(const struct linerate_ring *ring, const unsigned char *from, uint32_t interfaces,
                     struct linerate_desc *into) {
    /* Each word is stored at once: collected first, they would be reloaded by loads wider than the stores, which stall. */
    for (size_t at = 0; at < sizeof *into; at += 8) {
        const uint64_t word = doubleword(from, at, memory_order_relaxed);
        memcpy((char *)into + at, &word, sizeof word);
    }
    return into->captured <= LINERATE_MAX_FRAME && into->offset >= ring->body + LINERATE_RECORD_HEADER &&
           (uint64_t)into->offset + into->captured + LINERATE_TAIL <= ring->slot_bytes && into->interface < interfaces;
}

/* Returns the number of valid interfaces. */
static uint32_t interfaces(const struct linerate_ring *ring) {
    const uint32_t count = ARENA(word, interfaces, memory_order_acquire);
    return count < LINERATE_INTERFACES ? count : LINERATE_INTERFACES;
}

/* Adds frames `from` to `to` of a block to the burst. */
static void show(struct linerate_ring *ring, const unsigned char *block, uint32_t from, uint32_t to) {
    const unsigned char *descs = block + sizeof(struct linerate_block);
    /* An interface is stored before the first frame that refers to it. */
    const uint32_t known = interfaces(ring);
    for (uint32_t at = from; at < to; at++) {
        const int sound = copy_desc(ring, descs + at * sizeof *ring->descs, known, &ring->descs[ring->shown]);
        ring->shown += (uint32_t)sound;
        ring->bad += !sound;
    }
}

/* Returns the start of the verdicts on a block: two counts, then one byte per frame from LINE on. */
static unsigned char *verdicts_on(const struct linerate_ring *ring, uint32_t slot) {
    const uint64_t rings = up(sizeof(struct linerate_control) + 16 * (uint64_t)ring->capacity, PAGE);
    return ring->control + rings + slot * (LINE + up(ring->frames, LINE));
}

/* Returns the verdict on frame `index` of the burst, in the first held block, and its ticket. */
static _Atomic unsigned char *verdict_on(const struct linerate_ring *ring, uint32_t index, struct linerate_ticket *ticket) {
    const struct held *first = &ring->held[ring->first];
    *ticket = (struct linerate_ticket){ .slot = first->slot, .frame = first->from - ring->shown + index };
    return (_Atomic unsigned char *)(verdicts_on(ring, ticket->slot) + LINE + ticket->frame);
}

int linerate_wanted(const struct linerate_ring *ring, uint32_t index) {
    struct linerate_ticket ticket;
    return atomic_load_explicit(verdict_on(ring, index, &ticket), memory_order_relaxed) != SETTLED;
}

void linerate_decide(struct linerate_ring *ring, uint32_t index, enum linerate_verdict verdict) {
    struct linerate_ticket ticket;
    atomic_store_explicit(verdict_on(ring, index, &ticket), (unsigned char)verdict, memory_order_relaxed);
}

struct linerate_ticket linerate_hold(struct linerate_ring *ring, uint32_t index) {
    struct linerate_ticket ticket;
    verdict_on(ring, index, &ticket);
    ring->unsaid[ticket.slot]++;
    return ticket;
}

struct linerate_ticket linerate_ticket_of(const struct linerate_ring *ring, uint32_t index) {
    struct linerate_ticket ticket;
    verdict_on(ring, index, &ticket);
    return ticket;
}

/* Stores an answer, then the count. The writer reads the answer after the count or a later verdict. */
static enum linerate_answer answer(struct linerate_ring *ring, uint32_t kind, struct linerate_ticket ticket, uint32_t flags,
                                   const void *bytes, uint32_t length) {
    unsigned char *entry = ring->control + ring->answers + ring->given_answers % ANSWERS * (LINE + ANSWER_FRAME);
    unsigned char *count = ring->control + offsetof(struct linerate_control, answering);
    const uint32_t words[] = { kind, ticket.slot, ticket.frame, flags, length };
    if (length > ANSWER_FRAME)
        return LINERATE_TOO_LONG;
    if (ring->given_answers - CONTROL(doubleword, answered, memory_order_acquire) >= ANSWERS)
        return LINERATE_FULL;
    for (size_t at = 0; at < sizeof words / sizeof *words; at++)
        atomic_store_explicit((_Atomic uint32_t *)(entry + 4 * at), words[at], memory_order_relaxed);
    memcpy(entry + LINE, bytes, length);
    atomic_store_explicit((_Atomic uint64_t *)count, ++ring->given_answers, memory_order_release);
    return LINERATE_ANSWERED;
}

enum linerate_answer linerate_replace(struct linerate_ring *ring, struct linerate_ticket ticket, const void *bytes,
                                      uint32_t length) {
    return answer(ring, 1, ticket, 0, bytes, length);
}

enum linerate_answer linerate_inject(struct linerate_ring *ring, struct linerate_ticket ticket, int where, const void *bytes,
                                     uint32_t length) {
    return answer(ring, 2, ticket, (uint32_t)where & (LINERATE_BACK | LINERATE_BEHIND), bytes, length);
}

void linerate_decide_later(struct linerate_ring *ring, struct linerate_ticket ticket, enum linerate_verdict verdict) {
    if (ring->end != LINERATE_RUNNING || ticket.slot >= ring->slots || ring->unsaid[ticket.slot] == 0)
        return;
    unsigned char *said = verdicts_on(ring, ticket.slot);
    _Atomic uint32_t *later = (_Atomic uint32_t *)(said + 4);
    atomic_store_explicit((_Atomic unsigned char *)(said + LINE + ticket.frame), (unsigned char)verdict, memory_order_release);
    atomic_store_explicit(later, atomic_load_explicit(later, memory_order_relaxed) + 1, memory_order_release);
    if (--ring->unsaid[ticket.slot] == 0 && ring->put_aside[ticket.slot]) {
        ring->put_aside[ticket.slot] = 0;
        give_back(ring, ticket.slot);
        if (is_evicted(ring))
            stop(ring, LINERATE_EVICTED);
    }
}

int linerate_next(struct linerate_ring *ring, struct linerate_burst *burst) {
    return linerate_next_few(ring, burst, UINT32_MAX);
}

int linerate_next_few(struct linerate_ring *ring, struct linerate_burst *burst, uint32_t most) {
    most = ring->unsaid && most > BATCH ? BATCH : most;
    linerate_release(ring);
    if (ring->end != LINERATE_RUNNING)
        return 0;
    if (is_evicted(ring)) {
        stop(ring, LINERATE_EVICTED);
        return 0;
    }
    /* Loaded first: the loads below then find all frames before the end. */
    const int ended = ARENA(word, state, memory_order_acquire) == 2;
    const int over = ended || ring->hung_up;
    if (!take_published(ring)) {
        stop(ring, LINERATE_BROKEN);
        return 0;
    }
    while (ring->holds > 0) {
        struct held *first = &ring->held[ring->first];
        const unsigned char *block = block_at(ring, first->slot);
        const int closed = word(block, offsetof(struct linerate_block, closed), memory_order_acquire) != 0;
        const uint32_t committed = word(block, offsetof(struct linerate_block, committed), memory_order_acquire);
        if (committed < first->from || committed > ring->frames) {
            stop(ring, LINERATE_BROKEN);
            return 0;
        }
        const uint32_t more = committed - first->from, to = more > most ? first->from + most : committed;
        show(ring, block, first->from, to);
        first->from = to;
        if (ring->unsaid && ring->bad > 0) {
            stop(ring, LINERATE_BROKEN);
            return 0;
        }
        if (ring->shown > 0) {
            *burst = (struct linerate_burst){ .block = block, .descs = ring->descs, .frames = ring->shown };
            ring->quiet = 0;
            return 1;
        }
        if (to != committed)
            continue; /* all of them were invalid */
        if (!closed && !over)
            break;
        give_up(ring, closed);
        if (is_evicted(ring)) {
            stop(ring, LINERATE_EVICTED);
            return 0;
        }
    }
    if (over && ring->holds == 0)
        stop(ring, ended || ARENA(word, state, memory_order_acquire) == 2 ? LINERATE_ENDED : LINERATE_DIED);
    else if (++ring->quiet % QUIET == 0)
        listen_to(ring);
    return 0;
}

void linerate_release(struct linerate_ring *ring) {
    if (ring->shown == 0)
        return;
    ring->shown = 0;
    if (ring->unsaid) {
        const struct held *first = &ring->held[ring->first];
        atomic_store_explicit((_Atomic uint32_t *)verdicts_on(ring, first->slot), first->from, memory_order_release);
    }
    /* A finished block is returned at once, not with the next poll. */
    const unsigned char *block = block_at(ring, ring->held[ring->first].slot);
    const int closed = word(block, offsetof(struct linerate_block, closed), memory_order_acquire) != 0;
    const uint32_t committed = word(block, offsetof(struct linerate_block, committed), memory_order_acquire);
    if (closed && committed == ring->held[ring->first].from)
        give_up(ring, 1);
}

static int is_anything_new(const struct linerate_ring *ring) {
    if (ring->hung_up || ARENA(word, state, memory_order_acquire) == 2 || is_evicted(ring) ||
        CONTROL(doubleword, published, memory_order_acquire) != ring->taken)
        return 1;
    if (ring->holds == 0)
        return 0;
    const struct held *first = &ring->held[ring->first];
    const unsigned char *block = block_at(ring, first->slot);
    return word(block, offsetof(struct linerate_block, closed), memory_order_acquire) != 0 ||
           word(block, offsetof(struct linerate_block, committed), memory_order_acquire) != first->from;
}

void linerate_wait(struct linerate_ring *ring, int milliseconds) {
    linerate_wait_or(ring, -1, milliseconds);
}

static void set_sleeping(struct linerate_ring *ring, uint32_t sleeps) {
    unsigned char *sleeping = ring->control + offsetof(struct linerate_control, sleeping);
    atomic_store_explicit((_Atomic uint32_t *)sleeping, sleeps, memory_order_relaxed);
}

int linerate_sleep(struct linerate_ring *ring) {
    if (ring->end != LINERATE_RUNNING)
        return -1;
    set_sleeping(ring, 1);
    atomic_thread_fence(memory_order_seq_cst);
    return is_anything_new(ring) ? -1 : ring->socket;
}

void linerate_awake(struct linerate_ring *ring) {
    if (ring->end != LINERATE_RUNNING)
        return;
    set_sleeping(ring, 0);
    listen_to(ring);
}

void linerate_wait_or(struct linerate_ring *ring, int fd, int milliseconds) {
    struct pollfd wake[] = { { .fd = linerate_sleep(ring), .events = POLLIN }, { .fd = fd, .events = POLLIN } };
    if (wake[0].fd >= 0)
        poll(wake, 2, milliseconds);
    linerate_awake(ring);
}

enum linerate_end linerate_end(const struct linerate_ring *ring) {
    return ring->end;
}

const struct linerate_arena *linerate_arena(const struct linerate_ring *ring) {
    return (const struct linerate_arena *)(const void *)ring->arena;
}

int linerate_interface(const struct linerate_ring *ring, uint32_t index, struct linerate_interface *into) {
    if (index >= interfaces(ring))
        return 0;
    memcpy(into, ring->arena + PAGE + index * sizeof *into, sizeof *into);
    /* The last byte of each is reserved for the terminator. */
    const uint32_t name = sizeof into->name - 1, description = sizeof into->description - 1;
    into->name[into->name_bytes < name ? into->name_bytes : name] = 0;
    into->description[into->description_bytes < description ? into->description_bytes : description] = 0;
    return 1;
}

uint64_t linerate_skipped(const struct linerate_ring *ring) {
    return CONTROL(doubleword, skipped_frames, memory_order_relaxed);
}

uint64_t linerate_bad(const struct linerate_ring *ring) {
    return ring->bad;
}
