import { LEGACY_NICS_ANNOTATION, LEGACY_VPC_ANNOTATION, MAX_NICS } from "#kube/nic";
import { NicError } from "../errors.ts";
import { readAnnotation } from "../fields/annotation.ts";
import { isUuid, readNics } from "../fields/read-nics.ts";
import { nicNameFault } from "../fields/validate.ts";

/** One NIC of a hand-over. */
export interface HandedNic {
  /** Absent if the caller leaves the name to the plugin. */
  readonly name?: string;
  /** Absent if the port is made later: the plugin asks the agent of its node. */
  readonly portID?: string;
}

/** The arguments that a VM runtime gets and passes on to the CNI plugin (docs/spec/vpc-nics.md#10). */
export interface HandOver {
  readonly tenant?: string | undefined;
  readonly vpc: string;
  readonly nics: readonly HandedNic[];
}

/** The keys of a hand-over in CNI_ARGS, in the spelling of Arktos. */
const KEYS = { tenant: "Tenant", vpc: "VPC", nics: "NICs" } as const;

/** `VPC=v;NICs=[{"name":"eth0","portid":"…"}]`, for CNI_ARGS. Throws {@link NicError} `invalid-hand-over` for values with a `;`. */
export function formatCniArgs(handOver: HandOver): string {
  const { tenant, vpc } = handOver;
  const pairs = [
    ...(tenant === undefined ? [] : [[KEYS.tenant, tenant] as const]),
    [KEYS.vpc, vpc] as const,
    [KEYS.nics, nicsText(handOver)] as const,
  ];
  for (const [key, value] of pairs) {
    if (value.includes(";")) throw invalid(`${key} is ${JSON.stringify(value)}: a value of CNI_ARGS has no semicolon`);
  }
  return pairs.map(([key, value]) => `${key}=${value}`).join(";");
}

/** The annotations of a sandbox with the same content, for CRI proxies that copy annotations. */
export function handOverAnnotations(handOver: HandOver): Readonly<Record<string, string>> {
  return { [LEGACY_VPC_ANNOTATION]: handOver.vpc, [LEGACY_NICS_ANNOTATION]: nicsText(handOver) };
}

/** Only these two keys: a tag could contain a semicolon. */
function nicsText({ nics }: HandOver): string {
  return JSON.stringify(nics.map(({ name, portID }) => ({ name, portid: portID })));
}

/**
 * Reads CNI_ARGS, pairs `K=V` between semicolons with any further keys; a value may contain `=`. `undefined` if there are no NICs in them, as
 * in calls of a stock runtime. Throws {@link NicError} `invalid-hand-over` for NICs that are none.
 */
export function parseHandOver(text: string): HandOver | undefined {
  const args = new Map<string, string>();
  for (const pair of text.split(";")) {
    const at = pair.indexOf("=");
    if (at > 0) args.set(pair.slice(0, at), pair.slice(at + 1));
  }
  const list = args.get(KEYS.nics);
  if (list === undefined) return undefined;
  const nics = handedNics(list);
  const vpc = args.get(KEYS.vpc) ?? "";
  if (vpc === "") throw invalid(`CNI_ARGS has ${KEYS.nics} without ${KEYS.vpc}`);
  const tenant = args.get(KEYS.tenant);
  return { ...(tenant === undefined ? {} : { tenant }), vpc, nics };
}

function handedNics(text: string): readonly HandedNic[] {
  const read = readAnnotation(KEYS.nics, text);
  if ("faults" in read) throw invalid(`${KEYS.nics} of CNI_ARGS: ${read.faults[0]?.message ?? "not readable"}`);
  const { nics, faults } = readNics(read.value);
  const [fault] = faults;
  if (fault !== undefined) throw invalid(`${KEYS.nics} of CNI_ARGS: ${fault.field}: ${fault.message}`);
  if (nics.length > MAX_NICS) throw invalid(`${KEYS.nics} of CNI_ARGS has ${nics.length} NICs: at most ${MAX_NICS}`);
  const handed = nics.map(({ name, portID }, at): HandedNic => {
    const where = `${KEYS.nics} of CNI_ARGS: nics[${at}]`;
    if (portID !== undefined && !isUuid(portID)) throw invalid(`${where}.portid: must be a UUID`);
    const wrong = name === undefined ? undefined : nicNameFault(name);
    if (wrong !== undefined) throw invalid(`${where}.name: ${wrong}`);
    return { ...(name === undefined ? {} : { name }), ...(portID === undefined ? {} : { portID }) };
  });
  const ports = handed.flatMap(({ portID }) => (portID === undefined ? [] : [portID]));
  if (new Set(ports).size < ports.length) throw invalid(`${KEYS.nics} of CNI_ARGS has a port twice`);
  return handed;
}

function invalid(message: string): NicError {
  return new NicError("invalid-hand-over", message);
}
