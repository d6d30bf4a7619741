/* [kernel] What the x86-64 variants of the kernels share. Each variant carries its own target
 * attribute: the program is built for any x86-64 and chooses at run time (cpu.h). Other machines
 * run scalar code. */
#pragma once

/* A body compiled into each variant, with the instructions that the variant may use. */
#define SIMD_INLINE static inline __attribute__((always_inline))

#if defined(__x86_64__)

#include <immintrin.h>

#define TARGET_AVX2     __attribute__((target("avx2,fma,f16c")))
#define TARGET_AVX2VNNI __attribute__((target("avx2,fma,f16c,avxvnni")))
#define TARGET_AVX512   __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")))
#define TARGET_AVX512VNNI                                                                          \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")))

/* Loops over a tile must vanish: their arrays then are registers. Sanitizers put a check at every
 * access, of which unrolled loops have too many to compile. */
#if defined(__has_feature)
#define SIMD_HAS(x) __has_feature(x)
#else
#define SIMD_HAS(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__) ||     \
    SIMD_HAS(address_sanitizer) || SIMD_HAS(thread_sanitizer)
#define SIMD_UNROLL
#elif defined(__clang__)
#define SIMD_UNROLL _Pragma("unroll")
#else
#define SIMD_UNROLL _Pragma("GCC unroll 16")
#endif

/* Makes the compiler load again what it read through p, rather than keep it in registers that a
 * tile needs for its sums. */
#define SIMD_FORGET(p) __asm__("" : "+r"(p))

/* The same, and only once v is computed: what is read through p can not be read before. */
#define SIMD_AFTER(p, v) __asm__("" : "+r"(p) : "v"(v))

/* SIMD_FORGET where two branches begin alike: what they read first is then not read before them. */
#define SIMD_APART(p) __asm__ volatile("" : "+r"(p))

/* A vector whose value the compiler may not look through. */
#define SIMD_KEEP(v) __asm__("" : "+v"(v))

#endif
