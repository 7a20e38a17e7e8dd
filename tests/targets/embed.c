/*
 * A program that embeds Python: runs the code in the environment variable EMBED_CODE. The live tests link it against
 * each libpython and against the static library, and dump it.
 */
#include <Python.h>

#include <stdlib.h>

int main(void)
{
    int status;

    Py_Initialize();
    status = PyRun_SimpleString(getenv("EMBED_CODE"));
    Py_Finalize();
    return status ? 1 : 0;
}
