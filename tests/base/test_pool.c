/* base/pool.h: every part once, nesting, turns, sharing, idleness. Run under TSan by `make test-tsan`.
 * labels: threads */
#include "support/test.h"

#include "base/alloc.h"
#include "base/cpu_count.h"
#include "base/file.h"
#include "base/pool.h"
#include "base/time.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { MOST_PARTS = 5000 };

typedef struct counts {
    td_pool *pool;
    int plain[MOST_PARTS]; /* not atomic: a race or a lost update is what TSan and the checks are to see */
    atomic_int wrong_thread;
} counts;

static void count(void *arg, int part, int thread) {
    counts *c = arg;
    if (thread < 0 || thread >= td_pool_threads(c->pool)) atomic_fetch_add(&c->wrong_thread, 1);
    c->plain[part]++;
}

static void check_counts(counts *c, int n_parts, int expected) {
    for (int i = 0; i < MOST_PARTS; i++) {
        if (c->plain[i] != (i < n_parts ? expected : 0)) FAIL("part %d of %d: %d times", i, n_parts, c->plain[i]);
    }
    CHECK_EQ_INT(c->wrong_thread, 0);
}

TEST(each_part_once) {
    static const int threads[] = {1, 2, 3, 4, 7};
    static const int parts[] = {0, 1, 2, 3, 5, 64, MOST_PARTS};
    for (size_t t = 0; t < TD_COUNT(threads); t++) {
        td_pool *pool = td_pool_acquire(threads[t]);
        REQUIRE(pool != NULL);
        CHECK_EQ_INT(td_pool_threads(pool), threads[t]);
        for (size_t p = 0; p < TD_COUNT(parts); p++) {
            counts c = {.pool = pool};
            for (int round = 0; round < 20; round++) td_pool_run(pool, parts[p], count, &c);
            check_counts(&c, parts[p], 20);
        }
        td_pool_release(pool);
    }
}

TEST(no_pool_runs_all_on_the_caller) {
    counts c = {0};
    td_pool_run(NULL, 10, count, &c);
    check_counts(&c, 10, 1);
    CHECK_EQ_INT(td_pool_threads(NULL), 1);
    td_pool_release(NULL);
}

/* Regions that follow each other at once, and their plain results read by the starter: the
 * hand-over in both directions. */
TEST(many_short_regions) {
    td_pool *pool = td_pool_acquire(3);
    counts c = {.pool = pool};
    for (int round = 1; round <= 20000; round++) {
        td_pool_run(pool, 3, count, &c);
        if (c.plain[0] != round || c.plain[1] != round || c.plain[2] != round) FAIL("region %d", round);
    }
    td_pool_release(pool);
}

/* Pauses around the length of the spin, so that workers are caught awake, falling asleep and asleep. */
TEST(regions_after_pauses) {
    td_pool *pool = td_pool_acquire(4);
    counts c = {.pool = pool};
    for (int round = 1; round <= 300; round++) {
        uint64_t until = td_time_ns() + (uint64_t)(round % 60) * 1000;
        while (td_time_ns() < until) {}
        td_pool_run(pool, 4 + round % 3, count, &c);
        if (c.plain[3] != round) FAIL("region %d", round);
    }
    td_pool_release(pool);
}

static void wait_for_both(void *arg, int part, int thread) {
    atomic_int *here = arg;
    (void)part;
    (void)thread;
    atomic_fetch_add(here, 1);
    uint64_t until = td_time_ns() + 20000000000u;
    while (atomic_load(here) < 2 && td_time_ns() < until) sched_yield();
}

TEST(parts_run_at_the_same_time) {
    td_pool *pool = td_pool_acquire(2);
    atomic_int here = 0;
    uint64_t start = td_time_ns();
    td_pool_run(pool, 2, wait_for_both, &here); /* each part waits for the other */
    CHECK(td_time_ns() - start < 20000000000u);
    td_pool_release(pool);
}

typedef struct nest {
    td_pool *pool, *other;
    atomic_int inner_parts, moved, outer_threads[4];
} nest;

typedef struct inner {
    nest *outer;
    pthread_t caller;
    int thread;
} inner;

static void inner_part(void *arg, int part, int thread) {
    inner *in = arg;
    (void)part;
    if (!pthread_equal(pthread_self(), in->caller) || thread != in->thread) atomic_fetch_add(&in->outer->moved, 1);
    atomic_fetch_add(&in->outer->inner_parts, 1);
}

static void inner_range(void *arg, int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; i++) inner_part(arg, 0, thread);
}

static void outer_part(void *arg, int part, int thread) {
    nest *n = arg;
    (void)part;
    inner in = {.outer = n, .caller = pthread_self(), .thread = thread};
    td_pool_run(n->pool, 5, inner_part, &in);
    td_pool_range(n->pool, 7, 1, 1, inner_range, &in);
    in.thread = 0; /* a pool of one thread has room for no other number */
    td_pool_run(n->other, 3, inner_part, &in);
    td_pool_run(NULL, 2, inner_part, &in);
}

TEST(nested_regions_run_on_the_same_thread) {
    nest n = {.pool = td_pool_acquire(4), .other = td_pool_acquire(1)};
    for (int i = 0; i < 50; i++) td_pool_run(n.pool, 40, outer_part, &n);
    CHECK_EQ_INT(n.inner_parts, 50 * 40 * (5 + 7 + 3 + 2));
    CHECK_EQ_INT(n.moved, 0);
    td_pool_release(n.pool);
    td_pool_release(n.other);
}

static void *start_regions(void *arg) {
    counts *c = arg;
    for (int i = 0; i < 2000; i++) td_pool_run(c->pool, 6, count, c);
    return NULL;
}

TEST(several_threads_start_regions) {
    enum { N = 3 };
    td_pool *pool = td_pool_acquire(3);
    counts *c = calloc(N, sizeof *c);
    pthread_t threads[N];
    for (int i = 0; i < N; i++) {
        c[i].pool = pool;
        REQUIRE(pthread_create(&threads[i], NULL, start_regions, &c[i]) == 0);
    }
    for (int i = 0; i < N; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < N; i++) check_counts(&c[i], 6, 2000);
    free(c);
    td_pool_release(pool);
}

static void *acquire_and_release(void *arg) {
    atomic_int *wrong = arg;
    for (int i = 0; i < 200; i++) {
        td_pool *pool = td_pool_acquire(2 + i % 2);
        counts c = {.pool = pool};
        td_pool_run(pool, 4, count, &c);
        for (int part = 0; part < 4; part++) {
            if (c.plain[part] != 1) atomic_fetch_add(wrong, 1);
        }
        td_pool_release(pool);
    }
    return NULL;
}

TEST(pools_come_and_go) {
    pthread_t threads[3];
    atomic_int wrong = 0;
    for (int i = 0; i < 3; i++) REQUIRE(pthread_create(&threads[i], NULL, acquire_and_release, &wrong) == 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    CHECK_EQ_INT(wrong, 0);
}

TEST(equal_sizes_share) {
    td_pool *a = td_pool_acquire(2), *b = td_pool_acquire(2), *c = td_pool_acquire(3), *d = td_pool_acquire(0);
    CHECK_EQ_PTR(a, b);
    CHECK(a != c);
    CHECK_EQ_INT(td_pool_threads(d), td_cpu_count());
    td_pool_release(b);
    counts k = {.pool = a};
    td_pool_run(a, 4, count, &k);
    check_counts(&k, 4, 1);
    td_pool_release(a);
    td_pool_release(c);
    td_pool_release(d);
}

static int threads_of_process(void) {
    char *status;
    size_t n_bytes;
    treadle_error err;
    CHECK_OK(td_file_read("/proc/self/status", 0, &status, &n_bytes, &err), &err);
    const char *line = strstr(status, "\nThreads:");
    int n = line ? atoi(line + 9) : -1;
    td_free(status);
    return n;
}

TEST(n_threads_means_n) {
    int before = threads_of_process();
    td_pool *pool = td_pool_acquire(5);
    CHECK_EQ_INT(threads_of_process(), before); /* lazily */
    counts c = {.pool = pool};
    td_pool_run(pool, 5, count, &c);
    CHECK_EQ_INT(threads_of_process(), before + 4);
    td_pool_release(pool);
    for (int i = 0; i < 1000 && threads_of_process() != before; i++) usleep(1000); /* the kernel may lag */
    CHECK_EQ_INT(threads_of_process(), before);
}

static double cpu_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

TEST(idle_costs_nothing) {
    td_pool *pool = td_pool_acquire(4);
    counts c = {.pool = pool};
    td_pool_run(pool, 8, count, &c);
    usleep(20000); /* until all are asleep, on a busy machine too */
    double before = cpu_seconds();
    usleep(200000);
    CHECK(cpu_seconds() - before < 0.02);
    td_pool_release(pool);
}

typedef struct spans {
    td_pool *pool;
    atomic_int n_calls;
    int64_t n, multiple;
    atomic_int faults;
    unsigned char seen[1000];
} spans;

static void mark(void *arg, int64_t begin, int64_t end, int thread) {
    spans *s = arg;
    atomic_fetch_add(&s->n_calls, 1);
    if (begin >= end || begin % s->multiple != 0 || (end != s->n && end % s->multiple != 0) || thread < 0 ||
        thread >= td_pool_threads(s->pool)) {
        atomic_fetch_add(&s->faults, 1);
    }
    for (int64_t i = begin; i < end; i++) s->seen[i]++;
}

TEST(ranges_cover_all_once) {
    static const int64_t sizes[] = {0, 1, 2, 3, 15, 16, 17, 63, 64, 65, 999, 1000};
    static const int64_t grains[] = {0, 1, 7, 16, 500, 2000};
    static const int64_t multiples[] = {0, 1, 4, 16, 64};
    for (int threads = 1; threads <= 4; threads++) {
        td_pool *pool = td_pool_acquire(threads);
        for (size_t i = 0; i < TD_COUNT(sizes); i++) {
            for (size_t g = 0; g < TD_COUNT(grains); g++) {
                for (size_t m = 0; m < TD_COUNT(multiples); m++) {
                    spans s = {.pool = pool, .n = sizes[i], .multiple = TD_MAX(multiples[m], 1)};
                    td_pool_range(pool, sizes[i], grains[g], multiples[m], mark, &s);
                    int64_t most = sizes[i] / TD_MAX(grains[g], 1);
                    if (s.n_calls > TD_MAX(TD_MIN(threads, most), sizes[i] > 0) || s.faults)
                        FAIL("%lld by %lld: %d ranges", (long long)sizes[i], (long long)grains[g], s.n_calls);
                    for (int64_t k = 0; k < 1000; k++) {
                        if (s.seen[k] != (k < sizes[i])) FAIL("item %lld of %lld", (long long)k, (long long)sizes[i]);
                    }
                }
            }
        }
        td_pool_release(pool);
    }
    spans s = {.multiple = 1};
    td_pool_range(NULL, 0, 1, 1, mark, &s);
    td_pool_range(NULL, -5, 1, 1, mark, &s);
    CHECK_EQ_INT(s.n_calls, 0);
}

TEST(follows_the_affinity_mask) {
    cpu_set_t saved, one;
    REQUIRE(sched_getaffinity(0, sizeof saved, &saved) == 0);
    int before = td_cpu_count();
    CHECK(before >= 1 && before <= CPU_COUNT(&saved));
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++) {
        if (CPU_ISSET(i, &saved)) CPU_SET(i, &one);
    }
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
    CHECK_EQ_INT(td_cpu_count(), 1);
    sched_setaffinity(0, sizeof saved, &saved);
}

static void put(const char *folder, const char *name, const char *text) {
    char command[512];
    snprintf(command, sizeof command, "mkdir -p '%s'", folder);
    REQUIRE(system(command) == 0);
    snprintf(command, sizeof command, "%s/%s", folder, name);
    td_test_write(command, text, strlen(text));
}

TEST(follows_cgroup_quotas) {
    const char *root = td_test_temp("cgroup");
    char folder[400];
    snprintf(folder, sizeof folder, "%s/a/b", root);
    put(folder, "cpu.max", "max 100000\n");
    CHECK_EQ_INT(td_cgroup_cpus(TD_STR("0::/a/b\n"), root), 0);
    snprintf(folder, sizeof folder, "%s/a", root);
    put(folder, "cpu.max", "350000 100000\n"); /* of the parent */
    CHECK_EQ_INT(td_cgroup_cpus(TD_STR("0::/a/b\n"), root), 4);
    put(root, "cpu.max", "100000 100000\n");
    CHECK_EQ_INT(td_cgroup_cpus(TD_STR("0::/a/b"), root), 1);
    CHECK_EQ_INT(td_cgroup_cpus(TD_STR("0::/not/mounted/here"), root), 1);
    put(root, "cpu.max", "10000 100000\n");
    CHECK_EQ_INT(td_cgroup_cpus(TD_STR("0::/"), root), 1); /* less than one CPU is one */
    put(root, "cpu.max", "nonsense\n");
    CHECK_EQ_INT(td_cgroup_cpus(TD_STR("0::/"), root), 0);
    CHECK_EQ_INT(td_cgroup_cpus(TD_STR(""), root), 0);
    CHECK_EQ_INT(td_cgroup_cpus(TD_STR("garbage\n::\n0:"), root), 0);

    const char *v1 = td_test_temp("cgroup1");
    snprintf(folder, sizeof folder, "%s/cpu,cpuacct/box", v1);
    put(folder, "cpu.cfs_quota_us", "200000\n");
    put(folder, "cpu.cfs_period_us", "100000\n");
    td_str lines = TD_STR("12:memory:/box\n5:cpu,cpuacct:/box/inner\n3:cpuset:/box\n");
    CHECK_EQ_INT(td_cgroup_cpus(lines, v1), 2);
    put(folder, "cpu.cfs_quota_us", "-1\n");
    CHECK_EQ_INT(td_cgroup_cpus(lines, v1), 0);
    snprintf(folder, sizeof folder, "%s/cpu", v1); /* where only the short name is mounted */
    put(folder, "cpu.cfs_quota_us", "300000\n");
    put(folder, "cpu.cfs_period_us", "100000\n");
    CHECK_EQ_INT(td_cgroup_cpus(lines, v1), 3);
}
