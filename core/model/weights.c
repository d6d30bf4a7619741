/* [load] tensors to weights: found by name, held against the shapes, packed by all workers.
 *
 * First a list of what goes where is made, in which every tensor of the file must occur (what is
 * not understood is not ignored); then room is made; then it is filled. */
#include "core/base/mem.h"
#include "core/kernel/panel.h"
#include "core/model/stages.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum name {
#define NAME(id, text)       NAME_##id,
#define LAYER_NAME(id, text) NAME_##id,
#include "core/model/names.def"
#undef NAME
#undef LAYER_NAME
};

static const struct {
    const char *text;
    bool layer;
} names[] = {
#define NAME(id, text)       [NAME_##id] = {text, false},
#define LAYER_NAME(id, text) [NAME_##id] = {text, true},
#include "core/model/names.def"
#undef NAME
#undef LAYER_NAME
};

/* One tensor's place: rows from `at` of a matrix, or values from `at` of a vector. */
struct item {
    const struct tensor *t;
    struct matrix *w;
    const float **vector; /* where w is NULL: who will point to it */
    size_t offset;        /* of the vector, in floats behind the panels */
    uint32_t at;
    uint32_t piece; /* first of its pieces among all */
};

struct room {
    struct matrix *w;
    enum quant_id type;
    uint32_t n_out, n_in;
    bool first; /* of a pair that is read side by side */
};

struct list {
    const struct checkpoint *c;
    const struct hparams *h;
    struct weights *w;
    struct error *err;
    bool *used;         /* [n_tensors] */
    struct item *items; /* [n_tensors] at most */
    struct room *rooms; /* [n_tensors] at most */
    uint32_t n_items, n_rooms;
    size_t n_floats;
};

enum need { OPTIONAL, REQUIRED };

struct shape {
    uint32_t n_out, n_in; /* n_in 0: a vector */
};

/* ---- the list ---- */

static int check_shape(const struct tensor *t, struct shape shape, struct error *err)
{
    uint32_t n_out = shape.n_out, n_in = shape.n_in;
    if (n_in == 0 && (t->n_dims != 1 || t->dims[0] != n_out))
        return error_set(err, ERR_FORMAT,
                         "tensor %s is [%" PRIu64 "] of %u dimensions, wanted [%u]", t->name,
                         t->dims[0], t->n_dims, n_out);
    if (n_in != 0 && (t->n_dims != 2 || t->dims[0] != n_out || t->dims[1] != n_in))
        return error_set(
            err, ERR_FORMAT,
            "tensor %s is [%" PRIu64 ", %" PRIu64 "] of %u dimensions, wanted [%u, %u]", t->name,
            t->dims[0], t->n_dims > 1 ? t->dims[1] : 1, t->n_dims, n_out, n_in);
    return 0;
}

/* Marks a tensor of wanted shape (n_in 0: a vector of n_out); NULL in *found where it is absent. */
static int find(struct list *l, enum name id, uint32_t layer, const char *suffix, enum need need,
                struct shape shape, const struct tensor **found)
{
    char name[64];
    if (names[id].layer)
        snprintf(name, sizeof(name), "blk.%u.%s.%s", layer, names[id].text, suffix);
    else
        snprintf(name, sizeof(name), "%s.%s", names[id].text, suffix);
    const struct tensor *t = *found = tensor_find(l->c, name);
    if (!t)
        return need == OPTIONAL ? 0 : error_set(l->err, ERR_FORMAT, "no tensor %s", name);
    l->used[t - checkpoint_tensor(l->c, 0)] = true;
    return check_shape(t, shape, l->err);
}

static size_t add_floats(struct list *l, uint32_t n)
{
    size_t at = l->n_floats;
    l->n_floats += ((size_t)n + 15) / 16 * 16;
    return at;
}

static void add_vector(struct list *l, const struct tensor *t, const float **vector, size_t offset,
                       uint32_t at)
{
    l->items[l->n_items++] = (struct item){.t = t, .vector = vector, .offset = offset, .at = at};
}

static void add_rows(struct list *l, const struct tensor *t, struct matrix *w, uint32_t at)
{
    l->items[l->n_items++] = (struct item){.t = t, .w = w, .at = at};
}

static void add_room(struct list *l, struct matrix *w, enum quant_id type, uint32_t n_out,
                     uint32_t n_in)
{
    l->rooms[l->n_rooms++] = (struct room){w, type, n_out, n_in, false};
}

/* A matrix alone. */
static int list_matrix(struct list *l, enum name id, uint32_t n_out, uint32_t n_in,
                       struct matrix *w)
{
    const struct tensor *t;
    if (find(l, id, 0, "weight", REQUIRED, (struct shape){n_out, n_in}, &t))
        return -1;
    add_room(l, w, t->type, n_out, n_in);
    add_rows(l, t, w, 0);
    return 0;
}

static int list_norm(struct list *l, enum name id, uint32_t layer, bool wanted, struct norm *n)
{
    const struct tensor *t;
    if (!wanted)
        return 0;
    if (find(l, id, layer, "weight", REQUIRED, (struct shape){l->h->dim, 0}, &t))
        return -1;
    add_vector(l, t, &n->gain, add_floats(l, l->h->dim), 0);
    if (l->h->arch->norm != NORM_LAYER)
        return 0;
    if (find(l, id, layer, "bias", OPTIONAL, (struct shape){l->h->dim, 0}, &t))
        return -1;
    if (t)
        add_vector(l, t, &n->bias, add_floats(l, l->h->dim), 0);
    return 0;
}

/* Matrices that read one input, side by side. */
struct part {
    enum name id;
    uint32_t n_out;
};

static bool floats(enum quant_id type) { return !panel_table[quant_table[type].panel]->format; }

/* One bias of the stack; where any part has one, the others' is 0. */
static int list_biases(struct list *l, uint32_t layer, const struct part *parts, uint32_t n_parts,
                       struct stack *s)
{
    const struct tensor *t[3] = {0};
    uint32_t at = 0;
    bool any = false;
    for (uint32_t i = 0; i < n_parts; i++) {
        if (find(l, parts[i].id, layer, "bias", OPTIONAL, (struct shape){parts[i].n_out, 0}, &t[i]))
            return -1;
        any = any || t[i];
    }
    size_t offset = any ? add_floats(l, s->n_out) : 0;
    for (uint32_t i = 0; i < n_parts; at += parts[i].n_out, i++)
        if (t[i])
            add_vector(l, t[i], &s->bias, offset, at);
    return 0;
}

/* Parts of one type and whole panels are packed as one matrix; side_by_side: never, but in turns. */
static int list_stack(struct list *l, uint32_t layer, const struct part *parts, uint32_t n_parts,
                      uint32_t n_in, bool side_by_side, struct stack *s)
{
    const struct tensor *t[3];
    bool together = !side_by_side;
    uint32_t at = 0;
    for (uint32_t i = 0; i < n_parts; i++) {
        if (find(l, parts[i].id, layer, "weight", REQUIRED, (struct shape){parts[i].n_out, n_in},
                 &t[i]))
            return -1;
        together = together && t[i]->type == t[0]->type && s->n_out % PANEL_ROWS == 0;
        s->quantised = s->quantised || !floats(t[i]->type);
        s->floats = s->floats || floats(t[i]->type);
        s->n_out += parts[i].n_out;
    }
    s->n = together ? 1 : n_parts;
    if (together)
        add_room(l, &s->w[0], t[0]->type, s->n_out, n_in);
    for (uint32_t i = 0; i < n_parts; at += parts[i].n_out, i++) {
        if (!together)
            add_room(l, &s->w[i], t[i]->type, parts[i].n_out, n_in);
        l->rooms[l->n_rooms - 1].first = side_by_side && i == 0 && n_parts > 1;
        add_rows(l, t[i], &s->w[together ? 0 : i], together ? at : 0);
    }
    return list_biases(l, layer, parts, n_parts, s);
}

static int list_qkv(struct list *l, uint32_t layer, struct stack *s)
{
    const struct hparams *h = l->h;
    uint32_t q = h->n_heads * h->head_dim, kv = h->n_kv_heads * h->head_dim;
    const struct part fused[] = {{NAME_attn_qkv, q + 2 * kv}};
    const struct part apart[] = {{NAME_attn_q, q}, {NAME_attn_k, kv}, {NAME_attn_v, kv}};
    const struct tensor *t;
    if (find(l, NAME_attn_qkv, layer, "weight", OPTIONAL, (struct shape){q + 2 * kv, h->dim}, &t))
        return -1;
    return t ? list_stack(l, layer, fused, 1, h->dim, false, s)
             : list_stack(l, layer, apart, 3, h->dim, false, s);
}

static int list_layer(struct list *l, uint32_t i, struct layer *w)
{
    const struct hparams *h = l->h;
    const struct arch *arch = h->arch;
    uint32_t heads = h->n_heads * h->head_dim;
    bool gated = arch->flags & ARCH_GATED_MLP;
    const struct part up[] = {{NAME_ffn_gate, h->ff_dim}, {NAME_ffn_up, h->ff_dim}};
    const struct part out[] = {{NAME_attn_output, h->dim}}, down[] = {{NAME_ffn_down, h->dim}};
    bool before = arch->norm_places & NORM_BEFORE, on = arch->norm_places & NORM_ON;
    bool after = arch->norm_places & NORM_AFTER;
    if (list_norm(l, NAME_attn_norm, i, before, &w->attn.before) ||
        list_norm(l, NAME_attn_norm_on, i, on, &w->attn.on) ||
        list_norm(l, NAME_attn_norm_after, i, after, &w->attn.after) ||
        list_norm(l, NAME_ffn_norm, i, before, &w->ffn.before) ||
        list_norm(l, NAME_ffn_norm_on, i, on, &w->ffn.on) ||
        list_norm(l, NAME_ffn_norm_after, i, after, &w->ffn.after))
        return -1;
    if (list_qkv(l, i, &w->qkv) || list_stack(l, i, out, 1, heads, false, &w->out) ||
        list_stack(l, i, gated ? up : up + 1, gated ? 2 : 1, h->dim, true, &w->up))
        return -1;
    return list_stack(l, i, down, 1, h->ff_dim, false, &w->down);
}

/* The LM head, or where it may be and none is there, the embedding matrix with the head's bias. */
static int list_head(struct list *l)
{
    const struct hparams *h = l->h;
    const struct part part[] = {{NAME_output, h->n_vocab}};
    const struct tensor *t;
    bool may_tie = h->arch->flags & ARCH_TIED_LM_HEAD;
    if (find(l, NAME_output, 0, "weight", may_tie ? OPTIONAL : REQUIRED,
             (struct shape){h->n_vocab, h->dim}, &t))
        return -1;
    if (t)
        return list_stack(l, 0, part, 1, h->dim, false, &l->w->head);
    l->w->tied = true;
    l->w->head.n = 1;
    l->w->head.n_out = h->n_vocab;
    return list_biases(l, 0, part, 1, &l->w->head);
}

static int list_all(struct list *l)
{
    const struct hparams *h = l->h;
    /* post-LN ends in a norm of its own */
    bool last = h->arch->norm_places & (NORM_BEFORE | NORM_ON);
    if (list_matrix(l, NAME_token_embd, h->n_vocab, h->dim, &l->w->embed) ||
        (h->arch->pos == POS_LEARNED &&
         list_matrix(l, NAME_position_embd, h->n_ctx, h->dim, &l->w->position)) ||
        list_norm(l, NAME_output_norm, 0, last, &l->w->output_norm) || list_head(l))
        return -1;
    for (uint32_t i = 0; i < h->n_layers; i++)
        if (list_layer(l, i, &l->w->layers[i]))
            return -1;
    for (uint32_t i = 0; i < checkpoint_n_tensors(l->c); i++)
        if (!l->used[i])
            return error_set(l->err, ERR_UNSUPPORTED,
                             "tensor %s is no part of a %s model as this program computes it",
                             checkpoint_tensor(l->c, i)->name, h->arch->id);
    return 0;
}

static void list_close(struct list *l)
{
    free(l->used);
    free(l->items);
    free(l->rooms);
}

static int list_open(struct list *l, struct weights *w, const struct checkpoint *c,
                     const struct hparams *h, struct error *err)
{
    uint32_t n = checkpoint_n_tensors(c);
    *w = (struct weights){.layers = mem_new(h->n_layers, sizeof(*w->layers))};
    *l = (struct list){.c = c, .h = h, .w = w, .err = err};
    l->used = mem_new(n, sizeof(*l->used));
    l->items = mem_new(n, sizeof(*l->items));
    l->rooms = mem_new(n, sizeof(*l->rooms));
    if (!w->layers || !l->used || !l->items || !l->rooms)
        return error_set(err, ERR_NO_MEMORY, "no memory for a list of %u tensors", n);
    return list_all(l);
}

/* ---- room, and what fills it ---- */

enum { PIECE_PANELS = 32 }; /* packed at a time: then their pages of the file are let go */

struct filling {
    const struct list *l;
    const struct weights_options *options;
    float *vectors;
    uint32_t n_pieces;
    atomic_bool stopped;
};

static uint32_t pieces_of(const struct item *i)
{
    uint32_t rows = PIECE_PANELS * PANEL_ROWS, n = (uint32_t)i->t->dims[0];
    return i->w ? n / rows + (n % rows != 0) : 1;
}

static void fill_vector(const struct filling *f, const struct item *i)
{
    quant_table[i->t->type].dequant(f->vectors + i->offset + i->at, i->t->data, i->t->dims[0]);
}

static void fill_piece(const struct filling *f, const struct item *i, uint32_t piece)
{
    uint32_t n = (uint32_t)i->t->dims[0], begin = piece * PIECE_PANELS * PANEL_ROWS;
    uint32_t n_rows = n - begin < PIECE_PANELS * PANEL_ROWS ? n - begin : PIECE_PANELS * PANEL_ROWS;
    size_t row_bytes = i->t->n_bytes / n;
    if (!i->w) {
        fill_vector(f, i);
        return;
    }
    matrix_pack(i->w, i->t->type, i->t->data + begin * row_bytes, i->at + begin, n_rows);
    checkpoint_done(f->l->c, i->t->data + begin * row_bytes, n_rows * row_bytes);
}

static void fill_worker(const struct worker *worker, void *arg)
{
    struct filling *f = arg;
    const struct item *items = f->l->items;
    struct share share = share_begin(worker, f->n_pieces, 1);
    for (uint32_t begin, end; share_take(&share, &begin, &end);)
        for (uint32_t i = 0; begin < end; begin++) {
            while (begin >= items[i].piece + pieces_of(&items[i]))
                i++;
            fill_piece(f, &items[i], begin - items[i].piece);
            if (f->options->heartbeat)
                atomic_fetch_add(f->options->heartbeat, 1);
            if (f->options->stop && atomic_load(f->options->stop)) {
                atomic_store(&f->stopped, true);
                return;
            }
        }
}

/* Places room i at `at`, or it and the next in turns: a panel of the one, a panel of the other. The
 * number of rooms placed; *at moves on. */
static uint32_t place(const struct list *l, uint32_t i, uint8_t **at)
{
    struct matrix *w = l->rooms[i].w, *next = l->rooms[i].first ? l->rooms[i + 1].w : NULL;
    size_t panel_bytes = w->panel_bytes;
    bool pair = next && next->n_bytes == w->n_bytes && next->panel == w->panel;
    matrix_place(w, *at, panel_bytes * (pair ? 2 : 1));
    if (pair)
        matrix_place(next, *at + panel_bytes, 2 * panel_bytes);
    *at += w->n_bytes * (pair ? 2 : 1);
    return pair ? 2 : 1;
}

/* One block for all, on huge pages also where a matrix is small. */
static int make_room(struct list *l, float **vectors, struct error *err)
{
    struct weights *w = l->w;
    size_t n_panel_bytes = 0;
    for (uint32_t i = 0; i < l->n_rooms; i++) {
        const struct room *r = &l->rooms[i];
        if (matrix_shape(r->w, r->type, r->n_out, r->n_in, err))
            return -1;
        n_panel_bytes += r->w->n_bytes;
    }
    w->memory_bytes = n_panel_bytes + l->n_floats * sizeof(float);
    w->memory = mem_big_new(w->memory_bytes, MEM_WEIGHTS);
    if (!w->memory)
        return error_set(err, ERR_NO_MEMORY, "no memory for %zu bytes of weights", w->memory_bytes);
    *vectors = (float *)(void *)(w->memory + n_panel_bytes);
    uint8_t *at = w->memory;
    for (uint32_t i = 0; i < l->n_rooms;)
        i += place(l, i, &at);
    return 0;
}

/* The gain's [dim] root mean square. */
static void set_rms(struct norm *n, uint32_t dim)
{
    double sum = 0;
    for (uint32_t i = 0; i < dim && n->gain; i++)
        sum += (double)n->gain[i] * n->gain[i];
    n->rms = n->gain ? (float)sqrt(sum / dim) : 1;
}

/* What reads 16 bits where activations are int8. A few outliers make the scale of their block coarse
 * for its other values, so most of a row's rounding error is in few blocks (of Q, K and V's input 89 %
 * in a tenth): where a norm's result goes, only these are read in 16 bits, and what is multiplied twice
 * is little; the MLP's hidden layer has less of that, and is read whole in the last layer, where it
 * matters most and a prompt has one row left. Mean KL to float activations over
 * tests/bench/accuracy.txt (SmolLM2-135M Q4_1): 8 bits for all 0.0029, these 0.00089; without the hidden
 * layer 0.0011; that of the first layer too 0.00088, for 1 to 2 % of a prompt's time; 4 times for the head
 * 0.00005 less, for 2 % of the time of 16 sequences. Near these bounds KL varies by chance, from 0.00089
 * to 0.00099. */
static void refine(struct weights *w, const struct hparams *h)
{
    const float qkv = 3.4F, up = 4.1F, head = 5; /* times the row's root mean square */
    for (uint32_t i = 0; i < h->n_layers; i++) {
        struct layer *l = &w->layers[i];
        set_rms(&l->attn.before, h->dim);
        set_rms(&l->ffn.before, h->dim);
        l->qkv.fine = qkv;
        l->out.fine = INFINITY;
        l->up.fine = up;
        l->down.fine = i + 1 == h->n_layers ? 0 : INFINITY;
    }
    set_rms(&w->output_norm, h->dim);
    w->head.fine = head;
}

int weights_open(struct weights *w, const struct checkpoint *c, const struct hparams *h,
                 const struct weights_options *options, struct error *err)
{
    struct list l;
    struct filling f = {.l = &l, .options = options};
    int rc = -1;
    if (list_open(&l, w, c, h, err) || make_room(&l, &f.vectors, err))
        goto out;
    for (uint32_t i = 0; i < l.n_items; f.n_pieces += pieces_of(&l.items[i++])) {
        l.items[i].piece = f.n_pieces;
        if (l.items[i].vector)
            *l.items[i].vector = f.vectors + l.items[i].offset;
    }
    workers_run(options->workers, fill_worker, &f);
    if (f.stopped) {
        error_set(err, ERR_DRAINING, "loading was stopped");
        goto out;
    }
    if (w->tied) {
        w->head.w[0] = w->embed;
        w->head.quantised = panel_table[w->embed.panel]->format;
        w->head.floats = !w->head.quantised;
    }
    refine(w, h);
    rc = 0;
out:
    list_close(&l);
    if (rc)
        weights_close(w);
    return rc;
}

void weights_close(struct weights *w)
{
    mem_big_free(w->memory, w->memory_bytes, MEM_WEIGHTS);
    free(w->layers);
    *w = (struct weights){0};
}

uint64_t weights_bytes(const struct checkpoint *c, const struct hparams *h)
{
    struct list l;
    struct weights w;
    uint64_t bytes = 0;
    if (list_open(&l, &w, c, h, NULL) == 0) {
        bytes = l.n_floats * sizeof(float);
        for (uint32_t i = 0; i < l.n_rooms; i++) {
            const struct panel *p = panel_table[quant_table[l.rooms[i].type].panel];
            uint32_t n_out = l.rooms[i].n_out;
            bytes += (uint64_t)p->n_bytes(l.rooms[i].n_in) *
                     (n_out / PANEL_ROWS + (n_out % PANEL_ROWS != 0));
        }
    }
    list_close(&l);
    free(w.layers);
    return bytes;
}

bool weights_all_float(const struct weights *w, const struct hparams *h)
{
    for (uint32_t i = 0; i < h->n_layers; i++) {
        const struct layer *l = &w->layers[i];
        if (l->qkv.quantised || l->out.quantised || l->up.quantised || l->down.quantised)
            return false;
    }
    return !w->head.quantised;
}
