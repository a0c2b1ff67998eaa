/* base/utf8.c - UTF-8 as RFC 3629 has it; bad bytes are grouped as the Unicode standard's section 3.9 recommends
 * ("substitution of maximal subparts"), which is what WHATWG, Python and Rust do. */
#include "base/utf8.h"

int td_utf8_decode(const char *p, size_t n, uint32_t *code_point, int *bad, bool *incomplete) {
    const uint8_t *b = (const uint8_t *)p;
    uint32_t lead = b[0];
    if (lead < 0x80) {
        *code_point = lead;
        return 1;
    }
    int length = lead >= 0xC2 && lead <= 0xDF   ? 2
                 : lead >= 0xE0 && lead <= 0xEF ? 3
                 : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                : 0;
    /* The second byte's range rules out overlong forms, surrogates and what lies past U+10FFFF. */
    uint32_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    uint32_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    uint32_t value = lead & (0x7Fu >> length);
    int i = 1;
    for (; i < length && (size_t)i < n && b[i] >= low && b[i] <= high; i++) {
        value = value << 6 | (b[i] & 0x3F);
        low = 0x80;
        high = 0xBF;
    }
    if (length && i == length) {
        *code_point = value;
        return length;
    }
    if (bad) *bad = i;
    if (incomplete) *incomplete = length && (size_t)i == n;
    return 0;
}

int td_utf8_encode(uint32_t code_point, char out[4]) {
    uint32_t c = code_point;
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xC0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3F));
        return 2;
    }
    if ((c >= 0xD800 && c <= 0xDFFF) || c > 0x10FFFF) return 0;
    if (c < 0x10000) {
        out[0] = (char)(0xE0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3F));
        out[2] = (char)(0x80 | (c & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3F));
    out[2] = (char)(0x80 | (c >> 6 & 0x3F));
    out[3] = (char)(0x80 | (c & 0x3F));
    return 4;
}

/* Length of the leading part that is plain ASCII, eight bytes at a time. */
static size_t ascii_prefix(const char *p, size_t n) {
    size_t i = 0;
    for (uint64_t word; i + 8 <= n; i += 8) {
        memcpy(&word, p + i, 8);
        if (word & 0x8080808080808080u) break;
    }
    while (i < n && (uint8_t)p[i] < 0x80) i++;
    return i;
}

bool td_utf8_valid(td_str text) {
    for (size_t i = 0; i < text.n;) {
        i += ascii_prefix(text.p + i, text.n - i);
        if (i == text.n) break;
        uint32_t code_point;
        int length = td_utf8_decode(text.p + i, text.n - i, &code_point, NULL, NULL);
        if (length == 0) return false;
        i += (size_t)length;
    }
    return true;
}

size_t td_utf8_complete_prefix(td_str text) {
    /* An unfinished character starts at most three bytes before the end. */
    for (size_t back = 1; back <= 3 && back <= text.n; back++) {
        uint8_t byte = (uint8_t)text.p[text.n - back];
        if ((byte & 0xC0) == 0x80) continue;
        uint32_t code_point;
        bool incomplete = false;
        int length = td_utf8_decode(text.p + text.n - back, back, &code_point, NULL, &incomplete);
        return length == 0 && incomplete ? text.n - back : text.n;
    }
    return text.n;
}

void td_utf8_replace_invalid(td_str text, td_buf *out) {
    size_t start = 0; /* of the valid run not yet copied */
    for (size_t i = 0; i < text.n;) {
        uint32_t code_point;
        int bad = 0, length = td_utf8_decode(text.p + i, text.n - i, &code_point, &bad, NULL);
        if (length) {
            i += (size_t)length;
            continue;
        }
        td_buf_append(out, text.p + start, i - start);
        td_buf_text(out, "\xEF\xBF\xBD");
        i += (size_t)bad;
        start = i;
    }
    td_buf_append(out, text.n ? text.p + start : NULL, text.n - start);
}
