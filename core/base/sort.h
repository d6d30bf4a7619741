/* [base] Numbers in order. ANY_THREAD. */
#pragma once

#include <stddef.h>

/* v [n], the least first. No NaN. */
void sort_doubles(double *v, size_t n);
