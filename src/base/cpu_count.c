/* base/cpu_count.c - the number of CPUs this process may use: affinity mask and control group quota.
 * Sources: sched(7), Linux Documentation/admin-guide/cgroup-v2 (cpu.max) and scheduler/sched-bwc (cpu.cfs_quota_us). */
#include "base/cpu_count.h"

#include "base/file.h"
#include "base/number.h"
#include "base/pool.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>

/* The first one or two words of a small file; false if it cannot be read. */
static bool read_words(const char *dir, const char *name, char out[2][32]) {
    char path[600], text[128];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, name) >= sizeof path) return false;
    FILE *file = fopen(path, "re"); /* not td_file_read: no heap here, so that an empty heap changes no thread count */
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) fclose(file);
    text[n] = '\0';
    out[0][0] = out[1][0] = '\0';
    return sscanf(text, "%31s %31s", out[0], out[1]) >= 1;
}

static int whole_cpus(const char *quota, const char *period) {
    int64_t q, p;
    if (!td_parse_int(td_str_from(quota), &q) || !td_parse_int(td_str_from(period), &p) || q <= 0 || p <= 0) return 0;
    int64_t cpus = q / p + (q % p != 0);
    return cpus > 1 << 20 ? 0 : (int)cpus;
}

/* Quota of one group's folder; 0: none. */
static int folder_cpus(const char *dir, bool v2) {
    char words[2][32], period[2][32];
    if (v2) return read_words(dir, "cpu.max", words) ? whole_cpus(words[0], words[1]) : 0;
    if (!read_words(dir, "cpu.cfs_quota_us", words) || !read_words(dir, "cpu.cfs_period_us", period)) return 0;
    return whole_cpus(words[0], period[0]);
}

static int smaller(int a, int b) { return a == 0 || (b != 0 && b < a) ? b : a; }

/* The smallest quota from `group` up to the mount's root. Inside a container the group's own path may not be mounted;
 * then only the upper folders, at least the root, are there to be read. */
static int path_cpus(const char *mount, td_str group, bool v2) {
    char dir[512];
    int n = snprintf(dir, sizeof dir, "%s%.*s", mount, TD_STR_ARGS(group)), cpus = 0;
    if (n < 0 || (size_t)n >= sizeof dir) return folder_cpus(mount, v2);
    for (size_t n_mount = strlen(mount);;) {
        cpus = smaller(cpus, folder_cpus(dir, v2));
        char *slash = strrchr(dir + n_mount, '/');
        if (!slash) return cpus;
        *slash = '\0';
    }
}

static bool names_controller(td_str list, td_str name) {
    while (list.n) {
        const char *comma = memchr(list.p, ',', list.n);
        size_t n = comma ? (size_t)(comma - list.p) : list.n;
        if (td_str_equal((td_str){list.p, n}, name)) return true;
        n = TD_MIN(n + 1, list.n);
        list = (td_str){list.p + n, list.n - n};
    }
    return false;
}

/* One line "ID:CONTROLLERS:PATH" of /proc/self/cgroup. */
static int line_cpus(td_str line, const char *mount_root) {
    const char *first = memchr(line.p, ':', line.n);
    const char *second = first ? memchr(first + 1, ':', (size_t)(line.p + line.n - first - 1)) : NULL;
    if (!second) return 0;
    td_str controllers = {first + 1, (size_t)(second - first - 1)};
    td_str group = {second + 1, (size_t)(line.p + line.n - second - 1)};
    char mount[256];
    if (controllers.n == 0) return path_cpus(mount_root, group, true);
    if (!names_controller(controllers, TD_STR("cpu"))) return 0;
    int n = snprintf(mount, sizeof mount, "%s/%.*s", mount_root, TD_STR_ARGS(controllers));
    int cpus = n > 0 && (size_t)n < sizeof mount ? path_cpus(mount, group, false) : 0;
    n = snprintf(mount, sizeof mount, "%s/cpu", mount_root); /* the usual link to the folder of all controllers */
    return n > 0 && (size_t)n < sizeof mount ? smaller(cpus, path_cpus(mount, group, false)) : cpus;
}

int td_cgroup_cpus(td_str self_cgroup, const char *mount_root) {
    int cpus = 0;
    while (self_cgroup.n) {
        const char *newline = memchr(self_cgroup.p, '\n', self_cgroup.n);
        size_t n = newline ? (size_t)(newline - self_cgroup.p) : self_cgroup.n;
        cpus = smaller(cpus, line_cpus((td_str){self_cgroup.p, n}, mount_root));
        n = TD_MIN(n + 1, self_cgroup.n);
        self_cgroup = (td_str){self_cgroup.p + n, self_cgroup.n - n};
    }
    return cpus;
}

static int affinity_cpus(void) {
    enum { MOST_CPUS = 1 << 16 };
    static const size_t bytes = MOST_CPUS / 8;
    unsigned long set[MOST_CPUS / 8 / sizeof(unsigned long)] = {0};
    return sched_getaffinity(0, bytes, (cpu_set_t *)set) == 0 ? CPU_COUNT_S(bytes, (cpu_set_t *)set) : 0;
}

int td_cpu_count(void) {
    int cpus = affinity_cpus();
    char text[4096];
    FILE *file = fopen("/proc/self/cgroup", "re");
    size_t n = file ? fread(text, 1, sizeof text, file) : 0;
    if (file) fclose(file);
    cpus = smaller(cpus, td_cgroup_cpus((td_str){text, n}, "/sys/fs/cgroup"));
    return TD_MAX(cpus, 1);
}
