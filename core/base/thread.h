/* [base] Thread roles, names and the processors that this process may use.
 *
 * A function declared ON_ENGINE may be called only on the engine thread. clang's
 * -Wthread-safety checks it (`make check`); builds with ATTEND_DEBUG check it at run time. */
#pragma once

#include <signal.h>
#include <stdint.h>

#if defined(__clang__)
#define THREAD_CAP(x) __attribute__((capability(x)))
#define NEEDS(...)    __attribute__((requires_capability(__VA_ARGS__)))
#define PROVES(...)   __attribute__((assert_capability(__VA_ARGS__)))
#else
#define THREAD_CAP(x)
#define NEEDS(...)
#define PROVES(...)
#endif

struct THREAD_CAP("thread role") thread_role {
    const char *name;
};
extern struct thread_role role_loop, role_engine;

#define ON_LOOP    NEEDS(role_loop)   /* libuv and libmicrohttpd callbacks; must not block */
#define ON_ENGINE  NEEDS(role_engine) /* owns scheduler, KV pages, batches, samplers */
#define ANY_THREAD                    /* safe anywhere; the comment says why */

/* Declares the calling thread to be of a role, once at its start. */
void thread_enter_loop(void) PROVES(role_loop);
void thread_enter_engine(void) PROVES(role_engine);

/* For callbacks from libraries: tells the compiler, and checks in debug builds, that this is the
 * loop's (the engine's) thread. */
void thread_assert_loop(void) PROVES(role_loop);
void thread_assert_engine(void) PROVES(role_engine);

/* The mask for threads that are not the loop's, whose the signals are: all of them but those that tell
 * of a fault of the thread's own (blocked, they would kill without a word). *before: for the caller to
 * set again. */
void thread_block_signals(sigset_t *before);

/* Names the calling thread as `ps -L` and debuggers show it (15 bytes at most). */
__attribute__((format(printf, 1, 2))) void thread_name(const char *fmt, ...);

/* Processors this process may use: affinity mask and cgroup quota (rounded up), at least 1. */
uint32_t thread_processors(void);

/* How long the calling thread has stood ready while other threads had its processor; UINT64_MAX
 * where the kernel does not tell. What the machine itself takes (steal) is not in it, nor sleep. */
uint64_t thread_waited_ns(void);
