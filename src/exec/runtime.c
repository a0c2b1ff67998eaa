/* exec/runtime.c - the sessions of a model, opened once and shared. */
#include "base/alloc.h"
#include "exec/exec.h"

/* A graph that drops positions itself leaves nothing to pick. */
static bool can_pick(const td_plan_session *s) {
    const td_shape *shape = &s->signature->outputs[s->logits].shape;
    return shape->rank == 3 && shape->dims[1] != 1 && td_plan_input_of_role(s, TD_ROLE_NUM_LOGITS_TO_KEEP) < 0 &&
           td_plan_input_of_role(s, TD_ROLE_LOGITS_TO_KEEP) < 0;
}

static td_engine_wish wish_of(const td_config_session *s) {
    return (td_engine_wish){
        .engine = td_str_from(td_engine_words[s->engine]),
        .provider = s->provider,
        .provider_options = td_json_get(s->json, "provider_options"),
        .session_options = td_json_get(s->json, "session_options"),
        .run_options = td_json_get(s->json, "run_options"),
    };
}

static treadle_status open_session(td_runtime *rt, size_t i, const td_engine_options *options, treadle_error *err) {
    const td_plan_session *s = &rt->plan->sessions[i];
    td_engine_wish wish = wish_of(s->config);
    td_engine_options own;
    TD_TRY(td_engine_for_session(options, &wish, &rt->engines[i], &own, err));
    const td_engine *engine = rt->engines[i];
    TD_TRY(engine->open(s->config->path, &own, &rt->sessions[i], err));
    if (engine->n_inputs(rt->sessions[i]) != s->signature->n_inputs ||
        engine->n_outputs(rt->sessions[i]) != s->signature->n_outputs)
        return td_fail(err, TREADLE_INTERNAL,
                       "session \"%.*s\" opened with other inputs or outputs than its file declares",
                       TD_STR_ARGS(s->name));
    for (size_t o = 0; engine->output && o < s->signature->n_outputs; o++)
        TD_TRY(td_plan_check_output(rt->plan, (int32_t)i, o, engine->output(rt->sessions[i], o), err));
    if (s->logits >= 0 && can_pick(s)) rt->pick_rows[i] = engine->can_pick_rows(rt->sessions[i], (size_t)s->logits);
    return TREADLE_OK;
}

treadle_status td_runtime_open(const td_plan *plan, const td_engine_options *options, td_runtime **out,
                               treadle_error *err) {
    td_runtime *rt = td_alloc_zero(1, sizeof *rt);
    if (!rt) return td_fail_memory(err, "a runtime", sizeof *rt);
    rt->plan = plan;
    rt->engines = td_alloc_zero(plan->n_sessions, sizeof *rt->engines);
    rt->sessions = td_alloc_zero(plan->n_sessions, sizeof *rt->sessions);
    rt->pick_rows = td_alloc_zero(plan->n_sessions, sizeof *rt->pick_rows);
    bool ok = rt->engines && rt->sessions && rt->pick_rows;
    treadle_status status = ok ? TREADLE_OK : td_fail_memory(err, "a runtime", 0);
    for (size_t i = 0; status == TREADLE_OK && i < plan->n_sessions; i++) {
        status = open_session(rt, i, options, err);
        if (status != TREADLE_OK) td_error_file(err, plan->sessions[i].config->path);
    }
    if (status != TREADLE_OK) {
        td_runtime_close(rt);
        return status;
    }
    *out = rt;
    return TREADLE_OK;
}

void td_runtime_close(td_runtime *rt) {
    if (!rt) return;
    for (size_t i = 0; rt->sessions && i < rt->plan->n_sessions; i++)
        if (rt->sessions[i]) rt->engines[i]->close(rt->sessions[i]);
    td_free(rt->engines);
    td_free(rt->sessions);
    td_free(rt->pick_rows);
    td_free(rt);
}
