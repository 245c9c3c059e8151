/* Engine for linerate inline: blocks UDP datagrams to one port and passes all other frames.
 *
 *     linerate inline eth1 eth2 --share ids &
 *     cc -o ring_engine ring_engine.c $(pkg-config --cflags --libs linerate-ring)
 *     ./ring_engine ids 53 */
#include <inttypes.h>
#include <linerate_ring.h>
#include <stdio.h>
#include <stdlib.h>

/* Returns 1 if the frame is a UDP datagram over IPv4 to this port. */
static int is_to(const struct linerate_desc *desc, const unsigned char *frame, int port) {
    if (desc->l3 == LINERATE_NO_LAYER || desc->l4 == LINERATE_NO_LAYER || desc->l4 + 4u > desc->captured)
        return 0;
    const unsigned char *udp = frame + desc->l4;
    return frame[desc->l3] >> 4 == 4 && frame[desc->l3 + 9] == 17 && udp[2] << 8 == (port & 0xff00) && udp[3] == (port & 0xff);
}

int main(int words, char **word) {
    const struct linerate_options options = { .name = "ring_engine" };
    char why[512];
    if (words != 3)
        return fputs("usage: ring_engine NAME PORT\n", stderr), 2;
    struct linerate_ring *ring = linerate_attach_engine(word[1], &options, why, sizeof why);
    if (!ring)
        return fprintf(stderr, "ring_engine: %s: %s\n", word[1], why), 1;
    struct linerate_burst burst;
    uint64_t blocked = 0;
    while (linerate_end(ring) == LINERATE_RUNNING) {
        if (!linerate_next(ring, &burst)) {
            linerate_wait(ring, 1000);
            continue;
        }
        for (uint32_t at = 0; at < burst.frames; at++) {
            if (!linerate_wanted(ring, at))
                continue;
            const int is = is_to(&burst.descs[at], linerate_frame(&burst, at), atoi(word[2]));
            linerate_decide(ring, at, is ? LINERATE_BLOCK : LINERATE_PASS);
            blocked += is;
        }
        linerate_release(ring);
    }
    printf("%" PRIu64 " blocked\n", blocked);
    const int whole = linerate_end(ring) == LINERATE_ENDED;
    linerate_detach(ring);
    return whole ? 0 : 1;
}
