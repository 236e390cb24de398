/** Each flag of the programs that this suite replaces is accepted, with a value that the original takes. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { FlagValues } from "#base/config";
import { PROGRAMS } from "./programs.ts";
import { parseProgram } from "./shared/program/index.ts";
import { serviceProxyConfig, serviceProxyFlags } from "./shared/service-proxy-config/index.ts";

/** A flag as the original has it: its name, and a value; `undefined`: a switch. */
type Original = readonly [name: string, value?: string];

/** klog.InitFlags of klog 2.130, with its underscores. */
const KLOG: readonly Original[] = [
  ["add_dir_header"],
  ["alsologtostderr"],
  ["log_backtrace_at", "a.go:1"],
  ["log_dir", "/tmp"],
  ["log_file", "/tmp/log"],
  ["log_file_max_size", "1800"],
  ["logtostderr"],
  ["one_output"],
  ["skip_headers"],
  ["skip_log_headers"],
  ["stderrthreshold", "2"],
  ["v", "1"],
  ["vmodule", "a=1,b=2"],
];
/** zap.Options.BindFlags of controller-runtime. */
const ZAP: readonly Original[] = [
  ["zap-devel"],
  ["zap-encoder", "console"],
  ["zap-log-level", "debug"],
  ["zap-stacktrace-level", "panic"],
  ["zap-time-encoding", "rfc3339nano"],
];
const ENDPOINTS: readonly Original[] = [
  ["metrics-addr", ":9384"],
  ["health-addr", ":9385"],
];
const WEBHOOK: readonly Original[] = [
  ["webhook-addr", ":9443"],
  ["cert-dir", "/certs"],
  ["enable-cert-rotation"],
  ["enable-restart-on-cert-refresh"],
];

/** kube-proxy 1.36 on Linux: `Options.AddFlags`, the flags of its log, those of its libraries, and `--version`. */
const KUBE_PROXY: readonly Original[] = [
  ["bind-address", "0.0.0.0"],
  ["bind-address-hard-fail"],
  ["boot-id-file", "/proc/sys/kernel/random/boot_id"],
  ["cleanup"],
  ["cluster-cidr", "10.244.0.0/16,fd00:10::/48"],
  ["config", ""],
  ["config-sync-period", "15m0s"],
  ["conntrack-max-per-core", "32768"],
  ["conntrack-min", "131072"],
  ["conntrack-tcp-be-liberal"],
  ["conntrack-tcp-timeout-close-wait", "1h0m0s"],
  ["conntrack-tcp-timeout-established", "24h0m0s"],
  ["conntrack-udp-timeout", "0s"],
  ["conntrack-udp-timeout-stream", "0s"],
  ["detect-local-mode", "ClusterCIDR"],
  ["feature-gates", "AllAlpha=false,NFTablesProxyMode=true"],
  ["healthz-bind-address", "0.0.0.0:10256"],
  ["healthz-port", "10256"],
  ["hostname-override", "node-a"],
  ["init-only"],
  ["iptables-localhost-nodeports"],
  ["iptables-masquerade-bit", "14"],
  ["iptables-min-sync-period", "1s"],
  ["iptables-sync-period", "30s"],
  ["ipvs-exclude-cidrs", "10.0.0.0/8,192.168.0.0/16"],
  ["ipvs-min-sync-period", "1s"],
  ["ipvs-scheduler", "rr"],
  ["ipvs-strict-arp"],
  ["ipvs-sync-period", "30s"],
  ["ipvs-tcp-timeout", "0s"],
  ["ipvs-tcpfin-timeout", "0s"],
  ["ipvs-udp-timeout", "0s"],
  ["kube-api-burst", "10"],
  ["kube-api-content-type", "application/vnd.kubernetes.protobuf"],
  ["kube-api-qps", "5.5"],
  ["kubeconfig", "/var/lib/kube-proxy/kubeconfig"],
  ["log-flush-frequency", "5s"],
  ["log-json-info-buffer-size", "0"],
  ["log-json-split-stream"],
  ["log-text-info-buffer-size", "2Mi"],
  ["log-text-split-stream"],
  ["logging-format", "text"],
  ["machine-id-file", "/etc/machine-id,/var/lib/dbus/machine-id"],
  ["masquerade-all"],
  ["master", "https://192.0.2.1:6443"],
  ["metrics-bind-address", "127.0.0.1:10249"],
  ["metrics-port", "10249"],
  ["nodeport-addresses", "192.0.2.0/24"],
  ["oom-score-adj", "-999"],
  ["pod-bridge-interface", "br0"],
  ["pod-interface-name-prefix", "veth"],
  ["profiling"],
  ["proxy-mode", "nftables"],
  ["show-hidden-metrics-for-version", "1.35"],
  ["v", "2"],
  ["version"],
  ["vmodule", "proxier=4"],
  ["write-config-to", "/tmp/config"],
];

/** Konnectivity 0.34: `ProxyRunOptions.Flags`. Its klog flags have dashes. */
const PROXY_SERVER: readonly Original[] = [
  ["server-cert", "/c"],
  ["server-key", "/k"],
  ["server-ca-cert", "/ca"],
  ["cluster-cert", "/c"],
  ["cluster-key", "/k"],
  ["cluster-ca-cert", "/ca"],
  ["mode", "http-connect"],
  ["uds-name", "/s"],
  ["delete-existing-uds-file"],
  ["server-port", "0"],
  ["server-bind-address", "127.0.0.1"],
  ["agent-port", "8091"],
  ["agent-bind-address", "::"],
  ["admin-port", "8095"],
  ["admin-bind-address", "127.0.0.1"],
  ["health-port", "8092"],
  ["health-bind-address", ""],
  ["keepalive-time", "1h0m0s"],
  ["frontend-keepalive-time", "1h0m0s"],
  ["enable-profiling"],
  ["enable-contention-profiling"],
  ["server-id", "a"],
  ["server-count", "0"],
  ["agent-namespace", "kube-system"],
  ["agent-service-account", "konnectivity-agent"],
  ["kubeconfig", "/k"],
  ["kubeconfig-qps", "5.5"],
  ["kubeconfig-burst", "10"],
  ["kube-api-content-type", "application/json"],
  ["authentication-audience", "system:konnectivity-server"],
  ["proxy-strategies", "destHost,defaultRoute,default"],
  ["cipher-suites", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"],
  ["tls-min-version", "VersionTLS12"],
  ["xfr-channel-size", "10"],
  ["frontend-write-channel-size", "10"],
  ["enable-lease-controller"],
  ["lease-namespace", "kube-system"],
  ["lease-label", "k8s-app=konnectivity-server"],
  ["graceful-shutdown-timeout", "30s"],
  ["backend-dial-timeout", "1m"],
  ["warn-on-channel-limit"],
];

/** Konnectivity 0.34: `GrpcProxyAgentOptions.Flags`. */
const PROXY_AGENT: readonly Original[] = [
  ["agent-cert", "/c"],
  ["agent-key", "/k"],
  ["ca-cert", "/ca"],
  ["proxy-server-host", "proxy.example"],
  ["proxy-server-port", "8091"],
  ["alpn-proto", "konnectivity"],
  ["health-server-host", ""],
  ["health-server-port", "8093"],
  ["admin-bind-address", "127.0.0.1"],
  ["admin-server-port", "8094"],
  ["enable-profiling"],
  ["enable-contention-profiling"],
  ["agent-id", "a"],
  ["sync-interval", "1s"],
  ["probe-interval", "1s"],
  ["sync-interval-cap", "10s"],
  ["keepalive-time", "1h"],
  ["service-account-token-path", "/t"],
  ["agent-identifiers", "ipv4=192.0.2.1&default-route=true"],
  ["warn-on-channel-limit"],
  ["sync-forever"],
  ["xfr-channel-size", "150"],
  ["count-server-leases"],
  ["lease-namespace", "kube-system"],
  ["lease-label", "k8s-app=konnectivity-server"],
  ["server-count-source", "default"],
  ["kubeconfig", "/k"],
  ["kube-api-content-type", "application/json"],
];

const COIL = [...ENDPOINTS, ...ZAP, ...KLOG];
/** Coil 2: `sub/root.go` of each program. */
const ORIGINALS: Readonly<Record<string, readonly Original[]>> = {
  "service-proxy": KUBE_PROXY,
  "proxy-server": [...PROXY_SERVER, ...KLOG],
  "proxy-agent": [...PROXY_AGENT, ...KLOG],
  coild: [
    ...COIL,
    ["pod-table-id", "116"],
    ["pod-rule-prio", "2000"],
    ["export-table-id", "119"],
    ["protocol-id", "30"],
    ["socket", "/run/coild.sock"],
    ["compat-calico"],
    ["egress-port", "5555"],
    ["register-from-main"],
    ["enable-ipam"],
    ["enable-egress"],
    ["enable-originating-only"],
    ["backend", "nftables"],
    ["addressblock-gc-interval", "5m0s"],
  ],
  "coil-router": [...COIL, ["protocol-id", "31"], ["update-interval", "10m0s"]],
  "coil-egress": [...COIL, ["fou-port", "5555"], ["enable-sport-auto"], ["backend", "nftables"]],
  "coil-ipam-controller": [...COIL, ...WEBHOOK, ["gc-interval", "1h0m0s"]],
  "coil-egress-controller": [...COIL, ...WEBHOOK, ["egress-port", "5555"]],
  "coil-controller": [...COIL, ...WEBHOOK, ["gc-interval", "1h0m0s"], ["egress-port", "5555"]],
};

/** The ways to write a flag in Go's pflag: with `=`, with a space, and with underscores for dashes or dashes for underscores. */
function spellings([name, value]: Original): readonly (readonly string[])[] {
  const names = [...new Set([name, name.replaceAll("-", "_"), name.replaceAll("_", "-")])];
  return names.flatMap((one) =>
    value === undefined
      ? [[`--${one}`], [`--${one}=true`], [`--${one}=false`]]
      : [[`--${one}=${value}`], ...(value === "" ? [] : [[`--${one}`, value]])],
  );
}

for (const [name, flags] of Object.entries(ORIGINALS))
  test(`${name}: every flag of the original is accepted, one by one and all together`, async () => {
    const program = await PROGRAMS[name]?.load();
    assert.ok(program !== undefined);
    for (const flag of flags)
      for (const argv of spellings(flag)) {
        assert.doesNotThrow(() => parseProgram(program, argv), argv.join(" "));
        assert.equal(parseProgram(program, argv).given.size, 1, argv.join(" "));
      }
    parseProgram(
      program,
      flags.flatMap((flag) => spellings(flag)[0] ?? []),
    );
  });

test("service-proxy: with every flag of kube-proxy it has a configuration, and one line names those without an effect", async () => {
  const program = await PROGRAMS["service-proxy"]?.load();
  assert.ok(program !== undefined);
  const argv = KUBE_PROXY.flatMap((flag) => spellings(flag)[0] ?? []);
  const { values, given } = parseProgram(program, argv);
  const { notes } = serviceProxyConfig(values as unknown as FlagValues<typeof serviceProxyFlags>, given);
  const [line = "", ...more] = notes.filter((note) => note.startsWith("flags "));
  assert.deepEqual(more, []);
  const own = new Set(Object.values(serviceProxyFlags).flatMap(({ name, ignored }) => (ignored ? [] : name)));
  const without = KUBE_PROXY.map(([name]) => name).filter((name) => !own.has(name) && name !== "version");
  assert.equal(without.length, 25);
  for (const name of without) assert.match(line, new RegExp(`--${name}\\b`));
  assert.match(line, /--iptables-min-sync-period \(use --min-sync-period\)/);
});
