/* [base] settings -> engine options. */
#include "server/options.h"

#include "core/base/log.h"

#include <string.h>

/* The table bounds every one of these below 2^32. */
void options_engine(const struct config *c, struct engine_options *o)
{
    *o = (struct engine_options){
        .model = c->model,
        .threads = (uint32_t)c->threads,
        .context = (uint32_t)c->context,
        .max_running = (uint32_t)c->max_running,
        .page_tokens = (uint32_t)c->page_tokens,
        .prefill_chunk = (uint32_t)c->prefill_chunk,
        .step_ms = (uint32_t)c->step_ms,
        .kv_memory = c->kv_memory,
        .kv_type = c->kv_type,
        .activations = c->activations,
        .blas = c->blas,
        .speculation = c->speculation,
        .sessions_auto_create = c->sessions_auto_create,
    };
}

void options_log(const struct config *c)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    for (int i = 0; i < 4; i++)
        if (strcmp(c->log_level, names[i]) == 0)
            log_set_level((enum log_level)i);
}
