/*
 * The launcher that is installed as `vpc-neutron` and `vpc-alcor`: it runs the standalone executable beside it without the variables by which its
 * runtime, Bun, would run other code or become another program. All others stay: delegates run there and need them, such as PATH.
 */
#include "launcher.h"

#define UNAVAILABLE \
  FAULT(999, "the file whose name is that of this one and " SUFFIX " cannot be run beside it: run coil-installer again")

/* BUN_OPTIONS, BUN_BE_BUN, BUN_INSPECT and more. */
static int is_not_of_bun(const char *variable) {
  return !begins(variable, "BUN_");
}

_Noreturn void launch(long *stack) {
  struct process process = started(stack, is_not_of_bun);
  run_standalone(&process);
  write_all(STDOUT, UNAVAILABLE, sizeof UNAVAILABLE - 1);
  end(1);
}
