/*
 * Lists of function names to hide.
 */
#include "sample/hidden_functions.h"

#include <stddef.h>
#include <string.h>

/* Prefixes of functions in the interpreter, 2.7 to 3.15. */
static const char *const interpreter_prefixes[] = {
    /* the eval loop, and entering it */
    "PyIter_Next", "PyEval_", "py_trampoline_evaluator", "_PyEval_", "_TAIL_CALL_", "fast_function", "call_function",
    "do_call", "ext_do_call", "function_code_fastcall", "_PyFunction_", "function_call", "fast_next_opcode",
    "gen_send_ex", "gen_iternext", "_PyGen_Send", "PyIter_Send", "PyGen_am_send", "gen_send", "gen_close",
    "async_gen_asend_send", "gen_throw", "_gen_throw",
    /* calls */
    "PyObject_Call", "_PyObject_Call", "_PyObject_FastCall", "PyObject_Vectorcall", "_PyObject_Vectorcall",
    "_PyObject_MakeTpCall", "_Py_slot_", "_Py_BuiltinCall", "_Py_VectorCall", "_Py_Call", "PyVectorcall_",
    "_PyVectorcall_", "vectorcall_", "object_vacall", "_PyStack_", "_PyCFunction", "PyCFunction_", "cfunction_",
    "_PyMethodDef_", "method_vectorcall", "method_call", "instancemethod_", "classmethod_", "wrapper_call", "wrap_",
    "slot_", "call_method", "callmethod", "lookup_maybe_method", "vectorcall_maybe", "vectorcall_unbound",
    "call_unbound", "call_attribute", "type_call", "_PyType_Call", "_Py_CheckFunctionResult", "objargs_",
    "_PyObject_Invoke", "instance_call", "PyInstance_New", "_PyMethodDescr_", "methoddescr_call",
    "classmethoddescr_call", "wrapperdescr_",
    /* from main, or the start of a thread, to the first frame */
    "Py_Main", "Py_RunMain", "Py_BytesMain", "_Py_UnixMain", "pymain_", "run_file", "run_mod", "run_eval_code_obj",
    "pyrun_", "PyRun_", "_PyRun_", "run_command", "t_bootstrap", "thread_run", "thread_bootstrap", "pythread_wrapper",
    "bootstrap", "_PyThread_",
    /* imports: their Python frames are shown */
    "PyImport_", "import_find_and_load", "import_run_modules", "import_name", "builtin___import__",
    "exec_code_in_module", "_PyImport_", "builtin_exec", "builtin_eval",
    /* attribute access that calls Python code */
    "property_descr_", "_PyObject_GenericGetAttr", "PyObject_GetAttr", "_PyObject_GetAttr", "_PyObject_GetMethod"};

/* From the kernel to main, or to the start function of a thread. */
static const char *const startup_functions[] = {"_start",
                                                "__libc_start_main",
                                                "__libc_start_call_main",
                                                "start_thread",
                                                "clone",
                                                "__clone",
                                                "clone3",
                                                "__clone3",
                                                "thread_start",
                                                "_start_c",
                                                "libc_start_main_stage2"};

static bool begins_with(const char *name, const char *start)
{
    return strncmp(name, start, strlen(start)) == 0;
}

/* Compares the whole name, without suffixes of compilers and linkers: .part.0, @@GLIBC_2.34. */
static bool is_startup_function(const char *name)
{
    size_t len = strcspn(name, ".@");

    for (size_t i = 0; i < sizeof(startup_functions) / sizeof(startup_functions[0]); i++)
        if (strlen(startup_functions[i]) == len && strncmp(name, startup_functions[i], len) == 0)
            return true;
    return false;
}

/* An executable that only starts the interpreter. */
static bool is_python_program(const char *path)
{
    const char *slash = strrchr(path, '/');

    return begins_with(slash ? slash + 1 : path, "python");
}

bool hidden_functions_match(const char *name, const char *path, bool in_python)
{
    if (!name)
        return in_python;
    if (is_startup_function(name) || (strcmp(name, "main") == 0 && (in_python || is_python_program(path))))
        return true;
    for (size_t i = 0; in_python && i < sizeof(interpreter_prefixes) / sizeof(interpreter_prefixes[0]); i++)
        if (begins_with(name, interpreter_prefixes[i]))
            return true;
    return false;
}

bool hidden_functions_is_libc(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

    return begins_with(name, "libc.") || begins_with(name, "libc-") || begins_with(name, "libpthread") ||
           begins_with(name, "ld-");
}

bool hidden_functions_is_eval(const char *name, bool is_python2)
{
    return name && strcmp(name, is_python2 ? "PyEval_EvalFrameEx" : "_PyEval_EvalFrameDefault") == 0;
}

bool hidden_functions_is_greenlet_start(const char *name)
{
    return name && strstr(name, "g_initialstub");
}

bool hidden_functions_is_greenlet(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

    return begins_with(name, "_greenlet.") || begins_with(name, "greenlet.");
}
