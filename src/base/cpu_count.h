/* base/cpu_count.h - how many CPUs a control group allows; apart from td_cpu_count so that tests can feed it. */
#ifndef TD_BASE_CPU_COUNT_H
#define TD_BASE_CPU_COUNT_H

#include "base/str.h"

/* The smallest quota, in whole CPUs rounded up, of the groups that `self_cgroup` (the text of /proc/self/cgroup)
 * names and of their ancestors, as mounted at `mount_root` (/sys/fs/cgroup). Version 2 (cpu.max) and 1
 * (cpu.cfs_quota_us). 0: none. */
int td_cgroup_cpus(td_str self_cgroup, const char *mount_root);

#endif
