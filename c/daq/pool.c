/* SPDX-License-Identifier: GPL-2.0-only */
/* Messages and the bytes that they point to. An engine may write to both (normalisation, lengths). Each message is filled from
 * data of this module before use, so this affects no other message and no other reader of a ring. */
#define _GNU_SOURCE
#include "pool.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static unsigned char *map(size_t bytes) {
    /* Pages that no frame uses are never allocated. */
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

int pool_create(struct pool *pool, uint32_t size, void *owner) {
    pool->small_bytes = (size_t)size * STRIDE;
    pool->large_bytes = (size_t)size * LARGE;
    pool->all = aligned_alloc(sizeof *pool->all, size * sizeof *pool->all);
    pool->free = calloc(size, sizeof *pool->free);
    pool->small = map(pool->small_bytes);
    pool->large = map(pool->large_bytes);
    if (!pool->all || !pool->free || !pool->small || !pool->large) {
        pool_destroy(pool);
        return DAQ_ERROR_NOMEM;
    }
    memset(pool->all, 0, size * sizeof *pool->all);
    pool->size = pool->available = size;
    pool->owner = owner;
    for (uint32_t at = 0; at < size; at++)
        pool->free[at] = size - 1 - at;
    return DAQ_SUCCESS;
}

void pool_destroy(struct pool *pool) {
    free(pool->all);
    free(pool->free);
    if (pool->small)
        munmap(pool->small, pool->small_bytes);
    if (pool->large)
        munmap(pool->large, pool->large_bytes);
    *pool = (struct pool){ 0 };
}
