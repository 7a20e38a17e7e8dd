// A C++ extension for the tests of native stacks: a namespace, an anonymous one, a template, a method and a lambda
// between Python and a Python callback.
//
//     spy_cpp.run(f)      spy_cpp_run > spy::start > spy::Walker<long>::walk > spy::Walker<long>::visit (twice) >
//                         spy::(anonymous namespace)::hidden > spy::Task::perform >
//                         spy::Task::perform()::{lambda()#1}::operator() > f
#include <Python.h>

#define FRAME __attribute__((noipa))

static volatile int after = 1;

namespace spy {

class Task {
public:
    explicit Task(PyObject *function) : function_(function) {}
    FRAME PyObject *perform();

private:
    PyObject *function_;
};

FRAME PyObject *Task::perform()
{
    auto call = [this]() FRAME {
        PyObject *result = PyObject_CallObject(function_, nullptr);
        after = 1;
        return result;
    };
    PyObject *result = call();
    after = 1;
    return result;
}

namespace {
FRAME PyObject *hidden(Task &task)
{
    PyObject *result = task.perform();
    after = 1;
    return result;
}
}

template <typename T> struct Walker {
    T depth;
    FRAME PyObject *walk(Task &task)
    {
        PyObject *result = visit(task, depth);
        after = 1;
        return result;
    }
    FRAME PyObject *visit(Task &task, T left)
    {
        PyObject *result = left > 0 ? visit(task, left - 1) : hidden(task);
        after = 1;
        return result;
    }
};

FRAME PyObject *start(PyObject *function)
{
    Walker<long> walker{1};
    Task task(function);
    PyObject *result = walker.walk(task);
    after = 1;
    return result;
}

}

static PyObject *spy_cpp_run(PyObject *, PyObject *function)
{
    PyObject *result = spy::start(function);
    after = 1;
    return result;
}

static PyMethodDef methods[] = {
    {"run", spy_cpp_run, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

#if PY_MAJOR_VERSION >= 3
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "spy_cpp", nullptr, -1, methods,
                                    nullptr,               nullptr,   nullptr, nullptr};

PyMODINIT_FUNC PyInit_spy_cpp(void)
{
    return PyModule_Create(&module);
}
#else
PyMODINIT_FUNC initspy_cpp(void)
{
    Py_InitModule("spy_cpp", methods);
}
#endif
