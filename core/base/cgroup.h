/* [base] What the control group of this process allows: the least over the group and its parents
 * (v2), or the mounted controller's (v1). ANY_THREAD: reads files. */
#pragma once

#include <stdint.h>

/* Processors of the CPU quota, rounded up; 0 = no quota. */
uint32_t cgroup_processors(void);

/* Bytes between the memory limit and what is in use; UINT64_MAX = no limit. Pages of files that were
 * read and are not in use (inactive_file) count as free: a model that was just fetched would
 * otherwise not fit beside its own file. */
uint64_t cgroup_memory_left(void);

/* The same of one group, by its folder. */
uint64_t cgroup_memory_left_in(const char *folder);
