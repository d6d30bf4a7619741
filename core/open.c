/* [base] opening a model: file -> shapes -> does it fit? -> workers -> weights -> KV pool. */
#include "core/open.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/thread.h"
#include "core/kernel/cpu.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const kv_words[] = {[KV_F16] = "f16", [KV_F32] = "f32", [KV_Q8] = "q8"};
static const char *const activation_words[] = {
    [ACTIVATIONS_INT8] = "int8", [ACTIVATIONS_INT16] = "int16", [ACTIVATIONS_FLOAT] = "float"};
static const char *const blas_words[] = {[BLAS_AUTO] = "auto", [BLAS_OFF] = "off"};
static const char *const speculation_words[] = {
    [SPECULATION_AUTO] = "auto", [SPECULATION_OFF] = "off", [SPECULATION_ON] = "on"};

/* Index of word among n words; NULL is the first. */
static int find_word(const char *setting, const char *word, const char *const *words, int n,
                     struct error *err)
{
    char known[64] = "";
    if (!word)
        return 0;
    for (int i = 0; i < n; i++) {
        if (strcmp(word, words[i]) == 0)
            return i;
        size_t at = strlen(known);
        snprintf(known + at, sizeof(known) - at, "%s%s", i ? ", " : "", words[i]);
    }
    return error_set_field(err, ERR_USAGE, setting, "%s is \"%s\", allowed are %s", setting, word,
                           known);
}

int open_kv_type(const char *word, enum kv_type *type, struct error *err)
{
    int i = find_word("kv_type", word, kv_words, KV_TYPES, err);
    *type = (enum kv_type)(i < 0 ? 0 : i);
    return i < 0 ? -1 : 0;
}

int open_activations(const char *word, enum activations *activations, struct error *err)
{
    int i = find_word("activations", word, activation_words, 3, err);
    *activations = (enum activations)(i < 0 ? 0 : i);
    return i < 0 ? -1 : 0;
}

int open_blas(const char *word, enum blas_mode *blas, struct error *err)
{
    int i = find_word("blas", word, blas_words, 2, err);
    *blas = (enum blas_mode)(i < 0 ? 0 : i);
    return i < 0 ? -1 : 0;
}

int open_speculation(const char *word, enum speculation *speculation, struct error *err)
{
    int i = find_word("speculation", word, speculation_words, 3, err);
    *speculation = (enum speculation)(i < 0 ? 0 : i);
    return i < 0 ? -1 : 0;
}

uint64_t open_count_types(const struct checkpoint *c, bool counts, char *types, size_t n_types)
{
    uint32_t n[QUANT_COUNT] = {0};
    uint64_t n_params = 0;
    for (uint32_t i = 0; i < checkpoint_n_tensors(c); i++) {
        const struct tensor *t = checkpoint_tensor(c, i);
        uint64_t elems = 1;
        for (uint32_t d = 0; d < t->n_dims; d++)
            elems *= t->dims[d];
        n_params += elems;
        n[t->type]++;
    }
    size_t at = 0;
    types[0] = '\0';
    for (;;) {
        uint32_t best = 0;
        for (uint32_t i = 1; i < QUANT_COUNT; i++)
            best = n[i] > n[best] ? i : best;
        if (!n[best] || at >= n_types)
            return n_params;
        const char *comma = at ? ", " : "", *name = quant_gguf_name(quant_table[best].gguf_id);
        int k = counts ? snprintf(types + at, n_types - at, "%s%u %s", comma, n[best], name)
                       : snprintf(types + at, n_types - at, "%s%s", comma, name);
        at += (size_t)k;
        n[best] = 0;
    }
}

/* A sampling default: the file's key, else the usual value. */
static int read_default(const struct checkpoint *c, const char *key, double max, double *value,
                        struct error *err)
{
    double v;
    if (meta_float_or(c, key, *value, &v, err))
        return -1;
    if (v < 0 || v > max)
        return error_set(err, ERR_FORMAT, "%s: key %s is %g, allowed are 0 to %g",
                         checkpoint_path(c), key, v, max);
    *value = v;
    return 0;
}

static int read_defaults(const struct checkpoint *c, struct sample_defaults *d, struct error *err)
{
    uint64_t top_k;
    *d = (struct sample_defaults){.temperature = 0.8, .top_p = 0.95, .min_p = 0.05};
    if (read_default(c, "general.sampling.temp", 100, &d->temperature, err) ||
        read_default(c, "general.sampling.top_p", 1, &d->top_p, err) ||
        read_default(c, "general.sampling.min_p", 1, &d->min_p, err) ||
        meta_uint_or(c, "general.sampling.top_k", 0, INT32_MAX, 40, &top_k, err))
        return -1;
    d->top_k = (uint32_t)top_k;
    return 0;
}

static uint32_t resolve_threads(uint32_t asked)
{
    uint32_t processors = thread_processors();
    if (asked > processors)
        log_line(LOG_WARN, "threads reduced to the processors allowed", "asked=%u threads=%u",
                 asked, processors);
    return asked && asked < processors ? asked : processors;
}

/* What the file says about itself. */
static int describe(struct opened *o, const struct checkpoint *c, struct error *err)
{
    struct engine_model *m = &o->info;
    const char *s;
    size_t n;
    o->path = strdup(checkpoint_path(c));
    if (!o->path)
        return error_set(err, ERR_NO_MEMORY, "no memory for the path of %s", checkpoint_path(c));
    const char *slash = strrchr(o->path, '/');
    m->path = o->path;
    m->file_name = slash ? slash + 1 : o->path;
    if (meta_str(c, "general.architecture", &s, &n))
        snprintf(o->names.arch, sizeof(o->names.arch), "%.*s", (int)(n < 63 ? n : 63), s);
    m->arch = o->names.arch;
    m->n_params = open_count_types(c, false, o->names.types, sizeof(o->names.types));
    m->types = o->names.types;
    m->file_bytes = checkpoint_bytes(c);
    m->n_ctx_train = o->hparams.n_ctx;
    m->n_vocab = o->hparams.n_vocab;
    m->n_layers = o->hparams.n_layers;
    m->blas_name = o->names.blas;
    return read_defaults(c, &m->defaults, err);
}

static int check_page_tokens(uint32_t page_tokens, struct error *err)
{
    if (page_tokens >= 16 && page_tokens <= 256 && page_tokens % 16 == 0)
        return 0;
    return error_set_field(err, ERR_USAGE, "page_tokens",
                           "page_tokens is %u, allowed are multiples of 16 from 16 to 256",
                           page_tokens);
}

/* Weights, activations and pages against the memory there is; fills context and n_pages. */
static int fit(struct opened *o, const struct checkpoint *c, const struct open_options *options,
               struct model_options *mo, const struct kv_geometry *g, struct error *err)
{
    const struct engine_options *e = options->engine;
    struct engine_model *m = &o->info;
    mo->max_context = e->context ? e->context : o->hparams.n_ctx;
    struct open_fit f = {
        .available = mem_available(),
        .weights = model_weight_bytes(c, &o->hparams),
        .activations = model_activation_bytes(&o->hparams, mo, m->threads) + o->logits_bytes,
        .page_bytes = kv_page_bytes(g),
        .page_tokens = g->page_tokens,
        .n_ctx = o->hparams.n_ctx,
        .max_running = e->max_running ? e->max_running : 1,
        .asked_context = e->context,
        .asked_kv = e->kv_memory,
    };
    if (open_fit(&f, err))
        return -1;
    m->context = mo->max_context = f.context;
    m->n_pages = f.n_pages;
    if (!e->context && f.context < o->hparams.n_ctx)
        log_line(LOG_WARN, "context reduced to what fits",
                 "context=%u model=%u available_mib=%" PRIu64 " weights_mib=%" PRIu64, f.context,
                 o->hparams.n_ctx, f.available >> 20, f.weights >> 20);
    log_line(LOG_INFO, "memory",
             "available_mib=%" PRIu64 " weights_mib=%" PRIu64 " activations_mib=%" PRIu64
             " kv_mib=%" PRIu64 " pages=%u context=%u",
             f.available >> 20, f.weights >> 20, f.activations >> 20,
             (f.n_pages * f.page_bytes) >> 20, f.n_pages, f.context);
    return 0;
}

/* OpenBLAS for all-float models (README: the same bits); without the library our kernels do it. */
static void start_blas(struct opened *o, enum blas_mode blas)
{
    struct error why;
    char quoted[600];
    bool wanted = blas == BLAS_AUTO && model_all_float(o->model);
    if (matmul_blas(wanted, o->names.blas, sizeof(o->names.blas), &why)) {
        o->names.blas[0] = '\0';
        log_line(LOG_WARN, "OpenBLAS is not used", "reason=%s",
                 log_quote(why.text, quoted, sizeof(quoted)));
    }
    if (!wanted)
        o->names.blas[0] = '\0';
}

/* A token without a row in the embedding matrix cannot be computed: requests name theirs, which are
 * checked as they come, but BOS is put before them. */
static int check_vocab(const struct opened *o, struct error *err)
{
    uint32_t bos, n_vocab = o->info.n_vocab;
    if (text_n_vocab(o->text) > n_vocab)
        return error_set(err, ERR_FORMAT,
                         "%s: tokenizer.ggml.tokens has %u tokens, token_embd.weight %u rows",
                         o->info.file_name, text_n_vocab(o->text), n_vocab);
    if (text_bos(o->text, &bos) && bos >= n_vocab)
        return error_set(err, ERR_FORMAT,
                         "%s: tokenizer.ggml.bos_token_id is %u, token_embd.weight has %u rows",
                         o->info.file_name, bos, n_vocab);
    return 0;
}

/* Everything that takes memory, once it is known to fit. */
static int build(struct opened *o, const struct checkpoint *c, const struct open_options *options,
                 const struct model_options *mo, const struct kv_geometry *g, struct error *err)
{
    if (options->text) {
        o->text = text_open(c, err);
        if (!o->text || check_vocab(o, err))
            return -1;
    }
    o->workers = workers_open(o->info.threads, err);
    if (!o->workers)
        return -1;
    o->model = model_open(c, &o->hparams, mo, o->workers, err);
    if (!o->model)
        return -1;
    start_blas(o, mo->blas);
    o->kv = kv_pool_open(g, o->info.n_pages, err);
    if (!o->kv)
        return -1;
    o->logits = mem_big_new(o->logits_bytes, MEM_ACTIVATIONS);
    return o->logits
               ? 0
               : error_set(err, ERR_NO_MEMORY, "no memory for %u rows of logits", o->max_logits);
}

static int open_checked(struct opened *o, const struct checkpoint *c,
                        const struct open_options *options, struct error *err)
{
    const struct engine_options *e = options->engine;
    struct kv_geometry g = {.page_tokens = e->page_tokens ? e->page_tokens : 64};
    struct model_options mo = {.max_rows = options->max_rows,
                               .max_logits = options->max_logits,
                               .stop = options->stop,
                               .heartbeat = options->heartbeat};
    if (check_page_tokens(g.page_tokens, err) || open_kv_type(e->kv_type, &g.type, err) ||
        open_activations(e->activations, &mo.activations, err) ||
        open_blas(e->blas, &mo.blas, err) || hparams_read(&o->hparams, c, err) ||
        describe(o, c, err))
        return -1;
    g.n_layers = o->hparams.n_layers;
    g.n_kv_heads = o->hparams.n_kv_heads;
    g.head_dim = o->hparams.head_dim;
    o->max_rows = options->max_rows;
    o->max_logits = options->max_logits;
    o->activations = mo.activations;
    o->logits_bytes = sizeof(float) * options->max_logits * o->hparams.n_vocab;
    o->info.threads = resolve_threads(e->threads);
    o->info.page_tokens = g.page_tokens;
    o->info.cpu_level = cpu_level_name(cpu_level());
    o->info.kv_type = kv_words[g.type];
    o->info.activations = activation_words[mo.activations];
    o->info.kv_token_bytes = kv_token_bytes(&g);
    if (fit(o, c, options, &mo, &g, err))
        return -1;
    return build(o, c, options, &mo, &g, err);
}

int open_model(struct opened *o, const struct open_options *options, struct error *err)
{
    *o = (struct opened){0};
    if (cpu_init(err))
        return -1;
    if (!options->engine->model || !options->engine->model[0])
        return error_set_field(err, ERR_USAGE, "model", "no model: name a GGUF file");
    struct checkpoint *c = checkpoint_open(options->engine->model, err);
    if (!c)
        return -1;
    int rc = open_checked(o, c, options, err);
    checkpoint_close(c);
    if (rc)
        open_close(o);
    return rc;
}

void open_close(struct opened *o)
{
    mem_big_free(o->logits, o->logits_bytes, MEM_ACTIVATIONS);
    kv_pool_close(o->kv);
    model_close(o->model);
    workers_close(o->workers);
    text_close(o->text);
    free(o->path);
    *o = (struct opened){0};
}
