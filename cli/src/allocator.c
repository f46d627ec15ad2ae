/* Sets an option of the allocator that has no build option (the others are in .cargo/config.toml).
 * It is C because our Rust code has no `unsafe`, without which a C function cannot be called. */

#include <mimalloc.h>

/* Memory that is free returns to the operating system after this time. With mimalloc's default of
 * one second, a server under load returned its buffers every second, and the next calls had them
 * mapped and zeroed again: a tenth of the processor time of an append. Blocks of more than 8 MiB
 * return at once. */
enum { PURGE_DELAY_MS = 10 * 1000 };

/* Runs when the process is loaded. MIMALLOC_PURGE_DELAY in the environment overrides it. */
__attribute__((constructor)) static void set_purge_delay(void) {
  mi_option_set_default(mi_option_purge_delay, PURGE_DELAY_MS);
}
