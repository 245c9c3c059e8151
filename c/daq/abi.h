/* SPDX-License-Identifier: GPL-2.0-only */
/* Interface between libdaq 3 and its modules: module API 0x00030001, base API 0x00030002, unchanged from libdaq 3.0.0 to
 * 3.0.25. Names are ours. Order and sizes are those of api/daq_common.h and api/daq_module_api.h of libdaq, which is
 * GPL-2.0-only; so is this folder. Offsets are those of 64-bit machines. */
#ifndef LINERATE_DAQ_ABI_H
#define LINERATE_DAQ_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <sys/time.h>

enum { DAQ_MODULE_API = 0x00030001, DAQ_BASE_API = 0x00030002 };

/* Return values of functions. */
enum {
    DAQ_SUCCESS = 0,
    DAQ_ERROR = -1,
    DAQ_ERROR_NOMEM = -2,
    DAQ_ERROR_NODEV = -3,
    DAQ_ERROR_NOTSUP = -4,
    DAQ_ERROR_INVAL = -7,
    DAQ_ERROR_AGAIN = -9,
};

enum daq_status {
    DAQ_RSTAT_OK,
    DAQ_RSTAT_WOULD_BLOCK,
    DAQ_RSTAT_TIMEOUT,
    DAQ_RSTAT_EOF,
    DAQ_RSTAT_INTERRUPTED,
    DAQ_RSTAT_NOBUF,
    DAQ_RSTAT_ERROR,
};

enum daq_verdict {
    DAQ_VERDICT_PASS,
    DAQ_VERDICT_BLOCK,
    DAQ_VERDICT_REPLACE,
    DAQ_VERDICT_WHITELIST,
    DAQ_VERDICT_BLACKLIST,
    DAQ_VERDICT_IGNORE,
    DAQ_VERDICTS,
};

enum daq_mode { DAQ_MODE_PASSIVE = 1, DAQ_MODE_INLINE, DAQ_MODE_READ_FILE };

enum { /* types of a module */
    DAQ_TYPE_FILE = 1,
    DAQ_TYPE_INTERFACE = 2,
    DAQ_TYPE_INLINE = 4,
    DAQ_TYPE_MULTI_INSTANCE = 8,
};

enum { /* capabilities of an instance */
    DAQ_CAPA_BLOCK = 1,
    DAQ_CAPA_REPLACE = 2,
    DAQ_CAPA_INJECT = 4,
    DAQ_CAPA_WHITELIST = 8,
    DAQ_CAPA_BLACKLIST = 0x10,
    DAQ_CAPA_UNPRIV_START = 0x20,
    DAQ_CAPA_INTERRUPT = 0x40,
    DAQ_CAPA_BPF = 0x80,
    DAQ_CAPA_DEVICE_INDEX = 0x100,
};

enum { DAQ_PKT_NOT_FORWARDING = 2, DAQ_PKT_ERROR = 0x200 };
enum { DAQ_VAR_REQUIRES_ARGUMENT = 1, DAQ_VAR_FORBIDS_ARGUMENT = 2 };
enum { DAQ_MSG_TYPE_PACKET = 1, DAQ_META_SLOTS = 8, DAQ_META_DECODE = 1, DAQ_UNKNOWN = -1 };
enum { DIOCTL_GET_DEVICE_INDEX = 1, DIOCTL_SET_PACKET_VERDICT_REASON = 7 };

/* Bits of daq_decode.flags. */
enum {
    DAQ_DECODE_L3 = 1 << 2,
    DAQ_DECODE_L4 = 1 << 4,
    DAQ_DECODE_L4_SUM = 1 << 5,
    DAQ_DECODE_UDP = 1 << 12,
    DAQ_DECODE_TCP = 1 << 13,
    DAQ_DECODE_NONE = 0xffff,
};

struct daq_msg {
    void *hdr;
    uint8_t *data;
    void *meta[DAQ_META_SLOTS];
    void *owner, *priv;
    size_t hdr_len;
    uint32_t type, data_len;
};

struct daq_packet {
    struct timeval ts;
    uint32_t pktlen;
    int32_t ingress_index, egress_index;
    int16_t ingress_group, egress_group;
    uint32_t opaque, flow_id, flags, address_space_id, tenant_id;
};

struct daq_decode {
    uint32_t flags;
    uint16_t l2, l3, l4, payload, checksum;
};

struct daq_stats {
    uint64_t hw_received, hw_dropped, received, filtered, injected, outstanding, verdicts[DAQ_VERDICTS];
};

struct daq_pool_info {
    uint32_t size, available;
    size_t bytes;
};

struct daq_variable {
    const char *name, *description;
    uint32_t flags;
};

/* The argument of DIOCTL_GET_DEVICE_INDEX. */
struct daq_device_index {
    const char *device;
    int index;
};

/* The argument of DIOCTL_SET_PACKET_VERDICT_REASON. */
struct daq_verdict_reason {
    const struct daq_msg *msg;
    uint8_t reason;
};

struct daq_base {
    uint32_t api_version, api_size;
    const char *(*input)(void *config);
    int (*snaplen)(void *config);
    unsigned (*timeout)(void *config);
    unsigned (*pool_size)(void *config);
    unsigned (*total_instances)(void *config);
    unsigned (*instance_id)(void *config);
    enum daq_mode (*mode)(void *config);
    const char *(*variable)(void *config, const char *key);
    int (*first_variable)(void *config, const char **key, const char **value);
    int (*next_variable)(void *config, const char **key, const char **value);
    int (*resolve_subapi)(void *instance, void *api);
    void (*set_errbuf)(void *instance, const char *format, ...) __attribute__((format(printf, 2, 3)));
};

struct daq_module {
    uint32_t api_version, api_size, module_version;
    const char *name;
    uint32_t type;
    int (*load)(const struct daq_base *base);
    int (*unload)(void);
    int (*variables)(const struct daq_variable **table);
    int (*instantiate)(void *config, void *instance, void **handle);
    void (*destroy)(void *handle);
    int (*set_filter)(void *handle, const char *text);
    int (*start)(void *handle);
    int (*inject)(void *handle, int type, const void *hdr, const uint8_t *data, uint32_t length);
    int (*inject_relative)(void *handle, const struct daq_msg *msg, const uint8_t *data, uint32_t length, int reverse);
    int (*interrupt)(void *handle);
    int (*stop)(void *handle);
    int (*ioctl)(void *handle, int command, void *argument, size_t length);
    int (*stats)(void *handle, struct daq_stats *stats);
    void (*reset_stats)(void *handle);
    int (*get_snaplen)(void *handle);
    uint32_t (*capabilities)(void *handle);
    int (*datalink_type)(void *handle);
    int (*config_load)(void *handle, void **made);
    int (*config_swap)(void *handle, void *made, void **old);
    int (*config_free)(void *handle, void *old);
    unsigned (*receive)(void *handle, unsigned most, const struct daq_msg *msgs[], enum daq_status *status);
    int (*finalize)(void *handle, const struct daq_msg *msg, enum daq_verdict verdict);
    int (*pool_info)(void *handle, struct daq_pool_info *info);
};

#define DAQ_AT(type, field, offset) _Static_assert(offsetof(struct type, field) == (offset), #type "." #field)
#if UINTPTR_MAX == UINT64_MAX
_Static_assert(sizeof(struct daq_msg) == 112 && sizeof(struct daq_packet) == 56 && sizeof(struct daq_decode) == 16, "messages");
_Static_assert(sizeof(struct daq_stats) == 96 && sizeof(struct daq_pool_info) == 16 && sizeof(struct daq_variable) == 24, "queries");
_Static_assert(sizeof(struct daq_base) == 104 && sizeof(struct daq_module) == 216, "tables");
_Static_assert(sizeof(struct daq_device_index) == 16 && sizeof(struct daq_verdict_reason) == 16 && sizeof(enum daq_status) == 4, "arguments");
DAQ_AT(daq_msg, meta, 16);
DAQ_AT(daq_msg, owner, 80);
DAQ_AT(daq_msg, hdr_len, 96);
DAQ_AT(daq_msg, data_len, 108);
DAQ_AT(daq_packet, pktlen, 16);
DAQ_AT(daq_packet, ingress_group, 28);
DAQ_AT(daq_packet, flags, 40);
DAQ_AT(daq_decode, payload, 10);
DAQ_AT(daq_base, input, 8);
DAQ_AT(daq_base, mode, 56);
DAQ_AT(daq_base, set_errbuf, 96);
DAQ_AT(daq_module, name, 16);
DAQ_AT(daq_module, load, 32);
DAQ_AT(daq_module, interrupt, 104);
DAQ_AT(daq_module, receive, 192);
DAQ_AT(daq_module, pool_info, 208);
#endif

#endif
