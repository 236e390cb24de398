import type { IpFamily } from "#base/ip";
import { isKernelError } from "#kernel/errors";
import type { RulePort } from "./types.ts";

/**
 * The families that this kernel has. One that was started with `ipv6.disable=1` refuses, as `unsupported`, to list, add or delete rules and
 * routes of IPv6. Throws every other {@link KernelError}.
 */
export function familiesOf(rules: Pick<RulePort, "list">): readonly IpFamily[] {
  return ([4, 6] as const).filter((family) => hasFamily(rules, family));
}

function hasFamily(rules: Pick<RulePort, "list">, family: IpFamily): boolean {
  try {
    rules.list(family);
    return true;
  } catch (error) {
    if (!isKernelError(error, "unsupported")) throw error;
    return false;
  }
}
