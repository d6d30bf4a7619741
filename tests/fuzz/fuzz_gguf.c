/* [base] fuzzing: any bytes as a model file. What opens is read whole, its vocabulary is built, and where
 * its shapes are those of a small model its weights are packed and a batch is run through it. */
#include "core/base/mem.h"
#include "core/kv/seq.h"
#include "core/load/checkpoint.h"
#include "core/model/model.h"
#include "core/text/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n); // NOLINT(readability-identifier-naming)

static volatile uint64_t sink; /* what was read counts as used */

static void touch(const void *p, size_t n)
{
    const uint8_t *b = p;
    for (size_t i = 0; i < n; i++)
        sink += b[i];
}

static void read_meta(const struct meta *m)
{
    if (m->type == META_STRING)
        touch(m->str.s, m->str.n);
    for (uint64_t i = 0; m->type == META_ARRAY && i < m->n_items; i++) {
        const char *s = "";
        size_t n = 0;
        if (m->of == META_STRING)
            meta_item_str(m, i, &s, &n);
        else
            sink += (uint64_t)meta_item_int(m, i) + (meta_item_float(m, i) > 0);
        touch(s, n);
    }
}

static void read_all(const struct checkpoint *c)
{
    for (uint32_t i = 0; i < checkpoint_n_meta(c); i++)
        read_meta(checkpoint_meta(c, i));
    for (uint32_t i = 0; i < checkpoint_n_tensors(c); i++) {
        const struct tensor *t = checkpoint_tensor(c, i);
        touch(t->data, t->n_bytes);
    }
}

static void use_text(const struct checkpoint *c)
{
    static const char sentence[] = "Once upon a time, 我的名字是 <s>\xF0\x9F\x98\x80 12345";
    struct text *t = text_open(c, NULL);
    struct ids ids = {0};
    struct str out = {0};
    if (!t)
        return;
    if (text_has_tokenizer(t) &&
        text_encode(t, sentence, sizeof(sentence) - 1, true, &ids, NULL) == 0)
        for (uint32_t i = 0; i < ids.n; i++)
            text_token_bytes(t, ids.id[i], i == 0, true, &out);
    touch(str_text(&out), out.n);
    str_free(&out);
    ids_free(&ids);
    text_close(t);
}

enum { ROWS = 3, SMALL_BYTES = 16 << 20 };

/* Two rows and then one, through a model that was opened. */
static void run_model(struct model *m, const struct hparams *h, struct workers *workers)
{
    struct kv_geometry g = {h->n_layers, h->n_kv_heads, h->head_dim, 16, KV_F16};
    struct kv_pool *kv = kv_pool_open(&g, 1, NULL);
    float *logits = mem_new(h->n_vocab, sizeof(*logits));
    struct seq s = {0};
    ASSERT(kv && logits && seq_open(&s, kv, ROWS, NULL) == 0 && seq_reserve(&s, kv, ROWS));
    seq_cover(&s, kv, ROWS);
    struct batch_row rows[ROWS];
    for (uint32_t i = 0; i < ROWS; i++)
        rows[i] =
            (struct batch_row){.token = h->n_vocab - 1, .pos = i, .seq = &s, .logits_row = -1};
    rows[1].logits_row = rows[2].logits_row = 0;
    struct batch first = {rows, 2, 1}, second = {rows + 2, 1, 1};
    model_forward(m, &first, kv, workers, logits);
    s.n_tokens = 2;
    model_forward(m, &second, kv, workers, logits);
    touch(logits, h->n_vocab * sizeof(*logits));
    seq_close(&s, kv);
    free(logits);
    kv_pool_close(kv);
}

static void use_model(const struct checkpoint *c, struct workers *workers)
{
    struct hparams h;
    struct model_options options = {.max_rows = ROWS, .max_logits = 1, .max_context = ROWS};
    if (hparams_read(&h, c, NULL) || h.n_ctx < ROWS)
        return;
    struct kv_geometry g = {h.n_layers, h.n_kv_heads, h.head_dim, 16, KV_F16};
    if (model_weight_bytes(c, &h) > SMALL_BYTES || kv_page_bytes(&g) > SMALL_BYTES ||
        model_activation_bytes(&h, &options, 1) > SMALL_BYTES)
        return;
    struct model *m = model_open(c, &h, &options, workers, NULL);
    if (m)
        run_model(m, &h, workers);
    model_close(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) // NOLINT(readability-identifier-naming)
{
    static struct workers *workers;
    char path[64];
    if (!workers)
        workers = workers_open(1, NULL);
    int fd = memfd_create("fuzz.gguf", MFD_CLOEXEC);
    if (fd < 0 || write(fd, bytes, n) != (ssize_t)n)
        abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    struct checkpoint *c = checkpoint_open(path, NULL);
    close(fd);
    if (c) {
        read_all(c);
        use_text(c);
        use_model(c, workers);
    }
    checkpoint_close(c);
    return 0;
}
