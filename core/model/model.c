/* [12 block] the model's door: weights and room for batches, opened and closed. */
#include "core/model/model.h"

#include "core/base/mem.h"
#include "core/model/stages.h"

struct model *model_open(const struct checkpoint *c, const struct hparams *h,
                         const struct model_options *options, struct workers *workers,
                         struct error *err)
{
    struct model *m = mem_new(1, sizeof(*m));
    struct weights_options wo = {workers, options->stop, options->heartbeat};
    if (!m) {
        error_set(err, ERR_NO_MEMORY, "no memory for a model");
        return NULL;
    }
    m->h = *h;
    m->activations = m->room = options->activations;
    m->max_rows = options->max_rows;
    m->max_context = options->max_context;
    m->n_workers = workers_count(workers);
    m->heartbeat = options->heartbeat;
    if (weights_open(&m->w, c, h, &wo, err) || model_buffers_open(m, err)) {
        model_close(m);
        return NULL;
    }
    return m;
}

void model_close(struct model *m)
{
    if (!m)
        return;
    weights_close(&m->w);
    model_buffers_close(m);
    free(m);
}

void model_set_activations(struct model *m, enum activations activations)
{
    ASSERT(m->room == ACTIVATIONS_INT16 || m->room == activations);
    m->activations = activations;
}

uint64_t model_weight_bytes(const struct checkpoint *c, const struct hparams *h)
{
    return weights_bytes(c, h);
}

uint64_t model_activation_bytes(const struct hparams *h, const struct model_options *options,
                                uint32_t n_workers)
{
    struct model m = {.h = *h,
                      .activations = options->activations,
                      .room = options->activations,
                      .max_rows = options->max_rows,
                      .max_context = options->max_context,
                      .n_workers = n_workers};
    return model_layout(&m, NULL);
}

bool model_all_float(const struct model *m) { return weights_all_float(&m->w, &m->h); }

static uint64_t params_of(const struct stack *s)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < s->n; i++)
        n += (uint64_t)s->w[i].n_out * s->w[i].n_in;
    return n;
}

/* A row of the embedding (of the positions) is little; the head is read whole. */
struct model_cost model_cost(const struct model *m)
{
    struct model_cost c = {.head_params = params_of(&m->w.head), .floats = model_all_float(m)};
    for (uint32_t i = 0; i < m->h.n_layers; i++) {
        const struct layer *l = &m->w.layers[i];
        c.layer_params +=
            params_of(&l->qkv) + params_of(&l->out) + params_of(&l->up) + params_of(&l->down);
    }
    c.step_bytes = m->w.memory_bytes - (m->w.tied ? 0 : m->w.embed.n_bytes) - m->w.position.n_bytes;
    return c;
}

uint64_t model_scores(const struct model *m)
{
    return atomic_load_explicit(&m->scores, memory_order_relaxed);
}
