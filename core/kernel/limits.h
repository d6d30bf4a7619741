/* [kernel] What a processor can do at most, to measure speed against: how fast a thread reads
 * memory, multiplies bytes and multiplies floats, with the instructions of the CPU level and
 * nothing else in the way. Pure functions: ANY_THREAD; who calls keeps the time. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Reads n bytes (a multiple of 1024) at p, 64-byte aligned, once, in order; returns something that
 * depends on all of them. */
uint64_t limits_read(const uint8_t *p, size_t n);

/* Multiplies and adds in registers; returns how many multiplications and additions that were (two
 * for each product). Bytes as the level's kernels do: with dot products where it has them. */
uint64_t limits_int8(uint32_t n_rounds);
uint64_t limits_floats(uint32_t n_rounds);

/* How many times as many products BF16 dot products do in a time as FMA of floats, measured in about
 * half a millisecond. Only where there are both. */
double limits_bf16_gain(void);
