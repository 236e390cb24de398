import type { Program } from "./shared/program/index.ts";

/**
 * In all profiles V8's young generation keeps its first size (see `early.ts`), and malloc has one arena, which the launcher sets. `tables` adds
 * nothing; `stream`, for programs that relay bytes, adds room for their buffers (`heap-room.ts`), and `small` a small old generation, once the
 * program is at rest (`release-memory.ts`). `host`, for the host of a lab, leaves the young generation as V8 has it: it has much garbage while pods come and go, and collects what
 * is left at rest.
 */
export type MemoryProfile = "stream" | "tables" | "small" | "host";

/** The headings of the help text, in its order. */
const GROUPS = {
  cluster: "To try, see and repair a cluster",
  node: "On nodes",
  controllers: "Controllers, and routers of Egresses",
  "control-plane": "Beside the control plane",
  installation: "To install and migrate",
} as const;
export type ProgramGroup = keyof typeof GROUPS;

/** A program of the one executable, and the facts that are needed before it is loaded. */
export interface ListedProgram {
  /** Loads only this program: each program is a file of the bundle and loads the modules that it needs. */
  readonly load: () => Promise<Program>;
  /** The heading of the program in the help text. A program of `internal` is started by others: it has no line there and no reference page. */
  readonly group: ProgramGroup | "internal";
  /** The installation has a link with the name of the program, and a call of the link runs the program. */
  readonly linked?: true;
  /** The program runs on every node, and `isthmus node` can run it together with others. */
  readonly onNode?: true;
  /** The program reads its files again at SIGHUP, so this signal must not end the program, not even while the program starts. */
  readonly reloads?: true;
  /** The profile that keeps the program's memory small. The launcher and `early.ts` apply the profile. */
  readonly memory?: MemoryProfile;
}

/**
 * Every program, in the order of the help text. A new program is a line in this list; help, `isthmus node`, the installation's links and
 * the reference pages follow.
 */
export const PROGRAMS: Readonly<Record<string, ListedProgram>> = {
  lab: { group: "cluster", load: async () => (await import("./tools/lab/program.ts")).lab },
  audit: {
    group: "cluster",
    load: async () => (await import("./tools/audit/program.ts")).auditProgram(listedOnNode()),
  },
  validate: { group: "cluster", load: async () => (await import("./tools/validate/program.ts")).validate },
  explain: { group: "cluster", load: async () => (await import("./tools/explain/program.ts")).explain },
  status: { group: "cluster", load: async () => (await import("./tools/status/program.ts")).status },
  doctor: {
    group: "cluster",
    load: async () => (await import("./tools/doctor/program.ts")).doctorProgram(listedOnNode()),
  },
  nicctl: { group: "cluster", load: async () => (await import("./tools/nicctl/program.ts")).nicctl, linked: true },
  node: {
    group: "node",
    load: async () => (await import("./daemons/node/program.ts")).nodeProgram(programsOfNode()),
    memory: "tables",
  },
  coild: {
    group: "node",
    load: async () => (await import("./daemons/coild/program.ts")).coild,
    linked: true,
    onNode: true,
    memory: "small",
  },
  "coil-router": {
    group: "node",
    load: async () => (await import("./daemons/coil-router/program.ts")).coilRouter,
    linked: true,
    onNode: true,
    memory: "small",
  },
  "service-proxy": {
    group: "node",
    load: async () => (await import("./daemons/service-proxy/program.ts")).serviceProxy,
    linked: true,
    onNode: true,
    memory: "tables",
  },
  "proxy-agent": {
    group: "node",
    load: async () => (await import("./daemons/proxy-agent/program.ts")).proxyAgent,
    linked: true,
    onNode: true,
    memory: "stream",
  },
  "uplink-proxy": {
    group: "node",
    load: async () => (await import("./daemons/uplink-proxy/program.ts")).uplinkProxy,
    linked: true,
    onNode: true,
    reloads: true,
  },
  "nic-agent": {
    group: "node",
    load: async () => (await import("./daemons/nic-agent/program.ts")).nicAgent,
    linked: true,
    memory: "small",
  },
  "coil-ipam-controller": {
    group: "controllers",
    load: async () => (await import("./controllers/coil-ipam-controller/program.ts")).coilIpamController,
    linked: true,
    memory: "small",
  },
  "coil-egress-controller": {
    group: "controllers",
    load: async () => (await import("./controllers/coil-egress-controller/program.ts")).coilEgressController,
    linked: true,
    memory: "small",
  },
  "coil-controller": {
    group: "controllers",
    load: async () => (await import("./controllers/coil-controller/program.ts")).coilController,
    linked: true,
    memory: "small",
  },
  "coil-egress": {
    group: "controllers",
    load: async () => (await import("./daemons/coil-egress/program.ts")).coilEgress,
    linked: true,
    memory: "small",
  },
  "nic-controller": {
    group: "controllers",
    load: async () => (await import("./controllers/nic-controller/program.ts")).nicController,
    linked: true,
    memory: "small",
  },
  "proxy-server": {
    group: "control-plane",
    load: async () => (await import("./daemons/proxy-server/program.ts")).proxyServer,
    linked: true,
    reloads: true,
    memory: "stream",
  },
  "sni-router": {
    group: "control-plane",
    load: async () => (await import("./daemons/sni-router/program.ts")).sniRouter,
    linked: true,
    reloads: true,
    memory: "small",
  },
  "coil-installer": {
    group: "installation",
    load: async () => (await import("./runtime/coil-installer/program.ts")).coilInstaller,
    linked: true,
  },
  "mgmtproxy-env": {
    group: "installation",
    load: async () => (await import("./runtime/mgmtproxy-env/program.ts")).mgmtproxyEnv,
    linked: true,
  },
  "coil-migrator": {
    group: "installation",
    load: async () => (await import("./tools/coil-migrator/program.ts")).coilMigrator,
    linked: true,
  },
  uninstall: {
    group: "installation",
    load: async () => (await import("./tools/uninstall/program.ts")).uninstallProgram(listedOnNode()),
  },
  "lab-host": {
    group: "internal",
    load: async () => (await import("./tools/lab-host/program.ts")).labHost,
    memory: "host",
  },
  "lab-backend": { group: "internal", load: async () => (await import("./tools/lab-backend/program.ts")).labBackend },
  "uplink-watchdog": {
    group: "internal",
    load: async () => (await import("./daemons/uplink-watchdog/program.ts")).uplinkWatchdog,
  },
};

/** The program of a name on a command line. */
export function findProgram(name: string): ListedProgram | undefined {
  return Object.hasOwn(PROGRAMS, name) ? PROGRAMS[name] : undefined;
}

/** The programs that users start, by name. */
export function publicPrograms(): ReadonlyMap<string, ListedProgram> {
  return new Map(Object.entries(PROGRAMS).filter(([, { group }]) => group !== "internal"));
}

/** The programs that users start, loaded, under the headings of the help text. */
export async function publicGroups(): Promise<
  readonly { readonly title: string; readonly programs: readonly Program[] }[]
> {
  const listed = Object.values(PROGRAMS);
  return Promise.all(
    Object.entries(GROUPS).map(async ([name, title]) => {
      const programs = listed.filter(({ group }) => group === name).map(({ load }) => load());
      return { title, programs: await Promise.all(programs) };
    }),
  );
}

/** `isthmus node`, its parts, and the agent of NICs, which runs apart. */
function listedOnNode(): ReadonlyMap<string, ListedProgram["load"]> {
  const apart = ["node", "nic-agent"].flatMap((name) => {
    const program = findProgram(name);
    return program === undefined ? [] : [[name, program.load] as const];
  });
  return new Map([...apart, ...programsOfNode()]);
}

function programsOfNode(): ReadonlyMap<string, ListedProgram["load"]> {
  const parts = Object.entries(PROGRAMS).filter(([, program]) => program.onNode === true);
  return new Map(parts.map(([name, program]) => [name, program.load]));
}
