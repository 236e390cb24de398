import { type Fact, readFact } from "#base/diagnosis";
import { type ForwardFinding, flagOf, type InputFinding, neededPorts, type SuiteCommand } from "#features/suite-report";
import type { NetNs, NetStack } from "#kernel/net";
import { familiesOf } from "#kernel/rule";
import { uplinksOf } from "../suite/index.ts";
import { type PodSample, readForward, readInput } from "./read.ts";

const POD_TABLE = 116;
const EXPORT_TABLE = 119;
/** A name as links of pods have it. */
const POD_LINK = "veth00000000";
/** An uplink of a machine that has no default route. */
const UPLINK = "eth0";

/** The network namespace of the machine; both are of the same one. */
export interface Machine {
  readonly stack: NetStack;
  readonly netns: Pick<NetNs, "fd">;
}

/**
 * Returns the verdicts of others' filters on packets that this machine forwards for pods; `undefined` where no coild makes links. `processes`: the suite's on this machine.
 * Rejects only with the signal's reason and with bugs.
 */
export async function readForwardOf(
  processes: readonly SuiteCommand[],
  { stack, netns }: Machine,
  options: { readonly signal: AbortSignal },
): Promise<Fact<readonly ForwardFinding[]> | undefined> {
  const coild = processes.find(({ program }) => program === "coild");
  if (coild === undefined || flagOf(coild.flags, "enable-ipam") === "false") return undefined;
  return readFact(() => readForward(samplesOf(stack, coild.flags), { netns, uplink: uplinkOf(stack) }, options));
}

/**
 * Returns the verdicts of filters on packets to the ports of the programs of this machine. Nothing is listed without such a port. Rejects only with the signal's reason and with
 * bugs.
 */
export async function readInputOf(
  processes: readonly SuiteCommand[],
  { stack, netns }: Machine,
  options: { readonly signal: AbortSignal },
): Promise<Fact<readonly InputFinding[]>> {
  const ports = [...new Set(neededPorts(processes).map(({ port }) => port))];
  return readFact(async () =>
    ports.length === 0 ? [] : await readInput(ports, { netns, uplink: uplinkOf(stack) }, options),
  );
}

function uplinkOf(stack: NetStack): string {
  return uplinksOf(stack)[0]?.name ?? UPLINK;
}

/** A pod of each family that the node has blocks of: one that runs, or the first address with a link's name. */
function samplesOf(stack: NetStack, flags: readonly string[]): readonly PodSample[] {
  const links = new Map(stack.links.list().map((link) => [link.index, link.name]));
  const podTable = Number(flagOf(flags, "pod-table-id") ?? POD_TABLE);
  const exportTable = Number(flagOf(flags, "export-table-id") ?? EXPORT_TABLE);
  return familiesOf(stack.rules).flatMap((family): readonly PodSample[] => {
    const blocks = stack.routes.list({ family, table: exportTable }).map(({ dst }) => dst);
    const pods = stack.routes.list({ family, table: podTable }).filter(({ dst }) => dst.hostBits === 0);
    for (const block of blocks) {
      const pod = pods.find(({ dst }) => block.contains(dst));
      if (pod !== undefined) return [{ address: pod.dst.base, link: links.get(pod.linkIndex ?? 0) ?? POD_LINK, block }];
    }
    const [block] = blocks;
    return block === undefined ? [] : [{ address: block.base, link: POD_LINK, block }];
  });
}
