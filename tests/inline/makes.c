/* An engine that injects frames for every tenth frame: `a` before it, `b` after it, `c` back. It blocks every second
 * of these, and holds some for a while. Frames start with their number, in network order. */
#include <linerate_ring.h>
#include <stdio.h>
#include <string.h>

static void make(struct linerate_ring *ring, struct linerate_ticket ticket, const unsigned char *frame, int where, char mark) {
    unsigned char bytes[40];
    memcpy(bytes, frame, sizeof bytes);
    bytes[10] = (unsigned char)mark;
    /* 256 answers may be pending; 64 frames need 21. */
    while (linerate_inject(ring, ticket, where, bytes, sizeof bytes) == LINERATE_FULL)
        ;
}

int main(int words, char **word) {
    const struct linerate_options options = { .name = words > 1 ? word[1] : "" };
    char why[512];
    struct linerate_ring *ring = linerate_attach_engine(options.name, &options, why, sizeof why);
    if (!ring)
        return fprintf(stderr, "%s\n", why), 1;
    struct linerate_burst burst;
    struct linerate_ticket held = { 0, 0 };
    int holds = 0;
    if (linerate_inject(ring, held, 0, why, 16385) != LINERATE_TOO_LONG)
        return 1;
    while (linerate_end(ring) == LINERATE_RUNNING) {
        const uint32_t frames = linerate_next(ring, &burst) ? burst.frames : 0;
        for (uint32_t at = 0; at < frames; at++) {
            const unsigned char *frame = linerate_frame(&burst, at);
            const unsigned number = (unsigned)frame[2] << 8 | frame[3];
            const struct linerate_ticket ticket = linerate_ticket_of(ring, at);
            if (number % 10 == 3) {
                make(ring, ticket, frame, 0, 'a');
                make(ring, ticket, frame, LINERATE_BEHIND, 'b');
                make(ring, ticket, frame, LINERATE_BACK, 'c');
            }
            if (number % 100 == 13 && !holds) {
                held = linerate_hold(ring, at);
                holds = 1;
                continue;
            }
            linerate_decide(ring, at, number % 20 == 3 ? LINERATE_BLOCK : LINERATE_PASS);
        }
        linerate_release(ring);
        if (holds)
            linerate_decide_later(ring, held, LINERATE_PASS);
        holds = 0;
        if (frames == 0)
            linerate_wait(ring, 1000);
    }
    const int whole = linerate_end(ring) == LINERATE_ENDED;
    linerate_detach(ring);
    return whole ? 0 : 1;
}
