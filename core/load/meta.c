/* [load] typed reads of a checkpoint's keys: what is asked for, in range, or an error that names
 * the key and both values. */
#include "core/load/load.h"

#include "core/base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const struct {
    uint8_t n_bytes;
    enum meta_type type;
} scalars[SCALAR_COUNT] = {
    [SCALAR_U8] = {1, META_UINT},       [SCALAR_I8] = {1, META_INT},
    [SCALAR_U16] = {2, META_UINT},      [SCALAR_I16] = {2, META_INT},
    [SCALAR_U32] = {4, META_UINT},      [SCALAR_I32] = {4, META_INT},
    [SCALAR_F32] = {4, META_FLOAT},     [SCALAR_BOOL] = {1, META_BOOL},
    [SCALAR_STRING] = {0, META_STRING}, [SCALAR_ARRAY] = {0, META_ARRAY},
    [SCALAR_U64] = {8, META_UINT},      [SCALAR_I64] = {8, META_INT},
    [SCALAR_F64] = {8, META_FLOAT},
};

size_t scalar_bytes(enum scalar s) { return scalars[s].n_bytes; }

enum meta_type scalar_meta(enum scalar s) { return scalars[s].type; }

static double read_float(uint64_t bits, size_t n_bytes)
{
    uint32_t low = (uint32_t)bits;
    float f;
    double d;
    memcpy(&f, &low, sizeof(f));
    memcpy(&d, &bits, sizeof(d));
    return n_bytes == 4 ? (double)f : d;
}

static int64_t sign_extend(uint64_t u, size_t n_bytes)
{
    if (n_bytes == 1)
        return (int8_t)u;
    if (n_bytes == 2)
        return (int16_t)u;
    return n_bytes == 4 ? (int32_t)u : (int64_t)u;
}

void scalar_read(enum scalar s, const uint8_t *p, struct meta *m)
{
    size_t n = scalars[s].n_bytes;
    uint64_t u = 0;
    for (size_t i = 0; i < n; i++)
        u |= (uint64_t)p[i] << 8 * i;
    m->type = scalars[s].type;
    if (m->type == META_FLOAT)
        m->f = read_float(u, n);
    else if (m->type == META_BOOL)
        m->b = u != 0;
    else if (m->type == META_INT)
        m->i = sign_extend(u, n);
    else
        m->u = u;
}

/* As a sentence names it. */
static const char *type_name(enum meta_type type)
{
    static const char *const names[] = {
        [META_UINT] = "an integer", [META_INT] = "an integer",  [META_FLOAT] = "a float",
        [META_BOOL] = "a boolean",  [META_STRING] = "a string", [META_ARRAY] = "an array",
    };
    return names[type];
}

static int wrong_type(const struct checkpoint *c, const struct meta *m, const char *wanted,
                      struct error *err)
{
    return error_set(err, ERR_FORMAT, "%s: key %s is %s, wanted is %s", c->label, m->key,
                     type_name(m->type), wanted);
}

int meta_uint(const struct checkpoint *c, const char *key, uint64_t min, uint64_t max,
              uint64_t *value, struct error *err)
{
    const struct meta *m = meta_find(c, key);
    if (!m)
        return error_set(err, ERR_FORMAT, "%s: key %s is missing", c->label, key);
    if (m->type != META_UINT && m->type != META_INT)
        return wrong_type(c, m, "an integer", err);
    if (m->type == META_INT && m->i < 0)
        return error_set(err, ERR_FORMAT,
                         "%s: key %s is %" PRId64 ", allowed are %" PRIu64 " to %" PRIu64, c->label,
                         key, m->i, min, max);
    uint64_t u = m->type == META_INT ? (uint64_t)m->i : m->u;
    if (u < min || u > max)
        return error_set(err, ERR_FORMAT,
                         "%s: key %s is %" PRIu64 ", allowed are %" PRIu64 " to %" PRIu64, c->label,
                         key, u, min, max);
    *value = u;
    return 0;
}

int meta_uint_or(const struct checkpoint *c, const char *key, uint64_t min, uint64_t max,
                 uint64_t other, uint64_t *value, struct error *err)
{
    if (meta_find(c, key))
        return meta_uint(c, key, min, max, value, err);
    *value = other;
    return 0;
}

int meta_float_or(const struct checkpoint *c, const char *key, double other, double *value,
                  struct error *err)
{
    const struct meta *m = meta_find(c, key);
    if (!m) {
        *value = other;
        return 0;
    }
    if (m->type == META_FLOAT && !isfinite(m->f))
        return error_set(err, ERR_FORMAT, "%s: key %s is %g, wanted is a finite number", c->label,
                         key, m->f);
    if (m->type == META_FLOAT)
        *value = m->f;
    else if (m->type == META_UINT)
        *value = (double)m->u;
    else if (m->type == META_INT)
        *value = (double)m->i;
    else
        return wrong_type(c, m, "a number", err);
    return 0;
}

int meta_bool_or(const struct checkpoint *c, const char *key, bool other, bool *value,
                 struct error *err)
{
    const struct meta *m = meta_find(c, key);
    if (m && m->type != META_BOOL)
        return wrong_type(c, m, "a boolean", err);
    *value = m ? m->b : other;
    return 0;
}

bool meta_str(const struct checkpoint *c, const char *key, const char **s, size_t *n)
{
    const struct meta *m = meta_find(c, key);
    if (!m || m->type != META_STRING)
        return false;
    *s = m->str.s;
    *n = m->str.n;
    return true;
}

/* Item i of an array of numbers, as a key of its own. */
static struct meta item_at(const struct meta *m, uint64_t i)
{
    struct meta v = {.key = m->key};
    const struct items *items = m->items;
    ASSERT(m->type == META_ARRAY && i < m->n_items && m->of != META_STRING);
    scalar_read(items->scalar, items->bytes + i * scalar_bytes(items->scalar), &v);
    return v;
}

void meta_item_str(const struct meta *m, uint64_t i, const char **s, size_t *n)
{
    const struct items *items = m->items;
    ASSERT(m->type == META_ARRAY && i < m->n_items && m->of == META_STRING);
    *s = items->spans[i].s;
    *n = items->spans[i].n;
}

double meta_item_float(const struct meta *m, uint64_t i)
{
    struct meta v = item_at(m, i);
    if (v.type == META_FLOAT)
        return v.f;
    if (v.type == META_BOOL)
        return v.b ? 1 : 0;
    return v.type == META_INT ? (double)v.i : (double)v.u;
}

/* Floats are cut towards zero; what lies outside int64 becomes its nearer end, NaN 0. */
int64_t meta_item_int(const struct meta *m, uint64_t i)
{
    struct meta v = item_at(m, i);
    if (v.type == META_BOOL)
        return v.b ? 1 : 0;
    if (v.type == META_INT)
        return v.i;
    if (v.type == META_UINT)
        return v.u > INT64_MAX ? INT64_MAX : (int64_t)v.u;
    if (isnan(v.f))
        return 0;
    if (v.f >= 9223372036854775807.0)
        return INT64_MAX;
    return v.f <= -9223372036854775808.0 ? INT64_MIN : (int64_t)v.f;
}
