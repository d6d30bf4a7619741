/* [base] what subcommands need of the engine's parts: a vocabulary, a description, logits. */
#include "core/tool.h"

#include "core/base/mem.h"
#include "core/kernel/cpu.h"
#include "core/model/arch.h"
#include "core/tool_run.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum { CHUNK = 512 }; /* rows of a prefill step where nobody said */

struct text *tool_text(const char *model, struct error *err)
{
    struct checkpoint *c = checkpoint_open(model, err);
    if (!c)
        return NULL;
    struct text *text = text_open(c, err);
    checkpoint_close(c);
    return text;
}

int tool_model_open(const char *model, struct tool_model *m, struct error *err)
{
    struct hparams h = {0};
    const char *arch = "";
    size_t n = 0;
    *m = (struct tool_model){.arch = ""};
    m->checkpoint = checkpoint_open(model, err);
    if (!m->checkpoint)
        return -1;
    m->n_params = open_count_types(m->checkpoint, true, m->types, sizeof(m->types));
    if (meta_str(m->checkpoint, "general.architecture", &arch, &n)) {
        char *name = mem_new(n + 1, 1);
        if (!name) {
            tool_model_close(m);
            return error_set(err, ERR_NO_MEMORY, "no memory for the keys of %s", model);
        }
        memcpy(name, arch, n);
        m->arch = name;
    }
    m->known = hparams_read(&h, m->checkpoint, &m->why_unknown) == 0;
    m->n_layers = h.n_layers;
    m->dim = h.dim;
    m->n_heads = h.n_heads;
    m->n_kv_heads = h.n_kv_heads;
    m->head_dim = h.head_dim;
    m->ff_dim = h.ff_dim;
    m->n_vocab = h.n_vocab;
    m->n_ctx = h.n_ctx;
    return 0;
}

void tool_model_close(struct tool_model *m)
{
    checkpoint_close(m->checkpoint);
    if (m->arch && m->arch[0])
        free((void *)m->arch);
    *m = (struct tool_model){.arch = ""};
}

static int write_logits(FILE *out, const float *logits, size_t n, struct error *err)
{
    uint32_t block[1024];
    for (size_t at = 0; at < n;) {
        size_t k = n - at < 1024 ? n - at : 1024;
        memcpy(block, logits + at, k * sizeof(*block));
        for (size_t i = 0; i < k; i++)
            block[i] = htole32(block[i]);
        if (fwrite(block, sizeof(*block), k, out) != k)
            return error_set(err, ERR_IO, "cannot write logits: %s", strerror(errno));
        at += k;
    }
    return 0;
}

int tool_logits(const struct tool_logits *job, struct error *err)
{
    struct tool_run b;
    struct engine_options e = job->engine;
    uint32_t chunk = job->decode ? 1 : e.prefill_chunk ? e.prefill_chunk : CHUNK;
    int rc = -1;
    if (job->n_ids < 1)
        return error_set_field(err, ERR_INVALID, "tokens", "no tokens: name at least one");
    chunk = chunk < job->n_ids ? chunk : job->n_ids;
    e.model = job->model;
    struct open_options options = {.engine = &e, .max_rows = chunk, .max_logits = chunk};
    if (tool_run_open(&b, &options, 1, job->n_ids, err))
        return -1;
    if (tool_run_check(&b, job->ids, job->n_ids, err))
        goto out;
    for (uint32_t at = 0; at < job->n_ids; at += chunk) {
        uint32_t n = job->n_ids - at < chunk ? job->n_ids - at : chunk;
        tool_run_append(&b, &b.seqs[0], job->ids + at, n, true);
        if (write_logits(job->out, b.o.logits, (size_t)n * b.o.info.n_vocab, err))
            goto out;
    }
    if (fflush(job->out) != 0) {
        error_set(err, ERR_IO, "cannot write logits: %s", strerror(errno));
        goto out;
    }
    rc = 0;
out:
    tool_run_close(&b);
    return rc;
}

void tool_tables(struct str *architectures, struct str *types)
{
    for (int i = 0; i < ARCH_COUNT; i++)
        str_addf(architectures, "%s%s", i ? ", " : "", arch_table[i]->id);
    for (int i = 0; i < QUANT_COUNT; i++)
        str_addf(types, "%s%s", i ? ", " : "", quant_gguf_name(quant_table[i].gguf_id));
}

const char *tool_cpu(struct error *err)
{
    return cpu_init(err) == 0 ? cpu_level_name(cpu_level()) : NULL;
}
