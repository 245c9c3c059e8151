/* GPU kernels for frames. Each has the same results as `cpu.rs`, byte for byte, and is compared with it.
 *
 * `scripts/kernels` compiles this with NVRTC into kernels.ptx, which is part of the program. The test `kernels` compiles it as C++ and
 * runs the threads of a grid one after another, so no thread waits for others: no barrier, no shuffle, no shared memory. */

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

/* The destination of bytes of a block: `Entry` of crates/transport/src/frames/remote.rs. */
struct entry {
    u64 at;
    u32 from;
    u32 len;
    u32 frame;
};

/* Conversion of bytes: `Form`; NOTHING only counts them as present. */
enum { RAW = 0, INT8 = 1, INT16 = 2, INT16_BIG = 3, NOTHING = 4 };

#define LANES 32u
#define POLYNOMIAL 0x82f63b78u

/* Copies by words of the destination: source words are read aligned, and shifted. Up to three bytes before and after the source are
 * read too, from the same words. */
static __device__ void copy(u8 *to, const u8 *from, u32 len, u32 lane) {
    u32 head = (4u - ((u32)(u64)to & 3u)) & 3u;
    if (head > len)
        head = len;
    if (lane < head)
        to[lane] = from[lane];
    to += head;
    from += head;
    len -= head;
    const u32 words = len / 4u, shift = ((u32)(u64)from & 3u) * 8u;
    const u32 *source = (const u32 *)(from - shift / 8u);
    u32 *target = (u32 *)to;
    for (u32 word = lane; word < words; word += LANES) {
        const u32 low = source[word];
        target[word] = shift ? (low >> shift) | (source[word + 1u] << (32u - shift)) : low;
    }
    const u32 done = words * 4u;
    if (lane < len - done)
        to[done + lane] = from[done + lane];
}

/* The part of a number that a byte contributes: `Form::part`. */
static __device__ float part(u32 form, u64 at, u8 byte) {
    const int is_low = form == INT8 || (at & 1u) == (form == INT16_BIG ? 1u : 0u);
    if (form == INT8)
        return (float)(signed char)byte;
    return is_low ? (float)byte : (float)(signed char)byte * 256.0f;
}

/* Samples of two bytes: two bytes of one piece are one store, a single byte is added to the part from the other piece. */
static __device__ void convert(float *to, const u8 *from, u32 form, u64 at, u32 len, u32 lane) {
    for (u32 index = lane; index < len; index += LANES) {
        const u64 place = at + index;
        const float own = part(form, place, from[index]);
        if (form == INT8)
            to[place] = own;
        else if ((place & 1u) == 0u && index + 1u < len)
            to[place / 2u] = own + part(form, place + 1u, from[index + 1u]);
        else if ((place & 1u) == 0u || index == 0u)
            atomicAdd(&to[place / 2u], own);
    }
}

/* Places bytes of a block, and counts them for each part of their frame; a warp per entry. */
extern "C" __global__ void linerate_place(
    u8 *frames, u64 stride, u32 *counts, u32 granules, u32 granule, const u8 *block, const struct entry *list, u32 entries, u32 form) {
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x, lane = thread % LANES;
    const u32 warps = gridDim.x * blockDim.x / LANES;
    for (u32 index = thread / LANES; index < entries; index += warps) {
        const struct entry one = list[index];
        u8 *frame = frames + (u64)one.frame * stride;
        if (form == RAW)
            copy(frame + one.at, block + one.from, one.len, lane);
        else if (form != NOTHING)
            convert((float *)frame, block + one.from, form, one.at, one.len, lane);
        if (one.len == 0u)
            continue;
        const u32 first = (u32)(one.at / granule), last = (u32)((one.at + one.len - 1u) / granule);
        for (u32 which = first + lane; which <= last; which += LANES) {
            const u64 begin = (u64)which * granule, end = begin + granule, stop = one.at + one.len;
            const u64 from = begin > one.at ? begin : one.at, to = end < stop ? end : stop;
            atomicAdd(&counts[(u64)one.frame * granules + which], (u32)(to - from));
        }
    }
}

/* Sets a bit for each complete part of a frame of `len` bytes, in words that must be zero before; resets the counts. */
static __device__ void presence(u32 *counts, u32 granules, u32 granule, u64 len, u32 *words, u32 thread, u32 threads) {
    for (u32 which = thread; which < granules; which += threads) {
        const u64 begin = (u64)which * granule;
        const u64 rest = begin < len ? len - begin : 0u;
        const u32 whole = rest < granule ? (u32)rest : granule;
        if (whole > 0u && counts[which] == whole)
            atomicOr(&words[which / 32u], 1u << which % 32u);
        counts[which] = 0u;
    }
}

/* The product of two polynomials, bits reversed, modulo that of CRC-32C (like zlib's crc32_combine). */
static __device__ u32 times(u32 one, u32 other) {
    u32 product = 0;
    for (u32 bit = 0x80000000u; bit; bit >>= 1) {
        if (one & bit)
            product ^= other;
        other = (other >> 1) ^ (other & 1u ? POLYNOMIAL : 0u);
    }
    return product;
}

/* `one` times x to the power of eight times `bytes`; powers[16 * k + digit] is that of digit * 16^k bytes. */
static __device__ u32 further(const u32 *powers, u64 bytes, u32 one) {
    for (u32 at = 0; bytes; at += 16u, bytes >>= 4)
        if (bytes & 15u)
            one = times(powers[at + (u32)(bytes & 15u)], one);
    return one;
}

/* The remainder of `bytes` bytes, with initial value 0, into *sum, which must be zero before: a warp per `rows` lines of 128 bytes, a word
 * of each line per lane; the last warp does the rest below a line. tables[k][b] is byte k of a word, 128 bytes later. */
static __device__ void remainder(
    const u8 *data, u64 bytes, u32 rows, const u32 *tables, const u32 *powers, u32 *sum, u32 thread, u32 threads) {
    const u64 lines = bytes / 128u, first = (u64)(thread / LANES) * rows;
    const u32 back = threads - 1u - thread;
    for (u64 at = lines * 128u + back; back < LANES && at < bytes; at += LANES) {
        u32 one = data[at];
        for (u32 bit = 0; bit < 8u; bit++)
            one = (one >> 1) ^ (one & 1u ? POLYNOMIAL : 0u);
        atomicXor(sum, further(powers, bytes - 1u - at, one));
    }
    if (first >= lines)
        return;
    const u64 last = first + rows < lines ? first + rows : lines;
    const u32 *words = (const u32 *)data + thread % LANES;
    u32 own = 0;
    for (u64 line = first; line < last; line++) {
        own = tables[own & 255u] ^ tables[256u + (own >> 8 & 255u)] ^ tables[512u + (own >> 16 & 255u)] ^ tables[768u + (own >> 24)];
        own ^= words[line * LANES];
    }
    /* From the end of this lane's last word to the end of the frame, plus the four bytes of the word itself. */
    atomicXor(sum, further(powers, bytes - last * 128u + 128u - 4u * (thread % LANES), own));
}

/* The results of a frame, into words that must be zero before: its remainder, and from the third word on the bitmap of its parts. `len`
 * bytes of a stream are `bytes` bytes on the device. */
extern "C" __global__ void linerate_examine(
    u32 *counts, u32 granules, u32 granule, u64 len, const u8 *data, u64 bytes, u32 rows, const u32 *tables, const u32 *powers, u32 *results) {
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    presence(counts, granules, granule, len, results + 2, thread, threads);
    remainder(data, bytes, rows, tables, powers, results, thread, threads);
}

/* Copies results to host memory, and zeroes them. */
extern "C" __global__ void linerate_report(u32 *results, u32 words, u32 *host) {
    for (u32 word = blockIdx.x * blockDim.x + threadIdx.x; word < words; word += gridDim.x * blockDim.x) {
        host[word] = results[word];
        results[word] = 0u;
    }
}
