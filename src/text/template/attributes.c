/* template/attributes.c - owner.name of everything: methods of dicts, lists, numbers, bytes; loops, macros, cyclers.
 *
 * What modifies a list or dict, and what Python keeps between double underscores, exists but may not be touched: it is
 * an undefined that raises SecurityError when used. */
#include "text/template/ast.h"
#include "text/template/unicode.h"

#define METHOD(name) static td_val name(td_tpl *r, td_val self, const td_val *a, const td_tpl_args *args)
#define UNUSED (void)r, (void)self, (void)a, (void)args

/* --- dict --- */

static td_val view(td_val self, char which) {
    return (td_val){.kind = TD_V_VIEW, .view = (uint8_t)which, .u.dict = self.u.dict};
}

METHOD(dict_keys) { return UNUSED, view(self, 'k'); }
METHOD(dict_values) { return UNUSED, view(self, 'v'); }
METHOD(dict_items) { return UNUSED, view(self, 'i'); }

METHOD(dict_get) {
    (void)args;
    td_val v = td_dict_get(r, self.u.dict, a[0]);
    return td_v_given(v) ? v : td_v_given(a[1]) ? a[1] : td_v_none();
}

METHOD(dict_copy) {
    (void)a, (void)args;
    const td_tpl_dict *from = self.u.dict;
    if (!td_tpl_steps(r, from->n)) return td_v_error();
    td_tpl_dict *d = td_dict_new(r, from->n);
    for (uint32_t i = 0; d && i < from->n; i++) {
        if (!td_dict_set(r, d, from->items[i].key, from->items[i].value)) return td_v_error();
    }
    return td_v_dict(d);
}

METHOD(dict_fromkeys) {
    (void)self, (void)args;
    td_tpl_iter *it = td_iter_over(r, a[0]);
    td_tpl_dict *d = it ? td_dict_new(r, 0) : NULL;
    if (!d) return td_v_error();
    for (td_val key = td_iter_next(r, it); td_v_given(key); key = td_iter_next(r, it)) {
        if (!td_dict_set(r, d, key, td_v_given(a[1]) ? a[1] : td_v_none())) return td_v_error();
    }
    return td_v_dict(d);
}

/* --- lists, tuples, ranges --- */

METHOD(sequence_count) {
    (void)args;
    td_tpl_iter *it = td_iter_over(r, self);
    if (!it) return td_v_error();
    int64_t n = 0;
    for (td_val v = td_iter_next(r, it); td_v_given(v); v = td_iter_next(r, it)) {
        int same = TD_V_FAILED(v) ? -1 : td_v_identical(v, a[0]) ? 1 : td_v_equal(r, v, a[0]);
        if (same < 0) return td_v_error();
        n += same;
    }
    return td_v_int(n);
}

METHOD(sequence_index) {
    (void)args;
    int64_t n = td_v_len(self), from = 0, to = n;
    if ((td_v_given(a[1]) && !td_num_index(r, a[1], "start", &from)) ||
        (td_v_given(a[2]) && !td_num_index(r, a[2], "stop", &to))) {
        return td_v_error();
    }
    if (from < 0) from = TD_MAX(from + n, 0);
    if (to < 0) to += n;
    for (int64_t i = from; i < TD_MIN(to, n); i++) {
        td_val v = self.kind == TD_V_RANGE ? td_range_at(self.u.range, i) : td_v_at(self, i);
        int same = td_v_identical(v, a[0]) ? 1 : td_v_equal(r, v, a[0]);
        if (same < 0) return td_v_error();
        if (same) return td_v_int(i);
    }
    td_buf text = {0};
    if (td_v_repr_to(r, a[0], &text))
        td_tpl_raise(r, "ValueError", "%.*s is not in %s", TD_STR_ARGS(td_buf_view(&text)), td_v_type(self));
    td_buf_free(&text);
    return td_v_error();
}

METHOD(list_copy) { return (void)a, (void)args, td_v_to_list(r, self); }

/* --- bytes, numbers --- */

METHOD(bytes_decode) {
    (void)args;
    if ((td_v_given(a[0]) && a[0].kind != TD_V_STRING) || !td_utf8_valid(td_v_str(self))) {
        return td_tpl_raise(r, "UnicodeDecodeError", "the bytes are not valid UTF-8");
    }
    return td_v_view(td_v_str(self));
}

METHOD(bytes_hex) {
    (void)a, (void)args;
    td_buf out = {0};
    for (uint32_t i = 0; i < self.n; i++) td_buf_printf(&out, "%02x", (uint8_t)self.u.p[i]);
    return td_v_take_buf(r, &out);
}

METHOD(int_bit_length) {
    UNUSED;
    if (self.kind == TD_V_BIG) return td_tpl_raise(r, "OverflowError", "bit_length of an integer beyond 64 bits");
    int64_t i = td_v_small(self);
    uint64_t m = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    return td_v_int(m ? 64 - __builtin_clzll(m) : 0);
}

METHOD(float_is_integer) { return UNUSED, td_v_bool(isfinite(self.u.f) && self.u.f == floor(self.u.f)); }
METHOD(number_conjugate) { return UNUSED, self.kind == TD_V_BOOL ? td_v_int(self.u.b) : self; }

/* --- cyclers, loops --- */

METHOD(cycler_next) {
    UNUSED;
    td_tpl_cycler *c = self.u.cycler;
    td_val v = c->items[c->at];
    c->at = (c->at + 1) % c->n;
    return v;
}

METHOD(cycler_reset) { return UNUSED, self.u.cycler->at = 0, td_v_none(); }

METHOD(loop_cycle) {
    (void)a;
    if (args->n_keywords) return td_tpl_raise(r, "TypeError", "cycle() takes no keyword arguments");
    if (!args->n) return td_tpl_raise(r, "TypeError", "no items for cycling given");
    return args->items[self.u.loop->index0 % args->n];
}

METHOD(loop_changed) {
    (void)a;
    if (args->n_keywords) return td_tpl_raise(r, "TypeError", "changed() takes no keyword arguments");
    td_tpl_list *l = td_list_new(r, args->n);
    if (!l) return td_v_error();
    for (uint32_t i = 0; i < args->n; i++) l->items[l->n++] = args->items[i];
    td_val now = td_v_tuple(l);
    int same = td_v_equal(r, self.u.loop->changed, now);
    if (same < 0) return td_v_error();
    if (!same) self.u.loop->changed = now;
    return td_v_bool(!same);
}

td_val td_loop_next(td_tpl *r, td_tpl_loop *loop) {
    td_val v = loop->after;
    if (!td_v_given(v)) v = td_iter_next(r, loop->iter);
    loop->after = td_v_missing();
    if (TD_V_FAILED(v) || !td_v_given(v)) return v;
    loop->index0++;
    loop->before = loop->current;
    loop->current = v;
    return v;
}

static td_val peek(td_tpl *r, td_tpl_loop *loop) {
    if (!td_v_given(loop->after)) loop->after = td_iter_next(r, loop->iter);
    return loop->after;
}

static td_val length(td_tpl *r, td_tpl_loop *loop) {
    if (loop->length < 0) loop->length = td_v_len(loop->iterable);
    if (loop->length < 0) { /* a generator: the rest is read now and walked later */
        td_val rest = td_v_to_list(r, td_v_iter(loop->iter));
        TD_V_CHECK(rest);
        loop->length = loop->index0 + 1 + td_v_given(loop->after) + rest.u.list->n;
        loop->iter = td_iter_over(r, rest);
        if (!loop->iter) return td_v_error();
    }
    return td_v_int(loop->length);
}

td_val td_loop_attribute(td_tpl *r, td_tpl_loop *loop, td_str name) {
    static const char *const names[] = {"index",     "index0",   "first",    "last",  "length", "revindex",
                                        "revindex0", "previtem", "nextitem", "depth", "depth0"};
    size_t which = 0;
    while (which < TD_COUNT(names) && !td_str_is(name, names[which])) which++;
    switch (which) {
    case 0: return td_v_int(loop->index0 + 1);
    case 1: return td_v_int(loop->index0);
    case 2: return td_v_bool(loop->index0 == 0);
    case 3: {
        td_val next = peek(r, loop);
        return TD_V_FAILED(next) ? next : td_v_bool(!td_v_given(next));
    }
    case 4: return length(r, loop);
    case 5:
    case 6: {
        td_val n = length(r, loop);
        return TD_V_FAILED(n) ? n : td_v_int(n.u.i - loop->index0 - (which == 6));
    }
    case 7: return loop->index0 == 0 ? td_v_undefined_hint(r, TD_STR("there is no previous item")) : loop->before;
    case 8: {
        td_val next = peek(r, loop);
        return td_v_given(next) ? next : td_v_undefined_hint(r, TD_STR("there is no next item"));
    }
    case 9: return td_v_int((int64_t)loop->depth0 + 1);
    case 10: return td_v_int(loop->depth0);
    default: return td_v_missing();
    }
}

/* --- looking up --- */

/* clang-format off */
static const td_tpl_builtin dict_methods[] = {
    {.name = "keys", .fn = dict_keys, .params = ""},
    {.name = "values", .fn = dict_values, .params = ""},
    {.name = "items", .fn = dict_items, .params = ""},
    {.name = "get", .fn = dict_get, .params = "-key ?-default"},
    {.name = "copy", .fn = dict_copy, .params = ""},
    {.name = "fromkeys", .fn = dict_fromkeys, .params = "-iterable ?-value"},
};
static const td_tpl_builtin list_methods[] = {
    {.name = "count", .fn = sequence_count, .params = "-value"},
    {.name = "index", .fn = sequence_index, .params = "-value ?-start ?-stop"},
    {.name = "copy", .fn = list_copy, .params = ""}, /* the last: tuples have only the others */
};
static const td_tpl_builtin range_methods[] = {
    {.name = "count", .fn = sequence_count, .params = "-value"},
    {.name = "index", .fn = sequence_index, .params = "-value"},
};
static const td_tpl_builtin bytes_methods[] = {
    {.name = "decode", .fn = bytes_decode, .params = "?encoding ?errors"},
    {.name = "hex", .fn = bytes_hex, .params = ""},
};
static const td_tpl_builtin int_methods[] = {
    {.name = "bit_length", .fn = int_bit_length, .params = ""},
    {.name = "conjugate", .fn = number_conjugate, .params = ""},
};
static const td_tpl_builtin float_methods[] = {
    {.name = "is_integer", .fn = float_is_integer, .params = ""},
    {.name = "conjugate", .fn = number_conjugate, .params = ""},
};
static const td_tpl_builtin cycler_methods[] = {
    {.name = "next", .fn = cycler_next, .params = ""},
    {.name = "reset", .fn = cycler_reset, .params = ""},
};
static const td_tpl_builtin loop_methods[] = {
    {.name = "cycle", .fn = loop_cycle, .variadic = true},
    {.name = "changed", .fn = loop_changed, .variadic = true},
};
/* clang-format on */

static const td_tpl_builtin *find_method(td_val owner, td_str name) {
#define FIND(rows, n) td_tpl_find_row(rows, n, name)
    switch (owner.kind) {
    case TD_V_STRING: return td_tpl_string_method(name);
    case TD_V_DICT: return FIND(dict_methods, TD_COUNT(dict_methods));
    case TD_V_LIST: return FIND(list_methods, TD_COUNT(list_methods));
    case TD_V_TUPLE: return FIND(list_methods, TD_COUNT(list_methods) - 1);
    case TD_V_RANGE: return FIND(range_methods, TD_COUNT(range_methods));
    case TD_V_BYTES: return FIND(bytes_methods, TD_COUNT(bytes_methods));
    case TD_V_BOOL:
    case TD_V_INT:
    case TD_V_BIG: return FIND(int_methods, TD_COUNT(int_methods));
    case TD_V_FLOAT: return FIND(float_methods, TD_COUNT(float_methods));
    case TD_V_CYCLER: return FIND(cycler_methods, TD_COUNT(cycler_methods));
    case TD_V_LOOP: return FIND(loop_methods, TD_COUNT(loop_methods));
    case TD_V_FUNCTION: /* dict.fromkeys(...) */
        return td_str_is(td_str_from(owner.u.function->name), "dict") && td_str_is(name, "fromkeys")
                   ? FIND(dict_methods, TD_COUNT(dict_methods))
                   : NULL;
    default: return NULL;
    }
#undef FIND
}

static bool modifies(td_val owner, td_str name) {
    static const char *const of_list[] = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
    static const char *const of_dict[] = {"clear", "pop", "popitem", "setdefault", "update"};
    for (size_t i = 0; owner.kind == TD_V_LIST && i < TD_COUNT(of_list); i++) {
        if (td_str_is(name, of_list[i])) return true;
    }
    for (size_t i = 0; owner.kind == TD_V_DICT && i < TD_COUNT(of_dict); i++) {
        if (td_str_is(name, of_dict[i])) return true;
    }
    return false;
}

/* What every Python object has; more exists on some, and is as unreachable. */
static bool is_internal(td_str name) {
    static const char *const names[] = {
        "__class__",   "__delattr__",  "__dir__",           "__doc__",          "__eq__",
        "__format__",  "__ge__",       "__getattribute__",  "__getstate__",     "__gt__",
        "__hash__",    "__init__",     "__init_subclass__", "__le__",           "__lt__",
        "__ne__",      "__new__",      "__reduce__",        "__reduce_ex__",    "__repr__",
        "__setattr__", "__sizeof__",   "__str__",           "__subclasshook__", "__len__",
        "__getitem__", "__contains__", "__iter__",          "__add__",          "__mul__",
        "__dict__",    "__module__",   "__globals__",       "__call__",         "__self__",
    };
    for (size_t i = 0; i < TD_COUNT(names); i++) {
        if (td_str_is(name, names[i])) return true;
    }
    return false;
}

static td_val macro_attribute(td_tpl *r, const td_node *n, td_str name) {
    if (td_str_is(name, "name")) return n->kind == TD_N_MACRO ? td_v_view(n->name) : td_v_none();
    if (td_str_is(name, "catch_kwargs")) return td_v_bool(n->uses_kwargs);
    if (td_str_is(name, "catch_varargs")) return td_v_bool(n->uses_varargs);
    if (td_str_is(name, "caller")) return td_v_bool(n->uses_caller);
    if (!td_str_is(name, "arguments")) return td_v_missing();
    td_tpl_list *l = td_list_new(r, n->items.n);
    for (uint32_t i = 0; l && i < n->items.n; i++) l->items[l->n++] = td_v_view(n->items.items[i]->name);
    return td_v_tuple(l);
}

static td_val property(td_tpl *r, td_val owner, td_str name) {
    switch (owner.kind) {
    case TD_V_LOOP: return td_loop_attribute(r, owner.u.loop, name);
    case TD_V_MACRO: return macro_attribute(r, owner.u.macro->node, name);
    case TD_V_CYCLER:
        if (td_str_is(name, "current")) return owner.u.cycler->items[owner.u.cycler->at];
        if (td_str_is(name, "pos")) return td_v_int(owner.u.cycler->at);
        break;
    case TD_V_JOINER:
        if (td_str_is(name, "sep")) return owner.u.joiner->separator;
        if (td_str_is(name, "used")) return td_v_bool(owner.u.joiner->used);
        break;
    case TD_V_TUPLE:
        if (owner.flags & TD_F_GROUP && td_str_is(name, "grouper")) return owner.u.list->items[0];
        if (owner.flags & TD_F_GROUP && td_str_is(name, "list")) return owner.u.list->items[1];
        break;
    case TD_V_RANGE:
        if (td_str_is(name, "start")) return td_v_int(owner.u.range->start);
        if (td_str_is(name, "stop")) return td_v_int(owner.u.range->stop);
        if (td_str_is(name, "step")) return td_v_int(owner.u.range->step);
        break;
    case TD_V_BOOL:
    case TD_V_INT:
    case TD_V_BIG:
    case TD_V_FLOAT:
        if (td_str_is(name, "real") || (td_str_is(name, "numerator") && owner.kind != TD_V_FLOAT)) {
            return owner.kind == TD_V_BOOL ? td_v_int(owner.u.b) : owner;
        }
        if (td_str_is(name, "imag")) return owner.kind == TD_V_FLOAT ? td_v_float(0) : td_v_int(0);
        if (td_str_is(name, "denominator") && owner.kind != TD_V_FLOAT) return td_v_int(1);
        break;
    default: break;
    }
    return td_v_missing();
}

td_val td_v_attribute(td_tpl *r, td_val owner, td_str name) {
    if (owner.kind == TD_V_NAMESPACE) {
        td_val v = td_dict_get_str(owner.u.dict, name);
        bool hidden = name.n && name.p[0] == '_';
        return hidden && (td_v_given(v) || td_str_is(name, "__class__"))
                   ? td_v_undefined_of(r, owner, td_v_view(name), true)
                   : v;
    }
    if (name.n > 1 && name.p[0] == '_' && is_internal(name)) return td_v_undefined_of(r, owner, td_v_view(name), true);
    if (modifies(owner, name)) return td_v_undefined_of(r, owner, td_v_view(name), true);
    td_val v = property(r, owner, name);
    if (td_v_given(v)) return v;
    const td_tpl_builtin *row = find_method(owner, name);
    if (!row) return td_v_missing();
    td_tpl_method *m = td_tpl_alloc(r, sizeof *m);
    if (!m) return td_v_error();
    *m = (td_tpl_method){owner, row};
    return (td_val){.kind = TD_V_METHOD, .u.method = m};
}
