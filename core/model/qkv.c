/* [08 qkv] makes of each row a query, a key and a value for every head.
 *
 * A query is what a token looks for, a key is what it offers to be found by, a value is what it
 * hands over to those that find it: q = h WQ^T + bq, k = h WK^T + bk, v = h WV^T + bv (Vaswani et
 * al. 2017, 3.2). h [n, dim], q [n, n_heads * head_dim]; k and v [n, n_kv_heads * head_dim]: with
 * fewer KV heads than heads a group of heads shares a key and a value (Ainslie et al. 2023). */
#include "core/model/stages.h"

void qkv_project(const struct step *s, const struct layer *w)
{
    stack_run(s, &w->qkv, s->a->h, s->batch->n_rows, s->a->qkv);
}
