/* tools/treadle/drive_timeline.c - the timeline of `treadle drive`: appends, runs, rewinds and forks of one generator.
 *
 * For tests, a step {"generate": n, "cancel_after_us": t} cancels t microseconds into the run and then goes on; its
 * answer has {"cancelled": true} if the cancel came in time. */
#include "drive.h"

#include "base/time.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

/* The timeline goes on in a copy; what becomes of the original must not matter. */
static treadle_status fork_timeline(td_drive *d, treadle_generator **g) {
    treadle_generator *copy = NULL;
    treadle_status status = treadle_generator_fork(*g, &copy, &d->error);

    if (status == TREADLE_OK && treadle_generator_n_rows(*g))
        status = treadle_generator_run(*g, 1, NULL, NULL, &d->error);
    treadle_generator_free(status == TREADLE_OK ? *g : copy);
    if (status == TREADLE_OK) *g = copy;
    return status;
}

typedef struct canceller {
    treadle_generator *g;
    uint64_t after_ns;
    atomic_bool ready;
    _Atomic uint64_t begin_ns; /* 0: not yet */
} canceller;

/* Busy: to sleep takes longer than a small model's whole run. */
static void *cancel_later(void *arg) {
    canceller *c = arg;
    uint64_t begin;

    atomic_store(&c->ready, true);
    while ((begin = atomic_load(&c->begin_ns)) == 0) sched_yield();
    while (td_time_ns() - begin < c->after_ns) {}
    treadle_generator_cancel(c->g);
    return NULL;
}

/* n new tokens in all. After a cancel, which may come before or after any of them, the run is taken up again. */
static treadle_status run_cancelled(td_drive *d, treadle_generator *g, int64_t n, int64_t after_us) {
    canceller c = {.g = g, .after_ns = (uint64_t)after_us * 1000};
    size_t before = treadle_generator_n_rows(g) ? treadle_generator_new_ids(g, 0).n : 0;
    pthread_t thread;

    if (pthread_create(&thread, NULL, cancel_later, &c) != 0) return td_drive_fail(d, "could not start a thread");
    while (!atomic_load(&c.ready)) sched_yield();
    atomic_store(&c.begin_ns, td_time_ns());
    treadle_status status = treadle_generator_run(g, n, NULL, NULL, &d->error);
    pthread_join(thread, NULL);
    if (status != TREADLE_OK || treadle_generator_finish(g, 0) != TREADLE_FINISH_CANCELLED) return status;
    td_json_key(&d->out, "cancelled");
    td_json_write_bool(&d->out, true);
    return treadle_generator_run(g, n - (int64_t)(treadle_generator_new_ids(g, 0).n - before), NULL, NULL, &d->error);
}

/* A count from 0 on; absent is none of its kind. */
static treadle_status check_count(td_drive *d, const td_json *value, const char *key) {
    if (!value || (value->kind == TD_JSON_INT && value->as_int >= 0)) return TREADLE_OK;
    if (value->kind != TD_JSON_INT)
        return td_drive_fail(d, "%s: expected a whole number, found %s", key, td_json_kind_name(value->kind));
    return td_drive_fail(d, "%s: expected 0 or more, found %lld", key, (long long)value->as_int);
}

static treadle_status timeline_step(td_drive *d, treadle_generator **at, const td_json *step, const char *logits_to,
                                    size_t *k) {
    treadle_generator *g = *at;
    const td_json *append = td_json_get(step, "append"), *count = td_json_get(step, "generate"),
                  *rewind = td_json_get(step, "rewind"), *fork = td_json_get(step, "fork");
    treadle_status status = TREADLE_OK;
    treadle_tensor logits;
    treadle_ids ids;

    td_json_begin_object(&d->out);
    if (!append) status = check_count(d, count, "generate");
    if (!append && !count && status == TREADLE_OK) status = check_count(d, rewind, "rewind");
    if (status != TREADLE_OK) {
        td_json_end_object(&d->out);
        return status;
    }
    if (append) {
        status = td_drive_ids(d, append, "append", &ids);
        if (status == TREADLE_OK) status = td_drive_set_tensors(d, g, td_json_get(step, "tensors"));
        if (status == TREADLE_OK) status = treadle_generator_append(g, &ids, 1, &d->error);
    } else if (count) {
        size_t before = treadle_generator_n_rows(g) ? treadle_generator_new_ids(g, 0).n : 0;
        const td_json *after = td_json_get(step, "cancel_after_us");
        status = after && after->kind == TD_JSON_INT ? run_cancelled(d, g, count->as_int, after->as_int)
                                                     : treadle_generator_run(g, count->as_int, NULL, NULL, &d->error);
        if (status == TREADLE_OK && logits_to) {
            status = treadle_generator_step_logits(g, 0, &logits, &d->error);
            if (status == TREADLE_OK) status = td_drive_save_logits(d, logits_to, (*k)++, &logits);
        }
        if (status == TREADLE_OK) {
            ids = treadle_generator_new_ids(g, 0);
            td_json_key(&d->out, "tokens");
            td_drive_write_ids(d, (treadle_ids){ids.ids + before, ids.n - before});
            td_drive_write_state(d, g);
        }
    } else if (rewind) {
        status = treadle_generator_rewind(g, 0, (size_t)rewind->as_int, &d->error);
    } else if (fork) {
        status = fork_timeline(d, at);
    } else {
        status = td_drive_fail(d, "steps: expected append, generate, rewind or fork");
    }
    td_json_end_object(&d->out);
    return status;
}

treadle_status td_drive_timeline(td_drive *d) {
    const td_json *steps = td_json_get(d->request, "steps");
    const char *logits_to = td_drive_file_name(d, "logits_to");
    treadle_generator *g = NULL;
    size_t k = 0;

    if (!steps || steps->kind != TD_JSON_ARRAY) return td_drive_fail(d, "steps: expected a list");
    treadle_status status = td_drive_generator(d, &g);
    if (status == TREADLE_OK) status = td_drive_set_tensors(d, g, td_json_get(d->request, "tensors"));
    td_json_begin_object(&d->out);
    td_json_key(&d->out, "steps");
    td_json_begin_array(&d->out);
    for (const td_json *s = steps->first; s && status == TREADLE_OK; s = s->next)
        status = timeline_step(d, &g, s, logits_to, &k);
    td_json_end_array(&d->out);
    td_json_end_object(&d->out);
    treadle_generator_free(g);
    return status;
}
