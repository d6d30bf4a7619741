/* [base] the control group's quotas, from /sys/fs/cgroup. */
#include "core/base/cgroup.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads up to two numbers from a one-line file; "max" or no file reads as none. Returns how many. */
static int read_numbers(const char *path, long long value[2])
{
    char line[128];
    int n = 0;
    FILE *f = fopen(path, "r");
    if (!f)
        return 0;
    if (fgets(line, sizeof(line), f)) {
        for (char *s = line, *end; n < 2; s = end, n++) {
            errno = 0;
            value[n] = strtoll(s, &end, 10);
            if (end == s || errno)
                break;
        }
    }
    fclose(f);
    return n;
}

/* The path of this process's group below /sys/fs/cgroup ("" for the root); false without v2. */
static bool own_group(char *group, size_t n_group)
{
    char line[512];
    bool found = false;
    FILE *f = fopen("/proc/self/cgroup", "r");
    if (!f)
        return false;
    while (!found && fgets(line, sizeof(line), f)) {
        line[strcspn(line, "\n")] = '\0';
        found = strncmp(line, "0::/", 4) == 0;
    }
    fclose(f);
    if (found)
        snprintf(group, n_group, "%s", line[4] ? line + 3 : "");
    return found;
}

/* Cuts the last part off; false at the root. */
static bool to_parent(char *group)
{
    char *slash = strrchr(group, '/');
    if (!slash)
        return false;
    *slash = '\0';
    return true;
}

static uint32_t whole_processors(long long quota, long long period)
{
    return quota > 0 && period > 0 ? (uint32_t)((quota + period - 1) / period) : 0;
}

uint32_t cgroup_processors(void)
{
    char group[512], path[600];
    long long v[2], period[2];
    uint32_t least = 0;
    for (bool more = own_group(group, sizeof(group)); more; more = to_parent(group)) {
        snprintf(path, sizeof(path), "/sys/fs/cgroup%s/cpu.max", group);
        uint32_t n = read_numbers(path, v) == 2 ? whole_processors(v[0], v[1]) : 0;
        if (n && (!least || n < least))
            least = n;
    }
    if (!least && read_numbers("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", v) >= 1 &&
        read_numbers("/sys/fs/cgroup/cpu/cpu.cfs_period_us", period) >= 1)
        least = whole_processors(v[0], period[0]);
    return least;
}

/* The number behind a word of memory.stat; 0 where there is none. */
static long long read_stat(const char *path, const char *word)
{
    char line[128];
    size_t n = strlen(word);
    long long found = 0;
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof(line), f))
        if (strncmp(line, word, n) == 0 && line[n] == ' ')
            found = strtoll(line + n, NULL, 10);
    if (f)
        fclose(f);
    return found;
}

/* Names in a folder of version 2 and of version 1. */
static const struct {
    const char *limit, *use, *cache;
} names[] = {{"memory.max", "memory.current", "inactive_file"},
             {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}};

uint64_t cgroup_memory_left_in(const char *folder)
{
    char path[640];
    long long limit[2], use[2];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i].limit);
        if (read_numbers(path, limit) < 1)
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, names[i].use);
        if (read_numbers(path, use) < 1)
            use[0] = 0;
        snprintf(path, sizeof(path), "%s/memory.stat", folder);
        long long cache = read_stat(path, names[i].cache);
        use[0] -= cache < use[0] ? cache : use[0];
        return limit[0] > use[0] ? (uint64_t)(limit[0] - use[0]) : 0;
    }
    return UINT64_MAX;
}

uint64_t cgroup_memory_left(void)
{
    char group[512], folder[600];
    uint64_t least = cgroup_memory_left_in("/sys/fs/cgroup/memory");
    for (bool more = own_group(group, sizeof(group)); more; more = to_parent(group)) {
        snprintf(folder, sizeof(folder), "/sys/fs/cgroup%s", group);
        uint64_t left = cgroup_memory_left_in(folder);
        least = left < least ? left : least;
    }
    return least;
}
