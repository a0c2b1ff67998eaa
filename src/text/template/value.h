/* template/value.h - the values of the template language and the state of one render.
 *
 * A td_val is 16 bytes and immutable, like what it points to, except namespaces, loops, iterators, cyclers and joiners,
 * which are mutable objects with identity. Everything lives in the render's arena (or the template's, or the caller's
 * JSON). A failed operation returns a value of kind TD_V_ERROR after td_tpl_raise filled the error; whoever sees it
 * passes it on. Text is UTF-8 in which lone surrogates may stand in three bytes, as Python strings can hold them. */
#ifndef TD_TEMPLATE_VALUE_H
#define TD_TEMPLATE_VALUE_H

#include "base/arena.h"
#include "base/utf8.h"
#include "text/template.h"

#include <math.h>

typedef enum td_tpl_kind {
    TD_V_ERROR,   /* an error is on its way up */
    TD_V_MISSING, /* internal: a name without a value, an argument that was not given */
    TD_V_UNDEFINED,
    TD_V_NONE,
    TD_V_BOOL,
    TD_V_INT,
    TD_V_BIG, /* an integer beyond 64 bits; never one that would fit */
    TD_V_FLOAT,
    TD_V_STRING,
    TD_V_BYTES,
    TD_V_LIST,
    TD_V_TUPLE,
    TD_V_DICT,
    TD_V_VIEW, /* dict.keys(), values(), items() */
    TD_V_RANGE,
    TD_V_ITER, /* a generator: can be walked once */
    TD_V_NAMESPACE,
    TD_V_MACRO,
    TD_V_LOOP,
    TD_V_CYCLER,
    TD_V_JOINER,
    TD_V_FUNCTION, /* a global such as range */
    TD_V_METHOD,   /* a function bound to a value, "x".upper */
} td_tpl_kind;

enum {
    TD_F_ASCII = 1,  /* strings: every byte is below 128, so bytes are characters */
    TD_F_MARKUP = 2, /* strings: already escaped for HTML */
    TD_F_GROUP = 1,  /* tuples: of groupby, with .grouper and .list */
};

typedef struct td_tpl td_tpl; /* a render */
typedef struct td_val td_val;
typedef struct td_tpl_list td_tpl_list;
typedef struct td_tpl_dict td_tpl_dict;
typedef struct td_tpl_big td_tpl_big;
typedef struct td_tpl_iter td_tpl_iter;
typedef struct td_tpl_range td_tpl_range;
typedef struct td_tpl_undef td_tpl_undef;
typedef struct td_tpl_macro td_tpl_macro;
typedef struct td_tpl_loop td_tpl_loop;
typedef struct td_tpl_cycler td_tpl_cycler;
typedef struct td_tpl_joiner td_tpl_joiner;
typedef struct td_tpl_method td_tpl_method;
typedef struct td_tpl_builtin td_tpl_builtin;
typedef struct td_node td_node;
typedef struct td_scope td_scope;

struct td_val {
    uint8_t kind, flags;
    uint8_t view; /* views: 'k', 'v' or 'i' */
    uint32_t n;   /* bytes of a string */
    union {
        bool b;
        int64_t i;
        double f;
        const char *p; /* strings and bytes, not terminated */
        td_tpl_list *list;
        td_tpl_dict *dict; /* dicts, views, namespaces */
        td_tpl_big *big;
        td_tpl_iter *iter;
        td_tpl_range *range;
        td_tpl_undef *undef; /* NULL: nothing known about it */
        td_tpl_macro *macro;
        td_tpl_loop *loop;
        td_tpl_cycler *cycler;
        td_tpl_joiner *joiner;
        td_tpl_method *method;
        const td_tpl_builtin *function;
    } u;
};

struct td_tpl_list { /* lists and tuples */
    td_val *items;
    uint32_t n, capacity;
};

typedef struct td_tpl_pair {
    td_val key, value;
    uint64_t hash;
} td_tpl_pair;

struct td_tpl_dict { /* in order of insertion */
    td_tpl_pair *items;
    uint32_t n, capacity;
    uint32_t *index; /* open addressing, item + 1; NULL while small */
    uint32_t index_size;
};

struct td_tpl_range {
    int64_t start, stop, step, n;
};

struct td_tpl_undef {
    td_str hint;       /* the whole message, if .p is not NULL */
    const char *owner; /* the type of what has no such part; NULL: a plain name */
    td_val name;
    bool unsafe; /* touching it is a SecurityError */
};

struct td_tpl_cycler {
    td_val *items;
    uint32_t n, at;
};

struct td_tpl_joiner {
    td_val separator;
    bool used;
};

/* --- the arguments of a call, and functions of the library --- */

typedef struct td_tpl_keyword {
    td_str name;
    td_val value;
} td_tpl_keyword;

typedef struct td_tpl_args {
    const td_val *items;
    const td_tpl_keyword *keywords;
    uint32_t n, n_keywords;
} td_tpl_args;

/* `self` is the filtered or tested value, or the one that owns the method. `a` holds the parameters in the order of the
 * row, TD_V_MISSING where none was given. Variadic rows get `args` as they came. */
typedef td_val td_tpl_fn(td_tpl *r, td_val self, const td_val *a, const td_tpl_args *args);

#define TD_TPL_MAX_PARAMS 6

struct td_tpl_builtin {
    const char *name;
    td_tpl_fn *fn;
    const char *params; /* "old new ?count": names, '?' before those that may be absent, '-' for one without a name */
    bool variadic;      /* takes any arguments; params is unused */
    bool is_type;       /* printed as a class */
};

struct td_tpl_method {
    td_val self;
    const td_tpl_builtin *row;
};

/* --- generators --- */

typedef td_val td_tpl_next_fn(td_tpl *r, td_tpl_iter *it); /* TD_V_MISSING: exhausted */

struct td_tpl_iter {
    td_tpl_next_fn *next;
    const char *name; /* how Python calls it */
    td_val source;    /* what it walks, or an inner iterator */
    size_t at;        /* position, in bytes for strings */
    bool done;
    td_val a, b; /* for the function's use */
    td_tpl_args args;
    const td_tpl_builtin *row;
    const td_node *node;
    struct td_frame *frame;
    td_tpl_dict *seen;
};

/* --- frames, macros, loops --- */

typedef struct td_frame {
    struct td_frame *parent;
    const td_scope *scope;
    td_val slots[];
} td_frame;

struct td_tpl_macro {
    const td_node *node; /* a macro, or the body of a call block */
    td_frame *frame;     /* where it was defined */
};

struct td_tpl_loop {
    td_tpl_iter *iter;
    td_val iterable, before, current, after, changed;
    int64_t index0, length; /* length < 0: not known yet */
    uint32_t depth0;
    const td_node *node;
    td_frame *frame; /* the frame around the loop */
};

typedef struct td_tpl_tail { /* a string that can still grow in place, because nothing follows it */
    char *end, *limit;
} td_tpl_tail;

struct td_tpl {
    const td_template *tpl;
    td_arena arena;
    uint64_t steps, max_steps;
    uint32_t depth, max_depth;
    size_t max_output, max_memory;
    td_template_time now;
    bool has_now;
    treadle_error *err;
    treadle_status status;
    td_buf *out;
    size_t out_start;
    td_buf capture; /* of set blocks, macros, filter blocks: a stack of texts */
    uint32_t n_captures;
    td_template_spans *spans;
    bool flow_break, flow_continue;
    td_val block_text; /* what the filter of a block works on */
    td_tpl_dict *context;
    td_frame *root;
    td_tpl_tail tails[4];
    uint32_t next_tail;
};

/* --- errors and bounds (value.c) --- */
td_val td_tpl_raise(td_tpl *r, const char *class_name, const char *format, ...) TD_PRINTF(3, 4);
td_val td_tpl_raise_status(td_tpl *r, treadle_status status, const char *class_name, td_str message);
td_val td_tpl_raise_undefined(td_tpl *r, td_val v);
bool td_tpl_steps(td_tpl *r, uint64_t n); /* false: raised */
bool td_tpl_enter(td_tpl *r);             /* one level deeper; false: raised */
static inline void td_tpl_leave(td_tpl *r) { r->depth--; }
void *td_tpl_alloc(td_tpl *r, size_t bytes); /* zeroed; NULL: raised */
void *td_tpl_alloc_array(td_tpl *r, size_t n, size_t item_bytes);

#define TD_V_FAILED(v) ((v).kind == TD_V_ERROR)
#define TD_V_CHECK(v)                                                                                                  \
    do {                                                                                                               \
        if (TD_V_FAILED(v)) return (v);                                                                                \
    } while (0)

static inline td_val td_v_error(void) { return (td_val){.kind = TD_V_ERROR}; }
static inline td_val td_v_missing(void) { return (td_val){.kind = TD_V_MISSING}; }
static inline td_val td_v_none(void) { return (td_val){.kind = TD_V_NONE}; }
static inline td_val td_v_bool(bool b) { return (td_val){.kind = TD_V_BOOL, .u.b = b}; }
static inline td_val td_v_int(int64_t i) { return (td_val){.kind = TD_V_INT, .u.i = i}; }
static inline td_val td_v_float(double f) { return (td_val){.kind = TD_V_FLOAT, .u.f = f}; }
static inline td_val td_v_undefined(void) { return (td_val){.kind = TD_V_UNDEFINED}; }
static inline bool td_v_given(td_val v) { return v.kind != TD_V_MISSING; }
static inline td_str td_v_str(td_val v) { return (td_str){v.u.p, v.n}; }
static inline bool td_v_is_list(td_val v) { return v.kind == TD_V_LIST || v.kind == TD_V_TUPLE; }
static inline bool td_v_is_int(td_val v) { return v.kind == TD_V_BOOL || v.kind == TD_V_INT || v.kind == TD_V_BIG; }
static inline bool td_v_is_number(td_val v) { return td_v_is_int(v) || v.kind == TD_V_FLOAT; }
static inline int64_t td_v_small(td_val v) { return v.kind == TD_V_BOOL ? v.u.b : v.u.i; } /* bool and int only */

td_val td_v_view(td_str text);                     /* a string over bytes that live long enough */
td_val td_v_text(const char *literal);             /* the same for a literal */
td_val td_v_copy(td_tpl *r, td_str text);          /* a string with bytes of its own */
td_val td_v_concat(td_tpl *r, td_val a, td_val b); /* of two strings; appending repeatedly is linear */
td_val td_v_take_buf(td_tpl *r, td_buf *buf);      /* a string of what buf holds; frees buf in every case */
td_val td_v_undefined_name(td_tpl *r, td_str name);
td_val td_v_undefined_hint(td_tpl *r, td_str hint);
td_val td_v_undefined_of(td_tpl *r, td_val owner, td_val name, bool unsafe);

const char *td_v_type(td_val v); /* Python's name of the type */
int td_v_truth(td_tpl *r, td_val v);
int td_v_equal(td_tpl *r, td_val a, td_val b); /* 0, 1, or -1: raised */
int td_v_identical(td_val a, td_val b);
/* *order: < 0, 0, > 0; 2: unordered. -1: an error was raised. */
int td_v_compare(td_tpl *r, td_val a, td_val b, const char *op, int *order);
int td_v_contains(td_tpl *r, td_val container, td_val item);
bool td_v_hash(td_tpl *r, td_val v, uint64_t *out); /* false: raised */
bool td_v_hashable(td_val v);
/* Sorts in place, stably. key (NULL: the item) is called once for each item; -1: raised. */
typedef td_val td_tpl_key_fn(td_tpl *r, td_val item, void *ctx);
bool td_v_sort(td_tpl *r, td_tpl_list *l, td_tpl_key_fn *key, void *ctx, bool reverse);
int64_t td_v_len(td_val v);              /* -1: has none */
td_val td_v_length(td_tpl *r, td_val v); /* like len() */

/* --- lists and dicts (container.c) --- */
td_tpl_list *td_list_new(td_tpl *r, uint32_t capacity); /* NULL: raised */
bool td_list_push(td_tpl *r, td_tpl_list *l, td_val v);
td_val td_v_list(td_tpl_list *l);
td_val td_v_tuple(td_tpl_list *l);
td_val td_v_pair(td_tpl *r, td_val a, td_val b); /* a tuple of two */
td_tpl_dict *td_dict_new(td_tpl *r, uint32_t capacity);
bool td_dict_set(td_tpl *r, td_tpl_dict *d, td_val key, td_val value); /* false: raised */
td_val td_dict_get(td_tpl *r, const td_tpl_dict *d, td_val key);       /* TD_V_MISSING: no such key; may raise */
td_val td_dict_get_str(const td_tpl_dict *d, td_str key);              /* never raises */
td_val td_v_dict(td_tpl_dict *d);
td_val td_v_from_json(td_tpl *r, const td_json *j);
td_val td_v_getitem(td_tpl *r, td_val owner, td_val key);    /* owner[key], as the environment does it */
td_val td_v_getattr(td_tpl *r, td_val owner, td_str name);   /* owner.name */
td_val td_v_attribute(td_tpl *r, td_val owner, td_str name); /* only attributes, TD_V_MISSING if there is none */
td_val td_v_slice(td_tpl *r, td_val v, td_val start, td_val stop, td_val step);
td_val td_v_at(td_val sequence, int64_t index); /* of a list or tuple; TD_V_MISSING: out of range */
td_val td_v_path(td_tpl *r, td_val item, td_val path, td_val fallback); /* "a.b.0", a number, or none: the item */
td_val td_range_at(const td_tpl_range *range, int64_t index);

/* --- iteration (iter.c) --- */
td_tpl_iter *td_iter_new(td_tpl *r, td_tpl_next_fn *next, const char *name); /* NULL: raised */
td_tpl_iter *td_iter_over(td_tpl *r, td_val v);                              /* NULL: raised, not iterable */
bool td_v_iterable(td_val v);
td_val td_iter_next(td_tpl *r, td_tpl_iter *it);
td_val td_v_iter(td_tpl_iter *it);
td_val td_v_to_list(td_tpl *r, td_val v);  /* like list(); a fresh list */
td_val td_v_reversed(td_tpl *r, td_val v); /* like reversed(): an iterator, or raises TypeError */

/* --- numbers (number.c, bigint.c) --- */
td_val td_num_binary(td_tpl *r, int op, td_val a, td_val b); /* op: a token kind; numbers only, else TD_V_MISSING */
td_val td_num_negate(td_tpl *r, td_val v);
bool td_num_double(td_tpl *r, td_val v, double *out);      /* false: too large, raised */
int td_num_order(td_val a, td_val b);                      /* like td_v_compare's order, for numbers */
td_val td_num_parse_int(td_tpl *r, td_str text, int base); /* int(text, base); TD_V_MISSING: not a number */
td_val td_num_parse_float(td_str text);                    /* float(text); TD_V_MISSING: not a number */
td_val td_num_from_double(td_tpl *r, double f);            /* int(f) */
td_val td_num_round(td_tpl *r, td_val v, int64_t digits);
void td_num_repr(double f, td_buf *out); /* the shortest text that reads back, as Python writes it */
bool td_num_index(td_tpl *r, td_val v, const char *what, int64_t *out); /* an integer argument; clamps big ones */

td_val td_big_literal(td_tpl *r, td_str digits, int base, bool negative); /* digits are valid for the base */
td_val td_big_binary(td_tpl *r, int op, td_val a, td_val b);
td_val td_big_negate(td_tpl *r, td_val a);
td_val td_big_from_double(td_tpl *r, double f);
int td_big_compare(td_val a, td_val b);
int td_big_sign(const td_tpl_big *b);
double td_big_double(td_val a);                                          /* infinite when too large */
bool td_big_text(td_tpl *r, const td_tpl_big *b, int base, td_buf *out); /* false: raised */

/* --- text (repr.c, json.c, format.c) --- */
bool td_v_str_to(td_tpl *r, td_val v, td_buf *out);  /* appends str(v); false: raised */
bool td_v_repr_to(td_tpl *r, td_val v, td_buf *out); /* appends repr(v) */
td_val td_v_to_str(td_tpl *r, td_val v);             /* str(v) as a value */
bool td_tpl_buf_ok(td_tpl *r, td_buf *buf);          /* false: out of memory or over the limit, raised */
void td_repr_string(td_str text, td_buf *out);
td_val td_v_json(td_tpl *r, td_val v, const td_val *a); /* a: ensure_ascii, indent, separators, sort_keys */
td_val td_v_percent(td_tpl *r, td_val format, td_val args);
td_val td_v_format(td_tpl *r, td_val format, const td_tpl_args *args);
td_val td_v_format_spec(td_tpl *r, td_val v, td_str spec);
td_val td_v_escape(td_tpl *r, td_val v);
td_val td_tpl_strftime(td_tpl *r, td_str format);

/* --- evaluation (eval.c, call.c, exec.c) --- */
td_val td_tpl_eval(td_tpl *r, td_frame *f, const td_node *n);
td_val td_tpl_eval_call(td_tpl *r, td_frame *f, const td_node *n, td_val caller); /* caller: TD_V_MISSING: none */
td_val td_tpl_binary(td_tpl *r, int op, td_val a, td_val b);
td_val td_tpl_call(td_tpl *r, td_val callee, const td_tpl_args *args);
td_val td_tpl_call_builtin(td_tpl *r, const td_tpl_builtin *row, td_val self, const td_tpl_args *args);
td_val td_tpl_call_filter(td_tpl *r, td_str name, td_val self, const td_tpl_args *args);
td_val td_tpl_call_test(td_tpl *r, td_str name, td_val self, const td_tpl_args *args);
bool td_tpl_exec(td_tpl *r, td_frame *f, const td_node *n); /* false: raised */
td_val td_tpl_run_loop(td_tpl *r, td_frame *f, const td_node *n, td_val iterable, uint32_t depth0);
td_frame *td_frame_enter(td_tpl *r, td_frame *parent, const td_scope *scope); /* NULL: raised */
size_t td_tpl_capture_begin(td_tpl *r);
td_val td_tpl_capture_end(td_tpl *r, size_t mark);
td_val td_loop_attribute(td_tpl *r, td_tpl_loop *loop, td_str name);
td_val td_loop_next(td_tpl *r, td_tpl_loop *loop);

/* --- the library (filters_*.c, tests.c, methods_*.c, globals.c) --- */
const td_tpl_builtin *td_tpl_find_filter(td_str name);
const td_tpl_builtin *td_tpl_find_test(td_str name);
const td_tpl_builtin *td_tpl_find_global(td_str name);
const td_tpl_builtin *td_tpl_find_row(const td_tpl_builtin *rows, size_t n, td_str name);
const td_tpl_builtin *td_tpl_string_method(td_str name);

#endif
