/* exec/interrupt.c - ending what is running, from another thread. Under the lock: which executors there are, and
 * whether a run is under way, so that nothing that comes late ends the next one. */
#include "exec/exec.h"

static void tell(td_exec *e, bool on) {
    for (size_t i = 0; e->ctx && i < e->plan->n_sessions; i++)
        if (e->ctx[i]) e->runtime->engines[i]->interrupt(e->ctx[i], on);
}

static void tell_all(td_interrupt *interrupt, bool on) {
    atomic_store(&interrupt->on, on);
    for (td_exec *e = interrupt->execs; e; e = e->next) tell(e, on);
}

treadle_status td_interrupt_init(td_interrupt *interrupt, treadle_error *err) {
    atomic_init(&interrupt->running, false);
    atomic_init(&interrupt->on, false);
    interrupt->execs = NULL;
    interrupt->valid = pthread_mutex_init(&interrupt->lock, NULL) == 0;
    return interrupt->valid ? TREADLE_OK : td_fail(err, TREADLE_OUT_OF_MEMORY, "could not make a lock");
}

void td_interrupt_end(td_interrupt *interrupt) {
    if (interrupt->valid) pthread_mutex_destroy(&interrupt->lock);
    interrupt->valid = false;
}

void td_interrupt_begin_run(td_interrupt *interrupt) { atomic_store(&interrupt->running, true); }

void td_interrupt_end_run(td_interrupt *interrupt) {
    pthread_mutex_lock(&interrupt->lock);
    atomic_store(&interrupt->running, false);
    if (td_interrupted(interrupt)) tell_all(interrupt, false);
    pthread_mutex_unlock(&interrupt->lock);
}

void td_interrupt_run(td_interrupt *interrupt) {
    pthread_mutex_lock(&interrupt->lock);
    if (atomic_load(&interrupt->running)) tell_all(interrupt, true);
    pthread_mutex_unlock(&interrupt->lock);
}

void td_interrupt_join(td_interrupt *interrupt, td_exec *e) {
    pthread_mutex_lock(&interrupt->lock);
    e->interrupt = interrupt;
    e->next = interrupt->execs;
    interrupt->execs = e;
    if (td_interrupted(interrupt)) tell(e, true);
    pthread_mutex_unlock(&interrupt->lock);
}

void td_interrupt_leave(td_exec *e) {
    if (!e->interrupt) return;
    pthread_mutex_lock(&e->interrupt->lock);
    td_exec **at = &e->interrupt->execs;
    while (*at != e) at = &(*at)->next;
    *at = e->next;
    pthread_mutex_unlock(&e->interrupt->lock);
    e->interrupt = NULL;
}
