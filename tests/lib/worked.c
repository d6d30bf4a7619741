/* [base] the worked example as a GGUF file.
 *
 * Attention's matrices, the embeddings of the prompt and the first three positions are the example's,
 * given as row vectors (q = x WQ) and turned here, for a file holds [n_out, n_in].
 *
 * What it answers is arranged by the positions from 3 on, which are 16 times one of five directions
 * of length 2 with mean 0. The final LayerNorm leaves nearly that direction, and the LM head's row of
 * the token that is due is 4 times the same direction: 16 where it is due, about 0 or less elsewhere.
 * Position 2 of the example lies near the first direction by itself. The answer to 我的名字是 is
 * 小, the first two bytes of 明, its third byte, 。 and the end token, and again from the beginning
 * where the end token is ignored. */
#include "tests/lib/worked.h"

#include "core/base/mem.h"
#include "core/base/utf8.h"

#include <stdio.h>
#include <string.h>

enum { DIM = 4, HEAD = 2, FF = 8, PERIOD = 5, NORMAL = 1, CONTROL = 3, UNUSED = 5 };

static const float example_e[3][DIM] = {{1, 0, 1, 0}, {0, 2, 0, 1}, {1, 1, 0, -1}};
static const float example_p[3][DIM] = {{0, .5f, 0, 0}, {.5f, 0, 0, 0}, {0, 0, .5f, .5f}};
static const float wq[DIM][HEAD] = {{1, 0}, {0, 1}, {1, 0}, {0, 1}};
static const float wk[DIM][HEAD] = {{0, 1}, {1, 0}, {0, 1}, {1, 0}};
static const float wv[DIM][HEAD] = {{1, 0}, {1, 1}, {0, 1}, {0, -1}};
static const float wo[HEAD][DIM] = {{1, 0, 0, 1}, {0, 1, 1, 0}};

/* Position p leads to answer p - 2, modulo PERIOD. */
static const float direction[PERIOD][DIM] = {
    {1, 1, -1, -1}, {1, -1, 1, -1}, {1, -1, -1, 1}, {-1, -1, 1, 1}, {-1, 1, -1, 1}};
static const char *const answer[PERIOD - 1] = {"小", "\xE6\x98", "\x8E", "。"};

/* Pairs that merge, first come first. Each half is a byte or an earlier result. */
static const char *const merges[][2] = {
    {"\xE6", "\x88"}, {"\xE6\x88", "\x91"}, /* 我 */
    {"\xE7", "\x9A"}, {"\xE7\x9A", "\x84"}, /* 的 */
    {"\xE5", "\x90"}, {"\xE5\x90", "\x8D"}, /* 名 */
    {"\xE5", "\xAD"}, {"\xE5\xAD", "\x97"}, /* 字 */
    {"\xE6", "\x98"}, {"\xE6\x98", "\xAF"}, /* 是 */
    {"\xE5", "\xB0"}, {"\xE5\xB0", "\x8F"}, /* 小 */
    {"\xE3", "\x80"}, {"\xE3\x80", "\x82"}, /* 。 */
    {"我", "的"},     {"名", "字"},
};
enum { N_MERGES = sizeof(merges) / sizeof(*merges) };

/* GPT-2 writes a byte as a character: itself where it is printable, else the next one from U+0100. */
static void add_byte(struct str *out, unsigned byte)
{
    char utf8[4];
    uint32_t n = 0;
    for (unsigned b = 0; b < byte; b++)
        n += !((b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE);
    bool self = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    str_add(out, utf8, (size_t)utf8_encode(self ? byte : 0x100 + n, utf8));
}

static void add_written(struct str *out, const char *bytes)
{
    for (; *bytes; bytes++)
        add_byte(out, (unsigned char)*bytes);
}

struct vocabulary {
    struct str token[WORKED_VOCAB];
    int32_t type[WORKED_VOCAB];
};

/* The id of a token of these bytes; -1: none. */
static int find_token(const struct vocabulary *v, const char *bytes)
{
    struct str want = {0};
    int id = WORKED_VOCAB - 1;
    add_written(&want, bytes);
    while (id >= 0 && strcmp(str_text(&v->token[id]), str_text(&want)) != 0)
        id--;
    str_free(&want);
    return id;
}

static uint32_t next_free(const struct vocabulary *v)
{
    uint32_t id = 0;
    while (v->type[id])
        id++;
    return id;
}

static void set_token(struct vocabulary *v, uint32_t id, const char *bytes)
{
    add_written(&v->token[id], bytes);
    v->type[id] = NORMAL;
}

/* The end token, the three words at their places, bytes, results of merges; the rest is unused. */
static void fill_vocabulary(struct vocabulary *v)
{
    str_adds(&v->token[WORKED_END], "<|endoftext|>");
    v->type[WORKED_END] = CONTROL;
    set_token(v, WORKED_SHI, "是");
    set_token(v, WORKED_WODE, "我的");
    set_token(v, WORKED_MINGZI, "名字");
    for (unsigned byte = 0; byte < 256; byte++) {
        uint32_t id = next_free(v);
        add_byte(&v->token[id], byte);
        v->type[id] = NORMAL;
    }
    for (int i = 0; i < N_MERGES; i++) {
        char whole[16];
        snprintf(whole, sizeof(whole), "%s%s", merges[i][0], merges[i][1]);
        if (find_token(v, whole) < 0)
            set_token(v, next_free(v), whole);
    }
    for (uint32_t id = 0; id < WORKED_VOCAB; id++) {
        if (v->type[id])
            continue;
        str_addf(&v->token[id], "<unused%u>", id);
        v->type[id] = UNUSED;
    }
}

static void write_tokenizer(struct gguf *g, const struct vocabulary *v)
{
    const char *tokens[WORKED_VOCAB], *written[N_MERGES];
    struct str pairs[N_MERGES] = {{0}};
    for (int i = 0; i < WORKED_VOCAB; i++)
        tokens[i] = str_text(&v->token[i]);
    for (int i = 0; i < N_MERGES; i++) {
        add_written(&pairs[i], merges[i][0]);
        str_adds(&pairs[i], " ");
        add_written(&pairs[i], merges[i][1]);
        written[i] = str_text(&pairs[i]);
    }
    gguf_str(g, "tokenizer.ggml.model", "gpt2");
    gguf_str(g, "tokenizer.ggml.pre", "gpt-2");
    gguf_strs(g, "tokenizer.ggml.tokens", tokens, WORKED_VOCAB);
    gguf_i32s(g, "tokenizer.ggml.token_type", v->type, WORKED_VOCAB);
    gguf_strs(g, "tokenizer.ggml.merges", written, N_MERGES);
    gguf_u32(g, "tokenizer.ggml.bos_token_id", WORKED_END);
    gguf_u32(g, "tokenizer.ggml.eos_token_id", WORKED_END);
    gguf_bool(g, "tokenizer.ggml.add_bos_token", false);
    for (int i = 0; i < N_MERGES; i++)
        str_free(&pairs[i]);
}

/* Small numbers without a pattern that would hide an exchanged index: -0.25 .. 0.25, never 0. */
static float small(uint32_t i) { return (float)((int)(i * 7 % 11) - 5) / 20 + 0.0125f; }

static void write_embeddings(struct gguf *g)
{
    float embd[WORKED_VOCAB][DIM], pos[WORKED_CONTEXT][DIM];
    for (uint32_t i = 0; i < WORKED_VOCAB; i++)
        for (uint32_t d = 0; d < DIM; d++)
            embd[i][d] = small(i * DIM + d);
    memcpy(embd[WORKED_WODE], example_e[0], sizeof(example_e[0]));
    memcpy(embd[WORKED_MINGZI], example_e[1], sizeof(example_e[1]));
    memcpy(embd[WORKED_SHI], example_e[2], sizeof(example_e[2]));
    memcpy(pos, example_p, sizeof(example_p));
    for (uint32_t p = 3; p < WORKED_CONTEXT; p++)
        for (uint32_t d = 0; d < DIM; d++)
            pos[p][d] = 16 * direction[(p - 2) % PERIOD][d];
    gguf_f32_matrix(g, "token_embd.weight", WORKED_VOCAB, DIM, embd[0]);
    gguf_f32_matrix(g, "position_embd.weight", WORKED_CONTEXT, DIM, pos[0]);
}

static void write_norm(struct gguf *g, const char *weight, const char *bias)
{
    static const float ones[DIM] = {1, 1, 1, 1}, zeros[DIM];
    gguf_f32_vector(g, weight, DIM, ones);
    gguf_f32_vector(g, bias, DIM, zeros);
}

static void write_attention(struct gguf *g)
{
    float qkv[3 * HEAD][DIM], out[DIM][HEAD];
    for (int d = 0; d < DIM; d++)
        for (int h = 0; h < HEAD; h++) {
            qkv[h][d] = wq[d][h];
            qkv[HEAD + h][d] = wk[d][h];
            qkv[2 * HEAD + h][d] = wv[d][h];
            out[d][h] = wo[h][d];
        }
    gguf_f32_matrix(g, "blk.0.attn_qkv.weight", (uint64_t)3 * HEAD, DIM, qkv[0]);
    gguf_f32_matrix(g, "blk.0.attn_output.weight", DIM, HEAD, out[0]);
}

static void write_mlp(struct gguf *g)
{
    float up[FF * DIM], down[DIM * FF], up_bias[FF], down_bias[DIM];
    for (uint32_t i = 0; i < FF * DIM; i++) {
        up[i] = small(i + 1);
        down[i] = small(i + 5);
    }
    for (uint32_t i = 0; i < FF; i++)
        up_bias[i] = small(i + 2);
    for (uint32_t i = 0; i < DIM; i++)
        down_bias[i] = small(i + 3);
    gguf_f32_matrix(g, "blk.0.ffn_up.weight", FF, DIM, up);
    gguf_f32_vector(g, "blk.0.ffn_up.bias", FF, up_bias);
    gguf_f32_matrix(g, "blk.0.ffn_down.weight", DIM, FF, down);
    gguf_f32_vector(g, "blk.0.ffn_down.bias", DIM, down_bias);
}

static void write_lm_head(struct gguf *g, const struct vocabulary *v)
{
    float w[WORKED_VOCAB][DIM], bias[WORKED_VOCAB];
    for (uint32_t i = 0; i < WORKED_VOCAB; i++) {
        bias[i] = small(i + 4) - 2;
        for (uint32_t d = 0; d < DIM; d++)
            w[i][d] = small(i * DIM + d + 6);
    }
    for (int a = 0; a < PERIOD; a++) {
        int id = a < PERIOD - 1 ? find_token(v, answer[a]) : WORKED_END;
        ASSERT(id >= 0);
        for (int d = 0; d < DIM; d++)
            w[id][d] = 4 * direction[a][d];
    }
    gguf_f32_matrix(g, "output.weight", WORKED_VOCAB, DIM, w[0]);
    gguf_f32_vector(g, "output.bias", WORKED_VOCAB, bias);
}

struct gguf worked_gguf(void)
{
    struct gguf g = {0};
    struct vocabulary *v = mem_new(1, sizeof(*v));
    ASSERT(v);
    fill_vocabulary(v);
    gguf_str(&g, "general.architecture", "gpt2");
    gguf_str(&g, "general.name", "worked example");
    gguf_u32(&g, "gpt2.context_length", WORKED_CONTEXT);
    gguf_u32(&g, "gpt2.embedding_length", DIM);
    gguf_u32(&g, "gpt2.feed_forward_length", FF);
    gguf_u32(&g, "gpt2.block_count", 1);
    gguf_u32(&g, "gpt2.attention.head_count", 1);
    gguf_u32(&g, "gpt2.attention.key_length", HEAD);
    gguf_u32(&g, "gpt2.attention.value_length", HEAD);
    gguf_f32(&g, "gpt2.attention.layer_norm_epsilon", 1e-5f);
    write_tokenizer(&g, v);
    write_embeddings(&g);
    write_norm(&g, "blk.0.attn_norm.weight", "blk.0.attn_norm.bias");
    write_attention(&g);
    write_norm(&g, "blk.0.ffn_norm.weight", "blk.0.ffn_norm.bias");
    write_mlp(&g);
    write_norm(&g, "output_norm.weight", "output_norm.bias");
    write_lm_head(&g, v);
    for (int i = 0; i < WORKED_VOCAB; i++)
        str_free(&v->token[i]);
    free(v);
    return g;
}
