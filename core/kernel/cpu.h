/* [kernel] The CPU level: which variants of the kernels run. Found at start-up; ATTEND_CPU=scalar
 * | avx2 | avx512 | avx512vnni forces a lower one (a higher or unknown one is an error that says
 * so). */
#pragma once

#include "core/base/error.h"

enum cpu_level { CPU_SCALAR, CPU_AVX2, CPU_AVX512, CPU_AVX512VNNI, CPU_LEVELS };

/* The best level of this machine. ANY_THREAD: const. */
enum cpu_level cpu_detect(void);

/* Sets the level from $ATTEND_CPU or cpu_detect(). Start-up, before any kernel. */
int cpu_init(struct error *err);

/* Tests: force a level not above cpu_detect(). */
void cpu_force(enum cpu_level wanted);

enum cpu_level cpu_level(void); /* cpu_detect() where cpu_init was not called */
const char *cpu_level_name(enum cpu_level of);
