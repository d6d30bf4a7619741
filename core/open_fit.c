/* [base] how much context and how many KV pages fit beside the weights. */
#include "core/open.h"

#include <inttypes.h>

/* Left to everything else (vocabulary, requests, buffers, stacks) where we choose the pool. */
#define OTHERS_BYTES ((uint64_t)64 << 20)

/* "weights 93.8 + activations 12.0 + KV cache of 32 pages 45.0 = 150.8 MiB > available 100.0 MiB" */
static int too_large(const struct open_fit *f, uint64_t kv_bytes, const char *setting,
                     const char *what, struct error *err)
{
    const double mib = 1 << 20;
    return error_set_field(
        err, ERR_NO_MEMORY, setting,
        "the model does not fit into memory: weights %.1f + activations %.1f + "
        "KV cache of %s %.1f = %.1f MiB > available %.1f MiB",
        (double)f->weights / mib, (double)f->activations / mib, what, (double)kv_bytes / mib,
        (double)(f->weights + f->activations + kv_bytes) / mib, (double)f->available / mib);
}

static uint64_t pages_of(const struct open_fit *f, uint64_t tokens)
{
    return (tokens + f->page_tokens - 1) / f->page_tokens;
}

/* kv_memory was said: that many pages, and the context must agree. */
static int fit_asked_pool(struct open_fit *f, uint64_t room, struct error *err)
{
    uint64_t n_pages = f->asked_kv / f->page_bytes;
    if (n_pages < 1)
        return error_set_field(err, ERR_INVALID, "kv_memory",
                               "kv_memory is %" PRIu64
                               " bytes, one page of %u tokens takes %" PRIu64,
                               f->asked_kv, f->page_tokens, f->page_bytes);
    if (f->asked_kv > room)
        return too_large(f, f->asked_kv, "kv_memory", "kv_memory", err);
    if (f->asked_context && pages_of(f, f->asked_context) > n_pages)
        return error_set_field(err, ERR_INVALID, "context",
                               "context is %u tokens, which take %" PRIu64
                               " bytes of keys and values; kv_memory is %" PRIu64,
                               f->asked_context, pages_of(f, f->asked_context) * f->page_bytes,
                               f->asked_kv);
    f->n_pages =
        n_pages < INT32_MAX / f->page_tokens ? (uint32_t)n_pages : INT32_MAX / f->page_tokens;
    return 0;
}

/* The pool is ours to choose: every running request at full length, if an eighth of what is left
 * and OTHERS_BYTES stay free; fewer pages otherwise. */
static int fit_pool(struct open_fit *f, uint64_t room, struct error *err)
{
    uint64_t one = pages_of(f, f->asked_context ? f->asked_context : f->n_ctx);
    uint64_t all = one * f->max_running, budget = room - room / 8;
    budget -= OTHERS_BYTES < budget / 4 ? OTHERS_BYTES : budget / 4;
    uint64_t n_pages = budget / f->page_bytes;
    n_pages = n_pages < all ? n_pages : all;
    if (f->asked_context && n_pages < one) {
        if (one > room / f->page_bytes)
            return too_large(f, one * f->page_bytes, "context", "the context asked for", err);
        n_pages = one;
    }
    if (n_pages < 1)
        n_pages = 1;
    f->n_pages =
        n_pages < INT32_MAX / f->page_tokens ? (uint32_t)n_pages : INT32_MAX / f->page_tokens;
    return 0;
}

int open_fit(struct open_fit *f, struct error *err)
{
    uint64_t fixed = f->weights + f->activations;
    if (f->asked_context > f->n_ctx)
        return error_set_field(err, ERR_INVALID, "context",
                               "context is %u tokens, the model was trained for %u",
                               f->asked_context, f->n_ctx);
    if (fixed > f->available || f->page_bytes > f->available - fixed)
        return too_large(f, f->page_bytes, "model", "one page", err);
    uint64_t room = f->available - fixed;
    if (f->asked_kv ? fit_asked_pool(f, room, err) : fit_pool(f, room, err))
        return -1;
    uint64_t held = (uint64_t)f->n_pages * f->page_tokens;
    f->context = f->asked_context ? f->asked_context : f->n_ctx;
    if (f->context > held)
        f->context = (uint32_t)held;
    return 0;
}
