#include "tests/lib/text_fixture.h"

#include "core/base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The printable letter of a byte, by GPT-2's definition: Latin-1's visible ones, then U+0100 up. */
static int letter(int byte, char out[5])
{
    uint32_t cp = (uint32_t)byte, hidden = 0;
    for (int b = 0; b <= byte; b++) {
        int visible = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        if (b == byte && visible) {
            int n = utf8_encode(cp, out);
            out[n] = '\0';
            return n;
        }
        hidden += !visible;
    }
    int n = utf8_encode(256 + hidden - 1, out);
    out[n] = '\0';
    return n;
}

void fixture_bpe(struct gguf *g, const char *pre)
{
    static char letters[256][5];
    static const char *tokens[BPE_VOCAB] = {
        [BPE_TH] = "th",
        [BPE_HE] = "he",
        [BPE_THE] = "the",
        [BPE__THE] = "\xC4\xA0the",
        [BPE_SPACES] = "\xC4\xA0\xC4\xA0",
        [BPE_AA] = "aa",
        [BPE_AAAA] = "aaaa",
        [BPE_12] = "12",
        [BPE_WHOLE] = "zyx",
        [BPE_END] = "<|endoftext|>",
        [BPE_IM_START] = "<|im_start|>",
        [BPE_IM_END] = "<|im_end|>",
        [BPE_TOOL] = "<tool>",
        [BPE_TOOLS] = "<tool>s",
    };
    static const char *const merges[] = {
        "t h", "h e", "th e", "\xC4\xA0 the", "\xC4\xA0 \xC4\xA0", "a a", "aa aa", "1 2"};
    int32_t types[BPE_VOCAB];
    for (int i = 0; i < 256; i++) {
        letter(i, letters[i]);
        tokens[i] = letters[i];
    }
    for (int i = 0; i < BPE_VOCAB; i++)
        types[i] = i < BPE_END ? 1 : i < BPE_TOOL ? 3 : 4;
    gguf_str(g, "tokenizer.ggml.model", "gpt2");
    if (pre)
        gguf_str(g, "tokenizer.ggml.pre", pre);
    gguf_strs(g, "tokenizer.ggml.tokens", tokens, BPE_VOCAB);
    gguf_i32s(g, "tokenizer.ggml.token_type", types, BPE_VOCAB);
    gguf_strs(g, "tokenizer.ggml.merges", merges, sizeof(merges) / sizeof(merges[0]));
    gguf_u32(g, "tokenizer.ggml.bos_token_id", BPE_END);
    gguf_u32(g, "tokenizer.ggml.eos_token_id", BPE_END);
}

void fixture_spm(struct gguf *g)
{
    static char bytes[256][8];
    static const char *tokens[SPM_VOCAB] = {
        [SPM_UNK] = "<unk>",
        [SPM_BOS] = "<s>",
        [SPM_EOS] = "</s>",
        [SPM_SPACE] = "\xE2\x96\x81",
        [SPM_A] = "a",
        [SPM_B] = "b",
        [SPM_C] = "c",
        [SPM_AB] = "ab",
        [SPM_BC] = "bc",
        [SPM_ABC] = "abc",
        [SPM__A] = "\xE2\x96\x81\141",
        [SPM_USER] = "[x]",
        [SPM_EUR] = "\xE2\x82\xAC",
    };
    static const float scores[SPM_VOCAB] = {
        [SPM_SPACE] = -10, [SPM_A] = -11,  [SPM_B] = -12,    [SPM_C] = -13,  [SPM_AB] = -1,
        [SPM_BC] = -2,     [SPM_ABC] = -3, [SPM__A] = -0.5f, [SPM_EUR] = -14};
    int32_t types[SPM_VOCAB];
    for (int i = 0; i < 256; i++) {
        snprintf(bytes[i], sizeof(bytes[i]), "<0x%02X>", i);
        tokens[SPM_BYTE0 + i] = bytes[i];
    }
    for (int i = 0; i < SPM_VOCAB; i++)
        types[i] = i >= SPM_SPACE ? 1 : i >= SPM_BYTE0 ? 6 : i == SPM_UNK ? 2 : 3;
    types[SPM_USER] = 4;
    gguf_str(g, "tokenizer.ggml.model", "llama");
    gguf_str(g, "tokenizer.ggml.pre", "default");
    gguf_strs(g, "tokenizer.ggml.tokens", tokens, SPM_VOCAB);
    gguf_f32s(g, "tokenizer.ggml.scores", scores, SPM_VOCAB);
    gguf_i32s(g, "tokenizer.ggml.token_type", types, SPM_VOCAB);
    gguf_u32(g, "tokenizer.ggml.bos_token_id", SPM_BOS);
    gguf_u32(g, "tokenizer.ggml.eos_token_id", SPM_EOS);
    gguf_u32(g, "tokenizer.ggml.unknown_token_id", SPM_UNK);
}

struct text *fixture_open_bytes(const char *bytes, size_t n, struct error *err)
{
    char path[64];
    struct text *t = NULL;
    int fd = memfd_create("vocab.gguf", MFD_CLOEXEC);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (fd >= 0 && write(fd, bytes, n) == (ssize_t)n) {
        struct checkpoint *c = checkpoint_open(path, err);
        if (c)
            t = text_open(c, err);
        checkpoint_close(c);
    }
    close(fd);
    return t;
}

struct text *fixture_open(struct gguf *g, struct error *err)
{
    struct str file = {0};
    gguf_finish(g, &file);
    gguf_free(g);
    struct text *t = fixture_open_bytes(str_text(&file), file.n, err);
    str_free(&file);
    return t;
}

const char *fixture_conformance(const char *name)
{
    static char path[4096];
    const char *root = getenv("ATTEND_CONFORMANCE");
    snprintf(path, sizeof(path), "%s/%s", root ? root : "../shared/conformance", name);
    return access(path, R_OK) == 0 ? path : NULL;
}
