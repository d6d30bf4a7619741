/* [kernel] which variants of the kernels run: the best the machine has, or another one by wish. */
#include "core/kernel/cpu.h"

#include "core/base/mem.h"
#include "core/kernel/limits.h"

#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const char *const names[CPU_LEVELS] = {"scalar", "avx2",       "avx2vnni",
                                              "avx512", "avx512vnni", "avx512bf16"};
static atomic_int level = -1; /* -1: not chosen yet */

#if defined(__x86_64__)
static sigjmp_buf no_such_instruction;

static void on_illegal(int signal_number) { siglongjmp(no_such_instruction, signal_number); }

/* Whether the instruction of CPU_AVX2VNNI or CPU_AVX512BF16 runs. */
static bool try_dots(enum cpu_level of)
{
    struct sigaction mine = {.sa_handler = on_illegal}, before;
    volatile bool runs = false;
    sigaction(SIGILL, &mine, &before);
    if (!sigsetjmp(no_such_instruction, 1)) {
        if (of == CPU_AVX2VNNI)
            __asm__ volatile("%{vex%} vpdpbusd %%ymm0, %%ymm0, %%ymm0" ::: "xmm0");
        else
            __asm__ volatile("vdpbf16ps %%zmm0, %%zmm0, %%zmm0" ::: "xmm0");
        runs = true;
    }
    sigaction(SIGILL, &before, NULL);
    return runs;
}

/* Leaf 7.1 of CPUID, eax: what the processor says of the dot products. */
enum { AVX_VNNI = 1 << 4, AVX512_BF16 = 1 << 5 };
static bool says(unsigned feature)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && a >= 1 &&
           __get_cpuid_count(7, 1, &a, &b, &c, &d) && a & feature;
}

/* BF16 dot products take 2 values at once and must do clearly more than FMA (1.3 times): processors
 * known so far do half as much or twice, so that noise decides nothing. */
static bool bf16_is_fast(void)
{
    static atomic_int fast = -1;
    if (atomic_load(&fast) < 0)
        atomic_store(&fast, says(AVX512_BF16) && limits_bf16_gain() > 1.3);
    return atomic_load(&fast) > 0;
}

/* __builtin_cpu_supports also asks whether the system saves the registers. Hypervisors hide leaf 7.1
 * of processors that have the instructions. Where the answer is no reason to choose the level,
 * whether they run is what counts: then the level can be tested. */
bool cpu_has(enum cpu_level of)
{
    unsigned a, b, c, d;
    __builtin_cpu_init();
    switch (of) {
    case CPU_SCALAR:
        return true;
    case CPU_AVX2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
               __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
    case CPU_AVX2VNNI:
        return cpu_has(CPU_AVX2) &&
               (says(AVX_VNNI) || (cpu_has(CPU_AVX512VNNI) && try_dots(CPU_AVX2VNNI)));
    case CPU_AVX512:
        return cpu_has(CPU_AVX2) && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512dq");
    case CPU_AVX512VNNI:
        return cpu_has(CPU_AVX512) && __builtin_cpu_supports("avx512vnni");
    case CPU_AVX512BF16:
        return cpu_has(CPU_AVX512VNNI) && (says(AVX512_BF16) || try_dots(CPU_AVX512BF16));
    default:
        return false;
    }
}
#else
static bool bf16_is_fast(void) { return false; }
bool cpu_has(enum cpu_level of) { return of == CPU_SCALAR; }
#endif

int cpu_next(int after)
{
    do
        after++;
    while (after < CPU_LEVELS && !cpu_has((enum cpu_level)after));
    return after;
}

enum cpu_level cpu_detect(void)
{
    int best = CPU_LEVELS - 1;
    while (!cpu_has((enum cpu_level)best) || (best == CPU_AVX512BF16 && !bf16_is_fast()))
        best--;
    return (enum cpu_level)best;
}

/* Names, with commas, of all levels or of those that the machine has. */
static const char *list(bool all, char *text, size_t n)
{
    size_t at = 0;
    for (int i = 0; i < CPU_LEVELS; i = all ? i + 1 : cpu_next(i))
        at += (size_t)snprintf(text + at, n - at, "%s%s", at ? ", " : "", names[i]);
    return text;
}

int cpu_init(struct error *err)
{
    const char *wish = getenv("ATTEND_CPU");
    char text[80];
    if (!wish || !*wish) {
        atomic_store(&level, (int)cpu_detect());
        return 0;
    }
    for (int i = 0; i < CPU_LEVELS; i++) {
        if (strcmp(wish, names[i]) != 0)
            continue;
        if (!cpu_has((enum cpu_level)i))
            return error_set(err, ERR_USAGE, "ATTEND_CPU=%s: this machine has %s", wish,
                             list(false, text, sizeof(text)));
        atomic_store(&level, i);
        return 0;
    }
    return error_set(err, ERR_USAGE, "ATTEND_CPU=%s: unknown, use one of %s", wish,
                     list(true, text, sizeof(text)));
}

void cpu_force(enum cpu_level wanted)
{
    ASSERT(cpu_has(wanted));
    atomic_store(&level, (int)wanted);
}

enum cpu_level cpu_level(void)
{
    int now = atomic_load_explicit(&level, memory_order_relaxed);
    if (now < 0) {
        now = (int)cpu_detect();
        atomic_store(&level, now);
    }
    return (enum cpu_level)now;
}

const char *cpu_level_name(enum cpu_level of) { return of < CPU_LEVELS ? names[of] : "?"; }
