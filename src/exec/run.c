/* exec/run.c - one run of the plan's steps: which of them take part, in order, and what they leave behind. */
#include "exec/run.h"

#include <stdio.h>

static bool takes_requests(const td_plan_session *s) {
    for (size_t i = 0; i < s->signature->n_inputs; i++)
        if (s->feeds[i].kind == TD_FEED_REQUEST || s->given[i] >= 0) return true;
    return false;
}

treadle_status td_exec_call(td_exec *e, int32_t session, treadle_error *err) {
    const td_engine *engine = e->runtime->engines[session];
    treadle_status status = e->copies[session] ? td_exec_call_copies(e, session, err)
                                               : engine->run(e->ctx[session], e->inputs[session], e->outputs[session],
                                                             e->skip[session], err);
    e->ran[session] = e->run_number;
    e->is_joined[session] = false;
    if (status == TREADLE_OK) {
        e->runs[session]++;
        return TREADLE_OK;
    }
    /* What only the pipeline has put there is no argument of the caller's. */
    if (status == TREADLE_INVALID_ARGUMENT && !takes_requests(&e->plan->sessions[session])) {
        status = TREADLE_RUN;
        if (err) err->code = status;
    }
    e->picked_n[session] = -2; /* unknown: picked afresh */
    td_exec_roles_forget(e);
    td_error_context(err, "session \"%.*s\"", TD_STR_ARGS(e->plan->sessions[session].name));
    return status;
}

/* How many of the tensors that a session takes from the request are there, and how many it cannot do without. */
static void count_requests(const td_exec *e, const td_exec_run *run, int32_t session, bool fresh, size_t *n_needed,
                           size_t *n_given) {
    const td_plan_session *s = &e->plan->sessions[session];
    const td_exec_row *row = &run->rows[run->first_row];
    *n_needed = *n_given = 0;
    for (size_t i = 0; i < s->signature->n_inputs; i++) {
        if (s->feeds[i].kind != TD_FEED_REQUEST) continue;
        bool given =
            row->requests && (!fresh || row->fresh_requests) && row->requests[s->feeds[i].index].kind != TD_VALUE_NONE;
        *n_needed += !s->signature->inputs[i].optional;
        *n_given += given;
    }
}

static bool any_source_ran(const td_exec *e, int32_t session, bool *has_wires) {
    const td_plan_session *s = &e->plan->sessions[session];
    *has_wires = false;
    for (size_t i = 0; i < s->signature->n_inputs; i++) {
        if (s->feeds[i].kind != TD_FEED_WIRE) continue;
        *has_wires = true;
        for (int32_t w = s->feeds[i].index; w >= 0; w = e->plan->wires[w].next)
            if (e->ran[e->plan->wires[w].from_session] == e->run_number) return true;
    }
    return false;
}

/* A prompt step of a modality that this prompt does not have is left out; so is one whose sources were. */
static bool lacks_modality(const td_exec *e, const td_exec_run *run, const td_plan_step *step) {
    size_t needed, given;
    bool has_wires;
    if (step->when != TD_WHEN_PROMPT || e->plan->sessions[step->session].takes_tokens) return false;
    count_requests(e, run, step->session, true, &needed, &given);
    if (given) return false;
    bool ran = any_source_ran(e, step->session, &has_wires);
    return needed > 0 || (has_wires && !ran);
}

static bool takes_part(const td_exec *e, const td_exec_run *run, const td_plan_step *step) {
    switch (step->when) {
    case TD_WHEN_ONCE:
        if (e->lines[run->first_row].once_done) return false;
        break;
    case TD_WHEN_PROMPT:
        if (!run->prompt || (step->held && e->lines[run->first_row].again)) return false;
        break;
    case TD_WHEN_DECODE:
        if (run->prompt) return false;
        break;
    case TD_WHEN_ALWAYS: break;
    }
    if (step->only_logits && !run->wants_logits && !e->keep_all && !e->keep_outputs) return false;
    return !lacks_modality(e, run, step);
}

/* Once per run of the session that is let go. */
static void release(td_exec *e, const td_plan_step *step) {
    for (size_t i = 0; i < step->n_release; i++) {
        int32_t session = step->release[i];
        const td_engine *engine = e->runtime->engines[session];
        if (!engine->drop || !e->ran[session] || e->ran[session] == e->released[session]) continue;
        e->released[session] = e->ran[session];
        engine->drop(e->runtime->sessions[session]);
    }
}

/* The source's prompt; where its graph takes a fixed number of tokens and a mask, padding stands after it. */
static treadle_status source_run(td_exec *e, td_exec_run *run, int32_t session, treadle_error *err) {
    const td_plan_session *s = &e->plan->sessions[session];
    int64_t n = run->rows[run->first_row].n_source;
    run->source = true;
    run->start = run->past = run->pad_before = run->pad_after = 0;
    run->n = run->total = n;
    if (s->fixed_tokens <= 0 || n == s->fixed_tokens) return TREADLE_OK;
    if (n > s->fixed_tokens || td_plan_input_of_role(s, TD_ROLE_ATTENTION_MASK) < 0)
        return td_fail(err, TREADLE_INVALID_ARGUMENT,
                       "session \"%.*s\": expected a prompt of %s%lld tokens, found %lld", TD_STR_ARGS(s->name),
                       n > s->fixed_tokens ? "at most " : "", (long long)s->fixed_tokens, (long long)n);
    run->n = run->total = s->fixed_tokens;
    run->pad_after = run->n - n;
    return td_exec_roles_reserve(e, run->n, run->n, err);
}

/* The modality of the features that an input takes; -1: it takes none. */
static int32_t features_of(const td_plan *plan, int32_t session, size_t input) {
    td_feed feed = plan->sessions[session].feeds[input];
    for (int32_t w = feed.kind == TD_FEED_WIRE ? feed.index : -1; w >= 0; w = plan->wires[w].next)
        for (size_t k = 0; k < plan->n_steps; k++) {
            const td_plan_step *step = &plan->steps[k];
            bool features = step->when == TD_WHEN_PROMPT && step->modality >= 0 && step->modality < TD_MODALITY_NONE;
            if (features && step->session == plan->wires[w].from_session) return step->modality;
        }
    return -1;
}

/* Rows of features: all dimensions but the last. */
static int64_t feature_rows(const td_tensor *t) {
    int64_t n = 1;
    for (int i = 0; i + 1 < t->shape.rank; i++) n *= t->shape.dims[i];
    return n;
}

/* A row whose tokens went into a session that failed; false: there is nothing to say about it. */
static bool blame_row(const td_exec *e, const td_exec_run *run, int32_t session, size_t input, size_t row,
                      treadle_error *err) {
    const td_plan_session *s = &e->plan->sessions[session];
    td_str name = s->signature->inputs[input].name;
    int32_t modality = features_of(e->plan, session, input), token = e->plan->placeholders[modality];
    const char *word = td_modality_words[modality];
    const int32_t *ids = run->rows[row].ids;
    int64_t first = td_exec_length(e, row), n = feature_rows(&e->inputs[session][input].tensor);
    int64_t end = TD_MIN(run->rows[row].n_ids, first + run->n - run->pad_before - run->pad_after);
    if (token >= 0) {
        char said[sizeof err->hint];
        while (first < end && ids[first] != token) first++;
        if (first >= end || n > 0) return false;
        snprintf(said, sizeof said, "%.500s", err->message);
        td_fail(err, err->code,
                "token %lld of row %zu (id %d) is the %s placeholder: session \"%.*s\" expected a row of \"%.*s\" to "
                "put in its place, and no %s came with it",
                (long long)first, row, token, word, TD_STR_ARGS(s->name), TD_STR_ARGS(name), word);
        td_error_hint(err, "The graph's own words: %s", said);
    } else if (run->n_rows > 1) {
        td_error_hint(err,
                      "A token of one of the %zu rows may be the %s placeholder, for which \"%.*s\" had %lld rows: "
                      "tokens.%s_token in the config would say",
                      run->n_rows, word, TD_STR_ARGS(name), (long long)n, word);
    } else if (end - first == 1) {
        td_error_hint(err,
                      "Token %lld of row %zu (id %d) may be the %s placeholder, for which \"%.*s\" had %lld rows: "
                      "tokens.%s_token in the config would say",
                      (long long)first, row, ids[first], word, TD_STR_ARGS(name), (long long)n, word);
    } else {
        td_error_hint(err,
                      "Tokens %lld to %lld of row %zu may have more %s placeholders than the %lld rows of \"%.*s\": "
                      "tokens.%s_token in the config would say which they are",
                      (long long)first, (long long)end - 1, row, word, (long long)n, TD_STR_ARGS(name), word);
    }
    return true;
}

/* A graph that puts features in the places of tokens fails where it has too few: says which
 * tokens stand for them, or may. */
static void blame_features(const td_exec *e, const td_exec_run *run, int32_t session, treadle_error *err) {
    const td_plan_session *s = &e->plan->sessions[session];
    bool said = !err || !s->takes_tokens || s->takes_source;
    for (size_t i = 0; !said && i < s->signature->n_inputs; i++) {
        if (features_of(e->plan, session, i) < 0 || e->inputs[session][i].kind != TD_VALUE_TENSOR) continue;
        for (size_t r = run->first_row; !said && r < run->first_row + run->n_rows; r++)
            said = run->rows[r].live && blame_row(e, run, session, i, r, err);
    }
}

static treadle_status run_step(td_exec *e, const td_exec_run *run, const td_plan_step *step, treadle_error *err) {
    td_exec_run own = *run;
    int32_t session = step->session;
    if (e->plan->sessions[session].takes_source) TD_TRY(source_run(e, &own, session, err));
    if (step->loop == TD_LOOP_PER_IMAGE) {
        TD_TRY(td_exec_run_images(e, &own, step, err));
    } else {
        treadle_status status = td_exec_bind(e, &own, session, err);
        if (status != TREADLE_OK) {
            td_error_context(err, "session \"%.*s\"", TD_STR_ARGS(e->plan->sessions[session].name));
            return status;
        }
        if (e->plan->sessions[session].logits >= 0) TD_TRY(td_exec_pick(e, &own, session, err));
        status = td_exec_call(e, session, err);
        if (status == TREADLE_RUN) blame_features(e, &own, session, err);
        TD_TRY(status);
    }
    return td_exec_keep(e, &own, session, err);
}

/* Rows of features that a session gives to one that takes tokens; -1: none. */
static int64_t count_features(const td_exec *e, int32_t session) {
    int32_t output = -1;
    for (size_t k = 0; k < e->plan->n_splices && output < 0; k++)
        if (e->plan->splices[k].from_session == session) output = e->plan->splices[k].from_output;
    for (size_t w = 0; w < e->plan->n_wires && output < 0; w++)
        if (e->plan->wires[w].from_session == session && e->plan->sessions[e->plan->wires[w].to_session].takes_tokens)
            output = e->plan->wires[w].from_output;
    const td_value *value = output >= 0 ? td_exec_output(e, session, output) : NULL;
    if (!value || value->kind != TD_VALUE_TENSOR || value->tensor.shape.rank < 2) return -1;
    return feature_rows(&value->tensor);
}

/* A prompt has as many placeholders as there are features to put in their places. */
static treadle_status check_placeholders(const td_exec *e, const td_exec_run *run, size_t r, treadle_error *err) {
    const td_exec_row *row = &run->rows[r];
    int64_t first = td_exec_length(e, r);
    if (e->lines[r].again) return TREADLE_OK; /* they were counted; a token since then may be one by chance */
    for (size_t k = 0; k < e->plan->n_steps; k++) {
        const td_plan_step *step = &e->plan->steps[k];
        if (step->modality < 0 || step->modality >= TD_MODALITY_NONE || step->when != TD_WHEN_PROMPT) continue;
        int32_t token = e->plan->placeholders[step->modality];
        const char *word = td_modality_words[step->modality];
        bool ran = e->ran[step->session] == e->run_number;
        int64_t n = 0, features = ran ? count_features(e, step->session) : 0;
        if (e->plan->source_prompt)
            for (int64_t i = 0; token >= 0 && i < row->n_source; i++) n += row->source[i] == token;
        else
            for (int64_t i = first; token >= 0 && i < TD_MIN(row->n_ids, first + run->n); i++)
                n += row->ids[i] == token;
        if (token < 0 || features < 0 || n == features) continue;
        if (!ran)
            return td_fail(err, TREADLE_INVALID_ARGUMENT,
                           "the prompt has %lld %s placeholders (token %d), but no %s came with it", (long long)n, word,
                           token, word);
        return td_fail(err, TREADLE_INVALID_ARGUMENT,
                       "the prompt has %lld %s placeholders (token %d), but what came with it makes %lld features",
                       (long long)n, word, token, (long long)features);
    }
    return TREADLE_OK;
}

treadle_status td_exec_run_steps(td_exec *e, const td_exec_run *run, td_exec_row *rows, treadle_error *err) {
    int32_t logits = -1;
    bool checked = false;
    e->run_number++;
    memset(e->written, 0, e->plan->n_states * sizeof *e->written);
    for (size_t k = 0; k < e->plan->n_steps; k++) {
        const td_plan_step *step = &e->plan->steps[k];
        if (!takes_part(e, run, step)) continue;
        if (run->prompt && run->rows[run->first_row].prompt && !checked &&
            e->plan->sessions[step->session].takes_tokens && !e->plan->sessions[step->session].takes_source) {
            for (size_t r = run->first_row; r < run->first_row + run->n_rows; r++)
                TD_TRY(check_placeholders(e, run, r, err)); /* what makes features comes before what takes them */
            checked = true;
        }
        TD_TRY(run_step(e, run, step, err));
        release(e, step);
        if (e->plan->sessions[step->session].logits >= 0) logits = step->session;
    }
    if ((run->wants_logits || e->keep_all) && logits >= 0) TD_TRY(td_exec_take_logits(e, run, logits, rows, err));
    if (run->wants_logits && logits < 0)
        return td_fail(err, TREADLE_RUN, "no step that runs %s gives logits",
                       run->prompt ? "with a prompt" : "while decoding");
    for (size_t r = 0; run->equal && r < e->n_rows; r++)
        if (!rows[r].live) td_state_hold(e->state, r, e->written);
    td_state_commit(e->state, run->first_row, run->n_rows, e->written);
    for (size_t r = run->first_row; r < run->first_row + run->n_rows; r++) {
        if (run->batched && !rows[r].live) continue;
        e->state->rows[r].length += run->n - run->pad_after; /* padding leaves the caches */
        td_state_drop(e->state, r, run->past, run->pad_before);
        e->lines[r].once_done = true;
    }
    return TREADLE_OK;
}
