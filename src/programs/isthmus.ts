import "./early.ts";
import { basename } from "node:path";
import { auditProgram } from "./audit.ts";
import { coilInstaller } from "./coil-installer.ts";
import { coilIpamController } from "./coil-ipam-controller.ts";
import { coilRouter } from "./coil-router.ts";
import { coild } from "./coild.ts";
import { doctor } from "./doctor.ts";
import { explain } from "./explain.ts";
import { lab } from "./lab.ts";
import { labBackend } from "./lab-backend.ts";
import { labHost } from "./lab-host.ts";
import { mgmtproxyEnv } from "./mgmtproxy-env.ts";
import { proxyAgent } from "./proxy-agent.ts";
import { proxyServer } from "./proxy-server.ts";
import { EXIT, type Program, runProgram, VERSION } from "./run-program.ts";
import { serviceProxy } from "./service-proxy.ts";
import { sniRouter } from "./sni-router.ts";
import { uplinkWatchdog } from "./uplink/watchdog.ts";
import { uplinkProxy } from "./uplink-proxy.ts";

/** Every program of the one executable. */
const PROGRAMS: readonly Program[] = [
  lab,
  auditProgram,
  explain,
  doctor,
  coild,
  coilIpamController,
  coilRouter,
  coilInstaller,
  proxyServer,
  proxyAgent,
  sniRouter,
  serviceProxy,
  uplinkProxy,
  mgmtproxyEnv,
];
/** Started by others, never by people. */
const INTERNAL: readonly Program[] = [labHost, labBackend, uplinkWatchdog];

function usage(): string {
  const width = Math.max(...PROGRAMS.map((program) => program.name.length));
  const rows = PROGRAMS.map((program) => `  ${program.name.padEnd(width)}  ${program.summary}`);
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
  const byName = new Map([...PROGRAMS, ...INTERNAL].map((program) => [program.name, program]));
  const own = byName.get(calledAs);
  if (own !== undefined) return runProgram(own, own.name, process.argv.slice(2));
  const [word = "help", ...rest] = process.argv.slice(2);
  const program = byName.get(word);
  if (program !== undefined) return runProgram(program, `isthmus ${program.name}`, rest);
  if (word === "version" || word === "--version") {
    process.stdout.write(`isthmus ${VERSION}\n`);
    return EXIT.ok;
  }
  if (word === "help" || word === "--help" || word === "-h") {
    process.stdout.write(usage());
    return EXIT.ok;
  }
  process.stderr.write(`isthmus: there is no program "${word}"; isthmus --help lists them\n`);
  return EXIT.usage;
}

process.exitCode = await main();
