/* liblinerate_ring: a reader of linerate's block rings (docs/block-ring.md), in C11 with nothing but libc and Linux.
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
 * The writer is trusted for nothing: every number of its memory is copied out once, checked, then used. One thread at a
 * time uses a ring. These declarations are fit for C++ too. */
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

/* The format. Structs name offsets; in shared memory each number is loaded and stored by itself. */

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
    LINERATE_TAIL = 64, /* bytes behind a frame that are mapped; they are not the reader's to read */
    LINERATE_RECORD_HEADER = 16,
    LINERATE_MIXED = 1,       /* in linerate_block.flags */
    LINERATE_NO_LAYER = 255,  /* in linerate_desc.l3 and .l4 */
};

/* Bits of linerate_desc.flags. */
enum linerate_flags {
    LINERATE_VLAN_RESTORED = 1 << 0,    /* the kernel had taken the VLAN tag out; it was put back */
    LINERATE_CHECKSUM_PARTIAL = 1 << 1, /* the transport checksum was left to hardware, and is not there */
    LINERATE_CHECKSUM_VALID = 1 << 2,   /* the kernel has verified the transport checksum */
    LINERATE_SUPER_FRAME = 1 << 3,      /* put together by GRO or GSO: never on a wire like this */
    LINERATE_LATE = 1 << 4,             /* older than a frame before it */
    LINERATE_LOSING = 1 << 5,           /* frames were being lost when this one was stored */
    LINERATE_OUTGOING = 1 << 6,         /* the host itself sent it */
    LINERATE_JOINED = 1 << 7,           /* several buffers of the receive path were joined */
    LINERATE_SLICED = 1 << 8,           /* cut on request */
    LINERATE_DAMAGED = 1 << 9,          /* the file or the card says so (bad FCS, symbol error) */
    LINERATE_FCS_2 = 1 << 10,           /* an FCS of 2 bytes, not counted by captured and wire, lies after a whole frame */
    LINERATE_FCS_4 = 1 << 11,           /* the same with 4 bytes */
    LINERATE_INCOMING = 1 << 12,        /* the file says that the host received it */
    LINERATE_FCS_CUT = 1 << 13,         /* the frame is whole, its FCS is not there */
};

/* What an arena begins with. */
struct linerate_arena {
    char magic[8]; /* LINERATE */
    uint32_t byte_order, major, minor, header_bytes;
    uint32_t interface_offset, interface_bytes, interface_room, slots;
    uint64_t slots_offset, slot_bytes, arena_bytes;
    uint32_t frames, body, page_bytes, node;
    uint64_t generation, start;
    uint32_t writer, reserved[39];
    /* From here on numbers change. */
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

/* One entry of the table of interfaces. */
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

/* What a block begins with; descs follow. */
struct linerate_block {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t sequence, first_time, first_index;
    uint32_t descs, body;
    uint16_t link, flags;
    uint32_t reserved[5];
    /* From here on numbers change until the block is closed. */
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

/* About one frame. */
struct linerate_desc {
    uint64_t time; /* UTC nanoseconds */
    uint32_t offset, captured, wire;
    uint16_t interface, flags;
    uint8_t l3, l4; /* 255: not known */
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

/* What the control memory of one reader begins with; the rings follow. */
struct linerate_control {
    char magic[8]; /* LINERATE */
    uint32_t major, reader;
    uint64_t generation;
    uint32_t capacity, published_offset, returned_offset;
    /* Of a reader that decides (version 1.1); 0 for any other. */
    uint32_t verdicts_offset, verdict_bytes, answers_offset, answers, answer_bytes, reserved[18];
    /* The writer's line. */
    uint64_t published, skipped_frames, skipped_blocks;
    uint32_t mode, status;
    uint64_t answered;
    uint32_t writer_reserved[22];
    /* The reader's line. */
    uint64_t returned, answering;
    uint32_t reader_reserved[28];
    /* Both write this one. */
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

/* The messages of the handshake. */
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
    int lossless;     /* 1: the writer waits for this reader, if it lets such in (capture --lossless-readers) */
    int trust;        /* 1: attach also if neither root nor this user shares */
    uint32_t quota;   /* most blocks that a lossy reader holds; 0: as the writer thinks best */
    const char *name; /* for the writer's reports; may be NULL */
};

/* Frames of one block, to be looked at until they are released. */
struct linerate_burst {
    const unsigned char *block;        /* where the block begins, in the writer's memory */
    const struct linerate_desc *descs; /* copied out and checked */
    uint32_t frames;
};

/* Why no more frames come. */
enum linerate_end {
    LINERATE_RUNNING, /* they may */
    LINERATE_ENDED,   /* the writer has ended in order, and all was shown */
    LINERATE_DIED,    /* the writer is gone; all that it had committed was shown */
    LINERATE_PUT_OUT, /* the writer has taken everything back; the last burst was whole until it was released */
    LINERATE_BROKEN,  /* what the writer wrote cannot be right */
};

/* Attaches to the ring of this name (a path if it has a /). NULL if that fails; `why` then says why. */
struct linerate_ring *linerate_attach(const char *name, const struct linerate_options *options, char *why, size_t room);

/* The next frames; 0 if none are there now. Releases those before. */
int linerate_next(struct linerate_ring *ring, struct linerate_burst *burst);

/* The same, but no more than so many of them: the others come next. */
int linerate_next_few(struct linerate_ring *ring, struct linerate_burst *burst, uint32_t most);

/* The frames of linerate_next are not needed any more. */
void linerate_release(struct linerate_ring *ring);

/* Waits until there may be something new, or so many milliseconds (-1: for ever) have passed, or a signal came. */
void linerate_wait(struct linerate_ring *ring, int milliseconds);

/* The same, or until this descriptor can be read; it is left as it is. */
void linerate_wait_or(struct linerate_ring *ring, int fd, int milliseconds);

/* For a program that waits by itself: goes to sleep, and returns what to poll for input; -1 if there may be something already.
 * linerate_awake is called before frames are asked for again; verdicts may be said meanwhile. */
int linerate_sleep(struct linerate_ring *ring);
void linerate_awake(struct linerate_ring *ring);

/* Why no more frames come; LINERATE_RUNNING as long as they may. */
enum linerate_end linerate_end(const struct linerate_ring *ring);

/* Ends the reader: everything that it holds goes back to the writer. */
void linerate_detach(struct linerate_ring *ring);

/* The beginning of the arena, of which each number may change at any time. */
const struct linerate_arena *linerate_arena(const struct linerate_ring *ring);

/* The table of interfaces: copies entry `index`, its texts terminated; 0 if there is none. */
int linerate_interface(const struct linerate_ring *ring, uint32_t index, struct linerate_interface *into);

/* Frames that the writer did not show to this reader, because it was too slow. */
uint64_t linerate_skipped(const struct linerate_ring *ring);

/* Frames left out because their descs cannot be right. */
uint64_t linerate_bad(const struct linerate_ring *ring);

/* Deciding about frames (linerate inline). */

/* What becomes of a frame; of the rest docs/block-ring.md tells. */
enum linerate_verdict {
    LINERATE_PASS = 0,
    LINERATE_BLOCK = 1,
    LINERATE_REPLACE = 2,   /* it goes on with the bytes of linerate_replace */
    LINERATE_WHITELIST = 3, /* it passes, and later frames of its flow are not asked about */
    LINERATE_BLACKLIST = 4, /* it is blocked, and so are later frames of its flow */
    LINERATE_IGNORE = 5,    /* as LINERATE_WHITELIST */
};

/* A frame, until its verdict is given. */
struct linerate_ticket {
    uint32_t slot, frame;
};

/* Where a frame of the engine's own goes: a sum. Without either it goes in front of the other frame, and where that one goes. */
enum linerate_inject {
    LINERATE_BACK = 1,   /* out of the port that the other frame came in by */
    LINERATE_BEHIND = 2, /* behind the other frame */
};

/* What became of bytes that were handed back. */
enum linerate_answer {
    LINERATE_ANSWERED = 0,
    LINERATE_FULL = 1,     /* 256 are under way, of frames decided before or held: try again a little later */
    LINERATE_TOO_LONG = 2, /* more than 16,384 bytes */
};

/* Attaches as the reader that decides; else as linerate_attach. Frames of each burst, which are 64 at most, are to be gone
 * through in order. */
struct linerate_ring *linerate_attach_engine(const char *name, const struct linerate_options *options, char *why,
                                             size_t room);

/* Whether a verdict is wanted on frame `index` of the burst: 0 if nobody waits for it. */
int linerate_wanted(const struct linerate_ring *ring, uint32_t index);

/* Says what becomes of frame `index` of the burst. Each frame is to be decided or held: who gives a block back and has said
 * nothing of a frame of it is put out. It counts once linerate_release or linerate_next is called. */
void linerate_decide(struct linerate_ring *ring, uint32_t index, enum linerate_verdict verdict);

/* Holds frame `index` of the burst: what becomes of it is said by linerate_decide_later. */
struct linerate_ticket linerate_hold(struct linerate_ring *ring, uint32_t index);

/* Names frame `index` of the burst, for linerate_replace and linerate_inject. */
struct linerate_ticket linerate_ticket_of(const struct linerate_ring *ring, uint32_t index);

/* Hands over the bytes that a frame goes on with, as many as it has captured, and before its verdict, which is to be
 * LINERATE_REPLACE. They are copied. */
enum linerate_answer linerate_replace(struct linerate_ring *ring, struct linerate_ticket ticket, const void *bytes,
                                      uint32_t length);

/* Hands over a frame to be sent when that one goes, or is blocked; before its verdict. It is not where the policy has that one. */
enum linerate_answer linerate_inject(struct linerate_ring *ring, struct linerate_ticket ticket, int where, const void *bytes,
                                     uint32_t length);

/* Says what becomes of a frame that was held, once. */
void linerate_decide_later(struct linerate_ring *ring, struct linerate_ticket ticket, enum linerate_verdict verdict);

/* Where frame `index` of a burst begins. */
static inline const unsigned char *linerate_frame(const struct linerate_burst *burst, uint32_t index) {
    return burst->block + burst->descs[index].offset;
}

#ifdef __cplusplus
}
#endif
#endif
