import { systemClock } from "#base/clock";
import type { FlagValues } from "#base/config";
import type { Health } from "#base/health";
import type { Logger } from "#base/log";
import { DummyBindInterface, watchBindInterface } from "#features/tunnel";
import { openKernel } from "#kernel/net";
import { requirePrivileges } from "../../shared/program/index.ts";
import type { ReverseConfig } from "./config.ts";
import type { AgentFlags } from "./flags.ts";

/** The bind interface of a running agent. Disposing removes it, unless `--keep-bind-interface` is given. */
export interface OpenBindInterface extends AsyncDisposable {
  /** Restores the interface or address that another program removes, until the signal aborts. */
  watch(options: { readonly signal: AbortSignal }): Promise<void>;
}

/**
 * Makes the bind interface, or adopts an existing one; `undefined` if the agent does not manage it. Rejects with `BindInterfaceError`,
 * `PrivilegeError`, `KernelError`.
 */
export async function openBindInterface(
  values: FlagValues<AgentFlags>,
  reverse: ReverseConfig | undefined,
  { log, health }: { readonly log: Logger; readonly health: Health },
): Promise<OpenBindInterface | undefined> {
  if (reverse === undefined || !values.manageBindInterface) return undefined;
  requirePrivileges("manage the bind interface (--manage-bind-interface=false: do not)", ["CAP_NET_ADMIN"]);
  const kernel = openKernel();
  using own = kernel.openNetNs("own");
  const stack = kernel.openStack(own);
  const bind = new DummyBindInterface(
    { stack, log: log.child("bind") },
    { name: values.bindInterface, addresses: reverse.bindAddresses },
  );
  const part = health.part("bind-interface", { needed: "always" });
  try {
    await bind.ensure();
    part.ok();
  } catch (error) {
    stack[Symbol.dispose]();
    throw error;
  }
  return {
    watch: (options) => watchBindInterface(bind, { log: log.child("bind"), health: part, clock: systemClock }, options),
    async [Symbol.asyncDispose]() {
      try {
        if (!values.keepBindInterface) await bind.release();
      } finally {
        stack[Symbol.dispose]();
      }
    },
  };
}
