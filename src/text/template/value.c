/* template/value.c - errors and bounds of a render; making, naming and comparing values.
 *
 * Whatever takes time in proportion to a value's size asks td_tpl_steps first, whatever nests asks td_tpl_enter, and
 * every allocation passes td_tpl_alloc: so a render ends. */
#include "text/template/value.h"

#include "base/map.h"
#include "text/template/lexer.h"
#include "text/template/unicode.h"

#include <stdio.h>

/* --- errors and bounds --- */

td_val td_tpl_raise_status(td_tpl *r, treadle_status status, const char *class_name, td_str message) {
    td_buf text = {0}; /* lone surrogates are no UTF-8 */
    td_utf8_replace_invalid((td_str){message.p, TD_MIN(message.n, 1900u)}, &text);
    td_fail(r->err, status, "%s%s%.*s", class_name, message.n ? ": " : "", TD_STR_ARGS(td_buf_view(&text)));
    td_buf_free(&text);
    r->status = status;
    return td_v_error();
}

td_val td_tpl_raise(td_tpl *r, const char *class_name, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    bool limit = strcmp(class_name, "LimitError") == 0 || strcmp(class_name, "RecursionError") == 0;
    return td_tpl_raise_status(r, limit ? TREADLE_LIMIT : TREADLE_RUN, class_name, td_str_from(text));
}

td_val td_tpl_raise_undefined(td_tpl *r, td_val v) {
    const td_tpl_undef *u = v.u.undef;
    const char *class_name = u && u->unsafe ? "SecurityError" : "UndefinedError";
    if (!u) return td_tpl_raise(r, class_name, "the value is undefined");
    if (u->hint.p) return td_tpl_raise_status(r, TREADLE_RUN, class_name, u->hint);
    td_buf text = {0};
    const char *object = u->owner && strcmp(u->owner, "NoneType") == 0 ? "" : " object";
    const char *owner = !u->owner                            ? NULL
                        : !*object                           ? "None"
                        : strcmp(u->owner, "Namespace") == 0 ? "jinja2.utils.Namespace"
                                                             : u->owner;
    if (!owner) {
        td_repr_string(td_v_str(u->name), &text);
        td_buf_text(&text, " is undefined");
    } else if (u->unsafe) {
        td_buf_text(&text, "access to attribute ");
        td_repr_string(td_v_str(u->name), &text);
        td_buf_printf(&text, " of '%s' object is unsafe.", u->owner);
    } else if (u->name.kind == TD_V_STRING) {
        td_buf_printf(&text, "'%s%s' has no attribute ", owner, object);
        td_repr_string(td_v_str(u->name), &text);
    } else {
        td_buf_printf(&text, "%s%s has no element ", owner, object);
        if (!td_v_repr_to(r, u->name, &text)) td_buf_text(&text, "?");
    }
    td_val error = td_tpl_raise_status(r, TREADLE_RUN, class_name, td_buf_view(&text));
    td_buf_free(&text);
    return error;
}

bool td_tpl_steps(td_tpl *r, uint64_t n) {
    if (n <= r->max_steps - r->steps) {
        r->steps += n;
        return true;
    }
    r->steps = r->max_steps;
    td_tpl_raise(r, "LimitError", "the template takes more than %llu steps", (unsigned long long)r->max_steps);
    return false;
}

bool td_tpl_enter(td_tpl *r) {
    if (r->depth < r->max_depth) {
        r->depth++;
        return true;
    }
    td_tpl_raise(r, "RecursionError", "maximum recursion depth exceeded (%u levels)", r->max_depth);
    return false;
}

void *td_tpl_alloc(td_tpl *r, size_t bytes) {
    size_t used = r->arena.used_bytes + r->capture.capacity;
    if (used > r->max_memory || bytes > r->max_memory - used) {
        td_tpl_raise(r, "LimitError", "the template needs more than %zu bytes of memory", r->max_memory);
        return NULL;
    }
    void *p = td_arena_alloc(&r->arena, bytes, 8);
    if (!p) r->status = td_fail_memory(r->err, "a template's values", bytes);
    return p;
}

void *td_tpl_alloc_array(td_tpl *r, size_t n, size_t item_bytes) {
    size_t bytes;
    if (TD_MUL_OVERFLOWS(n, item_bytes, &bytes)) bytes = SIZE_MAX;
    return td_tpl_alloc(r, bytes);
}

bool td_tpl_buf_ok(td_tpl *r, td_buf *buf) {
    if (buf->failed) {
        r->status = td_fail_memory(r->err, "a template's text", buf->n);
        return false;
    }
    if (buf->n <= r->max_memory && buf->n < INT32_MAX) return true;
    td_tpl_raise(r, "LimitError", "the template needs more than %zu bytes of memory",
                 TD_MIN(r->max_memory, (size_t)INT32_MAX));
    return false;
}

/* --- strings --- */

static uint8_t ascii_flag(td_str text) {
    uint64_t seen = 0;
    size_t i = 0;
    for (; i + 8 <= text.n; i += 8) {
        uint64_t word;
        memcpy(&word, text.p + i, 8);
        seen |= word;
    }
    for (; i < text.n; i++) seen |= (uint8_t)text.p[i];
    return seen & 0x8080808080808080u ? 0 : TD_F_ASCII;
}

td_val td_v_view(td_str text) {
    return (td_val){.kind = TD_V_STRING, .flags = ascii_flag(text), .n = (uint32_t)text.n, .u.p = text.p ? text.p : ""};
}

td_val td_v_text(const char *literal) { return td_v_view(td_str_from(literal)); }

td_val td_v_copy(td_tpl *r, td_str text) {
    if (text.n >= INT32_MAX) return td_tpl_raise(r, "LimitError", "a text of %zu bytes", text.n);
    if (!td_tpl_steps(r, text.n / 64)) return td_v_error();
    char *copy = td_tpl_alloc(r, text.n);
    if (!copy) return td_v_error();
    if (text.n) memcpy(copy, text.p, text.n);
    return td_v_view((td_str){copy, text.n});
}

td_val td_v_take_buf(td_tpl *r, td_buf *buf) {
    td_val v = td_tpl_buf_ok(r, buf) ? td_v_copy(r, td_buf_view(buf)) : td_v_error();
    td_buf_free(buf);
    return v;
}

/* Accumulating in a loop, ns.text = ns.text ~ x, would copy the whole text each time. So a joined string gets spare
 * room behind it, and as long as it is still the last thing there, the next join only adds the new bytes: the old
 * string stays what it was, since strings know their length. */
td_val td_v_concat(td_tpl *r, td_val a, td_val b) {
    if (!b.n || !a.n) {
        td_val whole = b.n ? b : a;
        if (a.flags & b.flags & TD_F_MARKUP) return whole;
        whole.flags &= (uint8_t)~TD_F_MARKUP;
        return whole;
    }
    size_t n = (size_t)a.n + b.n;
    if (n >= INT32_MAX) return td_tpl_raise(r, "LimitError", "a text of %zu bytes", n);
    if (!td_tpl_steps(r, b.n / 64)) return td_v_error();
    td_val out = {.kind = TD_V_STRING, .flags = a.flags & b.flags, .n = (uint32_t)n};
    for (size_t i = 0; i < TD_COUNT(r->tails); i++) {
        td_tpl_tail *tail = &r->tails[i];
        if (!tail->end || tail->end != a.u.p + a.n || (size_t)(tail->limit - tail->end) < b.n) continue;
        memcpy(tail->end, b.u.p, b.n);
        tail->end += b.n;
        out.u.p = a.u.p;
        return out;
    }
    if (!td_tpl_steps(r, a.n / 64)) return td_v_error();
    size_t room = n + (n < 64 ? 0 : n);
    char *p = td_tpl_alloc(r, room);
    if (!p) return td_v_error();
    memcpy(p, a.u.p, a.n);
    memcpy(p + a.n, b.u.p, b.n);
    if (room > n) r->tails[r->next_tail++ % TD_COUNT(r->tails)] = (td_tpl_tail){p + n, p + room};
    out.u.p = p;
    return out;
}

/* --- undefined --- */

td_val td_v_undefined_of(td_tpl *r, td_val owner, td_val name, bool unsafe) {
    td_tpl_undef *u = td_tpl_alloc(r, sizeof *u);
    if (!u) return td_v_error();
    u->unsafe = unsafe;
    u->name = name;
    u->owner = td_v_type(owner);
    return (td_val){.kind = TD_V_UNDEFINED, .u.undef = u};
}

td_val td_v_undefined_name(td_tpl *r, td_str name) {
    td_tpl_undef *u = td_tpl_alloc(r, sizeof *u);
    if (!u) return td_v_error();
    u->name = td_v_view(name);
    return (td_val){.kind = TD_V_UNDEFINED, .u.undef = u};
}

td_val td_v_undefined_hint(td_tpl *r, td_str hint) {
    td_tpl_undef *u = td_tpl_alloc(r, sizeof *u);
    if (!u) return td_v_error();
    u->hint = hint;
    return (td_val){.kind = TD_V_UNDEFINED, .u.undef = u};
}

/* --- what a value is --- */

const char *td_v_type(td_val v) {
    static const char *const names[] = {
        [TD_V_ERROR] = "error",
        [TD_V_MISSING] = "missing",
        [TD_V_UNDEFINED] = "Undefined",
        [TD_V_NONE] = "NoneType",
        [TD_V_BOOL] = "bool",
        [TD_V_INT] = "int",
        [TD_V_BIG] = "int",
        [TD_V_FLOAT] = "float",
        [TD_V_STRING] = "str",
        [TD_V_BYTES] = "bytes",
        [TD_V_LIST] = "list",
        [TD_V_TUPLE] = "tuple",
        [TD_V_DICT] = "dict",
        [TD_V_VIEW] = "dict_items",
        [TD_V_RANGE] = "range",
        [TD_V_ITER] = "generator",
        [TD_V_NAMESPACE] = "Namespace",
        [TD_V_MACRO] = "Macro",
        [TD_V_LOOP] = "LoopContext",
        [TD_V_CYCLER] = "Cycler",
        [TD_V_JOINER] = "Joiner",
        [TD_V_FUNCTION] = "function",
        [TD_V_METHOD] = "builtin_function_or_method",
    };
    if (v.kind == TD_V_VIEW) return v.view == 'k' ? "dict_keys" : v.view == 'v' ? "dict_values" : "dict_items";
    if (v.kind == TD_V_FUNCTION && v.u.function->is_type) return "type";
    if (v.kind == TD_V_STRING && v.flags & TD_F_MARKUP) return "Markup";
    return names[v.kind];
}

int64_t td_v_len(td_val v) {
    switch (v.kind) {
    case TD_V_UNDEFINED: return 0;
    case TD_V_STRING: return v.flags & TD_F_ASCII ? v.n : (int64_t)td_tpl_uni_count(td_v_str(v));
    case TD_V_BYTES: return v.n;
    case TD_V_LIST:
    case TD_V_TUPLE: return v.u.list->n;
    case TD_V_DICT:
    case TD_V_VIEW: return v.u.dict->n;
    case TD_V_RANGE: return v.u.range->n;
    default: return -1;
    }
}

td_val td_v_length(td_tpl *r, td_val v) {
    if (v.kind == TD_V_LOOP) return td_loop_attribute(r, v.u.loop, TD_STR("length"));
    if (v.kind == TD_V_STRING && !td_tpl_steps(r, v.n / 64)) return td_v_error();
    int64_t n = td_v_len(v);
    if (n < 0) return td_tpl_raise(r, "TypeError", "object of type '%s' has no len()", td_v_type(v));
    return td_v_int(n);
}

int td_v_truth(td_tpl *r, td_val v) {
    switch (v.kind) {
    case TD_V_UNDEFINED:
    case TD_V_NONE: return 0;
    case TD_V_BOOL: return v.u.b;
    case TD_V_INT: return v.u.i != 0;
    case TD_V_FLOAT: return v.u.f != 0;
    case TD_V_STRING:
    case TD_V_BYTES: return v.n != 0;
    case TD_V_LOOP: {
        td_val n = td_loop_attribute(r, v.u.loop, TD_STR("length"));
        return TD_V_FAILED(n) ? -1 : n.u.i != 0;
    }
    default: {
        int64_t n = td_v_len(v);
        return n != 0; /* what has no length is true */
    }
    }
}

int td_v_identical(td_val a, td_val b) {
    if (a.kind != b.kind) return 0;
    switch (a.kind) {
    case TD_V_NONE: return 1;
    case TD_V_BOOL: return a.u.b == b.u.b;
    case TD_V_INT: return a.u.i == b.u.i && a.u.i >= -5 && a.u.i <= 256; /* CPython keeps one object of each of these */
    case TD_V_STRING:
    case TD_V_BYTES: return a.u.p == b.u.p && a.n == b.n;
    case TD_V_FLOAT: return memcmp(&a.u.f, &b.u.f, sizeof a.u.f) == 0;
    case TD_V_VIEW:
    case TD_V_METHOD: return 0; /* made anew at each access */
    default: return a.u.list == b.u.list;
    }
}

/* --- equality and order --- */

static int equal_lists(td_tpl *r, const td_tpl_list *a, const td_tpl_list *b) {
    if (a == b) return 1;
    if (a->n != b->n) return 0;
    if (!td_tpl_enter(r)) return -1;
    int same = 1;
    for (uint32_t i = 0; i < a->n && same == 1; i++) same = td_v_equal(r, a->items[i], b->items[i]);
    td_tpl_leave(r);
    return same;
}

static int equal_dicts(td_tpl *r, const td_tpl_dict *a, const td_tpl_dict *b) {
    if (a == b) return 1;
    if (a->n != b->n) return 0;
    if (!td_tpl_enter(r)) return -1;
    int same = 1;
    for (uint32_t i = 0; i < a->n && same == 1; i++) {
        td_val other = td_dict_get(r, b, a->items[i].key);
        same = TD_V_FAILED(other) ? -1 : !td_v_given(other) ? 0 : td_v_equal(r, a->items[i].value, other);
    }
    td_tpl_leave(r);
    return same;
}

int td_v_equal(td_tpl *r, td_val a, td_val b) {
    if (!td_tpl_steps(r, 1)) return -1;
    if (td_v_is_number(a) && td_v_is_number(b)) return td_num_order(a, b) == 0;
    if (a.kind != b.kind) return 0;
    switch (a.kind) {
    case TD_V_UNDEFINED:
    case TD_V_NONE: return 1;
    case TD_V_STRING:
    case TD_V_BYTES:
        if (a.n != b.n || !td_tpl_steps(r, a.n / 64)) return a.n != b.n ? 0 : -1;
        return td_str_equal(td_v_str(a), td_v_str(b));
    case TD_V_LIST:
    case TD_V_TUPLE: return equal_lists(r, a.u.list, b.u.list);
    case TD_V_DICT: return equal_dicts(r, a.u.dict, b.u.dict);
    case TD_V_VIEW:
        if (a.view == 'v' || b.view == 'v') return 0;
        if (a.view == 'i' && b.view == 'i') return equal_dicts(r, a.u.dict, b.u.dict);
        if (a.view != b.view || a.u.dict->n != b.u.dict->n) return 0;
        for (uint32_t i = 0; i < a.u.dict->n; i++) {
            td_val other = td_dict_get(r, b.u.dict, a.u.dict->items[i].key);
            if (TD_V_FAILED(other)) return -1;
            if (!td_v_given(other)) return 0;
        }
        return 1;
    case TD_V_RANGE: {
        const td_tpl_range *x = a.u.range, *y = b.u.range;
        return x->n == y->n && (x->n == 0 || (x->start == y->start && (x->n == 1 || x->step == y->step)));
    }
    case TD_V_METHOD: return a.u.method->row == b.u.method->row && td_v_identical(a.u.method->self, b.u.method->self);
    default: return a.u.list == b.u.list;
    }
}

static int compare_bytes(td_str a, td_str b) {
    int order = memcmp(a.p ? a.p : "", b.p ? b.p : "", TD_MIN(a.n, b.n)); /* UTF-8 sorts as its code points do */
    return order ? (order < 0 ? -1 : 1) : a.n < b.n ? -1 : a.n > b.n;
}

int td_v_compare(td_tpl *r, td_val a, td_val b, const char *op, int *order) {
    if (!td_tpl_steps(r, 1)) return -1;
    if (td_v_is_number(a) && td_v_is_number(b)) {
        *order = td_num_order(a, b);
        return 0;
    }
    if ((a.kind == TD_V_STRING || a.kind == TD_V_BYTES) && a.kind == b.kind) {
        if (!td_tpl_steps(r, TD_MIN(a.n, b.n) / 64)) return -1;
        *order = compare_bytes(td_v_str(a), td_v_str(b));
        return 0;
    }
    if (td_v_is_list(a) && a.kind == b.kind) {
        const td_tpl_list *x = a.u.list, *y = b.u.list;
        uint32_t n = TD_MIN(x->n, y->n);
        for (uint32_t i = 0; i < n; i++) {
            int same = td_v_equal(r, x->items[i], y->items[i]);
            if (same < 0) return -1;
            if (same) continue;
            if (!td_tpl_enter(r)) return -1;
            int status = td_v_compare(r, x->items[i], y->items[i], op, order);
            td_tpl_leave(r);
            return status;
        }
        *order = x->n < y->n ? -1 : x->n > y->n;
        return 0;
    }
    if (a.kind == TD_V_UNDEFINED || b.kind == TD_V_UNDEFINED)
        td_tpl_raise_undefined(r, a.kind == TD_V_UNDEFINED ? a : b);
    else
        td_tpl_raise(r, "TypeError", "'%s' not supported between instances of '%s' and '%s'", op, td_v_type(a),
                     td_v_type(b));
    return -1;
}

int td_v_contains(td_tpl *r, td_val c, td_val item) {
    switch (c.kind) {
    case TD_V_STRING:
        if (item.kind != TD_V_STRING) {
            td_tpl_raise(r, "TypeError", "'in <string>' requires string as left operand, not %s", td_v_type(item));
            return -1;
        }
        if (!td_tpl_steps(r, c.n / 64)) return -1;
        return td_str_find(td_v_str(c), td_v_str(item)) >= 0;
    case TD_V_DICT:
    case TD_V_VIEW:
        if (c.kind == TD_V_DICT || c.view == 'k') {
            td_val found = td_dict_get(r, c.u.dict, item);
            return TD_V_FAILED(found) ? -1 : td_v_given(found);
        }
        break;
    case TD_V_RANGE:
        if (td_v_is_int(item)) {
            const td_tpl_range *g = c.u.range;
            if (item.kind == TD_V_BIG || g->n == 0) return 0;
            int64_t i = td_v_small(item), last = td_range_at(g, g->n - 1).u.i;
            if (i < TD_MIN(g->start, last) || i > TD_MAX(g->start, last)) return 0;
            uint64_t distance = g->step > 0 ? (uint64_t)i - (uint64_t)g->start : (uint64_t)g->start - (uint64_t)i;
            return distance % (g->step > 0 ? (uint64_t)g->step : 0 - (uint64_t)g->step) == 0;
        }
        break;
    default: break;
    }
    if (!td_v_iterable(c)) {
        td_tpl_raise(r, "TypeError", "argument of type '%s' is not iterable", td_v_type(c));
        return -1;
    }
    td_tpl_iter *it = td_iter_over(r, c);
    if (!it) return -1;
    for (;;) {
        td_val v = td_iter_next(r, it);
        if (TD_V_FAILED(v)) return -1;
        if (!td_v_given(v)) return 0;
        int same = td_v_identical(v, item) ? 1 : td_v_equal(r, v, item);
        if (same) return same;
    }
}

/* --- hashing --- */

bool td_v_hashable(td_val v) {
    if (v.kind == TD_V_TUPLE) {
        for (uint32_t i = 0; i < v.u.list->n; i++) {
            if (!td_v_hashable(v.u.list->items[i])) return false;
        }
        return true;
    }
    return v.kind != TD_V_LIST && v.kind != TD_V_DICT && !(v.kind == TD_V_VIEW && v.view != 'v');
}

static uint64_t hash_number(td_val v) { /* equal numbers of all kinds have one hash */
    if (v.kind == TD_V_BIG) return 5;   /* may equal a float; too rare a key to spread */
    if (v.kind == TD_V_FLOAT) {
        double f = v.u.f;
        if (fabs(f) >= 0x1p63) return 5;
        if (f != floor(f)) return td_hash(&f, sizeof f, 2);
        v = td_v_int((int64_t)f);
    }
    int64_t i = td_v_small(v);
    return td_hash(&i, sizeof i, 1);
}

bool td_v_hash(td_tpl *r, td_val v, uint64_t *out) {
    if (td_v_is_number(v)) {
        *out = hash_number(v);
        return true;
    }
    switch (v.kind) {
    case TD_V_STRING:
    case TD_V_BYTES:
        if (!td_tpl_steps(r, v.n / 64)) return false;
        *out = td_hash(v.u.p ? v.u.p : "", v.n, v.kind);
        return true;
    case TD_V_UNDEFINED:
    case TD_V_NONE: *out = v.kind; return true;
    case TD_V_TUPLE: {
        if (!td_tpl_enter(r)) return false;
        uint64_t h = 7;
        bool ok = td_tpl_steps(r, v.u.list->n);
        for (uint32_t i = 0; ok && i < v.u.list->n; i++) {
            uint64_t part[2] = {h, 0};
            ok = td_v_hash(r, v.u.list->items[i], &part[1]);
            h = td_hash(part, sizeof part, 3);
        }
        td_tpl_leave(r);
        *out = h;
        return ok;
    }
    default:
        if (!td_v_hashable(v)) {
            td_tpl_raise(r, "TypeError", "unhashable type: '%s'", td_v_type(v));
            return false;
        }
        *out = v.kind == TD_V_RANGE ? (uint64_t)v.u.range->n : td_hash(&v.u.p, sizeof v.u.p, 4);
        return true;
    }
}
