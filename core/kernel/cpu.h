/* [kernel] The CPU level: which variants of the kernels run. Found at start-up; ATTEND_CPU=scalar
 * | avx2 | avx2vnni | avx512 | avx512vnni | avx512bf16 forces another one that the machine has (one
 * that it has not, or an unknown one, is an error that says so). Levels are no chain: there are
 * machines with AVX-512 VNNI that have not the VNNI of AVX2. */
#pragma once

#include "core/base/error.h"

#include <stdbool.h>

enum cpu_level {
    CPU_SCALAR,
    CPU_AVX2,
    CPU_AVX2VNNI, /* byte dot products (AVX-VNNI); else as CPU_AVX2 */
    CPU_AVX512,
    CPU_AVX512VNNI, /* byte dot products; else as CPU_AVX512 */
    CPU_AVX512BF16, /* BF16 dot products; else as CPU_AVX512VNNI */
    CPU_LEVELS
};

/* The rows of a table for the levels, of what differs by the width of vectors only: name_scalar,
 * name_avx2, name_avx512. */
#if defined(__x86_64__)
#define CPU_BY_WIDTH(name)                                                                         \
    {                                                                                              \
        [CPU_SCALAR] = name##_scalar, [CPU_AVX2] = name##_avx2, [CPU_AVX2VNNI] = name##_avx2,      \
        [CPU_AVX512] = name##_avx512, [CPU_AVX512VNNI] = name##_avx512,                            \
        [CPU_AVX512BF16] = name##_avx512                                                           \
    }
#else
#define CPU_BY_WIDTH(name)                                                                         \
    {                                                                                              \
        name##_scalar                                                                              \
    }
#endif

/* The best level of this machine: the last, but CPU_AVX512BF16 only where its dot products are fast,
 * which the first call measures in less than a millisecond: on some processors they are half as fast
 * as FMA of floats, on others twice. Thread: as cpu_has. */
enum cpu_level cpu_detect(void);

/* Whether this machine runs a level; the next one above `after` that it runs, else CPU_LEVELS.
 * ANY_THREAD that no other runs beside (start-up, tests): may try an instruction and catch SIGILL. */
bool cpu_has(enum cpu_level level);
int cpu_next(int after);

/* Sets the level from $ATTEND_CPU or cpu_detect(). Start-up, before any kernel. */
int cpu_init(struct error *err);

/* Tests: force a level that the machine has. */
void cpu_force(enum cpu_level wanted);

enum cpu_level cpu_level(void); /* cpu_detect() where cpu_init was not called */
const char *cpu_level_name(enum cpu_level of);
