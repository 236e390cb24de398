/**
 * The promises of the kernel ports as tests, one suite for each port: the real kernel and the fake both pass them, here and in
 * the vm tier, so that results on the fake hold on a node.
 *
 * Owns: the suites. Does not know: which kernel they run on. Only test files import this module.
 *
 * ```ts
 * kernelContract({ label: "fake", kernel: new FakeKernel() });
 * ```
 */
import { addressContract } from "./address.ts";
import { linkContract } from "./link.ts";
import { nftContract } from "./nft.ts";
import {
  fouContract,
  fouVxlanContract,
  neighbourContract,
  netnsContract,
  netnsIdContract,
  offloadContract,
  sysctlContract,
} from "./others.ts";
import { routeContract } from "./route.ts";
import { ruleContract } from "./rule.ts";
import type { ContractTarget } from "./target.ts";

export { nftContract };

/** All suites. */
export function kernelContract(target: ContractTarget): void {
  netnsContract(target);
  linkContract(target);
  netnsIdContract(target);
  addressContract(target);
  neighbourContract(target);
  routeContract(target);
  ruleContract(target);
  fouContract(target);
  fouVxlanContract(target);
  offloadContract(target);
  sysctlContract(target);
}
