/* text/template.h - chat templates: Jinja2 as Hugging Face runs it.
 *
 * The dialect is Jinja2 3.1 in an immutable sandbox with trim_blocks, lstrip_blocks, the loop-control tags and the
 * generation block; `tojson` keeps non-ASCII text and does not escape HTML; `raise_exception` and `strftime_now` exist;
 * include, import and extends are errors when reached, as there is no loader.
 *
 * A template is immutable once parsed: any number of threads may render it at the same time. Rendering is bounded in
 * steps, depth, output and memory, so that no template and no context can hang or exhaust the host.
 *
 * Errors: TREADLE_FORMAT for a template that does not parse; while rendering TREADLE_INVALID_ARGUMENT when the template
 * itself refuses its input (raise_exception), TREADLE_UNSUPPORTED for what needs a loader, TREADLE_LIMIT for a limit,
 * TREADLE_RUN for everything else. Messages begin with the class that Jinja2 or Python would raise
 * ("UndefinedError: 'x' is undefined") and carry line and column of the template. */
#ifndef TD_TEXT_TEMPLATE_H
#define TD_TEXT_TEMPLATE_H

#include "base/error.h"
#include "base/json.h"
#include "base/str.h"

typedef struct td_template td_template;

/* A wall-clock time for strftime_now, already local. */
typedef struct td_template_time {
    int year, month, day;     /* month and day from 1 */
    int hour, minute, second; /* 24 hours */
    int microsecond;
} td_template_time;

/* Every field may be 0 or NULL: the default. */
typedef struct td_template_limits {
    uint64_t max_steps;          /* nodes evaluated plus work on long values; 10 million */
    uint32_t max_depth;          /* nested evaluations; 1500, at most 4000 */
    size_t max_output_bytes;     /* 16 MiB */
    size_t max_memory_bytes;     /* of one render, beside the output; 256 MiB */
    const td_template_time *now; /* what strftime_now shows; NULL: the machine's local time */
} td_template_limits;

/* What a {% generation %} block wrote: bytes [begin, end) of the text that this render appended. */
typedef struct td_template_span {
    size_t begin, end;
} td_template_span;

typedef TD_VEC(td_template_span) td_template_spans;

/* Parses `source` (UTF-8, copied; at most 1 MiB). *out is the caller's, freed by td_template_free. */
treadle_status td_template_parse(td_str source, td_template **out, treadle_error *err);
void td_template_free(td_template *t); /* NULL is fine */

/* Appends the rendered text to `out`; on failure `out` is as it was. `context` is an object (NULL: empty) whose members
 * are the template's variables: messages, tools, documents, add_generation_prompt, bos_token, ... The caller keeps it
 * alive during the call only. limits NULL: the defaults. */
treadle_status td_template_render(const td_template *t, const td_template_limits *limits, const td_json *context,
                                  td_buf *out, treadle_error *err);

/* The same, and appends the spans of generation blocks to `spans` (NULL: not wanted; td_vec_free is the caller's). */
treadle_status td_template_render_spans(const td_template *t, const td_template_limits *limits, const td_json *context,
                                        td_buf *out, td_template_spans *spans, treadle_error *err);

#endif
