/* Launches and the places in Python that make them: kscope/instrument/launch_places.py describes the type, and does the
   same in Python. Between real launches the caches are cold, so what counts is how little code and memory a launch from
   a known place needs. All of it runs with the interpreter's lock. */

#if defined __has_include
#if __has_include(<Python.h>)
#include <pyconfig.h>
#ifndef Py_GIL_DISABLED /* without the interpreter's lock Python has no stable ABI, and records by itself */
#define HAS_PYTHON
#endif
#endif
#endif

#ifdef HAS_PYTHON

#define Py_LIMITED_API 0x030A0000 /* Python 3.10 */
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>

enum { FIRST_ROOM = 64, FIRST_LAUNCHES = 1 << 12, EMPTY = -1 };

/* Half a cache line. code and called are kept alive, so that no other object has their address. */
struct place {
    PyObject *code, *called; /* called: see called_at(); NULL: any function */
    unsigned long thread;
    int32_t instruction, number; /* number EMPTY: no place */
};

struct kernel {
    uint64_t id;
    int64_t depth; /* EMPTY: no kernel */
};

struct launch {
    uint64_t kernel, number;
};

struct places {
    PyObject_HEAD
    PyObject *frame, *module; /* sys._getframe; sys._getframemodulename or NULL */
    PyObject *search;         /* from the caller's frame to that of the place, and its depth */
    struct kernel *kernels;   /* hash tables, at most half full; sizes are powers of two */
    struct place *known;
    PyObject *places;         /* (code, instruction, thread) of each place by number */
    struct launch *launches;
    size_t kernel_room, kernel_count, known_room, known_count, launch_room, launch_count;
};

static PyObject *name_instruction; /* "f_lasti" */

static size_t mixed(uint64_t value)
{
    value *= UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(value >> 32);
}

/* Where a kernel is, or where it would be put. */
static struct kernel *kernel_at(struct kernel *table, size_t room, uint64_t id)
{
    size_t at = mixed(id) & (room - 1);
    while (table[at].depth != EMPTY && table[at].id != id)
        at = (at + 1) & (room - 1);
    return &table[at];
}

static struct place *place_at(struct place *table, size_t room, const struct place *place)
{
    size_t at = mixed(((uintptr_t)place->code >> 4) + (uint64_t)place->instruction + place->thread) & (room - 1);
    while (table[at].number != EMPTY &&
           (table[at].code != place->code || table[at].instruction != place->instruction ||
            table[at].called != place->called || table[at].thread != place->thread))
        at = (at + 1) & (room - 1);
    return &table[at];
}

static int more_kernels(struct places *self)
{
    size_t room = self->kernel_room ? 2 * self->kernel_room : FIRST_ROOM;
    struct kernel *table = malloc(room * sizeof *table);
    if (!table)
        return -1;
    for (size_t i = 0; i < room; i++)
        table[i].depth = EMPTY;
    for (size_t i = 0; i < self->kernel_room; i++)
        if (self->kernels[i].depth != EMPTY)
            *kernel_at(table, room, self->kernels[i].id) = self->kernels[i];
    free(self->kernels);
    self->kernels = table;
    self->kernel_room = room;
    return 0;
}

static int more_places(struct places *self)
{
    size_t room = self->known_room ? 2 * self->known_room : FIRST_ROOM;
    struct place *table = malloc(room * sizeof *table);
    if (!table)
        return -1;
    for (size_t i = 0; i < room; i++)
        table[i].number = EMPTY;
    for (size_t i = 0; i < self->known_room; i++)
        if (self->known[i].number != EMPTY)
            *place_at(table, room, &self->known[i]) = self->known[i];
    free(self->known);
    self->known = table;
    self->known_room = room;
    return 0;
}

static int append(struct places *self, uint64_t kernel, uint64_t number)
{
    if (self->launch_count == self->launch_room) {
        size_t room = self->launch_room ? 2 * self->launch_room : FIRST_LAUNCHES;
        struct launch *launches = realloc(self->launches, room * sizeof *launches);
        if (!launches)
            return -1;
        self->launches = launches;
        self->launch_room = room;
    }
    self->launches[self->launch_count++] = (struct launch){kernel, number};
    return 0;
}

static PyObject *at_depth(PyObject *function, int64_t depth)
{
    PyObject *number = PyLong_FromLongLong(depth);
    PyObject *found = number ? PyObject_CallFunctionObjArgs(function, number, NULL) : NULL;
    Py_XDECREF(number);
    return found;
}

/* What tells the function so far outward: its module's name if Python gives that without a look at its frame, else its
   code. A new reference; identity counts. */
static PyObject *called_at(struct places *self, int64_t depth)
{
    if (self->module)
        return at_depth(self->module, depth);
    PyObject *frame = at_depth(self->frame, depth);
    PyObject *code = frame ? (PyObject *)PyFrame_GetCode((PyFrameObject *)frame) : NULL;
    Py_XDECREF(frame);
    return code;
}

/* The place of a frame, with new references. Takes over `called`, also if it fails. */
static int at_frame(PyObject *frame, PyObject *called, struct place *place)
{
    PyObject *instruction = PyObject_GetAttr(frame, name_instruction);
    if (!instruction) {
        Py_XDECREF(called);
        return -1;
    }
    place->code = (PyObject *)PyFrame_GetCode((PyFrameObject *)frame);
    place->called = called;
    place->thread = PyThread_get_thread_ident();
    place->instruction = (int32_t)PyLong_AsLong(instruction);
    Py_DECREF(instruction);
    return 0;
}

static void leave(struct place *place)
{
    Py_DECREF(place->code);
    Py_XDECREF(place->called);
}

/* The number of the place at a kernel's depth; EMPTY: it is not known. -1 and an exception: it failed. */
static int known_place(struct places *self, uint64_t id, int32_t *number)
{
    int64_t depth = kernel_at(self->kernels, self->kernel_room, id)->depth;
    *number = EMPTY;
    if (depth == EMPTY)
        return 0;
    PyObject *frame = at_depth(self->frame, depth);
    if (!frame) {
        if (!PyErr_ExceptionMatches(PyExc_ValueError)) /* no frame is so far outward */
            return -1;
        PyErr_Clear();
        return 0;
    }
    struct place place;
    PyObject *called = called_at(self, depth - 1);
    int failed = !called || at_frame(frame, called, &place);
    Py_DECREF(frame);
    if (failed)
        return -1;
    *number = place_at(self->known, self->known_room, &place)->number;
    leave(&place);
    return 0;
}

/* Search the stack for the place, and know it from now on, unless its depth is 0. */
static int new_place(struct places *self, uint64_t id, int32_t *number)
{
    PyObject *caller = at_depth(self->frame, 0), *frame, *called = NULL;
    PyObject *found = caller ? PyObject_CallFunctionObjArgs(self->search, caller, NULL) : NULL;
    int depth;
    struct place place;
    Py_XDECREF(caller);
    int failed = !found || !PyArg_ParseTuple(found, "Oi:search", &frame, &depth) ||
                 (depth > 0 && !(called = called_at(self, depth - 1))) || at_frame(frame, called, &place);
    Py_XDECREF(found);
    if (failed)
        return -1;
    /* another thread may launch while Python makes this, so the tables are looked at below */
    PyObject *row = Py_BuildValue("Oik", place.code, place.instruction, place.thread);
    if (!row || (2 * self->kernel_count >= self->kernel_room && more_kernels(self)) ||
        (2 * self->known_count >= self->known_room && more_places(self))) {
        Py_XDECREF(row);
        leave(&place);
        PyErr_NoMemory();
        return -1;
    }
    struct place *known = place_at(self->known, self->known_room, &place);
    if (known->number == EMPTY) {
        if (self->known_count == INT32_MAX || PyList_Append(self->places, row)) {
            Py_DECREF(row);
            leave(&place);
            PyErr_NoMemory();
            return -1;
        }
        place.number = (int32_t)self->known_count++;
        *known = place;
        *number = place.number;
    } else {
        *number = known->number;
        leave(&place);
    }
    if (depth > 0) {
        struct kernel *kernel = kernel_at(self->kernels, self->kernel_room, id);
        self->kernel_count += kernel->depth == EMPTY;
        *kernel = (struct kernel){id, depth};
    }
    Py_DECREF(row);
    return 0;
}

static PyObject *add(PyObject *object, PyObject *kernel)
{
    struct places *self = (struct places *)object;
    int32_t number;
    uint64_t id = PyLong_AsUnsignedLongLong(kernel);
    if (id == UINT64_MAX && PyErr_Occurred())
        return NULL;
    const int failed = known_place(self, id, &number) || (number == EMPTY && new_place(self, id, &number));
    if (failed && !PyErr_ExceptionMatches(PyExc_MemoryError))
        return NULL;
    if (failed) /* the launch is not recorded: then its kernel has no lines, which is a problem of the trace */
        PyErr_Clear();
    else
        (void)append(self, id, (uint64_t)number);
    Py_RETURN_NONE;
}

static PyObject *places(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    struct places *self = (struct places *)object;
    return PyList_GetSlice(self->places, 0, PY_SSIZE_T_MAX);
}

static PyObject *launches(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    struct places *self = (struct places *)object;
    return PyBytes_FromStringAndSize((const char *)self->launches, (Py_ssize_t)(self->launch_count * sizeof *self->launches));
}

static PyObject *make(PyTypeObject *type, PyObject *arguments, PyObject *Py_UNUSED(keywords))
{
    PyObject *frame, *module, *search;
    if (!PyArg_ParseTuple(arguments, "OOO:Places", &frame, &module, &search))
        return NULL;
    struct places *self = (struct places *)PyType_GenericAlloc(type, 0);
    if (!self)
        return NULL;
    Py_INCREF(frame);
    Py_INCREF(search);
    self->frame = frame;
    self->search = search;
    if (module != Py_None) {
        Py_INCREF(module);
        self->module = module;
    }
    self->places = PyList_New(0);
    if (!self->places || more_kernels(self) || more_places(self)) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static void destroy(PyObject *object)
{
    struct places *self = (struct places *)object;
    PyTypeObject *type = Py_TYPE(object);
    for (size_t i = 0; i < self->known_room; i++)
        if (self->known[i].number != EMPTY)
            leave(&self->known[i]);
    free(self->known);
    free(self->kernels);
    free(self->launches);
    Py_XDECREF(self->places);
    Py_XDECREF(self->frame);
    Py_XDECREF(self->module);
    Py_XDECREF(self->search);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"add", add, METH_O, NULL},
    {"places", places, METH_NOARGS, NULL},
    {"launches", launches, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, (void *)make}, {Py_tp_dealloc, (void *)destroy}, {Py_tp_methods, methods}, {0, NULL},
};

static PyType_Spec spec = {"kscope.native._native.Places", sizeof(struct places), 0, Py_TPFLAGS_DEFAULT, slots};

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", NULL, -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void)
{
    name_instruction = PyUnicode_InternFromString("f_lasti");
    PyObject *module = PyModule_Create(&definition), *type = PyType_FromSpec(&spec);
    if (name_instruction && module && type && !PyModule_AddObject(module, "Places", type))
        return module;
    Py_XDECREF(type);
    Py_XDECREF(module);
    return NULL;
}

#endif
