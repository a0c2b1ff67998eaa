/* plan/positions.c - which positions the graphs take, and what those of three dimensions are made from. */
#include "plan/build.h"

/* The dimension of position_ids that holds the kinds, 3 or 4 of them. */
static void find_axes(td_plan *plan, const td_shape *shape) {
    int last = shape->rank - 1;
    bool at_end = (shape->dims[last] == 3 || shape->dims[last] == 4) && shape->dims[0] != 3 && shape->dims[0] != 4;
    plan->mrope.axis = at_end ? last : 0;
    int64_t n = shape->dims[plan->mrope.axis];
    plan->mrope.n_axes = n > 0 ? n : 3;
}

static bool is_grid_name(td_str name, bool video) {
    return td_str_ends(name, TD_STR("grid_thw")) && td_name_has_word(name, "video") == video;
}

/* A request tensor that some graph takes, by its name. */
static int32_t find_grid(const td_plan *plan, bool video) {
    for (size_t i = 0; i < plan->n_requests; i++) {
        const td_plan_request *r = &plan->requests[i];
        td_str io = r->session < 0 ? r->name : td_plan_wire_name(&plan->sessions[r->session], true, (size_t)r->input);
        if (is_grid_name(r->name, video) || is_grid_name(io, video)) return (int32_t)i;
    }
    return -1;
}

/* Under another name: the integers [n, 3] that a step of images takes. */
static int32_t find_grid_by_shape(const td_plan *plan) {
    for (size_t k = 0; k < plan->n_steps; k++) {
        const td_plan_session *s = &plan->sessions[plan->steps[k].session];
        for (size_t i = 0; i < s->signature->n_inputs && plan->steps[k].modality == TD_MODALITY_IMAGE; i++) {
            const td_light_port *port = &s->signature->inputs[i];
            td_kind kind = td_dtype_kind(port->dtype);
            if (s->feeds[i].kind == TD_FEED_REQUEST && (kind == TD_KIND_INT || kind == TD_KIND_UINT) &&
                port->shape.rank == 2 && port->shape.dims[1] == 3 && !is_grid_name(td_plan_wire_name(s, true, i), true))
                return s->feeds[i].index;
        }
    }
    return -1;
}

static bool takes_images(const td_plan *plan) {
    for (size_t k = 0; k < plan->n_steps; k++)
        if (plan->steps[k].modality == TD_MODALITY_IMAGE || plan->steps[k].modality == TD_MODALITY_VIDEO) return true;
    return find_grid(plan, false) >= 0;
}

/* Grids come from the graph's own input, or, where the runtime alone needs them, under the usual name. */
static void find_grids(td_plan_build_ctx *b) {
    td_plan *plan = b->plan;
    const td_config_state *c = &b->config->state;
    td_plan_mrope *m = &plan->mrope;
    bool images = takes_images(plan);
    if (c->grid_source.n) m->image_grid = td_plan_named_request(b, c->grid_source);
    else m->image_grid = find_grid(plan, false);
    if (m->image_grid < 0) m->image_grid = find_grid_by_shape(plan);
    if (m->image_grid < 0 && images) m->image_grid = td_plan_request_of(b, TD_STR("image_grid_thw"), true);
    m->video_grid = find_grid(plan, true);
    if (m->video_grid < 0 && m->video_token >= 0) m->video_grid = td_plan_request_of(b, TD_STR("video_grid_thw"), true);
    if (m->video_grid >= 0) m->second_per_grid = td_plan_request_of(b, TD_STR("second_per_grid_ts"), true);
}

static void find_mrope(td_plan_build_ctx *b, const td_shape *shape) {
    enum { USUAL_MERGE = 2 };
    td_plan *plan = b->plan;
    const td_config_state *c = &b->config->state;
    plan->mrope.image_token = b->config->tokens.image;
    plan->mrope.video_token = b->config->tokens.video;
    plan->mrope.merge_size = c->merge_size > 0 ? c->merge_size : USUAL_MERGE;
    plan->mrope.tokens_per_second = c->tokens_per_second;
    find_axes(plan, shape);
    find_grids(b);
    bool declared = c->position == TD_POSITION_MROPE_3D;
    if (c->position == TD_POSITION_DEFAULT) { /* one number for all kinds, images or not */
        plan->mrope.image_token = plan->mrope.video_token = -1;
        return;
    }
    if (plan->mrope.image_token >= 0 || plan->mrope.video_token >= 0 || (!declared && !takes_images(plan))) return;
    td_messages_add(
        b->messages, TREADLE_MESSAGE_ERROR,
        td_tree_place(b->messages->arena,
                      c->position_json ? c->position_json : td_json_get(b->config->root, "pipeline"), false),
        "positions mrope_3d need tokens.image_token, the id that stands for a patch of an image; found none");
}

void td_plan_find_positions(td_plan_build_ctx *b) {
    td_plan *plan = b->plan;
    const td_config_state *c = &b->config->state;
    const td_shape *shape = NULL;
    plan->mrope = (td_plan_mrope){
        .image_token = -1, .video_token = -1, .image_grid = -1, .video_grid = -1, .second_per_grid = -1};
    for (size_t k = 0; k < plan->n_steps; k++) {
        const td_plan_session *s = &plan->sessions[plan->steps[k].session];
        int32_t input = td_plan_input_of_role(s, TD_ROLE_POSITION_IDS);
        if (input >= 0 && s->feeds[input].kind == TD_FEED_ROLE && !s->takes_source)
            shape = &s->signature->inputs[input].shape;
    }
    if (!shape) return;
    plan->has_positions = true;
    plan->position = shape->rank == 3 ? TD_POSITION_MROPE_3D : TD_POSITION_DEFAULT;
    if (c->position == TD_POSITION_MROPE_3D && shape->rank >= 0 && shape->rank != 3)
        td_messages_add(b->messages, TREADLE_MESSAGE_ERROR, td_tree_place(b->messages->arena, c->position_json, false),
                        "position_ids strategy mrope_3d needs an input of rank 3, found rank %d", shape->rank);
    else if (plan->position == TD_POSITION_MROPE_3D) find_mrope(b, shape);
    else if (c->position == TD_POSITION_WINDOWED || (c->position == TD_POSITION_AUTO && plan->window.size > 0))
        plan->position = TD_POSITION_WINDOWED;
}
