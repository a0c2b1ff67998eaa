/* light/ops/regex.h - regular expressions in RE2's syntax that match whole texts, in time linear in the text. */
#ifndef TD_LIGHT_OPS_REGEX_H
#define TD_LIGHT_OPS_REGEX_H

#include "base/arena.h"
#include "base/str.h"

typedef struct td_pattern td_pattern;

/* In the arena; immutable. On failure *problem says what is wrong at byte *at (NULL: out of memory). */
bool td_pattern_compile(td_arena *arena, td_str text, td_pattern **out, const char **problem, size_t *at);
/* Bytes of scratch that a match needs. */
size_t td_pattern_scratch(const td_pattern *pattern);
/* Whether the pattern matches the whole text. */
bool td_pattern_matches(const td_pattern *pattern, td_str text, void *scratch);

#endif
