/* SPDX-License-Identifier: GPL-2.0-only */
/* Frames of a capture file: pcap of both byte orders and resolutions, and pcapng. Lengths in the file are checked against the
 * buffer. */
#define _GNU_SOURCE
#include "pool.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    ROOM = 1 << 20,                  /* size of the buffer */
    READ = 1 << 17,                  /* bytes per read: they are still in the cache when parsed */
    LONGEST = LINERATE_MAX_FRAME + (1 << 17), /* maximum length of a parsed pcapng block */
    INTERFACES = 4096,               /* maximum per section */
    SECTION = 0x0a0d0d0a,
    INTERFACE = 1,
    SIMPLE = 3,
    ENHANCED = 6,
};

__extension__ typedef unsigned __int128 wide;

struct source {
    int link;
    uint32_t snap;
    uint64_t units; /* per second */
    int64_t offset; /* seconds */
};

struct file {
    struct instance *instance;
    char *path;
    int fd, is_regular, is_swapped, is_pcapng, is_over, has_failed;
    uint64_t skip; /* bytes of a block to skip */
    size_t at, end;
    unsigned char *buffer;
    struct source *sources;
    uint32_t known;
};

/* Result of a step. */
enum found { FRAME, NOTHING, END, WAITS, STOPPED, WRONG };

struct seen {
    const unsigned char *bytes;
    uint64_t time;
    uint32_t captured, wire, interface;
};

static enum found wrong(struct file *file, const char *what) {
    file->has_failed = 1;
    fails(file->instance, "%.150s: %s", file->path, what);
    return WRONG;
}

static uint32_t u32(const struct file *file, size_t offset) {
    uint32_t value;
    memcpy(&value, file->buffer + file->at + offset, sizeof value);
    return file->is_swapped ? __builtin_bswap32(value) : value;
}

static uint16_t u16_at(const struct file *file, const unsigned char *from) {
    uint16_t value;
    memcpy(&value, from, sizeof value);
    return file->is_swapped ? __builtin_bswap16(value) : value;
}

/* Reads until the buffer has `bytes` bytes: NOTHING if it has. */
static enum found more(struct file *file, size_t bytes) {
    while (file->end - file->at < bytes) {
        if (file->is_over)
            return END;
        memmove(file->buffer, file->buffer + file->at, file->end - file->at);
        file->end -= file->at;
        file->at = 0;
        if (!file->is_regular) {
            struct pollfd both[] = { { .fd = file->fd, .events = POLLIN }, { .fd = file->instance->wake, .events = POLLIN } };
            const int ready = poll(both, 2, file->known > 0 ? file->instance->timeout : -1);
            if (ready == 0)
                return WAITS;
            if (both[1].revents)
                return STOPPED;
        }
        const size_t room = ROOM - file->end;
        const ssize_t got = read(file->fd, file->buffer + file->end, room < READ ? room : READ);
        if (got < 0 && errno != EINTR)
            return wrong(file, strerror(errno));
        file->is_over = got == 0;
        file->end += got > 0 ? (size_t)got : 0;
    }
    return NOTHING;
}

static enum found need(struct file *file, size_t bytes) {
    return file->end - file->at >= bytes ? NOTHING : more(file, bytes);
}

/* Same within a record or block, where the end of the file is an error. */
static enum found need_rest(struct file *file, size_t bytes) {
    const enum found found = need(file, bytes);
    return found == END ? wrong(file, "file ends in the middle of a record") : found;
}

static enum found next_pcap(struct file *file, struct seen *seen) {
    enum found found = need(file, 16);
    if (found == END && file->end > file->at)
        return wrong(file, "file ends in the middle of a record");
    if (found != NOTHING)
        return found;
    const uint32_t captured = u32(file, 8);
    if (captured > LINERATE_MAX_FRAME)
        return wrong(file, "invalid record: longer than the maximum frame");
    if ((found = need_rest(file, 16 + (size_t)captured)) != NOTHING)
        return found;
    const uint64_t unit = file->sources[0].units == 1000000 ? 1000 : 1;
    seen->time = u32(file, 0) * UINT64_C(1000000000) + u32(file, 4) * unit;
    /* Same as libpcap: bytes beyond the snapshot length of the file are dropped. */
    const uint32_t snap = file->sources[0].snap;
    seen->captured = snap > 0 && snap < captured ? snap : captured;
    seen->wire = u32(file, 12);
    seen->interface = 0;
    seen->bytes = file->buffer + file->at + 16;
    file->at += 16 + (size_t)captured;
    return FRAME;
}

/* Reads options of an interface: resolution and offset of its times. Returns 0 if they are invalid. */
static int read_options(const struct file *file, struct source *source, const unsigned char *from, size_t bytes) {
    while (bytes >= 4) {
        const uint16_t code = u16_at(file, from), length = u16_at(file, from + 2);
        const size_t padded = 4 + (length + 3u) / 4 * 4;
        if (code == 0 || padded > bytes)
            return 1;
        if (code == 9 && length == 1) {
            const unsigned power = from[4] & 0x7f;
            if (power > (from[4] & 0x80 ? 63u : 19u))
                return 0;
            source->units = 1;
            for (unsigned step = 0; step < power; step++)
                source->units *= from[4] & 0x80 ? 2 : 10;
        }
        if (code == 14 && length == 8) {
            memcpy(&source->offset, from + 4, 8);
            if (file->is_swapped)
                source->offset = (int64_t)__builtin_bswap64((uint64_t)source->offset);
        }
        from += padded;
        bytes -= padded;
    }
    return 1;
}

static enum found add_interface(struct file *file, uint32_t length) {
    if (length < 20 || file->known == INTERFACES)
        return wrong(file, "invalid interface description, or too many interfaces");
    struct source *source = &file->sources[file->known++];
    *source = (struct source){ .units = 1000000, .snap = u32(file, 12) };
    source->link = link_of_file(u16_at(file, file->buffer + file->at + 8));
    if (!read_options(file, source, file->buffer + file->at + 16, length - 20))
        return wrong(file, "invalid time resolution of an interface");
    return NOTHING;
}

static enum found see_packet(struct file *file, struct seen *seen, uint32_t type, uint32_t length) {
    const uint32_t header = type == ENHANCED ? 28 : 12;
    if (length < header + 4)
        return wrong(file, "invalid packet block: too short");
    seen->interface = type == ENHANCED ? u32(file, 8) : 0;
    if (seen->interface >= file->known)
        return wrong(file, "packet of an undefined interface");
    const struct source *source = &file->sources[seen->interface];
    const uint32_t room = length - header - 4;
    seen->wire = u32(file, type == ENHANCED ? 24 : 8);
    seen->captured = type == ENHANCED ? u32(file, 20) : seen->wire;
    if (type == SIMPLE && source->snap > 0 && seen->captured > source->snap)
        seen->captured = source->snap;
    if (type == SIMPLE && seen->captured > room)
        seen->captured = room;
    if (seen->captured > room || seen->captured > LINERATE_MAX_FRAME)
        return wrong(file, "invalid packet: longer than its block or the maximum frame");
    const uint64_t time = type == ENHANCED ? (uint64_t)u32(file, 12) << 32 | u32(file, 16) : 0;
    const wide rest = (wide)(time % source->units) * 1000000000 / source->units;
    seen->time = (time / source->units + (uint64_t)source->offset) * UINT64_C(1000000000) + (uint64_t)rest;
    seen->bytes = file->buffer + file->at + header;
    return FRAME;
}

/* Starts a section, which may have another byte order: its magic follows the block header. */
static enum found begin_section(struct file *file) {
    const enum found found = need_rest(file, 12);
    if (found != NOTHING)
        return found;
    uint32_t magic;
    memcpy(&magic, file->buffer + file->at + 8, sizeof magic);
    if (magic != 0x1a2b3c4d && magic != 0x4d3c2b1a)
        return wrong(file, "invalid byte-order magic of a section");
    file->is_swapped = magic == 0x4d3c2b1a;
    file->known = 0;
    return NOTHING;
}

static enum found next_pcapng(struct file *file, struct seen *seen) {
    enum found found;
    while (file->skip > 0) {
        if ((found = need_rest(file, 1)) != NOTHING)
            return found;
        const size_t there = file->end - file->at;
        const size_t some = there < file->skip ? there : (size_t)file->skip;
        file->at += some;
        file->skip -= some;
    }
    if ((found = need(file, 8)) != NOTHING)
        return found == END && file->end > file->at ? wrong(file, "file ends in the middle of a block") : found;
    uint32_t type = u32(file, 0);
    if (type == SECTION && (found = begin_section(file)) != NOTHING)
        return found;
    const uint32_t length = u32(file, 4);
    if (length < 12 || length % 4 != 0)
        return wrong(file, "invalid block length");
    found = NOTHING;
    if (type == INTERFACE || type == SIMPLE || type == ENHANCED) {
        if (length > LONGEST)
            return wrong(file, "invalid block: longer than any packet");
        if ((found = need_rest(file, length)) != NOTHING)
            return found;
        found = type == INTERFACE ? add_interface(file, length) : see_packet(file, seen, type, length);
    }
    if (found == FRAME)
        file->at += length; /* its bytes stay valid until the next read */
    else if (found == NOTHING)
        file->skip = length;
    return found;
}

/* Reads the file up to the first interface; returns 0 on failure. */
static int begin(struct file *file) {
    enum found found = need(file, 4);
    const uint32_t magic = found == NOTHING ? u32(file, 0) : 0;
    struct seen seen;
    file->is_pcapng = magic == SECTION;
    if (file->is_pcapng) {
        while (file->known == 0 && (found = next_pcapng(file, &seen)) == NOTHING) {
        }
        /* A file without interfaces and packets is valid. */
        return found != WRONG;
    }
    file->is_swapped = magic == 0xd4c3b2a1 || magic == 0x4d3cb2a1;
    const int nanoseconds = magic == 0xa1b23c4d || magic == 0x4d3cb2a1;
    if (!file->is_swapped && !nanoseconds && magic != 0xa1b2c3d4) {
        const int is_packed = (magic & 0xffff) == 0x8b1f || magic == 0xfd2fb528;
        return wrong(file, is_packed ? "compressed file; decompress it first" : "not a pcap or pcapng file"), 0;
    }
    if (need_rest(file, 24) != NOTHING)
        return 0;
    file->sources[0] = (struct source){
        .link = link_of_file(u32(file, 20) & 0xffff),
        .snap = u32(file, 16),
        .units = nanoseconds ? 1000000000 : 1000000,
    };
    file->known = 1;
    file->at += 24;
    return 1;
}

struct file *file_open(struct instance *instance, const char *path) {
    struct stat stat;
    struct file *file = calloc(1, sizeof *file);
    if (file)
        *file = (struct file){ .instance = instance, .fd = -1, .path = strdup(path), .buffer = malloc(ROOM) };
    if (file)
        file->sources = calloc(INTERFACES, sizeof *file->sources);
    if (!file || !file->path || !file->buffer || !file->sources) {
        fails(instance, "%.150s: out of memory", path);
        file_close(file);
        return NULL;
    }
    file->fd = strcmp(path, "-") == 0 ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
    if (file->fd < 0 || fstat(file->fd, &stat) != 0) {
        fails(instance, "%.150s: %s", path, strerror(errno));
        file_close(file);
        return NULL;
    }
    file->is_regular = S_ISREG(stat.st_mode);
    if (!begin(file)) {
        if (!file->has_failed)
            fails(instance, "%.150s: no file header received", path);
        file_close(file);
        return NULL;
    }
    return file;
}

void file_close(struct file *file) {
    if (!file)
        return;
    if (file->fd >= 0)
        close(file->fd);
    free(file->sources);
    free(file->buffer);
    free(file->path);
    free(file);
}

int file_link(const struct file *file) {
    return file->known > 0 ? file->sources[0].link : 1;
}

enum daq_status file_take(struct instance *instance, unsigned most, const struct daq_msg *msgs[], unsigned *got) {
    struct file *file = instance->file;
    struct seen seen;
    while (*got < most) {
        if (file->has_failed)
            return *got > 0 ? DAQ_RSTAT_OK : DAQ_RSTAT_ERROR;
        const enum found found = file->is_pcapng ? next_pcapng(file, &seen) : next_pcap(file, &seen);
        if (found == NOTHING || found == WRONG)
            continue;
        if (found != FRAME && *got > 0)
            return DAQ_RSTAT_OK;
        if (found != FRAME)
            return found == END ? DAQ_RSTAT_EOF : found == WAITS ? DAQ_RSTAT_TIMEOUT : DAQ_RSTAT_INTERRUPTED;
        const struct filter *filter = instance->filter;
        if (file->sources[seen.interface].link != instance->link ||
            (filter && !filter_passes(filter, seen.bytes, seen.captured, seen.wire))) {
            instance->stats.filtered++;
            continue;
        }
        const uint32_t length = seen.captured < instance->snaplen ? seen.captured : instance->snaplen;
        struct message *message = pool_take(&instance->pool, seen.bytes, length);
        message_fill(&instance->pool, message, seen.time, seen.wire);
        instance->stats.received++;
        msgs[(*got)++] = &message->msg;
    }
    return DAQ_RSTAT_OK;
}
