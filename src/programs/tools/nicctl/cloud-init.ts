import { stringify } from "yaml";
import { systemClock } from "#base/clock";
import { cloudInitNetwork } from "#features/nic";
import type { NicStatus } from "#kube/nic";
import { openClient } from "../../shared/daemon/index.ts";
import { EXIT } from "../../shared/program/index.ts";
import type { NicctlValues } from "./flags.ts";
import { NicctlError, parsePodRef, readPod } from "./pod.ts";

/**
 * `nicctl cloud-init`: the network configuration of a pod's guest (docs/spec/vpc-nics.md#10). Rejects with `KubeError`, `NicctlError`, and `NicError` while a NIC
 * has no address.
 */
export async function cloudInit(
  [word = ""]: readonly string[],
  { values, output, signal }: { readonly values: NicctlValues; readonly output: string; readonly signal: AbortSignal },
): Promise<number> {
  await using api = await openClient("nicctl", values, { clock: systemClock });
  const ref = parsePodRef(word, values.namespace);
  const { claim } = await readPod(api, ref, { signal });
  if (claim === undefined)
    throw new NicctlError("no-nics", `pod ${ref.namespace}/${ref.name} has no NicClaim: nicctl trace tells why`);
  const { spec, status } = claim;
  const nics = spec.nics.map(
    ({ name }): NicStatus => status?.nics?.find((nic) => nic.name === name) ?? { name, state: "Unknown" },
  );
  const defaultRoute = spec.nics.find((nic) => nic.defaultRoute === true)?.name;
  const config = cloudInitNetwork(nics, { defaultRoute });
  process.stdout.write(output === "json" ? `${JSON.stringify(config)}\n` : stringify(config));
  return EXIT.ok;
}
