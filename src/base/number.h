/* base/number.h - numbers to text and back, always with a point, whatever locale the host has set. */
#ifndef TD_BASE_NUMBER_H
#define TD_BASE_NUMBER_H

#include "base/str.h"

/* The whole text as a decimal integer or number in C notation (an optional sign, digits, point, exponent; no spaces,
 * hex, "inf" or "nan"). False: it is none, or it does not fit (a double: would be infinite); out is untouched then. */
bool td_parse_int(td_str text, int64_t *out);
bool td_parse_double(td_str text, double *out);

/* Writes the shortest of %.15g, %.16g, %.17g that reads back as the same double, NUL-terminated; returns its length.
 * "nan", "inf", "-inf" for what is not finite. */
enum { TD_DOUBLE_TEXT_BYTES = 32 };
int td_format_double(double value, char out[TD_DOUBLE_TEXT_BYTES]);

/* The four hex digits at p, as after \u in JSON; -1: they are not there. */
int32_t td_parse_hex4(const char *p, const char *end);

#endif
