/* [base] thread roles, names, and how many processors the machine really gives us. */
#include "core/base/thread.h"

#include "core/base/mem.h"

#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
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

void thread_name(const char *fmt, ...)
{
    char name[16];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof(name), fmt, ap);
    va_end(ap);
    pthread_setname_np(pthread_self(), name);
}

/* Processors of the quota in a "quota period" or two files, rounded up; 0 = no quota. */
static uint32_t quota_of(long long quota, long long period)
{
    if (quota <= 0 || period <= 0)
        return 0;
    return (uint32_t)((quota + period - 1) / period);
}

/* Lowest quota from the process's own cgroup up to the root (v2: cpu.max in each). */
static uint32_t quota_v2(void)
{
    char line[512], path[600], text[64];
    FILE *f = fopen("/proc/self/cgroup", "r");
    uint32_t least = 0;
    if (!f)
        return 0;
    while (fgets(line, sizeof(line), f)) {
        if (strncmp(line, "0::", 3) != 0)
            continue;
        char *group = line + 3;
        group[strcspn(group, "\n")] = '\0';
        for (;;) {
            snprintf(path, sizeof(path), "/sys/fs/cgroup%s/cpu.max", strcmp(group, "/") ? group : "");
            FILE *q = fopen(path, "r");
            long long quota, period;
            if (q) {
                if (fgets(text, sizeof(text), q) && sscanf(text, "%lld %lld", &quota, &period) == 2) {
                    uint32_t n = quota_of(quota, period);
                    if (n && (!least || n < least))
                        least = n;
                }
                fclose(q);
            }
            char *slash = strrchr(group, '/');
            if (!slash || group[1] == '\0')
                break;
            slash[slash == group] = '\0';
        }
    }
    fclose(f);
    return least;
}

static uint32_t quota_v1(void)
{
    long long quota = 0, period = 0;
    FILE *q = fopen("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "r");
    FILE *p = fopen("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "r");
    if (q && fscanf(q, "%lld", &quota) != 1)
        quota = 0;
    if (p && fscanf(p, "%lld", &period) != 1)
        period = 0;
    if (q)
        fclose(q);
    if (p)
        fclose(p);
    return quota_of(quota, period);
}

uint32_t thread_processors(void)
{
    cpu_set_t set;
    uint32_t n = 0;
    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        n = (uint32_t)CPU_COUNT(&set);
    else if (sysconf(_SC_NPROCESSORS_ONLN) > 0)
        n = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t quota = quota_v2();
    if (!quota)
        quota = quota_v1();
    if (quota && quota < n)
        n = quota;
    return n ? n : 1;
}
