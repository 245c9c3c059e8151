/* Opens ports, reads their counters, closes them. */
#include "plugin.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <rte_cycles.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ring.h>

enum {
    USUAL_DEPTH = 1024,
    BUFFER = RTE_MBUF_DEFAULT_DATAROOM,
    CACHE = 256,
    USUAL_MTU = 1500,
    /* Ethernet header and two VLAN tags. */
    HEADER = 14 + 8,
    /* Wait in milliseconds for accepted frames to be sent: maximum while the driver reports them as pending, minimum since the
     * last send if it does not. */
    BUSY_MS = 1000,
    SILENT_MS = 10,
};

/* Determines the number of queues of a kind. Returns 0, or -1 with a reason. */
static int queues(const char *kind, uint16_t asked, uint16_t other, uint16_t most, uint16_t *count, char *why)
{
    if (asked > most && most == 0)
        return because(why, "the driver has no %s queues", kind);
    if (asked > most)
        return because(why, "too many %s queues: the driver supports at most %u; name fewer after the @", kind, most);
    *count = asked > 0 ? asked : RTE_MIN(other, most);
    return 0;
}

/* Selects the source of time stamps. Returns 0, or -1 with a reason. */
static int choose_stamps(struct linerate_dpdk_port *port, const struct rte_eth_dev_info *device, uint32_t asked,
                         uint64_t *offloads, char *why)
{
    const int knows_utc = strcmp(device->driver_name, "net_pcap") == 0;
    uint64_t ticks;

    port->stamps = LINERATE_DPDK_BY_POLL;
    if (asked == LINERATE_DPDK_BY_POLL || (asked > LINERATE_DPDK_BY_CARD && !knows_utc))
        return 0;
    if (rte_mbuf_dyn_rx_timestamp_register(&port->stamp_field, &port->stamp_flag) != 0)
        return because(why, "no room for time stamps in DPDK buffers: %s", rte_strerror(rte_errno));
    if (knows_utc) {
        port->stamps = LINERATE_DPDK_BY_DRIVER;
        return 0;
    }
    if (device->rx_offload_capa & RTE_ETH_RX_OFFLOAD_TIMESTAMP && rte_eth_read_clock(port->id, &ticks) == 0) {
        port->stamps = LINERATE_DPDK_BY_CARD;
        *offloads |= RTE_ETH_RX_OFFLOAD_TIMESTAMP;
        return 0;
    }
    return because(why, "the driver (%s) has no time stamps, or no clock to convert them; remove stamp=",
                   device->driver_name);
}

/* Determines the duration of a tick of the card from its clock and the host's. */
static int compare_clocks(struct linerate_dpdk_port *port, char *why)
{
    const struct timespec pause = { .tv_nsec = 20000000 };
    uint64_t ticks, utc;

    if (port->stamps != LINERATE_DPDK_BY_CARD)
        return 0;
    if (rte_eth_read_clock(port->id, &port->ticks) != 0)
        return because(why, "reading the clock of the card failed");
    port->utc = utc_now();
    nanosleep(&pause, NULL);
    if (rte_eth_read_clock(port->id, &ticks) != 0)
        return because(why, "reading the clock of the card failed");
    utc = utc_now();
    if (ticks <= port->ticks || utc <= port->utc)
        return because(why, "the clock of the card does not advance");
    for (uint16_t i = 0; i < port->rx_queues; i++) {
        struct rx *rx = &port->rx[i];

        rx->ticks = ticks;
        rx->utc = rx->anchored = utc;
        rx->ns_per_tick = (double)(utc - port->utc) / (double)(ticks - port->ticks);
    }
    return 0;
}

/* Writes UDP packets of 256 flows to the buffers, for devices that generate frames without setting their bytes. */
static void paint(struct rte_mempool *pool, void *to, void *object, unsigned int index)
{
    static const uint8_t packet[] = {
        0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2, 0x08, 0, /* Ethernet */
        0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0x26, 0xbd, 10, 0, 0, 1, 10, 0, 0, 2, /* IPv4 */
        0x40, 0, 0, 53, 0, 26, 0, 0, /* UDP */
    };
    uint8_t *frame = (uint8_t *)((struct rte_mbuf *)object)->buf_addr + RTE_PKTMBUF_HEADROOM;

    RTE_SET_USED(pool);
    RTE_SET_USED(to);
    memcpy(frame, packet, sizeof packet);
    frame[35] = (uint8_t)index;
}

/* First and last byte of a pool, and the sum of its parts. */
struct span {
    const uint8_t *base, *end;
    size_t bytes;
};

static void span(struct rte_mempool *pool, void *to, struct rte_mempool_memhdr *memory, unsigned int index)
{
    struct span *whole = to;
    const uint8_t *base = memory->addr, *end = base + memory->len;

    RTE_SET_USED(pool);
    whole->base = index == 0 || base < whole->base ? base : whole->base;
    whole->end = end > whole->end ? end : whole->end;
    whole->bytes += memory->len;
}

/* Returns the maximum number of frames that a queue keeps: one take, and all that detach reads. */
static uint32_t kept(uint16_t rx_depth)
{
    return RTE_MAX((uint32_t)rx_depth, (uint32_t)DETACHED) + SHOWN + 2 * BURST;
}

/* Allocates buffers for frames that are read, being sent, and in the caches of two threads per queue. */
static int make_pool(struct linerate_dpdk_port *port, uint16_t rx_depth, uint16_t tx_depth, int is_fifo, int node,
                     char *why)
{
    static unsigned int made;
    /* Frames in the ring of the driver, and those that detach reads while the driver refills the ring. */
    const uint32_t per_rx = rx_depth + kept(rx_depth) + 2 * BURST + 2 * CACHE, per_tx = tx_depth + 2 * BURST + 2 * CACHE;
    /* Internal rings of a driver hold frames too. */
    const uint32_t count = port->rx_queues * per_rx + port->tx_queues * per_tx + 2048;
    struct span whole = { 0 };
    char name[32];

    snprintf(name, sizeof name, "linerate%u", __atomic_fetch_add(&made, 1, __ATOMIC_RELAXED));
    port->pool = rte_pktmbuf_pool_create(name, count, is_fifo ? 0 : CACHE, 0, BUFFER + RTE_PKTMBUF_HEADROOM, node);
    port->room = BUFFER;
    if (port->pool == NULL)
        return because(why, "out of memory for %u buffers of 2 KiB (%s); increase memory=", count,
                       rte_strerror(rte_errno));
    if (is_fifo)
        rte_mempool_obj_iter(port->pool, paint, NULL);
    rte_mempool_mem_iter(port->pool, span, &whole);
    /* Offsets of frames have 32 bits. */
    if (whole.bytes == (size_t)(whole.end - whole.base) && whole.bytes <= UINT32_MAX) {
        port->base = whole.base;
        port->bytes = whole.bytes;
    }
    return 0;
}

static int make_queues(struct linerate_dpdk_port *port, uint16_t rx_depth, uint16_t tx_depth, int node, char *why)
{
    int error = 0;
    uint16_t i;

    port->rx = aligned_alloc(RTE_CACHE_LINE_SIZE, (port->rx_queues + 1u) * sizeof *port->rx);
    port->tx = aligned_alloc(RTE_CACHE_LINE_SIZE, (port->tx_queues + 1u) * sizeof *port->tx);
    if (port->rx == NULL || port->tx == NULL)
        return because(why, "out of memory for queues");
    memset(port->rx, 0, (port->rx_queues + 1u) * sizeof *port->rx);
    memset(port->tx, 0, (port->tx_queues + 1u) * sizeof *port->tx);
    for (i = 0; i < port->rx_queues; i++) {
        port->rx[i].room = kept(rx_depth);
        port->rx[i].mbufs = calloc(port->rx[i].room, sizeof *port->rx[i].mbufs);
        if (port->rx[i].mbufs == NULL)
            return because(why, "out of memory for queues");
        error = rte_eth_rx_queue_setup(port->id, i, rx_depth, (unsigned int)node, NULL, port->pool);
        if (error != 0)
            return because(why, "setting up receive queue %u failed: %s", i, rte_strerror(-error));
    }
    for (i = 0; i < port->tx_queues; i++) {
        error = rte_eth_tx_queue_setup(port->id, i, tx_depth, (unsigned int)node, NULL);
        if (error != 0)
            return because(why, "setting up send queue %u failed: %s", i, rte_strerror(-error));
    }
    return 0;
}

static int set_up(struct linerate_dpdk_port *port, const struct linerate_dpdk_open *asked,
                  struct linerate_dpdk_info *info, char *why)
{
    const uint32_t mtu = asked->mtu > 0 ? asked->mtu : USUAL_MTU;
    struct rte_eth_conf conf = { .rxmode.mtu = mtu };
    struct rte_eth_dev_info device;
    uint16_t rx_depth = (uint16_t)(asked->depth > 0 ? RTE_MIN(asked->depth, 32768u) : USUAL_DEPTH), tx_depth = rx_depth;
    int node = rte_eth_dev_socket_id(port->id), error;

    if (rte_eth_dev_info_get(port->id, &device) != 0)
        return because(why, "the driver does not report its capabilities");
    port->device = device.device;
    if (queues("receive", asked->rx_queues, asked->tx_queues, device.max_rx_queues, &port->rx_queues, why) != 0 ||
        queues("send", asked->tx_queues, asked->rx_queues, device.max_tx_queues, &port->tx_queues, why) != 0 ||
        choose_stamps(port, &device, asked->stamps, &conf.rxmode.offloads, why) != 0)
        return -1;
    if (mtu + HEADER > BUFFER)
        conf.rxmode.offloads |= device.rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER;
    conf.txmode.offloads = device.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
    if (port->rx_queues > 1 && device.flow_type_rss_offloads != 0) {
        conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
        conf.rx_adv_conf.rss_conf.rss_hf =
            device.flow_type_rss_offloads & (RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP | RTE_ETH_RSS_TCP);
    }
    error = rte_eth_dev_configure(port->id, port->rx_queues, port->tx_queues, &conf);
    if (error != 0)
        return because(why, "%u receive queues, %u send queues and an MTU of %u are not supported: %s", port->rx_queues,
                       port->tx_queues, mtu, rte_strerror(-error));
    /* This also sets the MTU of a kernel interface, so it is not done for ports that only receive. */
    error = asked->mtu > 0 && asked->tx_queues > 0 ? rte_eth_dev_set_mtu(port->id, (uint16_t)mtu) : 0;
    if (error != 0 && error != -ENOTSUP)
        return because(why, "the driver (%s) cannot set an MTU of %u: %s", device.driver_name, mtu, rte_strerror(-error));
    rte_eth_dev_adjust_nb_rx_tx_desc(port->id, &rx_depth, &tx_depth);
    port->tx_depth = tx_depth;
    if (make_pool(port, rx_depth, tx_depth, asked->fifo != 0, node, why) != 0 ||
        make_queues(port, rx_depth, tx_depth, node, why) != 0)
        return -1;
    port->longest = mtu + HEADER;
    if (!(conf.txmode.offloads & RTE_ETH_TX_OFFLOAD_MULTI_SEGS))
        port->longest = RTE_MIN(port->longest, port->room);
    if (asked->mtu > 0 && asked->tx_queues > 0 && port->longest < mtu + HEADER)
        return because(why, "the driver (%s) sends only frames of one buffer; use mtu=%u or less", device.driver_name,
                       port->room - HEADER);
    error = rte_eth_dev_start(port->id);
    if (error != 0)
        return because(why, "starting the port failed: %s", rte_strerror(-error));
    if (asked->promiscuous)
        rte_eth_promiscuous_enable(port->id);
    info->rx_queues = port->rx_queues;
    info->tx_queues = port->tx_queues;
    info->longest = port->longest;
    info->stamps = port->stamps;
    info->promiscuous = rte_eth_promiscuous_get(port->id) == 1;
    info->node = node;
    snprintf(info->driver, sizeof info->driver, "%s", device.driver_name);
    return compare_clocks(port, why);
}

/* Frees the rings, and their names, of unused queues: the ring driver does not. */
static void free_rings(const struct linerate_dpdk_port *port)
{
    char name[LINERATE_DPDK_NAME + 16];

    for (unsigned int i = 0; i < RTE_MAX_QUEUES_PER_PORT && strncmp(port->name, "net_ring", 8) == 0; i++) {
        snprintf(name, sizeof name, "ETH_RXTX%u_%s", i, port->name);
        rte_ring_free(rte_ring_lookup(name));
    }
}

/* Waits for a limited time until the driver has sent the frames that it accepted: stopping it discards them. */
static void drain(struct linerate_dpdk_port *port)
{
    const struct timespec nap = { .tv_nsec = 100000 };
    const uint64_t ms = rte_get_tsc_hz() / 1000, began = rte_rdtsc();

    for (uint16_t i = 0; port->tx != NULL && i < port->tx_queues; i++) {
        uint64_t least = port->tx[i].last + SILENT_MS * ms, most = began + BUSY_MS * ms;

        while (port->tx[i].last != 0) {
            uint64_t now;
            int status;

            rte_eth_tx_done_cleanup(port->id, i, 0);
            /* Descriptor of the last accepted frame: the one before the next to be used. */
            status = rte_eth_tx_descriptor_status(port->id, i, port->tx_depth - 1);
            now = rte_rdtsc();
            if (now >= most || (now >= least && status != RTE_ETH_TX_DESC_FULL))
                break;
            nanosleep(&nap, NULL);
        }
    }
}

static void shut(struct linerate_dpdk_port *port)
{
    drain(port);
    for (uint16_t i = 0; port->rx != NULL && i < port->rx_queues; i++) {
        if (port->rx[i].mbufs != NULL)
            attach(port, i);
        free(port->rx[i].mbufs);
    }
    for (uint16_t i = 0; port->tx != NULL && i < port->tx_queues; i++)
        rte_pktmbuf_free_bulk(port->tx[i].spare, port->tx[i].spares);
    rte_eth_dev_stop(port->id);
    rte_eth_dev_close(port->id);
    if (port->device != NULL)
        rte_dev_remove(port->device);
    free_rings(port);
    rte_mempool_free(port->pool);
    free(port->rx);
    free(port->tx);
    free(port);
}

/* DPDK can add and remove only one device at a time. */
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;

int open_port(const struct linerate_dpdk_open *asked, struct linerate_dpdk_port **made, struct linerate_dpdk_info *info,
              char *why)
{
    struct linerate_dpdk_port *port = calloc(1, sizeof *port);
    int error;

    if (port == NULL)
        return because(why, "out of memory for a port");
    pthread_mutex_lock(&changing);
    listen_to_dpdk(1);
    snprintf(port->name, sizeof port->name, "%.*s", (int)strcspn(asked->device, ","), asked->device);
    error = rte_dev_probe(asked->device);
    if (error == 0)
        error = rte_eth_dev_get_port_by_name(port->name, &port->id);
    if (error != 0) {
        error = because(why, "DPDK cannot find or open this device (%s); check its name or PCI address", rte_strerror(-error));
        free(port);
    } else if (set_up(port, asked, info, why) != 0) {
        shut(port);
        error = -1;
    } else {
        *made = port;
    }
    listen_to_dpdk(0);
    pthread_mutex_unlock(&changing);
    return error;
}

void close_port(struct linerate_dpdk_port *port)
{
    pthread_mutex_lock(&changing);
    shut(port);
    pthread_mutex_unlock(&changing);
}

void port_stats(struct linerate_dpdk_port *port, struct linerate_dpdk_stats *stats)
{
    struct rte_eth_stats all = { 0 };

    rte_eth_stats_get(port->id, &all);
    *stats = (struct linerate_dpdk_stats){
        .received = all.ipackets,
        .missed = all.imissed,
        .errors = all.ierrors,
        .no_buffer = all.rx_nombuf,
        .sent = all.opackets,
        .send_errors = all.oerrors,
    };
}

uint32_t port_counters(struct linerate_dpdk_port *port, struct linerate_dpdk_counter *counters, uint32_t most)
{
    const int there = rte_eth_xstats_get_names(port->id, NULL, 0);
    struct rte_eth_xstat_name *names;
    struct rte_eth_xstat *values;
    int count = 0;

    if (there <= 0)
        return 0;
    names = calloc((size_t)there, sizeof *names);
    values = calloc((size_t)there, sizeof *values);
    if (names != NULL && values != NULL && rte_eth_xstats_get_names(port->id, names, (unsigned int)there) == there)
        count = rte_eth_xstats_get(port->id, values, (unsigned int)there);
    count = RTE_MIN(RTE_MIN(count, there), (int)most);
    for (int i = 0; i < count; i++) {
        snprintf(counters[i].name, sizeof counters[i].name, "%s", values[i].id < (uint64_t)there ? names[values[i].id].name : "");
        counters[i].value = values[i].value;
    }
    free(names);
    free(values);
    return count > 0 ? (uint32_t)count : 0;
}
