/* Tables of places.c: what made each launch. Include after Python.h and frames.h. */

#include <stdlib.h>
#include <string.h>

enum { FIRST_ROOM = 64, MOST_ROOM = 1 << 14, FIRST_LAUNCHES = 1 << 12, LINE = 64 };

/* Numbers of no place. FAILED: with an exception. */
enum { EMPTY = -1, FAILED = -2 };

/* code is kept alive, so that no other object has its address. */
struct place {
    PyObject *code; /* NULL: no place of the program */
    uintptr_t thread;
    int32_t instruction, number; /* number EMPTY: no place */
};

/* A cache line: all that a launch from the same place as the kernel's last one needs. */
struct kernel {
    PyObject *object; /* what add() takes: reading its value needs many cold lines. NULL: no kernel */
    uint64_t id;
    struct depth depth;
    PyObject *called; /* as called_at(): the launcher next to the frame outside of launchers */
    struct place last; /* a copy: `known` keeps its code alive */
};

/* Whose code it is. Kept alive. */
struct kind {
    PyObject *code; /* NULL: none */
    long kind;
};

struct launch {
    uint64_t kernel, number;
};

/* What each launch needs is last, beside what it needs of struct frames. */
struct tables {
    struct place *known; /* hash tables, at most half full; rooms are powers of two */
    size_t known_room, known_count, kernel_count, launch_room, kind_count;
    struct kind *kinds;
    size_t kind_room;
    struct kernel *kernels;
    size_t kernel_room;
    struct launch *launches;
    size_t launch_count;
};

static inline size_t mixed(uint64_t value)
{
    value *= UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(value >> 32);
}

/* Where a kernel is, or where it would be put. */
static inline struct kernel *kernel_at(struct kernel *table, size_t room, PyObject *object)
{
    size_t at = mixed((uintptr_t)object >> 4) & (room - 1);
    while (table[at].object && table[at].object != object)
        at = (at + 1) & (room - 1);
    return &table[at];
}

static inline int is_same(const struct place *one, const struct place *other)
{
    return (one->code == other->code) & (one->instruction == other->instruction) & (one->thread == other->thread); /* without branches: fewer lines of code */
}

static struct place *place_at(struct place *table, size_t room, const struct place *place)
{
    size_t at = mixed(((uintptr_t)place->code >> 4) + (uint64_t)place->instruction + place->thread) & (room - 1);
    while (table[at].number != EMPTY && !is_same(&table[at], place))
        at = (at + 1) & (room - 1);
    return &table[at];
}

/* Where a code object's kind is, or where it would be put. */
static inline struct kind *kind_at(struct kind *table, size_t room, const PyObject *code)
{
    size_t at = mixed((uintptr_t)code >> 4) & (room - 1);
    while (table[at].code && table[at].code != code)
        at = (at + 1) & (room - 1);
    return &table[at];
}

static void leave_kernels(struct kernel *table, size_t room)
{
    for (size_t i = 0; i < room; i++) {
        Py_XDECREF(table[i].object);
        Py_XDECREF(table[i].called);
    }
    free(table);
}

static void leave_kinds(struct kind *table, size_t room)
{
    for (size_t i = 0; i < room; i++)
        Py_XDECREF(table[i].code);
    free(table);
}

/* The room of the table that takes the place of a full one: at most MOST_ROOM, then it begins anew. */
static size_t next_room(size_t before)
{
    return before == MOST_ROOM ? before : before ? 2 * before : FIRST_ROOM;
}

/* Room for another kernel. If each launch passes another object, the table does not grow on, but is begun anew. */
static int more_kernels(struct tables *tables)
{
    struct kernel *old = tables->kernels;
    const size_t before = tables->kernel_room, room = next_room(before);
    struct kernel *table = aligned_alloc(LINE, room * sizeof *table);
    if (!table)
        return -1;
    memset(table, 0, room * sizeof *table);
    tables->kernels = table;
    tables->kernel_room = room;
    if (before == room) {
        tables->kernel_count = 0;
        leave_kernels(old, before);
        return 0;
    }
    for (size_t i = 0; i < before; i++)
        if (old[i].object)
            *kernel_at(table, room, old[i].object) = old[i];
    free(old);
    return 0;
}

/* Room for another code object. If a package makes code for each launch, the table is begun anew as well. */
static int more_kinds(struct tables *tables)
{
    struct kind *old = tables->kinds;
    const size_t before = tables->kind_room, room = next_room(before);
    struct kind *table = calloc(room, sizeof *table);
    if (!table)
        return -1;
    tables->kinds = table;
    tables->kind_room = room;
    if (before == room) {
        tables->kind_count = 0;
        leave_kinds(old, before);
        return 0;
    }
    for (size_t i = 0; i < before; i++)
        if (old[i].code)
            *kind_at(table, room, old[i].code) = old[i];
    free(old);
    return 0;
}

static int more_places(struct tables *tables)
{
    size_t room = tables->known_room ? 2 * tables->known_room : FIRST_ROOM;
    struct place *table = malloc(room * sizeof *table);
    if (!table)
        return -1;
    for (size_t i = 0; i < room; i++)
        table[i].number = EMPTY;
    for (size_t i = 0; i < tables->known_room; i++)
        if (tables->known[i].number != EMPTY)
            *place_at(table, room, &tables->known[i]) = tables->known[i];
    free(tables->known);
    tables->known = table;
    tables->known_room = room;
    return 0;
}

static int __attribute__((cold, noinline)) more_launches(struct tables *tables)
{
    size_t room = tables->launch_room ? 2 * tables->launch_room : FIRST_LAUNCHES;
    struct launch *launches = realloc(tables->launches, room * sizeof *launches);
    if (!launches)
        return -1;
    tables->launches = launches;
    tables->launch_room = room;
    return 0;
}

/* Without memory the launch is not recorded: then its kernel has no lines, which is a problem of the trace. */
static inline void append(struct tables *tables, uint64_t kernel, int32_t number)
{
    if (tables->launch_count < tables->launch_room || !more_launches(tables))
        tables->launches[tables->launch_count++] = (struct launch){kernel, (uint64_t)number};
}

static void leave_tables(struct tables *tables)
{
    for (size_t i = 0; i < tables->known_room; i++)
        if (tables->known[i].number != EMPTY)
            Py_DECREF(tables->known[i].code);
    free(tables->known);
    leave_kernels(tables->kernels, tables->kernel_room);
    leave_kinds(tables->kinds, tables->kind_room);
    free(tables->launches);
}
