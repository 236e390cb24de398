import { systemClock } from "#base/clock";
import { nicRows, nicRowsText } from "#features/nic-report";
import { resources } from "#kube/client";
import { nicResources } from "#kube/nic";
import { openClient } from "../../shared/daemon/index.ts";
import { nicAuditRules } from "../../shared/nic-control/index.ts";
import { EXIT } from "../../shared/program/index.ts";
import type { NicctlValues } from "./flags.ts";
import { NicctlError, parsePodRef, readNamespaces } from "./pod.ts";

/** `nicctl status`: one line for each NIC of the named pods, or of all. Rejects with `KubeError` and {@link NicctlError}. */
export async function status(
  words: readonly string[],
  { values, output, signal }: { readonly values: NicctlValues; readonly output: string; readonly signal: AbortSignal },
): Promise<number> {
  await using api = await openClient("nicctl", values, { clock: systemClock });
  const { namespace } = values;
  const refs = words.map((word) => parsePodRef(word, namespace));
  const where = refs.length === 0 && namespace !== undefined ? { signal, namespace } : { signal };
  const [claims, pods, namespaces] = await Promise.all([
    api.listAll(nicResources.nicClaims, where),
    api.listAll(resources.pods, where),
    readNamespaces(api, { signal }),
  ]);
  const { wishOf } = nicAuditRules(namespaces);
  const all = nicRows({ pods: pods.items, claims: claims.items, wishOf });
  const isNamed = (row: { readonly namespace: string; readonly pod: string }) =>
    refs.some((ref) => ref.namespace === row.namespace && ref.name === row.pod);
  const missing = refs.filter((ref) => !all.some((row) => row.namespace === ref.namespace && row.pod === ref.name));
  if (missing.length > 0) {
    const names = missing.map((ref) => `${ref.namespace}/${ref.name}`).join(", ");
    throw new NicctlError("no-nics", `no NICs of a VPC have: ${names}`);
  }
  const rows = refs.length === 0 ? all : all.filter(isNamed);
  process.stdout.write(output === "json" ? `${JSON.stringify({ nics: rows })}\n` : nicRowsText(rows));
  return EXIT.ok;
}
