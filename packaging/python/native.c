/*
 * gdrcopy._native: mapped GPU memory, and words of it, as Python objects.
 *
 * Calls hold the interpreter's lock (GIL), so what a call has checked stays true until it returns. Long copies release
 * it, and are counted, because unpinning waits for them. Whatever has a buffer of a mapping keeps its lease, and a
 * leased mapping stays pinned.
 */

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include "gdrx.h"
#include "python_abi.h"

/* Copies of at least this size release the GIL. One of many takes as long as a cache line and its bytes. */
#define LONG_COPY 4096
#define LINE 64

#define FUNCTIONS(USE)                                                                                                       \
    USE(gdr_pin_buffer_v2) USE(gdr_map) USE(gdr_get_info_v2) USE(gdr_get_callback_flag) USE(gdr_unpin_buffer)                \
    USE(gdr_copy_to_mapping) USE(gdr_copy_from_mapping)                                                                      \
    USE(gdrx_attach_mapping) USE(gdrx_write_many) USE(gdrx_read_many)

/* Functions of the libraries in this package, which are loaded when they are first used. */
#define POINTER(name) __typeof__(&name) name;
static struct { FUNCTIONS(POINTER) } library;

struct memory;

/* An object that keeps the mapping, either its lease or the beginning of a word. */
struct holder {
    PyObject base;
    struct memory *memory; /* NULL in objects that programs make of the type of a lease */
};

struct word {
    struct holder holder;
    Py_ssize_t offset, size;
};

struct memory {
    PyObject base;
    gdr_t gdr;
    gdr_mh_t pin; /* if h is 0, it is closed */
    unsigned char *start;
    Py_ssize_t size, before; /* bytes from start on, and mapped bytes before it */
    struct gdrx_map map; /* of these bytes */
    bool writable, ends_with_memory;
    bool inherited; /* this is a forked child */
    struct holder *lease; /* while there is one, which keeps this object */
    unsigned copying; /* long copies that run */
    PyThread_type_lock idle; /* held while copying is not 0 */
    struct memory *next, **link; /* among all that are pinned */
};

static struct memory *pinned;
/* All interpreters have these types. One may import this again while another has objects of them. */
static PyTypeObject *memory_type, *lease_type, *word_type;

static PyObject *none(void)
{
    Py_IncRef(Py_None);
    return Py_None;
}

/* Raises Error for an errno value of a function, that of this interpreter, since each has its own modules. */
static PyObject *failed(const char *function, int number)
{
    PyObject *module = PyImport_ImportModule("gdrcopy._error"), *result;

    if (module == NULL)
        return NULL;
    result = PyObject_CallMethod(module, "check", "si", function, number);
    Py_DecRef(module);
    return result;
}

static bool is_open(struct memory *memory)
{
    if (memory->pin.h == 0)
        PyErr_SetString(PyExc_ValueError, "the mapping is closed: make another one");
    else if (memory->inherited)
        failed("use in a forked child", EACCES);
    else
        return true;
    return false;
}

static bool is_writable(struct memory *memory)
{
    if (!memory->writable)
        PyErr_SetString(PyExc_TypeError, "pass an object that is not read-only to write to it");
    return memory->writable;
}

/* Returns whether it is open, and its memory was not freed. The pin may still end after this look at it. */
static bool is_usable(struct memory *memory)
{
    int number = 0, freed = 0;

    if (!is_open(memory))
        return false;
    if (memory->ends_with_memory)
        number = library.gdr_get_callback_flag(memory->gdr, memory->pin, &freed);
    if (number != 0 || freed)
        failed("gdr_get_callback_flag", number ? number : EFAULT);
    return number == 0 && !freed;
}

/* Returns whether it is open, and has these bytes. */
static bool is_inside(struct memory *memory, Py_ssize_t offset, Py_ssize_t size)
{
    if (!is_open(memory))
        return false;
    if (size >= 0 && size <= memory->size - offset)
        return true;
    PyErr_Format(PyExc_ValueError, "choose a size from 0 to %zd at offset %zd, not %zd", memory->size - offset, offset, size);
    return false;
}

/* Comes before a copy that takes as long as one of this size, end_copy after it. */
static PyThreadState *begin_copy(struct memory *memory, Py_ssize_t size)
{
    if (size < LONG_COPY)
        return NULL;
    if (__atomic_fetch_add(&memory->copying, 1, __ATOMIC_ACQ_REL) == 0)
        PyThread_acquire_lock(memory->idle, WAIT_LOCK);
    return PyEval_SaveThread();
}

static void end_copy(struct memory *memory, PyThreadState *state)
{
    if (state == NULL)
        return;
    /* Before it waits for the GIL, which daemon threads never get again once the interpreter ends. */
    if (__atomic_sub_fetch(&memory->copying, 1, __ATOMIC_ACQ_REL) == 0)
        PyThread_release_lock(memory->idle);
    PyEval_RestoreThread(state);
}

/* Copies, if the mapping is still open, and the size suits. */
static bool copy(struct memory *memory, bool write, void *host, Py_ssize_t offset, Py_ssize_t size)
{
    gdr_mh_t pin = memory->pin; /* close() clears it while the GIL is released */
    unsigned char *mapped = memory->start + offset;
    PyThreadState *state;
    int number;

    if (!is_inside(memory, offset, size) || !is_usable(memory))
        return false;
    state = begin_copy(memory, size);
    if (write) {
        /* Stores through views may be in the CPU's write-combining buffers still. */
        __sync_synchronize();
        number = library.gdr_copy_to_mapping(pin, mapped, host, size);
    } else {
        number = library.gdr_copy_from_mapping(pin, host, mapped, size);
    }
    end_copy(memory, state);
    if (number != 0)
        failed(write ? "gdr_copy_to_mapping" : "gdr_copy_from_mapping", number);
    return number == 0;
}

/* Makes all copies, which are inside, if the mapping is still open. */
static bool copy_all(struct memory *memory, bool write, const struct gdrx_copy *copies, Py_ssize_t count)
{
    Py_ssize_t size = 0;
    PyThreadState *state;
    int number;

    if (!is_usable(memory))
        return false;
    for (Py_ssize_t index = 0; index < count && size < LONG_COPY; index++)
        size += LINE + copies[index].size;
    state = begin_copy(memory, size);
    if (write) {
        __sync_synchronize(); /* as in copy */
        number = library.gdrx_write_many(&memory->map, copies, count);
    } else {
        number = library.gdrx_read_many(&memory->map, copies, count);
    }
    end_copy(memory, state);
    if (number != 0)
        failed(write ? "gdrx_write_many" : "gdrx_read_many", number);
    return number == 0;
}

/* The value of an offset in the mapping; 0 for NULL. Converting it may run any program. */
static bool to_offset(struct memory *memory, PyObject *object, Py_ssize_t *offset)
{
    PyObject *number;

    *offset = 0;
    if (object == NULL)
        return true;
    number = PyNumber_Index(object);
    if (number == NULL)
        return false;
    *offset = PyNumber_AsSsize_t(number, NULL);
    if (*offset < 0 || *offset > memory->size) {
        PyErr_Format(PyExc_ValueError, "choose an offset from 0 to %zd, not %S", memory->size, number);
        *offset = -1;
    }
    Py_DecRef(number);
    return *offset >= 0;
}

/* Returns whether items of this format, in which names are between colons, are Python objects. Names of ctypes can have
 * colons, but its objects have a byte order before their O. */
static bool has_objects(const char *format)
{
    bool is_name = false;
    char before = 0;

    for (; format != NULL && *format != 0; before = *format++) {
        if (*format == ':')
            is_name = !is_name;
        else if (*format == 'O' && (!is_name || before == '<' || before == '>'))
            return true;
    }
    return false;
}

/* Returns whether object.dtype.hasobject is true. */
static bool has_object_dtype(PyObject *object)
{
    PyObject *dtype = PyObject_GetAttrString(object, "dtype");
    PyObject *answer = dtype ? PyObject_GetAttrString(dtype, "hasobject") : NULL;
    bool has = answer != NULL && PyObject_IsTrue(answer) == 1;

    PyErr_Clear();
    if (dtype != NULL)
        Py_DecRef(dtype);
    if (answer != NULL)
        Py_DecRef(answer);
    return has;
}

/* Gets a buffer of bytes, which are no references to Python objects. */
static bool get_buffer(PyObject *object, Py_buffer *buffer, int writable)
{
    bool objects;

    if (PyObject_GetBuffer(object, buffer, writable | PyBUF_ND | PyBUF_FORMAT) == 0) {
        objects = has_objects(buffer->format);
    } else {
        /* NumPy has no format for dates. */
        PyErr_Clear();
        if (PyObject_GetBuffer(object, buffer, writable) != 0)
            return false;
        objects = has_object_dtype(object);
    }
    if (objects) {
        PyBuffer_Release(buffer);
        PyErr_SetString(PyExc_TypeError, "pass a buffer without Python objects");
    }
    return !objects;
}

/* Copies a buffer of this size, or of any, if it is negative. */
static PyObject *copy_buffer(struct memory *memory, bool write, PyObject *object, PyObject *at, Py_ssize_t size)
{
    Py_buffer buffer;
    Py_ssize_t offset;
    bool copied = false;

    if (!to_offset(memory, at, &offset) || !get_buffer(object, &buffer, write ? PyBUF_SIMPLE : PyBUF_WRITABLE))
        return NULL;
    if (size >= 0 && size != buffer.len)
        PyErr_Format(PyExc_ValueError, "pass %zd bytes for this slice, not %zd", size, buffer.len);
    else
        copied = copy(memory, write, buffer.buf, offset, buffer.len);
    PyBuffer_Release(&buffer);
    return copied ? none() : NULL;
}

static PyObject *memory_write(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"data", "offset", NULL};
    struct memory *memory = (struct memory *)self;
    PyObject *data, *offset = NULL;

    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|O:write", names, &data, &offset) || !is_writable(memory))
        return NULL;
    return copy_buffer(memory, true, data, offset, -1);
}

static PyObject *memory_write_slice(PyObject *self, PyObject *arguments)
{
    struct memory *memory = (struct memory *)self;
    PyObject *data, *offset;
    Py_ssize_t size;

    if (!PyArg_ParseTuple(arguments, "OOn:_write_slice", &data, &offset, &size) || !is_writable(memory))
        return NULL;
    return copy_buffer(memory, true, data, offset, size);
}

static PyObject *memory_read_into(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"buffer", "offset", NULL};
    PyObject *buffer, *offset = NULL;

    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|O:read_into", names, &buffer, &offset))
        return NULL;
    return copy_buffer((struct memory *)self, false, buffer, offset, -1);
}

/* Bytes to be read from the offset on, this many, or all for None. Converting the length may run any program. */
static PyObject *new_bytes(struct memory *memory, Py_ssize_t offset, PyObject *length)
{
    Py_ssize_t size = memory->size - offset;

    if (length != Py_None) {
        length = PyNumber_Index(length);
        if (length == NULL)
            return NULL;
        size = PyNumber_AsSsize_t(length, NULL);
        Py_DecRef(length);
    }
    return is_inside(memory, offset, size) ? PyBytes_FromStringAndSize(NULL, size) : NULL;
}

static PyObject *memory_read_bytes(PyObject *self, PyObject *arguments)
{
    struct memory *memory = (struct memory *)self;
    PyObject *at, *length, *bytes;
    Py_ssize_t offset;

    if (!PyArg_ParseTuple(arguments, "OO:_read_bytes", &at, &length) || !to_offset(memory, at, &offset))
        return NULL;
    bytes = new_bytes(memory, offset, length);
    if (bytes != NULL && !copy(memory, false, PyBytes_AsString(bytes), offset, PyBytes_Size(bytes))) {
        Py_DecRef(bytes);
        return NULL;
    }
    return bytes;
}

/* One copy of a pair, (offset, data) or (offset, size), and the buffer of the data or of new bytes. Converting the pair may
 * run any program. */
static bool to_copy(struct memory *memory, bool write, PyObject *object, struct gdrx_copy *copy, Py_buffer *buffer)
{
    PyObject *pair = PySequence_Tuple(object), *bytes = NULL;
    Py_ssize_t offset;
    bool inside = false;

    if (pair == NULL)
        return false;
    if (PyTuple_Size(pair) != 2)
        PyErr_Format(PyExc_ValueError, "pass pairs of an offset and %s", write ? "data" : "a size");
    else if (to_offset(memory, PyTuple_GetItem(pair, 0), &offset) &&
             (write || (bytes = new_bytes(memory, offset, PyTuple_GetItem(pair, 1))) != NULL) &&
             get_buffer(write ? PyTuple_GetItem(pair, 1) : bytes, buffer, PyBUF_SIMPLE)) {
        *copy = (struct gdrx_copy){offset, buffer->buf, buffer->len};
        inside = is_inside(memory, offset, buffer->len);
        if (!inside)
            PyBuffer_Release(buffer);
    }
    if (bytes != NULL)
        Py_DecRef(bytes);
    Py_DecRef(pair);
    return inside;
}

/* A list of what the buffers are of. */
static PyObject *objects_of(const Py_buffer *buffers, Py_ssize_t count)
{
    PyObject *objects = PyList_New(count);

    for (Py_ssize_t index = 0; objects != NULL && index < count; index++) {
        Py_IncRef(buffers[index].obj);
        PyList_SetItem(objects, index, buffers[index].obj);
    }
    return objects;
}

/* Makes a copy of each pair. Nothing is copied before all of them are known. */
static PyObject *copy_pairs(struct memory *memory, bool write, PyObject *iterable)
{
    PyObject *pairs = PySequence_Tuple(iterable), *result = NULL;
    Py_ssize_t count, known = 0;
    struct gdrx_copy *copies;
    Py_buffer *buffers;

    if (pairs == NULL)
        return NULL;
    count = PyTuple_Size(pairs);
    copies = PyMem_Malloc(count * sizeof *copies);
    buffers = PyMem_Malloc(count * sizeof *buffers);
    if (copies == NULL || buffers == NULL)
        PyErr_NoMemory();
    else
        while (known < count && to_copy(memory, write, PyTuple_GetItem(pairs, known), &copies[known], &buffers[known]))
            known++;
    if (!PyErr_Occurred() && copy_all(memory, write, copies, count))
        result = write ? none() : objects_of(buffers, count);
    while (known > 0)
        PyBuffer_Release(&buffers[--known]);
    PyMem_Free(buffers);
    PyMem_Free(copies);
    Py_DecRef(pairs);
    return result;
}

static PyObject *memory_write_many(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"items", NULL};
    struct memory *memory = (struct memory *)self;
    PyObject *items;

    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O:write_many", names, &items) || !is_writable(memory))
        return NULL;
    return copy_pairs(memory, true, items);
}

static PyObject *memory_read_many(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"ranges", NULL};
    PyObject *ranges;

    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O:read_many", names, &ranges))
        return NULL;
    return copy_pairs((struct memory *)self, false, ranges);
}

/* Copies each item of an array to or from its offset, an int64 or uint64. Other threads may store to the offsets, so
 * each is loaded once, and then compared. */
static bool copy_items(struct memory *memory, bool write, const Py_buffer *offsets, const Py_buffer *items)
{
    const volatile struct { uint64_t value; } __attribute__((packed)) *places = offsets->buf;
    Py_ssize_t count = offsets->len / (Py_ssize_t)sizeof *places, size = count ? items->len / count : 0;
    struct gdrx_copy *copies;
    bool copied = false;

    if (!is_open(memory))
        return false;
    if (size > memory->size || count * size != items->len) {
        PyErr_Format(PyExc_ValueError, "pass items of at most %zd bytes, not %zd", memory->size, size);
        return false;
    }
    copies = PyMem_Malloc(count * sizeof *copies);
    if (copies == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t index = 0; index < count; index++) {
        size_t offset = places[index].value;

        copies[index] = (struct gdrx_copy){offset, (char *)items->buf + index * size, size};
        if (offset > (size_t)(memory->size - size)) {
            PyErr_Format(PyExc_ValueError,
                         strchr("LQ", *offsets->format) ? "choose offsets from 0 to %zd for items of %zd bytes, not %llu"
                                                        : "choose offsets from 0 to %zd for items of %zd bytes, not %lld",
                         memory->size - size, size, (unsigned long long)offset);
            goto end;
        }
    }
    copied = copy_all(memory, write, copies, count);
end:
    PyMem_Free(copies);
    return copied;
}

static PyObject *memory_copy_items(PyObject *self, PyObject *arguments)
{
    struct memory *memory = (struct memory *)self;
    PyObject *places, *array;
    Py_buffer offsets, items;
    bool copied = false;
    int write;

    if (!PyArg_ParseTuple(arguments, "OOp:_copy_items", &places, &array, &write) || (write && !is_writable(memory)) ||
        PyObject_GetBuffer(places, &offsets, PyBUF_ND | PyBUF_FORMAT) != 0)
        return NULL;
    if (PyObject_GetBuffer(array, &items, write ? PyBUF_SIMPLE : PyBUF_WRITABLE) == 0) {
        copied = copy_items(memory, write, &offsets, &items);
        PyBuffer_Release(&items);
    }
    PyBuffer_Release(&offsets);
    return copied ? none() : NULL;
}

static PyObject *memory_flush(PyObject *self, PyObject *arguments)
{
    char byte;

    (void)arguments;
    return copy((struct memory *)self, false, &byte, 0, 1) ? none() : NULL;
}

static void unlink_memory(struct memory *memory)
{
    *memory->link = memory->next;
    if (memory->next != NULL)
        memory->next->link = memory->link;
}

static PyObject *memory_pin(PyObject *self, PyObject *arguments)
{
    struct memory *memory = (struct memory *)self;
    unsigned long long gdr, address;
    Py_ssize_t size, page_size, before;
    unsigned flags;
    int writable, ends_with_memory, number;
    const char *function = "gdr_pin_buffer_v2";
    gdr_mh_t pin = {0};
    gdr_info_v2_t info;
    void *mapped;
    PyThreadState *state;

    if (!PyArg_ParseTuple(arguments, "KKnnIpp:_pin", &gdr, &address, &size, &page_size, &flags, &writable, &ends_with_memory))
        return NULL;
    if (memory->idle != NULL)
        return PyErr_Format(PyExc_TypeError, "make another Mapping: a Mapping has one memory");
    memory->idle = PyThread_allocate_lock();
    if (memory->idle == NULL)
        return PyErr_NoMemory();

    /* Pins begin with a page to be mapped. The rest of the page is never touched. */
    before = address % page_size;
    state = PyEval_SaveThread();
    number = library.gdr_pin_buffer_v2((gdr_t)gdr, address - before, before + size, flags, &pin);
    if (number == 0) {
        function = "gdr_map";
        number = library.gdr_map((gdr_t)gdr, pin, &mapped, before + size);
    }
    if (number == 0) {
        function = "gdr_get_info_v2";
        number = library.gdr_get_info_v2((gdr_t)gdr, pin, &info);
    }
    if (number == 0) {
        function = "gdrx_attach_mapping";
        mapped = (unsigned char *)mapped + before;
        number = library.gdrx_attach_mapping(&memory->map, info.mapping_type, info.mapped_size, mapped, size);
    }
    if (number != 0 && pin.h != 0)
        library.gdr_unpin_buffer((gdr_t)gdr, pin);
    PyEval_RestoreThread(state);
    if (number != 0)
        return failed(function, number);

    memory->gdr = (gdr_t)gdr;
    memory->pin = pin;
    memory->start = mapped;
    memory->size = size;
    memory->before = before;
    memory->writable = writable;
    memory->ends_with_memory = ends_with_memory;
    memory->next = pinned;
    memory->link = &pinned;
    if (pinned != NULL)
        pinned->link = &memory->next;
    pinned = memory;
    return none();
}

static PyObject *memory_unpin(PyObject *self, PyObject *arguments)
{
    struct memory *memory = (struct memory *)self;
    PyThreadState *state;
    gdr_mh_t pin;
    int number;

    (void)arguments;
    if (memory->pin.h == 0 || memory->inherited)
        return PyBool_FromLong(false);
    if (memory->lease != NULL)
        return PyErr_Format(PyExc_BufferError, "delete all views of the mapping before it is closed");
    /* No copy begins from here on. */
    pin = memory->pin;
    memory->pin.h = 0;
    state = PyEval_SaveThread();
    PyThread_acquire_lock(memory->idle, WAIT_LOCK);
    PyThread_release_lock(memory->idle);
    number = library.gdr_unpin_buffer(memory->gdr, pin);
    PyEval_RestoreThread(state);
    if (number != 0) {
        memory->pin = pin;
        return failed("gdr_unpin_buffer", number);
    }
    unlink_memory(memory);
    return PyBool_FromLong(true);
}

static PyObject *memory_closed(PyObject *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(((struct memory *)self)->pin.h == 0);
}

static void free_object(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DecRef((PyObject *)type);
}

static void memory_dealloc(PyObject *self)
{
    struct memory *memory = (struct memory *)self;

    /* No copy is running, and no view exists, since they would keep it. */
    if (memory->pin.h != 0) {
        if (!memory->inherited)
            library.gdr_unpin_buffer(memory->gdr, memory->pin);
        unlink_memory(memory);
    }
    if (memory->idle != NULL)
        PyThread_free_lock(memory->idle);
    free_object(self);
}

/* Allocates an object that keeps the mapping. That may collect garbage, and so run any program. */
static struct holder *new_holder(PyTypeObject *type, struct memory *memory)
{
    struct holder *holder = (struct holder *)PyType_GenericAlloc(type, 0);

    if (holder != NULL) {
        holder->memory = memory;
        Py_IncRef(&memory->base);
    }
    return holder;
}

static int holder_traverse(PyObject *self, visitproc visit, void *argument)
{
    struct holder *holder = (struct holder *)self;
    int result = holder->memory ? visit(&holder->memory->base, argument) : 0;

    return result ? result : visit((PyObject *)Py_TYPE(self), argument);
}

static void holder_dealloc(PyObject *self)
{
    struct holder *holder = (struct holder *)self;
    struct memory *memory = holder->memory;

    PyObject_GC_UnTrack(self);
    if (memory != NULL) {
        if (memory->lease == holder)
            memory->lease = NULL;
        Py_DecRef(&memory->base);
    }
    free_object(self);
}

static int memory_get_buffer(PyObject *self, Py_buffer *view, int flags)
{
    struct memory *memory = (struct memory *)self;
    struct holder *lease = memory->lease ? NULL : new_holder(lease_type, memory), *unused = NULL;
    int result = -1;

    if (view != NULL)
        view->obj = NULL;
    if (memory->lease != NULL) { /* maybe since that allocation */
        unused = lease;
        lease = memory->lease;
        Py_IncRef(&lease->base);
    }
    if (lease == NULL)
        return -1;
    if (memory->map.type == GDR_MAPPING_TYPE_DEVICE) {
        PyErr_SetString(PyExc_BufferError, "use read and write: this memory is mapped for aligned accesses only");
    } else if (is_open(memory)) {
        /* The exporter is the lease. So what keeps only the exporter, as torch.frombuffer does, keeps the mapping. */
        memory->lease = lease;
        result = PyBuffer_FillInfo(view, &lease->base, memory->start, memory->size, !memory->writable, flags);
    }
    Py_DecRef(&lease->base);
    if (unused != NULL)
        Py_DecRef(&unused->base);
    return result;
}

/* Nothing is to do, but NumPy keeps the buffer only of types that have this function. */
static void memory_release_buffer(PyObject *self, Py_buffer *view)
{
    (void)self, (void)view;
}

static PyObject *word_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"mapping", "offset", "size", NULL};
    struct memory *memory;
    struct word *word;
    PyObject *at;
    Py_ssize_t offset, size;

    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!On:Word", names, memory_type, &memory, &at, &size) ||
        !to_offset(memory, at, &offset) || !is_open(memory))
        return NULL;
    if (size != 1 && size != 2 && size != 4 && size != 8)
        return PyErr_Format(PyExc_ValueError, "choose a word of 1, 2, 4 or 8 bytes, not %zd", size);
    if (size > memory->size - offset || (uintptr_t)(memory->start + offset) % size != 0)
        return PyErr_Format(PyExc_ValueError,
                            "choose an offset whose address is a multiple of %zd, and %zd bytes before the end, not %zd of %zd",
                            size, size, offset, memory->size);
    word = (struct word *)new_holder(type, memory);
    if (word != NULL) {
        word->offset = offset;
        word->size = size;
    }
    return (PyObject *)word;
}

static PyObject *word_load(PyObject *self, PyObject *arguments)
{
    struct word *word = (struct word *)self;
    uint64_t value = 0;

    (void)arguments;
    return copy(word->holder.memory, false, &value, word->offset, word->size) ? PyLong_FromUnsignedLongLong(value) : NULL;
}

static PyObject *word_store(PyObject *self, PyObject *object)
{
    struct word *word = (struct word *)self;
    PyObject *number = PyNumber_Index(object);
    uint64_t value;

    if (number == NULL)
        return NULL;
    value = PyLong_AsUnsignedLongLong(number);
    Py_DecRef(number);
    if (value == UINT64_MAX && PyErr_Occurred())
        return NULL;
    if (word->size < 8 && value >> (8 * word->size) != 0)
        return PyErr_Format(PyExc_OverflowError, "choose a value of at most %zd bytes", word->size);
    /* All arches of the package are little-endian, so the value's first bytes are the word. */
    if (!is_writable(word->holder.memory) || !copy(word->holder.memory, true, &value, word->offset, word->size))
        return NULL;
    return none();
}

/* In a forked child, the library's mappings are absent. Reserves their addresses, so that views raise SIGSEGV, and never
 * show memory that is mapped there later. */
static PyObject *forked(PyObject *module, PyObject *arguments)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;

    (void)module, (void)arguments;
    for (struct memory *memory = pinned; memory != NULL; memory = memory->next) {
        memory->inherited = true;
        mmap(memory->start - memory->before, memory->before + memory->size, PROT_NONE, flags, -1, 0);
    }
    return none();
}

static void *find(PyObject *address_of, const char *name)
{
    PyObject *number = PyObject_CallFunction(address_of, "s", name);
    void *address;

    if (number == NULL)
        return NULL;
    address = PyLong_AsVoidPtr(number);
    Py_DecRef(number);
    return address;
}

static PyObject *bind(PyObject *module, PyObject *arguments)
{
    PyObject *address_of;

    (void)module;
    if (!PyArg_ParseTuple(arguments, "O:bind", &address_of))
        return NULL;
#define FIND(name)                                                                                                           \
    if ((*(void **)&library.name = find(address_of, #name)) == NULL)                                                         \
        return NULL;
    FUNCTIONS(FIND)
    return none();
}

static PyMethodDef memory_methods[] = {
    {"write", (PyCFunction)(void *)memory_write, METH_VARARGS | METH_KEYWORDS,
     "Writes the bytes of data, any contiguous object with the buffer protocol: bytes, a NumPy array.\n\n"
     "The data reaches the GPU after all that this thread wrote before, through views too. 1, 2, 4 or 8 bytes to an\n"
     "aligned address are one store."},
    {"read_into", (PyCFunction)(void *)memory_read_into, METH_VARARGS | METH_KEYWORDS,
     "Fills a contiguous, writable object with the buffer protocol: a bytearray, a NumPy array."},
    {"write_many", (PyCFunction)(void *)memory_write_many, METH_VARARGS | METH_KEYWORDS,
     "Makes a write of each (offset, data), with one fence: together they are ordered and reach the GPU as one write\n"
     "does, among each other in any order. So write the data by one call, and the flag that announces it by the next.\n\n"
     "Nothing is written if one of them is refused."},
    {"read_many", (PyCFunction)(void *)memory_read_many, METH_VARARGS | METH_KEYWORDS,
     "Returns the bytes of each (offset, size), in the time of a few reads: their loads overlap.\n\n"
     "No byte is older than the call. Among each other the reads have no order, and none is a single load, however small:\n"
     "read a flag by word(), before the call. Nothing is read if one of them is refused."},
    {"flush", memory_flush, METH_NOARGS,
     "Waits until all that this thread stored through views has arrived at the GPU. Loads through views that follow are\n"
     "fresh."},
    {"_read_bytes", memory_read_bytes, METH_VARARGS, NULL},
    {"_write_slice", memory_write_slice, METH_VARARGS, NULL},
    {"_copy_items", memory_copy_items, METH_VARARGS, NULL},
    {"_pin", memory_pin, METH_VARARGS, NULL},
    {"_unpin", memory_unpin, METH_NOARGS, "Return whether there was something to unpin; not if closed, nor in a forked child."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef memory_properties[] = {
    {"closed", memory_closed, NULL, "True if close() was called.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot memory_slots[] = {
    {Py_tp_doc, "Mapped GPU memory: the accesses of a Mapping."},
    {Py_tp_dealloc, memory_dealloc},
    {Py_tp_methods, memory_methods},
    {Py_tp_getset, memory_properties},
    {Py_bf_getbuffer, memory_get_buffer},
    {Py_bf_releasebuffer, memory_release_buffer},
    {0, NULL},
};

static PyType_Slot lease_slots[] = {
    {Py_tp_doc, "Keeps a Mapping open: views of it have it as their base."},
    {Py_tp_dealloc, holder_dealloc},
    {Py_tp_traverse, holder_traverse},
    {0, NULL},
};

static PyMethodDef word_methods[] = {
    {"load", word_load, METH_NOARGS,
     "Reads it by one load, a PCIe round trip. The value is no older than the call, and what the thread reads by later\n"
     "calls is no older than the value."},
    {"store", word_store, METH_O,
     "Writes it by one store, which reaches the GPU after all that this thread wrote before, through views too."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot word_slots[] = {
    {Py_tp_doc, "Word(mapping, offset, size)\n--\n\n"
                "An unsigned integer of 1, 2, 4 or 8 bytes in a Mapping, at an aligned address: a flag, a counter. The GPU\n"
                "and the CPU see old or new values, never a mix. It fails once the mapping is closed."},
    {Py_tp_new, word_new},
    {Py_tp_dealloc, holder_dealloc},
    {Py_tp_traverse, holder_traverse},
    {Py_tp_methods, word_methods},
    {0, NULL},
};

#define SPEC(name, type, flag, slots) {name, sizeof(struct type), 0, Py_TPFLAGS_DEFAULT | flag, slots}
static PyType_Spec memory_spec = SPEC("gdrcopy._native.Memory", memory, Py_TPFLAGS_BASETYPE, memory_slots);
static PyType_Spec lease_spec = SPEC("gdrcopy.Lease", holder, Py_TPFLAGS_HAVE_GC, lease_slots);
static PyType_Spec word_spec = SPEC("gdrcopy.Word", word, Py_TPFLAGS_HAVE_GC, word_slots);

static PyMethodDef functions[] = {
    {"bind", bind, METH_VARARGS, NULL},
    {"forked", forked, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef module_definition = {
    .m_base = PyModuleDef_HEAD_INIT, .m_name = "gdrcopy._native", .m_size = -1, .m_methods = functions};

static bool make_type(PyTypeObject **type, PyType_Spec *spec)
{
    if (*type == NULL)
        *type = (PyTypeObject *)PyType_FromSpec(spec);
    return *type != NULL;
}

PyMODINIT_FUNC PyInit__native(void)
{
    PyObject *module = PyModule_Create2(&module_definition, PYTHON_API_VERSION);

    if (module == NULL || !make_type(&memory_type, &memory_spec) || !make_type(&lease_type, &lease_spec) ||
        !make_type(&word_type, &word_spec))
        return NULL;
    /* The module takes a reference to each. */
    Py_IncRef((PyObject *)memory_type);
    Py_IncRef((PyObject *)word_type);
    if (PyModule_AddObject(module, "Memory", (PyObject *)memory_type) != 0 ||
        PyModule_AddObject(module, "Word", (PyObject *)word_type) != 0)
        return NULL;
    return module;
}
