/* tools/treadle/options.c - command lines: parsing by table, environment, help. */
#include "command.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/number.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool td_out(td_str text) { return fwrite(text.p, 1, text.n, stdout) == text.n && fflush(stdout) == 0; }

int td_out_and_free(char *text) {
    size_t n = strlen(text);
    bool good = td_out((td_str){text, n}) && (n == 0 || text[n - 1] == '\n' || td_out(TD_STR("\n")));

    treadle_free(text);
    return good ? EXIT_OK : EXIT_RUN;
}

/* A pipe whose reader has seen enough (`| head`): that is no news to anybody. */
static bool is_reader_gone(void) {
    struct pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&output, 1, 0) == 1 && (output.revents & POLLERR);
}

int td_finish_output(int code) {
    bool bad = fflush(stdout) != 0 || ferror(stdout);

    if (!bad || (code != EXIT_OK && code != EXIT_RUN)) return code;
    if (!is_reader_gone()) fprintf(stderr, "treadle: standard output cannot be written\n");
    return EXIT_RUN;
}

int td_report(const treadle_error *error) {
    char text[4096];

    treadle_error_format(error, text, sizeof text);
    fprintf(stderr, "treadle: %s\n", text);
    switch (error->code) {
    case TREADLE_INVALID_ARGUMENT: return EXIT_USAGE;
    case TREADLE_NOT_FOUND:
    case TREADLE_FORMAT:
    case TREADLE_CONFIG:
    case TREADLE_UNSUPPORTED: return EXIT_MODEL;
    case TREADLE_CANCELLED: return EXIT_INTERRUPTED;
    default: return EXIT_RUN;
    }
}

int td_report_model(const treadle_error *error) {
    int code = td_report(error);

    return code == EXIT_USAGE ? EXIT_MODEL : code;
}

void td_print_message(FILE *to, const treadle_message *m) {
    static const char *const levels[] = {"error", "warning", "note"};
    const char *space = m->file[0] && m->pointer[0] ? " " : "", *colon = m->file[0] || m->pointer[0] ? ": " : "";

    fprintf(to, "%s", m->file);
    if (m->line) fprintf(to, ":%u:%u", m->line, m->column);
    fprintf(to, "%s%s%s%s: %s\n", space, m->pointer, colon, levels[m->level], m->message);
}

int td_usage(const td_command *command, const char *format, ...) {
    va_list args;

    fprintf(stderr, "treadle %s: ", command->name);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\nusage: treadle %s %s\nTry `treadle %s --help`.\n", command->name, command->arguments,
            command->name);
    return EXIT_USAGE;
}

static void print_option(const td_option *o) {
    char left[64];
    const char *help = o->help;

    if (o->letter)
        snprintf(left, sizeof left, "-%c, --%s%s%s", o->letter, o->name, o->argument ? " " : "",
                 o->argument ? o->argument : "");
    else snprintf(left, sizeof left, "    --%s%s%s", o->name, o->argument ? " " : "", o->argument ? o->argument : "");
    while (help) {
        const char *end = strchr(help, '\n');
        int n = end ? (int)(end - help) : (int)strlen(help);
        printf("  %-32s %.*s\n", left, n, help);
        left[0] = 0;
        help = end ? end + 1 : NULL;
    }
}

/* The environment variable of an option. */
static void variable_of(const td_option *o, char *out, size_t room) {
    snprintf(out, room, "TREADLE_%s", o->name);
    for (char *c = out; *c; c++) *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
}

void td_print_help(const td_command *command) {
    printf("usage: treadle %s %s\n\n%s\n", command->name, command->arguments, command->summary);
    if (command->help[0]) printf("\n%s\n", command->help);
    printf("\noptions:\n");
    for (size_t i = 0; i < command->n_options; i++) print_option(&command->options[i]);
    printf("  %-32s %s\n", "-h, --help", "print this");
    char variable[80];
    variable_of(&command->options[0], variable, sizeof variable);
    printf("\nEach option is also an environment variable: --%s is %s. The command line wins.\n",
           command->options[0].name, variable);
}

/* Stores the text of a value where the option says. Returns what was expected, or NULL if all is well. */
static const char *store(const td_option *o, void *args, const char *text) {
    void *target = (char *)args + o->offset;
    td_texts *list = target;

    switch (o->kind) {
    case OPTION_FLAG: *(bool *)target = true; return NULL;
    case OPTION_TEXT: *(const char **)target = text; return NULL;
    case OPTION_INT: return td_parse_int(td_str_from(text), target) ? NULL : "a whole number";
    case OPTION_DOUBLE: return td_parse_double(td_str_from(text), target) ? NULL : "a number";
    case OPTION_LIST: return td_vec_push(list, text) ? NULL : "more memory";
    }
    return NULL;
}

static int read_environment(const td_command *command, void *args) {
    for (size_t i = 0; i < command->n_options; i++) {
        const td_option *o = &command->options[i];
        char name[80];
        variable_of(o, name, sizeof name);
        const char *value = getenv(name);
        if (!value || !value[0]) continue;
        if (o->kind == OPTION_FLAG) {
            bool off = strcmp(value, "0") == 0 || strcmp(value, "false") == 0 || strcmp(value, "no") == 0;
            if (!off) *(bool *)(void *)((char *)args + o->offset) = true;
            continue;
        }
        const char *expected = store(o, args, value);
        if (expected)
            return td_usage(command, "environment variable %s: expected %s, found \"%s\"", name, expected, value);
    }
    return EXIT_OK;
}

static const td_option *find_long(const td_command *command, const char *name, size_t n) {
    for (size_t i = 0; i < command->n_options; i++)
        if (strlen(command->options[i].name) == n && memcmp(command->options[i].name, name, n) == 0)
            return &command->options[i];
    return NULL;
}

static const td_option *find_letter(const td_command *command, char letter) {
    for (size_t i = 0; i < command->n_options; i++)
        if (command->options[i].letter == letter) return &command->options[i];
    return NULL;
}

static int unknown_option(const td_command *command, const char *given) {
    const char *names[64];
    size_t n = 0;
    char word[80];

    for (; n < command->n_options && n < TD_COUNT(names); n++) names[n] = command->options[n].name;
    snprintf(word, sizeof word, "%s", given + strspn(given, "-"));
    word[strcspn(word, "=")] = 0;
    const char *near = td_nearest(word, names, n);
    for (size_t i = 0; i < n && !near && strlen(word) > 2; i++) /* --temp */
        if (strncmp(names[i], word, strlen(word)) == 0) near = names[i];
    if (near) return td_usage(command, "unknown option %s. Did you mean --%s?", given, near);
    return td_usage(command, "unknown option %s", given);
}

/* A list given on the command line replaces that of the environment. */
static void begin_list(const td_command *command, void *args, const td_option *o, bool *begun) {
    td_texts *list = (void *)((char *)args + o->offset);
    size_t index = (size_t)(o - command->options);

    if (o->kind != OPTION_LIST || begun[index]) return;
    begun[index] = true;
    list->n = 0;
}

/* One option at argv[*at]; moves *at past its value. begun [n_options]: lists that the command line has given. */
static int parse_option(const td_command *command, void *args, int argc, char **argv, int *at, bool *begun) {
    const char *given = argv[*at], *value = NULL;
    const td_option *o;

    if (given[1] == '-') {
        const char *equals = strchr(given, '=');
        o = find_long(command, given + 2, equals ? (size_t)(equals - given) - 2 : strlen(given) - 2);
        value = equals ? equals + 1 : NULL;
    } else {
        o = find_letter(command, given[1]);
        if (given[2]) value = given + 2;
        if (o && o->kind == OPTION_FLAG && value) o = NULL;
    }
    if (!o) return unknown_option(command, given);
    if (o->kind == OPTION_FLAG && value) return td_usage(command, "--%s takes no value", o->name);
    if (o->kind != OPTION_FLAG && !value) {
        if (*at + 1 >= argc) return td_usage(command, "--%s needs a value: %s", o->name, o->argument);
        value = argv[++*at];
    }
    begin_list(command, args, o, begun);
    const char *expected = store(o, args, value);
    if (expected) return td_usage(command, "--%s: expected %s, found \"%s\"", o->name, expected, value);
    return EXIT_OK;
}

static void free_lists(const td_command *command, void *args) {
    for (size_t i = 0; i < command->n_options; i++) {
        if (command->options[i].kind != OPTION_LIST) continue;
        td_texts *list = (void *)((char *)args + command->options[i].offset);
        td_vec_free(list);
    }
}

static int parse(const td_command *command, void *args, int argc, char **argv, char **positional, size_t *n_positional,
                 bool *begun) {
    bool options_end = false;
    int code = read_environment(command, args);

    for (int i = 0; i < argc && code == EXIT_OK; i++) {
        if (!options_end && strcmp(argv[i], "--") == 0) {
            options_end = true;
        } else if (!options_end && argv[i][0] == '-' && argv[i][1]) {
            code = parse_option(command, args, argc, argv, &i, begun);
        } else if (*n_positional == command->max_positional) {
            code = td_usage(command, "unexpected argument \"%s\"", argv[i]);
        } else {
            positional[(*n_positional)++] = argv[i];
        }
    }
    if (code == EXIT_OK && *n_positional < command->min_positional) code = td_usage(command, "an argument is missing");
    return code;
}

int td_run_command(const td_command *command, int argc, char **argv) {
    size_t n_positional = 0;

    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") != 0 && strcmp(argv[i], "-h") != 0) continue;
        td_print_help(command);
        return EXIT_OK;
    }
    void *args = td_alloc_zero(1, command->args_bytes ? command->args_bytes : 1);
    char **positional = td_alloc_zero((size_t)argc + 1, sizeof *positional);
    bool *begun = td_alloc_zero(command->n_options, sizeof *begun);
    if (!args || !positional || !begun) {
        td_free(args);
        td_free(positional);
        td_free(begun);
        fprintf(stderr, "treadle: out of memory\n");
        return EXIT_RUN;
    }
    if (command->defaults) command->defaults(args);
    int code = parse(command, args, argc, argv, positional, &n_positional, begun);
    td_free(begun);
    if (code == EXIT_OK) code = command->run(args, positional);
    free_lists(command, args);
    td_free(positional);
    td_free(args);
    return code;
}

int td_read_prompt(const td_command *command, const char *text, const char *file, bool quiet, char **out,
                   size_t *out_bytes) {
    td_buf buf = {0};

    if (text && file) return td_usage(command, "-p and -f exclude each other");
    if (text) {
        td_buf_text(&buf, text);
    } else {
        FILE *in = !file || strcmp(file, "-") == 0 ? stdin : fopen(file, "rb");
        char part[65536];
        size_t n;
        if (!in) {
            fprintf(stderr, "treadle: could not open '%s': %s\n", file, strerror(errno));
            return EXIT_RUN;
        }
        if (in == stdin && !quiet && isatty(STDIN_FILENO) && isatty(STDERR_FILENO))
            fprintf(stderr, "treadle: reading from the terminal; Ctrl-D on a line of its own ends it\n");
        /* Not asked again after an end of file: a terminal would take a second Ctrl-D. */
        while (!feof(in) && (n = fread(part, 1, sizeof part, in)) > 0) td_buf_append(&buf, part, n);
        bool bad = ferror(in) != 0;
        if (in != stdin) fclose(in);
        if (bad) {
            td_buf_free(&buf);
            fprintf(stderr, "treadle: could not read '%s'\n", file ? file : "standard input");
            return EXIT_RUN;
        }
        if (!file && buf.n && buf.p[buf.n - 1] == '\n') buf.p[--buf.n] = 0; /* the end of an echo */
    }
    td_buf_append(&buf, "", 0);
    if (buf.failed || !td_buf_reserve(&buf, 1)) {
        td_buf_free(&buf);
        fprintf(stderr, "treadle: out of memory\n");
        return EXIT_RUN;
    }
    buf.p[buf.n] = 0;
    *out = buf.p;
    *out_bytes = buf.n;
    return EXIT_OK;
}

bool td_parse_ids(const char *text, td_arena *arena, int32_t **out, size_t *out_n) {
    size_t n = 1, i = 0;

    for (const char *c = text; *c; c++) n += *c == ',';
    int32_t *ids = TD_ARENA_ARRAY(arena, int32_t, n);
    if (!ids) return false;
    while (*text) {
        size_t length = strcspn(text, ",");
        int64_t value;
        while (length && *text == ' ') text++, length--;
        if (!td_parse_int((td_str){text, length}, &value) || value < INT32_MIN || value > INT32_MAX) return false;
        ids[i++] = (int32_t)value;
        text += length;
        if (*text == ',' && !*++text) return false;
    }
    *out = ids;
    *out_n = i;
    return i > 0;
}
