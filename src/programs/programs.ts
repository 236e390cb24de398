import type { Program } from "./program/index.ts";

/**
 * In all profiles V8's young generation keeps its first size (see `early.ts`), and malloc has one arena, which the launcher sets. `tables` adds
 * nothing; `stream`, for programs that relay bytes, adds room for their buffers (`heap-room.ts`), and `small` a small old generation, once the
 * program is at rest (`release-memory.ts`).
 */
export type MemoryProfile = "stream" | "tables" | "small";

/** A program of the one executable, and the facts that are needed before it is loaded. */
export interface ListedProgram {
  /** Loads only this program: each program is a file of the bundle and loads the modules that it needs. */
  readonly load: () => Promise<Program>;
  /** The program is started by other programs. It has no line in the help text and no reference page. */
  readonly internal?: true;
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
  lab: { load: async () => (await import("./lab.ts")).lab },
  audit: { load: async () => (await import("./audit.ts")).auditProgram },
  validate: { load: async () => (await import("./validate.ts")).validate },
  explain: { load: async () => (await import("./explain.ts")).explain },
  status: { load: async () => (await import("./status.ts")).status },
  doctor: { load: async () => (await import("./doctor.ts")).doctor },
  uninstall: { load: async () => (await import("./uninstall.ts")).uninstallProgram(namesOnNode()) },
  node: { load: async () => (await import("./node.ts")).nodeProgram(programsOfNode()), memory: "tables" },
  coild: {
    load: async () => (await import("./coild.ts")).coild,
    linked: true,
    onNode: true,
    memory: "small",
  },
  "coil-router": {
    load: async () => (await import("./coil-router.ts")).coilRouter,
    linked: true,
    onNode: true,
    memory: "small",
  },
  "coil-egress": {
    load: async () => (await import("./coil-egress.ts")).coilEgress,
    linked: true,
    memory: "small",
  },
  "service-proxy": {
    load: async () => (await import("./service-proxy.ts")).serviceProxy,
    linked: true,
    onNode: true,
    memory: "tables",
  },
  "proxy-agent": {
    load: async () => (await import("./proxy-agent.ts")).proxyAgent,
    linked: true,
    onNode: true,
    memory: "stream",
  },
  "uplink-proxy": {
    load: async () => (await import("./uplink-proxy.ts")).uplinkProxy,
    linked: true,
    onNode: true,
    reloads: true,
  },
  "coil-ipam-controller": {
    load: async () => (await import("./coil-ipam-controller.ts")).coilIpamController,
    linked: true,
    memory: "small",
  },
  "coil-egress-controller": {
    load: async () => (await import("./coil-egress-controller.ts")).coilEgressController,
    linked: true,
    memory: "small",
  },
  "coil-controller": {
    load: async () => (await import("./coil-controller.ts")).coilController,
    linked: true,
    memory: "small",
  },
  "coil-migrator": { load: async () => (await import("./coil-migrator.ts")).coilMigrator, linked: true },
  "coil-installer": { load: async () => (await import("./coil-installer.ts")).coilInstaller, linked: true },
  "proxy-server": {
    load: async () => (await import("./proxy-server.ts")).proxyServer,
    linked: true,
    reloads: true,
    memory: "stream",
  },
  "sni-router": {
    load: async () => (await import("./sni-router.ts")).sniRouter,
    linked: true,
    reloads: true,
    memory: "small",
  },
  "mgmtproxy-env": { load: async () => (await import("./mgmtproxy-env.ts")).mgmtproxyEnv, linked: true },
  "nic-controller": {
    load: async () => (await import("./nic-controller.ts")).nicController,
    linked: true,
    memory: "small",
  },
  nicctl: { load: async () => (await import("./nicctl.ts")).nicctl, linked: true },
  "nic-agent": { load: async () => (await import("./nic-agent.ts")).nicAgent, linked: true, memory: "small" },
  "lab-host": { load: async () => (await import("./lab-host.ts")).labHost, internal: true },
  "lab-backend": { load: async () => (await import("./lab-backend.ts")).labBackend, internal: true },
  "uplink-watchdog": { load: async () => (await import("./uplink-watchdog.ts")).uplinkWatchdog, internal: true },
};

/** The program of a name on a command line. */
export function findProgram(name: string): ListedProgram | undefined {
  return Object.hasOwn(PROGRAMS, name) ? PROGRAMS[name] : undefined;
}

/** The programs that users start, by name. */
export function publicPrograms(): ReadonlyMap<string, ListedProgram> {
  return new Map(Object.entries(PROGRAMS).filter(([, program]) => program.internal !== true));
}

/** `isthmus node`, its parts, and the agent of NICs, which runs apart. */
function namesOnNode(): ReadonlySet<string> {
  return new Set(["node", "nic-agent", ...programsOfNode().keys()]);
}

function programsOfNode(): ReadonlyMap<string, ListedProgram["load"]> {
  const parts = Object.entries(PROGRAMS).filter(([, program]) => program.onNode === true);
  return new Map(parts.map(([name, program]) => [name, program.load]));
}
