import { type SysctlPort, sysctlPath } from "#kernel/sysctl";
import type { FakeContext } from "./context.ts";
import { refuse } from "./faults.ts";
import type { FakeNamespace } from "./namespace.ts";

/** Numeric settings and their defaults, as far as the suite uses them. `*` is `all`, `default` or a link. */
const DEFAULTS: Readonly<Record<string, string>> = {
  "net/ipv4/ip_forward": "0",
  "net/ipv4/ip_nonlocal_bind": "0",
  "net/ipv4/fwmark_reflect": "0",
  "net/ipv4/tcp_fwmark_accept": "0",
  "net/ipv4/conf/*/forwarding": "0",
  "net/ipv4/conf/*/rp_filter": "0",
  "net/ipv4/conf/*/accept_local": "0",
  "net/ipv4/conf/*/arp_ignore": "0",
  "net/ipv4/conf/*/arp_announce": "0",
  "net/ipv4/conf/*/proxy_arp": "0",
  "net/ipv4/conf/*/route_localnet": "0",
  "net/ipv4/conf/*/send_redirects": "1",
  "net/ipv4/conf/*/accept_redirects": "1",
  "net/ipv4/conf/*/src_valid_mark": "0",
  "net/ipv6/conf/*/forwarding": "0",
  "net/ipv6/conf/*/disable_ipv6": "0",
  "net/ipv6/conf/*/accept_dad": "1",
  "net/ipv6/conf/*/dad_transmits": "1",
  "net/ipv6/conf/*/accept_ra": "1",
  "net/ipv6/conf/*/accept_redirects": "1",
  "net/ipv6/conf/*/autoconf": "1",
  "net/ipv6/conf/*/proxy_ndp": "0",
  "net/ipv6/conf/*/keep_addr_on_down": "0",
  "net/ipv6/conf/*/addr_gen_mode": "0",
};

/** The settings of a fake namespace; other keys than those above do not exist. */
export class FakeSysctlPort implements SysctlPort {
  readonly #context: FakeContext;
  readonly #ns: FakeNamespace;

  constructor(context: FakeContext, ns: FakeNamespace) {
    this.#context = context;
    this.#ns = ns;
  }

  get(key: string): string {
    const what = `read sysctl ${key}`;
    this.#context.faults.check("sysctl.get", what);
    const { path, fallback } = this.#locate(key, what);
    return this.#ns.sysctls.get(path) ?? fallback;
  }

  set(key: string, value: string | number): void {
    const what = `write ${value} to sysctl ${key}`;
    this.#context.faults.check("sysctl.set", what);
    const { path } = this.#locate(key, what);
    if (!/^-?\d+$/.test(String(value))) throw refuse("EINVAL", what);
    this.#ns.sysctls.set(path, String(value));
    this.#spread(path, String(value));
  }

  #locate(key: string, what: string): { readonly path: string; readonly fallback: string } {
    const path = sysctlPath(key).slice("/proc/sys/".length);
    const name = /^net\/ipv[46]\/conf\/([^/]+)\//.exec(path)?.[1];
    const known = name === undefined || name === "all" || name === "default" || this.#ns.linkNamed(name) !== undefined;
    const fallback = DEFAULTS[path] ?? DEFAULTS[path.replace(/\/conf\/[^/]+\//, "/conf/*/")];
    if (fallback === undefined || !known) throw refuse("ENOENT", what);
    return { path, fallback };
  }

  /** Forwarding of all is written to every link, and `ip_forward` is another name for it. */
  #spread(path: string, value: string): void {
    const family = path === "net/ipv4/ip_forward" ? "ipv4" : /^net\/(ipv[46])\/conf\/all\/forwarding$/.exec(path)?.[1];
    if (family === undefined) return;
    if (family === "ipv4") this.#ns.sysctls.set("net/ipv4/ip_forward", value);
    const names = ["all", "default", ...[...this.#ns.links.values()].map((link) => link.name)];
    for (const name of names) this.#ns.sysctls.set(`net/${family}/conf/${name}/forwarding`, value);
  }
}
