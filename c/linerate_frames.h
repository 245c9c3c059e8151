/* Reader of frames of received streams, in one file: C11, needs only libc and Linux. The format is docs/frame-ring.md.
 *
 *     char why[256];
 *     struct linerate_frames *ring = linerate_frames_attach("NAME", "mine", why, sizeof why);
 *     struct linerate_frame frame;
 *     while (linerate_frames_end(ring) == LINERATE_FRAMES_RUNNING) {
 *         if (!linerate_frames_next(ring, &frame)) {
 *             linerate_frames_wait(ring, 1000);
 *             continue;
 *         }
 *         look_at(frame.bytes, frame.length);
 *         linerate_frames_give_back(ring, &frame);
 *     }
 *     linerate_frames_detach(ring);
 *
 * Any number of frames may be held, and returned in any order. The writer is trusted only not to change the bytes of held
 * frames: each number in its memory is copied once, checked, then used. A ring may be used by one thread at a time. */
#ifndef LINERATE_FRAMES_H
#define LINERATE_FRAMES_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* State of a ring. */
enum linerate_frames_end {
    LINERATE_FRAMES_RUNNING, /* more frames may follow */
    LINERATE_FRAMES_ENDED,   /* the writer has ended normally; all frames were taken */
    LINERATE_FRAMES_DIED,    /* the writer died; all frames that it had handed over were taken */
    LINERATE_FRAMES_EVICTED, /* the writer has evicted this reader */
    LINERATE_FRAMES_BROKEN,  /* the writer broke the format */
};

/* End of a stream, in its last frame. */
enum linerate_ending {
    LINERATE_GOES_ON,
    LINERATE_COMPLETE,
    LINERATE_RESET,
    LINERATE_SILENT,
    LINERATE_STOPPED,
};

/* Table entry, as stored in memory. */
struct linerate_frame_entry {
    uint64_t id;
    uint32_t stream, ending;
    uint64_t number, offset, length, missing, first, last, memory;
    uint32_t crc32c, flags, repeated, late, gaps, offered, state, family, from_port, to_port;
    unsigned char from[16], to[16];
    uint64_t reserved[14];
};
_Static_assert(sizeof(struct linerate_frame_entry) == 256, "an entry has 256 bytes");
_Static_assert(offsetof(struct linerate_frame_entry, state) == 96, "state at 96");

/* Range of bytes that were not received, relative to the start of the frame. */
struct linerate_gap {
    uint64_t first, end;
};

/* A frame taken from the ring. */
struct linerate_frame {
    struct linerate_frame_entry about; /* a copy, checked */
    const unsigned char *bytes;        /* `length` bytes, where they were received */
    uint64_t length;
    const struct linerate_gap *gaps;   /* about.gaps entries, in the writer's memory; flag 2: the last one covers all others */
    uint32_t entry;
};

struct linerate_frames {
    int socket, hung_up;
    const unsigned char *arena;
    unsigned char *control;
    size_t arena_bytes, control_bytes;
    uint64_t frame_bytes, stride, begin, gaps_offset, gap_room, taken, given;
    uint32_t frames, entries, capacity;
    unsigned char *held;
    enum linerate_frames_end end;
};

static inline uint32_t linerate_frames_word(const void *base, size_t at, memory_order order) {
    return atomic_load_explicit((const _Atomic uint32_t *)((const char *)base + at), order);
}

static inline uint64_t linerate_frames_long(const void *base, size_t at, memory_order order) {
    return atomic_load_explicit((const _Atomic uint64_t *)((const char *)base + at), order);
}

static inline uint64_t linerate_frames_up(uint64_t number, uint64_t multiple) {
    return (number + multiple - 1) / multiple * multiple;
}

/* Detaches the reader. Held frames go to the next reader. */
static inline void linerate_frames_detach(struct linerate_frames *ring) {
    if (!ring)
        return;
    if (ring->arena)
        munmap((void *)ring->arena, ring->arena_bytes);
    if (ring->control)
        munmap(ring->control, ring->control_bytes);
    if (ring->socket >= 0)
        close(ring->socket);
    free(ring->held);
    free(ring);
}

/* Returns a socket connected to the writer, or -1 with errno. */
static inline int linerate_frames_connect(const char *name) {
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    const size_t length = strlen(name), base = offsetof(struct sockaddr_un, sun_path);
    const struct timeval patience = { .tv_sec = 5 };
    if (length == 0 || length > 90)
        return errno = ENAMETOOLONG, -1;
    socklen_t bytes = (socklen_t)(base + length + 1);
    if (strchr(name, '/'))
        memcpy(to.sun_path, name, length + 1);
    else
        bytes = (socklen_t)(base + 1 + (size_t)snprintf(to.sun_path + 1, 107, "linerate/%s", name));
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    struct ucred peer;
    socklen_t room = sizeof peer;
    if (connect(fd, (const struct sockaddr *)&to, bytes) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &room) != 0 ||
        (peer.uid != 0 && peer.uid != geteuid() && (errno = EPERM))) {
        const int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

/* Sends the hello and receives the answer: 512 bytes, and two descriptors if accepted. Returns 0, or -1 with no descriptor
 * open. */
static inline int linerate_frames_greet(int socket, const char *reader, unsigned char answer[512], int fds[2]) {
    unsigned char hello[128] = "LRHi";
    const uint32_t named = (uint32_t)strnlen(reader, 96), numbers[6] = { 1, 0, 1, 0, named, 1 };
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } rights;
    struct iovec into = { .iov_base = answer, .iov_len = 512 };
    struct msghdr message = { .msg_iov = &into, .msg_iovlen = 1 };
    ssize_t got = -1;
    memcpy(hello + 4, numbers, sizeof numbers);
    memcpy(hello + 32, reader, named);
    /* A writer that rejects a reader may not wait for the hello; its answer can still be received. */
    send(socket, hello, sizeof hello, MSG_NOSIGNAL);
    for (int tries = 0; tries < 3 && got < 0; tries++) {
        message.msg_control = rights.bytes;
        message.msg_controllen = sizeof rights.bytes;
        got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    }
    fds[0] = fds[1] = -1;
    const struct cmsghdr *part = got < 0 ? NULL : CMSG_FIRSTHDR(&message);
    if (part && part->cmsg_type == SCM_RIGHTS && part->cmsg_len == CMSG_LEN(2 * sizeof(int)))
        memcpy(fds, CMSG_DATA(part), 2 * sizeof(int));
    if (got == 512 && memcmp(answer, "LRWe", 4) == 0 && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
        return 0;
    for (int at = 0; at < 2; at++)
        if (fds[at] >= 0)
            close(fds[at]);
    return -1;
}

/* Maps memory that is sealed against shrinking; returns NULL for any other. */
static inline void *linerate_frames_map(int fd, int access, size_t *bytes) {
    struct stat stat;
    const int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &stat) != 0 || stat.st_size < 4096)
        return NULL;
    *bytes = (size_t)stat.st_size;
    void *at = mmap(NULL, *bytes, access, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* Checks that both memories have the layout of version 1, and copies their numbers. Returns 1 if they have. */
static inline int linerate_frames_check(struct linerate_frames *ring, uint64_t generation) {
    const unsigned char *arena = ring->arena;
#define LINERATE_WORD(at) linerate_frames_word(arena, at, memory_order_relaxed)
#define LINERATE_LONG(at) linerate_frames_long(arena, at, memory_order_relaxed)
    if (memcmp(arena, "LRFRAMES", 8) != 0 || LINERATE_WORD(8) != 0x01020304 || LINERATE_WORD(12) != 1)
        return 0;
    const uint64_t frames = LINERATE_WORD(28), bytes = LINERATE_LONG(32), granule = LINERATE_WORD(64);
    if (frames < 1 || frames > 1 << 15 || bytes < 1 || bytes > (uint64_t)64 << 30 || granule == 0)
        return 0;
    const uint64_t entries = frames + (frames > 16 ? frames : 16), stride = linerate_frames_up(bytes, 4096);
    const uint64_t bitmap = ((bytes + granule - 1) / granule + 63) / 64 * 8, most = bytes / 1024;
    const uint64_t room = most < 64 ? 64 : most > 4096 ? 4096 : most;
    const uint64_t bitmaps = linerate_frames_up(4096 + entries * 256, 4096);
    const uint64_t gaps = linerate_frames_up(bitmaps + frames * bitmap, 4096);
    const uint64_t begin = linerate_frames_up(gaps + frames * room * 16, 2 << 20);
    const uint64_t whole = linerate_frames_up(begin + frames * stride, 2 << 20);
    uint32_t capacity = 1;
    while (capacity < entries)
        capacity *= 2;
    if (LINERATE_WORD(20) != 4096 || LINERATE_WORD(24) != entries || LINERATE_LONG(40) != stride ||
        LINERATE_LONG(48) != begin || LINERATE_LONG(56) != whole || LINERATE_WORD(68) != bitmap ||
        LINERATE_WORD(72) != room || LINERATE_WORD(100) != 256 || LINERATE_LONG(104) != 4096 ||
        LINERATE_LONG(112) != bitmaps || LINERATE_LONG(120) != gaps || ring->arena_bytes != whole)
        return 0;
    const uint64_t own = LINERATE_LONG(80);
    arena = ring->control;
    if (own != generation || LINERATE_LONG(16) != generation || LINERATE_WORD(24) != capacity ||
        LINERATE_WORD(28) != 512 || LINERATE_WORD(32) != 512 + 8 * capacity ||
        ring->control_bytes != linerate_frames_up(512 + 16 * (uint64_t)capacity, 4096))
        return 0;
#undef LINERATE_WORD
#undef LINERATE_LONG
    ring->frames = (uint32_t)frames, ring->entries = (uint32_t)entries, ring->capacity = capacity;
    ring->frame_bytes = bytes, ring->stride = stride, ring->begin = begin, ring->gaps_offset = gaps, ring->gap_room = room;
    ring->held = calloc(entries, 1);
    return ring->held != NULL;
}

/* Attaches to the frame ring of this name (a path if it has a /), shared by root or this user. On failure returns NULL and
 * writes the reason to `why`. */
static inline struct linerate_frames *linerate_frames_attach(const char *name, const char *reader, char *why, size_t room) {
    _Alignas(8) unsigned char answer[512];
    struct linerate_frames *ring = calloc(1, sizeof *ring);
    int fds[2];
    if (!ring)
        return snprintf(why, room, "out of memory"), (struct linerate_frames *)NULL;
    ring->socket = linerate_frames_connect(name);
    if (ring->socket < 0) {
        const int absent = errno == ECONNREFUSED || errno == ENOENT;
        snprintf(why, room, "%s", absent ? "no writer shares it; start linerate receive --share first" : strerror(errno));
        return linerate_frames_detach(ring), (struct linerate_frames *)NULL;
    }
    if (linerate_frames_greet(ring->socket, reader, answer, fds) != 0) {
        snprintf(why, room, "no answer, or not in this protocol; check that the writer is running and shares frames");
        return linerate_frames_detach(ring), (struct linerate_frames *)NULL;
    }
    if (linerate_frames_word(answer, 12, memory_order_relaxed) != 0 || fds[0] < 0) {
        snprintf(why, room, "%.448s", answer + 64);
        for (char *at = why; *at; at++)
            if ((unsigned char)*at < 32 || *at == 127)
                *at = '?';
        return linerate_frames_detach(ring), (struct linerate_frames *)NULL;
    }
    ring->arena = linerate_frames_map(fds[0], PROT_READ, &ring->arena_bytes);
    ring->control = linerate_frames_map(fds[1], PROT_READ | PROT_WRITE, &ring->control_bytes);
    close(fds[0]);
    close(fds[1]);
    const uint64_t generation = linerate_frames_long(answer, 24, memory_order_relaxed);
    if (!ring->arena || !ring->control || !linerate_frames_check(ring, generation)) {
        snprintf(why, room, "peer is not a linerate frame ring of version 1");
        return linerate_frames_detach(ring), (struct linerate_frames *)NULL;
    }
    return ring;
}

/* Returns the state of the ring; LINERATE_FRAMES_RUNNING while more frames may follow. */
static inline enum linerate_frames_end linerate_frames_end(const struct linerate_frames *ring) {
    return ring->end;
}

static inline int linerate_frames_stop(struct linerate_frames *ring, enum linerate_frames_end end) {
    ring->end = end;
    return 0;
}

/* Takes the next frame; returns 0 if there is none now, or the ring has ended. */
static inline int linerate_frames_next(struct linerate_frames *ring, struct linerate_frame *frame) {
    if (ring->end != LINERATE_FRAMES_RUNNING)
        return 0;
    const uint32_t status = linerate_frames_word(ring->control, 156, memory_order_acquire);
    const int gone = ring->hung_up;
    if (status == 1)
        return linerate_frames_stop(ring, LINERATE_FRAMES_EVICTED);
    const uint64_t there = linerate_frames_long(ring->control, 128, memory_order_acquire) - ring->taken;
    if (there == 0 && (status == 2 || gone))
        return linerate_frames_stop(ring, status == 2 ? LINERATE_FRAMES_ENDED : LINERATE_FRAMES_DIED);
    if (there == 0)
        return 0;
    const size_t place = 512 + 8 * (ring->taken % ring->capacity);
    const uint64_t entry = linerate_frames_long(ring->control, place, memory_order_relaxed);
    if (there > ring->entries || entry >= ring->entries || ring->held[entry])
        return linerate_frames_stop(ring, LINERATE_FRAMES_BROKEN);
    const unsigned char *base = ring->arena + 4096 + entry * 256;
    const uint32_t state = linerate_frames_word(base, 96, memory_order_acquire);
    memcpy(&frame->about, base, sizeof frame->about);
    const struct linerate_frame_entry *about = &frame->about;
    const int has_memory = entry < ring->frames;
    const uint64_t at = has_memory ? ring->begin + entry * ring->stride : 0;
    if (state != 1 || about->memory != at || about->length > (has_memory ? ring->frame_bytes : 0) ||
        about->gaps > (has_memory ? ring->gap_room : 0) || about->ending > LINERATE_STOPPED)
        return linerate_frames_stop(ring, LINERATE_FRAMES_BROKEN);
    ring->taken += 1;
    ring->held[entry] = 1;
    frame->bytes = ring->arena + at;
    frame->length = about->length;
    frame->gaps = (const struct linerate_gap *)(ring->arena + ring->gaps_offset + (has_memory ? entry : 0) * ring->gap_room * 16);
    frame->entry = (uint32_t)entry;
    return 1;
}

/* Returns a frame to the writer for reuse; it must not be accessed afterwards. */
static inline void linerate_frames_give_back(struct linerate_frames *ring, struct linerate_frame *frame) {
    if (frame->entry >= ring->entries || !ring->held[frame->entry])
        return;
    ring->held[frame->entry] = 0;
    const size_t place = 512 + 8 * (size_t)ring->capacity + 8 * (ring->given % ring->capacity);
    atomic_store_explicit((_Atomic uint64_t *)(ring->control + place), frame->entry, memory_order_relaxed);
    ring->given += 1;
    atomic_store_explicit((_Atomic uint64_t *)(ring->control + 256), ring->given, memory_order_release);
}

/* Waits until there may be a new frame, for at most `milliseconds` (-1: no limit), or until a signal arrives. */
static inline void linerate_frames_wait(struct linerate_frames *ring, int milliseconds) {
    _Atomic uint32_t *sleeping = (_Atomic uint32_t *)(ring->control + 384);
    struct pollfd socket = { .fd = ring->socket, .events = POLLIN };
    char bytes[16];
    atomic_store_explicit(sleeping, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    if (linerate_frames_long(ring->control, 128, memory_order_acquire) == ring->taken && !ring->hung_up &&
        linerate_frames_word(ring->control, 156, memory_order_acquire) == 0)
        poll(&socket, 1, milliseconds);
    atomic_store_explicit(sleeping, 0, memory_order_relaxed);
    for (int wakes = 0; wakes < 64; wakes++) {
        const ssize_t got = recv(ring->socket, bytes, sizeof bytes, MSG_DONTWAIT);
        if (got > 0 || (got < 0 && errno == EINTR))
            continue;
        ring->hung_up |= got == 0 || errno != EAGAIN;
        return;
    }
}

#endif
