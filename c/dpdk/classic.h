/* The copy of the benchmark baseline. */
#ifndef CLASSIC_H
#define CLASSIC_H

#include "plugin.h"

enum { MOST_PORTS = 16, RECORD = 16 };

/* Position of the next frame. */
struct output {
    size_t at;
    uint32_t frames;
};

static inline void copy_out(const struct linerate_dpdk_classic *asked, struct output *output, const struct rte_mbuf *m, uint64_t time)
{
    const uint32_t len = m->pkt_len;
    uint32_t header[4] = { (uint32_t)(time / 1000000000), (uint32_t)(time % 1000000000), len, len };

    if (output->frames == asked->most || output->at + RECORD + len + LINERATE_DPDK_TAIL > asked->bytes)
        *output = (struct output){ 0 };
    memcpy(asked->base + output->at, header, RECORD);
    memcpy(asked->base + output->at + RECORD, rte_pktmbuf_mtod(m, const void *), m->data_len);
    asked->descs[output->frames++] = (struct linerate_dpdk_desc){
        .time = time,
        .offset = (uint32_t)output->at + RECORD,
        .captured = len,
        .wire = len,
        .l3 = NO_LAYER,
        .l4 = NO_LAYER,
    };
    output->at += RECORD + len;
}

/* Runs each step in a thread. Returns the number of copied frames. */
uint64_t by_steps(struct linerate_dpdk_classic *asked);

#endif
