/* base/pool.c - the thread pool.
 *
 * How a region is handed out. `ticket` holds the region's number (high half) and the parts not yet taken (low half). A
 * thread takes a part by lowering it by one with compare-and-swap. A region ends only when every part has been run, so
 * a successful swap proves that the region whose fn, arg and n_parts were read before it is still the current one; a
 * worker that wakes late finds no parts left and touches nothing. No thread has to be waited for that took no part.
 *
 * How threads wait. Spin for about 20 us, then sleep on a futex: on `epoch` for work, on `pending` for the end of a
 * region (reference: with 200 regions per token a futex each time costs 14 ms, spinning for ever starves others).
 *
 * Owns: the workers, and the one list of pools in the process. */
#include "base/pool.h"

#include "base/alloc.h"
#include "base/time.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    SPIN_NS = 20000,
    PAUSES_PER_LOOK = 32, /* at the clock */
    MAX_THREADS = 1024,
};

#define WAITING 0x80000000u /* in `pending`: the region's starter sleeps */

typedef struct worker {
    td_pool *pool;
    pthread_t thread;
    int index;
} worker;

struct td_pool {
    /* What a region is: written by its starter while no other region runs, read by all. One cache line. */
    TD_ALIGNED(64) _Atomic uint64_t ticket;
    _Atomic uint32_t epoch; /* number of the latest region, or anything new when stopping; a futex */
    atomic_int n_parts;
    _Atomic(td_pool_fn *) fn;
    _Atomic(void *) arg;

    TD_ALIGNED(64) _Atomic uint32_t pending; /* parts not yet run; a futex */
    TD_ALIGNED(64) atomic_int sleepers;      /* workers asleep on epoch, or about to be */
    atomic_bool busy;                        /* a region runs */
    atomic_bool stop;

    int n_threads; /* as asked for, the caller of a region included */
    int n_workers; /* running; fewer than n_threads - 1 before the first region and where threads could not be had */
    bool started;  /* guarded by busy, like n_workers */
    worker *workers;
    int references; /* guarded by pools_lock, like next */
    td_pool *next;
};

static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;
static td_pool *pools;

/* This thread's number in the region whose part it runs; -1 outside of regions (a worker is always inside). */
static _Thread_local int region_thread = -1;

static void futex_wait(_Atomic uint32_t *word, uint32_t while_equal) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, while_equal, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int n) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

/* Spins until the word has another value; false if it has not after SPIN_NS. */
static bool spin_while_equal(_Atomic uint32_t *word, uint32_t value) {
    uint64_t start = 0;
    for (;;) {
        for (int i = 0; i < PAUSES_PER_LOOK; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != value) return true;
            TD_SPIN_PAUSE();
        }
        uint64_t now = td_time_ns();
        if (start == 0) start = now;
        if (now - start > SPIN_NS) return false;
    }
}

/* --- parts */

/* Takes and runs parts until none is left. n_done: parts this thread has run before. */
static void run_parts(td_pool *pool, int thread, uint32_t n_done) {
    uint64_t ticket = atomic_load_explicit(&pool->ticket, memory_order_acquire);
    while ((uint32_t)ticket != 0) {
        td_pool_fn *fn = atomic_load_explicit(&pool->fn, memory_order_relaxed);
        void *arg = atomic_load_explicit(&pool->arg, memory_order_relaxed);
        int n_parts = atomic_load_explicit(&pool->n_parts, memory_order_relaxed);
        if (!atomic_compare_exchange_weak_explicit(&pool->ticket, &ticket, ticket - 1, memory_order_acq_rel,
                                                   memory_order_acquire)) {
            continue;
        }
        fn(arg, n_parts - (int)(uint32_t)ticket, thread);
        n_done++;
        ticket = atomic_load_explicit(&pool->ticket, memory_order_acquire);
    }
    if (n_done == 0) return;
    uint32_t before = atomic_fetch_sub_explicit(&pool->pending, n_done, memory_order_acq_rel);
    if (before == (WAITING | n_done)) futex_wake(&pool->pending, 1);
}

static void wait_for_end(td_pool *pool) {
    uint32_t pending;
    while ((pending = atomic_load_explicit(&pool->pending, memory_order_acquire)) != 0) {
        if (spin_while_equal(&pool->pending, pending)) continue;
        pending = atomic_fetch_or_explicit(&pool->pending, WAITING, memory_order_acq_rel) | WAITING;
        while (pending != WAITING) {
            futex_wait(&pool->pending, pending);
            pending = atomic_load_explicit(&pool->pending, memory_order_acquire);
        }
        return;
    }
}

/* --- workers */

static void wait_for_epoch(td_pool *pool, uint32_t seen) {
    if (spin_while_equal(&pool->epoch, seen)) return;
    /* Either the starter sees this sleeper after it has set the epoch, or the futex sees the new epoch. */
    atomic_fetch_add_explicit(&pool->sleepers, 1, memory_order_seq_cst);
    while (atomic_load_explicit(&pool->epoch, memory_order_seq_cst) == seen) futex_wait(&pool->epoch, seen);
    atomic_fetch_sub_explicit(&pool->sleepers, 1, memory_order_relaxed);
}

static void *worker_main(void *arg) {
    worker *me = arg;
    td_pool *pool = me->pool;
    region_thread = me->index;
    for (uint32_t seen = 0;;) {
        wait_for_epoch(pool, seen);
        seen = atomic_load_explicit(&pool->epoch, memory_order_acquire);
        if (atomic_load_explicit(&pool->stop, memory_order_acquire)) return NULL;
        run_parts(pool, me->index, 0);
    }
}

/* Sets the epoch and wakes at most n of those who sleep. */
static void announce(td_pool *pool, uint32_t epoch, int n) {
    atomic_store_explicit(&pool->epoch, epoch, memory_order_seq_cst);
    if (n > 0 && atomic_load_explicit(&pool->sleepers, memory_order_seq_cst) > 0) futex_wake(&pool->epoch, n);
}

/* Fewer workers than wanted are no error: the others run their parts. */
static void start_workers(td_pool *pool) {
    pool->started = true;
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* the host's signals are for the host's threads */
    for (int i = 1; i < pool->n_threads; i++) {
        worker *w = &pool->workers[pool->n_workers];
        *w = (worker){.pool = pool, .index = i};
        if (pthread_create(&w->thread, NULL, worker_main, w) != 0) break;
        char name[16]; /* the kernel's limit */
        snprintf(name, sizeof name, "treadle-%hu", (unsigned short)i);
        pthread_setname_np(w->thread, name);
        pool->n_workers++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void stop_workers(td_pool *pool) {
    atomic_store_explicit(&pool->stop, true, memory_order_release);
    announce(pool, atomic_load_explicit(&pool->epoch, memory_order_relaxed) + 1, INT_MAX);
    for (int i = 0; i < pool->n_workers; i++) pthread_join(pool->workers[i].thread, NULL);
}

/* --- the life of a pool */

static td_pool *pool_new(int n_threads) {
    td_pool *pool = td_alloc_aligned(sizeof *pool);
    if (!pool) return NULL;
    memset(pool, 0, sizeof *pool);
    pool->n_threads = n_threads;
    pool->workers = td_alloc_zero((size_t)n_threads, sizeof *pool->workers);
    if (pool->workers) return pool;
    td_free_aligned(pool);
    return NULL;
}

td_pool *td_pool_acquire(int n_threads) {
    if (n_threads <= 0) n_threads = td_cpu_count();
    n_threads = TD_MIN(n_threads, MAX_THREADS);
    pthread_mutex_lock(&pools_lock);
    td_pool *pool = pools;
    while (pool && pool->n_threads != n_threads) pool = pool->next;
    if (!pool && (pool = pool_new(n_threads)) != NULL) {
        pool->next = pools;
        pools = pool;
    }
    if (pool) pool->references++;
    pthread_mutex_unlock(&pools_lock);
    return pool;
}

void td_pool_release(td_pool *pool) {
    if (!pool) return;
    pthread_mutex_lock(&pools_lock);
    bool last = --pool->references == 0;
    if (last) {
        td_pool **link = &pools;
        while (*link != pool) link = &(*link)->next;
        *link = pool->next;
    }
    pthread_mutex_unlock(&pools_lock);
    if (!last) return;
    stop_workers(pool);
    td_free(pool->workers);
    td_free_aligned(pool);
}

int td_pool_threads(const td_pool *pool) { return pool ? pool->n_threads : 1; }

/* --- regions */

/* The number a thread has in a region that it runs alone. */
static int thread_alone(const td_pool *pool) {
    return region_thread > 0 && region_thread < td_pool_threads(pool) ? region_thread : 0;
}

static void run_alone(const td_pool *pool, int n_parts, td_pool_fn *fn, void *arg) {
    int thread = thread_alone(pool);
    for (int part = 0; part < n_parts; part++) fn(arg, part, thread);
}

void td_pool_run(td_pool *pool, int n_parts, td_pool_fn *fn, void *arg) {
    if (!pool || n_parts <= 1 || pool->n_threads == 1 || region_thread >= 0 ||
        atomic_exchange_explicit(&pool->busy, true, memory_order_acquire)) {
        run_alone(pool, n_parts, fn, arg);
        return;
    }
    if (!pool->started) start_workers(pool);
    uint32_t epoch = atomic_load_explicit(&pool->epoch, memory_order_relaxed) + 1;
    atomic_store_explicit(&pool->fn, fn, memory_order_relaxed);
    atomic_store_explicit(&pool->arg, arg, memory_order_relaxed);
    atomic_store_explicit(&pool->n_parts, n_parts, memory_order_relaxed);
    atomic_store_explicit(&pool->pending, (uint32_t)n_parts, memory_order_relaxed);
    /* The first part is the starter's without a swap: the ticket's cache line is then the first worker's alone. */
    atomic_store_explicit(&pool->ticket, (uint64_t)epoch << 32 | (uint32_t)(n_parts - 1), memory_order_release);
    announce(pool, epoch, TD_MIN(n_parts, pool->n_threads) - 1);
    region_thread = 0;
    fn(arg, 0, 0);
    run_parts(pool, 0, 1);
    wait_for_end(pool);
    region_thread = -1;
    atomic_store_explicit(&pool->busy, false, memory_order_release);
}

typedef struct ranges {
    td_range_fn *fn;
    void *arg;
    int64_t n, size;
} ranges;

static void run_range(void *arg, int part, int thread) {
    const ranges *r = arg;
    int64_t begin = part * r->size, end = r->n - begin < r->size ? r->n : begin + r->size;
    r->fn(r->arg, begin, end, thread);
}

void td_pool_range(td_pool *pool, int64_t n, int64_t grain, int64_t multiple, td_range_fn *fn, void *arg) {
    if (n <= 0) return;
    int64_t most = n / TD_MAX(grain, 1), pieces = TD_MIN(most, (int64_t)td_pool_threads(pool));
    multiple = TD_MAX(multiple, 1);
    if (pieces > 1 && region_thread < 0) {
        int64_t size = TD_ROUND_UP(n / pieces + (n % pieces != 0), multiple);
        int64_t n_parts = n / size + (n % size != 0);
        ranges r = {fn, arg, n, size};
        td_pool_run(pool, (int)n_parts, run_range, &r);
    } else {
        fn(arg, 0, n, thread_alone(pool));
    }
}
