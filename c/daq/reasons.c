/* SPDX-License-Identifier: GPL-2.0-only */
/* Counts the reasons for verdicts, by the engine's own numbers. */
#include "pool.h"

#include <inttypes.h>
#include <stdio.h>

int reasons_take(struct instance *instance, const struct daq_verdict_reason *said, size_t length) {
    if (length != sizeof *said || !pool_find(&instance->pool, said->msg))
        return DAQ_ERROR_INVAL;
    instance->reasons[said->reason]++;
    return DAQ_SUCCESS;
}

void reasons_say(struct instance *instance) {
    for (int at = 0; at < REASONS; at++) {
        if (instance->reasons[at] > 0)
            fprintf(stderr, "linerate: %s: verdicts for reason %d: %" PRIu64 "\n", instance->input, at, instance->reasons[at]);
        instance->reasons[at] = 0;
    }
}
