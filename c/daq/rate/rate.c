/* SPDX-License-Identifier: GPL-2.0-only */
/* Measures the message rate of a module with a host that ignores their content: rate MODULE INPUT MODE [SECONDS [LATER]].
 * MODE is passive, inline or read-file. Receives 64 at a time from a pool of 256, like daqtest -p -b 64. Prints messages,
 * bytes, CPU time of its thread from the first message on, and ns per message. Starts to receive LATER seconds after it has
 * attached, so that a ring is full then and no wait is measured. */
#include "../abi.h"
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    BATCH = 64,
    POOL = 256,
    READING = 64, /* batches between reads of the clock, a system call */
};

static const char *source;
static enum daq_mode mode;

static const char *input(void *config) { (void)config; return source; }
static int snaplen(void *config) { (void)config; return 65535; }
static unsigned timeout(void *config) { (void)config; return 100; }
static unsigned pool_size(void *config) { (void)config; return POOL; }
static unsigned none(void *config) { (void)config; return 0; }
static enum daq_mode get_mode(void *config) { (void)config; return mode; }
static const char *variable(void *config, const char *key) { (void)config, (void)key; return NULL; }
static int next_variable(void *config, const char **key, const char **value)
{
    (void)config;
    *key = *value = NULL;
    return DAQ_SUCCESS;
}
/* A passive ring waits for its reader. */
static int first_variable(void *config, const char **key, const char **value)
{
    next_variable(config, key, value);
    if (mode == DAQ_MODE_PASSIVE) {
        *key = "mode";
        *value = "lossless";
    }
    return DAQ_SUCCESS;
}
static int resolve(void *instance, void *api) { (void)instance, (void)api; return DAQ_ERROR_NOTSUP; }

__attribute__((format(printf, 2, 3))) static void fails(void *instance, const char *format, ...)
{
    va_list arguments;
    (void)instance;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

static double now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    static const struct daq_base base = {
        DAQ_BASE_API, sizeof base, input,    snaplen,   timeout,   pool_size, none,
        none,         get_mode,    variable, first_variable, next_variable, resolve, fails,
    };
    const struct daq_msg *messages[BATCH];
    enum daq_status status = DAQ_RSTAT_OK;
    unsigned long long count = 0, bytes = 0, timed = 0, batches = 0;
    double began = 0, cpu = 0, last = 0, span, later;
    const struct daq_module *module;
    void *library, *handle = NULL;

    if (argc < 4) {
        fprintf(stderr, "usage: rate MODULE INPUT passive|inline|read-file [SECONDS [LATER]]\n");
        return 2;
    }
    source = argv[2];
    mode = !strcmp(argv[3], "inline") ? DAQ_MODE_INLINE : !strcmp(argv[3], "passive") ? DAQ_MODE_PASSIVE : DAQ_MODE_READ_FILE;
    span = argc > 4 ? atof(argv[4]) : 1e9;
    later = argc > 5 ? atof(argv[5]) : 0;
    library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    module = library ? dlsym(library, "DAQ_MODULE_DATA") : NULL;
    if (!module) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    if (module->load(&base) || module->instantiate((void *)1, (void *)2, &handle) || module->start(handle))
        return 1;
    nanosleep(&(struct timespec){ .tv_sec = (time_t)later }, NULL);
    for (;;) {
        unsigned got = module->receive(handle, BATCH, messages, &status), at;
        if (got && !count) {
            began = now(CLOCK_MONOTONIC);
            cpu = now(CLOCK_THREAD_CPUTIME_ID);
        }
        for (at = 0; at < got; at++) {
            bytes += messages[at]->data_len;
            module->finalize(handle, messages[at], DAQ_VERDICT_PASS);
        }
        count += got;
        if (got && ++batches % READING)
            continue;
        if (got || !timed) {
            last = now(CLOCK_THREAD_CPUTIME_ID);
            timed = count;
        }
        if (status == DAQ_RSTAT_EOF || status == DAQ_RSTAT_ERROR || (count && now(CLOCK_MONOTONIC) - began > span))
            break;
    }
    cpu = last - cpu;
    printf("%llu messages, %llu bytes, %.3f s of CPU, %.1f ns per message, %.2f M/s\n", count, bytes, cpu,
           timed ? cpu * 1e9 / (double)timed : 0, cpu > 0 ? (double)timed / cpu / 1e6 : 0);
    module->stop(handle);
    module->destroy(handle);
    return count ? 0 : 1;
}
