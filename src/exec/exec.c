/* exec/exec.c - see exec.h. */
#include "exec/exec.h"

#include "base/alloc.h"
#include "tensor/half.h"

enum { PREFILL_CHUNK = 512 }; /* a prompt pass of this many tokens is where larger ones gain nothing more */

/* --- sessions of a model */

/* A graph that drops positions itself leaves nothing to pick. */
static bool can_pick(const td_plan *plan, const td_plan_session *s) {
    return plan->logits_rank == 3 && !plan->logits_last_only &&
           td_plan_input_of_role(s, TD_ROLE_NUM_LOGITS_TO_KEEP) < 0 &&
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
    if (s->logits >= 0 && can_pick(rt->plan, s))
        rt->pick_rows[i] = engine->can_pick_rows(rt->sessions[i], (size_t)s->logits);
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

/* --- one generator's side */

static bool is_wired(const td_plan *plan, int32_t session, size_t output) {
    for (size_t i = 0; i < plan->n_wires; i++)
        if (plan->wires[i].from_session == session && plan->wires[i].from_output == (int32_t)output) return true;
    return false;
}

static treadle_status bind_session(td_exec *e, size_t i, treadle_error *err) {
    const td_plan_session *s = &e->plan->sessions[i];
    e->inputs[i] = td_alloc_zero(s->signature->n_inputs, sizeof **e->inputs);
    e->outputs[i] = td_alloc_zero(s->signature->n_outputs, sizeof **e->outputs);
    e->skip[i] = td_alloc_zero(s->signature->n_outputs, sizeof **e->skip);
    if (!e->inputs[i] || !e->outputs[i] || !e->skip[i]) return td_fail_memory(err, "bindings", 0);
    for (size_t o = 0; o < s->signature->n_outputs; o++)
        e->skip[i][o] = s->out_state[o] < 0 && s->logits != (int32_t)o && !is_wired(e->plan, (int32_t)i, o);
    return e->runtime->engines[i]->ctx_new(e->runtime->sessions[i], &e->ctx[i], err);
}

/* The most tokens that one run may take: the config's, the graph's fixed length of 1, or the default. */
static int64_t chunk_of(const td_plan *plan) {
    const td_plan_session *s = &plan->sessions[plan->decoder];
    for (size_t i = 0; i < s->signature->n_inputs; i++)
        if (s->roles[i] == TD_ROLE_INPUT_IDS && s->signature->inputs[i].shape.rank == 2 &&
            s->signature->inputs[i].shape.dims[1] == 1)
            return 1;
    return plan->prefill_chunk > 0 ? plan->prefill_chunk : PREFILL_CHUNK;
}

treadle_status td_exec_new(const td_runtime *runtime, size_t n_rows, td_exec **out, treadle_error *err) {
    const td_plan *plan = runtime->plan;
    td_exec *e = td_alloc_zero(1, sizeof *e);
    if (!e) return td_fail_memory(err, "an executor", sizeof *e);
    e->runtime = runtime;
    e->plan = plan;
    e->n_rows = n_rows;
    e->chunk = chunk_of(plan);
    e->picked_n = -1;
    size_t n = plan->n_sessions;
    e->ctx = td_alloc_zero(n, sizeof *e->ctx);
    e->inputs = td_alloc_zero(n, sizeof *e->inputs);
    e->outputs = td_alloc_zero(n, sizeof *e->outputs);
    e->skip = td_alloc_zero(n, sizeof *e->skip);
    e->runs = td_alloc_zero(n, sizeof *e->runs);
    e->picked = td_alloc_zero(n_rows, sizeof *e->picked);
    e->lengths = td_alloc_zero(n_rows, sizeof *e->lengths);
    e->all = td_alloc_zero(n_rows, sizeof *e->all);
    bool ok = e->ctx && e->inputs && e->outputs && e->skip && e->runs && e->picked && e->lengths && e->all;
    treadle_status status = ok ? td_exec_roles_init(e, err) : td_fail_memory(err, "an executor", 0);
    for (size_t i = 0; status == TREADLE_OK && i < n; i++) status = bind_session(e, i, err);
    if (status == TREADLE_OK) status = td_state_new(plan, n_rows, &e->state, err);
    if (status != TREADLE_OK) {
        td_exec_free(e);
        return status;
    }
    *out = e;
    return TREADLE_OK;
}

void td_exec_free(td_exec *e) {
    if (!e) return;
    for (size_t i = 0; i < e->plan->n_sessions; i++) {
        if (e->ctx && e->ctx[i]) e->runtime->engines[i]->ctx_free(e->ctx[i]);
        if (e->inputs) td_free(e->inputs[i]);
        if (e->outputs) td_free(e->outputs[i]);
        if (e->skip) td_free(e->skip[i]);
    }
    for (size_t r = 0; e->all && r < e->n_rows; r++) td_vec_free(&e->all[r]);
    td_state_free(e->state);
    td_exec_roles_free(e);
    td_free(e->ctx);
    td_free(e->inputs);
    td_free(e->outputs);
    td_free(e->skip);
    td_free(e->runs);
    td_free(e->picked);
    td_free(e->lengths);
    td_free(e->all);
    td_free(e->logits);
    td_free(e);
}

treadle_status td_exec_reserve(td_exec *e, int64_t tokens, treadle_error *err) {
    int64_t columns = tokens;
    for (size_t r = 0; r < e->n_rows; r++) columns = TD_MAX(columns, e->state->rows[r].start + tokens);
    TD_TRY(td_state_reserve(e->state, columns, err));
    return td_exec_roles_reserve(e, TD_MIN(tokens, e->chunk), e->state->capacity, err);
}

int64_t td_exec_length(const td_exec *e, size_t row) { return e->state->rows[row].length; }

void td_exec_truncate(td_exec *e, size_t row, int64_t length) {
    if (length >= e->state->rows[row].length) return;
    td_state_truncate(e->state, row, td_state_can_truncate(e->plan) ? length : 0);
    e->mask_is_valid = false;
}

/* --- logits */

static treadle_status take_vocab(td_exec *e, const td_tensor *logits, treadle_error *err) {
    int rank = logits->shape.rank;
    int64_t vocab = rank > 0 ? logits->shape.dims[rank - 1] : 0;
    if (rank != e->plan->logits_rank || vocab <= 0 || vocab > INT32_MAX || (e->vocab && vocab != e->vocab)) {
        char text[128];
        return td_fail(err, TREADLE_RUN, "expected logits of rank %d with a vocabulary of %lld, the graph gave %s",
                       e->plan->logits_rank, (long long)(e->vocab ? e->vocab : e->plan->vocab),
                       td_shape_text(&logits->shape, text));
    }
    if (e->logits) return TREADLE_OK;
    e->vocab = vocab;
    e->logits = td_alloc_array(e->n_rows * (size_t)vocab, sizeof *e->logits);
    return e->logits ? TREADLE_OK : td_fail_memory(err, "logits", e->n_rows * (size_t)vocab * sizeof *e->logits);
}

/* Logits of row b of the run at a position, as float32 in `to`. */
static void copy_position(const td_tensor *t, size_t b, int64_t position, int64_t vocab, float *to) {
    int64_t offset = (int64_t)b * t->strides[0] + (t->shape.rank == 3 ? position * t->strides[1] : 0);
    int64_t step = t->strides[t->shape.rank - 1];
    if (step == 1) {
        td_to_f32(t->dtype, (const char *)t->data + offset * (td_dtype_bits(t->dtype) / 8), vocab, to);
        return;
    }
    for (int64_t i = 0; i < vocab; i++) to[i] = (float)td_load_f64(t->dtype, t->data, offset + i * step);
}

static treadle_status keep_positions(td_exec *e, const td_exec_run *run, const td_tensor *t, int64_t n,
                                     treadle_error *err) {
    for (size_t b = 0; b < run->n_rows; b++) {
        td_floats *all = &e->all[run->first_row + b];
        if (!td_vec_reserve(all, all->n + (size_t)(n * e->vocab))) return td_fail_memory(err, "logits of a prompt", 0);
        for (int64_t i = 0; i < n; i++, all->n += (size_t)e->vocab)
            copy_position(t, b, i, e->vocab, all->items + all->n);
    }
    return TREADLE_OK;
}

static treadle_status take_logits(td_exec *e, const td_exec_run *run, td_exec_row *rows, treadle_error *err) {
    const td_plan_session *s = &e->plan->sessions[e->plan->decoder];
    const td_value *value = &e->outputs[e->plan->decoder][s->logits];
    if (value->kind != TD_VALUE_TENSOR) return td_fail(err, TREADLE_RUN, "the graph gave no logits");
    const td_tensor *t = &value->tensor;
    TD_TRY(take_vocab(e, t, err));
    int64_t positions = t->shape.rank == 3 ? t->shape.dims[1] : 1;
    if (t->shape.dims[0] != (int64_t)run->n_rows || positions < 1 || positions > run->n) {
        char text[128];
        return td_fail(err, TREADLE_RUN, "expected logits of %zu rows and 1 to %lld positions, the graph gave %s",
                       run->n_rows, (long long)run->n, td_shape_text(&t->shape, text));
    }
    if (e->keep_all) TD_TRY(keep_positions(e, run, t, positions, err));
    for (size_t b = 0; b < run->n_rows; b++) {
        td_exec_row *row = &rows[run->first_row + b];
        if (!row->live) continue;
        float *to = e->logits + (run->first_row + b) * (size_t)e->vocab;
        if (e->n_rows == 1 && t->dtype == TD_FLOAT && t->strides[t->shape.rank - 1] == 1) {
            row->logits = (const float *)t->data + (t->shape.rank == 3 ? (positions - 1) * t->strides[1] : 0);
            continue; /* the context's own memory: no copy */
        }
        copy_position(t, b, positions - 1, e->vocab, to);
        row->logits = to;
    }
    return TREADLE_OK;
}

/* --- one run */

/* Computes logits of the last position only, where the engine can. */
static treadle_status pick(td_exec *e, const td_exec_run *run, treadle_error *err) {
    int32_t decoder = e->plan->decoder;
    if (!e->runtime->pick_rows[decoder]) return TREADLE_OK;
    int64_t wanted = run->n > 1 && !e->keep_all && run->wants_logits ? run->n - 1 : -1;
    if (wanted == e->picked_n && (wanted < 0 || run->n_rows == e->picked_rows)) return TREADLE_OK;
    for (size_t r = 0; r < run->n_rows; r++) e->picked[r] = wanted;
    e->picked_n = wanted;
    e->picked_rows = run->n_rows;
    return e->runtime->engines[decoder]->pick_rows(e->ctx[decoder], (size_t)e->plan->sessions[decoder].logits,
                                                   wanted < 0 ? NULL : e->picked, run->n_rows, 1, err);
}

static void bind(td_exec *e, const td_exec_run *run, int32_t session) {
    const td_plan_session *s = &e->plan->sessions[session];
    for (size_t i = 0; i < s->signature->n_inputs; i++) {
        td_value *value = &e->inputs[session][i];
        td_feed feed = s->feeds[i];
        *value = (td_value){0};
        if (feed.kind == TD_FEED_ROLE) {
            td_exec_fill_role(e, run, session, i, value);
        } else if (feed.kind == TD_FEED_STATE) {
            value->kind = TD_VALUE_TENSOR;
            td_state_past(e->state, (size_t)feed.index, run->first_row, run->n_rows, run->start, run->past,
                          &value->tensor);
        } else if (feed.kind == TD_FEED_WIRE) {
            *value = e->outputs[e->plan->wires[feed.index].from_session][e->plan->wires[feed.index].from_output];
        }
    }
    for (size_t o = 0; o < s->signature->n_outputs; o++) {
        td_value *value = &e->outputs[session][o];
        *value = (td_value){0};
        if (s->out_state[o] < 0) continue;
        value->kind = TD_VALUE_TENSOR;
        td_state_present(e->state, (size_t)s->out_state[o], run->first_row, run->n_rows, run->start, &value->tensor);
    }
    if (s->logits >= 0) e->skip[session][s->logits] = !run->wants_logits && !e->keep_all;
}

static treadle_status run_steps(td_exec *e, const td_exec_run *run, td_exec_row *rows, treadle_error *err) {
    TD_TRY(pick(e, run, err));
    for (size_t k = 0; k < e->plan->n_steps; k++) {
        int32_t session = e->plan->steps[k].session;
        bind(e, run, session);
        treadle_status status = e->runtime->engines[session]->run(e->ctx[session], e->inputs[session],
                                                                  e->outputs[session], e->skip[session], err);
        if (status != TREADLE_OK) {
            e->picked_n = -2; /* unknown: picked afresh */
            e->mask_is_valid = false;
            e->mask_ones = 0;
            td_error_context(err, "session \"%.*s\"", TD_STR_ARGS(e->plan->sessions[session].name));
            return status;
        }
        e->runs[session]++;
    }
    e->mask_is_valid = run->batched;
    e->mask_ones = run->batched ? 0 : run->total;
    if (run->wants_logits || e->keep_all) TD_TRY(take_logits(e, run, rows, err));
    td_state_commit(e->state, run->first_row, run->n_rows);
    for (size_t r = run->first_row; r < run->first_row + run->n_rows; r++)
        if (!run->batched || rows[r].live) e->state->rows[r].length += run->n;
    return TREADLE_OK;
}

/* --- forward */

static treadle_status run_alone(td_exec *e, td_exec_row *rows, size_t r, const atomic_bool *cancel,
                                treadle_error *err) {
    td_state_row *row = &e->state->rows[r];
    while (row->length < rows[r].n_ids) {
        if (cancel && atomic_load_explicit(cancel, memory_order_relaxed))
            return td_fail(err, TREADLE_CANCELLED, "cancelled");
        int64_t n = TD_MIN(rows[r].n_ids - row->length, e->chunk);
        td_exec_run run = {.first_row = r,
                           .n_rows = 1,
                           .n = n,
                           .start = row->start,
                           .past = row->length,
                           .total = row->length + n,
                           .wants_logits = row->length + n == rows[r].n_ids,
                           .rows = rows};
        TD_TRY(run_steps(e, &run, rows, err));
    }
    return TREADLE_OK;
}

/* All rows have run all but one of their tokens, or are idle, and the plan lets them share a run. */
static bool can_run_together(const td_exec *e, const td_exec_row *rows) {
    if (e->n_rows < 2 || e->plan->batching == TD_BATCH_APART) return false;
    size_t n_live = 0;
    for (size_t r = 0; r < e->n_rows; r++) {
        const td_state_row *row = &e->state->rows[r];
        if (row->length == 0) return false; /* a row without tokens has nothing to give again */
        if (!rows[r].live) continue;
        if (rows[r].n_ids - row->length != 1) return false;
        n_live++;
    }
    return n_live > 1;
}

static treadle_status run_together(td_exec *e, td_exec_row *rows, treadle_error *err) {
    bool lengths = e->plan->batching == TD_BATCH_LENGTHS;
    td_exec_run run = {.n_rows = e->n_rows, .n = 1, .batched = true, .wants_logits = true, .rows = rows};
    for (size_t r = 0; r < e->n_rows; r++) {
        const td_state_row *row = &e->state->rows[r];
        int64_t past = lengths && !rows[r].live ? row->length - 1 : row->start + row->length;
        run.past = TD_MAX(run.past, lengths || rows[r].live ? past : 0);
    }
    run.total = run.past + 1;
    return run_steps(e, &run, rows, err);
}

/* Live rows end at one column once their tokens are run; idle rows keep their columns. */
static void align(td_exec *e, const td_exec_row *rows) {
    if (e->plan->batching != TD_BATCH_MASK || e->n_rows < 2) return;
    bool aligned = true;
    int64_t end = -1;
    for (size_t r = 0; r < e->n_rows; r++) {
        /* an idle row keeps one column free: a run together writes something there */
        e->lengths[r] = rows[r].live ? rows[r].n_ids : e->state->rows[r].length + 1;
        if (!rows[r].live) continue;
        int64_t mine = e->state->rows[r].start + rows[r].n_ids;
        if (end < 0) end = mine;
        aligned &= mine == end;
    }
    for (size_t r = 0; r < e->n_rows; r++)
        if (!rows[r].live) aligned &= e->state->rows[r].start + e->state->rows[r].length < end;
    if (aligned || end < 0) return;
    td_state_align(e->state, e->lengths);
    e->mask_is_valid = false;
}

treadle_status td_exec_forward(td_exec *e, td_exec_row *rows, const atomic_bool *cancel, treadle_error *err) {
    int64_t columns = 1, tokens = 1;
    for (size_t r = 0; r < e->n_rows; r++) {
        const td_state_row *row = &e->state->rows[r];
        if (!rows[r].live) {
            columns = TD_MAX(columns, row->start + row->length + 1);
            continue;
        }
        rows[r].logits = NULL;
        columns = TD_MAX(columns, e->state->rows[r].start + rows[r].n_ids);
        tokens = TD_MAX(tokens, rows[r].n_ids - e->state->rows[r].length);
    }
    TD_TRY(td_state_reserve(e->state, columns, err));
    TD_TRY(td_exec_roles_reserve(e, TD_MIN(tokens, e->chunk), e->state->capacity, err));
    align(e, rows);
    if (can_run_together(e, rows)) return run_together(e, rows, err);
    for (size_t r = 0; r < e->n_rows; r++)
        if (rows[r].live) TD_TRY(run_alone(e, rows, r, cancel, err));
    return TREADLE_OK;
}
