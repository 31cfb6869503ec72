/* SPDX-License-Identifier: BSD-3-Clause */
/* streams_python.c - what print() of a Python program has buffered
 *
 * A program that calls libmuster through ctypes writes to sys.stdout, whose buffer is
 * Python's own. Where stdout is a file, as under sbatch, that buffer holds the log. The
 * interpreter is looked up in the process: libmuster is not linked with Python.
 */
#include "runtime/recover/streams.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

struct python {
    int (*is_initialized)(void);
    int (*holds_gil)(void);
    int (*ensure)(void); /* the GIL, as Python's enum of two values */
    void (*release)(int gil);
    void *(*get)(const char *name); /* of sys; borrowed */
    void *(*call)(void *object, const char *method, const char *format, ...);
    void (*drop)(void *object); /* NULL is fine */
    void (*forget_error)(void);
};

static bool find(const char *name, void *function)
{
    void *symbol = dlsym(RTLD_DEFAULT, name);

    memcpy(function, &symbol, sizeof symbol);
    return symbol;
}

static bool find_python(struct python *p)
{
    return find("Py_IsInitialized", &p->is_initialized) &&
           find("PyGILState_Check", &p->holds_gil) &&
           find("PyGILState_Ensure", &p->ensure) &&
           find("PyGILState_Release", &p->release) &&
           find("PySys_GetObject", &p->get) && find("PyObject_CallMethod", &p->call) &&
           find("Py_DecRef", &p->drop) && find("PyErr_Clear", &p->forget_error) &&
           p->is_initialized();
}

bool mu_python_is_here(bool *holds_lock)
{
    struct python p;

    if (!find_python(&p))
        return false;
    *holds_lock = p.holds_gil();
    return true;
}

void mu_python_flush(void)
{
    static const char *const names[] = { "stdout", "stderr" };
    struct python p;
    int gil;

    if (!find_python(&p))
        return;
    gil = p.ensure();
    for (int i = 0; i < 2; i++) {
        void *stream = p.get(names[i]);

        if (stream)
            p.drop(p.call(stream, "flush", NULL));
        p.forget_error();
    }
    p.release(gil);
}
