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
    PyObject *kind; /* from a frame to whose code it runs */
    PyObject *places; /* (code, instruction, thread) of each place by number */
    struct tables tables;
    struct frames frames;
};

/* Whose code a frame runs: of a launcher, a package or the program. */
enum { OF_LAUNCHER, OF_PACKAGE, PROGRAM };

static int32_t __attribute__((cold, noinline)) no_frame(void)
{
    if (!PyErr_ExceptionMatches(PyExc_ValueError)) /* no frame is so far outward */
        return FAILED;
    PyErr_Clear();
    return EMPTY;
}

/* Whose code a frame runs that is met for the first time. FAILED: with an exception. */
static long __attribute__((cold, noinline)) new_kind(struct places *self, PyObject *frame, PyObject *code)
{
    struct tables *tables = &self->tables;
    PyObject *found = PyObject_CallFunctionObjArgs(self->kind, frame, NULL);
    const long kind = found ? PyLong_AsLong(found) : -1;
    Py_XDECREF(found);
    if (kind == -1 && PyErr_Occurred())
        return FAILED;
    if (kind < OF_LAUNCHER || kind > PROGRAM) {
        PyErr_SetString(PyExc_ValueError, "kind");
        return FAILED;
    }
    if (2 * tables->kind_count >= tables->kind_room && more_kinds(tables)) {
        PyErr_NoMemory();
        return FAILED;
    }
    struct kind *known = kind_at(tables->kinds, tables->kind_room, code);
    if (!known->code) {
        Py_INCREF(code);
        *known = (struct kind){code, kind};
        tables->kind_count++;
    }
    return kind;
}

static inline long kind_of(struct places *self, PyObject *frame)
{
    PyObject *code = (PyObject *)self->frames.code((PyFrameObject *)frame);
    const struct kind *known = kind_at(self->tables.kinds, self->tables.kind_room, code);
    const long kind = __builtin_expect(known->code != NULL, 1) ? known->kind : new_kind(self, frame, code);
    Py_DECREF(code);
    return kind;
}

/* 1 if a frame is at a place, in this thread; 0: it is not. -1 and an exception: it failed. */
static inline int is_at(const struct frames *frames, PyObject *frame, const struct place *place)
{
    PyObject *code = (PyObject *)frames->code((PyFrameObject *)frame);
    Py_DECREF(code);
    if (code != place->code || this_thread() != place->thread)
        return 0;
    int32_t instruction;
    return instruction_of(frames, frame, &instruction) ? -1 : instruction == place->instruction;
}

/* Number a place, and keep its code if it is new. -1 and an exception: it failed. */
static int give_number(struct places *self, struct place *place)
{
    struct tables *tables = &self->tables;
    struct place *known = place_at(tables->known, tables->known_room, place);
    if (__builtin_expect(known->number == EMPTY, 0)) {
        /* another thread may launch while Python makes this, so the tables are looked at again */
        PyObject *row = Py_BuildValue("Oik", place->code, place->instruction, PyThread_get_thread_ident());
        int failed = !row || (2 * tables->known_count >= tables->known_room && more_places(tables));
        known = place_at(tables->known, tables->known_room, place);
        if (!failed && known->number == EMPTY &&
            !(failed = tables->known_count == INT32_MAX || PyList_Append(self->places, row))) {
            Py_INCREF(place->code);
            place->number = (int32_t)tables->known_count++;
            *known = *place;
        }
        Py_XDECREF(row);
        if (failed) {
            PyErr_NoMemory();
            return -1;
        }
    }
    place->number = known->number;
    return 0;
}

/* Find the place from a frame outward: the program's innermost frame, else the innermost one of a package, else that
   frame. Takes the reference to the frame. -1 and an exception: it failed.

   place: the place of the last launch; then that of this one.
   launchers: how many of these frames further in than all others run launchers' code. */
static int search(struct places *self, PyObject *frame, struct place *place, int *launchers)
{
    const struct frames *frames = &self->frames;
    PyObject *found = NULL;
    long best = EMPTY, kind;
    int depth = 0;
    *launchers = DEPTHS;
    while ((kind = kind_of(self, frame)) != FAILED) {
        if (kind > best) {
            if (best <= OF_LAUNCHER && kind > OF_LAUNCHER)
                *launchers = depth;
            Py_XDECREF(found);
            Py_INCREF(frame);
            found = frame;
            best = kind;
        }
        if (kind == PROGRAM)
            break;
        PyObject *caller = caller_of(frames, frame);
        if (!caller || caller == Py_None) {
            kind = caller ? kind : FAILED;
            Py_XDECREF(caller);
            break;
        }
        Py_DECREF(frame);
        frame = caller;
        depth++;
    }
    Py_DECREF(frame);
    const int same = kind == FAILED ? -1 : is_at(frames, found, place);
    int failed = same < 0;
    if (same == 0 && !(failed = instruction_of(frames, found, &place->instruction))) {
        place->code = (PyObject *)frames->code((PyFrameObject *)found);
        place->thread = this_thread();
        PyObject *code = place->code;
        failed = give_number(self, place);
        Py_DECREF(code); /* the table keeps it */
        if (best != PROGRAM)
            place->code = NULL; /* other launches with this frame may have one of the program further outward */
    }
    Py_XDECREF(found);
    return failed ? -1 : 0;
}

/* The number of a place that is not next to the launcher, or not that of the kernel's last launch. Takes the reference
   to the frame next to the launcher. */
static int32_t __attribute__((noinline)) other_place(struct places *self, PyObject *frame, const struct kernel *kernel)
{
    struct place place = kernel->last;
    int launchers;
    if (search(self, frame, &place, &launchers))
        return FAILED;
    if (!is_same(&place, &kernel->last)) {
        struct kernel *of = kernel_at(self->tables.kernels, self->tables.kernel_room, kernel->object);
        if (of->object)
            of->last = place;
    }
    return place.number;
}

/* The number of the place of a launch whose launcher is as deep as at the kernel's last launch; EMPTY: it is not.

   It is if the innermost frame outside of launchers called the same module: what is further in is the launcher. */
static inline int32_t known_place(struct places *self, const struct kernel *kernel)
{
    const struct frames *frames = &self->frames;
    PyObject *frame = frame_at(frames, kernel->depth.outside);
    if (!frame)
        return no_frame();
    PyObject *called = called_at(frames, kernel->depth.called);
    int32_t number = called ? EMPTY : FAILED;
    Py_XDECREF(called);
    if (called == kernel->called) {
        const int same = is_at(frames, frame, &kernel->last);
        if (__builtin_expect(!same, 0))
            return other_place(self, frame, kernel);
        number = same > 0 ? kernel->last.number : FAILED;
    }
    Py_DECREF(frame);
    return number;
}

/* Search the whole stack for the place, and know from now on how deep the launcher is. */
static int32_t new_place(struct places *self, PyObject *object, uint64_t id)
{
    struct tables *tables = &self->tables;
    const struct frames *frames = &self->frames;
    PyObject *caller = frame_at(frames, frames->depths[0]);
    struct place place = {.code = NULL};
    int launchers;
    if (!caller || search(self, caller, &place, &launchers))
        return FAILED;
    if (launchers == 0 || launchers >= DEPTHS)
        return place.number;
    const struct depth depth = {frames->depths[launchers], frames->depths[launchers - 1]};
    PyObject *called = called_at(frames, depth.called);
    const int usual = called ? has_own_name(frames, depth.called, called) : -1;
    if (usual <= 0 || (2 * tables->kernel_count >= tables->kernel_room && more_kernels(tables))) {
        Py_XDECREF(called);
        if (usual > 0)
            PyErr_NoMemory();
        return usual ? FAILED : place.number;
    }
    struct kernel *kernel = kernel_at(tables->kernels, tables->kernel_room, object);
    PyObject *before = kernel->called;
    if (!kernel->object) {
        Py_INCREF(object);
        tables->kernel_count++;
    }
    *kernel = (struct kernel){object, id, depth, called, place};
    Py_XDECREF(before); /* may run Python, which may launch */
    return place.number;
}

/* Py_RETURN_NONE of Python 3.12's headers counts no reference, and this library also runs in Python 3.10. */
static PyObject *none(void)
{
    Py_INCREF(Py_None);
    return Py_None;
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
    return none();
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
    return none();
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
    PyObject *frame, *module, *kind;
    if (!PyArg_ParseTuple(arguments, "OOO:Places", &frame, &module, &kind))
        return NULL;
    struct places *self = (struct places *)PyType_GenericAlloc(type, 0);
    if (!self)
        return NULL;
    Py_INCREF(kind);
    self->kind = kind;
    if (open_frames(&self->frames, frame, module)) {
        Py_DECREF(self);
        return NULL;
    }
    self->places = PyList_New(0);
    if (!self->places || more_kernels(&self->tables) || more_places(&self->tables) || more_kinds(&self->tables)) {
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
    Py_XDECREF(self->kind);
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
