/**
 * Every program that serves, as shipped, each in a network and with a /run of its own, without an API server.
 *
 * Owns: the files that they need, starting them. Does not know: what is done to them.
 *
 * ```ts
 * const programs = new EveryProgram(folder);
 * const running = programs.launch("coild", { env: { NODE_OPTIONS: "--inspect" } });
 * ```
 */
import { existsSync, readFileSync, readlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeCertificates } from "#test/certificates";
import { ISTHMUS, type Running, start } from "#test/lab";

/** A program that a test forgets ends after this time, in milliseconds: the long forms press for three minutes. */
const LONGEST_MS = 300_000;

export class EveryProgram {
  /** Flags of each, by its name. */
  readonly flags: Readonly<Record<string, readonly string[]>>;

  /** Files are made in `folder`, whose owner removes it. */
  constructor(folder: string) {
    const at = (name: string): string => join(folder, name);
    const kubeconfig = {
      apiVersion: "v1",
      kind: "Config",
      clusters: [{ name: "c", cluster: { server: "https://127.0.0.1:1" } }],
      users: [{ name: "u", user: { token: "t" } }],
      contexts: [{ name: "c", context: { cluster: "c", user: "u" } }],
      "current-context": "c",
    };
    writeFileSync(at("kubeconfig"), JSON.stringify(kubeconfig));
    const { pairs } = makeCertificates("programs", { server: ["localhost"] });
    for (const [name, text] of Object.entries(pairs.server)) writeFileSync(at(name), text);
    writeFileSync(at("uplinks.json"), JSON.stringify({ uplinks: [], listeners: [] }));
    this.flags = flagsOf(at);
  }

  /** `limit`: the number of files that it may have open. `flags`: before its own. */
  launch(
    name: string,
    {
      env = {},
      limit,
      flags = [],
    }: {
      readonly env?: Readonly<Record<string, string>>;
      readonly limit?: number;
      readonly flags?: readonly string[];
    } = {},
  ): Running {
    const few = limit === undefined ? "" : `ulimit -n ${limit}; `;
    const inside = `ip link set lo up; ip link add eth0 type veth peer name peer0; mount -t tmpfs none /run; ${few}exec "$@"`;
    const argv = [
      "unshare",
      "--net",
      "--mount",
      "sh",
      "-ec",
      inside,
      "sh",
      ISTHMUS,
      name,
      ...flags,
      ...(this.flags[name] ?? []),
    ];
    const own = {
      COIL_NODE_NAME: "n",
      COIL_POD_ADDRESSES: "10.0.0.1",
      COIL_POD_NAMESPACE: "d",
      COIL_POD_NAME: "p",
      COIL_EGRESS_NAME: "e",
    };
    return start(argv, { env: { ...own, ...env }, timeoutMs: LONGEST_MS });
  }
}

export const isOver = ({ child }: Running): boolean => child.exitCode !== null || child.signalCode !== null;

function networkOf(pid: number | "self"): string | undefined {
  const path = `/proc/${pid}/ns/net`;
  // It may have ended.
  return existsSync(path) ? readlinkSync(path) : undefined;
}

/** The TCP ports that are listened on in the network of a process; none as long as that is still this process' own. */
export function portsOf(pid: number): readonly number[] {
  if (networkOf(pid) === networkOf("self")) return [];
  const lines = ["tcp", "tcp6"].flatMap((table) => {
    const path = `/proc/${pid}/net/${table}`;
    // It may have ended.
    return existsSync(path) ? readFileSync(path, "utf8").split("\n") : [];
  });
  return lines.flatMap((line) => {
    const [, port = ""] = /^\s*\d+: [0-9A-F]+:([0-9A-F]{4}) [0-9A-F]+:0000 0A /.exec(line) ?? [];
    return port === "" ? [] : [Number.parseInt(port, 16)];
  });
}

function flagsOf(at: (name: string) => string): Readonly<Record<string, readonly string[]>> {
  const KUBECONFIG = `--kubeconfig=${at("kubeconfig")}`;
  const SERVICES = [
    KUBECONFIG,
    "--hostname-override=n",
    "--conntrack-max-per-core=0",
    "--conntrack-min=0",
    "--oom-score-adj=0",
  ];
  return {
    coild: [KUBECONFIG],
    "coil-router": [KUBECONFIG],
    "coil-egress": [KUBECONFIG, "--tunnel-driver=vxlan"],
    "service-proxy": SERVICES,
    node: ["service-proxy", ...SERVICES, "--", "coil-router", KUBECONFIG],
    "proxy-agent": ["--proxy-server-host=127.0.0.1", "--proxy-server-port=1"],
    "uplink-proxy": [`--config=${at("uplinks.json")}`],
    "coil-ipam-controller": [KUBECONFIG, "--webhook-addr=none"],
    "coil-egress-controller": [KUBECONFIG, "--webhook-addr=none", "--image=x"],
    "coil-controller": [KUBECONFIG, "--webhook-addr=none", "--egress-webhook-addr=none", "--image=x"],
    "proxy-server": [
      "--workers=2",
      "--server-port=0",
      "--insecure-allow-unauthenticated-agents",
      "--uds-name=/run/frontend.sock",
      `--cluster-cert=${at("cert")}`,
      `--cluster-key=${at("key")}`,
      "--mode=http-connect",
    ],
    "sni-router": ["--default=127.0.0.1:1"],
    "nic-controller": [KUBECONFIG, "--cluster-id=c", "--webhook-addr=none"],
    "nic-agent": [KUBECONFIG, "--state-dir=/run/nic"],
  };
}
