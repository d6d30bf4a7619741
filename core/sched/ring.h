/* [16 stream] The tokens of one request on their way out: a ring of bytes with one writer (the
 * engine) and one reader (the loop), without locks. A record is a token, its alternatives and the
 * text that may leave with it. The writer asks for room before a token is computed, so that a
 * push always fits; a reader that is behind thereby takes its row out of the batch. */
#pragma once

#include "core/base/error.h"
#include "core/sample/sample.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RING_BYTES = 16384,  /* a power of 2 */
    RING_TEXT_MAX = 512, /* bytes of text in one record */
};

struct ring {
    _Alignas(64) _Atomic uint32_t end;   /* written so far, modulo 2^32; the writer's */
    uint8_t *bytes;                      /* [RING_BYTES] */
    _Alignas(64) _Atomic uint32_t begin; /* read so far; the reader's */
};

struct ring_record {
    struct sample_choice choice;
    uint64_t at_ns;
    uint32_t n_text;
    char text[RING_TEXT_MAX];
};

int ring_open(struct ring *r, struct error *err);
void ring_close(struct ring *r); /* zeroed is fine */

/* The writer's. */
uint32_t ring_room(const struct ring *r); /* records of any size that fit */
void ring_push(struct ring *r, const struct sample_choice *choice, const char *text, size_t n_text,
               uint64_t at_ns);

/* The reader's. False: nothing there now. */
bool ring_pop(struct ring *r, struct ring_record *record);

/* Either's: half of it or more is free. */
bool ring_half_empty(const struct ring *r);
