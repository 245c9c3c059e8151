/* SPDX-License-Identifier: GPL-2.0-only */
/* daq_linerate.so: a module for libdaq 3 (Snort 3) that takes frames from block rings and capture files. Inputs:
 *     shm:NAME      passive ring (linerate capture eth0 --share NAME); with -z N each instance gets a share of the flows
 *     inline:NAME   ring with verdicts (linerate inline A B --share NAME); -z N as above
 *     file:PATH     pcap or pcapng; with -r only PATH, or - for standard input
 * Messages are in a pool of the instance, so that writes by the engine affect no other reader. */
#define _GNU_SOURCE
#include "pool.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

struct daq_base daq_base;

static const struct daq_variable variables[] = {
    { "mode", "lossless: the writer waits for this reader; needs capture --lossless-readers; default: lossy",
      DAQ_VAR_REQUIRES_ARGUMENT },
    { "name", "name of this reader in reports and for linerate inline --engine (default: program name)",
      DAQ_VAR_REQUIRES_ARGUMENT },
    { "quota", "maximum number of blocks that a lossy reader holds (default: chosen by the writer)", DAQ_VAR_REQUIRES_ARGUMENT },
    { "spin_us", "microseconds to poll before sleeping (default: 0)", DAQ_VAR_REQUIRES_ARGUMENT },
    { "trust", "attach even if the writer is neither root nor this user", DAQ_VAR_FORBIDS_ARGUMENT },
};

int fails(const struct instance *instance, const char *format, ...) {
    char text[WHY];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    daq_base.set_errbuf(instance->handle, "linerate: %s", text);
    return DAQ_ERROR;
}

static int load(const struct daq_base *base) {
    if (base->api_version != DAQ_BASE_API || base->api_size != sizeof *base)
        return DAQ_ERROR;
    daq_base = *base;
    return DAQ_SUCCESS;
}

static int unload(void) {
    daq_base = (struct daq_base){ 0 };
    return DAQ_SUCCESS;
}

static int get_variables(const struct daq_variable **table) {
    *table = variables;
    return sizeof variables / sizeof *variables;
}

/* Reads a number; returns 0, or an error after reporting it. */
static int read_number(const struct instance *instance, const char *key, const char *value, uint32_t most, uint32_t *into) {
    char *end;
    errno = 0;
    const unsigned long number = strtoul(value, &end, 10);
    if (errno != 0 || *value < '0' || *value > '9' || *end != 0 || number > most)
        return fails(instance, "variable %s=%.40s: expected a number from 0 to %u", key, value, most);
    *into = (uint32_t)number;
    return DAQ_SUCCESS;
}

static int read_variables(struct instance *instance, void *config) {
    const char *key = NULL, *value = NULL;
    snprintf(instance->name, sizeof instance->name, "%s", program_invocation_short_name);
    for (daq_base.first_variable(config, &key, &value); key; daq_base.next_variable(config, &key, &value)) {
        int result = DAQ_SUCCESS;
        if (strcmp(key, "trust") == 0)
            instance->trust = 1;
        else if (!value)
            result = fails(instance, "variable %.40s needs a value", key);
        else if (strcmp(key, "mode") == 0 && (strcmp(value, "lossless") == 0 || strcmp(value, "lossy") == 0))
            instance->lossless = strcmp(value, "lossless") == 0;
        else if (strcmp(key, "name") == 0 && strlen(value) < sizeof instance->name)
            strcpy(instance->name, value);
        else if (strcmp(key, "quota") == 0)
            result = read_number(instance, key, value, LINERATE_MOST_SLOTS, &instance->quota);
        else if (strcmp(key, "spin_us") == 0)
            result = read_number(instance, key, value, 1000000, &instance->spin_us);
        else
            result = fails(instance, "variable %.40s=%.40s: unknown or invalid; expected mode=lossless or lossy, name (up to "
                           "63 bytes), quota, spin_us or trust", key, value);
        if (result != DAQ_SUCCESS)
            return result;
    }
    if (instance->kind == SOURCE_FILE && (instance->lossless || instance->quota || instance->trust || instance->spin_us))
        return fails(instance, "%.120s: mode, quota, spin_us and trust apply to rings, not to files; remove them", instance->input);
    if (instance->kind == SOURCE_INLINE && (instance->lossless || instance->quota))
        return fails(instance, "%.120s: mode and quota apply to passive rings (shm:NAME) only; remove them", instance->input);
    return DAQ_SUCCESS;
}

/* Parses the input; checks that it matches the mode of the engine. */
static int read_input(struct instance *instance, const char *input) {
    const int is_ring = strncmp(input, "shm:", 4) == 0, is_inline = strncmp(input, "inline:", 7) == 0;
    if (!(instance->input = strdup(input)))
        return DAQ_ERROR_NOMEM;
    instance->source = strchr(instance->input, ':') ? strchr(instance->input, ':') + 1 : instance->input;
    instance->kind = is_inline ? SOURCE_INLINE : is_ring ? SOURCE_RING : SOURCE_FILE;
    if (instance->mode == DAQ_MODE_READ_FILE || strncmp(input, "file:", 5) == 0) {
        instance->kind = SOURCE_FILE;
        if (strncmp(input, "file:", 5) != 0)
            instance->source = instance->input;
        if (instance->mode == DAQ_MODE_INLINE)
            return fails(instance, "%.120s: a file cannot be used inline; remove -Q or -M inline", input);
        if (instance->mode == DAQ_MODE_PASSIVE && instance->shards > 1)
            return fails(instance, "%.100s: each instance would read the whole file; share it (linerate capture -r FILE --share "
                         "NAME) and use shm:NAME", input);
        return DAQ_SUCCESS;
    }
    if (!is_ring && !is_inline)
        return fails(instance, "input \"%.80s\": expected shm:NAME, inline:NAME or file:PATH; for an interface, run "
                     "linerate capture %.20s --share NAME", input, input);
    if (strchr(instance->source, '?'))
        return fails(instance, "input \"%.80s\": options after ? are not supported; use variables (--daq-var mode=lossless, -C "
                     "mode=lossless)", input);
    if (*instance->source == 0 || strlen(instance->source) > 90)
        return fails(instance, "input \"%.100s\": invalid ring name; expected 1 to 90 bytes", input);
    if (is_inline && instance->mode != DAQ_MODE_INLINE)
        return fails(instance, "%.120s: needs inline mode; run with -Q or -M inline, or use shm:NAME", input);
    if (is_ring && instance->mode == DAQ_MODE_INLINE)
        return fails(instance, "%.80s: a passive ring cannot be used inline; use inline:NAME (linerate inline A B --share NAME)", input);
    return DAQ_SUCCESS;
}

static void destroy(void *handle) {
    struct instance *instance = handle;
    ring_stop(instance);
    file_close(instance->file);
    filter_free(instance->filter);
    pool_destroy(&instance->pool);
    if (instance->wake >= 0)
        close(instance->wake);
    free(instance->input);
    free(instance);
}

static int instantiate(void *config, void *handle, void **made) {
    struct instance *instance = calloc(1, sizeof *instance);
    if (!instance) {
        daq_base.set_errbuf(handle, "linerate: out of memory for an instance");
        return DAQ_ERROR_NOMEM;
    }
    const int snaplen = daq_base.snaplen(config);
    const unsigned timeout = daq_base.timeout(config), total = daq_base.total_instances(config);
    const unsigned number = daq_base.instance_id(config);
    instance->handle = handle;
    instance->link = 1;
    instance->mode = daq_base.mode(config);
    instance->snaplen = snaplen > 0 && snaplen < LINERATE_MAX_FRAME ? (uint32_t)snaplen : LINERATE_MAX_FRAME;
    instance->timeout = timeout == 0 || timeout > INT32_MAX ? -1 : (int)timeout;
    /* A single instance has number 0 of 0; several are numbered from 1. */
    instance->shards = total;
    instance->shard = number > 0 ? number - 1 : 0;
    instance->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    const char *input = daq_base.input(config);
    int result = read_input(instance, input ? input : "");
    if (result == DAQ_SUCCESS)
        result = read_variables(instance, config);
    unsigned size = daq_base.pool_size(config);
    size = size == 0 ? DEFAULT_POOL : size;
    if (result == DAQ_SUCCESS && size > (instance->kind == SOURCE_INLINE ? MOST_HELD : MOST_POOL))
        result = fails(instance, "invalid pool size %u; expected at most %d messages", size,
                       instance->kind == SOURCE_INLINE ? MOST_HELD : MOST_POOL);
    if (result == DAQ_SUCCESS && (instance->wake < 0 || pool_create(&instance->pool, size, handle) != DAQ_SUCCESS)) {
        fails(instance, "out of memory for %u messages", size);
        result = DAQ_ERROR_NOMEM;
    }
    if (result != DAQ_SUCCESS) {
        destroy(instance);
        return result;
    }
    *made = instance;
    return DAQ_SUCCESS;
}

static int set_filter(void *handle, const char *text) {
    struct instance *instance = handle;
    char why[WHY];
    struct filter *filter = filter_compile(text, instance->link, why);
    if (!filter)
        return fails(instance, "%s", why);
    filter_free(instance->filter);
    instance->filter = filter;
    return DAQ_SUCCESS;
}

static int start(void *handle) {
    struct instance *instance = handle;
    if (instance->kind == SOURCE_FILE) {
        if (!(instance->file = file_open(instance, instance->source)))
            return DAQ_ERROR;
        instance->link = file_link(instance->file);
    } else if (ring_start(instance) != DAQ_SUCCESS) {
        return DAQ_ERROR;
    }
    if (!instance->filter || filter_link(instance->filter) == instance->link)
        return DAQ_SUCCESS;
    /* The filter was compiled for Ethernet, before the link type was known. */
    char *text = strdup(filter_text(instance->filter));
    const int result = text ? set_filter(handle, text) : DAQ_ERROR_NOMEM;
    free(text);
    return result;
}

static int stop(void *handle) {
    struct instance *instance = handle;
    ring_stop(instance);
    file_close(instance->file);
    instance->file = NULL;
    return DAQ_SUCCESS;
}

static int interrupt(void *handle) {
    struct instance *instance = handle;
    const uint64_t one = 1;
    atomic_store(&instance->interrupted, 1);
    return write(instance->wake, &one, sizeof one) == sizeof one ? DAQ_SUCCESS : DAQ_ERROR;
}

static int64_t microseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static int is_interrupted(struct instance *instance) {
    uint64_t count;
    if (!atomic_load_explicit(&instance->interrupted, memory_order_relaxed) || !atomic_exchange(&instance->interrupted, 0))
        return 0;
    return read(instance->wake, &count, sizeof count) >= 0 || errno == EAGAIN;
}

/* Waits for frames or an interruption, for at most `milliseconds` (-1: no limit). */
static void wait_for(struct instance *instance, unsigned most, int milliseconds) {
    /* Without room for a frame only an interruption ends the wait. */
    if (most > 0) {
        ring_wait(instance, milliseconds);
    } else {
        struct pollfd wake = { .fd = instance->wake, .events = POLLIN };
        poll(&wake, 1, milliseconds < 0 ? 1000 : milliseconds);
    }
}

static unsigned receive_from_ring(struct instance *instance, unsigned most, const struct daq_msg *msgs[],
                                  enum daq_status *status) {
    int64_t begun = -1;
    for (;;) {
        if (is_interrupted(instance)) {
            *status = DAQ_RSTAT_INTERRUPTED;
            return 0;
        }
        const unsigned got = most > 0 && instance->ring ? ring_take(instance, most, msgs) : 0;
        *status = got > 0 ? DAQ_RSTAT_OK : ring_end(instance);
        if (got > 0 || *status != DAQ_RSTAT_OK)
            return got;
        const int64_t now = microseconds();
        begun = begun < 0 ? now : begun;
        const int64_t left = instance->timeout - (now - begun) / 1000;
        if ((instance->timeout >= 0 && left <= 0) || (most == 0 && now > begun)) {
            *status = DAQ_RSTAT_TIMEOUT;
            return 0;
        }
        if (most == 0 || now - begun >= instance->spin_us)
            wait_for(instance, most, instance->timeout < 0 ? -1 : (int)left);
    }
}

static unsigned receive(void *handle, unsigned most, const struct daq_msg *msgs[], enum daq_status *status) {
    struct instance *instance = handle;
    unsigned got = 0;
    if (instance->kind == SOURCE_INLINE)
        ring_publish(instance);
    *status = DAQ_RSTAT_NOBUF;
    if (most > 0 && instance->pool.available == 0)
        return 0;
    most = most < instance->pool.available ? most : instance->pool.available;
    if (instance->kind != SOURCE_FILE)
        return ring_received(instance, receive_from_ring(instance, most, msgs, status));
    if (is_interrupted(instance)) {
        *status = DAQ_RSTAT_INTERRUPTED;
    } else if (most == 0) {
        wait_for(instance, 0, instance->timeout);
        *status = is_interrupted(instance) ? DAQ_RSTAT_INTERRUPTED : DAQ_RSTAT_TIMEOUT;
    } else if ((*status = file_take(instance, most, msgs, &got)) == DAQ_RSTAT_INTERRUPTED) {
        is_interrupted(instance);
    }
    return got;
}

static int finalize(void *handle, const struct daq_msg *msg, enum daq_verdict verdict) {
    struct instance *instance = handle;
    struct message *message = pool_find(&instance->pool, msg);
    if (!message)
        return fails(instance, "finalized a message that is not handed out (a bug of the engine)"), DAQ_ERROR_INVAL;
    /* Same as libdaq's modules: an undefined verdict passes the frame. */
    if ((unsigned)verdict >= DAQ_VERDICTS)
        verdict = DAQ_VERDICT_PASS;
    instance->stats.verdicts[verdict]++;
    if (instance->kind == SOURCE_INLINE)
        ring_say(instance, message, verdict);
    pool_put(&instance->pool, message);
    return DAQ_SUCCESS;
}

static int inject_relative(void *handle, const struct daq_msg *msg, const uint8_t *data, uint32_t length, int reverse) {
    struct instance *instance = handle;
    struct message *message = pool_find(&instance->pool, msg);
    if (instance->kind != SOURCE_INLINE)
        return DAQ_ERROR_NOTSUP;
    if (!message || ring_is_over(instance) || length == 0)
        return DAQ_ERROR_INVAL;
    return ring_inject(instance, message, data, length, reverse);
}

static int control(void *handle, int command, void *argument, size_t length) {
    struct daq_device_index *asked = argument;
    if (command != DIOCTL_GET_DEVICE_INDEX)
        return command == DIOCTL_SET_PACKET_VERDICT_REASON ? reasons_take(handle, argument, length) : DAQ_ERROR_NOTSUP;
    if (length != sizeof *asked || !asked->device)
        return DAQ_ERROR_INVAL;
    asked->index = ring_interface(handle, asked->device);
    return asked->index == DAQ_UNKNOWN ? DAQ_ERROR_NODEV : DAQ_SUCCESS;
}

static int get_stats(void *handle, struct daq_stats *stats) {
    const struct instance *instance = handle;
    *stats = instance->stats;
    stats->hw_received = stats->received + stats->filtered;
    stats->hw_dropped = ring_skipped(instance);
    stats->outstanding = instance->pool.size - instance->pool.available;
    return DAQ_SUCCESS;
}

static void reset_stats(void *handle) {
    struct instance *instance = handle;
    instance->skipped_before += ring_skipped(instance);
    instance->stats = (struct daq_stats){ 0 };
}

static int get_snaplen(void *handle) {
    return (int)((const struct instance *)handle)->snaplen;
}

static uint32_t capabilities(void *handle) {
    const struct instance *instance = handle;
    const uint32_t some = DAQ_CAPA_INTERRUPT | (filter_is_there() ? DAQ_CAPA_BPF : 0u);
    if (instance->kind == SOURCE_FILE)
        return some | DAQ_CAPA_UNPRIV_START;
    if (instance->kind == SOURCE_RING)
        return some | DAQ_CAPA_DEVICE_INDEX;
    return some | DAQ_CAPA_DEVICE_INDEX | DAQ_CAPA_BLOCK | DAQ_CAPA_REPLACE | DAQ_CAPA_INJECT | DAQ_CAPA_WHITELIST |
           DAQ_CAPA_BLACKLIST;
}

static int datalink_type(void *handle) {
    return ((const struct instance *)handle)->link;
}

static int pool_info(void *handle, struct daq_pool_info *info) {
    const struct pool *pool = &((const struct instance *)handle)->pool;
    *info = (struct daq_pool_info){ pool->size, pool->available, pool->small_bytes + pool->size * sizeof *pool->all };
    return DAQ_SUCCESS;
}

__attribute__((visibility("default"))) extern const struct daq_module DAQ_MODULE_DATA;
const struct daq_module DAQ_MODULE_DATA = {
    .api_version = DAQ_MODULE_API,
    .api_size = sizeof(struct daq_module),
    .module_version = 1,
    .name = "linerate",
    .type = DAQ_TYPE_FILE | DAQ_TYPE_INTERFACE | DAQ_TYPE_INLINE | DAQ_TYPE_MULTI_INSTANCE,
    .load = load,
    .unload = unload,
    .variables = get_variables,
    .instantiate = instantiate,
    .destroy = destroy,
    .set_filter = set_filter,
    .start = start,
    .inject_relative = inject_relative,
    .interrupt = interrupt,
    .stop = stop,
    .ioctl = control,
    .stats = get_stats,
    .reset_stats = reset_stats,
    .get_snaplen = get_snaplen,
    .capabilities = capabilities,
    .datalink_type = datalink_type,
    .receive = receive,
    .finalize = finalize,
    .pool_info = pool_info,
};
