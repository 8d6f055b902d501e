/* Threads that help with one piece of work at a time, for whoever calls.
 *
 * Work is claimed a few items at a time, so that a helper that wakes late does less; one that wakes
 * when all is done is not waited for. Who finds the helpers busy works alone. They touch nothing of
 * Python, are started when first needed and sleep in between. A forked process has none and starts
 * its own. Work guards what it reads by itself (guard.c): nobody is cut short between two claims.
 */
#if defined(__linux__)
#define _DEFAULT_SOURCE /* pthread_sigmask */
#endif
#include "native.h"

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#define CLAIMS 8 /* of each thread, were they all alike */
#define LOOKS 2000 /* for something to do, or for the last to end, before a thread sleeps: 20-50 us */

typedef struct {
    tokenreel_work work;
    void *given;
    Py_ssize_t count, step;
    atomic_size_t next;
} task;

/* What is atomic is changed under the lock, and looked at without it too. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t begun, left;
    task *current;          /* NULL: there is nothing to do */
    int num_helpers;        /* that were started */
    int num_asleep;
    atomic_int wanted;      /* helpers that may yet come */
    atomic_int num_inside;  /* helpers that are at work */
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .begun = PTHREAD_COND_INITIALIZER,
          .left = PTHREAD_COND_INITIALIZER};

static void forget(void) {
    pool.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    pool.begun = pool.left = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    pool.current = NULL;
    pool.num_helpers = pool.num_asleep = pool.wanted = pool.num_inside = 0;
    tokenreel_look_again();
}

static void breathe(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void claim(task *t) {
    for (;;) {
        Py_ssize_t start = (Py_ssize_t)atomic_fetch_add(&t->next, (size_t)t->step);
        if (start >= t->count) return;
        t->work(t->given, start, t->count - start < t->step ? t->count : start + t->step);
    }
}

static void *help(void *nothing) {
    for (;;) {
        for (int look = 0; look < LOOKS && !pool.wanted; look++) breathe();
        pthread_mutex_lock(&pool.lock);
        pool.num_asleep++;
        while (!pool.wanted) pthread_cond_wait(&pool.begun, &pool.lock);
        pool.num_asleep--;
        task *t = pool.current;
        pool.wanted--;
        pool.num_inside++;
        pthread_mutex_unlock(&pool.lock);
        claim(t);
        pthread_mutex_lock(&pool.lock);
        if (!--pool.num_inside) pthread_cond_signal(&pool.left);
        pthread_mutex_unlock(&pool.lock);
    }
    return nothing;
}

static void start_helpers(int count) {
    sigset_t all, before;
    pthread_t helper;
    sigfillset(&all); /* signals are for the threads of Python; faults are for who makes them */
    const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGABRT};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&all, faults[i]);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool.num_helpers < count && !pthread_create(&helper, NULL, help, NULL)) {
        pthread_detach(helper);
        pool.num_helpers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Let helpers begin with a task; 0 if they are busy. */
static int begin(task *t, int helpers) {
    if (pthread_mutex_trylock(&pool.lock)) return 0;
    int is_free = !pool.current;
    if (is_free) {
        if (pool.num_helpers < helpers) start_helpers(helpers);
        pool.current = t;
        pool.wanted = helpers < pool.num_helpers ? helpers : pool.num_helpers;
        int awake = pool.num_helpers - pool.num_asleep;
        for (int i = awake; i < pool.wanted; i++) pthread_cond_signal(&pool.begun);
    }
    pthread_mutex_unlock(&pool.lock);
    return is_free;
}

static void end(void) {
    pthread_mutex_lock(&pool.lock);
    pool.wanted = 0;
    pthread_mutex_unlock(&pool.lock);
    for (int look = 0; look < LOOKS && pool.num_inside; look++) breathe();
    pthread_mutex_lock(&pool.lock);
    while (pool.num_inside) pthread_cond_wait(&pool.left, &pool.lock);
    pool.current = NULL;
    pthread_mutex_unlock(&pool.lock);
}

int tokenreel_prepare_threads(void) { return pthread_atfork(NULL, NULL, forget) == 0; }

void tokenreel_together(tokenreel_work work, void *given, Py_ssize_t count, Py_ssize_t threads) {
    if (threads > TOKENREEL_THREADS) threads = TOKENREEL_THREADS;
    if (threads > count) threads = count;
    Py_ssize_t step = threads > 1 ? count / (threads * CLAIMS) : count;
    task t = {.work = work, .given = given, .count = count, .step = step < 1 ? 1 : step};
    int is_shared = threads > 1 && begin(&t, (int)threads - 1);
    claim(&t);
    if (is_shared) end();
}
#else
int tokenreel_prepare_threads(void) { return 1; }

void tokenreel_together(tokenreel_work work, void *given, Py_ssize_t count, Py_ssize_t threads) {
    (void)threads;
    work(given, 0, count);
}
#endif
