import { pause } from "#base/async";
import type { Clock } from "#base/clock";
import { describeError, ExpectedError } from "#base/errors";
import type { HealthPart } from "#base/health";
import type { IpAddress } from "#base/ip";
import type { Logger } from "#base/log";
import { repeat } from "#base/reconcile";
import type { AddressPort } from "#kernel/address";
import { isKernelError, KernelError } from "#kernel/errors";
import type { LinkPort } from "#kernel/link";
import { BIND_ALIAS, type BindStep, bindLink, type ObservedBind, planBind, type WantedBind } from "./bind-plan.ts";

/** The interval at which the addresses are checked, in milliseconds; docs/spec/tunnel.md#9.3 promises 5 s. */
const CHECK_INTERVAL_MS = 2000;

export type BindInterfaceErrorCode = "conflict" | "not-permitted" | "failed";

/** The bind addresses cannot be configured. The message has the reason. */
export class BindInterfaceError extends ExpectedError<BindInterfaceErrorCode> {
  override readonly name = "BindInterfaceError";
}

/** The interface that has the bind addresses of the reverse direction on this node (docs/spec/tunnel.md#9.3). */
export interface BindInterface {
  /** Adds the interface and its addresses, or adopts existing ones. Idempotent. Rejects with {@link BindInterfaceError}. */
  ensure(): Promise<void>;
  /** Removes the interface and addresses that {@link ensure}, or an earlier run, made. Does not remove those of other programs. */
  release(): Promise<void>;
}

/** A dummy interface with the addresses; the loopback interface if the kernel has no dummy interfaces. */
export class DummyBindInterface implements BindInterface {
  readonly #stack: { readonly links: LinkPort; readonly addresses: AddressPort };
  readonly #log: Logger;
  #wanted: WantedBind;
  /** Addresses that this run put on the loopback interface. */
  #ours: readonly IpAddress[] = [];

  constructor(
    deps: { readonly stack: { readonly links: LinkPort; readonly addresses: AddressPort }; readonly log: Logger },
    wanted: Omit<WantedBind, "onLoopback">,
  ) {
    this.#stack = deps.stack;
    this.#log = deps.log;
    this.#wanted = { ...wanted, onLoopback: false };
  }

  async ensure(): Promise<void> {
    try {
      this.#apply();
    } catch (error) {
      if (!(error instanceof KernelError)) throw error;
      const code = error.code === "not-permitted" ? "not-permitted" : "failed";
      const hint = code === "not-permitted" ? "; run with CAP_NET_ADMIN, or set --manage-bind-interface=false" : "";
      throw new BindInterfaceError(code, `cannot make ${this.#wanted.name}: ${describeError(error)}${hint}`, {
        cause: error,
      });
    }
  }

  async release(): Promise<void> {
    const state = this.#state();
    if (!this.#wanted.onLoopback) {
      const link = bindLink(state, this.#wanted);
      if (link?.alias === BIND_ALIAS) ifThere(() => this.#stack.links.delete(link.index));
      return;
    }
    const link = bindLink(state, this.#wanted);
    if (link === undefined) return;
    for (const address of this.#ours) ifThere(() => this.#stack.addresses.delete({ linkIndex: link.index, address }));
  }

  #apply(): void {
    const plan = planBind(this.#state(), this.#wanted);
    if (plan.kind === "conflict") throw new BindInterfaceError("conflict", plan.why);
    for (const step of plan.steps) {
      if (this.#do(step)) continue;
      // The kernel has no dummy interfaces. From here on, this call and all later calls use the loopback interface instead.
      this.#wanted = { ...this.#wanted, onLoopback: true };
      // The addresses serve as well there.
      this.#log.info("this kernel has no dummy interfaces: the bind addresses are added to lo, with host scope", {
        addresses: this.#wanted.addresses.map(String),
      });
      this.#apply();
      return;
    }
  }

  /** Makes one step. Returns false if the kernel has no dummy interfaces. */
  #do(step: BindStep): boolean {
    const { name, onLoopback } = this.#wanted;
    const { links, addresses } = this.#stack;
    switch (step.op) {
      case "create":
        try {
          links.create({ kind: "dummy", name, alias: BIND_ALIAS, up: true });
        } catch (error) {
          if (!isKernelError(error, "unsupported")) throw error;
          return false;
        }
        this.#log.info("bind interface created", { name });
        return true;
      case "up":
        links.set(this.#index(), { up: true });
        return true;
      case "add": {
        const { address } = step;
        // With host scope, the kernel does not choose the address as source for packets to other hosts. IPv6 has no such scope.
        addresses.add({
          linkIndex: this.#index(),
          address,
          ...(address.family === 4 ? { scope: "host" as const } : { noDad: true }),
        });
        if (onLoopback) this.#ours = [...this.#ours.filter((one) => !one.equals(address)), address];
        this.#log.info("bind address added", { address: address.toString(), interface: onLoopback ? "lo" : name });
      }
    }
    return true;
  }

  #index(): number {
    const link = bindLink(this.#state(), this.#wanted);
    if (link !== undefined) return link.index;
    const name = this.#wanted.onLoopback ? "lo" : this.#wanted.name;
    throw new BindInterfaceError("failed", `interface ${name} was removed just now`);
  }

  #state(): ObservedBind {
    return { links: this.#stack.links.list(), addresses: this.#stack.addresses.list() };
  }
}

/** Repairs the interface within 5 s after a change by another program, until the signal aborts. Each different failure is logged once. */
export async function watchBindInterface(
  bind: Pick<BindInterface, "ensure">,
  deps: { readonly log: Logger; readonly health: HealthPart; readonly clock: Clock },
  { signal }: { readonly signal: AbortSignal },
): Promise<void> {
  const { clock } = deps;
  let lastFailure = "";
  const repair = async (): Promise<void> => {
    await bind.ensure();
    deps.health.ok();
    lastFailure = "";
  };
  const onFailure = (error: Error): void => {
    deps.health.degraded(error);
    if (error.message !== lastFailure)
      deps.log.error("the bind addresses are not assigned to an interface", { reason: error.message });
    lastFailure = error.message;
  };
  await pause(CHECK_INTERVAL_MS, { signal, clock });
  await repeat(repair, { signal, clock, everyMs: CHECK_INTERVAL_MS, onFailure });
}

/** Runs a removal; an object that does not exist is not an error. */
function ifThere(remove: () => void): void {
  try {
    remove();
  } catch (error) {
    if (!isKernelError(error, "no-device", "not-found")) throw error;
  }
}
