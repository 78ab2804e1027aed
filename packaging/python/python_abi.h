/*
 * Declarations of CPython's stable ABI for native.c. Python.h has it too, but a build with Python.h needs the
 * development files of a Python for the target's arch. It must be one of 3.11 or later, because buffers are in the
 * stable ABI since 3.11. In 3.9 and 3.10 they have the same layout and functions, which can no longer change. A test
 * compiles native.c with both.
 */

#ifndef PYTHON_ABI_H
#define PYTHON_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifndef Py_PYTHON_H

typedef ptrdiff_t Py_ssize_t;
typedef struct _typeobject PyTypeObject;
typedef struct _object {
    Py_ssize_t ob_refcnt;
    PyTypeObject *ob_type;
} PyObject;
typedef struct _ts PyThreadState;
typedef void *PyThread_type_lock;

typedef struct {
    void *buf;
    PyObject *obj;
    Py_ssize_t len, itemsize;
    int readonly, ndim;
    char *format;
    Py_ssize_t *shape, *strides, *suboffsets;
    void *internal;
} Py_buffer;

typedef PyObject *(*PyCFunction)(PyObject *, PyObject *);
typedef void (*freefunc)(void *);
typedef int (*visitproc)(PyObject *, void *);

typedef struct {
    const char *ml_name;
    PyCFunction ml_meth;
    int ml_flags;
    const char *ml_doc;
} PyMethodDef;

typedef struct {
    const char *name;
    PyObject *(*get)(PyObject *, void *);
    int (*set)(PyObject *, PyObject *, void *);
    const char *doc;
    void *closure;
} PyGetSetDef;

typedef struct {
    int slot;
    void *pfunc;
} PyType_Slot;

typedef struct {
    const char *name;
    int basicsize, itemsize;
    unsigned flags;
    PyType_Slot *slots;
} PyType_Spec;

typedef struct {
    PyObject ob_base;
    PyObject *(*m_init)(void);
    Py_ssize_t m_index;
    PyObject *m_copy;
} PyModuleDef_Base;

typedef struct {
    PyModuleDef_Base m_base;
    const char *m_name, *m_doc;
    Py_ssize_t m_size;
    PyMethodDef *m_methods;
    PyType_Slot *m_slots;
    void *m_traverse, *m_clear, *m_free;
} PyModuleDef;

#define PyModuleDef_HEAD_INIT {{1, NULL}, NULL, 0, NULL}
#define PYTHON_API_VERSION 1013
#define METH_VARARGS 1
#define METH_KEYWORDS 2
#define METH_NOARGS 4
#define METH_O 8
#define PyBUF_SIMPLE 0
#define PyBUF_WRITABLE 1
#define PyBUF_FORMAT 4
#define PyBUF_ND 8
#define WAIT_LOCK 1
#define Py_TPFLAGS_DEFAULT (1UL << 18)
#define Py_TPFLAGS_BASETYPE (1UL << 10)
#define Py_TPFLAGS_HAVE_GC (1UL << 14)
#define Py_bf_getbuffer 1
#define Py_bf_releasebuffer 2
#define Py_tp_dealloc 52
#define Py_tp_doc 56
#define Py_tp_methods 64
#define Py_tp_new 65
#define Py_tp_traverse 71
#define Py_tp_getset 73
#define Py_tp_free 74
#define Py_TYPE(object) ((object)->ob_type)
#define Py_None (&_Py_NoneStruct)
#define PyMODINIT_FUNC __attribute__((visibility("default"))) PyObject *

/* Python 3.13 declares the names as char *const *. */
int PyArg_ParseTupleAndKeywords(PyObject *, PyObject *, const char *, char **, ...);

#endif

extern PyObject _Py_NoneStruct;
extern PyObject *PyExc_BufferError, *PyExc_OverflowError, *PyExc_TypeError, *PyExc_ValueError;

int PyArg_ParseTuple(PyObject *, const char *, ...);
PyObject *PyBool_FromLong(long);
int PyBuffer_FillInfo(Py_buffer *, PyObject *, void *, Py_ssize_t, int, int);
void PyBuffer_Release(Py_buffer *);
char *PyBytes_AsString(PyObject *);
PyObject *PyBytes_FromStringAndSize(const char *, Py_ssize_t);
Py_ssize_t PyBytes_Size(PyObject *);
void PyErr_Clear(void);
PyObject *PyErr_Format(PyObject *, const char *, ...);
PyObject *PyErr_NoMemory(void);
PyObject *PyErr_Occurred(void);
void PyErr_SetString(PyObject *, const char *);
void PyEval_RestoreThread(PyThreadState *);
PyThreadState *PyEval_SaveThread(void);
PyObject *PyImport_ImportModule(const char *);
PyObject *PyList_New(Py_ssize_t);
int PyList_SetItem(PyObject *, Py_ssize_t, PyObject *);
unsigned long long PyLong_AsUnsignedLongLong(PyObject *);
void *PyLong_AsVoidPtr(PyObject *);
PyObject *PyLong_FromUnsignedLongLong(unsigned long long);
void PyMem_Free(void *);
void *PyMem_Malloc(size_t);
int PyModule_AddObject(PyObject *, const char *, PyObject *);
PyObject *PyModule_Create2(PyModuleDef *, int);
Py_ssize_t PyNumber_AsSsize_t(PyObject *, PyObject *);
PyObject *PyNumber_Index(PyObject *);
PyObject *PyObject_CallFunction(PyObject *, const char *, ...);
PyObject *PyObject_CallMethod(PyObject *, const char *, const char *, ...);
void PyObject_GC_UnTrack(void *);
PyObject *PyObject_GetAttrString(PyObject *, const char *);
int PyObject_GetBuffer(PyObject *, Py_buffer *, int);
int PyObject_IsTrue(PyObject *);
PyObject *PySequence_Tuple(PyObject *);
int PyThread_acquire_lock(PyThread_type_lock, int);
PyThread_type_lock PyThread_allocate_lock(void);
void PyThread_free_lock(PyThread_type_lock);
void PyThread_release_lock(PyThread_type_lock);
PyObject *PyTuple_GetItem(PyObject *, Py_ssize_t);
Py_ssize_t PyTuple_Size(PyObject *);
PyObject *PyType_FromSpec(PyType_Spec *);
PyObject *PyType_GenericAlloc(PyTypeObject *, Py_ssize_t);
void *PyType_GetSlot(PyTypeObject *, int);
void Py_DecRef(PyObject *);
void Py_IncRef(PyObject *);

#endif
