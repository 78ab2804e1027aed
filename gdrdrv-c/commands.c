// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* The ioctl commands. gdrdrv_uapi.h documents each of them. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/uaccess.h>

#include "gdrdrv.h"

/* GET_INFO reports times in ticks; here a tick is a nanosecond. */
#define GDR_TICKS_PER_MS 1000000

union gdr_argument {
	u64 handle; /* arguments of commands on a pin begin with its handle */
	struct gdrdrv_pin_buffer pin_buffer;
	struct gdrdrv_unpin_buffer unpin_buffer;
	struct gdrdrv_get_cb_flag get_cb_flag;
	struct gdrdrv_get_info get_info;
	struct gdrdrv_get_info_v2 get_info_v2;
	struct gdrdrv_get_attr get_attr;
	struct gdrdrv_pin_buffer_v2 pin_buffer_v2;
	struct gdrdrv_req_mapping_type req_mapping_type;
	struct gdrdrv_get_version get_version;
};

struct gdr_command {
	unsigned int number;
	size_t size;
	int (*run)(struct gdr_file *file, union gdr_argument *arg, u64 **new_handle);
	/* A command on a pin has this instead of `run`. It is called with file->lock held. */
	int (*run_on_pin)(struct gdr_pin *pin, union gdr_argument *arg);
	bool reads; /* the argument has input */
	/*
	 * The argument has output. An argument without output is not copied back to the caller: a
	 * fault of that copy would make the command return EFAULT although it has succeeded.
	 */
	bool answers;
};

static int gdr_pin_buffer(struct gdr_file *file, union gdr_argument *arg, u64 **new_handle)
{
	struct gdrdrv_pin_buffer *a = &arg->pin_buffer;

	if (gdr_pages_can_persist() && (a->p2p_token || a->va_space)) {
		gdr_info("persistent mapping uses no tokens: pass 0 for both");
		return -EINVAL;
	}
	*new_handle = &a->handle;
	return gdr_pin_create(file, a->addr, a->size, false, &a->handle);
}

static int gdr_pin_buffer_v2(struct gdr_file *file, union gdr_argument *arg, u64 **new_handle)
{
	struct gdrdrv_pin_buffer_v2 *a = &arg->pin_buffer_v2;
	const bool force_pcie = a->flags & GDRDRV_PIN_FLAG_FORCE_PCIE;

	if (a->flags & ~GDRDRV_PIN_FLAG_FORCE_PCIE) {
		gdr_info("unknown pin flags %#x", a->flags);
		return -EINVAL;
	}
	if (force_pcie && !gdr_pages_can_force_pcie()) {
		gdr_info("FORCE_PCIE requires persistent mapping and a GPU driver of branch 570 or later");
		return -EINVAL;
	}
	*new_handle = &a->handle;
	return gdr_pin_create(file, a->addr, a->size, force_pcie, &a->handle);
}

static int gdr_unpin_buffer(struct gdr_file *file, union gdr_argument *arg, u64 **new_handle)
{
	return gdr_pin_remove(file, arg->unpin_buffer.handle);
}

static int gdr_get_cb_flag(struct gdr_pin *pin, union gdr_argument *arg)
{
	arg->get_cb_flag.flag = READ_ONCE(pin->fate) == GDR_REVOKED;
	return 0;
}

static int gdr_get_info_v2(struct gdr_pin *pin, union gdr_argument *arg)
{
	struct gdrdrv_get_info_v2 *a = &arg->get_info_v2;

	a->va = pin->va;
	a->mapped_size = pin->size;
	a->page_size = GDRDRV_GPU_PAGE_SIZE;
	a->tsc_khz = GDR_TICKS_PER_MS;
	a->tm_cycles = pin->pin_ns;
	a->mapping_type = gdr_map_type(pin);
	return 0;
}

/* Up to the type of the mapping, both structs have the same fields, so gdr_get_info_v2() can fill both. */
static_assert(offsetof(struct gdrdrv_get_info, mapped) == offsetof(struct gdrdrv_get_info_v2, mapping_type));

static int gdr_get_info(struct gdr_pin *pin, union gdr_argument *arg)
{
	gdr_get_info_v2(pin, arg);
	arg->get_info.wc_mapping = arg->get_info_v2.mapping_type == GDRDRV_MAPPING_TYPE_WC;
	arg->get_info.mapped = arg->get_info_v2.mapping_type != GDRDRV_MAPPING_TYPE_NONE;
	return 0;
}

static int gdr_get_attr(struct gdr_file *file, union gdr_argument *arg, u64 **new_handle)
{
	struct gdrdrv_get_attr *a = &arg->get_attr;

	if (a->attr == GDRDRV_ATTR_USE_PERSISTENT_MAPPING) {
		a->val = gdr_pages_can_persist();
	} else if (a->attr == GDRDRV_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE) {
		a->val = gdr_pages_can_force_pcie();
	} else {
		gdr_info("unknown attribute %u", a->attr);
		return -EINVAL;
	}
	return 0;
}

static int gdr_req_mapping_type(struct gdr_pin *pin, union gdr_argument *arg)
{
	const u32 type = arg->req_mapping_type.mapping_type;

	if (type > GDRDRV_MAPPING_TYPE_DEVICE)
		return -EINVAL;
	if (gdr_map_type(pin) != GDRDRV_MAPPING_TYPE_NONE)
		return -EBUSY;
	if (!gdr_map_can_have(pin, type))
		return -EOPNOTSUPP;
	pin->requested_type = type;
	return 0;
}

static int gdr_get_version(struct gdr_file *file, union gdr_argument *arg, u64 **new_handle)
{
	arg->get_version.gdrdrv_version = GDRDRV_VERSION(GDRDRV_MAJOR_VERSION, GDRDRV_MINOR_VERSION);
	arg->get_version.minimum_gdr_api_version =
		GDRDRV_VERSION(GDRDRV_MINIMUM_API_MAJOR_VERSION, GDRDRV_MINIMUM_API_MINOR_VERSION);
	return 0;
}

/* `size` is not taken from the command number, because some numbers encode the size of a pointer to the struct. */
#define GDR_COMMAND(NAME, name) .number = GDRDRV_IOC_##NAME, .size = sizeof(struct gdrdrv_##name)
#define GDR_INPUT(NAME, name) GDR_COMMAND(NAME, name), .reads = true, .run = gdr_##name
#define GDR_ON_PIN(NAME, name) GDR_COMMAND(NAME, name), .reads = true, .run_on_pin = gdr_##name

static const struct gdr_command gdr_commands[] = {
	{ GDR_INPUT(PIN_BUFFER, pin_buffer), .answers = true },
	{ GDR_INPUT(UNPIN_BUFFER, unpin_buffer) },
	{ GDR_ON_PIN(GET_CB_FLAG, get_cb_flag), .answers = true },
	{ GDR_ON_PIN(GET_INFO, get_info), .answers = true },
	{ GDR_ON_PIN(GET_INFO_V2, get_info_v2), .answers = true },
	{ GDR_INPUT(GET_ATTR, get_attr), .answers = true },
	{ GDR_INPUT(PIN_BUFFER_V2, pin_buffer_v2), .answers = true },
	{ GDR_ON_PIN(REQ_MAPPING_TYPE, req_mapping_type) },
	{ GDR_COMMAND(GET_VERSION, get_version), .run = gdr_get_version, .answers = true },
};

static const struct gdr_command *gdr_command(unsigned int number)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(gdr_commands); i++)
		if (gdr_commands[i].number == number)
			return &gdr_commands[i];
	return NULL;
}

static int gdr_run_on_pin(const struct gdr_command *command, struct gdr_file *file, union gdr_argument *arg)
{
	struct gdr_pin *pin;
	int err = -EINVAL;

	BUILD_BUG_ON(offsetof(struct gdrdrv_get_cb_flag, handle) || offsetof(struct gdrdrv_get_info, handle) ||
		     offsetof(struct gdrdrv_get_info_v2, handle) || offsetof(struct gdrdrv_req_mapping_type, handle));
	mutex_lock(&file->lock);
	pin = gdr_pin_find(file, arg->handle);
	if (pin)
		err = command->run_on_pin(pin, arg);
	mutex_unlock(&file->lock);
	return err;
}

long gdr_ioctl(struct file *filp, unsigned int number, unsigned long arg)
{
	struct gdr_file *file = filp->private_data;
	void __user *user = (void __user *)arg;
	const struct gdr_command *command;
	union gdr_argument argument;
	u64 *new_handle = NULL; /* points into the argument, to the handle of a new pin */
	int err;

	if (!gdr_owner_is_caller(file->owner)) {
		gdr_info("the device was opened by another process: open it in this one");
		return -EACCES;
	}
	command = gdr_command(number);
	if (!command) {
		gdr_info("unknown command %#x", number);
		return -ENOTTY;
	}
	if (command->reads && copy_from_user(&argument, user, command->size))
		return -EFAULT;
	err = command->run ? command->run(file, &argument, &new_handle) : gdr_run_on_pin(command, file, &argument);
	gdr_dbg("command %#x: %d", number, err);
	if (err || !command->answers)
		return err;
	if (copy_to_user(user, &argument, command->size)) {
		if (new_handle)
			gdr_pin_remove(file, *new_handle);
		return -EFAULT;
	}
	return 0;
}
