/* SPDX-License-Identifier: GPL-2.0-only */
/* What is done with each message. */
#ifndef LINERATE_DAQ_POOL_H
#define LINERATE_DAQ_POOL_H

#include "module.h"

#include <string.h>

enum {
    SMALL = 2048, /* frames up to here lie in a place that stays in the cache */
    /* Places lie at odd numbers of lines, so that those of different messages fall into different sets of the cache. */
    STRIDE = SMALL + 64,
    LARGE = LINERATE_MAX_FRAME + 4096,
};

/* A message with these bytes of a frame; the pool is not empty. */
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

/* The message that is out under this pointer; NULL if there is none. */
static inline struct message *pool_find(const struct pool *pool, const struct daq_msg *msg) {
    const uintptr_t offset = (uintptr_t)msg - (uintptr_t)pool->all;
    const uintptr_t index = offset / sizeof *pool->all;
    if (offset % sizeof *pool->all != 0 || index >= pool->size || pool->all[index].state == MESSAGE_FREE)
        return NULL;
    return &pool->all[index];
}

/* Time and lengths of a message; the rest as a frame of nowhere has it. */
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
    /* One by one: cleared at once, they cost half of all that is done with a message. */
    msg->meta[0] = msg->meta[1] = msg->meta[2] = msg->meta[3] = NULL;
    msg->meta[4] = msg->meta[5] = msg->meta[6] = msg->meta[7] = NULL;
    msg->owner = pool->owner;
    msg->priv = message;
    msg->hdr_len = sizeof *packet;
    msg->type = DAQ_MSG_TYPE_PACKET;
    msg->data_len = message->length;
}

#endif
