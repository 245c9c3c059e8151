/* Table of the plugin; starts DPDK once per process, without output. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "plugin.h"

#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_version.h>

static char dpdk_version[LINERATE_DPDK_NAME];

const struct linerate_dpdk_plugin *linerate_dpdk_plugin(void)
{
    static const struct linerate_dpdk_plugin table = {
        .abi = LINERATE_DPDK_ABI,
        .size = sizeof(struct linerate_dpdk_plugin),
        .sizes = { sizeof(struct linerate_dpdk_desc), sizeof(struct linerate_dpdk_start),
                   sizeof(struct linerate_dpdk_open), sizeof(struct linerate_dpdk_info),
                   sizeof(struct linerate_dpdk_take), sizeof(struct linerate_dpdk_put),
                   sizeof(struct linerate_dpdk_stats), sizeof(struct linerate_dpdk_counter),
                   sizeof(struct linerate_dpdk_classic) },
        .version = dpdk_version,
        .start = start,
        .open = open_port,
        .take = take,
        .detach = detach,
        .attach = attach,
        .put = put,
        .stats = port_stats,
        .counters = port_counters,
        .close = close_port,
        .classic = classic,
    };

    snprintf(dpdk_version, sizeof dpdk_version, "%s", rte_version());
    return &table;
}

/* Log of DPDK. DPDK's own threads write to it too. */
static pthread_mutex_t said_lock = PTHREAD_MUTEX_INITIALIZER;
static char said[320];
static size_t said_bytes;
static int is_listening;

static ssize_t hear(void *cookie, const char *text, size_t len)
{
    (void)cookie;
    pthread_mutex_lock(&said_lock);
    if (is_listening) {
        for (size_t i = 0; i < len && said_bytes < sizeof said - 1; i++)
            if (text[i] != '\n')
                said[said_bytes++] = text[i] < ' ' || text[i] > '~' ? '?' : text[i];
            else if (said_bytes > 0 && said_bytes < sizeof said - 2)
                said[said_bytes++] = ';', said[said_bytes++] = ' ';
        pthread_mutex_unlock(&said_lock);
        return (ssize_t)len;
    }
    pthread_mutex_unlock(&said_lock);
    if (write(STDERR_FILENO, text, len) < 0)
        return (ssize_t)len;
    return (ssize_t)len;
}

void listen_to_dpdk(int on)
{
    pthread_mutex_lock(&said_lock);
    is_listening = on;
    if (on)
        said_bytes = 0;
    pthread_mutex_unlock(&said_lock);
}

int because(char *why, const char *format, ...)
{
    va_list arguments;
    int len;

    va_start(arguments, format);
    len = vsnprintf(why, LINERATE_DPDK_WHY, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&said_lock);
    while (said_bytes > 0 && (said[said_bytes - 1] == ' ' || said[said_bytes - 1] == ';'))
        said_bytes--;
    said[said_bytes] = '\0';
    if (len > 0 && len < LINERATE_DPDK_WHY && said_bytes > 0)
        snprintf(why + len, (size_t)(LINERATE_DPDK_WHY - len), " (DPDK: %s)", said);
    pthread_mutex_unlock(&said_lock);
    return -1;
}

uint64_t utc_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* DPDK registers at most 128 threads at a time, so threads that exit are unregistered. */
static pthread_key_t leaving;
static __thread int is_listed;

static void strike_off(void *unused)
{
    (void)unused;
    rte_thread_unregister();
}

void enlist(void)
{
    if (likely(is_listed))
        return;
    is_listed = 1;
    /* An unregistered thread works too, but slower. */
    if (rte_lcore_id() == LCORE_ID_ANY && rte_thread_register() == 0)
        pthread_setspecific(leaving, &is_listed);
}

struct begin {
    const struct linerate_dpdk_start *asked;
    int result, error;
};

/* Initialises DPDK in a thread of its own: DPDK keeps the calling thread as its main thread, and pins it. */
static void *begin(void *argument)
{
    struct begin *begin = argument;
    char memory[16], prefix[80], cores[32];
    cpu_set_t set;
    int cpu = 0, count = 0;
    char *arguments[16];

    if (sched_getaffinity(0, sizeof set, &set) == 0)
        while (cpu < CPU_SETSIZE - 1 && !CPU_ISSET(cpu, &set))
            cpu++;
    snprintf(memory, sizeof memory, "%u", begin->asked->memory_mib);
    snprintf(prefix, sizeof prefix, "--file-prefix=%s", begin->asked->prefix);
    snprintf(cores, sizeof cores, "0@%d", cpu);
    arguments[count++] = (char *)"linerate";
    arguments[count++] = (char *)"--lcores";
    arguments[count++] = cores;
    arguments[count++] = (char *)"-m";
    arguments[count++] = memory;
    if (begin->asked->huge) {
        arguments[count++] = (char *)"--in-memory";
    } else {
        arguments[count++] = (char *)"--no-huge";
        arguments[count++] = (char *)"--no-shconf";
    }
    arguments[count++] = (char *)"--no-telemetry";
    arguments[count++] = prefix;
    arguments[count++] = (char *)"--log-level=4";
    /* Devices are opened by name later. This allow list prevents DPDK from opening all of them. */
    arguments[count++] = (char *)"-a";
    arguments[count++] = (char *)"0000:00:00.0";
    begin->result = rte_eal_init(count, arguments);
    begin->error = rte_errno;
    /* Other processes must not find this one there. */
    if (begin->result >= 0)
        rmdir(rte_eal_get_runtime_dir());
    return NULL;
}

int start(const struct linerate_dpdk_start *asked, char *why)
{
    static const cookie_io_functions_t functions = { .write = hear };
    struct begin begun = { .asked = asked, .result = -1 };
    FILE *stream = fopencookie(NULL, "w", functions);
    pthread_t thread;
    int error;

    listen_to_dpdk(1);
    if (stream == NULL || rte_openlog_stream(stream) != 0)
        return because(why, "out of memory for the log of DPDK");
    error = pthread_key_create(&leaving, strike_off);
    if (error == 0)
        error = pthread_create(&thread, NULL, begin, &begun);
    if (error != 0)
        return because(why, "starting a thread for DPDK failed: %s", strerror(error));
    pthread_join(thread, NULL);
    if (begun.result < 0)
        return because(why, "starting DPDK failed: %s", rte_strerror(begun.error));
    listen_to_dpdk(0);
    return 0;
}
