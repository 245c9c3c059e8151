/* Runs kernels.cu on the CPU, one thread of the grid after another, for src/kernels/tests.rs: jobs are read from standard input, and the
 * resulting memory is written to standard output. Buffers are followed by guard bytes that must not be accessed. */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define __global__
#define __device__
struct index3 {
    unsigned x;
};
static index3 threadIdx, blockIdx, blockDim, gridDim;
static unsigned atomicAdd(unsigned *to, unsigned more) { unsigned old = *to; *to += more; return old; }
static float atomicAdd(float *to, float more) { float old = *to; *to += more; return old; }
static unsigned atomicOr(unsigned *to, unsigned more) { unsigned old = *to; *to |= more; return old; }
static unsigned atomicXor(unsigned *to, unsigned more) { unsigned old = *to; *to ^= more; return old; }
#include "../src/kernels.cu"

template <class Kernel> static void grid(unsigned blocks, unsigned threads, Kernel kernel) {
    gridDim.x = blocks, blockDim.x = threads;
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++)
            kernel();
}

static void take(void *to, size_t bytes) {
    if (bytes && fread(to, bytes, 1, stdin) != 1)
        exit(0);
}

static u64 number() {
    u64 value;
    take(&value, sizeof value);
    return value;
}

/* Aligned to 256, like GPU memory. */
struct buffer {
    size_t bytes;
    u8 *base;
    buffer() : bytes(number()) {
        base = static_cast<u8 *>(aligned_alloc(256, (bytes + 511) / 256 * 256));
        memset(base, 0xa5, (bytes + 511) / 256 * 256);
        take(base, bytes);
    }
    ~buffer() {
        for (size_t at = bytes; at < (bytes + 511) / 256 * 256; at++)
            if (base[at] != 0xa5)
                fprintf(stderr, "byte %zu of %zu was written\n", at, bytes), abort();
        free(base);
    }
    template <class T> T *as() { return reinterpret_cast<T *>(base); }
    void give() { fwrite(base, 1, bytes, stdout); }
};

int main() {
    for (;;) {
        const u64 kind = number(), blocks = number(), threads = number();
        if (kind == 0) {
            const u64 stride = number(), granules = number(), granule = number(), form = number();
            buffer frames, counts, block, list;
            grid(blocks, threads, [&] {
                linerate_place(frames.base, stride, counts.as<u32>(), granules, granule, block.base, list.as<entry>(),
                               list.bytes / sizeof(entry), form);
            });
            frames.give(), counts.give();
        } else {
            const u64 granules = number(), granule = number(), length = number(), rows = number();
            buffer counts, data, tables, powers, results;
            grid(blocks, threads, [&] {
                linerate_examine(counts.as<u32>(), granules, granule, length, data.base, data.bytes, rows, tables.as<u32>(),
                                 powers.as<u32>(), results.as<u32>());
            });
            buffer found;
            grid(blocks, threads, [&] { linerate_report(results.as<u32>(), results.bytes / 4, found.as<u32>()); });
            counts.give(), results.give(), found.give();
        }
        fflush(stdout);
    }
}
