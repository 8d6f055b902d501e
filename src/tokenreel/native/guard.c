/* Reading mapped files that somebody may cut off meanwhile.
 *
 * A page of a mapping that is no longer in its file raises SIGBUS, which ends the process. Under the
 * guard it ends the reading alone: the handler goes back to where the guard was set and hands over the
 * address. What is guarded allocates nothing that only it knows of, holds no lock and calls nothing of
 * Python, so that nothing is left behind when it is cut short; threads.c guards each share of a work
 * by itself.
 *
 * A fault that is not ours goes to the handler that was there before (faulthandler's, torch's in its
 * workers, Python's), else to the system's. Ours is set when a file is mapped. Others are set later:
 * every few milliseconds, and first of all in a forked process, a guarded call looks whether ours is on
 * top, and puts it there.
 * That is a system call, 0.5 us; each time it would cost a small batch a tenth of its speed.
 */
#if defined(__linux__)
#define _DEFAULT_SOURCE /* sigaction, siginfo_t */
#endif
#include "native.h"

#if defined(__unix__) || defined(__APPLE__)
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

/* A handler must find the variable of its thread without allocating it. */
#if defined(__GNUC__) && defined(__linux__)
#define OF_THREAD static _Thread_local __attribute__((tls_model("initial-exec")))
#else
#define OF_THREAD static _Thread_local
#endif

typedef struct {
    sigjmp_buf place;
    const void *volatile lost;
} guard;

OF_THREAD guard *volatile current;        /* NULL: nothing is guarded on this thread */
OF_THREAD volatile sig_atomic_t passing;  /* a fault is with the handler that was there before */
static _Atomic(struct sigaction *) before; /* what ours was put on top of; never freed */
static atomic_llong looked_at;             /* when it was seen to that ours is on top */

static void end_by(int number, const siginfo_t *info) {
    signal(number, SIG_DFL);
    /* A fault comes again when its instruction does, a signal that was sent does not. */
    if (info->si_code <= 0) raise(number);
}

static void pass_on(int number, siginfo_t *info, void *context) {
    const struct sigaction *other = atomic_load(&before);
    /* One that puts ours back and raises the signal again has done what it could: faulthandler. */
    int is_back = passing && info->si_code <= 0;
    if (!other || is_back || other->sa_handler == SIG_DFL || other->sa_handler == SIG_IGN) {
        end_by(number, info);
        return;
    }
    passing = 1;
    if (other->sa_flags & SA_SIGINFO) other->sa_sigaction(number, info, context);
    else other->sa_handler(number);
    passing = 0;
}

static void on_fault(int number, siginfo_t *info, void *context) {
    guard *g = current;
    if (!g || info->si_code != BUS_ADRERR) {
        pass_on(number, info, context);
        return;
    }
    g->lost = info->si_addr;
    siglongjmp(g->place, 1);
}

static int is_ours(const struct sigaction *action) {
    return (action->sa_flags & SA_SIGINFO) && action->sa_sigaction == on_fault;
}

/* A clock that is read in 10 ns and moves every 1 to 10 ms; one that never stands still elsewhere. */
static long long now(void) {
#if defined(CLOCK_MONOTONIC_COARSE)
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
    return (long long)time.tv_sec * 1000000000LL + time.tv_nsec;
#else
    return atomic_load(&looked_at) + 1;
#endif
}

void tokenreel_set_guard(void) {
    struct sigaction top, ours = {.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    if (sigaction(SIGBUS, NULL, &top) || is_ours(&top)) return;
    struct sigaction *other = malloc(sizeof *other);
    if (!other) return;
    ours.sa_sigaction = on_fault;
    sigemptyset(&ours.sa_mask);
    *other = top;
    atomic_store(&before, other); /* before ours can be called */
    sigaction(SIGBUS, &ours, NULL);
}

void tokenreel_look_again(void) { atomic_store(&looked_at, 0); }

const void *tokenreel_guarded(tokenreel_reading reading, void *given) {
    guard g = {.lost = NULL};
    guard *outer = current;
    long long time = now();
    if (atomic_load_explicit(&looked_at, memory_order_relaxed) != time) {
        tokenreel_set_guard();
        atomic_store_explicit(&looked_at, time, memory_order_relaxed);
    }
    /* The signal mask is not kept: ours blocks none, so there is none to restore. */
    if (!sigsetjmp(g.place, 0)) {
        current = &g;
        reading(given);
    }
    current = outer;
    return g.lost;
}
#else
void tokenreel_set_guard(void) {}
void tokenreel_look_again(void) {}

const void *tokenreel_guarded(tokenreel_reading reading, void *given) {
    reading(given);
    return NULL;
}
#endif
