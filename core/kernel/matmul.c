/* [kernel] matrices packed into panels, and the loop over panels and rows around their kernels. */
#include "core/kernel/matmul.h"

#include "core/base/mem.h"
#include "core/kernel/blas.h"
#include "core/kernel/panel_float.h"
#include "core/kernel/panel_int.h"
#include "core/kernel/simd.h"

#include <string.h>

/* Tiles of X taken at a time (planes.h) and their rows. */
enum { TILES = 30, ROWS = TILES * PLANES_TILE, FLOAT_BLOCKS = 4 };

static bool use_blas;

int matrix_shape(struct matrix *w, enum quant_id type, uint32_t n_out, uint32_t n_in,
                 struct error *err)
{
    const struct quant *q = &quant_table[type];
    *w = (struct matrix){.panel = q->panel, .n_out = n_out, .n_in = n_in};
    if (n_out == 0 || n_in == 0 || n_in % q->block_elems)
        return error_set(err, ERR_FORMAT, "matrix of %u x %u: rows of %s are multiples of %u",
                         n_out, n_in, q->name, q->block_elems);
    w->n_panels = n_out / PANEL_ROWS + (n_out % PANEL_ROWS != 0);
    w->panel_bytes = panel_table[q->panel]->n_bytes(n_in);
    if (__builtin_mul_overflow(w->panel_bytes, (size_t)w->n_panels, &w->n_bytes))
        return error_set(err, ERR_FORMAT, "matrix of %u x %u: too large", n_out, n_in);
    return 0;
}

void matrix_place(struct matrix *w, uint8_t *panels, size_t panel_bytes)
{
    w->panels = panels;
    w->panel_bytes = panel_bytes;
}

void matrix_pack(struct matrix *w, enum quant_id type, const uint8_t *data, uint32_t out_begin,
                 uint32_t n_rows)
{
    const struct quant *q = &quant_table[type];
    size_t row_bytes = (size_t)w->n_in / q->block_elems * q->block_bytes;
    ASSERT(q->panel == w->panel && out_begin <= w->n_out && n_rows <= w->n_out - out_begin);
    for (uint32_t i = 0; i < n_rows; i++) {
        uint32_t o = out_begin + i;
        q->pack(w->panels + o / PANEL_ROWS * w->panel_bytes, o % PANEL_ROWS, data + i * row_bytes,
                w->n_in);
    }
}

void matrix_row(const struct matrix *w, uint32_t row, float *out)
{
    ASSERT(row < w->n_out);
    panel_table[w->panel]->unpack(w->panels + row / PANEL_ROWS * w->panel_bytes, row % PANEL_ROWS,
                                  w->n_in, out);
}

static uint32_t n_planes(enum activations a)
{
    return a == ACTIVATIONS_INT16 ? 2 : a == ACTIVATIONS_INT8 ? 1 : 0;
}

size_t matmul_input_bytes(uint32_t n_rows, uint32_t n_in, enum activations activations)
{
    if (!n_planes(activations))
        return 0;
    struct planes p = planes_layout(n_rows, n_in, n_planes(activations), NULL);
    return (planes_bytes(&p) + 63) / 64 * 64;
}

void matmul_quantise(const struct matmul_input *in, uint32_t begin, uint32_t end)
{
    struct planes_part part = {.x = in->x + (size_t)begin * in->n_in,
                               .stride = in->n_in,
                               .row = begin,
                               .n_rows = end - begin,
                               .n = in->n_in};
    matmul_quantise_part(in, &part);
}

void matmul_quantise_part(const struct matmul_input *in, const struct planes_part *part)
{
    if (!in->buffer || !n_planes(in->activations))
        return;
    struct planes p = planes_layout(in->n_rows, in->n_in, n_planes(in->activations), in->buffer);
    planes_quantise(&p, part);
}

float matmul_least(float value) { return planes_scale(value); }

size_t matmul_fine_bytes(uint32_t n_rows, uint32_t n_in) { return fine_bytes(n_rows, n_in); }

void matmul_choose(struct matmul_input *in, const float *least, uint8_t *room)
{
    struct planes p = planes_layout(in->n_rows, in->n_in, n_planes(in->activations), in->buffer);
    in->fine = room;
    if (in->buffer && p.n_planes == 2)
        fine_choose(&p, least, room);
}

/* Tiles that are computed on together: tile i has rows [row[i], row[i + 1]), and run[i] multiplies it,
 * or NULL: int_multiply_scalar. */
struct tiles {
    uint32_t first, n; /* of all tiles */
    uint32_t row[TILES + 1];
    int_tile_fn *run[TILES];
    uint32_t chunk;           /* so many blocks after the other, about as many each time */
    uint32_t n_lines;         /* to fetch for each block and tile */
    bool decoded, on_the_way; /* blocks are decoded, and by the first tile */
};

static uint32_t tile_rows(const struct tiles *t, uint32_t i) { return t->row[i + 1] - t->row[i]; }

/* The tiles that read blocks of a panel as they are, or NULL: for some of these rows there is none. Few
 * rows do; reading 4 bits pays even twice, unless the first time can decode for the second. */
static int_tile_fn *const *direct_tiles(const struct panel *p, const struct planes *x,
                                        const struct tiles *t)
{
    bool twice = x->n_tiles == 2 && p->format->bits == 4 &&
                 !(p->first && p->first->tile[cpu_level()][0][PLANES_TILE - 1]);
    if (!p->direct || (x->n_tiles > 1 && !twice))
        return NULL;
    int_tile_fn *const *tiles = p->direct->tile[cpu_level()][x->n_planes - 1];
    return tiles[tile_rows(t, t->n - 1) - 1] ? tiles : NULL;
}

/* Who multiplies these tiles. Each fetches its share of as many blocks as a chunk has, after it; with
 * many tiles only the first ones fetch. A single tile of blocks as they are takes all at once, and
 * fetches what it will read itself. */
static void choose_runs(const struct panel *p, const struct planes *x, struct tiles *t)
{
    const enum cpu_level level = cpu_level();
    int_tile_fn *const *direct = direct_tiles(p, x, t), *first = NULL;
    const bool whole = direct && x->n_tiles == 1;
    const uint32_t n_chunks = (x->n_blocks + INT_CHUNK - 1) / INT_CHUNK;
    const uint32_t n_lines = (int_block_bytes(p->format->bits, p->format->scales) + 63) / 64;
    ASSERT(t->n > 0 && n_chunks > 0);
    for (uint32_t i = 0; i < t->n; i++)
        t->run[i] = direct ? direct[tile_rows(t, i) - 1]
                           : int_tile(level, p->format, x->n_planes, tile_rows(t, i));
    if (!direct && p->first)
        first = p->first->tile[level][x->n_planes - 1][tile_rows(t, 0) - 1];
    t->run[0] = first ? first : t->run[0];
    t->decoded = !direct;
    t->on_the_way = first;
    t->chunk = whole ? x->n_blocks : (x->n_blocks + n_chunks - 1) / n_chunks;
    t->n_lines = whole ? 0 : (n_lines + t->n - 1) / t->n;
}

/* Tile i of the job's blocks. */
static void set_tile(const struct planes *x, const uint8_t *fine, const struct tiles *t, uint32_t i,
                     struct int_product *job)
{
    const size_t n_bytes = planes_record(tile_rows(t, i)).n_bytes;
    job->x = x->rows + t->row[i] * x->row_bytes + job->begin * n_bytes;
    job->low = job->x + x->n_blocks * n_bytes;
    job->fine = fine ? fine + (size_t)(t->first + i) * x->n_blocks + job->begin : NULL;
}

/* What is fetched for others with the job's blocks. */
static void set_fetch(struct matmul_fetch *f, struct int_product *job)
{
    job->n_fetch = 0;
    if (!f || (f->at >= f->end && (!f->more || !f->more(f))))
        return;
    job->fetch = f->at;
    job->n_fetch = INT_FETCH_LINES;
    f->at += (size_t)64 * INT_FETCH_LINES * job->n;
}

/* Tiles whose acc starts at 0: some blocks after the other, all tiles. */
static void run_int(const struct panel *p, const uint8_t *w, const struct planes *x,
                    const uint8_t *fine, const struct tiles *t, struct matmul_fetch *fetch,
                    float *acc)
{
    const struct int_format *f = p->format;
    struct int_decoded decoded;
    struct int_product job = {.w = w, .decoded = &decoded};
    for (; job.begin < x->n_blocks; job.begin += t->chunk) {
        job.n = x->n_blocks - job.begin < t->chunk ? x->n_blocks - job.begin : t->chunk;
        job.acc = acc;
        if (t->decoded)
            p->decode[cpu_level()](w, job.begin, t->on_the_way ? 0 : job.n, &decoded);
        job.ahead = w + int_block_at(f->bits, f->scales, job.begin + job.n);
        const uint8_t *end = w + int_block_at(f->bits, f->scales, job.begin + 2 * job.n);
        job.n_ahead = t->n_lines;
        for (uint32_t i = 0; i < t->n; i++) {
            set_tile(x, fine, t, i, &job);
            set_fetch(tile_rows(t, i) < INT_FETCH_ROWS ? NULL : fetch, &job);
            if (t->run[i])
                t->run[i](&job);
            else
                int_multiply_scalar(f, x->n_planes, tile_rows(t, i), &job);
            job.acc += (size_t)tile_rows(t, i) * PANEL_ROWS;
            job.ahead += 64UL * job.n_ahead * job.n;
            job.n_ahead = job.ahead < end ? job.n_ahead : 0;
        }
    }
}

/* Quantised weights, float activations: the exact path. */
static void run_exact(const struct panel *p, const uint8_t *w, const struct matmul_input *in,
                      uint32_t row, uint32_t n_rows, float *acc)
{
    enum cpu_level level = cpu_level();
    struct int_decoded decoded;
    _Alignas(64) float values[FLOAT_BLOCKS * PLANES_BLOCK][PANEL_ROWS];
    uint32_t n_blocks = in->n_in / PLANES_BLOCK;
    for (uint32_t b = 0; b < n_blocks; b += FLOAT_BLOCKS) {
        uint32_t n = n_blocks - b < FLOAT_BLOCKS ? n_blocks - b : FLOAT_BLOCKS;
        p->decode[level](w, b, n, &decoded);
        int_floats(level, p->format, &decoded, n, values[0]);
        panel_table[PANEL_f32]->floats[level](
            (const uint8_t *)values, n * PLANES_BLOCK,
            in->x + (size_t)row * in->n_in + (size_t)b * PLANES_BLOCK, in->n_in, n_rows, acc);
    }
}

/* Sums of a panel to their places: scale [n_rows] or NULL, bias [n_out]. */
struct store_job {
    const float *acc, *scale, *bias;
    float *y;
    size_t stride;
    uint32_t n_rows;
    bool add;
};

SIMD_INLINE void store_rows(const struct store_job *job, const uint32_t n_out)
{
    const float *restrict acc = job->acc, *restrict bias = job->bias;
    float *restrict y = job->y;
    for (uint32_t r = 0; r < job->n_rows; r++, acc += PANEL_ROWS, y += job->stride) {
        const float s = job->scale ? job->scale[r] : 1;
        if (job->add)
            for (uint32_t o = 0; o < n_out; o++)
                y[o] += acc[o] + bias[o];
        else
            for (uint32_t o = 0; o < n_out; o++)
                y[o] = s * acc[o] + bias[o];
    }
}

static void store_scalar(const struct store_job *job) { store_rows(job, PANEL_ROWS); }
#if defined(__x86_64__)
TARGET_AVX2 static void store_avx2(const struct store_job *job) { store_rows(job, PANEL_ROWS); }
TARGET_AVX512 static void store_avx512(const struct store_job *job) { store_rows(job, PANEL_ROWS); }
#endif

typedef void store_fn(const struct store_job *job);
static store_fn *const stores[CPU_LEVELS] = CPU_BY_WIDTH(store);

/* Whether rows of X are rounded to BF16 for dot products. */
static bool in_bf16(const struct matrix *w, const struct matmul_input *in)
{
    bool coarse =
        in->activations == ACTIVATIONS_INT8 || (in->activations == ACTIVATIONS_INT16 && in->fine);
    return coarse && w->panel == PANEL_bf16 && cpu_level() == CPU_AVX512BF16;
}

/* Floats times floats; nothing is rounded but where activations may be. */
static void run_floats(const struct matrix *w, const uint8_t *panel, const struct matmul_input *in,
                       uint32_t row, uint32_t n_rows, float *acc)
{
    enum cpu_level level = cpu_level();
    if (level == CPU_AVX512BF16 && !in_bf16(w, in))
        level = CPU_AVX512VNNI;
    panel_table[w->panel]->floats[level](panel, in->n_in, in->x + (size_t)row * in->n_in, in->n_in,
                                         n_rows, acc);
}

/* acc [n_rows, PANEL_ROWS] of rows [row, row + n_rows), panel `index`, to its place in y. */
static void store(const struct matrix *w, const struct matmul_output *out, uint32_t index,
                  uint32_t row, uint32_t n_rows, const float *acc)
{
    uint32_t o = index * PANEL_ROWS;
    uint32_t n_out = w->n_out - o < PANEL_ROWS ? w->n_out - o : PANEL_ROWS;
    static const float none[PANEL_ROWS];
    struct store_job job = {.acc = acc,
                            .scale = out->scale ? out->scale + row : NULL,
                            .bias = out->bias ? out->bias + o : none,
                            .stride = out->stride,
                            .n_rows = n_rows,
                            .add = out->store == MATMUL_ADD};
    job.y = out->y + row * out->stride + (size_t)(index - out->first) * PANEL_ROWS;
    if (n_out == PANEL_ROWS)
        stores[cpu_level()](&job);
    else
        store_rows(&job, n_out);
}

/* Panel `index` times tiles of x; x->rows NULL: of the floats. */
static void run_panel(const struct matrix *w, uint32_t index, const struct matmul_input *in,
                      const struct planes *x, const struct tiles *t,
                      const struct matmul_output *out)
{
    _Alignas(64) float acc[ROWS * PANEL_ROWS];
    const struct panel *p = panel_table[w->panel];
    const uint8_t *panel = w->panels + index * w->panel_bytes;
    uint32_t row = t->row[0], n = t->row[t->n] - row;
    memset(acc, 0, (size_t)n * PANEL_ROWS * sizeof(float));
    if (x->rows)
        run_int(p, panel, x, in->fine, t, out->fetch, acc);
    else if (p->format)
        run_exact(p, panel, in, row, n, acc);
    else
        run_floats(w, panel, in, row, n, acc);
    store(w, out, index, row, n, acc);
}

/* Some rows stay in the second-level cache while all panels pass by. */
static void run_panels(const struct matrix *w, const struct matmul_input *in,
                       const struct matmul_output *out, uint32_t begin, uint32_t end)
{
    uint32_t n = n_planes(in->activations);
    bool quantised = panel_table[w->panel]->format && in->buffer && n;
    struct planes x = planes_layout(in->n_rows, in->n_in, n ? n : 1, quantised ? in->buffer : NULL);
    uint32_t n_parts = (x.n_tiles + TILES - 1) / TILES;
    ASSERT(x.n_tiles > 0);
    for (uint32_t part = 0; part < n_parts; part++) {
        uint32_t first = x.n_tiles * part / n_parts, last = x.n_tiles * (part + 1) / n_parts;
        struct tiles t = {.first = first, .n = last - first};
        for (uint32_t i = 0; i <= t.n; i++)
            t.row[i] = planes_tile(&x, first + i);
        if (quantised)
            choose_runs(panel_table[w->panel], &x, &t);
        for (uint32_t i = begin; i < end; i++)
            run_panel(w, i, in, &x, &t, out);
    }
}

void matmul_run_panels(const struct matrix *w, const struct matmul_input *in,
                       const struct matmul_output *out, uint32_t begin, uint32_t end,
                       uint32_t worker)
{
    ASSERT(in->n_in == w->n_in && end <= w->n_panels && out->first <= begin);
    ASSERT(!out->scale || out->store != MATMUL_ADD);
    if (use_blas && !panel_table[w->panel]->format && in->n_rows >= MATMUL_BLAS_ROWS &&
        !in_bf16(w, in) && blas_ready(worker))
        blas_run(w, in, out, begin, end, worker);
    else
        run_panels(w, in, out, begin, end);
}

void matmul_blas_prepare(void) { blas_prepare(); }

int matmul_blas(bool on, char *name, size_t n_name, struct error *err)
{
    use_blas = false;
    if (n_name)
        *name = '\0';
    if (!on)
        return 0;
    if (blas_open(name, n_name, err))
        return -1;
    use_blas = true;
    return 0;
}

uint64_t matmul_blas_calls(void) { return blas_calls(); }
