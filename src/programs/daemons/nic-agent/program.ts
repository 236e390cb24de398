import { dirname } from "node:path";
import { systemClock } from "#base/clock";
import { keepSocket } from "#base/unix-socket";
import { INSPECT_NICS_PATH, inspectHandler, serveGrpc } from "#features/cni";
import { NicCallError, nicHandlers } from "#features/nic-agent";
import { nicAgentState } from "#features/nic-cni";
import { type Kernel, openKernel } from "#kernel/net";
import { FOLLOWED_SERVERS_NOTE } from "../../shared/api-server-flag/index.ts";
import { KEPT_FILES_NOTE, keepCniFiles } from "../../shared/cni-files/index.ts";
import { DEFAULT_VPC_SOCKET } from "../../shared/cni-plugin/index.ts";
import { requireNodeName } from "../../shared/daemon/index.ts";
import { defineDaemon, type Part, servedMarkPart } from "../../shared/daemon-kit/index.ts";
import { recordCalls } from "../../shared/pass-record/index.ts";
import { markSocket } from "../../shared/served-mark/index.ts";
import { type Agent, type NicAgentKit, openAgent } from "./agent.ts";
import { claimParts } from "./claim-parts.ts";
import { nicAgentEstate } from "./estate.ts";
import { nicAgentFlags } from "./flags.ts";
import { keepDisk } from "./keep-disk.ts";
import { nicAgentMetrics } from "./metrics.ts";
import { switchPart, switchWatchPart } from "./node-switches.ts";

/** `nic-agent` (docs/spec/vpc-nics.md#7). */
export const nicAgent = defineDaemon({
  name: "nic-agent",
  summary:
    "Plugs ports of VPCs into the pods of this node. Serves the calls of the CNI executables vpc-neutron and vpc-alcor.",
  flags: nicAgentFlags,
  notes: [`Environment: COIL_NODE_NAME, the name of this node (required). ${KEPT_FILES_NOTE}`, FOLLOWED_SERVERS_NOTE],
  metrics: nicAgentMetrics,
  estate: nicAgentEstate,
  environment: requireNodeName,
  privileges: { task: "make the NICs of pods", needs: ["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_SYS_ADMIN"] },
  folders: ({ socket, stateDir }) => [dirname(socket), stateDir],
  // A second agent of this node would not know what the first one is making.
  lock: ({ stateDir }) => nicAgentState(stateDir).lock,
  open: () => openKernel(),
  parts: nicAgentParts,
});

async function nicAgentParts(kit: NicAgentKit, kernel: Kernel): Promise<readonly Part[]> {
  const { values, environment: nodeName, health, metrics, log } = kit;
  const agent = openAgent(kit, kernel);
  await serve(kit, agent);
  log.info("serving", { socket: values.socket, node: nodeName, claims: agent.claims.list().length });
  const { journal, network, events, used, ownSwitch, switches: dirty } = agent;
  const disk = { journal, health: health.part("disk", { needed: "always" }), clock: systemClock };
  const files = { env: process.env, nodeName, events, health, log: log.child("cni-files"), clock: systemClock };
  const switchHealth = health.part("switch", { needed: "always" });
  return [
    servedMarkPart({ socket: values.socket, health }),
    { name: "disk", run: (at) => keepDisk(disk, at) },
    { name: "events", run: (at) => events.run(at) },
    { name: "cni-files", run: (at) => keepCniFiles(files, at) },
    ...claimParts(kit, agent),
    switchPart({ network, used, dirty, health: switchHealth, onReplugged: metrics.onReplugged }),
    switchWatchPart({ watch: (...words) => ownSwitch.watch(...words), dirty, clock: systemClock }),
  ];
}

/** Serves the calls of the CNI executables on the socket until the daemon ends. */
async function serve(kit: NicAgentKit, { service, recording, inspect }: Agent): Promise<void> {
  const { values, health, metrics, log, onBug, use } = kit;
  const { socket } = values;
  const refusal = (why: string): NicCallError => new NicCallError("try-again", why);
  const handlers = nicHandlers(recordCalls(service.call, recording, refusal));
  const calls = {
    socketPath: socket,
    handlers: { ...handlers, [INSPECT_NICS_PATH]: inspectHandler(inspect) },
    onHandled: metrics.onHandled,
    onBug,
    clock: systemClock,
  };
  markSocket(socket, { kind: "nic-agent", usual: DEFAULT_VPC_SOCKET, log });
  const socketHealth = health.part("socket", { needed: "always" });
  use(await keepSocket(() => serveGrpc(calls), { path: socket, health: socketHealth, log, clock: systemClock, onBug }));
}
