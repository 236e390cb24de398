import { existsSync, readFileSync } from "node:fs";
import { systemClock } from "#base/clock";
import { stringFlag, switchFlag } from "#base/config";
import { type DoctorCheck, doctorText } from "#base/diagnosis";
import { type FaultCheck, judgeSuiteNode } from "#features/suite-report";
import { type KernelFeature, probeKernel } from "#kernel/probe";
import { kubeFlags, openClient } from "../../shared/daemon/index.ts";
import { defineProgram, EXIT, type Program, requirePrivileges } from "../../shared/program/index.ts";
import type { NicDoctorValues } from "./nics.ts";

const flags = {
  json: switchFlag("json", false, "print one JSON object"),
  cluster: switchFlag("cluster", false, "look at the cluster, and not at this machine"),
  cniConfDir: stringFlag("cni-conf-dir", "/etc/cni/net.d", "folder of CNI configurations", "PATH"),
  cniBinDir: stringFlag("cni-bin-dir", "/opt/cni/bin", "folder of CNI executables", "PATH"),
  nics: switchFlag("nics", false, "look at NICs of VPCs also where nic-agent has no socket"),
  nicSocket: stringFlag("nic-socket", "/run/isthmus/vpc.sock", "socket of nic-agent", "PATH"),
  ovsdb: stringFlag("ovsdb", "/run/openvswitch/db.sock", "UNIX socket of Open vSwitch's database", "PATH"),
  integrationBridge: stringFlag("integration-bridge", "br-int", "bridge of the NICs' ports", "NAME"),
  ...kubeFlags,
};

/** `isthmus doctor`. `listed` has the programs of nodes. It prints what this kernel has and lacks, and what is wrong with this node or with the cluster. */
export function doctorProgram(listed: ReadonlyMap<string, () => Promise<Program>>): Program {
  return defineProgram({
    name: "doctor",
    summary:
      "Says what is wrong with this node, or with --cluster with the whole cluster, and how to mend it; lists the features that this kernel has and lacks.",
    flags,
    notes: [
      "On a node, as root: the kernel's features, each tested in a network namespace that is made for the test and removed after it; then the checks of the table below that concern what runs here. Programs are found as processes of this network namespace, and their settings by their flags.",
      "--cluster needs no rights on the machine, and those of an administrator in the cluster: it reads objects, and asks for the rights of programs' accounts (create on subjectaccessreviews, which stores nothing). What may not be read is unknown, with the reason.",
      "Where nic-agent has its socket, or with --nics: whether nic-agent and the database of Open vSwitch answer, the integration bridge is there, the provider's agent is connected to it and has made flows, and the provider knows the node by the name that the Node has. The last one is read of the API server: the Node and its NicClaims. It needs no credentials of a cloud; with those, nicctl doctor asks the provider.",
      "It changes nothing. --json: {kernel, features, checks, nics} on a node, {checks} with --cluster; a check has name, state (ok, warning, wrong, unknown), subject, text, and remedy where something can be done.",
      "Exit code: 0 when nothing is wrong, 1 when something is wrong, or with --cluster when the API server does not answer or nothing could be read. Warnings do not count, nor does what is unknown beside something that is known.",
    ],
    run: async ({ values, signal }) => {
      if (values.cluster) return await lookAtCluster(values, { signal });
      requirePrivileges("make network namespaces", ["CAP_NET_ADMIN", "CAP_SYS_ADMIN"]);
      const kernel = readFileSync("/proc/sys/kernel/osrelease", "utf8").trim();
      const features = probeKernel();
      const lacking = features.filter(({ available }) => !available).map(({ name }) => name);
      const { readNode } = await import("./node.ts");
      const checks = judgeSuiteNode(await readNode(values, { lacking, listed, clock: systemClock, signal }));
      const nics = await lookAtNics(values, { signal });
      if (values.json)
        process.stdout.write(
          `${JSON.stringify({ kernel, features, checks, ...(nics === undefined ? {} : { nics: nics.checks }) })}\n`,
        );
      else {
        const node =
          checks.length === 0 ? "\nno part of the suite is on this machine\n" : `\nThis node:\n${faultsText(checks)}`;
        process.stdout.write(render(kernel, features) + node + (nics?.text ?? ""));
      }
      const all: readonly DoctorCheck[] = [...checks, ...(nics?.checks ?? [])];
      return all.some(({ state }) => state === "wrong") ? EXIT.failed : EXIT.ok;
    },
  });
}

/** The checks as text; the name of each is that of its section in docs/guides/doctor.md. */
function faultsText(checks: readonly FaultCheck[]): string {
  return doctorText(checks.map((check) => ({ ...check, subject: `${check.name}: ${check.subject}` })));
}

async function lookAtCluster(
  values: { readonly json: boolean; readonly kubeconfig: string | undefined },
  { signal }: { readonly signal: AbortSignal },
): Promise<number> {
  const { clusterChecks } = await import("./cluster.ts");
  await using api = await openClient("doctor", values, { clock: systemClock });
  const checks = await clusterChecks(api, { clock: systemClock, signal });
  process.stdout.write(values.json ? `${JSON.stringify({ checks })}\n` : faultsText(checks));
  // A doctor that saw nothing cannot say that nothing is wrong.
  const isBlind = checks.length > 0 && checks.every(({ state }) => state === "unknown");
  return isBlind || checks.some(({ state }) => state === "wrong") ? EXIT.failed : EXIT.ok;
}

/** The part for NICs is loaded where there may be some: the clients of API server and switch take longer to load than the kernel to test. */
async function lookAtNics(values: NicDoctorValues, options: { readonly signal: AbortSignal }) {
  if (!values.nics && !existsSync(values.nicSocket)) return undefined;
  const { nicChecks } = await import("./nics.ts");
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
const DRIVERS = { fou: ["fou", "fou6", "ipip", "ip6tnl"], vxlan: ["vxlan"] } as const;

/** The drivers of egress tunnels that this kernel has, and what it lacks of the others, as one line. */
function driversText(features: readonly KernelFeature[]): string {
  const lacking = new Set(features.filter(({ available }) => !available).map(({ name }) => name));
  const texts = Object.entries(DRIVERS).map(([driver, needs]) => {
    const missing = needs.filter((name) => lacking.has(name));
    return missing.length === 0 ? `${driver} works` : `${driver} lacks ${missing.join(", ")}`;
  });
  return `--tunnel-driver of coild and coil-egress: ${texts.join("; ")}`;
}
