/* model/graphs.c - what would keep a model's graphs from being opened, told without opening them: ops that the engine
 * lacks, files of weights that are missing or too short, nodes that do not fit together. */
#include "base/file.h"
#include "base/map.h"
#include "model/model.h"

/* --- ops */

/* "ai.onnx::Foo-13, com.microsoft::Bar-1 (4 nodes)" */
static treadle_status check_ops(treadle_model *m, const td_plan_session *s, td_place place, treadle_error *err) {
    td_light_op_count *ops = NULL;
    td_buf text = {0};
    td_arena arena = {0};
    size_t n = 0, n_missing = 0;
    treadle_status status = td_light_count_ops(s->signature->model, &arena, &ops, &n, err);
    for (size_t i = 0; status == TREADLE_OK && i < n; i++) {
        if (ops[i].supported) continue;
        td_str domain = ops[i].domain.n ? ops[i].domain : TD_STR("ai.onnx");
        td_buf_printf(&text, "%s%.*s::%.*s", n_missing++ ? ", " : "", TD_STR_ARGS(domain), TD_STR_ARGS(ops[i].op_type));
        if (ops[i].since_version) td_buf_printf(&text, "-%lld", (long long)ops[i].since_version);
        if (ops[i].n > 1) td_buf_printf(&text, " (%zu nodes)", ops[i].n);
    }
    if (status == TREADLE_OK && text.failed) status = td_fail_memory(err, "a message", 0);
    if (status == TREADLE_OK && n_missing)
        td_messages_add(&m->messages, TREADLE_MESSAGE_ERROR, place, "session \"%.*s\": light lacks these ops: %s",
                        TD_STR_ARGS(s->name), text.p);
    td_buf_free(&text);
    td_arena_free(&arena);
    return status;
}

/* --- external data */

typedef struct data_file {
    td_str location;
    const td_onnx_tensor *last; /* the tensor that ends last in it */
} data_file;

typedef struct collecting {
    TD_VEC(data_file) files;
    td_map places; /* location -> index */
} collecting;

static uint64_t end_of(const td_onnx_tensor *t) {
    uint64_t end;
    return TD_ADD_OVERFLOWS(t->offset, t->length, &end) ? UINT64_MAX : end;
}

static bool collect(void *ctx, const td_onnx_tensor *t) {
    collecting *c = ctx;
    uint64_t at;
    if (!t->is_external) return true;
    if (td_map_get(&c->places, t->location, &at)) {
        data_file *file = &c->files.items[at];
        if (end_of(t) > end_of(file->last)) file->last = t;
        return true;
    }
    return td_map_set(&c->places, t->location, c->files.n) && td_vec_push(&c->files, (data_file){t->location, t});
}

static treadle_status check_data(treadle_model *m, const td_plan_session *s, td_place place, treadle_error *err) {
    collecting c = {0};
    td_arena arena = {0};
    char *dir = td_path_dir(&arena, s->config->path);
    treadle_status status = TREADLE_OK;
    if (!dir || !td_onnx_each_tensor(s->signature->model, collect, &c))
        status = td_fail_memory(err, "the list of external data", 0);
    for (size_t i = 0; status == TREADLE_OK && i < c.files.n; i++) {
        const td_onnx_tensor *t = c.files.items[i].last;
        treadle_error problem = {0};
        char *path = NULL;
        treadle_status found = td_path_resolve_inside(&arena, dir, t->location, &path, &problem);
        if (found == TREADLE_OUT_OF_MEMORY) status = td_fail_memory(err, "a path", 0);
        else if (found != TREADLE_OK)
            td_messages_add(&m->messages, TREADLE_MESSAGE_ERROR, place, "external data of tensor \"%.*s\": %s",
                            TD_STR_ARGS(t->name), problem.message);
        else if (!td_path_is_file(path) || td_file_size(path) < 0)
            td_messages_add(&m->messages, TREADLE_MESSAGE_ERROR, place, "external data \"%.*s\" is no file",
                            TD_STR_ARGS(t->location));
        else if ((uint64_t)td_file_size(path) < end_of(t))
            td_messages_add(&m->messages, TREADLE_MESSAGE_ERROR, place,
                            "external data \"%.*s\" is too short: it has %lld bytes, tensor \"%.*s\" ends at %llu",
                            TD_STR_ARGS(t->location), (long long)td_file_size(path), TD_STR_ARGS(t->name),
                            (unsigned long long)end_of(t));
    }
    td_vec_free(&c.files);
    td_map_free(&c.places);
    td_arena_free(&arena);
    return status;
}

/* What light would refuse, or the plan, once types and shapes are inferred. Only of a graph that
 * has all its ops and weights. */
static treadle_status check_inside(treadle_model *m, int32_t session, td_place place, treadle_error *err) {
    const td_plan_session *s = &m->plan->sessions[session];
    td_arena arena = {0};
    td_light_port *outputs = NULL;
    treadle_error problem = {0};
    treadle_status status = td_light_check(s->config->path, &arena, &outputs, &problem);
    for (size_t o = 0; status == TREADLE_OK && !m->messages.n_errors && o < s->signature->n_outputs; o++)
        status = td_plan_check_output(m->plan, session, o, &outputs[o], &problem);
    if (status != TREADLE_OK && status != TREADLE_OUT_OF_MEMORY)
        td_messages_add(&m->messages, TREADLE_MESSAGE_ERROR, place, "session \"%.*s\": %s", TD_STR_ARGS(s->name),
                        problem.message);
    td_arena_free(&arena);
    return status == TREADLE_OUT_OF_MEMORY ? td_fail_memory(err, "a graph", 0) : TREADLE_OK;
}

treadle_status td_model_check_graphs(treadle_model *m, treadle_error *err) {
    for (size_t i = 0; m->plan && i < m->plan->n_sessions; i++) {
        const td_plan_session *s = &m->plan->sessions[i];
        if (!s->signature) continue;
        td_place place = {.file = s->config->path};
        if (s->config->engine == TD_ENGINE_LIGHT) TD_TRY(check_ops(m, s, place, err));
        TD_TRY(check_data(m, s, place, err));
        if (s->config->engine == TD_ENGINE_LIGHT && !m->messages.n_errors)
            TD_TRY(check_inside(m, (int32_t)i, place, err));
    }
    return m->messages.failed ? td_fail_memory(err, "messages", 0) : TREADLE_OK;
}
