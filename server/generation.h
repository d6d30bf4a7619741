/* [02 api] A generate request at work: text role -> engine -> answer. It lives from its place in
 * the queue to the engine's last word, which may come after its client has left; every end,
 * whatever its cause, is generation.c's finish(). */
#pragma once

#include "server/exchange.h"
#include "server/generate_fields.h"
#include "server/stream.h"

/* Whether a place is free; where none is, *err is 429. */
bool generation_has_place(const struct server *s, struct error *err) ON_LOOP;

/* Takes a place and starts. Takes over what spec holds; where it is not read yet, x's body too, which
 * the text role then reads. The answer (an error too) comes to x. */
void generation_start(struct exchange *x, struct generate *spec, bool is_read) ON_LOOP;

/* Frees those that are over. Not done on the spot, so that no callback loses what it works on. */
void generations_bury(struct server *s) ON_LOOP;

/* The engine has news for it. */
void generation_on_ready(struct request *r) ON_LOOP;

/* The connection's client has closed its sending side: sends it something. */
void generation_probe(struct generation *g) ON_LOOP;

/* Silence is broken, in all streams that have been silent for keepalive_ms. */
void generations_sweep(struct server *s, uint64_t now_ms) ON_LOOP;

/* Asks all to end; they end as `cancelled`. */
void generations_cancel(struct server *s) ON_LOOP;

/* Cancels those of that id. Returns how many there were. */
uint32_t generations_cancel_id(struct server *s, const char *id) ON_LOOP;

/* The JSON objects of GET /requests, with commas. */
void generations_list(const struct server *s, struct str *out) ON_LOOP;
