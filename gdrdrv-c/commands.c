// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* The nine ioctl commands. gdrdrv_uapi.h documents each of them. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/uaccess.h>

#include "gdrdrv.h"

/* GET_INFO reports times in ticks; here a tick is a nanosecond. */
#define GDR_TICKS_PER_MS 1000000

union gdr_argument {
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
	int (*run)(struct gdr_file *file, union gdr_argument *arg);
	bool reads;     /* has input in the argument */
	bool answers;   /* has output in it; the other commands must not fail once they are done */
	size_t handle;  /* offset of a new handle in the argument: if writing that fails, that pin is undone; else 0 */
};

static int gdr_pin_buffer(struct gdr_file *file, union gdr_argument *arg)
{
	struct gdrdrv_pin_buffer *a = &arg->pin_buffer;
	const struct gdr_pin_request request = {
		.addr = a->addr,
		.size = a->size,
	};

	if (gdr_pages_can_persist() && (a->p2p_token || a->va_space)) {
		gdr_info("persistent mapping uses no tokens: pass 0 for both");
		return -EINVAL;
	}
	return gdr_pin_create(file, &request, &a->handle);
}

static int gdr_pin_buffer_v2(struct gdr_file *file, union gdr_argument *arg)
{
	struct gdrdrv_pin_buffer_v2 *a = &arg->pin_buffer_v2;
	const struct gdr_pin_request request = {
		.addr = a->addr,
		.size = a->size,
		.force_pcie = a->flags & GDRDRV_PIN_FLAG_FORCE_PCIE,
	};

	if (a->flags & ~GDRDRV_PIN_FLAG_FORCE_PCIE) {
		gdr_info("unknown pin flags %#x", a->flags);
		return -EINVAL;
	}
	if (request.force_pcie && !gdr_pages_can_force_pcie()) {
		gdr_info("FORCE_PCIE requires persistent mapping and a GPU driver of branch 570 or later");
		return -EINVAL;
	}
	return gdr_pin_create(file, &request, &a->handle);
}

static int gdr_unpin_buffer(struct gdr_file *file, union gdr_argument *arg)
{
	return gdr_pin_remove(file, arg->unpin_buffer.handle);
}

static int gdr_get_cb_flag(struct gdr_file *file, union gdr_argument *arg)
{
	struct gdrdrv_get_cb_flag *a = &arg->get_cb_flag;
	struct gdr_pin *pin;

	mutex_lock(&file->lock);
	pin = gdr_pin_find(file, a->handle);
	if (pin)
		a->flag = READ_ONCE(pin->fate) == GDR_REVOKED;
	mutex_unlock(&file->lock);
	return pin ? 0 : -EINVAL;
}

static int gdr_get_info_v2(struct gdr_file *file, union gdr_argument *arg)
{
	struct gdrdrv_get_info_v2 *a = &arg->get_info_v2;
	struct gdr_pin *pin;

	mutex_lock(&file->lock);
	pin = gdr_pin_find(file, a->handle);
	if (pin) {
		a->va = pin->va;
		a->mapped_size = pin->size;
		a->page_size = GDRDRV_GPU_PAGE_SIZE;
		a->tsc_khz = GDR_TICKS_PER_MS;
		a->tm_cycles = pin->pin_ns;
		a->mapping_type = gdr_map_type(pin);
	}
	mutex_unlock(&file->lock);
	return pin ? 0 : -EINVAL;
}

static int gdr_get_info(struct gdr_file *file, union gdr_argument *arg)
{
	union gdr_argument v2 = { .get_info_v2.handle = arg->get_info.handle };
	int err = gdr_get_info_v2(file, &v2);

	if (err)
		return err;
	arg->get_info = (struct gdrdrv_get_info){
		.handle = v2.get_info_v2.handle,
		.va = v2.get_info_v2.va,
		.mapped_size = v2.get_info_v2.mapped_size,
		.page_size = v2.get_info_v2.page_size,
		.tsc_khz = v2.get_info_v2.tsc_khz,
		.tm_cycles = v2.get_info_v2.tm_cycles,
		.mapped = v2.get_info_v2.mapping_type != GDRDRV_MAPPING_TYPE_NONE,
		.wc_mapping = v2.get_info_v2.mapping_type == GDRDRV_MAPPING_TYPE_WC,
	};
	return 0;
}

static int gdr_get_attr(struct gdr_file *file, union gdr_argument *arg)
{
	struct gdrdrv_get_attr *a = &arg->get_attr;

	switch (a->attr) {
	case GDRDRV_ATTR_USE_PERSISTENT_MAPPING:
		a->val = gdr_pages_can_persist();
		return 0;
	case GDRDRV_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE:
		a->val = gdr_pages_can_force_pcie();
		return 0;
	default:
		gdr_info("unknown attribute %u", a->attr);
		return -EINVAL;
	}
}

static int gdr_req_mapping_type(struct gdr_file *file, union gdr_argument *arg)
{
	struct gdrdrv_req_mapping_type *a = &arg->req_mapping_type;
	struct gdr_pin *pin;
	int err = 0;

	mutex_lock(&file->lock);
	pin = gdr_pin_find(file, a->handle);
	if (!pin || a->mapping_type > GDRDRV_MAPPING_TYPE_DEVICE)
		err = -EINVAL;
	else if (gdr_map_type(pin) != GDRDRV_MAPPING_TYPE_NONE)
		err = -EBUSY;
	else if (!gdr_map_can_have(pin, a->mapping_type))
		err = -EOPNOTSUPP;
	else
		pin->requested_type = a->mapping_type;
	mutex_unlock(&file->lock);
	return err;
}

static int gdr_get_version(struct gdr_file *file, union gdr_argument *arg)
{
	arg->get_version = (struct gdrdrv_get_version){
		.gdrdrv_version = GDRDRV_VERSION(GDRDRV_MAJOR_VERSION, GDRDRV_MINOR_VERSION),
		.minimum_gdr_api_version = GDRDRV_VERSION(GDRDRV_MINIMUM_API_MAJOR_VERSION,
							  GDRDRV_MINIMUM_API_MINOR_VERSION),
	};
	return 0;
}

/* The whole argument is copied, whatever size the command number encodes. */
#define GDR_COMMAND(NAME, name) \
	.number = GDRDRV_IOC_##NAME, .size = sizeof(struct gdrdrv_##name), .run = gdr_##name
#define GDR_INPUT(NAME, name) GDR_COMMAND(NAME, name), .reads = true
#define GDR_HANDLE(name) .answers = true, .handle = offsetof(struct gdrdrv_##name, handle)

static const struct gdr_command gdr_commands[] = {
	{ GDR_INPUT(PIN_BUFFER, pin_buffer), GDR_HANDLE(pin_buffer) },
	{ GDR_INPUT(UNPIN_BUFFER, unpin_buffer) },
	{ GDR_INPUT(GET_CB_FLAG, get_cb_flag), .answers = true },
	{ GDR_INPUT(GET_INFO, get_info), .answers = true },
	{ GDR_INPUT(GET_INFO_V2, get_info_v2), .answers = true },
	{ GDR_INPUT(GET_ATTR, get_attr), .answers = true },
	{ GDR_INPUT(PIN_BUFFER_V2, pin_buffer_v2), GDR_HANDLE(pin_buffer_v2) },
	{ GDR_INPUT(REQ_MAPPING_TYPE, req_mapping_type) },
	{ GDR_COMMAND(GET_VERSION, get_version), .answers = true },
};

static const struct gdr_command *gdr_command(unsigned int number)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(gdr_commands); i++)
		if (gdr_commands[i].number == number)
			return &gdr_commands[i];
	return NULL;
}

long gdr_ioctl(struct file *filp, unsigned int number, unsigned long arg)
{
	struct gdr_file *file = filp->private_data;
	void __user *user = (void __user *)arg;
	const struct gdr_command *command;
	union gdr_argument argument;
	int err;

	if (!gdr_file_is_callers(file)) {
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
	err = command->run(file, &argument);
	gdr_dbg("command %#x: %d", number, err);
	if (err || !command->answers)
		return err;
	if (copy_to_user(user, &argument, command->size)) {
		if (command->handle)
			gdr_pin_remove(file, *(u64 *)((char *)&argument + command->handle));
		return -EFAULT;
	}
	return 0;
}
