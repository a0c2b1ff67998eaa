/* bench_pipeline - what orchestration costs: the part of a decode step outside the graphs, and planning.
 *
 * Usage: bench_pipeline step DIR [tokens [threads]]   greedy decode steps after a prompt of 16 ids
 *        bench_pipeline plan DIR...                   config and graphs without weights to a plan, the slowest folder
 *
 * A step is timed as its caller sees it; a copy of each engine's table, put in place of its own, times the runs inside
 * it. What is left is orchestration: binding, caches, masks and positions, processors, the choice of a token. Goals: at
 * most 1 % of a step of SmolLM2-135M, at most 10 ms for a plan (docs/speed.md). */
#include "api/api.h"
#include "base/time.h"
#include "median.h"
#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>

enum { PROMPT = 16, PLAN_REPEATS = 21 };

static int report(const char *what, const treadle_error *err) {
    char text[sizeof *err];
    treadle_error_format(err, text, sizeof text);
    fprintf(stderr, "%s: %s\n", what, text);
    return 1;
}

/* --- step */

static const td_engine *timed_engine; /* whose runs are timed; one at a time, as this process has one generator */
static uint64_t inside_ns;

static treadle_status timed_run(td_session_ctx *ctx, const td_value *inputs, td_value *outputs, const bool *skip,
                                treadle_error *err) {
    uint64_t begin = td_time_ns();
    treadle_status status = timed_engine->run(ctx, inputs, outputs, skip, err);
    inside_ns += td_time_ns() - begin;
    return status;
}

static treadle_status run_steps(treadle_generator *g, size_t n, double *step_us, double *outside_us,
                                treadle_error *err) {
    treadle_status status = treadle_generator_run(g, 1, NULL, NULL, err); /* the prompt's own */
    for (size_t i = 0; status == TREADLE_OK && i < n; i++) {
        inside_ns = 0;
        uint64_t begin = td_time_ns();
        status = treadle_generator_run(g, 1, NULL, NULL, err);
        uint64_t step_ns = td_time_ns() - begin;
        step_us[i] = (double)step_ns * 1e-3;
        outside_us[i] = (double)(step_ns - inside_ns) * 1e-3;
    }
    return status;
}

static int bench_step(const char *path, size_t n, int threads) {
    treadle_error err = {0};
    treadle_model_options options;
    treadle_generate_options generate;
    treadle_model *model = NULL;
    treadle_generator *g = NULL;
    int32_t ids[PROMPT];
    td_engine timed;
    double *step_us = calloc(n, sizeof *step_us), *outside_us = calloc(n, sizeof *outside_us);

    treadle_model_options_init(&options);
    options.n_threads = threads;
    treadle_generate_options_init(&generate);
    generate.do_sample = 0;
    generate.ignore_eos = true;
    treadle_status status =
        step_us && outside_us ? treadle_model_open(path, &options, &model, &err) : td_fail_memory(&err, "times", 0);
    if (status == TREADLE_OK) {
        timed_engine = model->runtime->engines[0];
        timed = *timed_engine;
        timed.run = timed_run;
        for (size_t i = 0; i < model->plan->n_sessions; i++) {
            if (model->runtime->engines[i] != timed_engine)
                status = td_fail(&err, TREADLE_UNSUPPORTED, "expected sessions on one engine, found \"%s\" and \"%s\"",
                                 timed_engine->name, model->runtime->engines[i]->name);
            model->runtime->engines[i] = &timed;
        }
        for (size_t i = 0; i < PROMPT; i++) ids[i] = (int32_t)(i * 7919 % (size_t)TD_MAX(model->plan->vocab, 1));
    }
    if (status == TREADLE_OK) status = treadle_generator_new(model, &generate, &g, &err);
    if (status == TREADLE_OK) status = treadle_generator_append(g, &(treadle_ids){ids, PROMPT}, 1, &err);
    if (status == TREADLE_OK) status = run_steps(g, n, step_us, outside_us, &err);
    if (status == TREADLE_OK) {
        double step = median(step_us, n), outside = median(outside_us, n);
        printf("step %.1f us, orchestration %.1f us, %.2f %%\n", step, outside, step > 0 ? 100 * outside / step : 0);
    }
    treadle_generator_free(g);
    treadle_model_close(model);
    free(step_us);
    free(outside_us);
    return status == TREADLE_OK ? 0 : report(path, &err);
}

/* --- plan */

/* *out_examine_ms: all that `treadle explain` does before it prints; *out_plan_ms: config and signatures to a plan. */
static int time_plan(const char *path, double *out_examine_ms, double *out_plan_ms) {
    treadle_model_options options;
    double examine[PLAN_REPEATS], build[PLAN_REPEATS];
    treadle_error err = {0};

    treadle_model_options_init(&options);
    for (size_t i = 0; i < PLAN_REPEATS; i++) {
        treadle_model *m = NULL;
        td_plan *again = NULL;
        uint64_t begin = td_time_ns();
        treadle_status status = td_model_examine(path, &options, &m, &err);
        examine[i] = (double)(td_time_ns() - begin) * 1e-6;
        if (status == TREADLE_OK) status = td_messages_status(&m->messages, &err);
        begin = td_time_ns();
        if (status == TREADLE_OK) status = td_plan_build(m->config, &m->messages, &again, &err);
        build[i] = (double)(td_time_ns() - begin) * 1e-6;
        td_plan_free(again);
        td_model_close(m);
        if (status != TREADLE_OK) return report(path, &err);
    }
    *out_examine_ms = median(examine, PLAN_REPEATS);
    *out_plan_ms = median(build, PLAN_REPEATS);
    return 0;
}

static int bench_plan(char **paths, int n) {
    const char *slowest = NULL;
    double examine_ms = 0, plan_ms = 0;
    int planned = 0;
    for (int i = 0; i < n; i++) {
        double examine, plan;
        if (time_plan(paths[i], &examine, &plan)) continue; /* wrong on purpose, or not a model: it was said */
        planned++;
        if (slowest && examine <= examine_ms) continue;
        slowest = paths[i];
        examine_ms = examine;
        plan_ms = plan;
    }
    if (slowest)
        printf("slowest of %d folders: %.2f ms, the plan alone %.2f ms, %s\n", planned, examine_ms, plan_ms, slowest);
    return !slowest;
}

int main(int argc, char **argv) {
    if (argc >= 3 && !strcmp(argv[1], "plan")) return bench_plan(argv + 2, argc - 2);
    size_t n = argc > 3 ? strtoul(argv[3], NULL, 10) : 128;
    if (argc < 3 || strcmp(argv[1], "step") || n == 0) {
        fprintf(stderr, "usage: bench_pipeline step DIR [tokens [threads]] | plan DIR...\n");
        return 2;
    }
    return bench_step(argv[2], n, argc > 4 ? atoi(argv[4]) : 0);
}
