/* light/schema_check.c - a node against its schema (onnx/schema.h): attributes, arities, element types. */
#include "light/resolve.h"

#include <limits.h>
#include <stdio.h>

static treadle_status malformed(const td_node *node, treadle_error *err, const char *text) {
    char where[320];
    td_node_describe(node, where, sizeof where);
    return td_fail(err, TREADLE_FORMAT, "%s: %s", where, text);
}

static const char *attr_type_name(int type) {
    static const char *const names[] = {"nothing",        "float", "int",     "string",  "tensor", "graph",
                                        "floats",         "ints",  "strings", "tensors", "graphs", "sparse tensor",
                                        "sparse tensors", "type",  "types"};
    return type >= 0 && (size_t)type < TD_COUNT(names) ? names[type] : "an unknown type";
}

static treadle_status check_attributes(td_resolver *r, const td_node *node, treadle_error *err) {
    const td_schema *schema = node->schema;
    char text[320];
    for (size_t i = 0; i < node->n_attrs; i++) {
        const td_onnx_attr *a = &node->attrs[i];
        const td_schema_attr *known = td_schema_find_attr(schema, a->name);
        if (!known) {
            snprintf(text, sizeof text, "attribute \"%.*s\" is unknown to version %d of the op",
                     (int)TD_MIN(a->name.n, (size_t)120), a->name.p, schema->since_version);
            td_resolve_complain(r, node, text, err);
        } else if (known->type != a->type && a->type != TD_ONNX_ATTR_UNDEFINED) {
            snprintf(text, sizeof text, "attribute \"%s\" holds %s; expected %s", known->name, attr_type_name(a->type),
                     attr_type_name(known->type));
            return malformed(node, err, text);
        }
    }
    for (size_t i = 0; i < schema->n_attrs; i++) {
        if (!schema->attrs[i].required) continue;
        bool found = false;
        for (size_t k = 0; k < node->n_attrs && !found; k++)
            found = td_str_is(node->attrs[k].name, schema->attrs[i].name);
        if (found) continue;
        snprintf(text, sizeof text, "attribute \"%s\" is missing", schema->attrs[i].name);
        return malformed(node, err, text);
    }
    return TREADLE_OK;
}

static treadle_status check_arity(const td_node *node, treadle_error *err) {
    const td_schema *s = node->schema;
    char text[160];
    size_t n_in = td_node_n_op_inputs(node);
    if (n_in > (size_t)s->max_inputs || n_in < (size_t)s->min_inputs) { /* absent ones count: see below */
        snprintf(text, sizeof text, "%zu inputs; expected %d to %d", n_in, s->min_inputs,
                 s->max_inputs == INT_MAX ? 9999 : s->max_inputs);
        return malformed(node, err, text);
    }
    if (node->n_out > (size_t)s->max_outputs || node->n_out < (size_t)s->min_outputs) {
        snprintf(text, sizeof text, "%zu outputs; expected %d to %d", node->n_out, s->min_outputs,
                 s->max_outputs == INT_MAX ? 9999 : s->max_outputs);
        return malformed(node, err, text);
    }
    for (size_t i = 0; i < n_in; i++) {
        const td_schema_formal *formal = td_schema_input(s, i);
        if (!formal || formal->option == TD_SCHEMA_OPTIONAL || node->in[i] != TD_NO_VALUE) continue;
        snprintf(text, sizeof text, "input %zu (%s) is missing", i, formal->name);
        return malformed(node, err, text);
    }
    return TREADLE_OK;
}

static treadle_status check_types(td_resolver *r, const td_node *node, treadle_error *err) {
    const td_schema *s = node->schema;
    td_dtype bound[256] = {TD_UNDEFINED};
    char text[256];
    for (size_t i = 0; i < td_node_n_op_inputs(node); i++) {
        if (node->in[i] == TD_NO_VALUE) continue;
        const td_ir_value *v = td_graph_value(r->graph, node->in[i]);
        const td_schema_formal *formal = td_schema_input(s, i);
        td_dtype dtype = v->type.tensor.dtype;
        if (v->type.kind == TD_VALUE_NONE || !formal || dtype <= TD_UNDEFINED || dtype >= TD_DTYPE_END) continue;
        const td_schema_type *type = &s->types[formal->type];
        bool sequence = v->type.kind == TD_VALUE_SEQUENCE;
        uint32_t allowed = sequence ? type->sequence | type->optional_sequence : type->tensor | type->optional;
        if (!(allowed >> dtype & 1)) {
            snprintf(text, sizeof text, "input %zu (%s) is %s%s, which version %d of the op does not take", i,
                     formal->name, sequence ? "a sequence of " : "", td_dtype_name(dtype), s->since_version);
            td_resolve_complain(r, node, text, err);
            continue;
        }
        if (formal->option == TD_SCHEMA_VARIADIC && !formal->homogeneous) continue;
        if (bound[formal->type] != TD_UNDEFINED && bound[formal->type] != dtype) {
            snprintf(text, sizeof text, "input %zu (%s) is %s where another input of the same type is %s", i,
                     formal->name, td_dtype_name(dtype), td_dtype_name(bound[formal->type]));
            return malformed(node, err, text);
        }
        bound[formal->type] = dtype;
    }
    return TREADLE_OK;
}

treadle_status td_resolve_check(td_resolver *r, td_node *node, treadle_error *err) {
    if (!node->schema) node->schema = td_schema_find(node->domain, node->op_type, node->opset);
    if (!node->schema) return TREADLE_OK; /* an op of light's own */
    TD_TRY(check_attributes(r, node, err));
    TD_TRY(check_arity(node, err));
    return check_types(r, node, err);
}

bool td_resolve_default(td_resolver *r, const td_node *node, const char *name, td_onnx_attr *out) {
    if (!node->schema) return false;
    const td_schema_attr *a = td_schema_find_attr(node->schema, td_str_from(name));
    if (!a || !a->has_default) return false;
    *out = (td_onnx_attr){.name = td_str_from(a->name),
                          .type = (td_onnx_attr_type)a->type,
                          .f = (float)a->f,
                          .i = a->i,
                          .s = td_str_from(a->s),
                          .n = a->n};
    if (a->type == TD_ONNX_ATTR_INTS) out->ints = a->list;
    if (a->type == TD_ONNX_ATTR_FLOATS) out->floats = a->list;
    if (a->type == TD_ONNX_ATTR_STRINGS) {
        const char *const *list = a->list;
        td_str *strings = TD_ARENA_ARRAY(r->arena, td_str, a->n);
        if (!strings) {
            r->no_memory = true;
            return false;
        }
        for (size_t i = 0; i < a->n; i++) strings[i] = td_str_from(list[i]);
        out->strings = strings;
    }
    return true;
}
