/* Benchmark baseline: bursts of buffers from several ports, merged by time, each frame copied from its buffer. */
#include "classic.h"

#include <rte_cycles.h>
#include <rte_prefetch.h>

struct lane {
    struct rte_mbuf *mbufs[BURST];
    uint32_t count, next;
    uint64_t time; /* time of the whole burst */
};

static uint64_t by_one_thread(const struct linerate_dpdk_classic *asked)
{
    struct lane lanes[MOST_PORTS] = { 0 };
    const uint32_t count = RTE_MIN(asked->count, (uint32_t)MOST_PORTS);
    struct output output = { 0 };
    uint64_t done = 0;

    enlist();
    while (done < asked->frames) {
        struct lane *first = NULL;

        for (uint32_t i = 0; i < count; i++) {
            struct lane *lane = &lanes[i];

            if (lane->next == lane->count) {
                rte_pktmbuf_free_bulk(lane->mbufs, lane->count);
                lane->next = 0;
                lane->count = rte_eth_rx_burst(asked->ports[i]->id, 0, lane->mbufs, BURST);
                lane->time = rte_rdtsc();
            }
            if (lane->next < lane->count && (first == NULL || lane->time < first->time))
                first = lane;
        }
        if (first == NULL)
            continue;
        if (first->next + 4 < first->count)
            rte_prefetch0(rte_pktmbuf_mtod(first->mbufs[first->next + 4], void *));
        if (asked->most > 0)
            copy_out(asked, &output, first->mbufs[first->next], first->time);
        first->next++;
        done++;
    }
    for (uint32_t i = 0; i < count; i++)
        rte_pktmbuf_free_bulk(lanes[i].mbufs, lanes[i].count);
    return done;
}

uint64_t classic(struct linerate_dpdk_classic *asked)
{
    return asked->threads > 0 ? by_steps(asked) : by_one_thread(asked);
}
