/* [base] Monotonic time. ANY_THREAD. */
#pragma once

#include <stdint.h>

uint64_t clock_ns(void);
double clock_ms(void);
