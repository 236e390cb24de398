import { describeError } from "#base/errors";
import type { IpFamily } from "#base/ip";
import { isKernelError } from "#kernel/errors";
import type { NetStack } from "#kernel/net";
import type { PodNetworkOptions } from "./plan.ts";

/** A setting that the host lacks, as plain data. */
export type HostStep =
  | { readonly kind: "sysctl"; readonly key: string; readonly value: string }
  | { readonly kind: "rule"; readonly family: IpFamily; readonly priority: number; readonly table: number };

const SYSCTLS = ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] as const;

/** The steps after which the host forwards and has the rule for the pods' table; empty if the host does both already. Reads only. */
export function planHost(host: NetStack, options: Pick<PodNetworkOptions, "tableId" | "rulePriority">): HostStep[] {
  const steps: HostStep[] = SYSCTLS.flatMap((key) =>
    read(() => host.sysctl.get(key)) === "1" ? [] : [{ kind: "sysctl" as const, key, value: "1" }],
  );
  for (const family of [4, 6] as const) {
    const { rulePriority: priority, tableId: table } = options;
    const present = read(() => host.rules.list(family))?.some(
      (rule) => rule.priority === priority && rule.table === table,
    );
    if (present !== true) steps.push({ kind: "rule", family, priority, table });
  }
  return steps;
}

/** Writes the steps. One that this kernel refuses (it may lack IPv6) is returned, not thrown. */
export function applyHost(
  host: NetStack,
  steps: readonly HostStep[],
): { readonly step: string; readonly error: string }[] {
  return steps.flatMap((step) => {
    try {
      if (step.kind === "sysctl") host.sysctl.set(step.key, step.value);
      else host.rules.add({ family: step.family, priority: step.priority, table: step.table });
      return [];
    } catch (error) {
      if (!isKernelError(error)) throw error;
      const name = step.kind === "sysctl" ? step.key : `IPv${step.family} rule ${step.priority}`;
      return [{ step: name, error: describeError(error) }];
    }
  });
}

/** Reads a setting. An unreadable one counts as absent: the step that sets it then fails with the reason. */
function read<T>(get: () => T): T | undefined {
  try {
    return get();
  } catch (error) {
    if (isKernelError(error)) return undefined;
    throw error;
  }
}
