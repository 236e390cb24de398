import { existsSync, readFileSync } from "node:fs";
import { optionalFlag, stringFlag, switchFlag } from "#base/config";
import { doctorText } from "#base/diagnosis";
import { type KernelFeature, probeKernel } from "#kernel/probe";
import type { NicDoctorValues } from "./doctor/nics.ts";
import { defineProgram, EXIT, LAB_CAPABILITIES, requirePrivileges } from "./program/index.ts";

const flags = {
  json: switchFlag("json", false, "print one JSON object"),
  nics: switchFlag("nics", false, "look at NICs of VPCs also where nic-agent has no socket"),
  nicSocket: stringFlag("nic-socket", "/run/isthmus/vpc.sock", "socket of nic-agent", "PATH"),
  ovsdb: stringFlag("ovsdb", "/var/run/openvswitch/db.sock", "UNIX socket of Open vSwitch's database", "PATH"),
  integrationBridge: stringFlag("integration-bridge", "br-int", "bridge of the NICs' ports", "NAME"),
  kubeconfig: optionalFlag(
    "kubeconfig",
    "NICs: kubeconfig of the API server; default: $KUBECONFIG, else the pod's service account, else ~/.kube/config",
    "FILE",
  ),
};

/** `isthmus doctor`: what this kernel has and lacks, and what is wrong with this node for NICs of VPCs. */
export const doctor = defineProgram({
  name: "doctor",
  summary:
    "Lists the features that this machine's kernel has and lacks, and the parts of the suite that need them; on a node with NICs of VPCs also what is wrong with its agents, switch and name.",
  flags,
  notes: [
    "Each feature is tested in a network namespace that is created for the test and removed after it.",
    "Where nic-agent has its socket, or with --nics: whether nic-agent and the database of Open vSwitch answer, the integration bridge is there, the provider's agent is connected to it, and the provider knows the node by the name that the Node has. The last one is read of the API server: the Node and its NicClaims. It needs no credentials of a cloud; with those, nicctl doctor asks the provider.",
    "Exit code: 0 when the tests could run, 1 when something is wrong with the node's NICs.",
  ],
  run: async ({ values, signal }) => {
    requirePrivileges("make network namespaces", LAB_CAPABILITIES);
    const kernel = readFileSync("/proc/sys/kernel/osrelease", "utf8").trim();
    const features = probeKernel();
    const nics = await lookAtNics(values, { signal });
    if (values.json)
      process.stdout.write(
        `${JSON.stringify({ kernel, features, ...(nics === undefined ? {} : { nics: nics.checks }) })}\n`,
      );
    else process.stdout.write(render(kernel, features) + (nics?.text ?? ""));
    return nics?.checks.some(({ state }) => state === "wrong") === true ? EXIT.failed : EXIT.ok;
  },
});

/** The part for NICs is loaded where there may be some: the clients of API server and switch take longer to load than the kernel to test. */
async function lookAtNics(values: NicDoctorValues, options: { readonly signal: AbortSignal }) {
  if (!values.nics && !existsSync(values.nicSocket)) return undefined;
  const { nicChecks } = await import("./doctor/nics.ts");
  const checks = await nicChecks(values, options);
  return { checks, text: `\nNICs of VPCs:\n${doctorText(checks)}` };
}

function render(kernel: string, features: readonly KernelFeature[]): string {
  const width = Math.max(...features.map((feature) => feature.name.length));
  const rows = features.map(({ name, available, detail, affects }) => {
    const concerns = !available && affects.length > 0 ? `; needed by ${affects.join(", ")}` : "";
    return `${available ? "has  " : "lacks"}  ${name.padEnd(width)}  ${detail}${concerns}`;
  });
  rows.push(driversText(features));
  const lacking = features.filter((feature) => !feature.available).length;
  return `${[`kernel ${kernel}`, ...rows, `${features.length - lacking} of ${features.length} features work`].join("\n")}\n`;
}

/** The features that each value of `--tunnel-driver` needs, by the names of the probes. */
const DRIVERS = { fou: ["fou", "ipip", "ip6tnl"], vxlan: ["vxlan"] } as const;

/** The drivers of egress tunnels that this kernel has, and what it lacks of the others, as one line. */
function driversText(features: readonly KernelFeature[]): string {
  const lacking = new Set(features.filter(({ available }) => !available).map(({ name }) => name));
  const texts = Object.entries(DRIVERS).map(([driver, needs]) => {
    const missing = needs.filter((name) => lacking.has(name));
    return missing.length === 0 ? `${driver} works` : `${driver} lacks ${missing.join(", ")}`;
  });
  return `--tunnel-driver of coild and coil-egress: ${texts.join("; ")}`;
}
