/* The worked example, by hand: three tokens, d_model 4, one head of size 2, through the stages of
 * core/model one by one. Every number below was computed on paper, none by this program. */
#include "core/base/mem.h"
#include "core/kernel/attention.h"
#include "core/kernel/cpu.h"
#include "core/kv/seq.h"
#include "core/model/stages.h"
#include "tests/lib/matrix.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { N = 3, DIM = 4, HEAD = 2, FF = 5, PAGE = 16 };

static const float E[N][DIM] = {{1, 0, 1, 0}, {0, 2, 0, 1}, {1, 1, 0, -1}};
static const float P[N][DIM] = {{0, .5F, 0, 0}, {.5F, 0, 0, 0}, {0, 0, .5F, .5F}};
static const float WQ[DIM][HEAD] = {{1, 0}, {0, 1}, {1, 0}, {0, 1}};
static const float WK[DIM][HEAD] = {{0, 1}, {1, 0}, {0, 1}, {1, 0}};
static const float WV[DIM][HEAD] = {{1, 0}, {1, 1}, {0, 1}, {0, -1}};
static const float WO[HEAD][DIM] = {{1, 0, 0, 1}, {0, 1, 1, 0}};

static const double X[N][DIM] = {{1, .5, 1, 0}, {.5, 2, 0, 1}, {1, 1, .5, -.5}};
static const double Q[N][HEAD] = {{2, .5}, {.5, 3}, {1.5, .5}};
static const double K[N][HEAD] = {{.5, 2}, {3, .5}, {.5, 1.5}};
static const double V[N][HEAD] = {{1.5, 1.5}, {2.5, 1}, {2, 2}};
static const double S[N][N] = {
    {1.414214, 4.419417, 1.237437}, {4.419417, 2.121320, 3.358757}, {1.237437, 3.358757, 1.060660}};
static const double A[N][N] = {{1, 0, 0}, {.908719, .091281, 0}, {.098231, .819455, .082314}};
static const double O[N][HEAD] = {{1.5, 1.5}, {1.591281, 1.454360}, {2.360612, 1.131429}};
static const double NO_NORM[N][DIM] = {{2.5, 2, 2.5, 1.5},
                                       {2.091281, 3.454360, 1.454360, 2.591281},
                                       {3.360612, 2.131429, 1.631429, 1.860612}};
static const double LAYER_BEFORE[N][DIM] = {{1.603005, 2.610518, 3.110518, .603005},
                                            {1.103101, 4.110066, 2.110066, 1.603101},
                                            {2.039344, 1.318444, .818444, .539344}};
static const double RMS_BEFORE[N][DIM] = {{2.999982, 2.499982, 2.999982, 1.999982},
                                          {2.505184, 3.967804, 1.967804, 3.005184},
                                          {3.190066, 2.206683, 1.706683, 1.690066}};
static const double LAYER_AFTER[N][DIM] = {{.904508, -.301503, .904508, -1.507513},
                                           {-.419305, 1.445205, -1.290528, .264628},
                                           {1.670024, -.171695, -.920859, -.577469}};
static const double RMS_ON[N][DIM] = {{1.999998, 1.499998, 1.999998, .999998},
                                      {1.543900, 2.954078, .954078, 2.043900},
                                      {2.275295, 1.611242, 1.111242, .775295}};

static const float ONES[DIM] = {1, 1, 1, 1};

/* The example as a model of one layer, one worker and one timeline. */
struct fixture {
    struct arch arch;
    struct model m;
    struct layer layer;
    struct kv_pool *kv;
    struct seq seq;
    struct batch_row rows[N];
    struct batch batch;
    struct worker worker;
    struct step step;
};

/* Packs n_in x n_out numbers that stand as row vectors see them (y = x W), rows from `at`. */
static void pack(struct matrix *w, const float *row_form, uint32_t n_in, uint32_t n_out,
                 uint32_t at, float *file)
{
    for (uint32_t o = 0; o < n_out; o++)
        for (uint32_t i = 0; i < n_in; i++)
            file[(size_t)(at + o) * n_in + i] = row_form[(size_t)i * n_out + o];
    if (at + n_out == w->n_out)
        matrix_pack(w, QUANT_f32, (const uint8_t *)file, 0, w->n_out);
}

static void open_matrix(struct matrix *w, uint32_t n_out, uint32_t n_in)
{
    struct error err;
    assert_int_equal(matrix_open(w, QUANT_f32, n_out, n_in, &err), 0);
}

static void open_stack(struct stack *s, uint32_t n_out, uint32_t n_in)
{
    open_matrix(&s->w[0], n_out, n_in);
    s->n = 1;
    s->n_out = n_out;
    s->floats = true;
}

static void fixture_weights(struct fixture *f)
{
    struct weights *w = &f->m.w;
    struct layer *l = &f->layer;
    float qkv[3 * HEAD * DIM], out[DIM * HEAD];
    open_matrix(&w->embed, N, DIM);
    open_matrix(&w->position, N, DIM);
    matrix_pack(&w->embed, QUANT_f32, (const uint8_t *)E, 0, N);
    matrix_pack(&w->position, QUANT_f32, (const uint8_t *)P, 0, N);
    open_stack(&l->qkv, 3 * HEAD, DIM);
    pack(&l->qkv.w[0], WQ[0], DIM, HEAD, 0, qkv);
    pack(&l->qkv.w[0], WK[0], DIM, HEAD, HEAD, qkv);
    pack(&l->qkv.w[0], WV[0], DIM, HEAD, 2 * HEAD, qkv);
    open_stack(&l->out, DIM, HEAD);
    pack(&l->out.w[0], WO[0], HEAD, DIM, 0, out);
    w->layers = l;
}

static void fixture_open(struct fixture *f, enum norm_kind norm)
{
    const struct kv_geometry g = {1, 1, HEAD, PAGE, KV_F32};
    struct error err;
    *f = (struct fixture){.arch = {.id = "worked", .norm = norm, .pos = POS_LEARNED},
                          .worker = {0, 1, NULL}};
    f->m.h = (struct hparams){.arch = &f->arch,
                              .n_layers = 1,
                              .dim = DIM,
                              .n_heads = 1,
                              .n_kv_heads = 1,
                              .head_dim = HEAD,
                              .ff_dim = FF,
                              .n_vocab = N,
                              .n_ctx = N,
                              .norm_eps = 1e-5F};
    f->m.activations = ACTIVATIONS_FLOAT;
    f->m.max_rows = f->m.max_context = N;
    f->m.n_workers = 1;
    assert_int_equal(model_buffers_open(&f->m, &err), 0);
    fixture_weights(f);
    f->kv = kv_pool_open(&g, 1, &err);
    assert_non_null(f->kv);
    assert_int_equal(seq_open(&f->seq, f->kv, N, &err), 0);
    assert_true(seq_reserve(&f->seq, f->kv, N));
    seq_cover(&f->seq, f->kv, N);
}

static void fixture_close(struct fixture *f)
{
    matrix_close(&f->m.w.embed);
    matrix_close(&f->m.w.position);
    matrix_close(&f->layer.qkv.w[0]);
    matrix_close(&f->layer.out.w[0]);
    matrix_close(&f->layer.up.w[0]);
    matrix_close(&f->layer.up.w[1]);
    matrix_close(&f->layer.down.w[0]);
    seq_close(&f->seq, f->kv);
    kv_pool_close(f->kv);
    model_buffers_close(&f->m);
}

/* Rows first .. first + n - 1 of the three as a batch; token i at position i. */
static void fixture_begin(struct fixture *f, uint32_t first, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        f->rows[i] = (struct batch_row){first + i, first + i, &f->seq, (int32_t)i};
    f->batch = (struct batch){f->rows, n, n};
    plan_batch(&f->m, &f->batch, f->kv);
    f->step = step_begin(&f->m, &f->worker, &f->batch, f->kv);
}

/* The attention branch: embed, norm, QKV, attention, output, add. */
static void run_stages(struct fixture *f)
{
    embed_rows(&f->step);
    qkv_project(&f->step, 0);
    attention_apply(&f->step, 0);
    attn_out_project(&f->step, 0);
}

static void run_branch(struct fixture *f, uint32_t first, uint32_t n)
{
    fixture_begin(f, first, n);
    run_stages(f);
}

#define NEAR(got, want, what)                                                                      \
    do {                                                                                           \
        double got_ = (got), want_ = (want);                                                       \
        if (!(fabs(got_ - want_) < 1.5e-6))                                                        \
            fail_msg("%s: got %.7f, want %.7f", what, got_, want_);                                \
    } while (0)

static void assert_rows(const float *got, uint32_t stride, const double *want, uint32_t n,
                        const char *what)
{
    for (uint32_t r = 0; r < N; r++)
        for (uint32_t i = 0; i < n; i++)
            NEAR(got[r * stride + i], want[r * n + i], what);
}

static void test_x_q_k_v(void **state)
{
    struct fixture f;
    (void)state;
    fixture_open(&f, NORM_LAYER);
    fixture_begin(&f, 0, N);
    embed_rows(&f.step);
    assert_rows(f.step.a->x, DIM, X[0], DIM, "X");
    assert_rows(f.step.a->h.x, DIM, X[0], DIM, "X as the branch sees it"); /* no norm */
    run_stages(&f);
    assert_rows(f.step.a->qkv, 3 * HEAD, Q[0], HEAD, "Q");
    assert_rows(f.step.a->qkv + HEAD, 3 * HEAD, K[0], HEAD, "K");
    assert_rows(f.step.a->qkv + 2 * HEAD, 3 * HEAD, V[0], HEAD, "V");
    /* in the page K lies transposed, V as it is */
    const float *k = (const float *)(const void *)kv_page_k(f.kv, f.seq.pages[0], 0, 0);
    const float *v = (const float *)(const void *)kv_page_v(f.kv, f.seq.pages[0], 0, 0);
    for (int t = 0; t < N; t++)
        for (int d = 0; d < HEAD; d++) {
            assert_true(k[d * PAGE + t] == K[t][d]);
            assert_true(v[t * HEAD + d] == V[t][d]);
        }
    fixture_close(&f);
}

/* Scores of all pairs, then weights behind the mask, then what they bring. */
static void test_s_a_o(void **state)
{
    struct fixture f;
    float q[N * HEAD], s[N * PAGE], m[N], l[N], decay[N], o[N * HEAD], out[HEAD], floats[1];
    uint32_t n_keys[N] = {N, N, N};
    struct attention a = {N, HEAD, PAGE, q, n_keys, s, m, l, decay, o, floats};
    (void)state;
    fixture_open(&f, NORM_LAYER);
    run_branch(&f, 0, N);
    for (int r = 0; r < N; r++)
        for (int d = 0; d < HEAD; d++)
            q[r * HEAD + d] = f.step.a->qkv[r * 3 * HEAD + d] / sqrtf(HEAD);
    const void *k = kv_page_k(f.kv, f.seq.pages[0], 0, 0);
    const void *v = kv_page_v(f.kv, f.seq.pages[0], 0, 0);
    const struct attention_page page = {KV_F32, k, v, NULL, NULL, k, v};
    attention_begin(&a);
    attention_scores(&a, &page);
    assert_rows(s, PAGE, S[0], N, "S");
    for (uint32_t r = 0; r < N; r++)
        n_keys[r] = r + 1;
    attention_weights(&a, &page);
    for (int r = 0; r < N; r++) {
        for (int t = 0; t < PAGE; t++) {
            if (t > r)
                assert_true(s[r * PAGE + t] == 0 && !signbit(s[r * PAGE + t])); /* exactly */
            else
                NEAR(s[r * PAGE + t] / l[r], A[r][t], "A");
        }
    }
    attention_values(&a, &page);
    for (int r = 0; r < N; r++) {
        attention_end(1, l + r, o + r * HEAD, out, HEAD);
        for (int d = 0; d < HEAD; d++)
            NEAR(out[d], O[r][d], "O");
    }
    assert_rows(f.step.a->ctx.x, HEAD, O[0], HEAD, "O of the stage");
    fixture_close(&f);
}

static void check_norms(enum norm_kind kind, struct branch places, const double *want,
                        const char *what)
{
    struct fixture f;
    fixture_open(&f, kind);
    f.layer.attn = places;
    if (places.before.gain && kind == NORM_RMS) { /* which divides late */
        f.arch.norm_places = NORM_BEFORE;
        f.layer.ffn.before.gain = ONES;
    }
    run_branch(&f, 0, N);
    assert_rows(f.step.a->x, DIM, want, DIM, what);
    fixture_close(&f);
}

static void test_norms(void **state)
{
    const struct branch none = {0}, before = {.before = {.gain = ONES}},
                        on = {.on = {.gain = ONES}}, after = {.after = {.gain = ONES}};
    (void)state;
    check_norms(NORM_LAYER, none, NO_NORM[0], "without a norm");
    check_norms(NORM_LAYER, before, LAYER_BEFORE[0], "LayerNorm before the branch");
    check_norms(NORM_RMS, before, RMS_BEFORE[0], "RMSNorm before the branch");
    check_norms(NORM_RMS, on, RMS_ON[0], "RMSNorm on the branch");
    check_norms(NORM_LAYER, after, LAYER_AFTER[0], "LayerNorm after the add");
}

/* One token at a time gives the bits of all at once, at every CPU level. */
static void test_decode_is_prefill(void **state)
{
    (void)state;
    for (int level = 0; level < CPU_LEVELS; level = cpu_next(level)) {
        struct fixture all, one;
        cpu_force((enum cpu_level)level);
        fixture_open(&all, NORM_LAYER);
        fixture_open(&one, NORM_LAYER);
        all.layer.attn.before.gain = one.layer.attn.before.gain = ONES;
        run_branch(&all, 0, N);
        for (uint32_t t = 0; t < N; t++) {
            uint64_t before = one.m.scores;
            run_branch(&one, t, 1);
            assert_memory_equal(one.step.a->ctx.x, all.step.a->ctx.x + (size_t)t * HEAD,
                                HEAD * sizeof(float));
            assert_memory_equal(one.step.a->x, all.step.a->x + (size_t)t * DIM,
                                DIM * sizeof(float));
            assert_int_equal(one.m.scores - before, t + 1); /* at length t: t + 1 scores */
        }
        fixture_close(&all);
        fixture_close(&one);
    }
}

/* Another token j leaves rows i < j as they are, bit for bit, and changes row j. */
static void test_causality(void **state)
{
    struct fixture f, g;
    (void)state;
    for (uint32_t j = 0; j < N; j++) {
        fixture_open(&f, NORM_LAYER);
        fixture_open(&g, NORM_LAYER);
        run_branch(&f, 0, N);
        fixture_begin(&g, 0, N);
        g.rows[j].token = (j + 1) % N;
        run_stages(&g);
        assert_memory_equal(f.step.a->x, g.step.a->x, j * DIM * sizeof(float));
        assert_memory_not_equal(f.step.a->x + (size_t)j * DIM, g.step.a->x + (size_t)j * DIM,
                                DIM * sizeof(float));
        fixture_close(&f);
        fixture_close(&g);
    }
}

/* Some MLP with both biases, the same every time. */
static void add_mlp(struct fixture *f, bool gated, float *bias_up, float *bias_down)
{
    uint32_t n_up = gated ? 2 * FF : FF;
    float up[2 * FF * DIM], down[DIM * FF];
    f->arch.act = gated ? ACT_SILU : ACT_GELU_TANH;
    f->arch.flags = gated ? ARCH_GATED_MLP : 0;
    for (int i = 0; i < 2 * FF * DIM; i++)
        up[i] = sinf((float)i);
    for (int i = 0; i < DIM * FF; i++)
        down[i] = cosf((float)i);
    for (uint32_t i = 0; i < n_up; i++)
        bias_up[i] = .1F * (float)i - .3F;
    for (int i = 0; i < DIM; i++)
        bias_down[i] = .25F * (float)(i + 1);
    open_stack(&f->layer.up, FF, DIM);
    if (gated)
        open_matrix(&f->layer.up.w[1], FF, DIM);
    f->layer.up.n = gated ? 2 : 1;
    f->layer.up.n_out = n_up;
    open_stack(&f->layer.down, DIM, FF);
    f->layer.up.bias = bias_up;
    f->layer.down.bias = bias_down;
    for (uint32_t i = 0; i < f->layer.up.n; i++)
        matrix_pack(&f->layer.up.w[i], QUANT_f32, (const uint8_t *)(up + (size_t)i * FF * DIM), 0,
                    FF);
    matrix_pack(&f->layer.down.w[0], QUANT_f32, (const uint8_t *)down, 0, DIM);
}

/* The MLP branch of the rows: embed, norm, MLP, add. */
static void run_mlp(struct fixture *f, uint32_t first, uint32_t n)
{
    struct into into = branch_into(&f->layer.ffn, &f->layer.up);
    fixture_begin(f, first, n);
    embed_rows(&f->step);
    norm_rows(&f->step, &into, n, 0, n);
    mlp_forward(&f->step, 0);
}

/* Norm and MLP of a batch are those of its rows one by one. */
static void check_rowwise(enum norm_kind norm, bool late, bool gated)
{
    struct fixture all, one, *each[] = {&all, &one};
    float biases[2][2 * FF + DIM];
    for (int i = 0; i < 2; i++) {
        fixture_open(each[i], norm);
        add_mlp(each[i], gated, biases[i], biases[i] + 2 * FF);
        each[i]->arch.norm_places = late ? NORM_BEFORE : 0;
        each[i]->layer.attn.before.gain = each[i]->layer.ffn.before.gain = ONES;
        each[i]->m.w.output_norm.gain = ONES;
    }
    run_mlp(&all, 0, N);
    for (uint32_t r = 0; r < N; r++) {
        run_mlp(&one, r, 1);
        assert_memory_equal(one.step.a->h.x, all.step.a->h.x + (size_t)r * DIM,
                            DIM * sizeof(float));
        assert_memory_equal(one.step.a->x, all.step.a->x + (size_t)r * DIM, DIM * sizeof(float));
    }
    fixture_close(&all);
    fixture_close(&one);
}

static void test_rows_one_by_one(void **state)
{
    (void)state;
    for (int gated = 0; gated <= 1; gated++) {
        check_rowwise(NORM_LAYER, false, gated);
        check_rowwise(NORM_RMS, false, gated);
        check_rowwise(NORM_RMS, true, gated);
    }
}

/* A norm that divides late gives what one gives that divides at once. */
static void test_late_norm(void **state)
{
    struct fixture late, soon;
    float biases[2][2 * FF + DIM];
    (void)state;
    fixture_open(&late, NORM_RMS);
    fixture_open(&soon, NORM_RMS);
    add_mlp(&late, true, biases[0], biases[0] + 2 * FF);
    add_mlp(&soon, true, biases[1], biases[1] + 2 * FF);
    late.layer.ffn.before.gain = soon.layer.ffn.before.gain = ONES;
    late.layer.attn.before.gain = late.m.w.output_norm.gain = ONES;
    late.arch.norm_places = NORM_BEFORE;
    run_mlp(&late, 0, N);
    run_mlp(&soon, 0, N);
    for (uint32_t i = 0; i < N * DIM; i++)
        NEAR(late.step.a->x[i], soon.step.a->x[i], "x");
    fixture_close(&late);
    fixture_close(&soon);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_x_q_k_v),   cmocka_unit_test(test_s_a_o),
        cmocka_unit_test(test_norms),     cmocka_unit_test(test_decode_is_prefill),
        cmocka_unit_test(test_causality), cmocka_unit_test(test_rows_one_by_one),
        cmocka_unit_test(test_late_norm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
