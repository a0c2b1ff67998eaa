/* base/utf8.h - UTF-8 decoding, validation, encoding (RFC 3629: no surrogates, no overlong forms, up to U+10FFFF). */
#ifndef TD_BASE_UTF8_H
#define TD_BASE_UTF8_H

#include "base/str.h"

/* Decodes one code point at p (n >= 1 bytes left). Returns its length 1..4, or 0 if the bytes are not valid; then
 * *bad (may be NULL) is the length of the maximal invalid prefix, 1..3, to be replaced by one U+FFFD (WHATWG, Unicode
 * section 3.9), and an incomplete but so far valid tail sets *incomplete (may be NULL). */
int td_utf8_decode(const char *p, size_t n, uint32_t *code_point, int *bad, bool *incomplete);
int td_utf8_encode(uint32_t code_point, char out[4]); /* length, or 0 if not encodable */
bool td_utf8_valid(td_str text);
/* Length of the longest prefix that does not end inside a character that more bytes could complete. */
size_t td_utf8_complete_prefix(td_str text);
void td_utf8_replace_invalid(td_str text, td_buf *out); /* each maximal bad run becomes U+FFFD */

/* The character's other case, if that is one character; else itself (base/case.c). */
uint32_t td_utf8_lower(uint32_t code_point);
uint32_t td_utf8_upper(uint32_t code_point);

#endif
