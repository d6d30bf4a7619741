/* [kv] Has anyone computed this? An index of pages by the token ids that they hold and the page
 * before them: a tree whose paths are timelines. Under a root of its own each tenant (salt) has
 * its tree; trees never meet. Found pages are compared token by token: nothing rests on a hash.
 *
 * Nodes are pages: complete ones are shared by reference; the rows of an incomplete one (the end of
 * a timeline that ended) or the first rows of a complete one are copied. Whoever holds a page holds
 * all pages before it, and drops them last; therefore the page evicted first never has others
 * behind it. ON_ENGINE. */
#pragma once

#include "core/kv/seq.h"

enum { PREFIX_NAME_MAX = 160 };
#define PREFIX_NONE UINT32_MAX

struct prefix;

struct prefix *prefix_open(struct kv_pool *pool, struct error *err);
void prefix_close(struct prefix *p); /* NULL is fine; pages stay as they are */

/* The tree of that name (made where there is none), one user more; PREFIX_NONE: no memory. It is
 * forgotten when it has neither users nor pages. */
uint32_t prefix_root(struct prefix *p, const char *name, struct error *err);
void prefix_root_share(struct prefix *p, uint32_t root);
void prefix_root_drop(struct prefix *p, uint32_t root); /* PREFIX_NONE is fine */

/* Appends to s the complete pages found for ids[s->n_tokens..limit); s must lie on a page's end.
 * Returns the tokens gained. */
uint32_t prefix_share(struct prefix *p, uint32_t root, const uint32_t *ids, uint32_t limit,
                      struct seq *s);

/* Then the rows of the page that goes furthest with the ids that are left (less than a page, or no
 * complete page was found), into a page of s's reservation. Returns the tokens gained. */
uint32_t prefix_copy(struct prefix *p, uint32_t root, const uint32_t *ids, uint32_t limit,
                     struct seq *s);

/* Makes the complete pages of s known, which hold ids[0..s->n_tokens). A page that is known already
 * takes the place of s's own, so that the same tokens are kept once. */
void prefix_publish(struct prefix *p, uint32_t root, const uint32_t *ids, struct seq *s);

/* Also its last, incomplete page. The caller closes s at once: the page is not to be written again. */
void prefix_publish_tail(struct prefix *p, uint32_t root, const uint32_t *ids, struct seq *s);

/* How many of ids[0..n) could be had. Changes nothing. */
uint32_t prefix_held(const struct prefix *p, uint32_t root, const uint32_t *ids, uint32_t n);
