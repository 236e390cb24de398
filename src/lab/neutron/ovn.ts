import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import type { IpAddress } from "#base/ip";
import type { OvsProcesses } from "#lab/ovs";
import type { ProgramSpec } from "./processes.ts";
import type { FoundProgram } from "./running.ts";
import { supervised } from "./supervised.ts";

/** The ports of OVN's databases (ovn-nb(5), ovn-sb(5)). */
const PORTS = { nb: 6641, sb: 6642 } as const;
type Database = keyof typeof PORTS;
const DATABASES = Object.keys(PORTS) as Database[];
const NORTHD = "/usr/bin/ovn-northd";
const CONTROLLER = "/usr/bin/ovn-controller";
const schemaOf = (database: Database): string => `/usr/share/ovn/ovn-${database}.ovsschema`;
const fileOf = (folder: string, database: Database): string => join(folder, `ovn-${database}.db`);
const socketOf = (folder: string, database: Database): string => join(folder, `ovn-${database}.sock`);

/** The Debian packages that have {@link missingOvnPrograms}. */
export const OVN_PACKAGES = "ovn-central ovn-host";

/** The programs and schemas of OVN that are not installed. */
export function missingOvnPrograms(): readonly string[] {
  return [NORTHD, CONTROLLER, ...DATABASES.map(schemaOf)].filter((path) => !existsSync(path));
}

/** Pure: the sections of Neutron's files for its driver `ovn`. */
export function ovnConfig(): string {
  return `[ovn]
ovn_nb_connection = tcp:127.0.0.1:${PORTS.nb}
ovn_sb_connection = tcp:127.0.0.1:${PORTS.sb}
ovn_metadata_enabled = false
ovn_emit_need_to_frag = false
`;
}

/** Makes the empty databases, and gives the programs that serve and join them. Throws if `ovsdb-tool` fails. */
export function centralPrograms(folder: string, netns: string): readonly ProgramSpec[] {
  for (const database of DATABASES)
    execFileSync("ovsdb-tool", ["create", fileOf(folder, database), schemaOf(database)]);
  const unix = (database: Database): string => `unix:${socketOf(folder, database)}`;
  const northd = [`--ovnnb-db=${unix("nb")}`, `--ovnsb-db=${unix("sb")}`, controlOf(folder, "northd")];
  return [
    ...DATABASES.map((database) => ({
      name: `ovn-${database}`,
      argv: [
        "/usr/sbin/ovsdb-server",
        fileOf(folder, database),
        `--remote=p${unix(database)}`,
        `--remote=ptcp:${PORTS[database]}:0.0.0.0`,
        controlOf(folder, database),
      ],
      netns,
    })),
    { name: "ovn-northd", argv: [NORTHD, ...northd], netns },
  ];
}

/** Sets a host's switch up for OVN (ovn-controller(8)), and gives the program of the host. Throws if `ovs-vsctl` fails. */
export function controllerProgram(
  folder: string,
  place: {
    readonly name: string;
    readonly netns: string;
    readonly ovs: OvsProcesses;
    readonly central: IpAddress;
    readonly tunnel: IpAddress;
  },
): FoundProgram {
  const { name, netns, ovs } = place;
  const settings = {
    "system-id": name,
    hostname: name,
    "ovn-remote": `tcp:${place.central}:${PORTS.sb}`,
    "ovn-encap-type": "geneve",
    "ovn-encap-ip": place.tunnel.toString(),
    "ovn-bridge-datapath-type": "netdev",
    // In milliseconds: a database that says nothing is left after two probes.
    "ovn-remote-probe-interval": "5000",
  };
  const columns = Object.entries(settings).map(([key, value]) => `external_ids:${key}="${value}"`);
  ovs.vsctl("set", "Open_vSwitch", ".", ...columns);
  // It takes no socket of its own on its command line. Commands of OpenFlow find the bridge by its socket.
  const run = join(folder, `ovn-${name}`);
  mkdirSync(run);
  const log = `--log-file=${join(run, "controller.log")}`;
  return {
    name: `agent-${name}`,
    argv: supervised([CONTROLLER, `unix:${ovs.socketPath}`, log]),
    netns,
    config: log,
    env: { OVS_RUNDIR: ovs.folder, OVN_RUNDIR: run },
  };
}

/** The socket of commands; without one a program makes it in a folder of the machine. */
const controlOf = (folder: string, name: string): string => `--unixctl=${join(folder, `ovn-${name}.ctl`)}`;
