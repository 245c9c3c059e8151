/* Attaches to a block ring and prints one line per frame, or writes a pcap file to standard output.
 *
 *     cc -o ring_cat ring_cat.c $(pkg-config --cflags --libs linerate-ring) */
#include <inttypes.h>
#include <linerate_ring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char USAGE[] =
    "usage: ring_cat [-l] [-w] [-q SLOTS] [-t] NAME\n"
    "  NAME       name of the ring (linerate capture PORT --share NAME); a path if it has a /\n"
    "  -l         lossless: the writer waits for this reader; needs capture --lossless-readers\n"
    "  -w         write a pcap file to standard output instead of one line per frame\n"
    "  -q SLOTS   maximum number of blocks to hold, if not lossless\n"
    "  -t         trust a ring shared by a user other than root and you\n"
    "       ring_cat -i NAME    print the layout of the ring and its interfaces\n"
    "       ring_cat -L         print the layout of the format\n";

static int print_lines(const struct linerate_ring *ring, const struct linerate_burst *burst) {
    for (uint32_t at = 0; at < burst->frames; at++) {
        const struct linerate_desc *desc = &burst->descs[at];
        struct linerate_interface interface;
        /* Interfaces of files may have no name. */
        const int named = linerate_interface(ring, desc->interface, &interface) && interface.name[0];
        const char *name = named ? interface.name : "-";
        printf("%" PRIu64 ".%09" PRIu64 " %s captured %" PRIu32 " wire %" PRIu32 " flags 0x%04x hash 0x%08" PRIx32 "\n",
               desc->time / 1000000000, desc->time % 1000000000, name, desc->captured, desc->wire, desc->flags, desc->hash);
    }
    return fflush(stdout);
}

/* Writes the header of a pcap file with nanosecond times; records follow. */
static int write_header(uint32_t link) {
    const struct {
        uint32_t magic;
        uint16_t major, minor;
        uint32_t zone, accuracy, snap, link;
    } header = { 0xa1b23c4d, 2, 4, 0, 0, LINERATE_MAX_FRAME, link };
    _Static_assert(sizeof header == 24, "size of a pcap file header");
    return fwrite(&header, sizeof header, 1, stdout) == 1 ? 0 : -1;
}

/* Writes the records unchanged; frames that are contiguous in memory are written together. */
static int write_records(const struct linerate_burst *burst) {
    for (uint32_t at = 0; at < burst->frames;) {
        const uint32_t from = burst->descs[at].offset - LINERATE_RECORD_HEADER;
        uint32_t end = from;
        for (; at < burst->frames && burst->descs[at].offset == end + LINERATE_RECORD_HEADER; at++)
            end = burst->descs[at].offset + burst->descs[at].captured;
        if (fwrite(burst->block + from, end - from, 1, stdout) != 1)
            return -1;
    }
    return fflush(stdout);
}

/* Returns the link type of all frames of a burst; -1 if it differs from `before`, the one so far (-1: none). */
static int64_t link_of(const struct linerate_ring *ring, const struct linerate_burst *burst, int64_t before) {
    static struct linerate_interface interface;
    static int64_t known = -1;
    for (uint32_t at = 0; at < burst->frames; at++) {
        if (known != burst->descs[at].interface) {
            known = burst->descs[at].interface;
            linerate_interface(ring, burst->descs[at].interface, &interface);
        }
        if (before >= 0 && before != interface.link)
            return -1;
        before = interface.link;
    }
    return before;
}

static int copy(struct linerate_ring *ring, int pcap) {
    static const char *const ENDS[] = { "", "the writer has ended", "the writer died",
                                        "evicted by the writer: too slow, or broke the protocol",
                                        "the writer broke the format" };
    struct linerate_burst burst;
    uint64_t frames = 0;
    int64_t link = -1;
    while (linerate_end(ring) == LINERATE_RUNNING) {
        if (!linerate_next(ring, &burst)) {
            linerate_wait(ring, 1000);
            continue;
        }
        int failed = 0;
        if (pcap) {
            const int64_t before = link;
            link = link_of(ring, &burst, before);
            if (link < 0) {
                fprintf(stderr, "ring_cat: frames have several link types; a pcap file holds only one\n");
                return 1;
            }
            failed = (before < 0 && write_header((uint32_t)link) != 0) || write_records(&burst) != 0;
        } else {
            failed = print_lines(ring, &burst) != 0;
        }
        if (failed) {
            perror("ring_cat: standard output");
            return 1;
        }
        frames += burst.frames;
        linerate_release(ring);
    }
    const enum linerate_end end = linerate_end(ring);
    fprintf(stderr, "%" PRIu64 " frames, %" PRIu64 " skipped, %" PRIu64 " bad: %s\n", frames, linerate_skipped(ring),
            linerate_bad(ring), ENDS[end]);
    return end == LINERATE_ENDED ? 0 : 1;
}

/* Prints the header of a ring and its interfaces. */
static int inspect(const struct linerate_ring *ring) {
    const struct linerate_arena *arena = linerate_arena(ring);
#define PRINT(field) printf("arena." #field " %" PRIu64 "\n", (uint64_t)arena->field)
    PRINT(byte_order);
    PRINT(major);
    PRINT(minor);
    PRINT(header_bytes);
    PRINT(interface_offset);
    PRINT(interface_bytes);
    PRINT(interface_room);
    PRINT(slots);
    PRINT(slots_offset);
    PRINT(slot_bytes);
    PRINT(arena_bytes);
    PRINT(frames);
    PRINT(body);
    PRINT(page_bytes);
    PRINT(node);
    PRINT(start);
    PRINT(writer);
    PRINT(heartbeat);
    PRINT(horizon);
    PRINT(drops);
    PRINT(state);
    PRINT(interfaces);
#undef PRINT
    struct linerate_interface interface;
    for (uint32_t index = 0; linerate_interface(ring, index, &interface); index++)
        printf("interface %" PRIu32 " link %" PRIu32 " stamp %" PRIu32 " snap %" PRIu32 " name %s description %s\n", index,
               interface.link, interface.stamp, interface.snap, interface.name, interface.description);
    return 0;
}

/* Prints the offsets in block headers and descs, for tests. */
static int print_layout(void) {
#define SIZE(type) printf(#type " %zu\n", sizeof(struct linerate_##type))
#define AT(type, field) printf(#type "." #field " %zu\n", offsetof(struct linerate_##type, field))
    SIZE(block);
    AT(block, magic), AT(block, version), AT(block, header_bytes), AT(block, sequence), AT(block, first_time);
    AT(block, first_index), AT(block, descs), AT(block, body), AT(block, link), AT(block, flags), AT(block, committed);
    AT(block, used), AT(block, last_time), AT(block, horizon), AT(block, drops), AT(block, late), AT(block, duplicates);
    AT(block, sliced), AT(block, closed);
    SIZE(desc);
    AT(desc, time), AT(desc, offset), AT(desc, captured), AT(desc, wire), AT(desc, interface), AT(desc, flags);
    AT(desc, l3), AT(desc, l4), AT(desc, note), AT(desc, hash);
    return 0;
#undef SIZE
#undef AT
}

int main(int count, char **arguments) {
    struct linerate_options options = { .name = "ring_cat" };
    int pcap = 0, look = 0;
    const char *name = NULL;
    for (int at = 1; at < count; at++) {
        const char *word = arguments[at];
        if (strcmp(word, "-L") == 0)
            return print_layout();
        else if (strcmp(word, "-l") == 0)
            options.lossless = 1;
        else if (strcmp(word, "-w") == 0)
            pcap = 1;
        else if (strcmp(word, "-i") == 0)
            look = 1;
        else if (strcmp(word, "-t") == 0)
            options.trust = 1;
        else if (strcmp(word, "-q") == 0 && at + 1 < count)
            options.quota = (uint32_t)strtoul(arguments[++at], NULL, 10);
        else if (word[0] != '-' && !name)
            name = word;
        else
            return fputs(USAGE, stderr), 2;
    }
    if (!name)
        return fputs(USAGE, stderr), 2;
    char why[512];
    struct linerate_ring *ring = linerate_attach(name, &options, why, sizeof why);
    if (!ring) {
        fprintf(stderr, "ring_cat: %s: %s\n", name, why);
        return 1;
    }
    const int status = look ? inspect(ring) : copy(ring, pcap);
    linerate_detach(ring);
    return status;
}
