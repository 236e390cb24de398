import { readFileSync } from "node:fs";
import { switchFlag } from "#base/config";
import { type KernelFeature, probeKernel } from "#kernel/probe";
import { defineProgram, EXIT, LAB_CAPABILITIES, requirePrivileges } from "./program/index.ts";

const flags = {
  json: switchFlag("json", false, "print one JSON object"),
};

/** `isthmus doctor`: what this kernel has and lacks. */
export const doctor = defineProgram({
  name: "doctor",
  summary: "Lists the features that this machine's kernel has and lacks, and the parts of the suite that need them.",
  flags,
  notes: [
    "Each feature is tested in a network namespace that is created for the test and removed after it. Exit code: 0 when the tests could run.",
  ],
  run: async ({ values }) => {
    requirePrivileges("make network namespaces", LAB_CAPABILITIES);
    const kernel = readFileSync("/proc/sys/kernel/osrelease", "utf8").trim();
    const features = probeKernel();
    if (values.json) process.stdout.write(`${JSON.stringify({ kernel, features })}\n`);
    else process.stdout.write(render(kernel, features));
    return EXIT.ok;
  },
});

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
