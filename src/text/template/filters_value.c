/* template/filters_value.c - filters on numbers and on any value, and the list of all filters. */
#include "text/template/filters.h"
#include "text/template/lexer.h"

FILTER(default) {
    (void)args;
    bool use = v.kind == TD_V_UNDEFINED;
    if (!use && td_v_given(a[1])) {
        int boolean = td_v_truth(r, a[1]), truth = boolean == 1 ? td_v_truth(r, v) : 1;
        if (boolean < 0 || truth < 0) return td_v_error();
        use = !truth;
    }
    return use ? (td_v_given(a[0]) ? a[0] : td_v_text("")) : v;
}

FILTER(abs) {
    (void)a, (void)args;
    if (!td_v_is_number(v)) return td_tpl_raise(r, "TypeError", "bad operand type for abs(): '%s'", td_v_type(v));
    if (v.kind == TD_V_FLOAT) return td_v_float(fabs(v.u.f));
    bool negative = v.kind == TD_V_BIG ? td_big_sign(v.u.big) < 0 : td_v_small(v) < 0;
    return negative ? td_num_negate(r, v) : v.kind == TD_V_BOOL ? td_v_int(v.u.b) : v;
}

FILTER(int) {
    (void)args;
    td_val otherwise = td_v_given(a[0]) ? a[0] : td_v_int(0);
    int64_t base = 10;
    if (v.kind == TD_V_UNDEFINED) return td_tpl_raise_undefined(r, v);
    if (v.kind == TD_V_FLOAT) return isnan(v.u.f) ? otherwise : td_num_from_double(r, v.u.f);
    if (td_v_is_int(v)) return v.kind == TD_V_BOOL ? td_v_int(v.u.b) : v;
    if (v.kind != TD_V_STRING) return otherwise;
    if (td_v_given(a[1]) && !td_num_index(r, a[1], "base", &base)) return td_v_error();
    td_val i = base >= 0 && base <= 36 ? td_num_parse_int(r, td_v_str(v), (int)base) : td_v_missing();
    if (td_v_given(i)) return i;
    td_val f = td_num_parse_float(td_v_str(v));
    return td_v_given(f) && isfinite(f.u.f) ? td_num_from_double(r, f.u.f) : otherwise;
}

FILTER(float) {
    (void)args;
    double f;
    if (v.kind == TD_V_UNDEFINED) return td_tpl_raise_undefined(r, v);
    if (td_v_is_number(v)) return td_num_double(r, v, &f) ? td_v_float(f) : td_v_error();
    td_val parsed = v.kind == TD_V_STRING ? td_num_parse_float(td_v_str(v)) : td_v_missing();
    return td_v_given(parsed) ? parsed : td_v_given(a[0]) ? a[0] : td_v_float(0);
}

FILTER(round) {
    (void)args;
    int64_t precision = 0;
    td_str method = TD_STR("common");
    if (td_v_given(a[1]) && a[1].kind == TD_V_STRING) method = td_v_str(a[1]);
    if ((td_v_given(a[1]) && a[1].kind != TD_V_STRING) ||
        (!td_str_is(method, "common") && !td_str_is(method, "ceil") && !td_str_is(method, "floor"))) {
        return td_tpl_raise(r, "FilterArgumentError", "method must be common, ceil or floor");
    }
    if (!td_v_is_number(v))
        return td_tpl_raise(r, "TypeError", "type %s doesn't define __round__ method", td_v_type(v));
    if (td_v_given(a[0]) && !td_num_index(r, a[0], "precision", &precision)) return td_v_error();
    if (td_str_is(method, "common")) return td_num_round(r, v, precision);
    td_val scale = td_num_binary(r, TD_T_POW, td_v_int(10), td_v_int(precision));
    TD_V_CHECK(scale);
    td_val scaled = td_num_binary(r, TD_T_MUL, v, scale);
    TD_V_CHECK(scaled);
    if (scaled.kind == TD_V_FLOAT)
        scaled = td_num_from_double(r, td_str_is(method, "ceil") ? ceil(scaled.u.f) : floor(scaled.u.f));
    TD_V_CHECK(scaled);
    return td_num_binary(r, TD_T_DIV, scaled, scale);
}

FILTER(filesizeformat) {
    (void)args;
    static const char *const units[] = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
    static const char *const binary_units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};
    int binary = td_tpl_flag(r, a[0]);
    double bytes;
    if (v.kind == TD_V_STRING) {
        td_val f = td_num_parse_float(td_v_str(v));
        if (!td_v_given(f)) return td_tpl_raise(r, "ValueError", "could not convert string to float");
        v = f;
    }
    if (v.kind == TD_V_UNDEFINED) return td_tpl_raise_undefined(r, v);
    if (!td_v_is_number(v))
        return td_tpl_raise(r, "TypeError", "float() argument must be a string or a real number, not '%s'",
                            td_v_type(v));
    if (binary < 0 || !td_num_double(r, v, &bytes)) return td_v_error();
    double base = binary ? 1024 : 1000, unit = base;
    td_buf out = {0};
    if (bytes == 1) {
        td_buf_text(&out, "1 Byte");
    } else if (bytes < base) {
        td_val whole = td_num_from_double(r, bytes);
        TD_V_CHECK(whole);
        if (!td_v_str_to(r, whole, &out)) td_buf_clear(&out);
        td_buf_text(&out, " Bytes");
    } else {
        size_t i = 0;
        for (unit *= base; i + 1 < TD_COUNT(units) && bytes >= unit; i++) unit *= base;
        td_buf_printf(&out, "%.1f %s", base * bytes / unit, binary ? binary_units[i] : units[i]);
    }
    return td_v_take_buf(r, &out);
}

FILTER(attr) {
    (void)args;
    if (v.kind == TD_V_UNDEFINED) return td_tpl_raise_undefined(r, v);
    if (a[0].kind != TD_V_STRING)
        return td_tpl_raise(r, "TypeError", "attribute name must be string, not '%s'", td_v_type(a[0]));
    td_val found = td_v_attribute(r, v, td_v_str(a[0]));
    return td_v_given(found) ? found : td_v_undefined_of(r, v, a[0], false);
}

FILTER(tojson) { return (void)args, td_v_json(r, v, a); }

FILTER(unsupported) {
    (void)v, (void)a, (void)args;
    return td_tpl_raise_status(r, TREADLE_UNSUPPORTED, "TemplateRuntimeError",
                               TD_STR("the filters random, pprint, urlize and wordwrap are not supported"));
}

/* clang-format off */
const td_tpl_builtin td_tpl_value_filters[] = {
    {.name = "default", .fn = filter_default, .params = "?default_value ?boolean"},
    {.name = "d", .fn = filter_default, .params = "?default_value ?boolean"},
    {.name = "abs", .fn = filter_abs, .params = ""},
    {.name = "int", .fn = filter_int, .params = "?default ?base"},
    {.name = "float", .fn = filter_float, .params = "?default"},
    {.name = "round", .fn = filter_round, .params = "?precision ?method"},
    {.name = "filesizeformat", .fn = filter_filesizeformat, .params = "?binary"},
    {.name = "attr", .fn = filter_attr, .params = "name"},
    {.name = "tojson", .fn = filter_tojson, .params = "?ensure_ascii ?indent ?separators ?sort_keys"},
    {.name = "random", .fn = filter_unsupported, .variadic = true},
    {.name = "pprint", .fn = filter_unsupported, .variadic = true},
    {.name = "urlize", .fn = filter_unsupported, .variadic = true},
    {.name = "wordwrap", .fn = filter_unsupported, .variadic = true},
};
/* clang-format on */
const size_t td_tpl_n_value_filters = TD_COUNT(td_tpl_value_filters);

const td_tpl_builtin *td_tpl_find_filter(td_str name) {
    const td_tpl_builtin *row = td_tpl_find_row(td_tpl_value_filters, td_tpl_n_value_filters, name);
    if (!row) row = td_tpl_find_row(td_tpl_text_filters, td_tpl_n_text_filters, name);
    if (!row) row = td_tpl_find_row(td_tpl_list_filters, td_tpl_n_list_filters, name);
    return row ? row : td_tpl_find_row(td_tpl_walk_filters, td_tpl_n_walk_filters, name);
}
