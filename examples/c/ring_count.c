/* Counts the frames of a block ring per interface, until the writer ends.
 *
 *     cc -o ring_count ring_count.c $(pkg-config --cflags --libs linerate-ring)
 *     ./ring_count NAME */
#include <inttypes.h>
#include <linerate_ring.h>
#include <stdio.h>

struct count {
    uint64_t frames, bytes;
};

int main(int words, char **word) {
    static struct count counts[LINERATE_INTERFACES];
    const struct linerate_options options = { .name = "ring_count" };
    char why[512];
    if (words != 2)
        return fputs("usage: ring_count NAME\n", stderr), 2;
    struct linerate_ring *ring = linerate_attach(word[1], &options, why, sizeof why);
    if (!ring)
        return fprintf(stderr, "ring_count: %s: %s\n", word[1], why), 1;
    struct linerate_burst burst;
    while (linerate_end(ring) == LINERATE_RUNNING) {
        if (!linerate_next(ring, &burst)) {
            linerate_wait(ring, 1000);
            continue;
        }
        for (uint32_t at = 0; at < burst.frames; at++) {
            const struct linerate_desc *desc = &burst.descs[at];
            counts[desc->interface].frames += 1;
            counts[desc->interface].bytes += desc->captured;
        }
        linerate_release(ring);
    }
    struct linerate_interface interface;
    for (uint32_t at = 0; linerate_interface(ring, at, &interface); at++)
        printf("%s: %" PRIu64 " frames, %" PRIu64 " bytes\n", interface.name[0] ? interface.name : "a file",
               counts[at].frames, counts[at].bytes);
    printf("%" PRIu64 " skipped\n", linerate_skipped(ring));
    const int whole = linerate_end(ring) == LINERATE_ENDED;
    linerate_detach(ring);
    return whole ? 0 : 1;
}
