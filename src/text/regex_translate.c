/* text/regex_translate.c - Oniguruma's Ruby dialect to PCRE2's.
 *
 * The dialects agree on most of what tokenizers use. What differs and is rewritten here: \h \H (hex digits),
 * \v (one character), \w \b and POSIX brackets (Oniguruma's sets are wider), \uHHHH, long property names,
 * classes inside classes and && between them, the option m (dot matches newline), a bare (?i) (reaches to the
 * end of its group, over alternatives), {,n}, and quantifiers upon quantifiers ({1,3}+ is no possessive one).
 * What has no counterpart is refused.
 * Sources: doc/RE of Oniguruma 6.9, pcre2pattern(3) 10.42. */
#include "base/utf8.h"
#include "text/regex.h"
#include "text/unicode.h"

enum { MAX_DEPTH = 100 };

/* One open group. */
typedef struct group {
    size_t out_start;    /* where it begins in the output */
    unsigned extra_ends; /* ")" owed for bare option settings inside it */
} group;

typedef struct translator {
    td_str in;
    size_t at;
    td_buf *out;
    treadle_error *err;
    group groups[MAX_DEPTH];
    unsigned depth;
    bool has_atom;     /* a quantifier may follow */
    bool quantified;   /* the last atom has one already */
    size_t atom_start; /* in the output */
} translator;

/* A set of characters: items for one PCRE2 class, and complete expressions that match one character each. */
typedef struct char_set {
    td_buf items;
    td_buf others; /* "|expr|expr" */
    td_buf both;   /* lookaheads for the sides of && */
    bool negated;
} char_set;

/* \w. Outside of a class the superscripts and fractions of Latin-1 are in it too, in a class they are not. */
#define WORD_ITEMS "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define LONE_WORD_ITEMS WORD_ITEMS "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}"

typedef struct property_name {
    const char *name, *items;
    bool complement; /* all but the items */
} property_name;

static const property_name property_names[] = {
    /* POSIX brackets, also as \p{Name}; then the long names of the general categories. Compared
     * without case, blanks, - and _ */
    {"alnum", "\\p{Alphabetic}\\p{Nd}", false},
    {"alpha", "\\p{Alphabetic}", false},
    {"ascii", "\\x00-\\x7f", false},
    {"blank", "\\p{Zs}\\t", false},
    {"cntrl", "\\p{Cc}", false},
    {"digit", "\\p{Nd}", false},
    {"graph", "\\s\\p{Cc}\\p{Cn}", true},
    {"lower", "\\p{Lowercase}", false},
    {"print", "\\p{Cc}\\p{Cn}\\p{Zl}\\p{Zp}", true},
    {"punct", "\\p{P}", false},
    {"space", "\\s", false},
    {"upper", "\\p{Uppercase}", false},
    {"word", WORD_ITEMS, false},
    {"xdigit", "0-9A-Fa-f", false},
    {"any", "\\x{0}-\\x{10FFFF}", false},
    {"letter", "\\p{L}", false},
    {"casedletter", "\\p{Lu}\\p{Ll}\\p{Lt}", false},
    {"lc", "\\p{Lu}\\p{Ll}\\p{Lt}", false},
    {"uppercaseletter", "\\p{Lu}", false},
    {"lowercaseletter", "\\p{Ll}", false},
    {"titlecaseletter", "\\p{Lt}", false},
    {"modifierletter", "\\p{Lm}", false},
    {"otherletter", "\\p{Lo}", false},
    {"mark", "\\p{M}", false},
    {"combiningmark", "\\p{M}", false},
    {"nonspacingmark", "\\p{Mn}", false},
    {"spacingmark", "\\p{Mc}", false},
    {"enclosingmark", "\\p{Me}", false},
    {"number", "\\p{N}", false},
    {"decimalnumber", "\\p{Nd}", false},
    {"letternumber", "\\p{Nl}", false},
    {"othernumber", "\\p{No}", false},
    {"punctuation", "\\p{P}", false},
    {"connectorpunctuation", "\\p{Pc}", false},
    {"dashpunctuation", "\\p{Pd}", false},
    {"openpunctuation", "\\p{Ps}", false},
    {"closepunctuation", "\\p{Pe}", false},
    {"initialpunctuation", "\\p{Pi}", false},
    {"finalpunctuation", "\\p{Pf}", false},
    {"otherpunctuation", "\\p{Po}", false},
    {"symbol", "\\p{S}", false},
    {"mathsymbol", "\\p{Sm}", false},
    {"currencysymbol", "\\p{Sc}", false},
    {"modifiersymbol", "\\p{Sk}", false},
    {"othersymbol", "\\p{So}", false},
    {"separator", "\\p{Z}", false},
    {"spaceseparator", "\\p{Zs}", false},
    {"lineseparator", "\\p{Zl}", false},
    {"paragraphseparator", "\\p{Zp}", false},
    {"other", "\\p{C}", false},
    {"control", "\\p{Cc}", false},
    {"format", "\\p{Cf}", false},
    {"privateuse", "\\p{Co}", false},
    {"unassigned", "\\p{Cn}", false},
    {"assigned", "\\p{Cn}", true},
    {"alphabetic", "\\p{Alphabetic}", false},
    {"uppercase", "\\p{Uppercase}", false},
    {"lowercase", "\\p{Lowercase}", false},
    {"whitespace", "\\s", false},
    {"emoji", "\\p{Emoji}", false},
    {"emojipresentation", "\\p{Emoji_Presentation}", false},
    {"emojimodifier", "\\p{Emoji_Modifier}", false},
    {"emojimodifierbase", "\\p{Emoji_Modifier_Base}", false},
    {"extendedpictographic", "\\p{Extended_Pictographic}", false},
    {"ideographic", "\\p{Ideographic}", false},
    {"idstart", "\\p{ID_Start}", false},
    {"idcontinue", "\\p{ID_Continue}", false},
    {"xidstart", "\\p{XID_Start}", false},
    {"xidcontinue", "\\p{XID_Continue}", false},
};

static treadle_status refuse(translator *t, const char *what) {
    return td_fail(t->err, TREADLE_UNSUPPORTED, "the regular expression \"%.*s\" has %s at byte %zu",
                   (int)TD_MIN(t->in.n, (size_t)300), t->in.p, what, t->at);
}

static bool ends(const translator *t) { return t->at >= t->in.n; }

/* The byte `ahead` bytes further; 0 behind the end. */
static char peek(const translator *t, size_t ahead) { return t->at + ahead < t->in.n ? t->in.p[t->at + ahead] : 0; }

static bool take(translator *t, const char *text) {
    size_t n = strlen(text);
    if (t->in.n - t->at < n || memcmp(t->in.p + t->at, text, n) != 0) return false;
    t->at += n;
    return true;
}

static bool is_alnum(char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

static void append_code_point(td_buf *out, uint32_t code_point) { td_buf_printf(out, "\\x{%X}", (unsigned)code_point); }

/* The character at the reader, which moves past it. */
static uint32_t take_char(translator *t) {
    size_t length;
    uint32_t code_point = td_unicode_next(t->in.p + t->at, &length);
    t->at += length;
    return code_point;
}

static treadle_status take_hex(translator *t, int min_digits, int max_digits, uint32_t *out) {
    int n = 0;
    for (*out = 0; n < max_digits; n++, t->at++) {
        char c = peek(t, 0), low = (char)(c | 32);
        uint32_t digit = c >= '0' && c <= '9'       ? (uint32_t)(c - '0')
                         : low >= 'a' && low <= 'f' ? (uint32_t)(low - 'a' + 10)
                                                    : 16;
        if (digit == 16) break;
        *out = *out * 16 + digit;
    }
    char bytes[4];
    if (n < min_digits || td_utf8_encode(*out, bytes) == 0) return refuse(t, "no character number");
    return TREADLE_OK;
}

/* An escape that stands for one character, after its backslash. *is_char false: it does not, nothing is taken. */
static treadle_status char_escape(translator *t, uint32_t *code_point, bool *is_char) {
    static const char from[] = "ntrfvae", to[] = "\n\t\r\f\v\a\x1b";
    *is_char = true;
    char c = peek(t, 0);
    const char *place = c ? strchr(from, c) : NULL;
    if (place) {
        t->at++;
        *code_point = (uint8_t)to[place - from];
    } else if (c == 'u') {
        t->at++;
        return take_hex(t, 4, 4, code_point);
    } else if (c == 'x') {
        t->at++;
        bool braces = take(t, "{");
        TD_TRY(take_hex(t, 1, braces ? 8 : 2, code_point));
        if (braces ? !take(t, "}") : *code_point > 0x7F) return refuse(t, "an unfinished or raw \\x");
    } else if (c == '0') {
        for (*code_point = 0; peek(t, 0) >= '0' && peek(t, 0) <= '7' && *code_point < 32; t->at++)
            *code_point = *code_point * 8 + (uint32_t)(peek(t, 0) - '0');
    } else if (!is_alnum(c)) {
        if (ends(t)) return refuse(t, "a lone backslash");
        *code_point = take_char(t);
    } else {
        *is_char = false;
    }
    return TREADLE_OK;
}

/* The row of a property or POSIX name; NULL: none. */
static const property_name *find_name(td_str name) {
    char plain[32];
    size_t n = 0;
    for (size_t i = 0; i < name.n; i++) {
        char c = name.p[i];
        if (c == ' ' || c == '_' || c == '-') continue;
        if (n == sizeof plain - 1) return NULL;
        plain[n++] = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
    }
    plain[n] = 0;
    for (size_t i = 0; i < TD_COUNT(property_names); i++)
        if (strcmp(plain, property_names[i].name) == 0) return &property_names[i];
    return NULL;
}

/* Adds class items or what is not among them. */
static void add_items(char_set *set, const char *items, bool negated) {
    if (negated) td_buf_printf(&set->others, "|[^%s]", items);
    else td_buf_text(&set->items, items);
}

/* \p{name}, \p{^name}, \P{name} after the letter. */
static treadle_status property(translator *t, bool negated, char_set *set) {
    if (!take(t, "{")) return refuse(t, "\\p without {name}");
    if (take(t, "^")) negated = !negated;
    size_t start = t->at;
    while (is_alnum(peek(t, 0)) || peek(t, 0) == '_' || peek(t, 0) == ' ' || peek(t, 0) == '-') t->at++;
    td_str name = {t->in.p + start, t->at - start};
    if (name.n == 0 || !take(t, "}")) return refuse(t, "\\p without {name}");
    const property_name *row = find_name(name);
    if (row) add_items(set, row->items, negated != row->complement);
    else /* a general category has one or two letters; a script must say that it is no script extension */
        td_buf_printf(&set->items, "\\%c{%s%.*s}", negated ? 'P' : 'p', name.n > 2 ? "sc:" : "", TD_STR_ARGS(name));
    return TREADLE_OK;
}

/* An escape that stands for a set, after its backslash. *is_set false: it does not, nothing is taken. */
static treadle_status set_escape(translator *t, char_set *set, bool in_class, bool *is_set) {
    char c = peek(t, 0);
    *is_set = c && strchr("pPwWdDsShH", c);
    if (!*is_set) return TREADLE_OK;
    t->at++;
    switch (c) {
    case 'p':
    case 'P': return property(t, c == 'P', set);
    case 'w':
    case 'W': add_items(set, in_class ? WORD_ITEMS : LONE_WORD_ITEMS, c == 'W'); break;
    case 'h':
    case 'H': add_items(set, "0-9A-Fa-f", c == 'H'); break;
    default: td_buf_printf(&set->items, "\\%c", c); break; /* the same with UCP */
    }
    return TREADLE_OK;
}

static void set_free(char_set *set) {
    td_buf_free(&set->items);
    td_buf_free(&set->others);
    td_buf_free(&set->both);
}

/* Appends an expression for the union of the set's items and others. */
static void append_union(const char_set *set, td_buf *out) {
    if (set->items.n == 0 && set->others.n == 0) {
        td_buf_text(out, "(?!)");
    } else if (set->others.n == 0) {
        td_buf_printf(out, "[%s]", set->items.p);
    } else if (set->items.n == 0) {
        td_buf_printf(out, "(?:%s)", set->others.p + 1);
    } else {
        td_buf_printf(out, "(?:[%s]%s)", set->items.p, set->others.p);
    }
}

/* Appends an expression that matches one character of the set. */
static void append_set(const char_set *set, td_buf *out) {
    if (set->both.n == 0 && set->others.n == 0 && set->items.n > 0) {
        td_buf_printf(out, set->negated ? "[^%s]" : "[%s]", set->items.p);
        return;
    }
    td_buf_text(out, set->negated ? "(?:(?!" : "(?:");
    if (set->both.n) td_buf_text(out, set->both.p);
    append_union(set, out);
    td_buf_text(out, set->negated ? ")(?s:.))" : ")");
}

/* Appends one character as a class item. */
static void append_item(td_buf *items, uint32_t code_point) {
    if (code_point < 0x80 && !is_alnum((char)code_point)) append_code_point(items, code_point);
    else td_unicode_append(items, code_point);
}

/* [:name:] or [:^name:] at the reader; *is_posix false: it is none, nothing is taken. */
static treadle_status posix_bracket(translator *t, char_set *set, bool *is_posix) {
    size_t start = t->at;
    *is_posix = false;
    if (!take(t, "[:")) return TREADLE_OK;
    bool negated = take(t, "^");
    size_t name = t->at;
    while (is_alnum(peek(t, 0))) t->at++;
    td_str text = {t->in.p + name, t->at - name};
    if (!take(t, ":]")) {
        t->at = start;
        return TREADLE_OK;
    }
    *is_posix = true;
    const property_name *row = find_name(text);
    if (!row) return refuse(t, "an unknown POSIX bracket");
    if (td_str_is(text, "punct")) add_items(set, "\\p{P}\\p{S}", negated); /* wider than \p{Punct} */
    else add_items(set, row->items, negated != row->complement);
    return TREADLE_OK;
}

static treadle_status class_body(translator *t, char_set *set, unsigned depth);

/* A class inside a class: merged into it if it can be, else an expression of its own. */
static treadle_status nested_class(translator *t, char_set *set, unsigned depth) {
    char_set inner = {0};
    treadle_status status = class_body(t, &inner, depth + 1);
    if (status == TREADLE_OK) {
        if (!inner.negated && inner.both.n == 0) {
            td_buf_str(&set->items, td_buf_view(&inner.items));
            td_buf_str(&set->others, td_buf_view(&inner.others));
        } else {
            td_buf_char(&set->others, '|');
            append_set(&inner, &set->others);
        }
        set->items.failed |= inner.items.failed || inner.others.failed || inner.both.failed;
    }
    set_free(&inner);
    return status;
}

/* One character of a class, escaped or not. *is_char false: a set, which has been added. */
static treadle_status class_char(translator *t, char_set *set, uint32_t *code_point, bool *is_char) {
    *is_char = true;
    if (!take(t, "\\")) {
        *code_point = take_char(t);
        return TREADLE_OK;
    }
    bool is_set;
    TD_TRY(set_escape(t, set, true, &is_set));
    *is_char = !is_set;
    if (is_set) return TREADLE_OK;
    if (take(t, "b")) { /* backspace, inside a class */
        *code_point = 8;
        return TREADLE_OK;
    }
    TD_TRY(char_escape(t, code_point, is_char));
    if (*is_char) return TREADLE_OK;
    *is_char = true;
    if (peek(t, 0) && strchr("cCMRXKkgoON", peek(t, 0))) return refuse(t, "an escape that is not supported");
    *code_point = take_char(t); /* an unknown escape is the letter itself */
    return TREADLE_OK;
}

/* What follows the '[', up to and with the ']'. */
static treadle_status class_body(translator *t, char_set *set, unsigned depth) {
    if (depth > MAX_DEPTH) return refuse(t, "classes nested too deep");
    set->negated = take(t, "^");
    for (bool first = true;; first = false) {
        bool is_posix = false, is_char;
        uint32_t low, high;
        if (ends(t)) return refuse(t, "a class without an end");
        if (!first && take(t, "]")) return TREADLE_OK;
        if (take(t, "&&")) { /* all so far is one side: a lookahead; the other side follows */
            td_buf_text(&set->both, "(?=");
            append_union(set, &set->both);
            td_buf_char(&set->both, ')');
            td_buf_clear(&set->items);
            td_buf_clear(&set->others);
            continue;
        }
        TD_TRY(posix_bracket(t, set, &is_posix));
        if (is_posix) continue;
        if (take(t, "[")) {
            TD_TRY(nested_class(t, set, depth));
            continue;
        }
        TD_TRY(class_char(t, set, &low, &is_char));
        if (!is_char) continue;
        append_item(&set->items, low);
        if (peek(t, 0) != '-' || peek(t, 1) == ']' || peek(t, 1) == 0 || peek(t, 1) == '[') continue;
        t->at++;
        TD_TRY(class_char(t, set, &high, &is_char));
        if (!is_char) { /* [a-\d]: the hyphen is one */
            append_item(&set->items, '-');
            continue;
        }
        if (high < low) return refuse(t, "an empty range in a class");
        td_buf_char(&set->items, '-');
        append_item(&set->items, high);
    }
}

/* Marks what is appended from here on as the atom that a quantifier would follow. */
static void begin_atom(translator *t) {
    t->atom_start = t->out->n;
    t->has_atom = true;
    t->quantified = false;
}

/* A set as an atom. */
static treadle_status emit_set(translator *t, char_set *set, treadle_status status) {
    if (status == TREADLE_OK) {
        begin_atom(t);
        append_set(set, t->out);
        if (set->items.failed || set->others.failed || set->both.failed)
            status = td_fail_memory(t->err, "a regular expression", t->in.n);
    }
    set_free(set);
    return status;
}

static treadle_status escape(translator *t) {
    char_set set = {0};
    bool is_set, is_char;
    uint32_t code_point;
    treadle_status status = set_escape(t, &set, false, &is_set);
    if (is_set || status != TREADLE_OK) return emit_set(t, &set, status);
    char c = peek(t, 0);
    if (c == 'b' || c == 'B') {
        t->at++;
        t->has_atom = false;
        static const char word[] = "[" LONE_WORD_ITEMS "]";
        td_buf_printf(t->out, c == 'b' ? "(?:(?<=%s)(?!%s)|(?<!%s)(?=%s))" : "(?:(?<=%s)(?=%s)|(?<!%s)(?!%s))", word,
                      word, word, word);
        return TREADLE_OK;
    }
    TD_TRY(char_escape(t, &code_point, &is_char));
    if (is_char) {
        begin_atom(t);
        append_code_point(t->out, code_point);
        return TREADLE_OK;
    }
    if (strchr("AzZGK", c)) {
        t->at++;
        t->has_atom = false;
        td_buf_printf(t->out, "\\%c", c);
        return TREADLE_OK;
    }
    begin_atom(t);
    t->at++;
    if (strchr("RXN", c)) {
        td_buf_printf(t->out, "\\%c", c);
    } else if (c == 'O') {
        td_buf_text(t->out, "(?s:.)");
    } else if (c >= '1' && c <= '9') {
        td_buf_printf(t->out, "(?:\\%c", c);
        while (peek(t, 0) >= '0' && peek(t, 0) <= '9') td_buf_char(t->out, t->in.p[t->at++]);
        td_buf_char(t->out, ')');
    } else if ((c == 'k' || c == 'g') && peek(t, 0) == '<') {
        td_buf_printf(t->out, "\\%c", c);
        while (!ends(t) && peek(t, 0) != '>') td_buf_char(t->out, t->in.p[t->at++]);
        if (!take(t, ">")) return refuse(t, "a group name without an end");
        td_buf_char(t->out, '>');
    } else if (strchr("cCMkgoyY", c)) {
        t->at--;
        return refuse(t, "an escape that is not supported");
    } else {
        td_buf_char(t->out, c); /* an unknown escape is the letter itself */
    }
    return TREADLE_OK;
}

/* Options after "(?", up to ':' or ')'. */
static treadle_status options(translator *t, size_t start) {
    char text[16];
    size_t n = 0;
    while (peek(t, 0) != ':' && peek(t, 0) != ')') {
        char c = peek(t, 0);
        if (!c || !strchr("imx-", c) || n == sizeof text - 1)
            return refuse(t, "a group of a kind that is not supported");
        if (c == 'x') return refuse(t, "the option x, which is not supported,");
        text[n++] = c == 'm' ? 's' : c; /* the dot matches newline */
        t->at++;
    }
    text[n] = 0;
    bool bare = t->in.p[t->at++] == ')';
    if (bare) {
        t->groups[t->depth].extra_ends++;
    } else {
        if (t->depth + 1 == MAX_DEPTH) return refuse(t, "groups nested too deep");
        t->groups[++t->depth] = (group){.out_start = start};
    }
    td_buf_printf(t->out, "(?%s:", text);
    return TREADLE_OK;
}

static treadle_status open_group(translator *t) {
    static const char *const kinds[] = {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"};
    size_t start = t->out->n;
    t->has_atom = false;
    if (take(t, "(?#")) {
        while (!ends(t) && peek(t, 0) != ')') t->at++;
        return take(t, ")") ? TREADLE_OK : refuse(t, "a comment without an end");
    }
    const char *kind = NULL;
    for (size_t i = 0; i < TD_COUNT(kinds) && !kind; i++)
        if (take(t, kinds[i])) kind = kinds[i];
    if (!kind && peek(t, 1) == '?' && peek(t, 2) != '<') {
        t->at += 2;
        return options(t, start);
    }
    if (t->depth + 1 == MAX_DEPTH) return refuse(t, "groups nested too deep");
    t->groups[++t->depth] = (group){.out_start = start};
    if (kind) {
        td_buf_text(t->out, kind);
        return TREADLE_OK;
    }
    t->at++;
    td_buf_char(t->out, '(');
    if (!take(t, "?<")) return TREADLE_OK;
    td_buf_text(t->out, "?<");
    while (is_alnum(peek(t, 0)) || peek(t, 0) == '_') td_buf_char(t->out, t->in.p[t->at++]);
    if (!take(t, ">")) return refuse(t, "a group of a kind that is not supported");
    td_buf_char(t->out, '>');
    return TREADLE_OK;
}

static void close_extra(translator *t) {
    for (unsigned i = 0; i < t->groups[t->depth].extra_ends; i++) td_buf_char(t->out, ')');
}

static treadle_status close_group(translator *t) {
    if (t->depth == 0) return refuse(t, "a ) without its (");
    t->at++;
    close_extra(t);
    td_buf_char(t->out, ')');
    t->atom_start = t->groups[t->depth--].out_start;
    t->has_atom = true;
    t->quantified = false;
    return TREADLE_OK;
}

/* {n}, {n,}, {n,m}, {,m} at the reader, as numbers; false: no interval, so '{' is a character. */
static bool interval(translator *t, td_buf *text, bool *fixed) {
    size_t i = 1, digits = 0, commas = 0;
    td_buf_char(text, '{');
    if (peek(t, 1) == ',') td_buf_char(text, '0');
    for (;; i++) {
        char c = peek(t, i);
        if (c == '}') break;
        if (c == ',' ? commas++ > 0 : c < '0' || c > '9') return false;
        digits += c != ',';
        td_buf_char(text, c);
    }
    td_buf_char(text, '}');
    *fixed = commas == 0;
    if (digits == 0) return false;
    t->at += i + 1;
    return true;
}

/* Puts "(?:" and ")" around the atom and its quantifier, so that another quantifier may follow. */
static void wrap_atom(translator *t) {
    td_buf *out = t->out;
    if (!td_buf_reserve(out, 4)) return;
    memmove(out->p + t->atom_start + 3, out->p + t->atom_start, out->n - t->atom_start);
    memcpy(out->p + t->atom_start, "(?:", 3);
    out->n += 3;
    td_buf_char(out, ')');
}

/* A quantifier at the reader, or a '{' that is none. */
static treadle_status quantifier(translator *t) {
    td_buf text = {0};
    bool fixed = false, is_interval = peek(t, 0) == '{';
    if (is_interval && !interval(t, &text, &fixed)) {
        td_buf_free(&text);
        begin_atom(t);
        t->at++;
        td_buf_text(t->out, "\\{");
        return TREADLE_OK;
    }
    if (!is_interval) td_buf_char(&text, t->in.p[t->at++]);
    /* A '?' behind makes it lazy, except {n}?, which is optional; a '+' behind makes it possessive, except behind
     * {}. */
    if (!fixed && peek(t, 0) == '?') td_buf_char(&text, t->in.p[t->at++]);
    else if (!is_interval && peek(t, 0) == '+') td_buf_char(&text, t->in.p[t->at++]);
    treadle_status status = TREADLE_OK;
    if (!t->has_atom) status = refuse(t, "a quantifier with nothing before it");
    if (t->quantified) wrap_atom(t);
    td_buf_str(t->out, td_buf_view(&text));
    t->out->failed |= text.failed;
    t->quantified = true;
    td_buf_free(&text);
    return status;
}

static treadle_status translate_one(translator *t) {
    char c = peek(t, 0);
    char_set set = {0};
    switch (c) {
    case '\\': t->at++; return escape(t);
    case '[': t->at++; return emit_set(t, &set, class_body(t, &set, 0));
    case '(': return open_group(t);
    case ')': return close_group(t);
    case '*':
    case '+':
    case '?':
    case '{': return quantifier(t);
    case '|':
    case '^':
    case '$':
        t->has_atom = false;
        td_buf_char(t->out, c);
        t->at++;
        return TREADLE_OK;
    case '.':
        begin_atom(t);
        td_buf_char(t->out, c);
        t->at++;
        return TREADLE_OK;
    default:
        begin_atom(t);
        append_item(t->out, take_char(t));
        return TREADLE_OK;
    }
}

treadle_status td_regex_translate(td_str pattern, td_buf *out, treadle_error *err) {
    translator t = {.in = pattern, .out = out, .err = err};
    if (!td_utf8_valid(pattern)) return refuse(&t, "bytes that are not UTF-8");
    while (!ends(&t)) TD_TRY(translate_one(&t));
    if (t.depth > 0) return refuse(&t, "a ( without its )");
    close_extra(&t);
    return out->failed ? td_fail_memory(err, "a regular expression", pattern.n) : TREADLE_OK;
}
