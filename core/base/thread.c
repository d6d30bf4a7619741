/* [base] thread roles, names, and how many processors the machine really gives us. */
#include "core/base/thread.h"

#include "core/base/cgroup.h"
#include "core/base/mem.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct thread_role role_loop = {"loop"}, role_engine = {"engine"};

static _Thread_local const struct thread_role *self;

/* The compiler cannot see what `self` proves. */
#if defined(__clang__)
#define UNCHECKED __attribute__((no_thread_safety_analysis))
#else
#define UNCHECKED
#endif

UNCHECKED void thread_enter_loop(void) { self = &role_loop; }

UNCHECKED void thread_enter_engine(void) { self = &role_engine; }

UNCHECKED void thread_assert_loop(void)
{
#ifdef ATTEND_DEBUG
    ASSERT(self == &role_loop);
#endif
}

UNCHECKED void thread_assert_engine(void)
{
#ifdef ATTEND_DEBUG
    ASSERT(self == &role_engine);
#endif
}

void thread_block_signals(sigset_t *before)
{
    static const int faults[] = {SIGBUS, SIGSEGV, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS};
    sigset_t all;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        sigdelset(&all, faults[i]);
    pthread_sigmask(SIG_SETMASK, &all, before);
}

void thread_name(const char *fmt, ...)
{
    char name[16];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof(name), fmt, ap);
    va_end(ap);
    pthread_setname_np(pthread_self(), name);
}

uint32_t thread_processors(void)
{
    cpu_set_t set;
    uint32_t n = 0;
    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        n = (uint32_t)CPU_COUNT(&set);
    else if (sysconf(_SC_NPROCESSORS_ONLN) > 0)
        n = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t quota = cgroup_processors();
    if (quota && quota < n)
        n = quota;
    return n ? n : 1;
}

uint64_t thread_waited_ns(void)
{
    char line[96], *next;
    int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof(line) - 1);
    if (fd >= 0)
        close(fd);
    line[n > 0 ? n : 0] = '\0';
    unsigned long long had = strtoull(line, &next, 10); /* kernels that do not count say 0 */
    return had ? strtoull(next, NULL, 10) : UINT64_MAX;
}
