/* tools/treadle/main.c - the command `treadle`: the table of commands, Ctrl-C. */
#include "command.h"

#include "base/error.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const td_command *const td_commands[] = {
    &td_command_run,      &td_command_chat,           &td_command_build, &td_command_check,    &td_command_inspect,
    &td_command_explain,  &td_command_convert_config, &td_command_bench, &td_command_verify,   &td_command_infer,
    &td_command_drive,    &td_command_conformance,    &td_command_cache, &td_command_tokenize, &td_command_detokenize,
    &td_command_template, &td_command_transcribe,     &td_command_embed, &td_command_features, &td_command_ops,
    &td_command_devices,
};
const size_t td_n_commands = TD_COUNT(td_commands);

/* --- Ctrl-C */
static volatile sig_atomic_t interrupted, deferred;
static treadle_generator *volatile watched;

static void on_interrupt(int signal) {
    (void)signal;
    treadle_generator *generator = watched;
    if (interrupted || (!generator && !deferred)) _exit(EXIT_INTERRUPTED);
    interrupted = 1;
    if (generator) treadle_generator_cancel(generator); /* one atomic store */
}

bool td_interrupted(void) { return interrupted != 0; }
void td_interrupt_clear(void) { interrupted = 0; }
void td_interrupt_defer(bool on) { deferred = on; }
void td_interrupt_watch(treadle_generator *generator) { watched = generator; }

/* --- help */
static void print_help(FILE *out) {
    fprintf(out, "treadle %s - runs generative ONNX models\n\nusage: treadle COMMAND [ARGUMENTS]\n\ncommands:\n",
            treadle_version());
    for (size_t i = 0; i < td_n_commands; i++)
        fprintf(out, "  %-14s %s\n", td_commands[i]->name, td_commands[i]->summary);
    fprintf(out, "\n`treadle COMMAND --help` says more. A first answer:\n"
                 "  treadle run MODEL.gguf -p \"What is the capital of France?\"\n");
}

static const td_command *find_command(const char *name) {
    for (size_t i = 0; i < td_n_commands; i++)
        if (strcmp(td_commands[i]->name, name) == 0) return td_commands[i];
    return NULL;
}

static int unknown_command(const char *name) {
    const char *names[TD_COUNT(td_commands)];

    for (size_t i = 0; i < td_n_commands; i++) names[i] = td_commands[i]->name;
    const char *near = td_nearest(name, names, td_n_commands);
    fprintf(stderr, "treadle: unknown command \"%s\".", name);
    if (near) fprintf(stderr, " Did you mean %s?", near);
    fprintf(stderr, "\nTry `treadle --help`.\n");
    return EXIT_USAGE;
}

static int command_line(int argc, char **argv) {
    struct sigaction action = {.sa_handler = on_interrupt};

    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        const td_command *command = argc > 2 ? find_command(argv[2]) : NULL;
        if (argc > 2 && !command) return unknown_command(argv[2]);
        if (command) td_print_help(command);
        else print_help(stdout);
        return EXIT_OK;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0) {
        printf("treadle %s (%s)\n", treadle_version(), treadle_cpu_features());
        return EXIT_OK;
    }
    const td_command *command = find_command(argv[1]);
    return command ? td_run_command(command, argc - 2, argv + 2) : unknown_command(argv[1]);
}

/* A closed standard stream is held by a descriptor that refuses its use: else the next file that is opened would be the
 * stream, and messages would be written into it. */
static bool hold_streams(void) {
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd) return false;
    return true;
}

int main(int argc, char **argv) { return hold_streams() ? td_finish_output(command_line(argc, argv)) : EXIT_RUN; }
