/* [kernel] which variants of the kernels run: the best the machine has, or a lower one by wish. */
#include "core/kernel/cpu.h"

#include "core/base/mem.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const char *const names[CPU_LEVELS] = {"scalar", "avx2", "avx512", "avx512vnni"};
static atomic_int level = -1; /* -1: not chosen yet */

/* __builtin_cpu_supports also asks whether the system saves the registers. */
enum cpu_level cpu_detect(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    unsigned a, b, c, d;
    bool halves = __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !halves)
        return CPU_SCALAR;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
        return CPU_AVX2;
    return __builtin_cpu_supports("avx512vnni") ? CPU_AVX512VNNI : CPU_AVX512;
#else
    return CPU_SCALAR;
#endif
}

int cpu_init(struct error *err)
{
    const char *wish = getenv("ATTEND_CPU");
    enum cpu_level best = cpu_detect();
    if (!wish || !*wish) {
        atomic_store(&level, (int)best);
        return 0;
    }
    for (int i = 0; i < CPU_LEVELS; i++) {
        if (strcmp(wish, names[i]) != 0)
            continue;
        if (i > (int)best)
            return error_set(err, ERR_USAGE, "ATTEND_CPU=%s: this machine has %s at most", wish,
                             names[best]);
        atomic_store(&level, i);
        return 0;
    }
    return error_set(err, ERR_USAGE,
                     "ATTEND_CPU=%s: unknown, use scalar, avx2, avx512 or avx512vnni", wish);
}

void cpu_force(enum cpu_level wanted)
{
    ASSERT(wanted <= cpu_detect());
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
