/* Sampling: each stage against its definition, random numbers against published vectors, and what
 * the whole chain promises (bans, ties, NaN, determinism, logprobs before everything). */
#include "core/sample/chain.h"
#include "core/sample/rng.h"

#include <float.h>
#include <malloc.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static struct sample_params neutral(void)
{
    return (struct sample_params){
        .temperature = 1, .top_p = 1, .repeat_penalty = 1, .n_logprobs = -1};
}

/* One pick of a fresh sampler over a copy of logits. */
static struct sample_choice pick(const struct sample_params *p, const float *logits, uint32_t n,
                                 uint32_t pos)
{
    struct sample_choice choice;
    float *copy = malloc(n * sizeof(*copy));
    struct sampler *s = sampler_open(p, n, NULL);
    assert_non_null(s);
    memcpy(copy, logits, n * sizeof(*copy));
    sampler_pick(s, copy, pos, NULL, 0, NULL, 0, &choice);
    sampler_close(s);
    free(copy);
    return choice;
}

static uint64_t noise_state = 1;
static double noise(void) /* in [0, 1) */ { return rng_uniform(77, noise_state++); }

static void fill_noise(float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] = (float)(8 * noise() - 4);
}

static void test_philox_is_the_published_one(void **state)
{
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        uint32_t out[4];
        rng_philox(known[i].counter, known[i].key, out);
        assert_memory_equal(out, known[i].out, sizeof(out));
    }
    double sum = 0;
    for (uint64_t i = 0; i < 10000; i++) {
        double u = rng_uniform(42, i);
        assert_true(u >= 0 && u < 1);
        sum += u;
    }
    assert_true(fabs(sum / 10000 - 0.5) < 0.01);
    assert_true(rng_uniform(1, 5) != rng_uniform(2, 5) && rng_uniform(1, 5) != rng_uniform(1, 6));
    assert_true(rng_uniform(1, 5) != rng_uniform(1ull << 32 | 1, 5));
}

static void test_greedy(void **state)
{
    (void)state;
    struct sample_params p = neutral();
    p.temperature = 0;
    p.top_k = 40;
    p.top_p = 0.95;
    p.min_p = 0.05;
    assert_int_equal(pick(&p, (float[]){1, 3, 2, 3}, 4, 0).id, 1); /* a tie: the lowest id */
    assert_int_equal(pick(&p, (float[]){NAN, -5, NAN, -6}, 4, 0).id, 1);
    assert_int_equal(pick(&p, (float[]){1, INFINITY, NAN, INFINITY}, 4, 0).id, 1);
    assert_int_equal(pick(&p, (float[]){-INFINITY, -INFINITY}, 2, 0).id, 0);
    assert_int_equal(pick(&p, (float[]){7}, 1, 0).id, 0);
}

static void test_bans(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        struct sample_params p = neutral();
        struct sample_choice choice;
        p.temperature = t;
        struct sampler *s = sampler_open(&p, 4, NULL);
        for (uint32_t pos = 0; pos < 50; pos++) {
            float logits[4] = {9, 9, -INFINITY, 1};
            sampler_pick(s, logits, pos, NULL, 0, (uint32_t[]){0, 1, 77}, 3, &choice);
            assert_int_equal(choice.id, 3);
            float all[4] = {NAN, NAN, NAN, NAN};
            sampler_pick(s, all, pos, NULL, 0, (uint32_t[]){1, 0}, 2, &choice);
            assert_int_equal(choice.id, 2); /* nothing is left: the lowest that is not banned */
        }
        sampler_close(s);
    }
}

/* Every token banned by the request: what is chosen is the same, and takes no longer for it. */
static void test_all_banned(void **state)
{
    (void)state;
    enum { N = 65536 };
    static struct logit_bias biases[N];
    static float logits[N];
    struct sample_choice choice;
    struct timespec begin, end;
    struct sample_params p = neutral();
    p.biases = biases;
    p.n_biases = N;
    for (uint32_t i = 0; i < N; i++)
        biases[i] = (struct logit_bias){N - 1 - i, -INFINITY};
    struct sampler *s = sampler_open(&p, N, NULL);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    sampler_pick(s, logits, 0, NULL, 0, (uint32_t[]){0, 1, N + 5}, 3, &choice);
    assert_int_equal(choice.id, 2); /* the lowest of those that only the request banned */
    biases[10].id = 0;              /* N - 11 is banned no more */
    struct sampler *but_one = sampler_open(&p, N, NULL);
    memset(logits, 0xFF, sizeof(logits)); /* NaN: nothing is left */
    sampler_pick(but_one, logits, 0, NULL, 0, (uint32_t[]){0, 1}, 2, &choice);
    assert_int_equal(choice.id, N - 11);
    sampler_pick(but_one, logits, 0, NULL, 0, (uint32_t[]){N - 11}, 1, &choice);
    assert_int_equal(choice.id, 0);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    assert_true((double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9 <
                0.5);
    sampler_close(s);
    sampler_close(but_one);
}

static void test_bias(void **state)
{
    (void)state;
    struct logit_bias biases[] = {{2, 3}, {2, 3}, {0, -INFINITY}};
    struct sample_params p = neutral();
    p.temperature = 0;
    p.biases = biases;
    p.n_biases = 3;
    assert_int_equal(pick(&p, (float[]){9, 5, 0}, 3, 0).id, 2); /* twice 3 is more than 5 */
    assert_int_equal(pick(&p, (float[]){9, 7, 0}, 3, 0).id, 1); /* and 0 is banned */
    assert_int_equal(pick(&p, (float[]){9, -INFINITY, -INFINITY}, 3, 0).id, 1);
}

static void test_penalties(void **state)
{
    (void)state;
    static const uint32_t timeline[] = {3, 0, 1, 1, 0, 9};
    struct sample_params p = neutral();
    float x[4];
    uint32_t count[4] = {0};
    struct chain ch = {.params = &p,
                       .logits = x,
                       .n_vocab = 4,
                       .timeline = timeline,
                       .n_timeline = 6,
                       .count = count};
    p.repeat_penalty = 2;
    p.presence_penalty = 0.5;
    p.frequency_penalty = 0.25;
    p.repeat_last_n = 5; /* without the 3; 9 is no token of this vocabulary */
    for (int again = 0; again < 2; again++) {
        for (uint32_t i = 0; i < 4; i++)
            x[i] = i == 1 ? -4.0f : 4.0f;
        sampler_penalties(&ch);
        assert_float_equal(x[0], 4.0 / 2 - 2 * 0.25 - 0.5, 0);
        assert_float_equal(x[1], -4.0 * 2 - 2 * 0.25 - 0.5, 0);
        assert_float_equal(x[2], 4, 0);
        assert_float_equal(x[3], 4, 0);
    }
    p.repeat_last_n = -1;
    sampler_penalties(&ch);
    assert_float_equal(x[3], 4.0 / 2 - 0.25 - 0.5, 0);
    assert_float_equal(x[2], 4, 0);
    p.repeat_last_n = 1000; /* longer than the timeline */
    sampler_penalties(&ch);
    assert_float_equal(x[2], 4, 0);
}

/* ---- stages that remove, against sorting everything ---- */

static int by_order(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return candidate_before(*x, *y) ? -1 : 1;
}

enum { N = 1500 };
static struct candidate got[N], want[N];
static double block[N / CHAIN_BLOCK + 1];

static struct chain random_chain(const struct sample_params *p, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        float x = (float)(floor(noise() * 40) / 4); /* many ties */
        got[i] = want[i] = (struct candidate){i, noise() < 0.02 ? -INFINITY : x};
    }
    qsort(want, n, sizeof(*want), by_order);
    return (struct chain){.params = p, .c = got, .n = n, .n_vocab = n, .block = block};
}

static void expect_best(const struct chain *ch, uint32_t m)
{
    assert_int_equal(ch->n, m);
    for (uint32_t i = 0; i < m; i++)
        assert_int_equal(got[i].id, want[i].id);
}

static void test_top_k(void **state)
{
    static const uint32_t ks[] = {1, 2, 3, 40, 749, 750, 751, 1499, 1500, 4000};
    (void)state;
    for (size_t i = 0; i < sizeof(ks) / sizeof(ks[0]); i++) {
        struct sample_params p = neutral();
        p.top_k = ks[i];
        struct chain ch = random_chain(&p, N);
        sampler_top_k(&ch);
        if (ks[i] < N)
            expect_best(&ch, ks[i]);
        else
            assert_int_equal(ch.n, N);
    }
}

/* ---- the quick ways, against the definition: all candidates through all stages ---- */

static uint32_t pick_plainly(const struct sample_params *p, const float *logits, uint32_t n,
                             uint32_t pos, struct candidate *c, double *sums)
{
    struct chain ch = {.params = p, .c = c, .n = n, .n_vocab = n, .pos = pos, .block = sums};
    for (uint32_t id = 0; id < n; id++)
        c[id] = (struct candidate){id, logit_clean(logits[id])};
    sampler_greedy(&ch);
    sampler_top_k(&ch);
    sampler_top_p(&ch);
    sampler_min_p(&ch);
    sampler_temperature(&ch);
    sampler_draw(&ch);
    return c[0].logit > -INFINITY ? c[0].id : 0;
}

/* Noise, few values with many ties, one block of all that is possible, specials, nothing at all. */
static void fill_kind(float *x, uint32_t n, int kind)
{
    for (uint32_t i = 0; i < n; i++) {
        double u = noise(), v = noise();
        x[i] = (float)(kind == 1 ? floor(u * 3) : 20 * u * u * u);
        if (kind == 2 && i / 50 != 7)
            x[i] = -INFINITY;
        if (kind == 3 && v < 0.3)
            x[i] = v < 0.1 ? NAN : v < 0.2 ? INFINITY : -INFINITY;
        if (kind == 4)
            x[i] = v < 0.5 ? NAN : -INFINITY;
        if (kind == 5)
            x[i] = v < 0.1 ? INFINITY : v < 0.2 ? FLT_MAX : 0.0f;
        if (kind == 6)
            x[i] = v < 0.5 ? -0.0f : 0.0f;
    }
}

static void test_quick_ways_choose_the_same(void **state)
{
    enum { MOST = 5000, KINDS = 7 };
    static const uint32_t sizes[] = {1, 63, 64, 65, 128, 1000, 4096, MOST};
    static const uint32_t ks[] = {0, 1, 2, 15, 16, 40, 63, 64, 65, 100};
    static float logits[MOST];
    static struct candidate c[MOST];
    static double sums[MOST / CHAIN_BLOCK + 1];
    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (size_t k = 0; k < sizeof(ks) / sizeof(ks[0]); k++)
            for (int kind = 0; kind < KINDS; kind++)
                for (uint32_t pos = 0; pos < 6; pos++) {
                    struct sample_params p = neutral();
                    p.temperature = pos % 3 * 0.7;
                    p.top_k = ks[k];
                    p.top_p = pos == 1 ? 0.9 : 1;
                    p.min_p = pos == 2 ? 0.05 : 0;
                    p.seed = 5;
                    fill_kind(logits, sizes[i], kind);
                    uint32_t id = pick_plainly(&p, logits, sizes[i], pos, c, sums);
                    assert_int_equal(pick(&p, logits, sizes[i], pos).id, id);
                }
}

/* Where the k best are enough, the stages see few: the work of a pick is one pass over the logits. */
static void test_few_candidates(void **state)
{
    enum { MANY = 49152 };
    static float logits[MANY], peak[MANY / CHAIN_PEAK + 1];
    static struct candidate c[MANY];
    (void)state;
    for (uint32_t k = 1; k <= 40; k += 39) {
        struct sample_params p = neutral();
        p.top_k = k;
        struct chain ch = {.params = &p, .logits = logits, .c = c, .n_vocab = MANY, .peak = peak};
        fill_noise(logits, MANY);
        sampler_candidates(&ch);
        assert_true(ch.n >= k && ch.n < 4 * k);
    }
}

static uint32_t nucleus(uint32_t n, double top_p)
{
    double total = 0, sum = 0;
    for (uint32_t i = 0; i < n; i++)
        total += exp((double)want[i].logit - (double)want[0].logit);
    for (uint32_t i = 0; i < n; i++) {
        sum += exp((double)want[i].logit - (double)want[0].logit);
        if (sum >= top_p * total - 1e-9 * total)
            return i + 1;
    }
    return n;
}

static void test_top_p(void **state)
{
    static const double ps[] = {-1, 0, 1e-9, 0.1, 0.3, 0.5001, 0.9, 0.95, 0.999};
    (void)state;
    for (size_t i = 0; i < sizeof(ps) / sizeof(ps[0]); i++)
        for (uint32_t top_k = 0; top_k <= 40; top_k += 40) {
            struct sample_params p = neutral();
            p.top_k = top_k;
            p.top_p = ps[i];
            struct chain ch = random_chain(&p, N);
            sampler_top_k(&ch);
            sampler_top_p(&ch);
            expect_best(&ch, nucleus(top_k ? top_k : N, ps[i]));
        }
    struct sample_params off = neutral();
    struct chain ch = random_chain(&off, N);
    sampler_top_p(&ch);
    assert_int_equal(ch.n, N);
}

static void test_min_p(void **state)
{
    (void)state;
    struct sample_params p = neutral();
    struct candidate c[] = {{0, 1}, {1, 3}, {2, (float)(3 + log(0.5)) + 1e-5f}, {3, 2}, {4, 3}};
    struct chain ch = {.params = &p, .c = c, .n = 5, .n_vocab = 5};
    p.min_p = 0.5;
    sampler_min_p(&ch);
    assert_int_equal(ch.n, 3);
    assert_int_equal(c[0].id, 1);
    assert_int_equal(c[1].id, 2);
    assert_int_equal(c[2].id, 4);
    p.min_p = 5; /* more than all: the best remain */
    sampler_min_p(&ch);
    assert_int_equal(ch.n, 2);
}

static void test_draw_follows_the_distribution(void **state)
{
    static const float logits[] = {0, 1, -INFINITY, 2, 1};
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct sample_params p = neutral();
        double weight[5], total = 0, chi = 0;
        uint32_t seen[5] = {0};
        p.temperature = k ? 0.7 : 1;
        p.seed = 42;
        struct sampler *s = sampler_open(&p, 5, NULL);
        for (int i = 0; i < 5; i++)
            total += weight[i] = exp((double)logits[i] / p.temperature);
        for (uint32_t pos = 0; pos < 20000; pos++) {
            struct sample_choice choice;
            float copy[5];
            memcpy(copy, logits, sizeof(copy));
            sampler_pick(s, copy, pos, NULL, 0, NULL, 0, &choice);
            seen[choice.id]++;
        }
        sampler_close(s);
        assert_int_equal(seen[2], 0);
        for (int i = 0; i < 5; i++) {
            double expected = 20000 * weight[i] / total;
            if (i != 2)
                chi += (seen[i] - expected) * (seen[i] - expected) / expected;
        }
        assert_true(chi < 16.3); /* 3 degrees of freedom, one in a thousand; the seed is fixed */
    }
}

/* The choice is that of the running sum over all candidates, whatever the blocks. */
static void test_draw_from_all(void **state)
{
    enum { ALL = 5000 };
    static float logits[ALL];
    (void)state;
    struct sample_params p = neutral();
    fill_noise(logits, ALL);
    for (uint32_t i = 1000; i < 2100; i++)
        logits[i] = -INFINITY; /* whole blocks of nothing */
    for (uint32_t i = ALL - 700; i < ALL; i++)
        logits[i] = -INFINITY;
    double max = -INFINITY, total = 0;
    for (uint32_t i = 0; i < ALL; i++)
        max = fmax(max, (double)logits[i]);
    for (uint32_t i = 0; i < ALL; i++)
        total += exp((double)logits[i] - max);
    for (p.seed = 0; p.seed < 300; p.seed++) {
        uint32_t id = pick(&p, logits, ALL, 9).id;
        double at = rng_uniform(p.seed, 9) * total, before = 0;
        assert_true(logits[id] > -INFINITY);
        for (uint32_t i = 0; i < id; i++)
            before += exp((double)logits[i] - max);
        double after = before + exp((double)logits[id] - max);
        assert_true(before <= at + 1e-6 && after >= at - 1e-6);
    }
}

/* The largest random number there is finds a possible candidate though sums are rounded. */
static void test_draw_at_the_end(void **state)
{
    (void)state;
    struct sample_params p = neutral();
    double most = 0;
    for (uint64_t seed = 0; seed < 200000; seed++)
        if (rng_uniform(seed, 0) > most) {
            most = rng_uniform(seed, 0);
            p.seed = seed;
        }
    assert_true(most > 0.9999);
    static float logits[1000];
    for (int i = 0; i < 1000; i++)
        logits[i] = i < 3 ? 0 : -INFINITY;
    assert_int_equal(pick(&p, logits, 1000, 0).id, 2);
}

static void test_extreme_temperatures(void **state)
{
    static const double ts[] = {5e-324, 1e-300, 1e-6, 2, 1e300};
    (void)state;
    for (size_t i = 0; i < sizeof(ts) / sizeof(ts[0]); i++) {
        struct sample_params p = neutral();
        p.temperature = ts[i];
        uint32_t id = pick(&p, (float[]){-FLT_MAX, FLT_MAX, NAN, -INFINITY}, 4, 3).id;
        assert_true(id == 1 || (ts[i] > 1e200 && id == 0));
    }
}

static void test_depends_on_seed_and_position_alone(void **state)
{
    static float logits[300];
    uint32_t first[40], differ = 0;
    (void)state;
    struct sample_params p = neutral();
    p.top_k = 40;
    p.top_p = 0.95;
    p.min_p = 0.05;
    p.seed = 42;
    fill_noise(logits, 300);
    for (uint32_t pos = 0; pos < 40; pos++)
        first[pos] = pick(&p, logits, 300, pos).id;
    for (uint32_t pos = 40; pos-- > 0;)
        assert_int_equal(pick(&p, logits, 300, pos).id, first[pos]);
    p.seed = 43;
    for (uint32_t pos = 0; pos < 40; pos++)
        differ += pick(&p, logits, 300, pos).id != first[pos];
    assert_true(differ > 20);
}

static void test_logprobs_come_before_everything(void **state)
{
    static float logits[500];
    (void)state;
    struct logit_bias bias = {7, 50};
    struct sample_params p = neutral();
    fill_noise(logits, 500);
    logits[3] = -INFINITY;
    logits[4] = NAN;
    logits[11] = logits[200] = 6; /* the two best, equal */
    p.temperature = 0;
    p.biases = &bias;
    p.n_biases = 1;
    p.n_logprobs = 20;
    struct sample_choice choice = pick(&p, logits, 500, 0);
    long double sum = 0;
    for (int i = 0; i < 500; i++)
        sum += isnan(logits[i]) ? 0 : expl((long double)logits[i]);
    assert_int_equal(choice.id, 7); /* by its bias */
    assert_float_equal(choice.logprob, (double)((long double)logits[7] - logl(sum)), 1e-5);
    assert_int_equal(choice.n_top, 20);
    assert_int_equal(choice.top[0].id, 11);
    assert_int_equal(choice.top[1].id, 200);
    for (int i = 0; i < 20; i++) {
        uint32_t id = choice.top[i].id;
        assert_float_equal(choice.top[i].logprob, (double)((long double)logits[id] - logl(sum)),
                           1e-5);
        assert_true(i == 0 || choice.top[i].logprob <= choice.top[i - 1].logprob);
    }
    for (int i = 0, better = 0; i < 500; i++) { /* none was forgotten */
        better += logits[i] > logits[choice.top[19].id];
        assert_true(better <= 19);
    }
    p.n_logprobs = 0;
    choice = pick(&p, logits, 500, 0);
    assert_int_equal(choice.n_top, 0);
    assert_float_equal(choice.logprob, (double)((long double)logits[7] - logl(sum)), 1e-5);
}

static void test_logprobs_of_the_impossible(void **state)
{
    (void)state;
    struct sample_params p = neutral();
    p.n_logprobs = 4;
    struct sample_choice choice = pick(&p, (float[]){-INFINITY, 2, NAN}, 3, 0);
    assert_int_equal(choice.id, 1);
    assert_float_equal(choice.logprob, 0, 0);
    assert_int_equal(choice.n_top, 3);
    assert_int_equal(choice.top[0].id, 1);
    assert_int_equal(choice.top[1].id, 0);
    assert_int_equal(choice.top[2].id, 2);
    assert_float_equal(choice.top[1].logprob, -9999, 0);
    choice = pick(&p, (float[]){NAN, NAN}, 2, 0);
    assert_int_equal(choice.id, 0);
    assert_float_equal(choice.logprob, -9999, 0);
}

static void test_refuses_by_name(void **state)
{
    struct logit_bias outside = {4, 1}, no_number = {1, NAN};
    struct {
        const char *field;
        struct sample_params p;
    } bad[12];
    int n = 0;
    (void)state;
#define BAD(name, set)                                                                             \
    do {                                                                                           \
        bad[n].field = (name);                                                                     \
        bad[n].p = neutral();                                                                      \
        bad[n++].p.set;                                                                            \
    } while (0)
    BAD("temperature", temperature = -1);
    BAD("temperature", temperature = NAN);
    BAD("top_p", top_p = NAN);
    BAD("min_p", min_p = NAN);
    BAD("repeat_penalty", repeat_penalty = 0);
    BAD("presence_penalty", presence_penalty = INFINITY);
    BAD("frequency_penalty", frequency_penalty = NAN);
    BAD("logprobs", n_logprobs = 21);
    BAD("logit_bias", n_biases = 1);
    bad[n - 1].p.biases = &outside;
    BAD("logit_bias", n_biases = 1);
    bad[n - 1].p.biases = &no_number;
    for (int i = 0; i < n; i++) {
        struct error err = {0};
        assert_null(sampler_open(&bad[i].p, 4, &err));
        assert_int_equal(err.code, ERR_INVALID);
        assert_string_equal(err.param, bad[i].field);
    }
}

static void test_pick_allocates_nothing(void **state)
{
    static float logits[4000];
    static const uint32_t timeline[] = {1, 2, 3};
    (void)state;
    struct sample_params p = neutral();
    struct sample_choice choice;
    p.top_p = 0.9;
    p.min_p = 0.01;
    p.repeat_penalty = 1.1;
    p.repeat_last_n = 64;
    p.n_logprobs = 20;
    fill_noise(logits, 4000);
    struct sampler *s = sampler_open(&p, 4000, NULL);
    struct mallinfo2 before = mallinfo2();
    for (uint32_t pos = 0; pos < 20; pos++)
        sampler_pick(s, logits, pos, timeline, 3, NULL, 0, &choice);
    struct mallinfo2 after = mallinfo2();
    assert_int_equal(before.uordblks, after.uordblks);
    assert_int_equal(before.hblks, after.hblks);
    sampler_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_is_the_published_one),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_bans),
        cmocka_unit_test(test_all_banned),
        cmocka_unit_test(test_bias),
        cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_top_k),
        cmocka_unit_test(test_quick_ways_choose_the_same),
        cmocka_unit_test(test_few_candidates),
        cmocka_unit_test(test_top_p),
        cmocka_unit_test(test_min_p),
        cmocka_unit_test(test_draw_follows_the_distribution),
        cmocka_unit_test(test_draw_from_all),
        cmocka_unit_test(test_draw_at_the_end),
        cmocka_unit_test(test_extreme_temperatures),
        cmocka_unit_test(test_depends_on_seed_and_position_alone),
        cmocka_unit_test(test_logprobs_come_before_everything),
        cmocka_unit_test(test_logprobs_of_the_impossible),
        cmocka_unit_test(test_refuses_by_name),
        cmocka_unit_test(test_pick_allocates_nothing),
    };
    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
