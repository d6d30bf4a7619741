/* [kernel] loops that are as fast as the processor allows: loads, dot products of bytes, FMA. Twelve
 * sums at a time hide the latency of all of them. */
#include "core/kernel/limits.h"

#include "core/base/clock.h"
#include "core/kernel/cpu.h"
#include "core/kernel/simd.h"

#include <string.h>

enum { SUMS = 12, AHEAD = 4096, STRIP = 1024 };

/* ---- scalar ---- */

static uint64_t read_scalar(const uint8_t *p, size_t n)
{
    const uint64_t *words = (const uint64_t *)(const void *)p;
    uint64_t sum[4] = {0};
    for (size_t i = 0; i < n / sizeof(*words); i += 4)
        for (size_t j = 0; j < 4; j++)
            sum[j] ^= words[i + j];
    return sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
}

static uint64_t int8_scalar(uint32_t n_rounds)
{
    int32_t sum[SUMS] = {0};
    volatile int8_t one = 1;
    int8_t x = one;
    for (uint32_t i = 0; i < n_rounds; i++)
        for (int j = 0; j < SUMS; j++) {
            sum[j] += x * (int8_t)i;
            __asm__ volatile("" : "+r"(sum[j]));
        }
    return 2ULL * SUMS * n_rounds;
}

static uint64_t floats_scalar(uint32_t n_rounds)
{
    float sum[SUMS] = {0};
    volatile float one = 1;
    float x = one, y = one;
    for (uint32_t i = 0; i < n_rounds; i++) {
        for (int j = 0; j < SUMS; j++)
            sum[j] += x * y;
        __asm__ volatile("" : "+m"(sum));
    }
    return 2ULL * SUMS * n_rounds;
}

/* ---- x86-64 ---- */

#if defined(__x86_64__)
/* Prefetches run ahead over page ends, which the processor's own prefetching stops at. */
#define READ(target, name, vector, load, xor, zero)                                                \
    target static uint64_t name(const uint8_t *p, size_t n)                                        \
    {                                                                                              \
        vector sum[4] = {zero(), zero(), zero(), zero()};                                          \
        for (size_t at = 0; at < n; at += STRIP) {                                                 \
            for (size_t i = 0; i < STRIP; i += 64)                                                 \
                _mm_prefetch((const char *)p + at + i + AHEAD, _MM_HINT_T0);                       \
            for (size_t i = 0; i < STRIP; i += 4 * sizeof(vector))                                 \
                for (size_t j = 0; j < 4; j++)                                                     \
                    sum[j] = xor(sum[j], load((const void *)(p + at + i + j * sizeof(vector))));   \
        }                                                                                          \
        uint64_t words[sizeof(sum) / 8], all = 0;                                                  \
        memcpy(words, sum, sizeof(sum));                                                           \
        for (size_t i = 0; i < sizeof(sum) / 8; i++)                                               \
            all ^= words[i];                                                                       \
        return all;                                                                                \
    }
READ(TARGET_AVX2, read_avx2, __m256i, _mm256_load_si256, _mm256_xor_si256, _mm256_setzero_si256)
READ(TARGET_AVX512, read_avx512, __m512i, _mm512_load_si512, _mm512_xor_si512, _mm512_setzero_si512)

/* As SIMD_KEEP, of a value that nobody asks for afterwards. */
#define KEEP(v) __asm__ volatile("" : "+v"(v))

/* n_rounds of SUMS steps, each of which adds `width` products to a vector of sums. */
#define ROUNDS(target, name, vector, zero, step, width)                                            \
    target static uint64_t name(uint32_t n_rounds)                                                 \
    {                                                                                              \
        vector sum[SUMS], x = zero(), y = zero();                                                  \
        KEEP(x);                                                                                   \
        KEEP(y);                                                                                   \
        SIMD_UNROLL for (int j = 0; j < SUMS; j++) sum[j] = zero();                                \
        for (uint32_t i = 0; i < n_rounds; i++) {                                                  \
            SIMD_UNROLL for (int j = 0; j < SUMS; j++)                                             \
            {                                                                                      \
                step(sum[j], x, y);                                                                \
                KEEP(sum[j]);                                                                      \
            }                                                                                      \
        }                                                                                          \
        return 2ULL * SUMS * (width)*n_rounds;                                                     \
    }
#define DOT_VNNI_512(sum, x, y) __asm__ volatile("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y))
#define DOT_VNNI_256(sum, x, y)                                                                    \
    __asm__ volatile("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(x), "x"(y))
#define DOT_512(sum, x, y)                                                                         \
    sum = _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_maddubs_epi16(x, y), y))
#define DOT_256(sum, x, y)                                                                         \
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(x, y), y))
#define FMA_512(sum, x, y) sum = _mm512_fmadd_ps(x, y, sum)
#define FMA_256(sum, x, y) sum = _mm256_fmadd_ps(x, y, sum)

ROUNDS(TARGET_AVX512VNNI, int8_avx512vnni, __m512i, _mm512_setzero_si512, DOT_VNNI_512, 64)
ROUNDS(TARGET_AVX512, int8_avx512, __m512i, _mm512_setzero_si512, DOT_512, 64)
ROUNDS(TARGET_AVX2VNNI, int8_avx2vnni, __m256i, _mm256_setzero_si256, DOT_VNNI_256, 32)
ROUNDS(TARGET_AVX2, int8_avx2, __m256i, _mm256_setzero_si256, DOT_256, 32)
ROUNDS(TARGET_AVX512, floats_avx512, __m512, _mm512_setzero_ps, FMA_512, 16)
ROUNDS(TARGET_AVX2, floats_avx2, __m256, _mm256_setzero_ps, FMA_256, 8)

/* n_rounds of twelve instructions, on sums of their own. All in one, for what is measured must not
 * depend on how the compiler keeps the sums: a sanitizer's build would measure memory. */
#define TWELVE(op) ".irp i,4,5,6,7,8,9,10,11,12,13,14,15\n" op ", %%zmm\\i\n.endr\n"
#define LOOP(op)                                                                                   \
    "vpxor %%xmm0, %%xmm0, %%xmm0\n" TWELVE("vmovaps %%zmm0") "1:\n" TWELVE(                       \
        op " %%zmm0, %%zmm0") "dec %0\njnz 1b"
#define RACE(name, op)                                                                             \
    TARGET_AVX512 static void name(uint64_t n_rounds)                                              \
    {                                                                                              \
        __asm__ volatile(LOOP(op)                                                                  \
                         : "+r"(n_rounds)                                                          \
                         :                                                                         \
                         : "cc", "xmm0", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",  \
                           "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");                           \
    }
RACE(race_floats, "vfmadd231ps")
RACE(race_bf16, "vdpbf16ps")

/* Rounds in a nanosecond, or most if that is more. */
static double rate(void (*race)(uint64_t), double most)
{
    enum { ROUNDS_A_TRY = 2000 };
    uint64_t start = clock_ns();
    race(ROUNDS_A_TRY);
    uint64_t ns = clock_ns() - start;
    double now = (double)ROUNDS_A_TRY / (double)(ns ? ns : 1);
    return now > most ? now : most;
}

double limits_bf16_gain(void)
{
    enum { TRIES = 8 };
    double floats = 0, bf16 = 0;
    for (int i = 0; i < TRIES; i++) {
        floats = rate(race_floats, floats);
        bf16 = rate(race_bf16, bf16);
    }
    return 2 * bf16 / floats; /* two products in place of each */
}
#else
double limits_bf16_gain(void) { return 0; }
#endif

/* ---- one for each level ---- */

static const struct {
    uint64_t (*read)(const uint8_t *p, size_t n);
    uint64_t (*int8)(uint32_t n_rounds);
    uint64_t (*floats)(uint32_t n_rounds);
} limits[CPU_LEVELS] = {
    [CPU_SCALAR] = {read_scalar, int8_scalar, floats_scalar},
#if defined(__x86_64__)
    [CPU_AVX2] = {read_avx2, int8_avx2, floats_avx2},
    [CPU_AVX2VNNI] = {read_avx2, int8_avx2vnni, floats_avx2},
    [CPU_AVX512] = {read_avx512, int8_avx512, floats_avx512},
    [CPU_AVX512VNNI] = {read_avx512, int8_avx512vnni, floats_avx512},
    [CPU_AVX512BF16] = {read_avx512, int8_avx512vnni, floats_avx512},
#endif
};

uint64_t limits_read(const uint8_t *p, size_t n) { return limits[cpu_level()].read(p, n); }

uint64_t limits_int8(uint32_t n_rounds) { return limits[cpu_level()].int8(n_rounds); }

uint64_t limits_floats(uint32_t n_rounds) { return limits[cpu_level()].floats(n_rounds); }
