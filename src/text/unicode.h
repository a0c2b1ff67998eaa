/* text/unicode.h - character classes and normal forms as Hugging Face tokenizers has them.
 *
 * That library mixes Unicode versions, so the classes are tables of its own answers (unicode_tables.inc),
 * independent of the version of utf8proc; utf8proc gives decompositions, combining classes and compositions of
 * characters old enough for both. */
#ifndef TD_TEXT_UNICODE_H
#define TD_TEXT_UNICODE_H

#include "base/str.h"

/* X(name, table) */
#define TD_UNICODE_SETS(X)                                                                                             \
    X(MARK, marks)                                                                                                     \
    X(CONTROL, controls)                                                                                               \
    X(NONSPACING, nonspacing)                                                                                          \
    X(NUMERIC, numeric)                                                                                                \
    X(PUNCTUATION, punctuation)                                                                                        \
    X(WHITE_SPACE, white_space)                                                                                        \
    X(WORD, word)

typedef enum td_unicode_set {
#define TD_UNICODE_SET_ENUM(name, table) TD_UNICODE_##name,
    TD_UNICODE_SETS(TD_UNICODE_SET_ENUM)
#undef TD_UNICODE_SET_ENUM
} td_unicode_set;

bool td_unicode_in(td_unicode_set set, uint32_t code_point);

/* Lower case of one character without context; one or two code points. Returns how many. */
int td_unicode_lower(uint32_t code_point, uint32_t out[2]);

/* The first code point of valid UTF-8 at p, and its length. */
static inline uint32_t td_unicode_next(const char *p, size_t *length) {
    const uint8_t *b = (const uint8_t *)p;
    if (b[0] < 0x80) return *length = 1, b[0];
    if (b[0] < 0xE0) return *length = 2, (uint32_t)(b[0] & 0x1F) << 6 | (b[1] & 0x3F);
    if (b[0] < 0xF0) return *length = 3, (uint32_t)(b[0] & 0xF) << 12 | (uint32_t)(b[1] & 0x3F) << 6 | (b[2] & 0x3F);
    *length = 4;
    return (uint32_t)(b[0] & 7) << 18 | (uint32_t)(b[1] & 0x3F) << 12 | (uint32_t)(b[2] & 0x3F) << 6 | (b[3] & 0x3F);
}
void td_unicode_append(td_buf *out, uint32_t code_point);

/* The same text, or a copy in scratch in which characters newer than Unicode 14 are replaced by older ones of the same
 * category and UTF-8 length: what the regular expression library may take for them. Offsets stay. */
td_str td_unicode_stand_in(td_str text, td_buf *scratch);

/* Appends the normal form of valid UTF-8. */
typedef enum td_normal_form { TD_NFC, TD_NFD, TD_NFKC, TD_NFKD } td_normal_form;
bool td_unicode_normalize(td_str text, td_normal_form form, td_buf *out); /* false: out of memory */

#endif
