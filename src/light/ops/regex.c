/* light/ops/regex.c - see regex.h: the pattern becomes a program for a set of threads that read the text in step
 * (Thompson, "Regular expression search algorithm", 1968; Cox, "Regular expression matching: the virtual machine
 * approach", 2009). Source of the syntax: RE2's documentation. Named Unicode classes (\p) are not there. */
#include "light/ops/regex.h"

#include "base/utf8.h"

enum {
    MAX_PROGRAM = 1 << 14, /* instructions, once repetitions are written out */
    MAX_DEPTH = 200,       /* of groups */
    MAX_REPEAT = 1000,
    MAX_CHAR = 0x10ffff,
};

typedef enum code { CHAR, CLASS, SPLIT, JUMP, LINE_BEGIN, LINE_END, BEGIN, END, WORD_EDGE, NO_WORD_EDGE, MATCH } code;

typedef struct range {
    uint32_t first, last;
} range;

typedef struct instruction {
    uint8_t code;
    bool fold;     /* CHAR, CLASS: whatever the case */
    bool negative; /* CLASS */
    uint32_t x, y; /* CHAR: x; CLASS: ranges from x to y; SPLIT, JUMP: where to */
} instruction;

struct td_pattern {
    TD_VEC(instruction) program; /* while it is made; then in the arena */
    TD_VEC(range) ranges;
};

typedef struct parser {
    const char *begin, *p, *end;
    td_pattern *out;
    bool fold, multi_line, dot_all;
    const char *problem;
    bool no_memory;
} parser;

static bool fail(parser *s, const char *problem) {
    if (!s->problem) s->problem = problem;
    return false;
}

static bool emit(parser *s, instruction i) {
    if (s->out->program.n >= MAX_PROGRAM) return fail(s, "the pattern is too large");
    if (td_vec_push(&s->out->program, i)) return true;
    s->no_memory = true;
    return false;
}

static bool add_range(parser *s, uint32_t first, uint32_t last) {
    if (s->out->ranges.n >= MAX_PROGRAM * 4) return fail(s, "the pattern is too large");
    if (td_vec_push(&s->out->ranges, (range){first, last})) return true;
    s->no_memory = true;
    return false;
}

static bool next_char(parser *s, uint32_t *c) {
    int n = s->p < s->end ? td_utf8_decode(s->p, (size_t)(s->end - s->p), c, NULL, NULL) : 0;
    if (n == 0) return fail(s, s->p < s->end ? "this is no UTF-8" : "something is missing at the end");
    s->p += n;
    return true;
}

static bool accept(parser *s, const char *text) {
    size_t n = strlen(text);
    if ((size_t)(s->end - s->p) < n || memcmp(s->p, text, n) != 0) return false;
    s->p += n;
    return true;
}

/* --- classes */

/* Ranges of a class as sorted, disjoint pairs; each class also has its complement. */
typedef struct named_class {
    const char *name;
    size_t n;
    range ranges[4];
} named_class;

static const named_class perl_classes[] = {{"d", 1, {{'0', '9'}}},
                                           {"s", 3, {{9, 10}, {12, 13}, {' ', ' '}}},
                                           {"w", 4, {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}}};
static const named_class posix_classes[] = {
    {"alnum", 3, {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}},
    {"alpha", 2, {{'A', 'Z'}, {'a', 'z'}}},
    {"ascii", 1, {{0, 127}}},
    {"blank", 2, {{9, 9}, {' ', ' '}}},
    {"cntrl", 2, {{0, 31}, {127, 127}}},
    {"digit", 1, {{'0', '9'}}},
    {"graph", 1, {{'!', '~'}}},
    {"lower", 1, {{'a', 'z'}}},
    {"print", 1, {{' ', '~'}}},
    {"punct", 4, {{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}}},
    {"space", 2, {{9, 13}, {' ', ' '}}},
    {"upper", 1, {{'A', 'Z'}}},
    {"word", 4, {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}},
    {"xdigit", 3, {{'0', '9'}, {'A', 'F'}, {'a', 'f'}}},
};

static bool add_named(parser *s, const named_class *c, bool negative) {
    uint32_t from = 0;
    for (size_t i = 0; i < c->n; i++) {
        if (!negative && !add_range(s, c->ranges[i].first, c->ranges[i].last)) return false;
        if (negative && c->ranges[i].first > from && !add_range(s, from, c->ranges[i].first - 1)) return false;
        from = c->ranges[i].last + 1;
    }
    return !negative || add_range(s, from, MAX_CHAR);
}

/* \d, \D, ...; p is behind the backslash. false: it is none of these. */
static bool is_perl_class(const parser *s, const named_class **out, bool *negative) {
    if (s->p >= s->end) return false;
    for (size_t i = 0; i < TD_COUNT(perl_classes); i++) {
        char small = perl_classes[i].name[0];
        if (*s->p != small && *s->p != small - 'a' + 'A') continue;
        *out = &perl_classes[i];
        *negative = *s->p != small;
        return true;
    }
    return false;
}

static int digit_value(char c, int base) {
    int value = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : 99;
    return value < base ? value : -1;
}

static bool read_digits(parser *s, int base, int most, uint32_t *out) {
    int n = 0;
    *out = 0;
    while (n < most && s->p < s->end && digit_value(*s->p, base) >= 0) {
        *out = *out * (uint32_t)base + (uint32_t)digit_value(*s->p++, base);
        n++;
    }
    return (n > 0 && *out <= MAX_CHAR) || fail(s, "this is no code of a character");
}

/* The one character that an escape means; p is behind the backslash. */
static bool escaped_char(parser *s, uint32_t *c) {
    static const char letters[] = "afnrtv", values[] = "\a\f\n\r\t\v";
    if (accept(s, "x{")) return read_digits(s, 16, 8, c) && (accept(s, "}") || fail(s, "a } is missing"));
    if (accept(s, "x")) return read_digits(s, 16, 2, c);
    if (s->p < s->end && *s->p >= '0' && *s->p <= '7') return read_digits(s, 8, 3, c);
    if (!next_char(s, c)) return false;
    const char *known = *c < 128 ? memchr(letters, (int)*c, sizeof letters - 1) : NULL;
    if (known) {
        *c = (uint32_t)values[known - letters];
        return true;
    }
    bool is_word = (*c >= '0' && *c <= '9') || (*c >= 'A' && *c <= 'Z') || (*c >= 'a' && *c <= 'z') || *c == '_';
    if (*c < 128 && !is_word) return true;
    s->p--;
    return fail(s, "this escape is not supported");
}

/* [:name:] or [:^name:]; p is behind the "[:". */
static bool posix_class(parser *s) {
    bool negative = accept(s, "^");
    for (size_t i = 0; i < TD_COUNT(posix_classes); i++) {
        const char *at = s->p;
        if (accept(s, posix_classes[i].name) && accept(s, ":]")) return add_named(s, &posix_classes[i], negative);
        s->p = at;
    }
    return fail(s, "there is no class of this name");
}

/* One member or range of a class. */
static bool class_item(parser *s) {
    const named_class *named;
    uint32_t first, last;
    bool negative;
    if (accept(s, "[:")) return posix_class(s);
    if (accept(s, "\\")) {
        if (is_perl_class(s, &named, &negative)) {
            s->p++;
            return add_named(s, named, negative);
        }
        if (!escaped_char(s, &first)) return false;
    } else if (!next_char(s, &first)) {
        return false;
    }
    last = first;
    if (s->end - s->p >= 2 && s->p[0] == '-' && s->p[1] != ']') {
        s->p++;
        if (!(accept(s, "\\") ? escaped_char(s, &last) : next_char(s, &last))) return false;
        if (last < first) return fail(s, "a range runs backwards");
    }
    return add_range(s, first, last);
}

static bool char_class(parser *s) {
    instruction i = {.code = CLASS, .fold = s->fold, .negative = accept(s, "^"), .x = (uint32_t)s->out->ranges.n};
    for (bool first = true; first || s->p >= s->end || *s->p != ']'; first = false) {
        if (s->p >= s->end) return fail(s, "a ] is missing");
        if (!class_item(s)) return false;
    }
    s->p++;
    i.y = (uint32_t)s->out->ranges.n;
    return emit(s, i);
}

/* --- the rest of the syntax: each function appends the program of what it has read */

static bool alternatives(parser *s, int depth);

static bool literal(parser *s, uint32_t c) {
    return emit(s, (instruction){.code = CHAR, .fold = s->fold, .x = s->fold ? td_utf8_lower(c) : c});
}

static bool quoted(parser *s) { /* \Q...\E */
    uint32_t c;
    while (s->p < s->end && !accept(s, "\\E"))
        if (!next_char(s, &c) || !literal(s, c)) return false;
    return true;
}

static bool escape(parser *s) {
    static const struct {
        char letter;
        uint8_t code;
    } edges[] = {{'A', BEGIN}, {'z', END}, {'b', WORD_EDGE}, {'B', NO_WORD_EDGE}};
    const named_class *named;
    uint32_t c;
    bool negative;
    for (size_t i = 0; i < TD_COUNT(edges); i++) {
        if (s->p >= s->end || *s->p != edges[i].letter) continue;
        s->p++;
        return emit(s, (instruction){.code = edges[i].code});
    }
    if (is_perl_class(s, &named, &negative)) {
        instruction i = {.code = CLASS, .x = (uint32_t)s->out->ranges.n};
        s->p++;
        if (!add_named(s, named, negative)) return false;
        i.y = (uint32_t)s->out->ranges.n;
        return emit(s, i);
    }
    return escaped_char(s, &c) && literal(s, c);
}

/* "(?i)", "(?i-s:...)", "(?P<name>...)", "(?:...)"; p is behind the "(?". *group: alternatives follow. */
static bool group_head(parser *s, bool *group) {
    *group = true;
    if (accept(s, "P<") || accept(s, "<")) {
        while (s->p < s->end && *s->p != '>') s->p++;
        return accept(s, ">") || fail(s, "a > is missing");
    }
    for (bool on = true; s->p < s->end; s->p++) {
        switch (*s->p) {
        case '-': on = false; break;
        case 'i': s->fold = on; break;
        case 'm': s->multi_line = on; break;
        case 's': s->dot_all = on; break;
        case 'U': break; /* which repetition prefers what: no matter for a whole match */
        case ':': s->p++; return true;
        case ')':
            s->p++;
            *group = false;
            return true;
        default: return fail(s, "this group is not supported");
        }
    }
    return fail(s, "a ) is missing");
}

static bool group(parser *s, int depth) {
    parser outer = *s;
    bool is_group = true;
    if (depth >= MAX_DEPTH) return fail(s, "groups are nested too deep");
    if (accept(s, "?") && !group_head(s, &is_group)) return false;
    if (!is_group) return true; /* flags for the rest of the group around */
    if (!alternatives(s, depth + 1)) return false;
    if (!accept(s, ")")) return fail(s, "a ) is missing");
    s->fold = outer.fold;
    s->multi_line = outer.multi_line;
    s->dot_all = outer.dot_all;
    return true;
}

static bool any_char(parser *s) {
    instruction i = {.code = CLASS, .negative = true, .x = (uint32_t)s->out->ranges.n};
    if (!s->dot_all && !add_range(s, '\n', '\n')) return false;
    i.y = (uint32_t)s->out->ranges.n;
    return emit(s, i);
}

static bool atom(parser *s, int depth) {
    uint32_t c;
    if (accept(s, "(")) return group(s, depth);
    if (accept(s, "[")) return char_class(s);
    if (accept(s, ".")) return any_char(s);
    if (accept(s, "^")) return emit(s, (instruction){.code = s->multi_line ? LINE_BEGIN : BEGIN});
    if (accept(s, "$")) return emit(s, (instruction){.code = s->multi_line ? LINE_END : END});
    if (accept(s, "\\Q")) return quoted(s);
    if (accept(s, "\\")) return escape(s);
    if (*s->p == '*' || *s->p == '+' || *s->p == '?') return fail(s, "there is nothing to repeat");
    return next_char(s, &c) && literal(s, c);
}

/* Another copy of the program from `begin` to `end`, behind all. */
static bool copy_part(parser *s, size_t begin, size_t end) {
    size_t shift = s->out->program.n - begin;
    for (size_t i = begin; i < end; i++) {
        instruction copy = s->out->program.items[i];
        if (copy.code == SPLIT || copy.code == JUMP) copy.x += (uint32_t)shift;
        if (copy.code == SPLIT) copy.y += (uint32_t)shift;
        if (!emit(s, copy)) return false;
    }
    return true;
}

/* A SPLIT in front of the last part, which begins at `begin`: that part, or what follows it. */
static bool make_optional(parser *s, size_t begin) {
    size_t n = s->out->program.n;
    if (!emit(s, (instruction){.code = MATCH})) return false;
    instruction *items = s->out->program.items;
    memmove(items + begin + 1, items + begin, (n - begin) * sizeof *items);
    for (size_t i = begin + 1; i <= n; i++) {
        if (items[i].code == SPLIT || items[i].code == JUMP) items[i].x++;
        if (items[i].code == SPLIT) items[i].y++;
    }
    items[begin] = (instruction){.code = SPLIT, .x = (uint32_t)begin + 1, .y = (uint32_t)n + 1};
    return true;
}

static bool make_loop(parser *s, size_t begin) { /* the last part, any number of times */
    if (!make_optional(s, begin)) return false;
    if (!emit(s, (instruction){.code = JUMP, .x = (uint32_t)begin})) return false;
    s->out->program.items[begin].y = (uint32_t)s->out->program.n;
    return true;
}

/* The part from `begin` on, not at all to `most` times: each copy may be the last one. */
static bool repeat_from_zero(parser *s, size_t begin, int most) {
    size_t end = s->out->program.n, length = end - begin;
    for (int i = 1; i < most; i++)
        if (!copy_part(s, begin, end)) return false;
    for (int i = most; i-- > 0;)
        if (!make_optional(s, begin + (size_t)i * length)) return false;
    return true;
}

/* The part from `begin` on, least to most times; most < 0: no end. */
static bool repeat(parser *s, size_t begin, int least, int most) {
    size_t end = s->out->program.n, last = begin;
    if (least == 0 && most == 0) s->out->program.n = begin;
    if (least == 0) return most < 0 ? make_loop(s, begin) : most == 0 || repeat_from_zero(s, begin, most);
    for (int i = 1; i < least; i++)
        if (!copy_part(s, begin, end)) return false;
    if (most == least) return true;
    last = s->out->program.n;
    if (!copy_part(s, begin, end)) return false;
    return most < 0 ? make_loop(s, last) : repeat_from_zero(s, last, most - least);
}

/* {n}, {n,}, {n,m}; what looks otherwise is literal, and p stays. */
static bool counted(parser *s, int *least, int *most) {
    const char *at = s->p;
    uint32_t n, m;
    const char *problem = s->problem;
    if (!accept(s, "{") || !read_digits(s, 10, 4, &n)) goto literal;
    *least = *most = (int)n;
    if (accept(s, ",")) {
        *most = -1;
        if (s->p < s->end && *s->p != '}') {
            if (!read_digits(s, 10, 4, &m)) goto literal;
            *most = (int)m;
        }
    }
    if (accept(s, "}")) return true;
literal:
    s->p = at;
    s->problem = problem;
    return false;
}

static bool repeated(parser *s, int depth) {
    size_t begin = s->out->program.n;
    int least, most;
    if (!atom(s, depth)) return false;
    if (accept(s, "*")) least = 0, most = -1;
    else if (accept(s, "+")) least = 1, most = -1;
    else if (accept(s, "?")) least = 0, most = 1;
    else if (!counted(s, &least, &most)) return true;
    accept(s, "?"); /* lazy */
    if (least > MAX_REPEAT || most > MAX_REPEAT || (most >= 0 && most < least))
        return fail(s, "this repetition is not possible");
    if (s->p < s->end && (*s->p == '*' || *s->p == '+' || *s->p == '?')) return fail(s, "a repetition is repeated");
    return repeat(s, begin, least, most);
}

static bool alternatives(parser *s, int depth) {
    const uint32_t none = UINT32_MAX;
    uint32_t jumps = none; /* to the end, each naming the one before */
    for (;;) {
        size_t begin = s->out->program.n;
        while (s->p < s->end && *s->p != '|' && *s->p != ')')
            if (!repeated(s, depth)) return false;
        if (!accept(s, "|")) break;
        if (!make_optional(s, begin) || !emit(s, (instruction){.code = JUMP, .x = jumps})) return false;
        jumps = (uint32_t)s->out->program.n - 1;
        s->out->program.items[begin].y = jumps + 1;
    }
    while (jumps != none) {
        instruction *jump = &s->out->program.items[jumps];
        jumps = jump->x;
        jump->x = (uint32_t)s->out->program.n;
    }
    return true;
}

/* Vectors into the arena, which frees them. */
static bool settle(td_arena *arena, td_pattern *pattern) {
    instruction *program = TD_ARENA_ARRAY(arena, instruction, pattern->program.n);
    range *ranges = TD_ARENA_ARRAY(arena, range, pattern->ranges.n);
    if (!program || !ranges) return false;
    memcpy(program, pattern->program.items, pattern->program.n * sizeof *program);
    if (pattern->ranges.n) memcpy(ranges, pattern->ranges.items, pattern->ranges.n * sizeof *ranges);
    size_t n_program = pattern->program.n, n_ranges = pattern->ranges.n;
    td_vec_free(&pattern->program);
    td_vec_free(&pattern->ranges);
    pattern->program.items = program;
    pattern->program.n = n_program;
    pattern->ranges.items = ranges;
    pattern->ranges.n = n_ranges;
    return true;
}

bool td_pattern_compile(td_arena *arena, td_str text, td_pattern **out, const char **problem, size_t *at) {
    td_pattern *pattern = TD_ARENA_NEW(arena, td_pattern);
    const char *begin = text.p ? text.p : "";
    parser s = {.begin = begin, .p = begin, .end = begin + text.n, .out = pattern, .no_memory = !pattern};
    bool ok = pattern && alternatives(&s, 0) && (s.p == s.end || fail(&s, "this ) closes nothing")) &&
              emit(&s, (instruction){.code = MATCH});
    if (ok && settle(arena, pattern)) {
        *out = pattern;
        return true;
    }
    *problem = ok || s.no_memory ? NULL : s.problem;
    *at = (size_t)(s.p - s.begin);
    if (pattern && !ok) {
        td_vec_free(&pattern->program);
        td_vec_free(&pattern->ranges);
    }
    return false;
}

/* --- matching */

typedef struct threads {
    uint32_t *list, n;
} threads;

typedef struct matcher {
    const td_pattern *pattern;
    uint32_t *seen; /* per instruction: the step in which it was last added */
    uint32_t *stack;
    uint32_t step;
    bool at_begin, at_end, after_line, before_line, word_before, word_after;
} matcher;

size_t td_pattern_scratch(const td_pattern *pattern) { return pattern->program.n * 5 * sizeof(uint32_t); }

static bool holds(const matcher *m, code edge) {
    switch (edge) {
    case LINE_BEGIN: return m->at_begin || m->after_line;
    case LINE_END: return m->at_end || m->before_line;
    case BEGIN: return m->at_begin;
    case END: return m->at_end;
    case WORD_EDGE: return m->word_before != m->word_after;
    case NO_WORD_EDGE: return m->word_before == m->word_after;
    default: return false;
    }
}

/* All that can be reached from `at` without reading. Each instruction is pushed at most twice: by what precedes it and
 * by a jump to it is once seen. */
static void follow(matcher *m, threads *to, uint32_t at) {
    uint32_t n = 0;
    m->stack[n++] = at;
    while (n > 0) {
        uint32_t i = m->stack[--n];
        if (m->seen[i] == m->step) continue;
        m->seen[i] = m->step;
        const instruction *in = &m->pattern->program.items[i];
        switch (in->code) {
        case JUMP: m->stack[n++] = in->x; break;
        case SPLIT:
            m->stack[n++] = in->y;
            m->stack[n++] = in->x;
            break;
        case CHAR:
        case CLASS:
        case MATCH: to->list[to->n++] = i; break;
        default:
            if (holds(m, (code)in->code)) m->stack[n++] = i + 1;
        }
    }
}

static bool in_ranges(const td_pattern *p, const instruction *in, uint32_t c) {
    for (uint32_t i = in->x; i < in->y; i++)
        if (c >= p->ranges.items[i].first && c <= p->ranges.items[i].last) return true;
    return false;
}

static bool takes(const td_pattern *p, const instruction *in, uint32_t c) {
    if (in->code == CHAR) return (in->fold ? td_utf8_lower(c) : c) == in->x;
    if (in->code != CLASS) return false;
    bool found = in_ranges(p, in, c);
    if (!found && in->fold) found = in_ranges(p, in, td_utf8_lower(c)) || in_ranges(p, in, td_utf8_upper(c));
    return found != in->negative;
}

static bool is_word(uint32_t c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

bool td_pattern_matches(const td_pattern *pattern, td_str text, void *scratch) {
    size_t n = pattern->program.n;
    matcher m = {.pattern = pattern, .seen = scratch, .stack = (uint32_t *)scratch + n};
    threads ready = {m.stack + 2 * n, 1}, now = {m.stack + 3 * n, 0}; /* ready: what has read the character before */
    uint32_t before = 0;
    memset(m.seen, 0, n * sizeof *m.seen);
    ready.list[0] = 0;
    for (size_t i = 0; ready.n > 0;) {
        uint32_t c = 0;
        int length = i < text.n ? td_utf8_decode(text.p + i, text.n - i, &c, NULL, NULL) : 0;
        if (i < text.n && length == 0) { /* a byte that is no UTF-8 is a character of its own */
            c = 0xfffd;
            length = 1;
        }
        m.at_begin = i == 0;
        m.at_end = length == 0;
        m.after_line = !m.at_begin && before == '\n';
        m.before_line = !m.at_end && c == '\n';
        m.word_before = !m.at_begin && is_word(before);
        m.word_after = !m.at_end && is_word(c);
        m.step++;
        now.n = 0;
        for (uint32_t k = 0; k < ready.n; k++) follow(&m, &now, ready.list[k]);
        ready.n = 0;
        for (uint32_t k = 0; k < now.n; k++) {
            const instruction *in = &pattern->program.items[now.list[k]];
            if (m.at_end && in->code == MATCH) return true;
            if (!m.at_end && takes(pattern, in, c)) ready.list[ready.n++] = now.list[k] + 1;
        }
        before = c;
        i += (size_t)length;
    }
    return false;
}
