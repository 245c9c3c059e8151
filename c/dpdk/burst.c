/* Receives and sends frames. */
#include "plugin.h"

#include <rte_cycles.h>
#include <rte_prefetch.h>

/* Joins the buffers of a frame; returns its length. */
static uint32_t join(uint8_t *to, const struct rte_mbuf *m, uint32_t most)
{
    uint32_t len = 0;

    for (; m != NULL && len < most; m = m->next) {
        uint32_t part = RTE_MIN((uint32_t)m->data_len, most - len);

        memcpy(to + len, rte_pktmbuf_mtod(m, const void *), part);
        len += part;
    }
    return len;
}

/* Inserts the VLAN tag that a card removed; returns the new length. */
static uint32_t restore_tag(uint8_t *frame, uint32_t len, uint16_t tci, uint32_t most)
{
    const uint8_t tag[4] = { 0x81, 0x00, (uint8_t)(tci >> 8), (uint8_t)tci };

    if (len < 12)
        return len;
    memmove(frame + 16, frame + 12, len - 12);
    memcpy(frame + 12, tag, 4);
    return RTE_MIN(len + 4, most);
}

static uint64_t time_by_card(struct linerate_dpdk_port *port, struct rx *rx, uint64_t ticks, uint64_t now)
{
    uint64_t utc;

    /* Clocks drift: they are compared again after one second. */
    if (now - rx->anchored > 1000000000 && rte_eth_read_clock(port->id, &rx->ticks) == 0) {
        rx->utc = utc_now();
        rx->anchored = now;
        if (rx->ticks != port->ticks && rx->utc > port->utc)
            rx->ns_per_tick = (double)(rx->utc - port->utc) / (double)(rx->ticks - port->ticks);
    }
    utc = rx->utc + (int64_t)((double)(int64_t)(ticks - rx->ticks) * rx->ns_per_tick);
    /* A correction must not set the times of a queue back. */
    return rx->last > utc && rx->last - utc < 1000000 ? rx->last : utc;
}

static inline uint64_t time_of(struct linerate_dpdk_port *port, struct rx *rx, struct rte_mbuf *m,
                               struct linerate_dpdk_take *into)
{
    uint64_t raw;

    if (port->stamps == LINERATE_DPDK_BY_POLL)
        return into->now;
    if (!(m->ol_flags & port->stamp_flag)) {
        into->unstamped++;
        return into->now;
    }
    raw = *RTE_MBUF_DYNFIELD(m, port->stamp_field, rte_mbuf_timestamp_t *);
    if (port->stamps == LINERATE_DPDK_BY_CARD)
        return rx->last = time_by_card(port, rx, raw, into->now);
    /* Current times are below 10^16 in microseconds, and above in nanoseconds. */
    return raw < 10000000000000000ULL ? raw * 1000 : raw;
}

/* Frees the buffers of frames that were presented or copied. */
static void release(struct rx *rx)
{
    if (rx->next > rx->freed)
        rte_pktmbuf_free_bulk(rx->mbufs + rx->freed, rx->next - rx->freed);
    rx->freed = rx->next;
}

/* Returns 1 if a frame can be presented in its buffer. */
static inline int is_in_place(const struct linerate_dpdk_port *port, const struct rte_mbuf *m)
{
    const uintptr_t at = rte_pktmbuf_mtod(m, uintptr_t) - (uintptr_t)port->base;

    return m->nb_segs == 1 && RTE_MBUF_DIRECT(m) && rte_mbuf_refcnt_read(m) == 1 &&
           !(m->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) && at < port->bytes &&
           port->bytes - at >= (size_t)m->data_len + LINERATE_DPDK_TAIL;
}

static inline void show(struct linerate_dpdk_port *port, struct rx *rx, struct rte_mbuf *m, struct linerate_dpdk_take *into)
{
    into->descs[into->frames++] = (struct linerate_dpdk_desc){
        .time = time_of(port, rx, m, into),
        .offset = (uint32_t)(rte_pktmbuf_mtod(m, uintptr_t) - (uintptr_t)port->base),
        .captured = RTE_MIN((uint32_t)m->data_len, into->snap),
        .wire = m->pkt_len,
        .flags = (m->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_GOOD ? CHECKSUM_VALID : 0,
        .l3 = NO_LAYER,
        .l4 = NO_LAYER,
    };
}

/* Copies one frame; returns 0 if the room is insufficient. */
static inline int place(struct linerate_dpdk_port *port, struct rx *rx, struct rte_mbuf *m, uint32_t *at,
                        struct linerate_dpdk_take *into)
{
    const uint32_t tag = m->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED ? 4 : 0;
    const uint32_t most = RTE_MIN(into->snap, (uint32_t)MAX_FRAME);
    uint32_t len = RTE_MIN(m->pkt_len, most);
    uint16_t flags = 0;
    uint8_t *to = into->room + *at;

    if (into->bytes - *at < RTE_ALIGN(len + tag, 64))
        return 0;
    if (m->nb_segs == 1) {
        len = RTE_MIN(len, (uint32_t)m->data_len);
        copy_over(to, m, len);
    } else {
        len = join(to, m, len);
        flags |= JOINED;
        into->joined++;
    }
    if (tag != 0) {
        len = restore_tag(to, len, m->vlan_tci, most);
        flags |= VLAN_RESTORED;
        into->tagged++;
    }
    if ((m->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_GOOD)
        flags |= CHECKSUM_VALID;
    into->descs[into->frames++] = (struct linerate_dpdk_desc){
        .time = time_of(port, rx, m, into),
        .offset = *at,
        .captured = len,
        .wire = m->pkt_len + tag,
        .flags = flags,
        .l3 = NO_LAYER,
        .l4 = NO_LAYER,
    };
    *at += RTE_ALIGN(len, 64);
    return 1;
}

/* Returns 1 if another burst may be read, with the frames so far in place or copied. */
static int has_room(const struct rx *rx, const struct linerate_dpdk_take *into, int in_place, uint32_t at)
{
    return !rx->detached && RTE_MIN(into->most, (uint32_t)SHOWN) - into->frames >= BURST &&
           (in_place ? rx->room - rx->count >= BURST : at < ENOUGH);
}

void take(struct linerate_dpdk_port *port, uint16_t queue, struct linerate_dpdk_take *into)
{
    struct rx *rx = &port->rx[queue];
    uint32_t at = 0;
    int in_place = 0;

    enlist();
    into->frames = 0;
    into->joined = into->tagged = into->unstamped = 0;
    release(rx);
    for (;;) {
        if (rx->next == rx->count) {
            uint32_t got;

            if (!in_place) {
                release(rx);
                rx->next = rx->freed = rx->count = 0;
            }
            if (!has_room(rx, into, in_place, at))
                break;
            got = rte_eth_rx_burst(port->id, queue, rx->mbufs + rx->count, BURST);
            if (got == 0)
                break;
            rx->count += got;
        }
        while (rx->next < rx->count) {
            struct rte_mbuf *m = rx->mbufs[rx->next];
            const int stays = is_in_place(port, m);

            if (into->frames == into->most || (into->frames > 0 && stays != in_place))
                goto full;
            if (stays) {
                show(port, rx, m, into);
            } else {
                if (rx->next + 4 < rx->count)
                    rte_prefetch0(rte_pktmbuf_mtod(rx->mbufs[rx->next + 4], void *));
                if (!place(port, rx, m, &at, into))
                    goto full;
            }
            in_place = stays;
            rx->next++;
        }
    }
full:
    if (!in_place)
        release(rx);
    into->base = in_place ? port->base : into->room;
    into->waiting = rx->count - rx->next;
}

void detach(struct linerate_dpdk_port *port, uint16_t queue)
{
    struct rx *rx = &port->rx[queue];

    enlist();
    /* Presented frames stay. */
    memmove(rx->mbufs, rx->mbufs + rx->freed, (rx->count - rx->freed) * sizeof *rx->mbufs);
    rx->count -= rx->freed;
    rx->next -= rx->freed;
    rx->freed = 0;
    while (!rx->detached && rx->count + BURST <= rx->room) {
        uint16_t got = rte_eth_rx_burst(port->id, queue, rx->mbufs + rx->count, BURST);

        if (got == 0)
            break;
        rx->count += got;
    }
    rx->detached = 1;
}

void attach(struct linerate_dpdk_port *port, uint16_t queue)
{
    struct rx *rx = &port->rx[queue];

    rx->next = rx->count;
    release(rx);
    rx->next = rx->freed = rx->count = 0;
    rx->detached = 0;
}

/* Fills a buffer with a frame, and further ones if it is long; returns 0 if none is free. */
static int fill(struct linerate_dpdk_port *port, struct rte_mbuf *head, const uint8_t *frame, uint32_t len)
{
    uint32_t at = RTE_MIN(len, port->room);
    struct rte_mbuf *last = head;

    head->data_len = (uint16_t)at;
    head->pkt_len = len;
    memcpy(rte_pktmbuf_mtod(head, void *), frame, at);
    while (at < len) {
        struct rte_mbuf *next = rte_pktmbuf_alloc(port->pool);
        uint32_t part = RTE_MIN(len - at, port->room);

        if (next == NULL)
            return 0;
        next->data_len = (uint16_t)part;
        memcpy(rte_pktmbuf_mtod(next, void *), frame + at, part);
        last = last->next = next;
        head->nb_segs++;
        at += part;
    }
    return 1;
}

/* Keeps a buffer that the driver did not accept. */
static void spare(struct tx *tx, struct rte_mbuf *m)
{
    rte_pktmbuf_free(m->next);
    m->next = NULL;
    rte_pktmbuf_reset(m);
    tx->spare[tx->spares++] = m;
}

/* Returns 1 if the driver can send a frame of this length. */
static inline int is_fit(const struct linerate_dpdk_port *port, const struct linerate_dpdk_desc *desc)
{
    return desc->captured >= LEAST_FRAME && desc->captured <= port->longest;
}

void put(struct linerate_dpdk_port *port, uint16_t queue, struct linerate_dpdk_put *out)
{
    struct tx *tx = &port->tx[queue];
    struct rte_mbuf *mbufs[BURST];

    enlist();
    out->done = out->sent = 0;
    out->bytes = out->too_long = out->too_short = 0;
    while (out->done < out->frames) {
        const struct linerate_dpdk_desc *descs = out->descs + out->done;
        uint32_t most = RTE_MIN(out->frames - out->done, (uint32_t)BURST), count = 0, filled = 0, taken;

        if (!is_fit(port, descs)) {
            *(descs->captured < LEAST_FRAME ? &out->too_short : &out->too_long) += 1;
            out->done++;
            continue;
        }
        while (count < most && is_fit(port, &descs[count]))
            count++;
        if (tx->spares < count &&
            rte_pktmbuf_alloc_bulk(port->pool, tx->spare + tx->spares, count - tx->spares) == 0)
            tx->spares = count;
        count = RTE_MIN(count, tx->spares);
        while (filled < count) {
            struct rte_mbuf *m = tx->spare[--tx->spares];

            if (!fill(port, m, out->base + descs[filled].offset, descs[filled].captured)) {
                spare(tx, m);
                break;
            }
            mbufs[filled++] = m;
        }
        taken = filled > 0 ? rte_eth_tx_burst(port->id, queue, mbufs, (uint16_t)filled) : 0;
        for (uint32_t i = 0; i < taken; i++)
            out->bytes += descs[i].captured;
        for (uint32_t i = taken; i < filled; i++)
            spare(tx, mbufs[i]);
        if (taken > 0)
            tx->last = rte_rdtsc();
        out->sent += taken;
        out->done += taken;
        /* The queue is full, or no buffer is free until some frames have been sent. */
        if (taken < count || count == 0)
            return;
    }
}
