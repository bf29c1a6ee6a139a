/* What places.c reads of this thread's stack: only the stable ABI. Between launches the caches are cold, so Python's
   functions are called through pointers that lie side by side, and not through an object, an attribute or the linker's
   tables. Include after Python.h. */

#include <stdint.h>
#include <string.h>

enum { DEPTHS = 64 };

typedef PyObject *with_array(PyObject *, PyObject *const *, Py_ssize_t);
typedef PyObject *with_names(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);

/* How far outward the innermost frame outside of launchers is, as a number of Python, and the frame next to it: one
   less. */
struct depth {
    PyObject *outside, *called; /* borrowed from `depths` below */
};

struct frames {
    with_array *frame; /* sys._getframe; NULL: only its object is known */
    PyObject *frame_self;
    with_names *module; /* sys._getframemodulename, likewise */
    PyObject *module_self;
    getter instruction; /* f_lasti of a frame */
    void *closure;
    long (*number)(PyObject *, int *);
    PyCodeObject *(*code)(PyFrameObject *);
    getter back; /* f_back; NULL: Python 3.10 has it as another kind of attribute */
    void *back_closure;
    PyObject *back_name;
    PyObject *frame_object, *module_object; /* the latter NULL: this Python has none */
    PyObject *depths[DEPTHS];
};

/* This thread, by a number that no other living one has. */
static inline uintptr_t this_thread(void)
{
#if defined __x86_64__ && defined __linux__
    uintptr_t self; /* as pthread_self() returns */
    __asm__("mov %%fs:0, %0" : "=r"(self));
    return self;
#else
    return (uintptr_t)PyThread_get_thread_ident();
#endif
}

static inline PyObject *frame_at(const struct frames *frames, PyObject *depth)
{
    if (frames->frame)
        return frames->frame(frames->frame_self, &depth, 1);
    return PyObject_CallFunctionObjArgs(frames->frame_object, depth, NULL);
}

static PyObject *__attribute__((noinline)) called_by_object(const struct frames *frames, PyObject *depth)
{
    if (frames->module_object)
        return PyObject_CallFunctionObjArgs(frames->module_object, depth, NULL);
    PyObject *frame = frame_at(frames, depth);
    PyObject *code = frame ? (PyObject *)frames->code((PyFrameObject *)frame) : NULL;
    Py_XDECREF(frame);
    return code;
}

/* What tells the function so far outward: its module's name if Python gives that without a look at its frame, else its
   code. A new reference; identity counts. */
static inline PyObject *called_at(const struct frames *frames, PyObject *depth)
{
    return frames->module ? frames->module(frames->module_self, &depth, 1, NULL) : called_by_object(frames, depth);
}

/* The offset of the instruction that a frame runs. -1 and an exception: it failed. */
static inline int instruction_of(const struct frames *frames, PyObject *frame, int32_t *instruction)
{
    PyObject *number = frames->instruction(frame, frames->closure);
    int overflow;
    if (!number)
        return -1;
    *instruction = (int32_t)frames->number(number, &overflow);
    Py_DECREF(number);
    return 0;
}

/* The frame that called a frame, a new reference; None: none did. NULL and an exception: it failed. */
static inline PyObject *caller_of(const struct frames *frames, PyObject *frame)
{
    return frames->back ? frames->back(frame, frames->back_closure) : PyObject_GetAttr(frame, frames->back_name);
}

/* 1 if the function so far outward is called by the name of its module. 0: by that of another module, which
   functools.wraps() gave it. -1 and an exception: it failed. */
static int has_own_name(const struct frames *frames, PyObject *depth, const PyObject *called)
{
    if (!frames->module_object)
        return 1;
    PyObject *frame = frame_at(frames, depth);
    PyObject *globals = frame ? PyObject_GetAttrString(frame, "f_globals") : NULL;
    const int same = globals ? PyDict_GetItemString(globals, "__name__") == called : -1;
    Py_XDECREF(globals);
    Py_XDECREF(frame);
    return same;
}

/* The pointer of a built-in function whose C signature has these flags, else NULL. */
static PyCFunction pointer_of(PyObject *object, int flags)
{
    return PyCFunction_Check(object) && PyCFunction_GetFlags(object) == flags ? PyCFunction_GetFunction(object) : NULL;
}

/* How an object's type defines an attribute that C computes; NULL: it defines none of this name. */
static const PyGetSetDef *attribute_of(PyObject *object, const char *name)
{
    const PyGetSetDef *one = PyType_GetSlot(Py_TYPE(object), Py_tp_getset);
    while (one && one->name && strcmp(one->name, name))
        one++;
    return one && one->name ? one : NULL;
}

static int open_frames(struct frames *frames, PyObject *frame, PyObject *module)
{
    Py_INCREF(frame);
    frames->frame_object = frame;
    if ((frames->frame = (with_array *)(void (*)(void))pointer_of(frame, METH_FASTCALL)))
        frames->frame_self = PyCFunction_GetSelf(frame);
    if (module != Py_None) {
        Py_INCREF(module);
        frames->module_object = module;
        if ((frames->module = (with_names *)(void (*)(void))pointer_of(module, METH_FASTCALL | METH_KEYWORDS)))
            frames->module_self = PyCFunction_GetSelf(module);
    }
    for (int i = 0; i < DEPTHS; i++)
        if (!(frames->depths[i] = PyLong_FromLong(i)))
            return -1;
    PyObject *here = frame_at(frames, frames->depths[0]);
    if (!here)
        return -1;
    const PyGetSetDef *instruction = attribute_of(here, "f_lasti"), *back = attribute_of(here, "f_back");
    Py_DECREF(here);
    if (!instruction) {
        PyErr_SetString(PyExc_AttributeError, "f_lasti");
        return -1;
    }
    frames->instruction = instruction->get;
    frames->closure = instruction->closure;
    if (back) {
        frames->back = back->get;
        frames->back_closure = back->closure;
    }
    if (!(frames->back_name = PyUnicode_InternFromString("f_back")))
        return -1;
    frames->number = PyLong_AsLongAndOverflow;
    frames->code = PyFrame_GetCode;
    return 0;
}

static void close_frames(struct frames *frames)
{
    for (int i = 0; i < DEPTHS; i++)
        Py_XDECREF(frames->depths[i]);
    Py_XDECREF(frames->back_name);
    Py_XDECREF(frames->frame_object);
    Py_XDECREF(frames->module_object);
}
