/* template/container.c - lists, dicts, what comes from JSON, and access by item, attribute and slice.
 *
 * Dicts keep the order of insertion; small ones are searched in a row, larger ones have an index by hash. Access
 * follows the sandboxed environment: owner.name prefers attributes (methods) over items, owner['name'] items over
 * attributes; what is missing is undefined, what would modify a list or dict or shows Python's inside is an undefined
 * that raises SecurityError when touched. */
#include "text/template/value.h"

#include "base/map.h"
#include "text/template/unicode.h"

enum { SMALL_DICT = 8 };

/* --- lists --- */

td_tpl_list *td_list_new(td_tpl *r, uint32_t capacity) {
    td_tpl_list *l = td_tpl_alloc(r, sizeof *l);
    if (!l) return NULL;
    if (capacity && !(l->items = td_tpl_alloc_array(r, capacity, sizeof *l->items))) return NULL;
    l->capacity = capacity;
    return l;
}

bool td_list_push(td_tpl *r, td_tpl_list *l, td_val v) {
    if (TD_V_FAILED(v)) return false;
    if (l->n == l->capacity) {
        if (l->capacity > INT32_MAX / 2) {
            td_tpl_raise(r, "LimitError", "a list of more than %u items", l->capacity);
            return false;
        }
        uint32_t capacity = l->capacity ? l->capacity * 2 : 4;
        td_val *grown = td_tpl_alloc_array(r, capacity, sizeof *grown);
        if (!grown) return false;
        if (l->n) memcpy(grown, l->items, l->n * sizeof *grown);
        l->items = grown;
        l->capacity = capacity;
    }
    l->items[l->n++] = v;
    return true;
}

td_val td_v_list(td_tpl_list *l) { return l ? (td_val){.kind = TD_V_LIST, .u.list = l} : td_v_error(); }
td_val td_v_tuple(td_tpl_list *l) { return l ? (td_val){.kind = TD_V_TUPLE, .u.list = l} : td_v_error(); }

td_val td_v_pair(td_tpl *r, td_val a, td_val b) {
    td_tpl_list *l = td_list_new(r, 2);
    return l && td_list_push(r, l, a) && td_list_push(r, l, b) ? td_v_tuple(l) : td_v_error();
}

td_val td_v_at(td_val sequence, int64_t index) {
    const td_tpl_list *l = sequence.u.list;
    if (index < 0) index += l->n;
    return index >= 0 && index < l->n ? l->items[index] : td_v_missing();
}

/* --- dicts --- */

td_tpl_dict *td_dict_new(td_tpl *r, uint32_t capacity) {
    td_tpl_dict *d = td_tpl_alloc(r, sizeof *d);
    if (!d) return NULL;
    if (capacity && !(d->items = td_tpl_alloc_array(r, capacity, sizeof *d->items))) return NULL;
    d->capacity = capacity;
    return d;
}

td_val td_v_dict(td_tpl_dict *d) { return d ? (td_val){.kind = TD_V_DICT, .u.dict = d} : td_v_error(); }

static void index_put(td_tpl_dict *d, uint32_t item) {
    uint32_t mask = d->index_size - 1;
    uint32_t at = (uint32_t)d->items[item].hash & mask;
    while (d->index[at]) at = (at + 1) & mask;
    d->index[at] = item + 1;
}

static bool reserve_pair(td_tpl *r, td_tpl_dict *d) {
    if (d->n == d->capacity) {
        if (d->capacity > INT32_MAX / 4) {
            td_tpl_raise(r, "LimitError", "a dict of more than %u items", d->capacity);
            return false;
        }
        uint32_t capacity = d->capacity ? d->capacity * 2 : 4;
        td_tpl_pair *grown = td_tpl_alloc_array(r, capacity, sizeof *grown);
        if (!grown) return false;
        if (d->n) memcpy(grown, d->items, d->n * sizeof *grown);
        d->items = grown;
        d->capacity = capacity;
    }
    if (d->n + 1 > SMALL_DICT && (d->n + 1) * 2 > d->index_size) {
        uint32_t size = 32;
        while (size < d->capacity * 2 || size < (d->n + 1) * 2) size *= 2;
        uint32_t *index = td_tpl_alloc_array(r, size, sizeof *index);
        if (!index) return false;
        d->index = index;
        d->index_size = size;
        for (uint32_t i = 0; i < d->n; i++) index_put(d, i);
    }
    return true;
}

/* The item's place, or -1: not there, -2: raised. r NULL: the key is a string, nothing can fail. */
static int64_t find_item(td_tpl *r, const td_tpl_dict *d, td_val key, uint64_t hash) {
    uint32_t mask = d->index_size - 1;
    for (uint32_t i = 0, at = (uint32_t)hash & mask;; i++, at = (at + 1) & mask) {
        if (d->index ? !d->index[at] : i >= d->n) return -1;
        uint32_t item = d->index ? d->index[at] - 1 : i;
        const td_tpl_pair *pair = &d->items[item];
        if (pair->hash != hash) continue;
        if (key.kind == TD_V_STRING && pair->key.kind == TD_V_STRING) {
            if (td_str_equal(td_v_str(key), td_v_str(pair->key))) return item;
            continue;
        }
        if (!r) continue;
        int same = td_v_identical(key, pair->key) ? 1 : td_v_equal(r, key, pair->key);
        if (same) return same < 0 ? -2 : (int64_t)item;
    }
}

bool td_dict_set(td_tpl *r, td_tpl_dict *d, td_val key, td_val value) {
    if (TD_V_FAILED(key) || TD_V_FAILED(value)) return false;
    uint64_t hash;
    if (!td_v_hash(r, key, &hash)) return false;
    int64_t at = find_item(r, d, key, hash);
    if (at == -2) return false;
    if (at >= 0) { /* the first key stays, the last value wins */
        d->items[at].value = value;
        return true;
    }
    if (!reserve_pair(r, d)) return false;
    d->items[d->n] = (td_tpl_pair){key, value, hash};
    d->n++;
    if (d->index) index_put(d, d->n - 1);
    return true;
}

td_val td_dict_get(td_tpl *r, const td_tpl_dict *d, td_val key) {
    uint64_t hash;
    if (!td_v_hash(r, key, &hash)) return td_v_error();
    int64_t at = find_item(r, d, key, hash);
    return at == -2 ? td_v_error() : at < 0 ? td_v_missing() : d->items[at].value;
}

td_val td_dict_get_str(const td_tpl_dict *d, td_str key) {
    td_val k = {.kind = TD_V_STRING, .n = (uint32_t)key.n, .u.p = key.p};
    int64_t at = find_item(NULL, d, k, td_hash(key.p ? key.p : "", key.n, TD_V_STRING));
    return at < 0 ? td_v_missing() : d->items[at].value;
}

/* --- JSON --- */

td_val td_v_from_json(td_tpl *r, const td_json *j) {
    if (!td_tpl_enter(r)) return td_v_error();
    td_val v = td_v_none();
    switch (j->kind) {
    case TD_JSON_NULL: break;
    case TD_JSON_BOOL: v = td_v_bool(j->as_bool); break;
    case TD_JSON_INT: v = td_v_int(j->as_int); break;
    case TD_JSON_DOUBLE: v = td_v_float(j->as_double); break;
    case TD_JSON_STRING:
        v = j->string.n < INT32_MAX ? td_v_view(j->string)
                                    : td_tpl_raise(r, "LimitError", "a text of %zu bytes", j->string.n);
        break;
    case TD_JSON_ARRAY: {
        td_tpl_list *l = td_list_new(r, j->n);
        v = td_v_list(l);
        for (const td_json *item = j->first; l && item; item = item->next) {
            if (!td_list_push(r, l, td_v_from_json(r, item))) v = td_v_error(), l = NULL;
        }
        break;
    }
    case TD_JSON_OBJECT: {
        td_tpl_dict *d = td_dict_new(r, j->n);
        v = td_v_dict(d);
        for (const td_json *item = j->first; d && item; item = item->next) {
            if (!td_dict_set(r, d, td_v_view(item->key), td_v_from_json(r, item))) v = td_v_error(), d = NULL;
        }
        break;
    }
    }
    td_tpl_leave(r);
    return v;
}

/* --- items --- */

td_val td_range_at(const td_tpl_range *g, int64_t index) {
    return td_v_int((int64_t)((uint64_t)g->start + (uint64_t)index * (uint64_t)g->step));
}

static td_val string_at(td_tpl *r, td_val s, int64_t index) {
    int64_t n = s.n;
    if (!(s.flags & TD_F_ASCII)) {
        if (!td_tpl_steps(r, s.n / 16)) return td_v_error();
        n = td_v_len(s);
    }
    if (index < 0) index += n;
    if (index < 0 || index >= n) return td_v_missing();
    size_t at = s.flags & TD_F_ASCII ? (size_t)index : td_tpl_uni_offset(td_v_str(s), (size_t)index);
    size_t end = at;
    td_tpl_uni_next(td_v_str(s), &end);
    return td_v_view((td_str){s.u.p + at, end - at});
}

static td_val sequence_item(td_tpl *r, td_val owner, td_val key) {
    if (key.kind == TD_V_BIG) return td_v_missing();
    int64_t i = td_v_small(key);
    switch (owner.kind) {
    case TD_V_LIST:
    case TD_V_TUPLE: return td_v_at(owner, i);
    case TD_V_STRING: return string_at(r, owner, i);
    case TD_V_BYTES:
        if (i < 0) i += owner.n;
        return i >= 0 && i < owner.n ? td_v_int((uint8_t)owner.u.p[i]) : td_v_missing();
    case TD_V_RANGE:
        if (i < 0) i += owner.u.range->n;
        return i >= 0 && i < owner.u.range->n ? td_range_at(owner.u.range, i) : td_v_missing();
    default: return td_v_missing();
    }
}

td_val td_v_getitem(td_tpl *r, td_val owner, td_val key) {
    if (owner.kind == TD_V_UNDEFINED) return td_tpl_raise_undefined(r, owner);
    td_val v = td_v_missing();
    if (owner.kind == TD_V_DICT) {
        if (td_v_hashable(key)) v = td_dict_get(r, owner.u.dict, key);
    } else if (td_v_is_int(key)) {
        v = sequence_item(r, owner, key);
    }
    if (!td_v_given(v) && key.kind == TD_V_STRING) v = td_v_attribute(r, owner, td_v_str(key));
    return td_v_given(v) ? v : td_v_undefined_of(r, owner, key, false);
}

td_val td_v_getattr(td_tpl *r, td_val owner, td_str name) {
    td_val v = td_v_attribute(r, owner, name);
    if (!td_v_given(v) && owner.kind == TD_V_UNDEFINED) return td_tpl_raise_undefined(r, owner);
    if (!td_v_given(v) && owner.kind == TD_V_DICT) v = td_dict_get_str(owner.u.dict, name);
    return td_v_given(v) ? v : td_v_undefined_of(r, owner, td_v_view(name), false);
}

td_val td_v_path(td_tpl *r, td_val item, td_val path, td_val fallback) {
    if (!td_v_given(path) || path.kind == TD_V_NONE) return item;
    bool has_fallback = td_v_given(fallback) && fallback.kind != TD_V_NONE;
    if (path.kind != TD_V_STRING) {
        item = td_v_getitem(r, item, path);
        return has_fallback && item.kind == TD_V_UNDEFINED ? fallback : item;
    }
    td_str rest = td_v_str(path);
    for (bool more = true; more && !TD_V_FAILED(item);) {
        ptrdiff_t dot = td_str_find(rest, TD_STR("."));
        td_str part = {rest.p, dot < 0 ? rest.n : (size_t)dot};
        more = dot >= 0;
        if (more) rest = (td_str){rest.p + dot + 1, rest.n - (size_t)dot - 1};
        bool number = part.n > 0;
        for (size_t i = 0; i < part.n; i++) number &= part.p[i] >= '0' && part.p[i] <= '9';
        td_val key = number ? td_num_parse_int(r, part, 10) : td_v_view(part);
        item = TD_V_FAILED(key) ? key : td_v_getitem(r, item, key);
        if (has_fallback && item.kind == TD_V_UNDEFINED) item = fallback;
    }
    return item;
}

/* --- slices, by Python's rules --- */

typedef struct slice {
    int64_t start, stop, step, n;
} slice;

static bool slice_part(td_tpl *r, td_val v, int64_t otherwise, int64_t *out) {
    *out = otherwise;
    if (v.kind == TD_V_NONE || v.kind == TD_V_MISSING) return true;
    if (v.kind == TD_V_BIG) {
        *out = td_big_sign(v.u.big) < 0 ? INT64_MIN / 2 : INT64_MAX / 2;
        return true;
    }
    if (!td_v_is_int(v)) {
        td_tpl_raise(r, "TypeError", "slice indices must be integers or None or have an __index__ method");
        return false;
    }
    *out = TD_MAX(TD_MIN(td_v_small(v), INT64_MAX / 2), INT64_MIN / 2);
    return true;
}

static bool slice_of(td_tpl *r, int64_t n, td_val start, td_val stop, td_val step, slice *out) {
    int64_t a, b, s;
    if (!slice_part(r, step, 1, &s)) return false;
    if (s == 0) {
        td_tpl_raise(r, "ValueError", "slice step cannot be zero");
        return false;
    }
    int64_t low = s < 0 ? -1 : 0, high = s < 0 ? n - 1 : n;
    if (!slice_part(r, start, s < 0 ? INT64_MAX / 2 : 0, &a) ||
        !slice_part(r, stop, s < 0 ? INT64_MIN / 2 : INT64_MAX / 2, &b))
        return false;
    if (a < 0) a += n;
    if (b < 0) b += n;
    a = TD_MAX(TD_MIN(a, high), low);
    b = TD_MAX(TD_MIN(b, high), low);
    int64_t span = s > 0 ? b - a : a - b;
    *out = (slice){a, b, s, span <= 0 ? 0 : (span - 1) / (s > 0 ? s : -s) + 1};
    return true;
}

static td_val slice_string(td_tpl *r, td_val v, const slice *s) {
    td_str text = td_v_str(v);
    bool ascii = v.flags & TD_F_ASCII;
    if (!td_tpl_steps(r, (uint64_t)s->n / 16 + (ascii ? 0 : text.n / 16))) return td_v_error();
    if (s->n == 0) return td_v_text("");
    if (s->step == 1) { /* a part of the same bytes */
        size_t at = ascii ? (size_t)s->start : td_tpl_uni_offset(text, (size_t)s->start);
        td_str tail = {text.p + at, text.n - at};
        tail.n = ascii ? (size_t)s->n : td_tpl_uni_offset(tail, (size_t)s->n);
        return td_v_view(tail);
    }
    td_buf buf = {0};
    size_t at = td_tpl_uni_offset(text, (size_t)s->start); /* walks to each wanted character from the one before */
    for (int64_t i = 0; i < s->n; i++) {
        size_t end = at;
        td_tpl_uni_append(&buf, td_tpl_uni_next(text, &end));
        for (int64_t k = s->step; k > 0 && at < text.n; k--) td_tpl_uni_next(text, &at);
        for (int64_t k = s->step; k < 0 && at > 0; k++) td_tpl_uni_previous(text, &at);
    }
    return td_v_take_buf(r, &buf);
}

td_val td_v_slice(td_tpl *r, td_val v, td_val start, td_val stop, td_val step) {
    if (v.kind == TD_V_UNDEFINED) return td_tpl_raise_undefined(r, v);
    if (v.kind == TD_V_DICT) return td_tpl_raise(r, "TypeError", "unhashable type: 'slice'");
    if (!td_v_is_list(v) && v.kind != TD_V_STRING && v.kind != TD_V_BYTES && v.kind != TD_V_RANGE) {
        return td_tpl_raise(r, "TypeError", "'%s' object is not subscriptable", td_v_type(v));
    }
    slice s;
    if (!slice_of(r, td_v_len(v), start, stop, step, &s)) return td_v_error();
    if (v.kind == TD_V_STRING) return slice_string(r, v, &s);
    if (v.kind == TD_V_RANGE) {
        td_tpl_range *g = td_tpl_alloc(r, sizeof *g);
        if (!g) return td_v_error();
        *g = (td_tpl_range){.start = td_range_at(v.u.range, s.start).u.i, .n = s.n};
        g->step = (int64_t)((uint64_t)v.u.range->step * (uint64_t)s.step);
        g->stop = td_range_at(v.u.range, s.stop).u.i;
        return (td_val){.kind = TD_V_RANGE, .u.range = g};
    }
    if (!td_tpl_steps(r, (uint64_t)s.n)) return td_v_error();
    if (v.kind == TD_V_BYTES) {
        char *bytes = td_tpl_alloc(r, (size_t)s.n);
        for (int64_t i = 0; bytes && i < s.n; i++) bytes[i] = v.u.p[s.start + i * s.step];
        return bytes ? (td_val){.kind = TD_V_BYTES, .n = (uint32_t)s.n, .u.p = bytes} : td_v_error();
    }
    td_tpl_list *l = td_list_new(r, (uint32_t)s.n);
    for (int64_t i = 0; l && i < s.n; i++) l->items[l->n++] = v.u.list->items[s.start + i * s.step];
    return v.kind == TD_V_LIST ? td_v_list(l) : td_v_tuple(l);
}
