/* config/fields.h - what a version 2 config may hold, as a table: the validator reads it, and so does the test that
 * keeps schema/genai_config.v2.schema.json true. */
#ifndef TD_CONFIG_FIELDS_H
#define TD_CONFIG_FIELDS_H

#include "config/tree.h"

enum { TD_SESSIONS_MAX = 256 };

typedef enum td_field_kind {
    TD_FIELD_ANY,    /* not looked into */
    TD_FIELD_INT,    /* min..max */
    TD_FIELD_NUMBER, /* min..max */
    TD_FIELD_BOOL,
    TD_FIELD_STRING,
    TD_FIELD_WORD,   /* one of words; `unknown` is the message up to the list, with one %.*s */
    TD_FIELD_OBJECT, /* members */
    TD_FIELD_MAP,    /* free names; every value is members[0] */
} td_field_kind;

enum {
    TD_FIELD_LIST = 1 << 0, /* an array of these; one alone is a list of one */
    TD_FIELD_REQUIRED = 1 << 1,
    TD_FIELD_OR_STRING = 1 << 2, /* also a string in place of the number (reference), or of the bool ("never") */
    TD_FIELD_OR_OBJECT = 1 << 3, /* an object in place of the word or string: not looked into */
    TD_FIELD_OPEN = 1 << 4,      /* min itself is not allowed */
};

typedef struct td_field td_field;
struct td_field {
    const char *key; /* NULL: end of the table */
    td_field_kind kind;
    unsigned flags;
    double min, max;
    const char *const *words;
    const char *unknown;
    const td_field *members;
    const char *what; /* of the items of a list or map, for messages: "steps" */
    size_t max_items; /* of a list or map; 0: 4096 */
};

extern const td_field td_config_fields[]; /* the members of the root */
extern const td_field td_config_root;

/* What an object of that kind holds under a key; NULL: the table does not say. */
const td_field *td_field_child(const td_field *object, td_str key);

/* Adds a message for everything in value that the table does not allow. Unknown keys are warnings, or errors if
 * strict. */
void td_fields_check(const td_json *value, const td_field *members, bool strict, td_messages *messages);

/* Whether a value may stand at group[.subgroup].key of a config; for files of others, whose faults are no errors. */
bool td_fields_fit(const td_json *value, const char *group, const char *subgroup, const char *key);

#endif
