/* SPDX-License-Identifier: GPL-2.0-only */
/* Functions called per message. */
#ifndef LINERATE_DAQ_POOL_H
#define LINERATE_DAQ_POOL_H

#include "module.h"

#include <string.h>

enum {
    SMALL = 2048, /* frames up to this length are in buffers that stay in the cache */
    /* Buffers are an odd number of cache lines apart, so that those of different messages use different sets of the cache. */
    STRIDE = SMALL + 64,
    LARGE = LINERATE_MAX_FRAME + 4096,
};

/* Takes a message and copies these bytes of a frame to it; the pool must not be empty. */
static inline struct message *pool_take(struct pool *pool, const unsigned char *bytes, uint32_t length) {
    const uint32_t index = pool->free[--pool->available];
    struct message *message = &pool->all[index];
    message->bytes = length <= SMALL ? pool->small + (size_t)index * STRIDE : pool->large + (size_t)index * LARGE;
    message->length = length;
    message->state = MESSAGE_OUT;
    memcpy(message->bytes, bytes, length);
    return message;
}

static inline void pool_put(struct pool *pool, struct message *message) {
    message->state = MESSAGE_FREE;
    pool->free[pool->available++] = (uint32_t)(message - pool->all);
}

/* Returns the message handed out under this pointer; NULL if none is. */
static inline struct message *pool_find(const struct pool *pool, const struct daq_msg *msg) {
    const uintptr_t offset = (uintptr_t)msg - (uintptr_t)pool->all;
    const uintptr_t index = offset / sizeof *pool->all;
    if (offset % sizeof *pool->all != 0 || index >= pool->size || pool->all[index].state == MESSAGE_FREE)
        return NULL;
    return &pool->all[index];
}

/* Sets time and lengths of a message, and the rest to unknown. */
static inline void message_fill(const struct pool *pool, struct message *message, uint64_t nanoseconds, uint32_t wire) {
    struct daq_packet *packet = &message->packet;
    struct daq_msg *msg = &message->msg;
    packet->ts.tv_sec = (time_t)(nanoseconds / 1000000000);
    packet->ts.tv_usec = (suseconds_t)(nanoseconds % 1000000000 / 1000);
    packet->pktlen = wire;
    packet->ingress_index = packet->egress_index = DAQ_UNKNOWN;
    packet->ingress_group = packet->egress_group = DAQ_UNKNOWN;
    packet->opaque = packet->flow_id = packet->flags = packet->address_space_id = packet->tenant_id = 0;
    msg->hdr = packet;
    msg->data = message->bytes;
    /* Cleared one by one: memset would take half of the time per message. */
    msg->meta[0] = msg->meta[1] = msg->meta[2] = msg->meta[3] = NULL;
    msg->meta[4] = msg->meta[5] = msg->meta[6] = msg->meta[7] = NULL;
    msg->owner = pool->owner;
    msg->priv = message;
    msg->hdr_len = sizeof *packet;
    msg->type = DAQ_MSG_TYPE_PACKET;
    msg->data_len = message->length;
}

#endif
