/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Tracepoints. They are in /sys/kernel/tracing/events/gdrdrv, and `perf trace -e 'gdrdrv:*'` shows
 * them. They need functions that are GPL-only symbols, so a build for the proprietary GPU driver
 * has none.
 */
#ifdef GDR_NVIDIA_IS_OPENSOURCE

#undef TRACE_SYSTEM
#define TRACE_SYSTEM gdrdrv

#if !defined(GDR_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define GDR_TRACE_H

#include <linux/tracepoint.h>

#include "gdrdrv.h"

/* `id` identifies the pin in the whole module. `pid` is the number of the process that owns it. */
DECLARE_EVENT_CLASS(gdrdrv_pin_event,
	TP_PROTO(const struct gdr_pin *pin),
	TP_ARGS(pin),
	TP_STRUCT__entry(
		__field(u64, id)
		__field(u64, handle)
		__field(u64, va)
		__field(u64, size)
		__field(pid_t, pid)
	),
	TP_fast_assign(
		__entry->id = pin->id;
		__entry->handle = pin->handle;
		__entry->va = pin->va;
		__entry->size = pin->size;
		__entry->pid = pin->pid;
	),
	TP_printk("id=%llu pid=%d handle=%#llx va=%#llx size=%llu", __entry->id, __entry->pid, __entry->handle,
		  __entry->va, __entry->size)
);

/* A pin was created. */
DEFINE_EVENT(gdrdrv_pin_event, gdrdrv_pin, TP_PROTO(const struct gdr_pin *pin), TP_ARGS(pin));
/* A pin is being ended by UNPIN, close or exit. */
DEFINE_EVENT(gdrdrv_pin_event, gdrdrv_unpin, TP_PROTO(const struct gdr_pin *pin), TP_ARGS(pin));
/* A pin was mapped. */
DEFINE_EVENT(gdrdrv_pin_event, gdrdrv_map, TP_PROTO(const struct gdr_pin *pin), TP_ARGS(pin));
/* The GPU driver calls back, because the memory of a pin is being freed. */
DEFINE_EVENT(gdrdrv_pin_event, gdrdrv_revoke, TP_PROTO(const struct gdr_pin *pin), TP_ARGS(pin));

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>

#else

#define trace_gdrdrv_pin(pin) ((void)(pin))
#define trace_gdrdrv_unpin(pin) ((void)(pin))
#define trace_gdrdrv_map(pin) ((void)(pin))
#define trace_gdrdrv_revoke(pin) ((void)(pin))

#endif
