/* Finding a NIC by the name of its RDMA device; see doca_pcc.h. */
#ifndef ONCALL_SHIM_DOCA_DEV_H
#define ONCALL_SHIM_DOCA_DEV_H

#include <doca_error.h>
#include <stdint.h>

#define DOCA_DEVINFO_IBDEV_NAME_SIZE 64

struct doca_dev;
struct doca_devinfo;

doca_error_t doca_devinfo_create_list(struct doca_devinfo ***list, uint32_t *count);
doca_error_t doca_devinfo_destroy_list(struct doca_devinfo **list);
doca_error_t doca_devinfo_get_ibdev_name(const struct doca_devinfo *info, char *name,
                                         uint32_t size);
doca_error_t doca_dev_open(struct doca_devinfo *info, struct doca_dev **device);
doca_error_t doca_dev_close(struct doca_dev *device);

#endif
