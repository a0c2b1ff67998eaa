/* base/pool.h - the thread pool: one per process, shared by all sessions.
 *
 * A region runs fn(arg, part) for part 0..n_parts-1 on at most n_threads threads, the caller being one of them, and
 * returns when all parts are done. Parts are handed out dynamically. Workers wait in a hybrid way: about 20 us of
 * spinning, then a futex, so that an idle pool costs nothing (measured in reference/perf.md section 4).
 * A region started from inside a region runs on the calling thread alone and keeps its thread number (0 if the inner
 * pool is too small for it). Two threads that start regions at once take
 * turns (the second runs its parts alone if the pool is busy). n_threads N means N, the caller included. */
#ifndef TD_BASE_POOL_H
#define TD_BASE_POOL_H

#include "base/compiler.h"
#include "base/error.h"

typedef struct td_pool td_pool;

/* The number of CPUs this process may use: affinity mask and cgroup quota, at least 1. */
int td_cpu_count(void);

/* A pool of n_threads (0: td_cpu_count()), workers started lazily at the first region. Pools of equal size are shared:
 * acquire counts references, release joins the workers with the last one. NULL: out of memory. Thread-safe. */
td_pool *td_pool_acquire(int n_threads);
void td_pool_release(td_pool *pool);
int td_pool_threads(const td_pool *pool); /* NULL: 1 */

/* pool NULL: all parts on the caller. */
typedef void td_pool_fn(void *arg, int part, int thread); /* thread: 0..n_threads-1, for per-thread scratch */
void td_pool_run(td_pool *pool, int n_parts, td_pool_fn *fn, void *arg);

/* Splits [0, n) into at most td_pool_threads(pool) even ranges of at least `grain` items, rounded to `multiple`, one
 * part each; runs alone when one range is enough. */
typedef void td_range_fn(void *arg, int64_t begin, int64_t end, int thread);
void td_pool_range(td_pool *pool, int64_t n, int64_t grain, int64_t multiple, td_range_fn *fn, void *arg);

#endif
