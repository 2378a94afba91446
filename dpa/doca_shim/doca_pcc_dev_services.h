/* Clock, thread and mailbox; see doca_pcc_dev.h. */
#ifndef ONCALL_SHIM_DOCA_PCC_DEV_SERVICES_H
#define ONCALL_SHIM_DOCA_PCC_DEV_SERVICES_H

#include <doca_pcc_dev.h>

uint64_t doca_pcc_dev_get_timer(void); /* 1 us */
uint32_t doca_pcc_dev_thread_rank(void);

/* Called by the library. */
doca_pcc_dev_error_t doca_pcc_dev_user_mailbox_handle(void *request, uint32_t request_size,
                                                      uint32_t max_response_size, void *response,
                                                      uint32_t *response_size);

#endif
