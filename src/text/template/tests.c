/* template/tests.c - what follows `is`. */
#include "text/template/lexer.h"
#include "text/template/unicode.h"
#include "text/template/value.h"

#define TEST_FN(name) static td_val test_##name(td_tpl *r, td_val v, const td_val *a, const td_tpl_args *args)
#define UNUSED (void)r, (void)v, (void)a, (void)args

TEST_FN(defined) { return UNUSED, td_v_bool(v.kind != TD_V_UNDEFINED); }
TEST_FN(undefined) { return UNUSED, td_v_bool(v.kind == TD_V_UNDEFINED); }
TEST_FN(none) { return UNUSED, td_v_bool(v.kind == TD_V_NONE); }
TEST_FN(boolean) { return UNUSED, td_v_bool(v.kind == TD_V_BOOL); }
TEST_FN(true) { return UNUSED, td_v_bool(v.kind == TD_V_BOOL && v.u.b); }
TEST_FN(false) { return UNUSED, td_v_bool(v.kind == TD_V_BOOL && !v.u.b); }
TEST_FN(integer) { return UNUSED, td_v_bool(v.kind == TD_V_INT || v.kind == TD_V_BIG); }
TEST_FN(float) { return UNUSED, td_v_bool(v.kind == TD_V_FLOAT); }
TEST_FN(number) { return UNUSED, td_v_bool(td_v_is_number(v)); }
TEST_FN(string) { return UNUSED, td_v_bool(v.kind == TD_V_STRING); }
TEST_FN(mapping) { return UNUSED, td_v_bool(v.kind == TD_V_DICT); }
TEST_FN(escaped) { return UNUSED, td_v_bool(v.kind == TD_V_STRING && v.flags & TD_F_MARKUP); }
TEST_FN(iterable) { return UNUSED, td_v_bool(td_v_iterable(v) || v.kind == TD_V_LOOP); }
TEST_FN(sameas) { return UNUSED, td_v_bool(td_v_identical(v, a[0])); }

static td_val is_known(td_tpl *r, td_val name, const td_tpl_builtin *find(td_str name)) {
    if (!td_v_hashable(name)) return td_tpl_raise(r, "TypeError", "unhashable type: '%s'", td_v_type(name));
    return td_v_bool(name.kind == TD_V_STRING && find(td_v_str(name)));
}

TEST_FN(filter) { return (void)a, (void)args, is_known(r, v, td_tpl_find_filter); }
TEST_FN(test) { return (void)a, (void)args, is_known(r, v, td_tpl_find_test); }

TEST_FN(sequence) { /* has len() and items by [] */
    UNUSED;
    return td_v_bool(v.kind == TD_V_STRING || v.kind == TD_V_BYTES || td_v_is_list(v) || v.kind == TD_V_DICT ||
                     v.kind == TD_V_RANGE || v.kind == TD_V_UNDEFINED);
}

TEST_FN(callable) {
    UNUSED;
    return td_v_bool(v.kind == TD_V_MACRO || v.kind == TD_V_FUNCTION || v.kind == TD_V_METHOD || v.kind == TD_V_LOOP ||
                     v.kind == TD_V_JOINER || v.kind == TD_V_UNDEFINED);
}

static td_val has_case(td_tpl *r, td_val v, unsigned wanted, unsigned unwanted) {
    v = td_v_to_str(r, v);
    if (TD_V_FAILED(v) || !td_tpl_steps(r, v.n / 16)) return td_v_error();
    bool found = false;
    for (size_t at = 0; at < v.n;) {
        unsigned flags = td_tpl_uni_flags(td_tpl_uni_next(td_v_str(v), &at));
        if (flags & unwanted) return td_v_bool(false);
        found |= (flags & wanted) != 0;
    }
    return td_v_bool(found);
}

TEST_FN(lower) { return (void)a, (void)args, has_case(r, v, TD_U_LOWER, TD_U_UPPER | TD_U_TITLE); }
TEST_FN(upper) { return (void)a, (void)args, has_case(r, v, TD_U_UPPER, TD_U_LOWER | TD_U_TITLE); }

/* v % by == 0, where Python's % may also format a string. */
static td_val divides(td_tpl *r, td_val v, td_val by, int64_t rest) {
    v = td_tpl_binary(r, TD_T_MOD, v, by);
    TD_V_CHECK(v);
    int same = td_v_equal(r, v, td_v_int(rest));
    return same < 0 ? td_v_error() : td_v_bool(same);
}

TEST_FN(odd) { return (void)a, (void)args, divides(r, v, td_v_int(2), 1); }
TEST_FN(even) { return (void)a, (void)args, divides(r, v, td_v_int(2), 0); }
TEST_FN(divisibleby) { return (void)args, divides(r, v, a[0], 0); }

static td_val truth(int holds) { return holds < 0 ? td_v_error() : td_v_bool(holds); }

TEST_FN(in) { return (void)args, truth(td_v_contains(r, a[0], v)); }
TEST_FN(eq) { return (void)args, truth(td_v_equal(r, v, a[0])); }

TEST_FN(ne) {
    (void)args;
    int same = td_v_equal(r, v, a[0]);
    return truth(same < 0 ? same : !same);
}

static td_val ordered(td_tpl *r, td_val v, td_val other, const char *op, bool less, bool equal) {
    int order;
    if (td_v_compare(r, v, other, op, &order) < 0) return td_v_error();
    return td_v_bool(order != 2 && (order == 0 ? equal : less == (order < 0)));
}

TEST_FN(lt) { return (void)args, ordered(r, v, a[0], "<", true, false); }
TEST_FN(le) { return (void)args, ordered(r, v, a[0], "<=", true, true); }
TEST_FN(gt) { return (void)args, ordered(r, v, a[0], ">", false, false); }
TEST_FN(ge) { return (void)args, ordered(r, v, a[0], ">=", false, true); }

/* clang-format off */
static const td_tpl_builtin tests[] = {
    {.name = "defined", .fn = test_defined, .params = ""},
    {.name = "undefined", .fn = test_undefined, .params = ""},
    {.name = "none", .fn = test_none, .params = ""},
    {.name = "boolean", .fn = test_boolean, .params = ""},
    {.name = "true", .fn = test_true, .params = ""},
    {.name = "false", .fn = test_false, .params = ""},
    {.name = "integer", .fn = test_integer, .params = ""},
    {.name = "float", .fn = test_float, .params = ""},
    {.name = "number", .fn = test_number, .params = ""},
    {.name = "string", .fn = test_string, .params = ""},
    {.name = "mapping", .fn = test_mapping, .params = ""},
    {.name = "sequence", .fn = test_sequence, .params = ""},
    {.name = "iterable", .fn = test_iterable, .params = ""},
    {.name = "callable", .fn = test_callable, .params = ""},
    {.name = "escaped", .fn = test_escaped, .params = ""},
    {.name = "filter", .fn = test_filter, .params = ""},
    {.name = "test", .fn = test_test, .params = ""},
    {.name = "lower", .fn = test_lower, .params = ""},
    {.name = "upper", .fn = test_upper, .params = ""},
    {.name = "odd", .fn = test_odd, .params = ""},
    {.name = "even", .fn = test_even, .params = ""},
    {.name = "divisibleby", .fn = test_divisibleby, .params = "num"},
    {.name = "sameas", .fn = test_sameas, .params = "other"},
    {.name = "in", .fn = test_in, .params = "seq"},
    {.name = "eq", .fn = test_eq, .params = "-b"},
    {.name = "equalto", .fn = test_eq, .params = "-b"},
    {.name = "==", .fn = test_eq, .params = "-b"},
    {.name = "ne", .fn = test_ne, .params = "-b"},
    {.name = "!=", .fn = test_ne, .params = "-b"},
    {.name = "lt", .fn = test_lt, .params = "-b"},
    {.name = "lessthan", .fn = test_lt, .params = "-b"},
    {.name = "<", .fn = test_lt, .params = "-b"},
    {.name = "le", .fn = test_le, .params = "-b"},
    {.name = "<=", .fn = test_le, .params = "-b"},
    {.name = "gt", .fn = test_gt, .params = "-b"},
    {.name = "greaterthan", .fn = test_gt, .params = "-b"},
    {.name = ">", .fn = test_gt, .params = "-b"},
    {.name = "ge", .fn = test_ge, .params = "-b"},
    {.name = ">=", .fn = test_ge, .params = "-b"},
};
/* clang-format on */

const td_tpl_builtin *td_tpl_find_test(td_str name) { return td_tpl_find_row(tests, TD_COUNT(tests), name); }
