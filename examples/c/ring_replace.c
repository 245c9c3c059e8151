/* Engine for linerate inline: overwrites one byte in each frame, for example the last one of the source MAC address.
 *
 *     linerate inline eth1 eth2 --share ids &
 *     cc -o ring_replace ring_replace.c $(pkg-config --cflags --libs linerate-ring)
 *     ./ring_replace ids 11 0x2a */
#define _DEFAULT_SOURCE
#include <linerate_ring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int words, char **word) {
    const struct linerate_options options = { .name = "ring_replace" };
    char why[512] = "usage: ring_replace NAME OFFSET BYTE";
    struct linerate_ring *ring = words == 4 ? linerate_attach_engine(word[1], &options, why, sizeof why) : NULL;
    if (!ring)
        return fprintf(stderr, "ring_replace: %s\n", why), 1;
    static unsigned char bytes[LINERATE_MAX_FRAME];
    const uint32_t place = (uint32_t)strtoul(word[2], NULL, 0);
    struct linerate_burst burst;
    while (linerate_end(ring) == LINERATE_RUNNING) {
        const uint32_t frames = linerate_next(ring, &burst) ? burst.frames : 0;
        for (uint32_t at = 0, tries = 0, said = 0; at < frames; at++, tries = 0) {
            const uint32_t length = burst.descs[at].captured;
            if (!linerate_wanted(ring, at))
                continue;
            memcpy(bytes, linerate_frame(&burst, at), length);
            bytes[place % sizeof bytes] = (unsigned char)strtoul(word[3], NULL, 0);
            while ((said = linerate_replace(ring, linerate_ticket_of(ring, at), bytes, length)) == LINERATE_FULL && tries++ < 9999)
                usleep(100); /* until earlier frames have been sent */
            linerate_decide(ring, at, place < length && said == LINERATE_ANSWERED ? LINERATE_REPLACE : LINERATE_BLOCK);
        }
        if (frames == 0)
            linerate_wait(ring, 1000);
    }
    linerate_detach(ring);
}
