import { flagOf } from "../programs.ts";
import { parseCertificate, validityFault } from "./certificate.ts";
import { type FaultCheck, judged } from "./faults.ts";
import { hasPodNetwork, runs } from "./node-cni.ts";
import type { NodeFacts } from "./node-facts.ts";

/** The share of the table of connections from which it is told. */
const FULL = 0.9;

/** The share of space or files below which a folder is full. */
const LITTLE = 0.01;

/** Differences of clocks, in milliseconds: the header Date has whole seconds; Leases last 15 s. */
const APART_MS = 5000;

const FAR_APART_MS = 15_000;

/** The kernel features that drivers of tunnels need, by the names of the probes. */
const DRIVERS: Readonly<Record<string, readonly string[]>> = {
  fou: ["fou", "fou6", "ipip", "ip6tnl"],
  vxlan: ["vxlan"],
};

/** The kernel's module of a kind of links, where it has another name. */
const MODULES: Readonly<Record<string, string>> = { ip6tnl: "ip6_tunnel" };

/** The table of connections has room. */
export function conntrack(facts: NodeFacts): readonly FaultCheck[] {
  const { conntrack: table, processes } = facts;
  const isUsed = processes.length > 0 || hasPodNetwork(facts);
  if (table === undefined || table.max === 0 || !isUsed) return [];
  const { ok, wrong } = judged("conntrack", "table of connections");
  const text = `has ${table.count} of ${table.max} entries`;
  if (table.count < table.max * FULL) return [ok(text)];
  return [wrong(text, `sysctl -w net.netfilter.nf_conntrack_max=${table.max * 2}`)];
}

/** Packets of clients of Egresses keep their source. */
export function translatedClients(facts: NodeFacts): readonly FaultCheck[] {
  if (runs(facts, "coild") === undefined) return [];
  const { ok, wrong, unknown } = judged("egress-translated", "clients of Egresses");
  if (!("value" in facts.translated)) return [unknown(facts.translated.fault)];
  const [first] = facts.translated.value;
  if (first === undefined) return [ok("no packets of clients leave with another source")];
  const text = `packets of ${facts.translated.value.length} leave with another source, so no router takes them: those of ${first.source} as ${first.leavesAs}`;
  const remedy =
    "give kube-proxy the pods' pools as clusterCIDR, and turn masqueradeAll (--masquerade-all) and ipMasq of the plugin ptp or bridge off";
  return [wrong(text, remedy)];
}

/** Routers of Egresses have source ports left for each destination. */
export function sourcePorts({ sourcePorts: { routers, crowded } }: NodeFacts): readonly FaultCheck[] {
  if (routers === 0) return [];
  const { ok, unknown } = judged("egress-ports", "routers of Egresses");
  if (!("value" in crowded)) return [unknown(crowded.fault)];
  if (crowded.value.length === 0) return [ok(`the common source ports of ${routers} suffice`)];
  return crowded.value.map(({ egress, destination, clients }) => {
    const text = `has no common source port left to ${destination}; most flows have ${clients.join(", ")}`;
    const remedy =
      "find out why these pods hold so many connections; or raise spec.replicas of the Egress, with sessionAffinity None and for FoU fouSourcePortAuto, as otherwise a pod keeps its router";
    return judged("egress-ports", `a router of Egress ${egress}`).warning(text, remedy);
  });
}

/** No other process has the port of a program. */
export function ports({ ports: found }: NodeFacts): readonly FaultCheck[] {
  return found.map(({ program, port, fault }) => {
    const { ok, wrong } = judged("port-taken", `port ${port} of ${program}`);
    if (fault === undefined) return ok("is the program's or free");
    return wrong(fault, `end that process, or start ${program} with another --health-addr`);
  });
}

/** Folders of programs can be written, and have space and inodes. */
export function folders({ folders: found }: NodeFacts): readonly FaultCheck[] {
  return found.map(({ path, isReadOnly, freeSpace, freeFiles }) => {
    const { ok, wrong } = judged("folder", path);
    if (isReadOnly)
      return wrong(
        "is mounted read-only",
        `mount -o remount,rw the file system of ${path}; a kernel does this after errors of the disk, see dmesg`,
      );
    if (freeSpace < LITTLE)
      return wrong(`is full: ${percent(freeSpace)} of its space is free`, `free space on the file system of ${path}`);
    if (freeFiles < LITTLE)
      return wrong(
        `is full: ${percent(freeFiles)} of its inodes are free`,
        `remove files on the file system of ${path}`,
      );
    return ok(`has ${percent(freeSpace)} of its space free`);
  });
}

const percent = (share: number): string => `${(share * 100).toFixed(share < LITTLE ? 1 : 0)}%`;

/** The kernel has the features that the programs here need. */
export function kernel(facts: NodeFacts): readonly FaultCheck[] {
  const lacking = new Set(facts.lacking);
  const found: FaultCheck[] = [];
  if (runs(facts, "service-proxy") !== undefined) {
    const { ok, wrong } = judged("kernel", "service-proxy");
    const missing = [...lacking].filter((name) => name.startsWith("nft"));
    found.push(
      missing.length === 0
        ? ok("the kernel has nftables")
        : wrong(`the kernel lacks ${missing.join(", ")}`, "modprobe -a nf_tables nft_chain_nat nft_numgen nft_masq"),
    );
  }
  for (const command of facts.processes.filter(({ program }) => program === "coild" || program === "coil-egress")) {
    const driver = flagOf(command.flags, "tunnel-driver");
    const missing = (DRIVERS[driver ?? ""] ?? []).filter((name) => lacking.has(name));
    if (driver === undefined) continue;
    const { ok, wrong } = judged("kernel", `${command.program} --tunnel-driver=${driver}`);
    found.push(
      missing.length === 0
        ? ok("the kernel has the driver")
        : wrong(
            `the kernel lacks ${missing.join(", ")}`,
            `modprobe -a ${missing.map((name) => MODULES[name] ?? name).join(" ")}; or --tunnel-driver=auto on all nodes and routers`,
          ),
    );
  }
  return found;
}

/** Certificates can be read, and are valid now. */
export function certificates({ certificates: found, now }: NodeFacts): readonly FaultCheck[] {
  return found.map(({ program, path, pem }) => {
    const { ok, warning, wrong } = judged("certificate", `${path} of ${program}`);
    const remedy = `renew ${path}; ${program} reads the new file by itself`;
    if ("fault" in pem)
      return wrong(`cannot be read: ${pem.fault}`, `write ${path}, or correct the flag of ${program}`);
    const certificate = parseCertificate(pem.value);
    if (certificate === undefined) return wrong("is not a certificate in PEM", remedy);
    const fault = validityFault(certificate, now);
    if (fault === undefined) return ok(`is valid until ${certificate.validTo}`);
    return (fault.isExpired ? wrong : warning)(fault.text, remedy);
  });
}

/** The clock agrees with that of the API server. */
export function clock({ clock: offset }: NodeFacts): readonly FaultCheck[] {
  if (offset === undefined) return [];
  const { ok, warning, wrong, unknown } = judged("clock", "clock");
  if ("fault" in offset) return [unknown(offset.fault)];
  const seconds = Math.round(Math.abs(offset.value) / 1000);
  const text = `is ${seconds} s ${offset.value > 0 ? "ahead of" : "behind"} the API server's`;
  const remedy = "systemctl start chrony (or the time service of the machine), then: chronyc tracking";
  if (Math.abs(offset.value) > FAR_APART_MS) return [wrong(text, remedy)];
  return Math.abs(offset.value) > APART_MS ? [warning(text, remedy)] : [ok("agrees with the API server's")];
}
