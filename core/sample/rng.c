/* [14 sample] counter-based random numbers: J. Salmon and others, "Parallel random numbers: as easy
 * as 1, 2, 3" (2011), Philox4x32 with 10 rounds. The seed is the key and the position the counter, so
 * that neither batching nor speculation can shift a request's numbers. */
#include "core/sample/rng.h"

enum { ROUNDS = 10 };

void rng_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t a = 0xD2511F53u * (uint64_t)c0, b = 0xCD9E8D57u * (uint64_t)c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u; /* the golden ratio and sqrt(3) - 1, as the paper has them */
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

double rng_uniform(uint64_t seed, uint64_t pos)
{
    const uint32_t counter[4] = {(uint32_t)pos, (uint32_t)(pos >> 32), 0, 0};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t bits[4];
    rng_philox(counter, key, bits);
    return (double)(((uint64_t)bits[1] << 32 | bits[0]) >> 11) * 0x1p-53;
}
