/* [base] fuzzing: any bytes as a model file. What opens is read whole, and its vocabulary built. */
#include "core/load/checkpoint.h"
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

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) // NOLINT(readability-identifier-naming)
{
    char path[64];
    int fd = memfd_create("fuzz.gguf", MFD_CLOEXEC);
    if (fd < 0 || write(fd, bytes, n) != (ssize_t)n)
        abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    struct checkpoint *c = checkpoint_open(path, NULL);
    close(fd);
    if (c) {
        read_all(c);
        use_text(c);
    }
    checkpoint_close(c);
    return 0;
}
