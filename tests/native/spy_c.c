/*
 * A C extension for the tests of native stacks, for Python 2.7 and every 3.x. Each function that Python calls goes
 * through C functions whose names the tests know, and ends in spin_here, in a Python callback, or in both in turn.
 *
 *     spy_c.spin("poll", 3, b"ready\
 * ")        spy_c_spin > level_one > level_two (3 times) > spin_here
 *     spy_c.spin("crash", 3, b"ready\
 * ")       spy_c_spin > level_one > level_two (3 times), at address 16
 *     spy_c.burn(0.1)                          spy_c_burn > burn_outer > burn_here, for that much CPU time
 *     spy_c.call(f)                            spy_c_call > call_outer > call_inner > f
 *
 * spin_here first writes its text to standard output: when the test has read it, the stack is in place. It never
 * returns. MODULE is the module's name: the same source is built in several ways.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <alloca.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#ifndef MODULE
#define MODULE spy_c
#endif
#define JOIN_(a, b) a##b
#define JOIN(a, b)  JOIN_(a, b)
#define TEXT_(a)    #a
#define TEXT(a)     TEXT_(a)

/* Keeps its own frame: not inlined, not cloned, no tail call. */
#define FRAME  __attribute__((noipa))
#define AND(x) ((x) + after)

static volatile int after = 1;

/* How spin_here spends its time, and what it prints first. */
struct rest {
    const char *mode;
    const char *text;
    size_t len;
};

static void rest_say(const struct rest *r)
{
    if (r->len && write(1, r->text, r->len) != (ssize_t)r->len)
        _exit(3);
}

static FRAME int spin_here(const struct rest *r)
{
    volatile unsigned long count = 0;
    struct timespec day = {86400, 0};

    rest_say(r);
    for (;;) {
        if (strncmp(r->mode, "busy", 4) == 0)
            for (int i = 0; i < 1000000; i++)
                count++;
        else if (strcmp(r->mode, "nanosleep") == 0)
            nanosleep(&day, NULL);
        else
            poll(NULL, 0, -1);
    }
    return (int)count;
}

static volatile int *volatile nowhere = (volatile int *)16;

static FRAME int level_two(const struct rest *r, int depth)
{
    if (depth > 1)
        return AND(level_two(r, depth - 1));
    if (strncmp(r->mode, "crash", 5) == 0) {
        rest_say(r);
        return *nowhere;
    }
    return AND(spin_here(r));
}

static FRAME int level_one(const struct rest *r, int depth)
{
    return AND(level_two(r, depth));
}

/* "busy-gil", "poll-gil" and "crash-gil" keep the GIL; the others release it, as code that computes does. */
static int rest_parse(PyObject *args, struct rest *ret, int *depth)
{
    Py_ssize_t len = 0;

    *depth = 1;
    if (!PyArg_ParseTuple(args, "s|is#", &ret->mode, depth, &ret->text, &len))
        return 0;
    ret->len = (size_t)len;
    return 1;
}

static PyObject *spy_c_spin(PyObject *self, PyObject *args)
{
    struct rest r = {NULL, NULL, 0};
    int depth, done;

    (void)self;
    if (!rest_parse(args, &r, &depth))
        return NULL;
    if (strstr(r.mode, "-gil"))
        return PyLong_FromLong(level_one(&r, depth));
    Py_BEGIN_ALLOW_THREADS done = level_one(&r, depth);
    Py_END_ALLOW_THREADS return PyLong_FromLong(done);
}

/* Some of the time is spent in clock_gettime, which the kernel maps into the program (vDSO). */
static FRAME int burn_here(double seconds)
{
    volatile unsigned long count = 0;
    struct timespec now, begin;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    do {
        for (int i = 0; i < 20000; i++)
            count++;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    } while ((double)(now.tv_sec - begin.tv_sec) + (double)(now.tv_nsec - begin.tv_nsec) / 1e9 < seconds);
    return (int)count;
}

static FRAME int burn_outer(double seconds)
{
    return AND(burn_here(seconds));
}

static PyObject *spy_c_burn(PyObject *self, PyObject *seconds)
{
    (void)self;
    return PyLong_FromLong(burn_outer(PyFloat_AsDouble(seconds)));
}

/* Calls back into Python. */
static FRAME PyObject *call_inner(PyObject *function)
{
    PyObject *result = PyObject_CallObject(function, NULL);

    after = 1;
    return result;
}

static FRAME PyObject *call_outer(PyObject *function)
{
    PyObject *result = call_inner(function);

    after = 1;
    return result;
}

static PyObject *spy_c_call(PyObject *self, PyObject *function)
{
    PyObject *result = call_outer(function);

    (void)self;
    after = 1;
    return result;
}

/* Goes through functions whose frames are hard to unwind: one that grows by alloca, one that is realigned. */
static FRAME PyObject *call_aligned(PyObject *function)
{
    __attribute__((aligned(64))) volatile char room[128];
    PyObject *result;

    room[0] = 1;
    result = call_inner(function);
    room[1] = 2;
    return result;
}

static FRAME PyObject *call_alloca(PyObject *function, int n)
{
    volatile char *room = alloca((size_t)n * 100);
    PyObject *result;

    room[0] = 1;
    result = call_aligned(function);
    room[n] = 2;
    return result;
}

static PyObject *spy_c_frames(PyObject *self, PyObject *function)
{
    PyObject *result = call_alloca(function, 30 * after);

    (void)self;
    after = 1;
    return result;
}

/* The call is in the part of the function that the compiler moves elsewhere (.cold). */
static FRAME __attribute__((cold)) PyObject *call_rarely(PyObject *function)
{
    PyObject *result = call_inner(function);

    after = 1;
    return result;
}

static FRAME PyObject *call_split(PyObject *function, int rare)
{
    PyObject *result = NULL;

    if (__builtin_expect(rare, 0)) {
        result = call_rarely(function);
        after = 2 - rare;
    }
    for (int i = 0; i < 3; i++)
        after = i ? 1 : after;
    return result;
}

static PyObject *spy_c_cold(PyObject *self, PyObject *function)
{
    PyObject *result = call_split(function, after);

    (void)self;
    after = 1;
    return result;
}

/* A callback from the C library: its frames are between ours. */
static PyObject *sort_function;

static FRAME int compare_items(const void *a, const void *b)
{
    PyObject *result = call_inner(sort_function);

    Py_XDECREF(result);
    return *(const int *)a - *(const int *)b;
}

static FRAME int sort_outer(void)
{
    int items[] = {3, 1, 2};

    qsort(items, 3, sizeof(items[0]), compare_items);
    return items[after];
}

static PyObject *spy_c_sort(PyObject *self, PyObject *function)
{
    (void)self;
    sort_function = function;
    return PyLong_FromLong(sort_outer());
}

/*
 * A signal arrives while we compute; its handler does not return. The timer counts CPU time: on a loaded machine, a
 * wall-clock timer would expire before wait_for_signal has begun.
 */
static struct rest signal_rest;

static FRAME void on_signal(int number)
{
    after = number;
    spin_here(&signal_rest);
    after = 1;
}

static FRAME int wait_for_signal(void)
{
    volatile unsigned long count = 0;

    while (after == 1)
        count++;
    return (int)count;
}

static FRAME int signal_outer(void)
{
    struct sigaction action;
    struct itimerval soon = {{0, 0}, {0, 20000}};

    memset(&action, 0, sizeof(action));
    action.sa_handler = on_signal;
    sigaction(SIGVTALRM, &action, NULL);
    setitimer(ITIMER_VIRTUAL, &soon, NULL);
    return AND(wait_for_signal());
}

static PyObject *spy_c_signal(PyObject *self, PyObject *args)
{
    int depth;

    (void)self;
    if (!rest_parse(args, &signal_rest, &depth))
        return NULL;
    return PyLong_FromLong(signal_outer());
}

/* Threads that C starts: two that never run Python, one that calls it, one that calls it now and then. */
static volatile int thread_id;

static FRAME int worker_wait(void)
{
    thread_id = (int)syscall(SYS_gettid);
    for (;;)
        poll(NULL, 0, -1);
    return after;
}

static FRAME int worker_loop(void)
{
    return AND(worker_wait());
}

static FRAME void *worker_main(void *arg)
{
    pthread_setname_np(pthread_self(), "native-worker");
    after = AND(worker_loop());
    return arg;
}

static FRAME void *worker_busy(void *arg)
{
    pthread_setname_np(pthread_self(), "native-busy");
    for (;;)
        after = AND(burn_here(0.1)) ? 1 : 2;
    return arg;
}

/* Has a Python thread state only during each call. */
static FRAME void *worker_by_turns(void *function)
{
    pthread_setname_np(pthread_self(), "by-turns");
    for (;;) {
        PyGILState_STATE state;
        PyObject *result;

        after = AND(burn_here(0.05)) ? 1 : 2;
        state = PyGILState_Ensure();
        result = call_outer(function);
        Py_XDECREF(result);
        PyGILState_Release(state);
    }
    return NULL;
}

static FRAME void *worker_python(void *function)
{
    PyGILState_STATE state;
    PyObject *result;

    state = PyGILState_Ensure();
    result = call_outer(function);
    Py_XDECREF(result);
    PyGILState_Release(state);
    return NULL;
}

static PyObject *thread_start(void *(*start)(void *), void *arg)
{
    pthread_t thread;

#if PY_VERSION_HEX < 0x03070000
    PyEval_InitThreads(); /* later ones have done so */
#endif
    thread_id = 0;
    if (pthread_create(&thread, NULL, start, arg) != 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    if (start == worker_main)
        while (!thread_id)
            usleep(100);
    return PyLong_FromLong(thread_id);
}

static PyObject *spy_c_thread(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return thread_start(worker_main, NULL);
}

static PyObject *spy_c_busy_thread(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return thread_start(worker_busy, NULL);
}

static PyObject *spy_c_thread_by_turns(PyObject *self, PyObject *function)
{
    (void)self;
    Py_INCREF(function);
    return thread_start(worker_by_turns, function);
}

static PyObject *spy_c_thread_with_python(PyObject *self, PyObject *function)
{
    (void)self;
    Py_INCREF(function);
    return thread_start(worker_python, function);
}

static PyMethodDef methods[] = {
    {"spin", spy_c_spin, METH_VARARGS, NULL},
    {"burn", spy_c_burn, METH_O, NULL},
    {"call", spy_c_call, METH_O, NULL},
    {"frames", spy_c_frames, METH_O, NULL},
    {"cold", spy_c_cold, METH_O, NULL},
    {"sort", spy_c_sort, METH_O, NULL},
    {"signal", spy_c_signal, METH_VARARGS, NULL},
    {"thread", spy_c_thread, METH_NOARGS, NULL},
    {"busy_thread", spy_c_busy_thread, METH_NOARGS, NULL},
    {"thread_by_turns", spy_c_thread_by_turns, METH_O, NULL},
    {"thread_with_python", spy_c_thread_with_python, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

#if PY_MAJOR_VERSION >= 3
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, TEXT(MODULE), NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC JOIN(PyInit_, MODULE)(void)
{
    return PyModule_Create(&module);
}
#else
PyMODINIT_FUNC JOIN(init, MODULE)(void)
{
    Py_InitModule(TEXT(MODULE), methods);
}
#endif
