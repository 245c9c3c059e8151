/* Benchmark baseline with a thread per step, as DPDK programs divide work among cores. One receives from all ports, one
 * merges by time, one copies each frame from its buffer to shared memory. DPDK rings connect them. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "classic.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_prefetch.h>
#include <rte_ring_elem.h>

enum { STEPS = 3, UNDER_WAY = 1024 };

/* A buffer and the time when it was read. */
struct item {
    struct rte_mbuf *mbuf;
    uint64_t time;
};

/* Items taken from a ring. */
struct head {
    struct item items[BURST];
    uint32_t count, next;
};

struct steps {
    const struct linerate_dpdk_classic *asked;
    uint32_t count;
    struct rte_ring *lanes[MOST_PORTS], *merged;
    struct head heads[MOST_PORTS];
    atomic_int is_received, is_merged;
    struct linerate_dpdk_classic memory; /* destination of frames */
    uint64_t copied, used[STEPS];
};

static uint64_t cpu_time(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Waits for input or room. With a core of its own a thread would poll; the wait is not counted as CPU time. */
static void nap(uint64_t *used)
{
    const uint64_t began = cpu_time();

    nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
    *used -= cpu_time() - began;
}

static void *receive_all(void *with)
{
    struct steps *all = with;
    struct rte_mbuf *mbufs[BURST];
    struct item items[BURST];
    uint64_t done = 0;

    enlist();
    all->used[0] -= cpu_time();
    while (done < all->asked->frames) {
        const uint64_t before = done;

        for (uint32_t i = 0; i < all->count; i++) {
            uint16_t got;
            uint64_t now;

            if (rte_ring_free_count(all->lanes[i]) < BURST)
                continue;
            got = rte_eth_rx_burst(all->asked->ports[i]->id, 0, mbufs, BURST);
            now = rte_rdtsc();
            for (uint16_t j = 0; j < got; j++)
                items[j] = (struct item){ mbufs[j], now };
            done += rte_ring_sp_enqueue_burst_elem(all->lanes[i], items, sizeof *items, got, NULL);
        }
        if (done == before)
            nap(&all->used[0]);
    }
    all->used[0] += cpu_time();
    atomic_store(&all->is_received, 1);
    return NULL;
}

/* Loads items of each lane that has not ended: the merge needs one of each. Returns 0 if one has none yet. */
static int refill(struct steps *all)
{
    for (uint32_t i = 0; i < all->count; i++) {
        const int is_over = atomic_load_explicit(&all->is_received, memory_order_acquire);
        struct head *head = &all->heads[i];

        if (head->next < head->count)
            continue;
        head->next = 0;
        head->count = rte_ring_sc_dequeue_burst_elem(all->lanes[i], head->items, sizeof *head->items, BURST, NULL);
        if (head->count == 0 && !is_over)
            return 0;
    }
    return 1;
}

static void *merge_all(void *with)
{
    struct steps *all = with;
    struct item out[BURST];
    int is_over = 0;

    all->used[1] -= cpu_time();
    while (!is_over) {
        uint32_t count = 0;

        while (count < BURST && refill(all)) {
            struct head *first = NULL;

            for (uint32_t i = 0; i < all->count; i++) {
                struct head *head = &all->heads[i];

                if (head->next < head->count && (first == NULL || head->items[head->next].time < first->items[first->next].time))
                    first = head;
            }
            is_over = first == NULL;
            if (is_over)
                break;
            out[count++] = first->items[first->next++];
        }
        if (count == 0 && !is_over)
            nap(&all->used[1]);
        while (count > 0 && rte_ring_sp_enqueue_bulk_elem(all->merged, out, sizeof *out, count, NULL) == 0)
            nap(&all->used[1]);
    }
    all->used[1] += cpu_time();
    atomic_store(&all->is_merged, 1);
    return NULL;
}

static void *copy_all(void *with)
{
    struct steps *all = with;
    struct output output = { 0 };
    struct rte_mbuf *mbufs[BURST];
    struct item items[BURST];

    enlist();
    all->used[2] -= cpu_time();
    for (;;) {
        const int is_over = atomic_load_explicit(&all->is_merged, memory_order_acquire);
        const uint32_t count = rte_ring_sc_dequeue_burst_elem(all->merged, items, sizeof *items, BURST, NULL);

        if (count == 0 && is_over)
            break;
        if (count == 0)
            nap(&all->used[2]);
        for (uint32_t i = 0; i < count; i++) {
            if (i + 4 < count)
                rte_prefetch0(rte_pktmbuf_mtod(items[i + 4].mbuf, void *));
            copy_out(&all->memory, &output, items[i].mbuf, items[i].time);
            mbufs[i] = items[i].mbuf;
        }
        rte_pktmbuf_free_bulk(mbufs, count);
        all->copied += count;
    }
    all->used[2] += cpu_time();
    return NULL;
}

/* Creates the rings and the shared memory; returns 0 if memory is insufficient. */
static int make(struct steps *all, size_t descs)
{
    static unsigned int made;
    const int fd = memfd_create("linerate-classic", MFD_CLOEXEC);
    char name[RTE_RING_NAMESIZE];
    void *memory = MAP_FAILED;

    if (fd >= 0 && ftruncate(fd, (off_t)(descs + all->asked->bytes)) == 0)
        memory = mmap(NULL, descs + all->asked->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (fd >= 0)
        close(fd);
    if (memory == MAP_FAILED)
        return 0;
    all->memory = *all->asked;
    all->memory.descs = memory;
    all->memory.base = (uint8_t *)memory + descs;
    for (uint32_t i = 0; i <= all->count; i++) {
        struct rte_ring **ring = i < all->count ? &all->lanes[i] : &all->merged;

        snprintf(name, sizeof name, "linerate-step%u", __atomic_fetch_add(&made, 1, __ATOMIC_RELAXED));
        *ring = rte_ring_create_elem(name, sizeof(struct item), UNDER_WAY, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
        if (*ring == NULL)
            return 0;
    }
    return 1;
}

uint64_t by_steps(struct linerate_dpdk_classic *asked)
{
    static void *(*const does[STEPS])(void *) = { receive_all, merge_all, copy_all };
    const size_t descs = RTE_ALIGN((size_t)asked->most * sizeof *asked->descs, 4096);
    struct steps *all = calloc(1, sizeof *all);
    pthread_t threads[STEPS];
    uint64_t copied = 0;
    int started = 0;

    if (all == NULL)
        return 0;
    all->asked = asked;
    all->count = RTE_MIN(asked->count, (uint32_t)MOST_PORTS);
    if (make(all, descs)) {
        /* The last step is started first. If a step cannot be started, the next one must see its end. */
        while (started < STEPS && pthread_create(&threads[started], NULL, does[STEPS - 1 - started], all) == 0)
            started++;
        if (started < 2)
            atomic_store(&all->is_merged, 1);
        if (started < STEPS)
            atomic_store(&all->is_received, 1);
        for (int i = 0; i < started; i++)
            pthread_join(threads[i], NULL);
        copied = started == STEPS ? all->copied : 0;
        memcpy(asked->cpu_ns, all->used, sizeof asked->cpu_ns);
    }
    for (uint32_t i = 0; i < all->count; i++)
        rte_ring_free(all->lanes[i]);
    rte_ring_free(all->merged);
    if (all->memory.descs != NULL)
        munmap(all->memory.descs, descs + asked->bytes);
    free(all);
    return copied;
}
