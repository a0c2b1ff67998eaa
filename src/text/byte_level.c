/* text/byte_level.c - the alphabet of byte-level vocabularies: printable Latin-1 bytes are themselves, the other 68 are
 * U+0100 and on, in order. */
#include "text/parts.h"
#include "text/unicode.h"

static bool is_itself(uint32_t b) { return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE; }

/* The code point of a byte that is not itself: bytes 0..0x20 come first, then 0x7F..0xA0, then 0xAD. */
static uint32_t shifted(uint32_t b) { return 0x100 + (b <= 0x20 ? b : b <= 0xA0 ? b - 0x7F + 33 : 67); }

void td_byte_level_append(td_str bytes, td_buf *out) {
    if (!td_buf_reserve(out, bytes.n * 2)) return;
    char *p = out->p + out->n;
    for (size_t i = 0; i < bytes.n; i++) {
        uint32_t b = (uint8_t)bytes.p[i], code_point = is_itself(b) ? b : shifted(b);
        if (code_point < 0x80) {
            *p++ = (char)code_point;
        } else {
            *p++ = (char)(0xC0 | code_point >> 6);
            *p++ = (char)(0x80 | (code_point & 0x3F));
        }
    }
    out->n = (size_t)(p - out->p);
    *p = 0;
}

/* The byte of a character, or -1. */
static int byte_of(uint32_t c) {
    if (c < 0x100) return is_itself(c) ? (int)c : -1;
    if (c <= 0x120) return (int)c - 0x100;
    if (c <= 0x142) return (int)c - 0x121 + 0x7F;
    return c == 0x143 ? 0xAD : -1;
}

void td_byte_level_decode(td_str token, td_buf *out) {
    size_t start = out->n;
    for (size_t i = 0, length; i < token.n; i += length) {
        int byte = byte_of(td_unicode_next(token.p + i, &length));
        if (byte < 0) { /* not of the alphabet */
            out->n = start;
            td_buf_str(out, token);
            return;
        }
        td_buf_char(out, (char)byte);
    }
}
