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

#include "frames.h"
#include "tables.h"

struct places {
    PyObject_HEAD
    PyObject *search; /* from the caller's frame to that of the place, and its depth */
    PyObject *places; /* (code, instruction, thread) of each place by number */
    struct tables tables;
    struct frames frames;
};

/* The place of a frame, and what it calls at a depth unless that is NULL. New references. -1 and an exception: it
   failed. */
static inline int place_of(struct places *self, PyObject *frame, PyObject *called, struct place *place)
{
    place->called = called ? called_at(&self->frames, called) : NULL;
    if (called && !place->called)
        return -1;
    place->code = code_of(&self->frames, frame, &place->instruction);
    place->thread = this_thread();
    if (place->code)
        return 0;
    Py_XDECREF(place->called);
    return -1;
}

static int32_t __attribute__((cold, noinline)) no_frame(void)
{
    if (!PyErr_ExceptionMatches(PyExc_ValueError)) /* no frame is so far outward */
        return FAILED;
    PyErr_Clear();
    return EMPTY;
}

/* The number of the place at a kernel's depth; EMPTY: it is not known.

   A place is code of the program, an instruction in it, and which function that calls: it may call a launcher now, and
   later a function of the program that launches from as deep a stack. */
static inline int32_t known_place(struct places *self, const struct kernel *kernel)
{
    PyObject *frame = frame_at(&self->frames, kernel->depth.place);
    struct place place;
    if (!frame)
        return no_frame();
    const int failed = place_of(self, frame, kernel->depth.called, &place);
    Py_DECREF(frame);
    if (failed)
        return FAILED;
    int32_t number = kernel->last.number;
    if (__builtin_expect(!is_same(&kernel->last, &place), 0))
        number = other_place(&self->tables, kernel->object, &place);
    leave(&place);
    return number;
}

/* Search the stack for the place, and know it from now on, unless its depth is 0. */
static int32_t new_place(struct places *self, PyObject *object, uint64_t id)
{
    struct tables *tables = &self->tables;
    PyObject *caller = frame_at(&self->frames, self->frames.depths[0]), *frame;
    PyObject *found = caller ? PyObject_CallFunctionObjArgs(self->search, caller, NULL) : NULL;
    int distance;
    struct place place;
    struct depth depth = {NULL, NULL};
    Py_XDECREF(caller);
    int failed = !found || !PyArg_ParseTuple(found, "Oi:search", &frame, &distance);
    if (!failed && distance > 0 && distance < DEPTHS)
        depth = (struct depth){self->frames.depths[distance], self->frames.depths[distance - 1]};
    failed = failed || place_of(self, frame, depth.called, &place);
    Py_XDECREF(found);
    if (failed)
        return FAILED;
    /* another thread may launch while Python makes this, so the tables are looked at below */
    PyObject *row = Py_BuildValue("Oik", place.code, place.instruction, PyThread_get_thread_ident());
    if (!row || (2 * tables->kernel_count >= tables->kernel_room && more_kernels(tables)) ||
        (2 * tables->known_count >= tables->known_room && more_places(tables))) {
        Py_XDECREF(row);
        leave(&place);
        PyErr_NoMemory();
        return FAILED;
    }
    struct place *known = place_at(tables->known, tables->known_room, &place);
    if (known->number == EMPTY) {
        if (tables->known_count == INT32_MAX || PyList_Append(self->places, row)) {
            Py_DECREF(row);
            leave(&place);
            PyErr_NoMemory();
            return FAILED;
        }
        place.number = (int32_t)tables->known_count++;
        *known = place;
    } else {
        leave(&place);
    }
    if (depth.place) {
        struct kernel *kernel = kernel_at(tables->kernels, tables->kernel_room, object);
        if (!kernel->object) {
            Py_INCREF(object);
            tables->kernel_count++;
        }
        *kernel = (struct kernel){object, id, depth, *known};
    }
    Py_DECREF(row);
    return known->number;
}

/* Record a launch whose place is not known, or look at why finding it failed. */
static PyObject *__attribute__((cold, noinline)) add_new(struct places *self, PyObject *kernel, int32_t number)
{
    if (number == EMPTY) {
        const uint64_t id = PyLong_AsUnsignedLongLong(kernel);
        if (id == UINT64_MAX && PyErr_Occurred())
            return NULL;
        if ((number = new_place(self, kernel, id)) != FAILED)
            append(&self->tables, id, number);
    }
    if (number == FAILED) {
        if (!PyErr_ExceptionMatches(PyExc_MemoryError))
            return NULL;
        PyErr_Clear();
    }
    Py_RETURN_NONE;
}

static PyObject *add(PyObject *object, PyObject *kernel)
{
    struct places *self = (struct places *)object;
    /* a copy: audit hooks and the collector may run Python, which may launch */
    const struct kernel known = *kernel_at(self->tables.kernels, self->tables.kernel_room, kernel);
    const int32_t number = known.object ? known_place(self, &known) : EMPTY;
    if (number < 0)
        return add_new(self, kernel, number);
    append(&self->tables, known.id, number);
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
    const size_t size = self->tables.launch_count * sizeof *self->tables.launches;
    return PyBytes_FromStringAndSize((const char *)self->tables.launches, (Py_ssize_t)size);
}

static PyObject *make(PyTypeObject *type, PyObject *arguments, PyObject *Py_UNUSED(keywords))
{
    PyObject *frame, *module, *search;
    if (!PyArg_ParseTuple(arguments, "OOO:Places", &frame, &module, &search))
        return NULL;
    struct places *self = (struct places *)PyType_GenericAlloc(type, 0);
    if (!self)
        return NULL;
    Py_INCREF(search);
    self->search = search;
    if (open_frames(&self->frames, frame, module)) {
        Py_DECREF(self);
        return NULL;
    }
    self->places = PyList_New(0);
    if (!self->places || more_kernels(&self->tables) || more_places(&self->tables)) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static void destroy(PyObject *object)
{
    struct places *self = (struct places *)object;
    PyTypeObject *type = Py_TYPE(object);
    leave_tables(&self->tables);
    Py_XDECREF(self->places);
    close_frames(&self->frames);
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
    PyObject *module = PyModule_Create(&definition), *type = PyType_FromSpec(&spec);
    if (module && type && !PyModule_AddObject(module, "Places", type))
        return module;
    Py_XDECREF(type);
    Py_XDECREF(module);
    return NULL;
}

#endif
