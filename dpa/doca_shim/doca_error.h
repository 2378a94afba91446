/* Results of host calls; see doca_pcc.h. */
#ifndef ONCALL_SHIM_DOCA_ERROR_H
#define ONCALL_SHIM_DOCA_ERROR_H

typedef enum { DOCA_SUCCESS = 0, DOCA_ERROR_UNKNOWN = 1 } doca_error_t;

const char *doca_error_get_descr(doca_error_t error);

#endif
