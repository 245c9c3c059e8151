/* SPDX-License-Identifier: GPL-2.0-only */
/* Filters, compiled and run by libpcap. It is loaded when a filter is set; the module is not linked with it. */
#include "module.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Layouts of libpcap. */
struct program {
    unsigned length;
    void *instructions;
};

struct frame {
    struct timeval time;
    uint32_t captured, wire;
};

struct filter {
    void *library;
    char *text;
    int link;
    struct program program;
    int (*run)(const struct program *program, const struct frame *frame, const unsigned char *bytes);
    void (*release)(struct program *program);
};

static void *open_libpcap(void) {
    static const char *const names[] = { "libpcap.so.0.8", "libpcap.so.1", "libpcap.so" };
    void *library = NULL;
    for (size_t at = 0; !library && at < sizeof names / sizeof *names; at++)
        library = dlopen(names[at], RTLD_NOW | RTLD_LOCAL);
    return library;
}

int filter_is_there(void) {
    void *library = open_libpcap();
    if (library)
        dlclose(library);
    return library != NULL;
}

/* Looks up a function, as in POSIX: C has no conversion of data pointers to function pointers. */
#define LOOK_UP(library, name, into) (*(void **)(&(into)) = dlsym(library, name))

struct filter *filter_compile(const char *text, int link, char *why) {
    void *(*open_dead)(int link, int snap);
    int (*compile)(void *dead, struct program *into, const char *text, int optimise, uint32_t mask);
    char *(*error)(void *dead);
    void (*close_dead)(void *dead);
    struct filter *filter = calloc(1, sizeof *filter);
    if (!filter || !(filter->text = strdup(text)) || !(filter->library = open_libpcap())) {
        snprintf(why, WHY, "filters need libpcap, which could not be loaded; on Debian: apt install libpcap0.8");
        filter_free(filter);
        return NULL;
    }
    filter->link = link;
    LOOK_UP(filter->library, "pcap_open_dead", open_dead);
    LOOK_UP(filter->library, "pcap_compile", compile);
    LOOK_UP(filter->library, "pcap_geterr", error);
    LOOK_UP(filter->library, "pcap_close", close_dead);
    LOOK_UP(filter->library, "pcap_offline_filter", filter->run);
    LOOK_UP(filter->library, "pcap_freecode", filter->release);
    void *dead = NULL;
    const int whole = open_dead && compile && error && close_dead && filter->run && filter->release;
    if (!whole || !(dead = open_dead(link, LINERATE_MAX_FRAME))) {
        snprintf(why, WHY, "the libpcap of this machine is incomplete or incompatible; reinstall it");
        filter->release = NULL;
        filter_free(filter);
        return NULL;
    }
    const int failed = compile(dead, &filter->program, text, 1, UINT32_MAX) != 0;
    if (failed) {
        snprintf(why, WHY, "filter \"%.80s\": %.120s", text, error(dead));
        filter->release = NULL;
    }
    close_dead(dead);
    if (failed) {
        filter_free(filter);
        return NULL;
    }
    return filter;
}

const char *filter_text(const struct filter *filter) {
    return filter->text;
}

int filter_link(const struct filter *filter) {
    return filter->link;
}

int filter_passes(const struct filter *filter, const unsigned char *bytes, uint32_t captured, uint32_t wire) {
    const struct frame frame = { .captured = captured, .wire = wire };
    return filter->run(&filter->program, &frame, bytes) != 0;
}

void filter_free(struct filter *filter) {
    if (!filter)
        return;
    if (filter->release)
        filter->release(&filter->program);
    if (filter->library)
        dlclose(filter->library);
    free(filter->text);
    free(filter);
}
