/* Takes frames of received streams until the writer ends, and sums their bytes.
 *
 *     cc -O2 -o frames_sum frames_sum.c -I c
 *     ./frames_sum NAME */
#include <linerate_frames.h>

#include <inttypes.h>

int main(int words, char **word) {
    char why[512];
    uint64_t frames = 0, bytes = 0, missing = 0, sum = 0;
    if (words != 2)
        return fputs("usage: frames_sum NAME\n", stderr), 2;
    struct linerate_frames *ring = linerate_frames_attach(word[1], "frames_sum", why, sizeof why);
    if (!ring)
        return fprintf(stderr, "frames_sum: %s: %s\n", word[1], why), 1;
    struct linerate_frame frame;
    while (linerate_frames_end(ring) == LINERATE_FRAMES_RUNNING) {
        if (!linerate_frames_next(ring, &frame)) {
            linerate_frames_wait(ring, 1000);
            continue;
        }
        for (uint64_t at = 0; at < frame.length; at++)
            sum += frame.bytes[at];
        frames += 1, bytes += frame.length, missing += frame.about.missing;
        linerate_frames_give_back(ring, &frame);
    }
    printf("%" PRIu64 " frames, %" PRIu64 " bytes, %" PRIu64 " missing, sum %" PRIu64 "\n", frames, bytes, missing, sum);
    const int whole = linerate_frames_end(ring) == LINERATE_FRAMES_ENDED;
    linerate_frames_detach(ring);
    return whole ? 0 : 1;
}
