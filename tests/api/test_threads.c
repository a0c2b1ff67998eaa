/* Two pipelines in one process, eight threads each with a generator of its own, and a thousand generators one after the
 * other: the same tokens as alone, and memory that does not grow. */
/* labels: threads */
#include <malloc.h>
#include <pthread.h>

#include "support/pipelines.h"
#include "support/test.h"

enum { N_THREADS = 8, N_ROUNDS = 6, N_GENERATORS = 1000 };

static const char *const names[2] = {"concat", "gqa"};

typedef struct pair {
    treadle_model *models[2];
    td_test_golden goldens[2];
} pair;

static void open_pair(pair *p) {
    for (int i = 0; i < 2; i++) {
        p->models[i] = td_test_open(names[i], 1);
        td_test_read_golden(names[i], &p->goldens[i]);
    }
}

static void close_pair(pair *p) {
    for (int i = 0; i < 2; i++) treadle_model_close(p->models[i]);
}

/* Generates from prompt k of a model; whether the tokens are the golden's. */
static bool generate(const pair *p, int which, size_t k) {
    const td_test_golden *golden = &p->goldens[which];
    treadle_generator *g = NULL;
    treadle_generate_options options;
    treadle_generate_options_init(&options);
    options.do_sample = 0;
    options.n_eos = 0;
    treadle_ids row = {golden->prompt[k], golden->n_prompt[k]};
    bool same = treadle_generator_new(p->models[which], &options, &g, NULL) == TREADLE_OK &&
                treadle_generator_append(g, &row, 1, NULL) == TREADLE_OK &&
                treadle_generator_run(g, (int64_t)golden->n_new[k], NULL, NULL, NULL) == TREADLE_OK;
    treadle_ids got = same ? treadle_generator_new_ids(g, 0) : (treadle_ids){NULL, 0};
    same = same && got.n == golden->n_new[k];
    for (size_t i = 0; same && i < got.n; i++) same = got.ids[i] == golden->fresh[k][i];
    treadle_generator_free(g);
    return same;
}

typedef struct task {
    const pair *p;
    int index, n_wrong;
} task;

static void *generate_often(void *given) {
    task *t = given;
    for (int i = 0; i < N_ROUNDS; i++)
        t->n_wrong += !generate(t->p, (t->index + i) % 2, (size_t)(t->index + i) % TD_TEST_PROMPTS);
    return NULL;
}

TEST(eight_threads_over_two_pipelines) {
    pair p;
    pthread_t threads[N_THREADS];
    task tasks[N_THREADS];
    open_pair(&p);
    for (int i = 0; i < N_THREADS; i++) {
        tasks[i] = (task){&p, i, 0};
        REQUIRE(pthread_create(&threads[i], NULL, generate_often, &tasks[i]) == 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        CHECK_EQ_INT(tasks[i].n_wrong, 0);
    }
    close_pair(&p);
}

TEST(a_thousand_generators_leave_nothing) {
    pair p;
    size_t before = 0, n_wrong = 0;
    open_pair(&p);
    for (int i = 0; i < N_GENERATORS; i++) {
        if (i == N_GENERATORS / 10) before = mallinfo2().uordblks;
        n_wrong += !generate(&p, i % 2, (size_t)i / 2 % TD_TEST_PROMPTS);
    }
    size_t after = mallinfo2().uordblks;
    CHECK_EQ_INT(n_wrong, 0);
    /* a sanitizer's malloc counts nothing here: both are 0 */
    CHECK(after <= before + 4096);
    close_pair(&p);
}
