/* liblinerate_ring: reader of linerate's block rings (docs/block-ring.md), in C11. Needs only libc and Linux.
 *
 *     char why[256];
 *     struct linerate_options options = { .lossless = 1, .name = "mine" };
 *     struct linerate_ring *ring = linerate_attach("NAME", &options, why, sizeof why);
 *     struct linerate_burst burst;
 *     while (linerate_end(ring) == LINERATE_RUNNING) {
 *         if (!linerate_next(ring, &burst)) {
 *             linerate_wait(ring, 1000);
 *             continue;
 *         }
 *         for (uint32_t i = 0; i < burst.frames; i++)
 *             look_at(linerate_frame(&burst, i), burst.descs[i].captured);
 *         linerate_release(ring);
 *     }
 *     linerate_detach(ring);
 *
 * The writer is not trusted: each number in its memory is copied once, checked, then used. A ring may be used by one thread
 * at a time. The declarations are valid C++ too. */
#ifndef LINERATE_RING_H
#define LINERATE_RING_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define LINERATE_ASSERT(fact) static_assert(fact, #fact)
extern "C" {
#else
#define LINERATE_ASSERT(fact) _Static_assert(fact, #fact)
#endif
#define LINERATE_AT(type, field, offset) LINERATE_ASSERT(offsetof(struct type, field) == (offset))

/* The format. Structs define offsets; in shared memory each number is loaded and stored separately. */

enum {
    LINERATE_MAJOR = 1,
    LINERATE_BYTE_ORDER = 0x01020304,
    LINERATE_SLOTS_OFFSET = 2 << 20,
    LINERATE_LEAST_SLOTS = 4,
    LINERATE_MOST_SLOTS = 1 << 16,
    LINERATE_LEAST_SLOT = 512 << 10,
    LINERATE_MOST_SLOT = 64 << 20,
    LINERATE_INTERFACES = 1024,
    LINERATE_MAX_FRAME = 262144,
    LINERATE_TAIL = 64, /* mapped bytes after a frame; must not be used */
    LINERATE_RECORD_HEADER = 16,
    LINERATE_MIXED = 1,       /* in linerate_block.flags */
    LINERATE_NO_LAYER = 255,  /* in linerate_desc.l3 and .l4 */
};

/* Bits of linerate_desc.flags. */
enum linerate_flags {
    LINERATE_VLAN_RESTORED = 1 << 0,    /* the kernel had removed the VLAN tag; it was inserted again */
    LINERATE_CHECKSUM_PARTIAL = 1 << 1, /* the transport checksum was left to hardware and is missing */
    LINERATE_CHECKSUM_VALID = 1 << 2,   /* the kernel has verified the transport checksum */
    LINERATE_SUPER_FRAME = 1 << 3,      /* several packets merged by GRO or GSO; not as on the wire */
    LINERATE_LATE = 1 << 4,             /* older than an earlier frame */
    LINERATE_LOSING = 1 << 5,           /* the receive path was losing frames at this time */
    LINERATE_OUTGOING = 1 << 6,         /* sent by this host */
    LINERATE_JOINED = 1 << 7,           /* joined from several receive buffers */
    LINERATE_SLICED = 1 << 8,           /* truncated on request */
    LINERATE_DAMAGED = 1 << 9,          /* reported by the file or the network card: bad FCS, symbol error */
    LINERATE_FCS_2 = 1 << 10,           /* 2 bytes of FCS follow a complete frame; captured and wire exclude them */
    LINERATE_FCS_4 = 1 << 11,           /* the same with 4 bytes */
    LINERATE_INCOMING = 1 << 12,        /* received by the host, according to the file */
    LINERATE_FCS_CUT = 1 << 13,         /* the frame is complete, its FCS is missing */
};

/* Header of the arena. */
struct linerate_arena {
    char magic[8]; /* LINERATE */
    uint32_t byte_order, major, minor, header_bytes;
    uint32_t interface_offset, interface_bytes, interface_room, slots;
    uint64_t slots_offset, slot_bytes, arena_bytes;
    uint32_t frames, body, page_bytes, node;
    uint64_t generation, start;
    uint32_t writer, reserved[39];
    /* The numbers from here on change. */
    uint64_t heartbeat, horizon, drops;
    uint32_t state, interfaces;
};
LINERATE_AT(linerate_arena, byte_order, 8);
LINERATE_AT(linerate_arena, major, 12);
LINERATE_AT(linerate_arena, minor, 16);
LINERATE_AT(linerate_arena, header_bytes, 20);
LINERATE_AT(linerate_arena, interface_offset, 24);
LINERATE_AT(linerate_arena, interface_bytes, 28);
LINERATE_AT(linerate_arena, interface_room, 32);
LINERATE_AT(linerate_arena, slots, 36);
LINERATE_AT(linerate_arena, slots_offset, 40);
LINERATE_AT(linerate_arena, slot_bytes, 48);
LINERATE_AT(linerate_arena, arena_bytes, 56);
LINERATE_AT(linerate_arena, frames, 64);
LINERATE_AT(linerate_arena, body, 68);
LINERATE_AT(linerate_arena, page_bytes, 72);
LINERATE_AT(linerate_arena, node, 76);
LINERATE_AT(linerate_arena, generation, 80);
LINERATE_AT(linerate_arena, start, 88);
LINERATE_AT(linerate_arena, writer, 96);
LINERATE_AT(linerate_arena, heartbeat, 256);
LINERATE_AT(linerate_arena, horizon, 264);
LINERATE_AT(linerate_arena, drops, 272);
LINERATE_AT(linerate_arena, state, 280);
LINERATE_AT(linerate_arena, interfaces, 284);

/* Entry of the interface table. */
struct linerate_interface {
    uint32_t link, stamp, snap, name_bytes, description_bytes, reserved[3];
    char name[96], description[384];
};
LINERATE_AT(linerate_interface, stamp, 4);
LINERATE_AT(linerate_interface, snap, 8);
LINERATE_AT(linerate_interface, name_bytes, 12);
LINERATE_AT(linerate_interface, description_bytes, 16);
LINERATE_AT(linerate_interface, name, 32);
LINERATE_AT(linerate_interface, description, 128);
LINERATE_ASSERT(sizeof(struct linerate_interface) == 512);

/* Header of a block; descs follow. */
struct linerate_block {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t sequence, first_time, first_index;
    uint32_t descs, body;
    uint16_t link, flags;
    uint32_t reserved[5];
    /* The numbers from here on change until the block is closed. */
    uint32_t committed, used;
    uint64_t last_time, horizon, drops;
    uint32_t late, duplicates, sliced, closed, reserved_line[4];
};
LINERATE_AT(linerate_block, version, 4);
LINERATE_AT(linerate_block, header_bytes, 6);
LINERATE_AT(linerate_block, sequence, 8);
LINERATE_AT(linerate_block, first_time, 16);
LINERATE_AT(linerate_block, first_index, 24);
LINERATE_AT(linerate_block, descs, 32);
LINERATE_AT(linerate_block, body, 36);
LINERATE_AT(linerate_block, link, 40);
LINERATE_AT(linerate_block, flags, 42);
LINERATE_AT(linerate_block, committed, 64);
LINERATE_AT(linerate_block, used, 68);
LINERATE_AT(linerate_block, last_time, 72);
LINERATE_AT(linerate_block, horizon, 80);
LINERATE_AT(linerate_block, drops, 88);
LINERATE_AT(linerate_block, late, 96);
LINERATE_AT(linerate_block, duplicates, 100);
LINERATE_AT(linerate_block, sliced, 104);
LINERATE_AT(linerate_block, closed, 108);
LINERATE_ASSERT(sizeof(struct linerate_block) == 128);

/* Descriptor of a frame. */
struct linerate_desc {
    uint64_t time; /* UTC nanoseconds */
    uint32_t offset, captured, wire;
    uint16_t interface, flags;
    uint8_t l3, l4; /* 255: unknown */
    uint16_t note;
    uint32_t hash;
};
LINERATE_AT(linerate_desc, offset, 8);
LINERATE_AT(linerate_desc, captured, 12);
LINERATE_AT(linerate_desc, wire, 16);
LINERATE_AT(linerate_desc, interface, 20);
LINERATE_AT(linerate_desc, flags, 22);
LINERATE_AT(linerate_desc, l3, 24);
LINERATE_AT(linerate_desc, l4, 25);
LINERATE_AT(linerate_desc, note, 26);
LINERATE_AT(linerate_desc, hash, 28);
LINERATE_ASSERT(sizeof(struct linerate_desc) == 32);

/* Header of the control memory of a reader; the rings follow. */
struct linerate_control {
    char magic[8]; /* LINERATE */
    uint32_t major, reader;
    uint64_t generation;
    uint32_t capacity, published_offset, returned_offset;
    /* Inline readers only (version 1.1); else 0. */
    uint32_t verdicts_offset, verdict_bytes, answers_offset, answers, answer_bytes, reserved[18];
    /* Written by the writer. */
    uint64_t published, skipped_frames, skipped_blocks;
    uint32_t mode, status;
    uint64_t answered;
    uint32_t writer_reserved[22];
    /* Written by the reader. */
    uint64_t returned, answering;
    uint32_t reader_reserved[28];
    /* Written by both. */
    uint32_t sleeping, sleeping_reserved[31];
};
LINERATE_AT(linerate_control, major, 8);
LINERATE_AT(linerate_control, reader, 12);
LINERATE_AT(linerate_control, generation, 16);
LINERATE_AT(linerate_control, capacity, 24);
LINERATE_AT(linerate_control, published_offset, 28);
LINERATE_AT(linerate_control, returned_offset, 32);
LINERATE_AT(linerate_control, verdicts_offset, 36);
LINERATE_AT(linerate_control, answers_offset, 44);
LINERATE_AT(linerate_control, answer_bytes, 52);
LINERATE_AT(linerate_control, published, 128);
LINERATE_AT(linerate_control, skipped_frames, 136);
LINERATE_AT(linerate_control, skipped_blocks, 144);
LINERATE_AT(linerate_control, mode, 152);
LINERATE_AT(linerate_control, status, 156);
LINERATE_AT(linerate_control, answered, 160);
LINERATE_AT(linerate_control, returned, 256);
LINERATE_AT(linerate_control, answering, 264);
LINERATE_AT(linerate_control, sleeping, 384);
LINERATE_ASSERT(sizeof(struct linerate_control) == 512);

/* Messages of the handshake. */
struct linerate_hello {
    char magic[4]; /* LRHi */
    uint32_t major, minor, lossless, quota, name_bytes, reserved[2];
    char name[96];
};
LINERATE_AT(linerate_hello, lossless, 12);
LINERATE_AT(linerate_hello, quota, 16);
LINERATE_AT(linerate_hello, name_bytes, 20);
LINERATE_AT(linerate_hello, name, 32);
LINERATE_ASSERT(sizeof(struct linerate_hello) == 128);

struct linerate_welcome {
    char magic[4]; /* LRWe */
    uint32_t major, minor, status, reader, quota;
    uint64_t generation, arena_bytes, control_bytes;
    uint32_t text_bytes, reserved[3];
    char text[448];
};
LINERATE_AT(linerate_welcome, status, 12);
LINERATE_AT(linerate_welcome, reader, 16);
LINERATE_AT(linerate_welcome, quota, 20);
LINERATE_AT(linerate_welcome, generation, 24);
LINERATE_AT(linerate_welcome, arena_bytes, 32);
LINERATE_AT(linerate_welcome, control_bytes, 40);
LINERATE_AT(linerate_welcome, text_bytes, 48);
LINERATE_AT(linerate_welcome, text, 64);
LINERATE_ASSERT(sizeof(struct linerate_welcome) == 512);

/* The reader. */

struct linerate_ring;

struct linerate_options {
    int lossless;     /* 1: the writer waits for this reader; must be permitted (capture --lossless-readers) */
    int trust;        /* 1: attach even if the writer is neither root nor this user */
    uint32_t quota;   /* maximum number of blocks that a lossy reader holds; 0: the writer's default */
    const char *name; /* shown in the writer's reports; may be NULL */
};

/* Frames of one block, valid until they are released. */
struct linerate_burst {
    const unsigned char *block;        /* start of the block, in the writer's memory */
    const struct linerate_desc *descs; /* copies, checked */
    uint32_t frames;
};

/* State of a ring. */
enum linerate_end {
    LINERATE_RUNNING, /* more frames may follow */
    LINERATE_ENDED,   /* the writer has ended normally; all frames were presented */
    LINERATE_DIED,    /* the writer died; all committed frames were presented */
    LINERATE_EVICTED, /* the writer has evicted this reader; the last burst was valid until its release */
    LINERATE_BROKEN,  /* the writer broke the format */
};

/* Attaches to the ring of this name (a path if it has a /). On failure returns NULL and writes the reason to `why`. */
struct linerate_ring *linerate_attach(const char *name, const struct linerate_options *options, char *why, size_t room);

/* Gets the next frames; returns 0 if there are none now. Releases the previous ones. */
int linerate_next(struct linerate_ring *ring, struct linerate_burst *burst);

/* Gets at most `most` frames; the next call returns the rest. */
int linerate_next_few(struct linerate_ring *ring, struct linerate_burst *burst, uint32_t most);

/* Releases the frames of linerate_next. */
void linerate_release(struct linerate_ring *ring);

/* Waits until there may be new frames, for at most `milliseconds` (-1: no limit), or until a signal arrives. */
void linerate_wait(struct linerate_ring *ring, int milliseconds);

/* Waits in the same way, or until this descriptor is readable; does not read it. */
void linerate_wait_or(struct linerate_ring *ring, int fd, int milliseconds);

/* For programs with their own event loop: marks the reader as sleeping and returns the descriptor to poll for input; -1 if
 * there may be frames already. Call linerate_awake before getting frames again; verdicts may be given before that. */
int linerate_sleep(struct linerate_ring *ring);
void linerate_awake(struct linerate_ring *ring);

/* Returns the state of the ring; LINERATE_RUNNING while more frames may follow. */
enum linerate_end linerate_end(const struct linerate_ring *ring);

/* Detaches the reader; the writer reclaims all blocks that it holds. */
void linerate_detach(struct linerate_ring *ring);

/* Returns the header of the arena. Any number in it may change at any time. */
const struct linerate_arena *linerate_arena(const struct linerate_ring *ring);

/* Copies entry `index` of the interface table, with terminated strings; returns 0 if it does not exist. */
int linerate_interface(const struct linerate_ring *ring, uint32_t index, struct linerate_interface *into);

/* Returns the number of frames that the writer skipped because this reader was too slow. */
uint64_t linerate_skipped(const struct linerate_ring *ring);

/* Returns the number of frames dropped because of invalid descs. */
uint64_t linerate_bad(const struct linerate_ring *ring);

/* Verdicts on frames (linerate inline). */

/* Verdict on a frame; see docs/block-ring.md. */
enum linerate_verdict {
    LINERATE_PASS = 0,
    LINERATE_BLOCK = 1,
    LINERATE_REPLACE = 2,   /* the frame is sent with the bytes of linerate_replace */
    LINERATE_WHITELIST = 3, /* it passes, and later frames of its flow need no verdict */
    LINERATE_BLACKLIST = 4, /* it and later frames of its flow are blocked */
    LINERATE_IGNORE = 5,    /* same as LINERATE_WHITELIST */
};

/* Identifies a frame until its verdict is given. */
struct linerate_ticket {
    uint32_t slot, frame;
};

/* Place of an injected frame, a bit mask. 0: before the frame it refers to, in the same direction. */
enum linerate_inject {
    LINERATE_BACK = 1,   /* to the port where that frame arrived */
    LINERATE_BEHIND = 2, /* after that frame */
};

/* Result of linerate_replace and linerate_inject. */
enum linerate_answer {
    LINERATE_ANSWERED = 0,
    LINERATE_FULL = 1,     /* 256 answers are pending, for frames decided earlier or held; retry later */
    LINERATE_TOO_LONG = 2, /* more than 16,384 bytes */
};

/* Attaches as the engine, which gives verdicts; otherwise as linerate_attach. A burst has at most 64 frames, which must be
 * processed in order. */
struct linerate_ring *linerate_attach_engine(const char *name, const struct linerate_options *options, char *why,
                                             size_t room);

/* Returns 1 if frame `index` of the burst needs a verdict, else 0. */
int linerate_wanted(const struct linerate_ring *ring, uint32_t index);

/* Gives the verdict on frame `index` of the burst. Each frame must be decided or held: an engine that returns a block with an
 * undecided frame is evicted. Takes effect with the next linerate_release or linerate_next. */
void linerate_decide(struct linerate_ring *ring, uint32_t index, enum linerate_verdict verdict);

/* Holds frame `index` of the burst; linerate_decide_later gives its verdict. */
struct linerate_ticket linerate_hold(struct linerate_ring *ring, uint32_t index);

/* Returns the ticket of frame `index` of the burst, for linerate_replace and linerate_inject. */
struct linerate_ticket linerate_ticket_of(const struct linerate_ring *ring, uint32_t index);

/* Sets the new bytes of a frame, as many as were captured. Call it before the verdict, which must be LINERATE_REPLACE. The
 * bytes are copied. */
enum linerate_answer linerate_replace(struct linerate_ring *ring, struct linerate_ticket ticket, const void *bytes,
                                      uint32_t length);

/* Sends an additional frame when the frame of the ticket is sent or blocked. Call it before the verdict. Ignored if the
 * policy decides that frame. */
enum linerate_answer linerate_inject(struct linerate_ring *ring, struct linerate_ticket ticket, int where, const void *bytes,
                                     uint32_t length);

/* Gives the verdict on a held frame, once. */
void linerate_decide_later(struct linerate_ring *ring, struct linerate_ticket ticket, enum linerate_verdict verdict);

/* Returns the start of frame `index` of a burst. */
static inline const unsigned char *linerate_frame(const struct linerate_burst *burst, uint32_t index) {
    return burst->block + burst->descs[index].offset;
}

#ifdef __cplusplus
}
#endif
#endif
