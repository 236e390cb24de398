import "./early.ts";
import { basename } from "node:path";
import { NODE_PARTS, type Programs } from "./node-parts/loaders.ts";
import { EXIT, type Program, runProgram, VERSION } from "./run-program.ts";

/** Every program of the one executable, in the order of the help text. */
const PROGRAMS: Programs = {
  lab: async () => (await import("./lab.ts")).lab,
  audit: async () => (await import("./audit.ts")).auditProgram,
  explain: async () => (await import("./explain.ts")).explain,
  doctor: async () => (await import("./doctor.ts")).doctor,
  node: async () => (await import("./node-parts.ts")).nodeParts,
  ...NODE_PARTS,
  "coil-ipam-controller": async () => (await import("./coil-ipam-controller.ts")).coilIpamController,
  "coil-installer": async () => (await import("./coil-installer.ts")).coilInstaller,
  "proxy-server": async () => (await import("./proxy-server.ts")).proxyServer,
  "sni-router": async () => (await import("./sni-router.ts")).sniRouter,
  "mgmtproxy-env": async () => (await import("./mgmtproxy-env.ts")).mgmtproxyEnv,
};
/** Started by others, never by people. */
const INTERNAL: Programs = {
  "lab-host": async () => (await import("./lab-host.ts")).labHost,
  "lab-backend": async () => (await import("./lab-backend.ts")).labBackend,
  "uplink-watchdog": async () => (await import("./uplink-watchdog.ts")).uplinkWatchdog,
};

async function usage(): Promise<string> {
  const width = Math.max(...Object.keys(PROGRAMS).map((name) => name.length));
  const programs = await Promise.all(Object.values(PROGRAMS).map((load) => load()));
  const rows = programs.map((program) => `  ${program.name.padEnd(width)}  ${program.summary}`);
  return [
    "usage: isthmus PROGRAM [FLAGS]",
    "",
    "Isthmus joins networks that do not meet by themselves: a Kubernetes networking suite.",
    "",
    ...rows,
    `  ${"version".padEnd(width)}  Prints the version.`,
    "",
    "isthmus PROGRAM --help says more. Each program can also be called by its own name.",
    "",
  ].join("\n");
}

async function main(): Promise<number> {
  const calledAs = process.env["ISTHMUS_CALLED_AS"] ?? basename(process.argv[1] ?? "isthmus");
  const load = (name: string): Promise<Program> | undefined => (PROGRAMS[name] ?? INTERNAL[name])?.();
  const own = await load(calledAs);
  if (own !== undefined) return runProgram(own, own.name, process.argv.slice(2));
  const [word = "help", ...rest] = process.argv.slice(2);
  const program = await load(word);
  if (program !== undefined) return runProgram(program, `isthmus ${program.name}`, rest);
  if (word === "version" || word === "--version") {
    process.stdout.write(`isthmus ${VERSION}\n`);
    return EXIT.ok;
  }
  if (word === "help" || word === "--help" || word === "-h") {
    process.stdout.write(await usage());
    return EXIT.ok;
  }
  process.stderr.write(`isthmus: there is no program "${word}"; isthmus --help lists them\n`);
  return EXIT.usage;
}

process.exitCode = await main();
