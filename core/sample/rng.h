/* [14 sample] Random numbers without a state: a function of (seed, position). ANY_THREAD: pure. */
#pragma once

#include <stdint.h>

/* Philox4x32-10: 128 random bits of a 128-bit counter and a 64-bit key. */
void rng_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* Uniform in [0, 1), a multiple of 2^-53: the draw for the token at position pos. */
double rng_uniform(uint64_t seed, uint64_t pos);
